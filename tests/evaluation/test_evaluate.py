from __future__ import annotations

import random
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import vpac
from evaluation.worlds import Target, Walk
from vpac import progress
from vpac.errors import UserError
from vpac.evaluation import play
from vpac.oracle import evaluate as solve

MODES = list(AutoresetMode)


def first(observation):
    return 0


def known(sample):
    """Every episode of `Walk` is right."""
    assert set(sample.lengths) <= set(Walk.lengths)
    assert np.array_equal(sample.undiscounted_returns, sample.lengths + 9)
    steps = 0.9 ** np.arange(30)
    expected = [steps[:n].sum() + 9.0 * 0.9 ** (n - 1) for n in sample.lengths]
    assert sample.discounted_returns == pytest.approx(expected)
    assert sample.terminated.all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("envs", [1, 4])
def test_every_autoreset_mode_and_no_bias_toward_short_episodes(mode, envs):
    vector = SyncVectorEnv([Walk] * envs, autoreset_mode=mode)
    sample = vpac.evaluate(first, vector, 300, gamma=0.9, seed=1)
    known(sample)
    shares = [np.mean(sample.lengths == n) for n in Walk.lengths]
    assert shares == pytest.approx([1 / 3] * 3, abs=4 * np.sqrt(2 / 9 / 300))
    assert vpac.evaluate(first, vector, 300, gamma=0.9, seed=1) == sample


@pytest.mark.parametrize("limit", [1, 5])
@pytest.mark.parametrize("mode", MODES)
def test_episodes_that_are_cut_off(mode, limit):
    vector = SyncVectorEnv([lambda: gymnasium.wrappers.TimeLimit(Walk(), limit)] * 3, autoreset_mode=mode)
    sample = vpac.evaluate(first, vector, 100)
    assert sample.lengths.max() == limit
    assert not sample.terminated[sample.undiscounted_returns == limit].any()
    assert sample.terminated[sample.undiscounted_returns > limit].all()


def test_an_asynchronous_vector_environment():
    vector = AsyncVectorEnv([Walk] * 2)
    known(vpac.evaluate(first, vector, 20, gamma=0.9))
    vector.close()


@pytest.mark.parametrize(
    "env", [Walk, Walk(), lambda: gymnasium.wrappers.TimeLimit(Walk(), 99)], ids=["class", "object", "factory"]
)
def test_ways_to_give_an_environment(env):
    known(vpac.evaluate(first, env, 30, gamma=0.9))


def test_an_unknown_object_is_used_itself_and_left_open():
    """A copy might share a simulator with it."""
    env = Walk()
    env.lengths = (2,)
    env.close = lambda: pytest.fail("the user's environment was closed")
    assert set(vpac.evaluate(first, env, 9).lengths) == {2}
    assert play.vectorised(env, 8, agent=None).env.num_envs == 1


@pytest.mark.parametrize("name", ["vpac/FourRooms-v0", "CartPole-v1", "FrozenLake-v1"])
def test_copies_of_an_object_are_independent_and_keep_what_was_changed(name):
    env = gymnasium.make(name)
    env.unwrapped.changed = 3
    made = play.vectorised(env, 4, agent=None).env
    assert made.num_envs == 4
    assert made.get_attr("changed") == (3,) * 4
    by_object, by_id = (vpac.evaluate(lambda x: 0, one, 8, gamma=0.9, envs=4) for one in (env, name))
    assert np.array_equal(by_object.returns, by_id.returns)
    made.close()


@pytest.fixture(scope="module")
def learner():
    return vpac.VPAC("vpac/CatchUp-v0", gamma=0.95, psi=0.0).learn(200)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_learner_against_the_oracle(learner, deterministic):
    policy = vpac.oracle.greedy(learner.weights.theta) if deterministic else learner.policy()
    exact = solve(learner.environment.mdp, policy, 0.95, 200)
    sample = vpac.evaluate(learner, "vpac/CatchUp-v0", 1500, deterministic=deterministic)
    assert sample.gamma == 0.95
    error = sample.std / np.sqrt(len(sample))
    assert sample.mean == pytest.approx(float(exact.mean), abs=4 * error)
    spread = np.std((sample.returns - sample.mean) ** 2) / np.sqrt(len(sample))
    assert sample.variance == pytest.approx(float(exact.total_variance), abs=4 * spread)


def test_act_draws_from_the_policy(learner):
    states = np.full(20_000, 4)
    drawn = learner.act(states, np.random.default_rng(0))
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    policy = learner.policy()[4]
    assert np.all(np.abs(shares - policy) <= 4 * np.sqrt(policy * (1 - policy) / len(drawn)) + 1e-12)
    assert learner.act([4, 5], np.random.default_rng(0), deterministic=True).tolist() == [
        learner.predict(s)[0] for s in (4, 5)
    ]


def test_act_on_tiles_and_shifted_actions():
    env = gymnasium.make("vpac/ContinuousPuddleWorld-v0")
    learner = vpac.AC(env, tilings=2).learn(2)
    points = np.random.default_rng(1).random((5, 2))
    assert learner.act(points, np.random.default_rng(0), True).tolist() == [learner.predict(p)[0] for p in points]


def test_the_seed_decides_and_nothing_else(learner):
    one = vpac.evaluate(learner, "vpac/CatchUp-v0", 40, seed=5)
    learner.predict(0, deterministic=False)
    assert vpac.evaluate(learner, "vpac/CatchUp-v0", 40, seed=5) == one
    assert vpac.evaluate(learner, "vpac/CatchUp-v0", 40, seed=6) != one


def test_global_random_numbers_are_seeded_and_put_back():
    def policy(observation):
        return int(random.random() < 0.5) ^ int(np.random.random() < 0.5)  # noqa: NPY002

    before = random.getstate()
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    one = vpac.evaluate(policy, "vpac/CatchUp-v0", 30)
    assert random.getstate() == before
    assert np.array_equal(np.random.random(3), expected)  # noqa: NPY002
    assert vpac.evaluate(policy, "vpac/CatchUp-v0", 30) == one


class Model:
    """As Stable-Baselines3's models: batches, a state where it is recurrent."""

    gamma = 0.5

    def __init__(self, env, recurrent=False):
        self.observation_space, self.recurrent, self.seen = env.observation_space, recurrent, []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.seen.append((state, episode_start.copy(), deterministic))
        count = len(observation["x"]) if isinstance(observation, dict) else len(observation)
        return np.full((count, 2), 7.0), (state or 0) + 1 if self.recurrent else None


def test_a_model_like_those_of_stable_baselines():
    model = Model(Target(), recurrent=True)
    sample = vpac.evaluate(model, Target, 10, envs=4, deterministic=True)
    assert (sample.gamma, sample.mean) == (0.5, 1.0)  # clipped
    assert [state for state, *_ in model.seen] == [None, 1, 2]
    assert all(starts.all() and deterministic for _, starts, deterministic in model.seen)


def test_where_episodes_begin_is_said():
    class Counter(Model):
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            assert np.array_equal(episode_start, self.new(observation))
            self.left = observation[:, 0]
            return np.zeros(len(observation), int), None

        def new(self, observation):
            return np.ones(len(observation), bool) if self.left is None else observation[:, 0] != self.left - 1

    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        model = Counter(Walk())
        model.left = None
        vector = SyncVectorEnv([Walk] * 2, autoreset_mode=mode)
        vpac.evaluate(model, vector, 12)


def test_a_model_that_takes_one_observation():
    class Single:
        def predict(self, observation, deterministic):
            assert observation["x"].shape == (2,)
            return np.array([0.25, 0.0]), None

    assert vpac.evaluate(Single(), Target, 5).mean == 0.25


def test_mistakes_are_named():
    class Wrong(Model):
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.zeros(3), None

    class Bad(Walk):
        def step(self, action):
            return (*super().step(action)[:1], np.nan, True, False, {})

    for agent, env, match in (
        (3, Walk, "int cannot be asked for actions"),
        (Wrong(Target()), Target, "actions of shape .3., the environment takes .5, 2."),
        (first, Bad, "Bad cannot be measured in yet:\n  1. step returned the reward nan: return a finite number"),
        (first, Bad(), "reward is nan in step 1 of episode 0"),
        (first, "vpac/FourRoms-v0", "did you mean 'vpac/FourRooms-v0'"),
        (first, 3, "got int"),
        (first, lambda: 3, "must inherit from the gymnasium.Env class, actual class: <class .int.>"),
    ):
        with pytest.raises(UserError, match=match):
            vpac.evaluate(agent, env, 5)
    for name, value in (("episodes", 0), ("envs", 0), ("seed", -1), ("gamma", 2.0)):
        with pytest.raises(UserError, match=name):
            vpac.evaluate(first, Walk, **{"episodes": 5, name: value})
    vector = SyncVectorEnv([Walk])
    del vector.metadata["autoreset_mode"]
    with pytest.raises(UserError, match="does not say what it does at the end"):
        vpac.evaluate(first, vector, 5)


def test_an_episode_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr("vpac.evaluation.play.LONGEST_EPISODE", 50)
    monkeypatch.setattr("vpac.evaluation.play.LONG", 20)
    with (
        pytest.warns(UserWarning, match="no episode has ended within 20 steps"),
        pytest.raises(UserError, match="did not end within 50 steps"),
    ):
        vpac.evaluate(lambda x: 2, vpac.envs.CatchUp().mdp, 5)


def test_progress(monkeypatch):
    reported = []
    vpac.evaluate(first, Walk, 20, progress=lambda done, total: reported.append((done, total)))
    assert reported[-1] == (20, 20)
    assert reported == sorted(reported)
    bars = []

    class Bar:
        task_ids = (0,)

        def __init__(self, *columns, **options):
            self.calls = []
            bars.append(self.calls)

        def __getattr__(self, name):
            return lambda *words, **more: self.calls.append((name, more))

    monkeypatch.setattr("rich.progress.Progress", Bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    vpac.evaluate(first, Walk, 20, progress=True)
    assert bars == []  # it took less than two seconds
    monkeypatch.setattr(progress, "DELAY", -1.0)
    vpac.evaluate(first, Walk, 20, progress=False)
    assert bars == []
    vpac.evaluate(first, Walk, 20, progress=True)
    (calls,) = bars
    name, more = calls[0]
    assert (name, more["total"]) == ("add_task", 20)
    (name, more), end = calls[-2:]
    assert (name, more["completed"], end) == ("update", 20, ("stop", {}))


def test_evaluate_is_imported_lazily():
    seen = "'vpac.evaluation' in sys.modules"
    code = f"import sys, vpac; print({seen}); vpac.evaluate; print({seen})"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["False", "True"]


def test_ours_see_vectors_and_others_what_the_environment_gives():
    """Whether the environment is named, a class or an object."""
    pytest.importorskip("jax")
    gymnasium.registry.pop("Target-v0", None)
    gymnasium.register("Target-v0", Target)
    seen = []

    def plain(observation):
        seen.append(observation)
        return np.array([0.5, 0.0], np.float32)

    class Model:
        observation_space, action_space = Target.observation_space, Target.action_space

        def predict(self, observation, deterministic=True):
            seen.append({key: value[0] for key, value in observation.items()})
            return np.tile(np.array([0.5, 0.0], np.float32), (len(observation["n"]), 1)), None

    agent = vpac.PPO(Target, envs=2, steps=8, epochs=1, minibatch=16, hidden=(4,)).learn(16)
    mine = Target()
    mine.close = lambda: pytest.fail("the user's environment was closed")
    for env in ("Target-v0", Target, mine):
        assert np.isfinite(vpac.evaluate(agent, env, 4).undiscounted_returns).all()
        for other in (plain, Model()):
            assert set(vpac.evaluate(other, env, 4).undiscounted_returns) == {0.5}
    assert all(set(one) == {"x", "n"} for one in seen)
    with pytest.raises(UserError, match="learned from flattened observations"):
        agent.predict(mine.reset()[0])


def test_a_matrix_may_come_as_it_is():
    pytest.importorskip("jax")

    class Matrix(Walk):
        observation_space = gymnasium.spaces.Box(0.0, 100.0, (2, 3), np.float32)

        def _seen(self):
            return np.full((2, 3), self.left, np.float32)

    agent = vpac.PPO(Matrix, envs=2, steps=8, epochs=1, minibatch=16, hidden=(4,)).learn(16)
    one = np.arange(6, dtype=np.float32).reshape(2, 3)
    alone, flat = agent.predict(one)[0], agent.predict(one.ravel())[0]
    assert np.ndim(alone) == 0
    assert alone == flat
    assert agent.predict(np.stack([one] * 5))[0].tolist() == [alone] * 5
    assert agent.predict(one.reshape(1, 6))[0].tolist() == [alone]
