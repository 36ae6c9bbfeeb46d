"""The loop over Gymnasium environments learns the same numbers as the compiled loop.

Both draw actions from the learner's stream of random numbers. Here the environment draws from that stream, too, in the order in
which the compiled world does: so the same episodes happen, and every weight must agree.
"""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numba import njit

import reference
from seeds import OFFSET, bounds, seeds
from vpac.envs import ContinuousPuddleWorld
from vpac.errors import UserError
from vpac.tabular import (
    AC,
    VAAC,
    VAACTD,
    VPAC,
    OffPolicyAC,
    OffPolicyVAAC,
    OffPolicyVAACTD,
    OffPolicyVPAC,
)
from vpac.tabular.environment import move, reset
from vpac.tabular.options import StepSizeOrder

ON_POLICY = (AC, VPAC, VAAC, VAACTD)
OFF_POLICY = (OffPolicyAC, OffPolicyVPAC, OffPolicyVAAC, OffPolicyVAACTD)


@njit(_nrt=False)
def start(world, position, rng):
    reset(world, position, rng)


@njit(_nrt=False)
def step(world, position, action, rng):
    return move(world, position, action, rng)


class Stepped(gymnasium.Env):
    """A compiled world behind Gymnasium's interface, with random numbers from `rng`."""

    def __init__(self, environment, first_action=0):
        self.world, self.position, self.rng = environment.world, np.zeros(2), None
        finite = environment.mdp is not None
        self.observation_space = (
            spaces.Discrete(environment.n_features, start=7) if finite else spaces.Box(0, 1, (2,), float)
        )
        self.action_space = spaces.Discrete(environment.n_actions, start=first_action)

    def seen(self):
        return int(self.position.view(np.int64)[0]) + 7 if self.world.finite else self.position.copy()

    def reset(self, *, seed=None, options=None):
        start(self.world, self.position, self.rng)
        return self.seen(), {}

    def step(self, action):
        reward, terminated = step(self.world, self.position, action - self.action_space.start, self.rng)
        return self.seen(), reward, terminated, False, {}


def both(kind, env, episodes, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StepSizeOrder)
        compiled = kind(env, seed=OFFSET + 2, **settings)
        world = Stepped(compiled.environment, first_action=3)
        stepped = kind(world, seed=OFFSET + 2, **settings)
    assert stepped.environment.world is None
    world.rng = stepped._rng
    return compiled.learn(episodes), stepped.learn(episodes)


def assert_same(compiled, stepped):
    for name, one, other in zip(("theta", "w", "z", "mean"), compiled.weights, stepped.weights, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12, err_msg=name)
        assert name == "mean" or len(np.unique(one)) > 5
    for name, one, other in zip(compiled.history._fields, compiled.history, stepped.history, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12, err_msg=name)
    assert np.array_equal(compiled._rng, stepped._rng)


FORMS = [
    {"form": "published", "baseline": False},
    {"form": "corrected", "baseline": True, "temperature": 2.0},
]


@pytest.mark.parametrize("ending", [1, 0], ids=["ending", "cut off"])
@pytest.mark.parametrize("n_actions", [3, 4])
@pytest.mark.parametrize("form", FORMS, ids=lambda x: x["form"])
@pytest.mark.parametrize("kind", ON_POLICY)
def test_tables_on_policy(kind, form, n_actions, ending):
    mdp = reference.random_mdp(np.random.default_rng(4), 5, n_actions, ending, noise=0.3)
    settings = {"max_episode_steps": 20, "alpha_theta": 0.05, "alpha_w": 0.2, "alpha_z": 0.1, "gamma": 0.9, **form}
    assert_same(*both(kind, mdp, 40, **settings))


CRITICS = [
    {"critics": "clipped", "behaviour": "uniform"},
    {"critics": "importance", "behaviour": "epsilon-greedy", "epsilon": 0.6},
    {"critics": "expected", "behaviour": "uniform", "variance_of": "return"},
]


@pytest.mark.parametrize("critics", CRITICS, ids=lambda x: x["critics"])
@pytest.mark.parametrize("form", FORMS, ids=lambda x: x["form"])
@pytest.mark.parametrize("kind", OFF_POLICY)
def test_tables_off_policy(kind, form, critics):
    if kind is OffPolicyVAAC and critics["critics"] == "expected":
        pytest.skip("whole returns have no expected critics")
    mdp = reference.random_mdp(np.random.default_rng(4), 5, 3, 1, noise=0.3)
    settings = {"max_episode_steps": 12, "alpha_theta": 0.05, "alpha_w": 0.2, "alpha_z": 0.1, "gamma": 0.9}
    assert_same(*both(kind, mdp, 30, **settings, **form, **critics))


@pytest.mark.parametrize("kind", [*ON_POLICY, OffPolicyVPAC, OffPolicyVAAC])
def test_tiles(kind):
    """Step sizes are shared by the ten active tiles in both."""
    settings = {"max_episode_steps": 60, "alpha_theta": 0.1, "alpha_w": 0.3, "alpha_z": 0.2}
    env = ContinuousPuddleWorld(step=0.1, goal=(0.6, 0.6), goal_distance=0.3, goal_reward=5.0)
    assert_same(*both(kind, env, 15, **settings))


class Odd(gymnasium.Env):
    """An environment that gives what a test wants."""

    def __init__(self, space, observation, reward=1.0, ends=True):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.observation, self.reward, self.ends, self.resets = observation, reward, ends, 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        return self.observation, {}

    def step(self, action):
        return self.observation, self.reward, self.ends, False, {}


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (spaces.Discrete(5), 5, "5 is not an observation of Odd: expected a whole number from 0 to 4"),
        (spaces.Discrete(5), -1, "expected a whole number from 0 to 4"),
        (spaces.Discrete(5, start=2), 1, "expected a whole number from 2 to 6"),
        (spaces.Discrete(5), 2.5, "expected a whole number"),
        (spaces.Discrete(5), None, "expected a whole number"),
        (spaces.Box(0, 1, (3,)), np.zeros(2), "expected 3 numbers"),
        (spaces.Box(0, 1, (3,)), 0.5, "expected 3 numbers"),
        (spaces.Box(0, 1, (3,)), "far", "expected 3 numbers"),
        (spaces.Box(0, 1, (2,)), np.array([0.0, np.nan]), "not finite"),
    ],
)
def test_observations_outside_their_space_are_named(space, observation, message):
    learner = VPAC(Odd(space, observation))
    with pytest.raises(UserError, match=message):
        learner.learn(1)
    with pytest.raises(UserError, match=message):
        learner.predict(observation)


@pytest.mark.parametrize("observation", [-1, 3.7, 11, [1, 2], "3"])
def test_predicting_what_a_compiled_world_does_not_have(observation):
    with pytest.raises(UserError, match="expected a whole number from 0 to 10"):
        VPAC("vpac/CatchUp-v0").predict(observation)


@pytest.mark.parametrize("observation", [3, [0.1], [0.1, 0.2, 0.3], None, [[0.1, 0.2]]])
def test_predicting_from_points_of_the_wrong_shape(observation):
    with pytest.raises(UserError, match="expected 2 numbers"):
        VPAC("MountainCar-v0").predict(observation)


@pytest.mark.parametrize("dimensions", [24, 33, 64, 128])
def test_boxes_of_many_dimensions(dimensions):
    learner = VPAC(Odd(spaces.Box(-1, 1, (dimensions,)), np.full(dimensions, 0.3))).learn(20)
    assert learner.returns.tolist() == [1.0] * 20
    assert np.isfinite(learner.weights.theta).all()
    assert 0 < np.count_nonzero(learner.weights.w.any(axis=1)) <= 10
    with pytest.raises(UserError, match=r"more than 10,000,000 features: pass hash_size"):
        VPAC(Odd(spaces.Box(-1, 1, (dimensions,)), 0), hash_size=None)


@pytest.mark.parametrize("reward", [None, "much", [1.0, 2.0]])
def test_a_reward_must_be_a_number(reward):
    with pytest.raises(UserError, match=r"Odd: step returned the reward .*: return a number"):
        AC(Odd(spaces.Discrete(2), 0, reward)).learn(1)


def test_the_first_episode_that_does_not_end_stops_learning(monkeypatch):
    monkeypatch.setattr("vpac.tabular.environment.LONGEST_EPISODE", 500)
    env = Odd(spaces.Discrete(2), 0, ends=False)
    learner = AC(env)
    with pytest.raises(UserError, match="did not end within 500 steps: pass max_episode_steps"):
        learner.learn(1000)
    assert env.resets == learner.episodes == 1
    mdp = reference.random_mdp(np.random.default_rng(0), 4, 2, 0)
    for kind in (AC, OffPolicyAC):
        learner = kind(mdp)
        with pytest.raises(UserError, match="did not end within 500 steps"):
            learner.learn(1000)
        assert learner.history.lengths.tolist() == [500]


def test_actions_may_be_numbered_from_anywhere():
    class Payer(Odd):
        def __init__(self):
            super().__init__(spaces.Discrete(1), 0)
            self.action_space = spaces.Discrete(3, start=5)

        def step(self, action):
            assert action in self.action_space
            return 0, float(action == 6), True, False, {}

    paying = []
    for seed in seeds():
        learner = AC(Payer(), alpha_theta=0.1, seed=seed).learn(200)
        assert {learner.predict(0, deterministic=False)[0] for _ in range(50)} <= {5, 6, 7}
        assert learner.predict(0)[0] == 5 + np.argmax(learner.policy()[0])
        paying.append(learner.policy()[0, 1])
    assert bounds(paying)[0] > 0.5


def test_coordinates_without_bounds_are_squashed():
    """CartPole's velocities have none. Its return, the time it stands, grows from about 20."""
    gained = []
    for seed in seeds(8):
        learner = AC("CartPole-v1", gamma=0.99, alpha_theta=0.05, alpha_w=0.3, alpha_z=0.3, seed=seed).learn(200)
        lengths = learner.history.lengths
        gained.append(np.log(lengths[-50:].mean() / lengths[:50].mean()))
    assert bounds(gained)[0] > 0.0
    learner.predict([0.0, 1e300, 0.0, -1e300])
