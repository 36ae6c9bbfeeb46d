"""Learners that remember their return."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vpac
from seeds import bounds, seeds
from shop import shop
from vpac import VPAC, FiniteMDP, oracle
from vpac.envs import CatchUp, RememberReturn, RewardNoise
from vpac.errors import UserError
from vpac.tabular.curves import exact_moments

WORLD = "vpac/CatchUp-v0"


def test_to_remember_beats_every_policy_of_the_state():
    """Catch-up, γ = 0.95, ψ = 1, six seeds: better than the best policy that forgets by four standard errors."""
    mdp = FiniteMDP.from_gymnasium(WORLD)
    best = oracle.evaluate(mdp, oracle.best_policy(mdp, 1.0, 0.95), 0.95)
    found = []
    for seed in seeds(6):
        agent = VPAC(WORLD, seed=seed, psi=1.0, gamma=0.95, alpha_theta=0.003, variance_of="return", remember="return")
        agent.learn(150_000)
        mean, variance = exact_moments(agent.environment.mdp, agent.policy()[None], 0.95, 200)
        found.append(float(mean[0] - variance[0]))
    assert bounds(found)[0] > float(best.mean - best.total_variance)


def test_episodes_agree_with_the_exact_moments():
    agent = VPAC(WORLD, psi=1.0, gamma=0.95, alpha_theta=0.003, remember="return").learn(20_000)
    mean, variance = (float(x[0]) for x in exact_moments(agent.environment.mdp, agent.policy()[None], 0.95, 200))
    for env in (WORLD, RememberReturn(CatchUp(), **agent.environment.memory)):  # without and with a memory of its own
        sample = vpac.evaluate(agent, env, 2000, seed=1)
        assert abs(sample.mean - mean) < 4 * (variance / 2000) ** 0.5
        deviation = (sample.discounted_returns - sample.mean) ** 2
        assert abs(deviation.mean() - variance) < 4 * deviation.std() / 2000**0.5


def test_a_saved_one_acts_as_before(tmp_path):
    agent = VPAC(WORLD, psi=1.0, gamma=0.95, remember="return").learn(200)
    again = VPAC.load(agent.save(tmp_path))
    assert again.environment.memory == agent.environment.memory
    assert np.array_equal(again.learn(50).weights.theta, agent.learn(50).weights.theta)


def test_every_kind_of_environment():
    assert VPAC(shop(), remember="return", max_episode_steps=4).learn(5).environment.mdp.n_states == 5 * 21 * 31
    assert VPAC("CartPole-v1", remember="return").learn(2).environment.memory == {"gamma": 0.99}
    assert VPAC("FrozenLake-v1", remember="return").learn(2).environment.memory["bins"] == 2  # pays at the end only
    assert VPAC(WORLD).environment.memory is None


def test_a_world_that_does_not_say_its_returns_is_wrapped_by_hand():
    with pytest.raises(UserError, match="RememberReturn with gamma"):
        VPAC(Coin, remember="return")
    with pytest.raises(UserError, match="RememberReturn with gamma"):  # noise changes what is collected
        VPAC(RewardNoise(CatchUp(), std=1.0), remember="return")
    by_hand = RememberReturn(Coin(), gamma=0.9, bins=3, low=0.0, high=2.0, horizon=4)
    assert VPAC(by_hand, remember="return", gamma=0.9).learn(5).environment.n_features == 5 * 2 * 3
    with pytest.raises(UserError, match="remember"):
        VPAC(WORLD, remember="everything")


class Coin(gymnasium.Env):
    """Four throws of a coin that pays 1 for heads; it has no table of transitions."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 4
        return 0, {}

    def step(self, action):
        self.left -= 1
        side = int(self.np_random.integers(2))
        return side, float(side), self.left == 0, False, {}
