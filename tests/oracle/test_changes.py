from __future__ import annotations

import numpy as np
import pytest

import reference
from vpac import oracle
from vpac.envs import CatchUp
from vpac.oracle.changes import single_state_gains

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

    gains = single_state_gains(oracle.evaluate(mdp, policy, 0.95), 0.3, "return", np.array([0.4]), 2.0)[0]
    for s, a in [(0, 1), (4, 2), (8, 0)]:
        changed = policy.copy()
        changed[s] += 0.4 * (np.eye(3)[a] - policy[s])
        assert gains[s, a] == pytest.approx(objective(changed) - objective(policy), abs=1e-11)


def test_a_change_that_never_ends_is_not_allowed():
    """State 0 ends by action 0; action 1 stays there for ever."""
    mdp = reference.FiniteMDP(
        [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]], -1.0, 0.0, [1.0, 0.0], [False, True]
    )
    gains = single_state_gains(
        oracle.evaluate(mdp, np.array([[1.0, 0.0], [0.5, 0.5]]), 1.0), 0.1, "return", np.array([1.0])
    )
    assert gains[0, 0].tolist() == [0.0, -np.inf]
