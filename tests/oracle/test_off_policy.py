from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import reference
from oracle.strategies import cases
from oracle.test_moments import coin_and_choice
from vpac import FiniteMDP, oracle
from vpac.errors import UserError
from vpac.oracle.linear import OracleError


def behaviour_for(case, seed):
    rng = np.random.default_rng(seed)
    mix = rng.dirichlet(np.full(case.mdp.n_actions, 2.0), case.mdp.n_states)
    return 0.5 * mix + 0.5 * oracle.softmax(case.theta)


@given(case=cases(), seed=st.integers(0, 1000))
def test_theorem_3_holds(case, seed):
    """Q and σ of the importance-weighted return, from its second moment; Q is the target policy's own."""
    behaviour, target = behaviour_for(case, seed), oracle.softmax(case.theta)
    found = oracle.evaluate_off_policy(case.mdp, target, behaviour, case.gamma)
    assume(found.spectral_radius < 0.99)
    q, m = reference.action_moments(case.mdp, target, target**2 / behaviour, case.gamma)
    scale = 1.0 + np.abs(m).max()
    assert found.action_value == pytest.approx(q, abs=1e-10 * scale)
    assert found.action_variance == pytest.approx(m - q**2, abs=1e-9 * scale)
    own = oracle.evaluate(case.mdp, target, case.gamma)
    assert found.mean == pytest.approx(float(own.mean), abs=1e-9 * scale)


def test_the_weighted_returns_variance_may_be_larger_or_smaller_than_the_target_policys():
    """A forced step, then a choice that pays 10 or 0 with probability 1/2 each: good sampling of the choice helps."""
    transition = np.zeros((3, 2, 3))
    transition[0, :, 1] = transition[1, :, 2] = 1.0
    reward = np.zeros((3, 2))
    reward[1, 0] = 10.0
    mdp = FiniteMDP(transition, reward, 0.0, [1.0, 0, 0], [False, False, True])
    target = np.full((3, 2), 0.5)

    def variance(paying):
        behaviour = np.array([[0.5, 0.5], [paying, 1 - paying], [0.5, 0.5]])
        return oracle.evaluate_off_policy(mdp, target, behaviour, 1.0).mean_action_variance

    # E_b[(ρ R)²] − 25 = 0.25 · 100/b − 25 for the probability b of the paying action.
    assert variance(0.5) == pytest.approx(25.0)
    assert variance(0.9) == pytest.approx(25 / 0.9 - 25)
    assert variance(0.1) == pytest.approx(225.0)


def test_growing_weights_do_no_harm_where_nothing_is_left_to_vary():
    """The ratios grow in state 0, but every reward there is zero and so is everything after: σ is 0, not infinite."""
    transition = np.zeros((2, 2, 2))
    transition[0, :, 0], transition[0, :, 1] = 0.95, 0.05
    mdp = FiniteMDP(transition, 0.0, 0.0, [1.0, 0.0], [False, True])
    found = oracle.evaluate_off_policy(mdp, [[1.0, 0.0], [1.0, 0.0]], np.full((2, 2), 0.5), 0.99)
    assert found.spectral_radius > 1.0
    assert not found.action_variance.any()


@pytest.mark.parametrize("gamma", [0.3, 0.6, 0.7, 0.9])
def test_weights_that_just_do_not_shrink_have_no_variance(gamma):
    """One state, the target always goes on, b goes on with probability γ²: γ² E_b[ρ²] is one, whatever rounding says."""
    transition = np.zeros((2, 2, 2))
    transition[0, 0, 0] = transition[0, 1, 1] = 1.0
    mdp = FiniteMDP(transition, 1.0, 1.0, [1.0, 0.0], [False, True])
    behaviour = [[gamma**2, 1 - gamma**2], [0.5, 0.5]]
    found = oracle.evaluate_off_policy(mdp, [[1.0, 0.0], [1.0, 0.0]], behaviour, gamma)
    assert found.spectral_radius == pytest.approx(1.0)
    assert np.isinf(found.action_variance[0, 0])


def test_a_long_chain_has_no_growth():
    """2000 states in a row: solved sparsely, and its matrix is nilpotent."""
    n = 2000
    here = np.repeat(np.arange(n - 1), 2)
    mdp = FiniteMDP.from_transitions(
        n, 2, here, np.tile([0, 1], n - 1), here + 1, np.ones(2 * n - 2), 1.0, start=np.arange(n) == 0,
        terminal=np.arange(n) == n - 1,
    )  # fmt: skip
    target = oracle.softmax(np.random.default_rng(0).normal(size=(n, 2)))
    found = oracle.evaluate_off_policy(mdp, target, oracle.uniform(mdp), 0.9)
    assert found.spectral_radius == 0.0
    assert found.mean == pytest.approx((1 - 0.9 ** (n - 1)) / 0.1)


@given(case=cases(), seed=st.integers(0, 1000))
def test_the_clipped_recursion_has_its_own_fixed_point(case, seed):
    behaviour, target = behaviour_for(case, seed), oracle.softmax(case.theta)
    found = oracle.evaluate_off_policy(case.mdp, target, behaviour, case.gamma, critics="clipped")
    ratio = np.minimum(1.0, target / behaviour)
    mdp, gamma, q, sigma = case.mdp, case.gamma, found.action_value, found.action_variance
    p, r, v = mdp.transition, mdp.reward_mean, mdp.reward_variance
    delta = r[..., None] + gamma * (ratio * q)[None, None] - q[:, :, None, None]
    assert np.einsum("sat,tb,satb->sa", p, behaviour, delta) == pytest.approx(0.0, abs=1e-9)
    right = np.einsum("sat,tb,satb->sa", p, behaviour, delta**2 + gamma**2 * (ratio**2 * sigma)[None, None])
    right += (p * v).sum(-1)
    assert sigma == pytest.approx(right, rel=1e-9, abs=1e-9)
    assert found.spectral_radius < 1.0


@given(case=cases(), seed=st.integers(0, 1000))
def test_expected_critics_see_the_target_policy_alone(case, seed):
    target = oracle.softmax(case.theta)
    found = oracle.evaluate_off_policy(case.mdp, target, behaviour_for(case, seed), case.gamma, critics="expected")
    own = oracle.evaluate(case.mdp, target, case.gamma)
    assert found.action_value == pytest.approx(own.action_value)
    assert found.action_variance == pytest.approx(own.action_variance)


def test_where_the_variance_does_not_exist_it_is_infinite_and_only_there():
    """State 0 ends or goes to 1; in 1 two actions stay on with probability 0.9, and ratios grow along one."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 2] = 1.0
    transition[0, 1, 1] = 1.0
    transition[1, :, 1], transition[1, :, 2] = 0.9, 0.1
    mdp = FiniteMDP(transition, 1.0, 0.0, [1.0, 0.0, 0.0], [False, False, True])
    target = np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    behaviour = np.full((3, 2), 0.5)
    found = oracle.evaluate_off_policy(mdp, target, behaviour, 0.9)
    assert found.spectral_radius == pytest.approx(0.81 * 0.9 * 2)  # γ² · 0.9 · Σ_a π²/b = 1.458
    assert found.action_variance[0, 0] == 0.0
    assert np.isinf(found.action_variance[0, 1])
    assert np.isinf(found.action_variance[1]).all()
    assert np.isinf(found.mean_action_variance)
    with pytest.raises(OracleError, match=r"spectral radius of γ² E_b\[ρ²\] is 1.458"):
        oracle.gradient(mdp, np.log(target + 1e-9), 0.9, 1.0, behaviour=behaviour)
    assert np.isfinite(oracle.evaluate_off_policy(mdp, target, behaviour, 0.9, critics="clipped").action_variance).all()


def test_a_behaviour_that_does_not_cover_the_target_is_an_error():
    mdp = coin_and_choice()
    with pytest.raises(UserError, match=r"in state 1 it never takes action 0, .* probability 0.25"):
        oracle.evaluate_off_policy(mdp, [[0.5, 0.5], [0.25, 0.75], [1, 0]], [[0.5, 0.5], [0, 1], [1, 0]], 0.9)


@given(case=cases(), seed=st.integers(0, 1000))
def test_the_exact_importance_form_is_the_gradient(case, seed):
    behaviour = behaviour_for(case, seed)
    moments = oracle.evaluate_off_policy(case.mdp, oracle.softmax(case.theta), behaviour, case.gamma)
    assume(moments.spectral_radius < 0.95)
    found = oracle.gradient(case.mdp, case.theta, case.gamma, case.psi, behaviour=behaviour)
    true = reference.complex_step(
        lambda theta: reference.importance_objective(case.mdp, theta, behaviour, case.gamma, case.psi), case.theta
    )
    assert found == pytest.approx(true, abs=1e-8 * (1e-3 + np.abs(true).max()))


@pytest.mark.parametrize("variance_of", ["action", "state", "return"])
@given(case=cases(), seed=st.integers(0, 1000))
def test_expected_critics_with_plain_ratios_give_the_on_policy_gradient(case, seed, variance_of):
    behaviour = behaviour_for(case, seed)
    options = {"behaviour": behaviour, "critics": "expected"}
    on_policy = oracle.gradient(case.mdp, case.theta, case.gamma, case.psi, "exact", variance_of)
    for algorithm in ("vpac", "vaac"):
        found = oracle.gradient(
            case.mdp, case.theta, case.gamma, case.psi, "exact", variance_of, algorithm=algorithm, **options
        )
        assert found == pytest.approx(on_policy, abs=1e-9 * (1.0 + np.abs(on_policy).max()))


def test_theorem_4_and_lemma_2_are_refuted_by_the_coin_and_the_choice():
    """docs/corrections.md: with a uniform behaviour σ(s0) = 3p²/4, its slope is 3p/2 where Theorem 4 says 0."""
    p, mdp, behaviour = 0.25, coin_and_choice(), np.full((3, 2), 0.5)
    theta = np.array([[0.0, 0.0], [np.log(p / (1 - p)), 0.0], [0.0, 0.0]])
    target = oracle.softmax(theta)
    moments = oracle.evaluate_off_policy(mdp, target, behaviour, 1.0)
    assert moments.mean_action_variance == pytest.approx(3 * p**2 / 4)
    slope = p * (1 - p)

    def of_variance(form):
        return oracle.gradient(mdp, theta, 1.0, 0.0, form, behaviour=behaviour) - oracle.gradient(
            mdp, theta, 1.0, 1.0, form, behaviour=behaviour
        )

    assert of_variance("exact")[1, 0] == pytest.approx(slope * 3 * p / 2)
    assert np.abs(of_variance("published")).max() < 1e-15
    # Lemma 2: E_b[δ ∇δ | s0] = 3/4 p ∇p, not 0. δ and ∇δ over (heads, action 0), (heads, action 1), tails:
    ratio = target[1] / behaviour[1]
    delta = np.array([ratio[0] * 1.0, 0.0, 0.0]) - p / 2
    gradient_of_delta = np.array([slope / 0.5, 0.0, 0.0]) - slope / 2
    assert np.array([0.25, 0.25, 0.5]) @ (delta * gradient_of_delta) == pytest.approx(0.75 * p * slope)


def test_theorem_4_is_far_off_where_risk_is_in_the_dynamics():
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        mdp, theta = reference.random_mdp(rng, 5, 3, 1), rng.normal(scale=0.5, size=(5, 3))
        options = {"behaviour": np.full((5, 3), 1 / 3)}
        mean = oracle.gradient(mdp, theta, 0.9, 0.0, **options)
        exact = mean - oracle.gradient(mdp, theta, 0.9, 1.0, "exact", **options)
        published = mean - oracle.gradient(mdp, theta, 0.9, 1.0, "published", **options)
        errors.append(np.linalg.norm(published - exact) / np.linalg.norm(exact))
    assert min(errors) > 0.01
    assert np.median(errors) > 0.3


def test_behaviour_equal_to_target_is_on_policy_for_the_mean_but_not_for_the_importance_weighted_variance():
    rng = np.random.default_rng(5)
    mdp, theta = reference.random_mdp(rng), rng.normal(size=(5, 3))
    target = oracle.softmax(theta)
    mean = oracle.gradient(mdp, theta, 0.9, 0.0)
    assert oracle.gradient(mdp, theta, 0.9, 0.0, behaviour=target) == pytest.approx(mean)
    own, weighted = (oracle.gradient(mdp, theta, 0.9, 1.0, **o) for o in ({}, {"behaviour": target}))
    assert np.linalg.norm(own - weighted) > 0.1 * np.linalg.norm(own)
    true = reference.complex_step(lambda t: reference.importance_objective(mdp, t, target, 0.9, 1.0), theta)
    assert weighted == pytest.approx(true, abs=1e-10)


def test_importance_critics_define_the_variance_given_the_action_only():
    with pytest.raises(UserError, match="use variance_of='action', or critics='expected'"):
        oracle.gradient(coin_and_choice(), np.zeros((3, 2)), 0.9, 1.0, "exact", "state", behaviour=np.full((3, 2), 0.5))
