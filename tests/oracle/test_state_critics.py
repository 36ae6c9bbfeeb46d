from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from oracle.strategies import cases
from oracle.test_moments import coin_and_choice
from vpac import FiniteMDP, oracle
from vpac.errors import UserError
from vpac.oracle.linear import OracleError


@given(case=cases())
def test_the_exact_start_form_is_the_gradient_for_the_state_variance(case):
    found = oracle.state_critic_gradient(case.mdp, case.theta, case.gamma, case.psi, "exact", "start")
    true = oracle.gradient(case.mdp, case.theta, case.gamma, case.psi, "exact", "state")
    assert found == pytest.approx(true, abs=1e-9 * (1.0 + np.abs(true).max()))


@given(case=cases(terminal=st.just(0), density=st.just(1.0)))
def test_the_exact_uniform_form_is_the_gradient_from_the_stationary_distribution_held_fixed(case):
    shares = oracle.stationary_distribution(case.mdp, oracle.softmax(case.theta))
    settled = case.mdp.with_start(shares / shares.sum())
    true = (1 - case.gamma) * reference.complex_step(
        lambda theta: reference.objective(settled, theta, case.gamma, case.psi, "state"), case.theta
    )
    found = oracle.state_critic_gradient(case.mdp, case.theta, case.gamma, case.psi)
    assert found == pytest.approx(true, abs=1e-8 * (1.0 + np.abs(true).max()))


def test_the_published_form_is_refuted_by_the_coin_and_the_choice():
    """docs/corrections.md: ∂Var/∂p = (1 − p)/2; A_V − ψ A_σ moves along (1 − 2p)/2."""
    p = 0.25
    theta = np.array([[0.0, 0.0], [np.log(p / (1 - p)), 0.0], [0.0, 0.0]])

    def of_variance(form):
        with_price, without = (
            oracle.state_critic_gradient(coin_and_choice(), theta, 1.0, psi, form, "start") for psi in (1, 0)
        )
        return (without - with_price)[1, 0]

    assert of_variance("exact") == pytest.approx(p * (1 - p) * (1 - p) / 2)
    assert of_variance("published") == pytest.approx(p * (1 - p) * (1 - 2 * p) / 2)


@pytest.mark.parametrize("seed", range(3))
def test_the_published_uniform_form_is_far_off(seed):
    rng = np.random.default_rng(seed)
    mdp, theta = reference.random_mdp(rng, n_terminal=0), rng.normal(size=(5, 3))
    mean, exact, published = (
        oracle.state_critic_gradient(mdp, theta, 0.9, psi, form)
        for psi, form in ((0.0, "exact"), (1.0, "exact"), (1.0, "published"))
    )
    assert np.linalg.norm(published - exact) > 0.3 * np.linalg.norm(exact - mean)


def test_the_stationary_distribution_by_hand():
    mdp = FiniteMDP([[[0.9, 0.1]], [[0.3, 0.7]]])
    assert oracle.stationary_distribution(mdp, np.ones((2, 1))) == pytest.approx([0.75, 0.25])
    with pytest.raises(UserError, match="terminal"):
        oracle.stationary_distribution(coin_and_choice(), np.full((3, 2), 0.5))
    with pytest.raises(OracleError, match="several separate sets"):
        oracle.stationary_distribution(FiniteMDP(np.eye(2)[:, None, :]), np.ones((2, 1)))
