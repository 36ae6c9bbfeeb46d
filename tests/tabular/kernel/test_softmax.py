"""The compiled softmax against NumPy's, for every number of actions that has code of its own."""

from __future__ import annotations

import numpy as np
import pytest
from numba import config, njit

from vpac.tabular.kernel.softmax import add_score, fill_policy

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="written for LLVM")


@njit(_nrt=False)
def filled(theta, active, coldness, policy):
    fill_policy(theta, active, coldness, policy)


@njit(_nrt=False)
def scored(theta, active, policy, action, amount):
    add_score(theta, active, policy, action, amount)


@pytest.mark.parametrize("n_active", [1, 3])
@pytest.mark.parametrize("n_actions", [2, 4, 7, 8, 9])
def test_probabilities_and_scores(n_actions, n_active, rng):
    for coldness in (0.4, 1.0, 30.0):
        theta, active, policy = rng.normal(size=(5, n_actions)), np.arange(n_active) + 1, np.zeros(n_actions)
        filled(theta, active, coldness, policy)
        preferences = theta[active].sum(axis=0) * coldness
        powers = np.exp(preferences - preferences.max())
        np.testing.assert_allclose(policy, powers / powers.sum(), rtol=3e-14 if coldness > 1.0 else 3e-15)
        expected, action = theta.copy(), int(rng.integers(n_actions))
        expected[active] += 0.3 * (np.eye(n_actions)[action] - policy)
        scored(theta, active, policy, action, 0.3)
        np.testing.assert_allclose(theta, expected, rtol=1e-13, atol=1e-15)
