"""Environments that remember their return: wrapper and finite MDP agree, and rewards are unchanged."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import reference
from shop import shop
from vpac import FiniteMDP, oracle
from vpac.envs import RememberReturn, check_env, make_env, remembering, spec_of
from vpac.envs.make import EnvRecipe
from vpac.envs.remember import memory_of, return_range
from vpac.errors import UserError

GRID = {"gamma": 0.9, "horizon": 4, "low": -2.0, "high": 2.0, "bins": 5}


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_without_memory_has_the_same_moments(seed):
    rng = np.random.default_rng(seed)
    mdp = reference.random_mdp(rng, noise=0.5)
    policy = rng.dirichlet(np.ones(mdp.n_actions), mdp.n_states)
    copied = np.repeat(np.tile(policy, (GRID["horizon"] + 1, 1)), GRID["bins"], axis=0)
    before, after = oracle.evaluate(mdp, policy, 0.9), oracle.evaluate(remembering(mdp, **GRID), copied, 0.9)
    assert float(after.mean) == pytest.approx(float(before.mean))
    assert float(after.total_variance) == pytest.approx(float(before.total_variance))


def test_rounding_keeps_the_mean_of_the_collected_return():
    mdp = FiniteMDP([[[1.0]]], 0.3)
    wide = remembering(mdp, gamma=0.5, horizon=3, low=-1.0, high=5.0, bins=7)
    met = oracle.evaluate(wide, oracle.uniform(wide), 0.5, horizon=4).visits.reshape(4, 7)
    assert met.sum(axis=-1) == pytest.approx(np.ones(4))
    assert met @ np.arange(-1.0, 6.0) == pytest.approx([0.0, 0.3, 0.45, 0.525])


def test_who_remembers_a_coin_hedges():
    """Heads pay 4, tails nothing; later 3 may be taken: always, 5 − 4 without memory; after tails only, 3.5 − 0.25 with it."""
    transition, reward = np.zeros((2, 5, 2, 5))
    transition[0, :, 1:3] = 0.5
    transition[1:3, :, 3] = transition[3:, :, 4] = 1.0
    reward[0, :, 1], reward[3, 1, 4] = 4.0, 3.0
    coin = FiniteMDP(transition, reward, start=np.arange(5) == 0, terminal=np.arange(5) == 4)
    wide = remembering(coin, 1.0, 2, 0.0, 4.0, 5)
    for mdp, best in ((coin, 1.0), (wide, 3.25)):
        found = oracle.evaluate(mdp, oracle.best_policy(mdp, 1.0, 1.0), 1.0)
        assert float(found.mean - found.total_variance) == pytest.approx(best)
    assert oracle.best_remembering(coin, 1.0, 1.0).objective == pytest.approx(3.25)


@pytest.mark.parametrize("horizon", [3, 12])
def test_the_wrapper_is_the_process(horizon):
    """Shares of what is observed in 3000 episodes, within 4 standard errors of the exact chances."""
    grid = {"gamma": 0.9, "bins": 6, "low": -60.0, "high": 60.0, "horizon": horizon}
    mdp, weeks, episodes = shop(), 4, 3000
    env = RememberReturn(mdp.to_gymnasium(max_episode_steps=weeks), **grid)
    seen = np.zeros((weeks + 1, env.observation_space.n))
    for episode in range(episodes):
        place, _ = env.reset(seed=episode)
        for k in range(weeks):
            seen[k, place] += 1
            place = env.step((k + 1) % 3)[0]
        seen[weeks, place] += 1
    wide = remembering(mdp, **grid)
    assert wide.n_states == env.observation_space.n
    chance = wide.start
    for k in range(weeks + 1):
        error = np.sqrt(chance * (1.0 - chance) / episodes)
        assert (np.abs(seen[k] / episodes - chance) <= 4.5 * error + 1e-12).all()
        matrix = wide.transition_matrix[np.arange(wide.n_states) * 3 + (k + 1) % 3]
        chance = matrix.T @ chance


def test_vectors_get_two_more_numbers():
    env = make_env("CartPole-v1", [("RememberReturn", {"gamma": 0.5})])
    check_env(env)
    first, _ = env.reset(seed=0)
    assert first[-2:].tolist() == [0.0, 0.0]
    seen = [env.step(0)[0][-2:] for _ in range(3)]
    assert np.array(seen) == pytest.approx(np.array([[1.0, 1 / 500], [1.5, 2 / 500], [1.75, 3 / 500]]))


def test_whole_numbers_become_a_vector_or_stay():
    env = make_env("vpac/CatchUp-v0", ["RememberReturn"])
    assert env.observation_space.shape == (13,)
    assert env.reset(seed=0)[0].tolist() == [1.0] + 12 * [0.0]
    check_env(env)
    check_env(make_env("vpac/CatchUp-v0", [("RememberReturn", GRID)]))


def test_it_is_made_again_from_its_recipe():
    spec = spec_of("vpac/CatchUp-v0", [("RememberReturn", GRID)])
    recipe = EnvRecipe.of(spec)
    assert recipe.wrappers[0][0] == "RememberReturn"
    assert memory_of(recipe.make()) == GRID
    assert memory_of(gymnasium.make("vpac/CatchUp-v0")) is None


def test_the_range_of_returns_with_which_an_episode_goes_on():
    mdp = FiniteMDP.from_gymnasium("vpac/CatchUp-v0")
    low, high = return_range(mdp, 1.0, 4)
    assert (low, high) == (-7.5, 0.0)  # luck is free, then three runs; the 20 of the goal end the episode


class Pictures(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 255, (64, 64, 3), np.uint8), spaces.Discrete(2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": 1.0}, "low ≤ 0 ≤ high"),
        ({"bins": 1}, "bins must be a whole number from 2 up"),
        ({"horizon": 0}, "horizon"),
        ({"gamma": 2.0}, "gamma must be"),
        ({"high": "much"}, "must be numbers"),
        ({"bins": None}, "give bins, too"),
        ({"low": None}, "needs Discrete observations, low, high"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(UserError, match=message):
        RememberReturn(shop().to_gymnasium(), **{**GRID, **change})
    with pytest.raises(UserError, match="fewer bins"):
        remembering(shop(), **{**GRID, "bins": 10_000})
    with pytest.raises(UserError, match="image"):
        RememberReturn(Pictures())
