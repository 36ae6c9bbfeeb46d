from __future__ import annotations

import sys

import numpy as np
import pytest

import reference
from vpac import FiniteMDP, oracle
from vpac.envs import CatchUp, FourRooms, RiskyShortcut
from vpac.errors import UserError
from vpac.oracle.frontier import ascend
from vpac.oracle.linear import OracleError
from vpac.oracle.optimal import deterministic_policies


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
    monkeypatch.setattr(sys.modules["vpac.oracle.optimal"], "MOST_DETERMINISTIC", 0)
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


@pytest.mark.parametrize(
    ("world", "psi", "gamma"), [(CatchUp, 0.5, 0.95), (RiskyShortcut, 0.1, 0.95), (FourRooms, 0.05, 0.99)]
)
def test_most_ascents_may_follow_slopes(world, psi, gamma, monkeypatch):
    """As in MDPs of more than 320 states: U is that of exact ascents, and the certificate that of all changes."""
    mdp = world().mdp
    exact = oracle.frontier(mdp, [psi], gamma)
    monkeypatch.setattr(sys.modules["vpac.oracle.frontier"], "EXACT_STATES", 5)
    found = oracle.frontier(mdp, [psi], gamma)
    assert found.objectives == pytest.approx(exact.objectives, rel=1e-6)
    assert found.certificates[0].checked == exact.certificates[0].checked
    assert found.certificates[0].improvement < 1e-9


def test_ascent_never_goes_down():
    mdp = FourRooms().mdp
    start = oracle.uniform(mdp)
    climbed = oracle.evaluate(mdp, ascend(mdp, start, 0.02, 0.99, most_steps=30), 0.99)
    before = oracle.evaluate(mdp, start, 0.99)
    assert climbed.mean - 0.02 * climbed.total_variance > before.mean - 0.02 * before.total_variance + 1.0


def test_best_policy_is_the_frontiers_point():
    mdp = RiskyShortcut().mdp
    assert oracle.best_policy(mdp, 5.0, 0.95) == pytest.approx(oracle.frontier(mdp, [5.0], 0.95).policies[0])


@pytest.mark.parametrize("psis", [[], [-1.0], [float("nan")], "a", ["a"], [[0.1, 0.2]], None])
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


def test_without_discount_states_that_are_never_met_do_no_harm():
    """State 2 is a trap that nothing leads to. The best of the ways 0 → end, 0 → 1 → end costs 1.5 moves on average."""
    transition = np.zeros((4, 2, 4))
    transition[0, 0, 1] = transition[0, 0, 3] = transition[1, 1, 0] = transition[1, 1, 3] = 0.5
    transition[0, 1, 1] = transition[1, 0, 3] = transition[2, :, 2] = 1.0
    mdp = FiniteMDP(transition, -1.0, 0.0, [1.0, 0, 0, 0], [False, False, False, True])
    assert float(oracle.evaluate(mdp, oracle.optimal_policy(mdp, 1.0), 1.0).mean) == pytest.approx(-1.5)
    found = oracle.frontier(mdp, [0.0, 100.0], 1.0)
    assert found.means == pytest.approx([-1.5, -2.0])
    assert found.variances == pytest.approx([0.25, 0.0], abs=1e-9)
    theta = np.array([[0.3, -0.2], [0.5, 0.1], [1.0, 2.0], [0.0, 0.0]])
    for kind in ("action", "state", "return"):
        exact = oracle.gradient(mdp, theta, 1.0, 1.0, "exact", kind)
        assert exact == pytest.approx(oracle.complex_step_gradient(mdp, theta, 1.0, 1.0, kind), abs=1e-12)


def test_without_discount_a_trap_is_avoided_or_named():
    """State 0: action 0 pays 9 and ends, action 1 leads to a trap."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 2] = transition[0, 1, 1] = transition[1, :, 1] = 1.0
    mdp = FiniteMDP(transition, [[9.0, 50.0], [1.0, 1.0], [0.0, 0.0]], 0.0, [1.0, 0, 0], [False, False, True])
    assert oracle.optimal_policy(mdp, 1.0)[0].tolist() == [1.0, 0.0]
    with pytest.raises(OracleError, match="some action in state 0 may lead where no policy ends"):
        oracle.frontier(mdp, [0.1], 1.0)
    with pytest.raises(OracleError, match="no policy surely ends from the start state 1"):
        oracle.optimal_policy(mdp.with_start([0.5, 0.5, 0.0]), 1.0)
    # State 0 ends with 100 or leads to 1; 1 and 2 pay 1 for going to each other, or end: no policy is the best one.
    elsewhere = np.zeros((4, 2, 4))
    elsewhere[0, 0, 3] = elsewhere[0, 1, 1] = elsewhere[1, 0, 2] = elsewhere[1, 1, 3] = elsewhere[2, 0, 1] = elsewhere[
        2, 1, 3
    ] = 1.0
    paying = FiniteMDP(elsewhere, [[100.0, 0], [1, 0], [1, 0], [0, 0]], 0.0, [1.0, 0, 0, 0], [False] * 3 + [True])
    with pytest.raises(OracleError, match="no upper bound"):
        oracle.optimal_policy(paying, 1.0)
    round_and_round = FiniteMDP([[[0.0, 1.0], [1.0, 0.0]], [[0, 1], [0, 1]]], 1.0, 0.0, [1.0, 0.0], [False, True])
    with pytest.raises(OracleError, match="no upper bound: there is a way round that pays"):
        oracle.optimal_policy(round_and_round, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_without_discount_it_is_no_worse_than_any_deterministic_policy_that_ends(seed):
    """Few transitions, so that many deterministic policies go round in circles; several starts; a very high price."""
    rng = np.random.default_rng(seed)
    transition = np.zeros((5, 3, 5))
    for s in range(4):
        for a in range(3):
            transition[s, a, rng.choice(5, 2, replace=False)] = 0.5
        transition[s, 0] = 0.5 * transition[s, 0] + 0.5 * np.eye(5)[4]
    reward = rng.integers(-2, 1, size=(5, 3)).astype(float)
    mdp = FiniteMDP(transition, reward, 0.0, [0.4, 0.3, 0.2, 0.1, 0.0], [False] * 4 + [True])
    found = oracle.frontier(mdp, [0.1, 100.0], 1.0)
    for psi, objective in zip(found.psis, found.objectives, strict=True):
        for policy in all_deterministic(mdp):
            try:
                exact = oracle.evaluate(mdp, policy, 1.0)
            except OracleError:
                continue
            assert objective >= float(exact.mean - psi * exact.total_variance) - 1e-8


def test_prices_of_any_size():
    mdp = RiskyShortcut().mdp
    assert oracle.frontier(mdp, 0.5, 0.95).variances == pytest.approx([0.0], abs=1e-9)
    assert oracle.frontier(mdp, [1e-300, 1e300], 0.95).variances[0] > 10.0


def test_the_published_direction_finds_the_safe_way_too_if_the_price_rises_slowly():
    """σ(s,a) sees the risk ahead: ascent along the published direction, the price doubling step by step, goes around."""
    mdp = RiskyShortcut().mdp
    theta = np.zeros((mdp.n_states, mdp.n_actions))
    for psi in (0.0, 0.1, 0.2, 0.4, 0.8):
        for _ in range(400):
            exact = oracle.evaluate(mdp, oracle.softmax(theta), 0.95)
            natural = oracle.gradient(mdp, theta, 0.95, psi, "published") / (
                exact.visitation[:, None] * exact.policy + 1e-12
            )
            theta = np.clip(theta + 0.05 * natural, -8.0, 8.0)
            theta -= theta.max(axis=-1, keepdims=True)
    assert float(exact.total_variance) < 1.0
    assert float(exact.mean) > 4.5


def test_ties_go_to_the_first_action():
    mdp = FiniteMDP(np.full((2, 3, 2), [0.0, 1.0]), 1.0, 0.0, [1.0, 0.0], [False, True])
    assert oracle.optimal_policy(mdp, 0.9)[0].tolist() == [1.0, 0.0, 0.0]


def test_what_a_notebook_shows_fits_on_a_line_or_two():
    mdp = CatchUp().mdp
    moments = oracle.evaluate(mdp, oracle.optimal_policy(mdp, 0.95), 0.95)
    assert repr(moments).startswith("Moments(mean=9.80113, total_variance=13.0872, gamma=0.95, FiniteMDP(11 states")
    assert repr(oracle.evaluate(mdp, np.stack([moments.policy] * 7), 0.95)).startswith("Moments(7 policies, ")
    assert len(repr(oracle.frontier(mdp, [0.1], 0.95))) < 240
