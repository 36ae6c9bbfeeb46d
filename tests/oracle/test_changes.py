from __future__ import annotations

import importlib

import numpy as np
import pytest

import reference
from vpac import oracle
from vpac.envs import CatchUp
from vpac.oracle.changes import single_state_gains
from vpac.oracle.linear import Chain

frontier = importlib.import_module("vpac.oracle.frontier")  # the function of that name hides the module

SHARES = np.array([1.0, 0.3, -0.1])


@pytest.mark.parametrize("variance_of", ["action", "state", "return"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_gains_are_those_of_the_changed_policies(deterministic, variance_of):
    """Every change is made and evaluated; with γ = 1 the process ends after each action with some probability."""
    rng = np.random.default_rng(1 + deterministic)
    for gamma in (0.0, 0.9, 1.0):
        mdp = reference.random_mdp(rng, 6, 3, 1, noise=0.3, density=1.0)
        policy = np.eye(3)[rng.integers(3, size=6)] if deterministic else rng.dirichlet(np.ones(3), 6)
        before = oracle.evaluate(mdp, policy, gamma)
        gains = single_state_gains(before, 0.7, variance_of, SHARES)
        assert np.isneginf(gains[:, mdp.terminal]).all()
        possible = 0
        for (t, s, a), gain in np.ndenumerate(gains):
            changed = policy.copy()
            changed[s] += SHARES[t] * (np.eye(3)[a] - policy[s])
            if mdp.terminal[s] or changed.min() < 0.0:
                assert gain == -np.inf
                continue
            after = oracle.evaluate(mdp, changed, gamma)
            difference = (
                after.mean - before.mean - 0.7 * (after.variance_of(variance_of) - before.variance_of(variance_of))
            )
            assert gain == pytest.approx(float(difference), abs=1e-11)
            possible += 1
        assert possible >= 30


def test_with_a_reference_the_square_is_around_it():
    mdp = CatchUp().mdp
    policy = np.random.default_rng(0).dirichlet(np.ones(3), mdp.n_states)

    def objective(pi):
        exact = oracle.evaluate(mdp, pi, 0.95)
        return float(exact.mean - 0.3 * (exact.total_variance + (exact.mean - 2.0) ** 2))

    before = oracle.evaluate(mdp, policy, 0.95)
    gains, little = single_state_gains(before, 0.3, "return", np.array([0.4, 1e-7]), 2.0)
    for s, a in [(0, 1), (4, 2), (8, 0)]:
        changed = policy.copy()
        changed[s] += 0.4 * (np.eye(3)[a] - policy[s])
        assert gains[s, a] == pytest.approx(objective(changed) - objective(policy), abs=1e-11)
    slope = frontier._slopes(before, Chain(mdp, policy), 0.3, "return", 2.0)
    assert slope[~mdp.terminal] == pytest.approx(1e7 * little[~mdp.terminal], rel=1e-4, abs=1e-6)


def test_a_change_that_never_ends_is_not_allowed():
    """State 0 ends by action 0; action 1 stays there for ever."""
    mdp = reference.FiniteMDP(
        [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]], -1.0, 0.0, [1.0, 0.0], [False, True]
    )
    gains = single_state_gains(
        oracle.evaluate(mdp, np.array([[1.0, 0.0], [0.5, 0.5]]), 1.0), 0.1, "return", np.array([1.0])
    )
    assert gains[0, 0].tolist() == [0.0, -np.inf]


@pytest.mark.parametrize("variance_of", ["action", "state", "return"])
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_some_states_by_sparse_factors_gain_what_they_do_among_all(gamma, variance_of, monkeypatch):
    rng = np.random.default_rng(5)
    mdp = reference.random_mdp(rng, 12, 3, 1, noise=0.3, density=0.5)
    policy, states = rng.dirichlet(np.ones(3), 12), np.array([1, 2, 5, 9])
    every = single_state_gains(oracle.evaluate(mdp, policy, gamma), 0.7, variance_of, SHARES)
    monkeypatch.setattr("vpac.oracle.linear.DENSE_STATES", 10)
    some = single_state_gains(oracle.evaluate(mdp, policy, gamma), 0.7, variance_of, SHARES, states=states)
    np.testing.assert_allclose(some, every[:, states], rtol=1e-9, atol=1e-11)


def test_the_certificate_of_a_large_process_is_that_of_all_its_states(monkeypatch):
    """Up to `STEEPEST_STATES` nothing is left out: what the dense formula finds is found in blocks, also by a poor policy."""
    mdp = reference.random_mdp(np.random.default_rng(6), 40, 3, 1, noise=0.3, density=0.3)
    policy = np.random.default_rng(7).dirichlet(np.ones(3), 40)
    exact = frontier.certify(oracle.evaluate(mdp, policy, 0.9), 0.5)
    monkeypatch.setattr("vpac.oracle.linear.DENSE_STATES", 10)
    monkeypatch.setattr(frontier, "BLOCK_STATES", 7)
    found = frontier.certify(oracle.evaluate(mdp, policy, 0.9), 0.5)
    assert found.improvement > 0.01
    np.testing.assert_allclose(
        [found.gradient, found.improvement, found.checked],
        [exact.gradient, exact.improvement, exact.checked],
        rtol=1e-8,
    )
    monkeypatch.setattr(frontier, "STEEPEST_STATES", 1)
    one = frontier.certify(oracle.evaluate(mdp, policy, 0.9), 0.5)
    assert (one.checked, one.gradient) == (3, found.gradient)
    assert one.improvement <= found.improvement * (1.0 + 1e-9)
