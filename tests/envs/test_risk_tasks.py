"""Common risk tasks: their numbers by hand, their careful policies, and the wrappers that add risk in one region."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from simulate import assert_mean, returns, simulate
from vpac import FiniteMDP, oracle
from vpac.envs import BothDirections, CarFollowing, GuardedMaze, NoisyLanding, ServerAllocation
from vpac.envs.registration import SIDED_TASKS
from vpac.errors import UserError


def going(mdp, *actions):
    """A policy that takes the named action in every state, or the one that `actions` gives for it."""
    policy = np.zeros((mdp.n_states, mdp.n_actions))
    policy[np.arange(mdp.n_states), actions] = 1.0
    return policy


def test_the_ways_of_the_guarded_maze_by_hand():
    mdp = GuardedMaze().mdp
    place = {tuple(cell): state for state, cell in enumerate(mdp.layout.position.tolist())}
    up, down, right = (mdp.action_names.index(name) for name in ("up", "down", "right"))
    short = oracle.evaluate(mdp, going(mdp, np.full(mdp.n_states, right)), 1.0)
    assert (short.mean, short.total_variance) == pytest.approx((16 - 5 - 0.2 * 20, 0.2 * 0.8 * 20**2))
    around = np.full(mdp.n_states, right)
    around[[place[row, 1] for row in (2, 3, 4)]] = down
    around[[place[row, 6] for row in (3, 4, 5)]] = up
    long = oracle.evaluate(mdp, going(mdp, around), 1.0)
    assert (long.mean, long.total_variance) == pytest.approx((16 - 11, 0.0))


def test_the_careful_way_is_the_best_one_from_its_price_on():
    """7 − 64ψ against 5: from ψ = 1/32 on."""
    found = oracle.frontier(GuardedMaze().mdp, [0.03, 0.033], 1.0)
    np.testing.assert_allclose(found.variances, [64.0, 0.0], atol=1e-9)


def test_a_caught_walker_goes_on_as_a_free_one():
    mdp = GuardedMaze().mdp
    caught, gate = np.flatnonzero(mdp.layout.has("x"))
    value = oracle.evaluate(mdp, oracle.uniform(mdp), 0.9).value
    assert value[gate] == pytest.approx(value[caught])


def test_car_following_by_hand():
    """Two steps from a gap of 4: closing up pays 5/7, then 6/7; braking at the first step leaves a gap of 1 and pays 1."""
    mdp = CarFollowing(brakes=0.25, crash=20.0, steps=2).mdp
    found = oracle.evaluate(mdp, going(mdp, np.full(mdp.n_states, 2)), 1.0)
    calm, near = 1 - 2 / 7, 1.0  # gaps 3 and 1
    second = {
        3: (0.75 * (1 - 1 / 7) + 0.25 * -20.0),
        1: -20.0,
    }  # from 3: gap 2, or braked to 0; from 1: always 0 or less
    assert found.mean == pytest.approx(0.75 * (calm + second[3]) + 0.25 * (near + second[1]))


def test_server_allocation_by_hand():
    """Without servers a step costs 3 in calm and 18 in a rush; one server costs 0.3 and serves one of them."""
    mdp = ServerAllocation(rush=0.1, steps=1).mdp
    found = oracle.evaluate(mdp, going(mdp, np.full(mdp.n_states, 1)), 1.0)
    assert found.mean == pytest.approx(-0.3 - 0.1 * 15.0)
    assert found.total_variance == pytest.approx(0.1 * 0.9 * 15.0**2)


@pytest.mark.parametrize("kind", [CarFollowing, ServerAllocation])
def test_a_price_buys_less_variance_for_some_of_the_mean(kind):
    found = oracle.frontier(kind(steps=8).mdp, [0.0, 0.03, 0.3], 1.0, restarts=0)
    assert (np.diff(found.means) < -1e-3).any()
    assert found.variances[-1] < 0.5 * found.variances[0]


@pytest.mark.parametrize("kind", [GuardedMaze, CarFollowing, ServerAllocation])
def test_sampled_episodes_have_the_exact_moments(kind):
    env = kind()
    policy = oracle.uniform(env.mdp)
    found = oracle.evaluate(env.mdp, policy, 0.9)
    sample = returns(simulate(env.mdp, policy, 2000, 150, np.random.default_rng(0)), 0.9)
    assert_mean(sample, found.mean)
    assert_mean((sample - found.mean) ** 2, found.total_variance)


@pytest.mark.parametrize("kind", [GuardedMaze, CarFollowing, ServerAllocation])
def test_arguments_that_are_no_probability(kind):
    with pytest.raises(UserError, match=r"must be a probability from 0 to 1, got 1\.5"):
        kind(1.5)


class Slider(gymnasium.Env):
    """Moves by its action; the forward reward is the speed."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([self.x]), {}

    def step(self, action):
        self.x += float(action[0])
        return (
            np.array([self.x]),
            float(action[0]) - 0.5,
            abs(self.x) >= 2.0,
            False,
            {"reward_forward": float(action[0])},
        )


def test_both_directions_pay():
    env = BothDirections(Slider())
    env.reset(seed=0)
    assert [env.step(np.array([a]))[1] for a in (0.75, -0.25)] == [0.75 - 0.5, 0.25 - 0.5]
    plain = BothDirections(gymnasium.make("CartPole-v1"))
    plain.reset(seed=0)
    with pytest.raises(UserError, match="needs info"):
        plain.step(0)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_only_landings_on_the_right_are_noisy(side):
    env = NoisyLanding(Slider(), std=10.0)
    last = []
    for seed in range(200):
        env.reset(seed=seed)
        steps = [env.step(np.array([side])) for _ in range(2)]
        assert steps[0][1] == side - 0.5
        assert not steps[0][4]["noisy"]
        assert steps[1][4]["noisy"] == (side > 0.0)
        last.append(steps[1][1] - (side - 0.5))
    assert np.std(last) == pytest.approx(10.0 if side > 0.0 else 0.0, rel=4 / np.sqrt(400))


@pytest.mark.parametrize("task", SIDED_TASKS, ids=lambda task: task.id)
def test_the_sided_tasks_can_be_made(task):
    pytest.importorskip("Box2D" if "Lunar" in task.id else "mujoco")
    env = gymnasium.make(task.id)
    env.reset(seed=0)
    _, reward, *_, info = env.step(env.action_space.sample())
    assert np.isfinite(reward)
    assert "noisy" in info
    assert env.spec.max_episode_steps == task.max_episode_steps


def test_they_are_worlds_of_jax_too():
    pytest.importorskip("jax")
    from vpac.envs.jax_worlds import jax_version

    assert (
        jax_version("vpac/GuardedMaze-v0").mdp.n_states
        == FiniteMDP.from_gymnasium("vpac/GuardedMaze-v0").n_states
        == 17
    )
