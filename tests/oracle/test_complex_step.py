from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import reference
from oracle.strategies import cases
from vpac.oracle.complex_step import complex_step_gradient


@pytest.mark.parametrize("variance_of", ["action", "state", "return"])
@settings(max_examples=20)
@given(case=cases())
def test_it_is_the_derivative_that_the_reference_takes(case, variance_of):
    found = complex_step_gradient(case.mdp, case.theta, case.gamma, case.psi, variance_of)
    true = reference.complex_step(
        lambda theta: reference.objective(case.mdp, theta, case.gamma, case.psi, variance_of), case.theta
    )
    assert found == pytest.approx(true, abs=1e-10 * (1.0 + np.abs(true).max()))


def test_off_policy_too():
    rng = np.random.default_rng(0)
    mdp, theta = reference.random_mdp(rng), rng.normal(scale=0.3, size=(5, 3))
    behaviour = np.full((5, 3), 1 / 3)
    found = complex_step_gradient(mdp, theta, 0.8, 2.0, behaviour=behaviour)
    true = reference.complex_step(lambda t: reference.importance_objective(mdp, t, behaviour, 0.8, 2.0), theta)
    assert found == pytest.approx(true, abs=1e-10)


def test_it_agrees_with_eighth_order_finite_differences():
    """A third way to take the derivative, which shares nothing with the complex step but the objective."""
    rng = np.random.default_rng(4)
    mdp, theta = reference.random_mdp(rng, noise=0.5), rng.normal(size=(5, 3))
    weights, h = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}, 2e-2
    found = np.zeros_like(theta)
    for index in np.ndindex(*theta.shape):
        for steps, weight in weights.items():
            up, down = theta.copy(), theta.copy()
            up[index] += steps * h
            down[index] -= steps * h
            rise = reference.objective(mdp, up, 0.9, 1.0, "return") - reference.objective(mdp, down, 0.9, 1.0, "return")
            found[index] += weight * rise / h
    assert complex_step_gradient(mdp, theta, 0.9, 1.0, "return") == pytest.approx(found, abs=1e-8)
