from __future__ import annotations

import sys

import numpy as np
import pytest

import reference
from vpac import FiniteMDP, oracle
from vpac.envs import CatchUp, FourRooms, RiskyShortcut
from vpac.errors import UserError
from vpac.oracle.frontier import ascend, deterministic_policies


def all_deterministic(mdp):
    return np.concatenate([np.eye(mdp.n_actions)[batch] for batch in deterministic_policies(mdp)])


@pytest.mark.parametrize("variance_of", ["action", "state", "return"])
@pytest.mark.parametrize("seed", range(4))
def test_no_worse_than_any_deterministic_policy_nor_than_the_risk_neutral_one(seed, variance_of):
    mdp = reference.random_mdp(np.random.default_rng(seed), 5, 3, 1)
    psis = [0.0, 0.1, 1.0, 20.0]
    found = oracle.frontier(mdp, psis, 0.9, variance_of)
    every = oracle.evaluate(mdp, all_deterministic(mdp), 0.9)
    neutral = oracle.evaluate(mdp, oracle.optimal_policy(mdp, 0.9), 0.9)
    assert len(every.mean) == 3**4
    for psi, mean, variance in zip(found.psis, found.means, found.variances, strict=True):
        objective = mean - psi * variance
        assert objective >= (every.mean - psi * every.variance_of(variance_of)).max() - 1e-9
        assert objective >= float(neutral.mean - psi * neutral.variance_of(variance_of)) - 1e-9
    assert found.means[0] == pytest.approx(float(every.mean.max()))


def test_the_frontier_is_a_frontier():
    """As the price rises, neither the mean nor the variance does."""
    found = oracle.frontier(CatchUp().mdp, [2.0, 0.0, 0.3, 0.5, 1.0], 0.95)
    assert found.psis.tolist() == [0.0, 0.3, 0.5, 1.0, 2.0]
    assert np.all(np.diff(found.means) <= 1e-9)
    assert np.all(np.diff(found.variances) <= 1e-9)
    assert found.objectives == pytest.approx(found.means - found.psis * found.variances)
    assert found.variances[0] == pytest.approx(13.09, abs=0.005)
    assert found.variances[2] <= 10.0


def test_ascent_alone_is_good_where_enumeration_is_not_allowed(monkeypatch):
    monkeypatch.setattr(sys.modules["vpac.oracle.frontier"], "MOST_DETERMINISTIC", 0)
    found = oracle.frontier(CatchUp().mdp, [0.5], 0.95)
    assert found.variances[0] <= 10.0
    assert found.objectives[0] >= 3.9


def test_a_large_price_takes_the_safe_way_in_the_risky_shortcut():
    mdp = RiskyShortcut().mdp
    found = oracle.frontier(mdp, [0.0, 5.0], 0.95)
    assert found.variances[0] > 10.0
    assert found.variances[1] == pytest.approx(0.0, abs=1e-9)
    # Nine moves at −1, then the goal's 20 with the tenth.
    assert found.means[1] == pytest.approx(20 * 0.95**9 - (1 - 0.95**9) / 0.05, abs=1e-6)
    assert np.isinf(found.sharpe[1]) or found.sharpe[1] > 1e3


def test_ascent_never_goes_down():
    mdp = FourRooms().mdp
    start = oracle.uniform(mdp)
    climbed = oracle.evaluate(mdp, ascend(mdp, start, 0.02, 0.99, most_steps=30), 0.99)
    before = oracle.evaluate(mdp, start, 0.99)
    assert climbed.mean - 0.02 * climbed.total_variance > before.mean - 0.02 * before.total_variance + 1.0


def test_best_policy_is_the_frontiers_point():
    mdp = RiskyShortcut().mdp
    assert oracle.best_policy(mdp, 5.0, 0.95) == pytest.approx(oracle.frontier(mdp, [5.0], 0.95).policies[0])


@pytest.mark.parametrize("psis", [[], [-1.0], [float("nan")]])
def test_wrong_prices_are_an_error(psis):
    with pytest.raises(UserError, match="psis must be finite numbers"):
        oracle.frontier(CatchUp().mdp, psis, 0.95)


def test_the_optimal_policy_by_hand_and_without_discount():
    mdp = RiskyShortcut().mdp
    best = oracle.optimal_policy(mdp, 1.0)
    # 20 for the goal, −1 for each other move: 5 on the short way, and (0.3/0.7)·4 more for the throws.
    assert float(oracle.evaluate(mdp, best, 1.0).mean) == pytest.approx(20 - 5 - 4 * 0.3 / 0.7)
    every = oracle.evaluate(reference.random_mdp(np.random.default_rng(0), 4, 2, 1), np.full((4, 2), 0.5), 0.9)
    chosen = oracle.optimal_policy(every.mdp, 0.9)
    values = oracle.evaluate(every.mdp, all_deterministic(every.mdp), 0.9).value
    assert oracle.evaluate(every.mdp, chosen, 0.9).value == pytest.approx(values.max(axis=0))


def test_ties_go_to_the_first_action():
    mdp = FiniteMDP(np.full((2, 3, 2), [0.0, 1.0]), 1.0, 0.0, [1.0, 0.0], [False, True])
    assert oracle.optimal_policy(mdp, 0.9)[0].tolist() == [1.0, 0.0, 0.0]
