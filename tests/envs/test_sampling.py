from __future__ import annotations

import numpy as np
import pytest

from envs.sampling import Scripted, assert_frequency, assert_mean, assert_variance
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.worlds import FiniteMDPEnv
from vpac.errors import UserError

TERMINAL = [False, False, True]


@pytest.fixture
def mdp():
    transition = np.zeros((3, 2, 3))
    transition[0, 0] = [0.25, 0.25, 0.5]
    transition[0, 1, 1] = transition[1, 0, 2] = transition[1, 1, 0] = 1.0
    reward, noise = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    reward[0, 0], noise[0, 0] = [3.0, -7.0, 20.0], [4.0, 0.0, 64.0]
    return FiniteMDP(transition, reward, noise, [0.75, 0.25, 0.0], TERMINAL)


def test_frequencies_and_reward_moments(mdp):
    rng, tries = np.random.default_rng(1), 30_000
    drawn = [mdp.sample(0, 0, rng) for _ in range(tries)]
    successor, reward = np.array([s for s, _, _ in drawn]), np.array([r for _, r, _ in drawn])
    assert [ended for _, _, ended in drawn] == (successor == 2).tolist()
    for to, probability in enumerate([0.25, 0.25, 0.5]):
        assert_frequency((successor == to).sum(), tries, probability)
    assert np.all(reward[successor == 1] == -7.0)
    for to, mean, variance in ((0, 3.0, 4.0), (2, 20.0, 64.0)):
        assert_mean(reward[successor == to], mean, variance)
        assert_variance(reward[successor == to], variance)


def test_rewards_are_normal(mdp):
    rng = np.random.default_rng(2)
    reward = np.array([r for s, r, _ in (mdp.sample(0, 0, rng) for _ in range(20_000)) if s == 2])
    assert_frequency((np.abs(reward - 20.0) < 8.0).sum(), len(reward), 0.682689492137)
    assert_frequency((reward < 20.0 - 2 * 8.0).sum(), len(reward), 0.022750131948)


def test_first_states(mdp):
    rng, tries = np.random.default_rng(3), 20_000
    first = [mdp.sample_start(rng) for _ in range(tries)]
    assert_frequency(first.count(0), tries, 0.75)
    assert first.count(0) + first.count(1) == tries


@pytest.mark.parametrize(("uniform", "to"), [(0.0, 0), (0.2499, 0), (0.25, 1), (0.4999, 1), (0.5, 2), (1 - 2**-53, 2)])
def test_a_uniform_number_chooses_the_successor(mdp, uniform, to):
    successor, reward, ended = mdp.sample(0, 0, Scripted([uniform], [0.5]))
    assert (successor, ended) == (to, to == 2)
    assert reward == [3.0 + 2.0 * 0.5, -7.0, 20.0 + 8.0 * 0.5][to]
    assert (type(successor), type(reward), type(ended)) == (int, float, bool)


def test_probabilities_a_hair_below_one_do_not_spill_into_the_next_row():
    mdp = FiniteMDP(np.array([[[1.0 - 5e-9, 0.0]], [[0.0, 1.0]]]))
    assert mdp.sample(0, 0, Scripted([1 - 2**-53])) == (0, 0.0, False)


def test_a_certain_reward_takes_no_random_number(mdp):
    generator = Scripted([0.3], [])
    assert mdp.sample(0, 1, generator) == (1, 0.0, False)
    assert generator.uniform == []


def test_sampling_where_there_is_nothing_to_sample(mdp):
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match="state 2 is terminal: the episode is over"):
        mdp.sample(2, 0, rng)
    for state in (-1, 3):
        with pytest.raises(UserError, match=f"state {state} is out of range: expected 0 to 2"):
            mdp.sample(state, 0, rng)
    for action in (-1, 2):
        with pytest.raises(UserError, match=f"action {action} is out of range: expected 0 to 1"):
            mdp.sample(0, action, rng)


def test_as_an_environment(mdp):
    env = FiniteMDPEnv(mdp)
    assert (env.observation_space.n, env.action_space.n) == (3, 2)
    assert env.reset(options={"state": 1}) == (1, {})
    state, reward, terminated, truncated, info = env.step(np.int64(0))
    assert (state, reward, terminated, truncated, info) == (2, 0.0, True, False, {})
    assert state in env.observation_space
    assert type(terminated) is bool
    with pytest.raises(UserError, match="state 2 is terminal: the episode is over"):
        env.step(np.int64(0))


def test_a_long_episode_does_not_fill_the_memory(mdp):
    env = FiniteMDPEnv(mdp)
    env.reset(options={"state": 0})
    for _ in range(10):
        env.step(np.int64(1))
    assert len(env._walked) == 1


def test_resets_draw_from_the_start_distribution(mdp):
    env = FiniteMDPEnv(mdp)
    env.reset(seed=4)
    first = [int(env.reset()[0]) for _ in range(5000)]
    assert_frequency(first.count(0), 5000, 0.75)


def test_mistakes_with_an_environment(mdp):
    env = FiniteMDPEnv(mdp)
    with pytest.raises(UserError, match=r"step\(\) before reset\(\)"):
        env.step(np.int64(0))
    for state in (2, 3, -1, 0.5, "a"):
        with pytest.raises(UserError, match=f"cannot start in state {state!r}: expected a non-terminal state below 3"):
            env.reset(options={"state": state})
    env.reset()
    for action in (2, -1, 0.5):
        with pytest.raises(UserError, match=f"unknown action {action!r}: expected a whole number from 0 to 1"):
            env.step(action)


def test_a_step_limit_truncates(mdp):
    env = mdp.to_gymnasium(max_episode_steps=3)
    env.reset(options={"state": 0})
    went = [env.step(action)[2:4] for action in (1, 1, 1)]  # 0 → 1 → 0 → 1
    assert went == [(False, False), (False, False), (False, True)]
    assert mdp.to_gymnasium().unwrapped.mdp is mdp
