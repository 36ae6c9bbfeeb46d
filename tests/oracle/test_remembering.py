from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import reference
from shop import shop
from vpac import FiniteMDP, oracle
from vpac.errors import UserError
from vpac.oracle import remembering


def tiny(seed, noise=0.0, whole=False):
    """Two states, two actions, no end; rewards in whole numbers make collected returns coincide."""
    rng = np.random.default_rng(seed)
    reward = rng.integers(-2, 3, (2, 2, 2)) if whole else rng.normal(size=(2, 2, 2))
    return FiniteMDP(rng.dirichlet(np.ones(2), size=(2, 2)), reward, noise, start=[1.0, 0.0])


def best_by_enumeration(mdp, psi, gamma, horizon):
    """The best of all deterministic policies of the whole history (states that were met; its own actions are known)."""
    histories = [(0, *more) for k in range(horizon) for more in product((0, 1), repeat=k)]
    p, r, noise = mdp.transition, mdp.reward_mean, mdp.reward_variance
    best = -np.inf
    for choice in product((0, 1), repeat=len(histories)):
        policy = dict(zip(histories, choice, strict=True))
        mean = square = 0.0
        for later in product((0, 1), repeat=horizon):
            way, chance, total, spread = (0, *later), 1.0, 0.0, 0.0
            for k in range(horizon):
                step = way[k], policy[way[: k + 1]], way[k + 1]
                chance *= p[step]
                total += gamma**k * r[step]
                spread += gamma ** (2 * k) * noise[step]
            mean += chance * total
            square += chance * (total**2 + spread)
        best = max(best, mean - psi * (square - mean**2))
    return best


@pytest.mark.parametrize(("seed", "noise", "whole"), [(0, 0.0, False), (1, 0.5, False), (2, 0.0, True), (3, 0.0, True)])
@pytest.mark.parametrize("psi", [0.0, 0.3, 2.0])
def test_it_is_the_best_of_all_policies_of_the_history(seed, noise, whole, psi):
    mdp = tiny(seed, noise, whole)
    found = oracle.best_remembering(mdp, psi, 0.9, horizon=3)
    assert found.exact
    assert found.objective == pytest.approx(best_by_enumeration(mdp, psi, 0.9, 3), abs=1e-9)
    assert found.objective == pytest.approx(found.mean - psi * found.variance)
    assert found.bound == pytest.approx(found.objective, abs=1e-8)


@pytest.mark.parametrize("psi", [0.1, 1.0])
def test_a_grid_brackets_the_optimum(psi):
    exact = oracle.best_remembering(shop(), psi, 1.0, horizon=4)
    for points in (5, 50):
        found = oracle.best_remembering(shop(), psi, 1.0, horizon=4, grid=points)
        assert not found.exact
        assert found.objective <= exact.objective + 1e-9 <= found.bound + 2e-9
    assert found.bound - found.objective < 0.1


def test_too_many_returns_are_put_on_a_grid(monkeypatch):
    exact = oracle.best_remembering(shop(), 0.05, 1.0, horizon=4)
    monkeypatch.setattr(remembering, "MOST_ENUMERATED", 1000)
    found = oracle.best_remembering(shop(), 0.05, 1.0, horizon=4)
    assert not found.exact
    assert found.objective == pytest.approx(exact.objective, abs=1e-2)


def test_what_does_not_fit_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(remembering, "MOST_ON_GRID", 1000)
    with pytest.raises(UserError, match="fewer points"):
        oracle.best_remembering(shop(), 0.05, 1.0, horizon=4, grid=50)


def test_without_a_price_it_is_the_optimal_value():
    mdp = FiniteMDP.from_gymnasium("vpac/CatchUp-v0")
    best = oracle.evaluate(mdp, oracle.optimal_policy(mdp, 0.95), 0.95)
    assert oracle.best_remembering(mdp, 0.0, 0.95, horizon=12).mean == pytest.approx(float(best.mean))


@pytest.mark.parametrize("psi", [0.5, 1.0])
def test_to_remember_is_better_in_catch_up(psi):
    mdp = FiniteMDP.from_gymnasium("vpac/CatchUp-v0")
    forgetful = oracle.evaluate(mdp, oracle.best_policy(mdp, psi, 0.95), 0.95)
    found = oracle.best_remembering(mdp, psi, 0.95, horizon=15)
    assert found.objective > forgetful.mean - psi * forgetful.total_variance + 2.0
    assert found.reference == pytest.approx(found.mean, abs=0.5)


def simulated(mdp, policy, gamma, episodes, rng):
    """Returns of episodes in which `policy.act` chooses."""
    state = rng.choice(mdp.n_states, size=episodes, p=mdp.start)
    total = np.zeros(episodes)
    for k in range(policy.horizon):
        alive = np.flatnonzero(~mdp.terminal[state])
        row = state[alive] * mdp.n_actions + policy.act(k, state[alive], total[alive])
        up_to = np.concatenate([[0.0], np.cumsum(mdp.probability)])
        drawn = np.searchsorted(up_to, up_to[mdp.indptr[row]] + rng.random(len(row)), side="right") - 1
        drawn = np.minimum(drawn, mdp.indptr[row + 1] - 1)
        total[alive] += gamma**k * mdp.reward[drawn]
        state[alive] = mdp.successor[drawn]
    return total


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", ["catch-up", "shop"])
def test_episodes_of_the_policy_have_its_mean_and_variance(world, seed):
    mdp, gamma, psi, horizon = shop(), 1.0, 0.05, 12
    if world == "catch-up":
        mdp, gamma, psi, horizon = FiniteMDP.from_gymnasium("vpac/CatchUp-v0"), 0.95, 0.5, 15
    found = oracle.best_remembering(mdp, psi, gamma, horizon)
    returns = simulated(mdp, found, gamma, 20_000, np.random.default_rng(seed))
    deviation = (returns - returns.mean()) ** 2
    assert abs(returns.mean() - found.mean) < 4 * returns.std() / len(returns) ** 0.5
    assert abs(deviation.mean() - found.variance) < 4 * deviation.std() / len(returns) ** 0.5


def test_a_process_that_surely_ends_needs_no_horizon():
    transition = [[[0, 0.5, 0.5, 0]], [[0, 0, 0, 1.0]], [[0, 1.0, 0, 0]], [[0, 0, 0, 1.0]]]
    mdp = FiniteMDP(transition, 1.0, start=[1, 0, 0, 0], terminal=np.arange(4) == 3)
    found = oracle.best_remembering(mdp, 1.0, 1.0)
    assert (found.horizon, found.mean, found.variance) == (3, 2.5, 0.25)
    longer = oracle.best_remembering(mdp, 1.0, 1.0, horizon=9)
    assert (longer.horizon, longer.mean, longer.variance) == (3, 2.5, 0.25)
    with pytest.raises(UserError, match="give a horizon"):
        oracle.best_remembering(shop(), 1.0, 1.0)


def test_mistakes_are_named():
    found = oracle.best_remembering(tiny(0), 1.0, 0.9, horizon=2)
    with pytest.raises(UserError, match="step must be from 0 to 1"):
        found.act(2, 0, 0.0)
    with pytest.raises(UserError, match="state 1 cannot be met after 0 steps"):
        found.act(0, 1, 0.0)
    with pytest.raises(UserError, match="grid must be"):
        oracle.best_remembering(tiny(0), 1.0, 0.9, 2, grid=1)


def test_a_random_process_with_an_end_is_never_worse_than_without_memory():
    rng = np.random.default_rng(0)
    mdp = reference.random_mdp(rng, n_states=4, n_actions=2)
    policy = oracle.best_policy(mdp, 1.0, 0.9)
    without = oracle.evaluate(mdp, policy, 0.9, horizon=6)
    found = oracle.best_remembering(mdp, 1.0, 0.9, horizon=6)
    assert found.objective >= without.mean - without.total_variance
