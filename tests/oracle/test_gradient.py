from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import reference
from oracle.strategies import cases
from oracle.test_moments import coin_and_choice
from vpac import FiniteMDP, oracle
from vpac.envs import CatchUp, FourRooms
from vpac.errors import UserError
from vpac.oracle.linear import OracleError

KINDS = ("action", "state", "return")


def variance_gradient(mdp, theta, gamma, **options):
    """The gradient of the variance alone: the direction is affine in ψ."""
    return oracle.gradient(mdp, theta, gamma, 0.0, **options) - oracle.gradient(mdp, theta, gamma, 1.0, **options)


def relative_error(found, true):
    return np.linalg.norm(found - true) / np.linalg.norm(true)


@pytest.mark.parametrize("algorithm", ["vpac", "vaac"])
@pytest.mark.parametrize("variance_of", KINDS)
@given(case=cases())
def test_the_exact_form_is_the_gradient(case, variance_of, algorithm):
    found = oracle.gradient(case.mdp, case.theta, case.gamma, case.psi, "exact", variance_of, algorithm=algorithm)
    true = reference.complex_step(
        lambda theta: reference.objective(case.mdp, theta, case.gamma, case.psi, variance_of), case.theta
    )
    assert found == pytest.approx(true, abs=1e-8 * (1e-3 + np.abs(true).max()))


@given(case=cases())
def test_the_mean_alone_needs_no_correction(case):
    forms = [oracle.gradient(case.mdp, case.theta, case.gamma, 0.0, form) for form in ("exact", "published")]
    assert forms[0] == pytest.approx(forms[1], abs=1e-10)


def test_the_temperature_divides_the_score():
    rng = np.random.default_rng(1)
    mdp, theta = reference.random_mdp(rng), rng.normal(size=(5, 3))
    found = oracle.gradient(mdp, theta, 0.9, 2.0, temperature=3.0)
    true = reference.complex_step(lambda t: reference.objective(mdp, t / 3.0, 0.9, 2.0, "action"), theta)
    assert found == pytest.approx(true, abs=1e-10)


@pytest.mark.parametrize("variance_of", KINDS)
def test_without_discount(variance_of):
    rng = np.random.default_rng(2)
    mdp, theta = reference.random_mdp(rng, n_terminal=2, noise=0.5), rng.normal(size=(5, 3))
    found = oracle.gradient(mdp, theta, 1.0, 0.7, "exact", variance_of)
    true = reference.complex_step(lambda t: reference.objective(mdp, t, 1.0, 0.7, variance_of), theta)
    assert found == pytest.approx(true, abs=1e-10)


def test_theorem_2_is_refuted_by_the_coin_and_the_choice():
    """docs/corrections.md: ∂Var/∂p = (1 − p)/2 where Theorem 2 says 0."""
    p = 0.25
    theta = np.array([[0.0, 0.0], [np.log(p / (1 - p)), 0.0], [0.0, 0.0]])
    slope = p * (1 - p)  # ∂p/∂θ(1, 0)
    mdp = coin_and_choice()
    exact = variance_gradient(mdp, theta, 1.0, variance_of="action")
    assert exact[1, 0] == pytest.approx(slope * (1 - p) / 2)
    assert exact[1, 0] == pytest.approx(0.0703125)
    assert exact[1, 1] == pytest.approx(-exact[1, 0])
    assert np.abs(exact[[0, 2]]).max() == pytest.approx(0.0, abs=1e-15)
    assert np.abs(variance_gradient(mdp, theta, 1.0, form="published")).max() < 1e-15


def test_lemma_2_is_refuted_on_policy_by_one_forced_step():
    """docs/corrections.md: coin → forced step → choice. E[δ ∇δ | start] = p p'/4, not 0."""
    transition = np.zeros((4, 2, 4))
    transition[0, :, 1] = transition[0, :, 3] = 0.5
    transition[1, :, 2] = transition[2, :, 3] = 1.0
    reward = np.zeros((4, 2, 4))
    reward[2, 0, 3] = 1.0
    mdp = FiniteMDP(transition, reward, 0.0, [1.0, 0, 0, 0], [False, False, False, True])
    p = 0.25
    theta = np.zeros((4, 2))
    theta[2, 0] = np.log(p / (1 - p))

    def q(parameters):
        pi = reference.softmax(parameters)
        return reference.action_moments(mdp, pi, pi, 1.0)[0]

    here, forced = (reference.complex_step(lambda t, s=s: q(t)[s, 0], theta)[2, 0] for s in (0, 1))
    values = oracle.evaluate(mdp, oracle.softmax(theta), 1.0).action_value
    heads, tails = values[1, 0] - values[0, 0], -values[0, 0]
    assert (heads, tails) == pytest.approx((p / 2, -p / 2))
    assert heads * (forced - here) / 2 + tails * (-here) / 2 == pytest.approx(p * p * (1 - p) / 4)


def test_the_published_vaac_is_refuted_by_the_coin_and_the_choice():
    """docs/corrections.md: with γ = 1/2 and 1 paid for heads, ∂Var/∂p = 1/4 + (1 − p)/8; published: (1 − p)/8."""
    p, mdp = 0.5, coin_and_choice(lucky_reward=1.0)
    theta = np.zeros((3, 2))
    exact = variance_gradient(mdp, theta, 0.5, variance_of="state", algorithm="vaac")
    published = variance_gradient(mdp, theta, 0.5, form="published", algorithm="vaac")
    assert exact[1, 0] == pytest.approx(p * (1 - p) * (1 / 4 + (1 - p) / 8))
    assert published[1, 0] == pytest.approx(p * (1 - p) * (1 - p) / 8)


def test_published_vaac_is_right_without_discount():
    rng = np.random.default_rng(3)
    mdp, theta = reference.random_mdp(rng), rng.normal(size=(5, 3))
    published = oracle.gradient(mdp, theta, 1.0, 2.0, "published", algorithm="vaac")
    assert published == pytest.approx(oracle.gradient(mdp, theta, 1.0, 2.0, "exact", "state"), abs=1e-10)


def test_published_gradients_are_far_off_where_risk_is_in_the_dynamics_and_near_where_noise_dominates():
    """What the paper's own test beds hide: their reward noise is independent of everything."""
    errors = {(noise, algorithm): [] for noise in (0.0, 400.0) for algorithm in ("vpac", "vaac")}
    for seed in range(20):
        theta = np.random.default_rng(seed).normal(size=(6, 3))
        for noise, algorithm in errors:
            mdp = reference.random_mdp(np.random.default_rng(seed), 6, 3, 1, noise=noise)
            kind = "action" if algorithm == "vpac" else "state"
            exact = variance_gradient(mdp, theta, 0.9, variance_of=kind, algorithm=algorithm)
            published = variance_gradient(mdp, theta, 0.9, form="published", algorithm=algorithm)
            errors[noise, algorithm].append(relative_error(published, exact))
    assert np.median(errors[0.0, "vpac"]) > 0.4
    assert np.median(errors[0.0, "vaac"]) > 0.1
    assert min(errors[0.0, "vpac"] + errors[0.0, "vaac"]) > 0.01
    assert max(errors[400.0, "vpac"] + errors[400.0, "vaac"]) < 0.02


def test_control_with_the_published_gradient_does_not_lower_the_variance():
    """Exact ascent on five quiet random MDPs: the corrected gradient lowers the variance, the published does not."""
    neutral, published, corrected = [], [], []
    for seed in range(5):
        mdp = reference.random_mdp(np.random.default_rng(seed), 5, 3, 1)
        neutral.append(_variance(mdp, _plain_ascent(mdp, 0.0, "exact")))
        published.append(_variance(mdp, _plain_ascent(mdp, 20.0, "published")))
        corrected.append(_variance(mdp, _plain_ascent(mdp, 20.0, "exact")))
    assert np.mean(corrected) < 0.5 * np.mean(neutral)
    assert np.mean(published) > 1.5 * np.mean(corrected)


def _plain_ascent(mdp, psi, form, steps=400):
    theta = np.zeros((mdp.n_states, mdp.n_actions))
    for _ in range(steps):
        direction = oracle.gradient(mdp, theta, 0.9, psi, form)
        theta = theta + 0.3 * direction / (1e-3 + np.abs(direction).max())
    return oracle.softmax(theta)


def _variance(mdp, policy):
    return float(oracle.evaluate(mdp, policy, 0.9).variance_of("action"))


def test_only_the_corrected_form_hedges_in_catch_up():
    """After the first move σ(s, a) is zero for a deterministic policy: the published form has nothing to penalise."""
    mdp = CatchUp().mdp
    neutral = oracle.evaluate(mdp, oracle.optimal_policy(mdp, 0.95), 0.95)
    theta = 60.0 * neutral.policy
    for form, small in (("published", True), ("exact", False)):
        direction = variance_gradient(mdp, theta, 0.95, form=form)
        natural = direction / (neutral.visitation[:, None] * oracle.softmax(theta) + 1e-300)
        visited = (neutral.visitation > 0) & ~mdp.terminal
        assert (np.abs(natural[visited]).max() < 1e-6) == small
    hedged = oracle.evaluate(mdp, oracle.best_policy(mdp, 0.5, 0.95), 0.95)
    assert float(hedged.total_variance) < 10.0
    assert float(hedged.mean - 0.5 * hedged.total_variance) > float(neutral.mean - 0.5 * neutral.total_variance) + 0.5


def test_terminal_states_have_no_gradient():
    mdp = FourRooms().mdp
    theta = np.random.default_rng(0).normal(size=(104, 4))
    for form in ("exact", "published"):
        assert not oracle.gradient(mdp, theta, 0.99, 0.1, form)[mdp.terminal].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "exakt"}, "did you mean 'exact'"),
        ({"variance_of": "actions"}, "did you mean 'action'"),
        ({"algorithm": "vac"}, "unknown algorithm 'vac'"),
        ({"psi": -1.0}, "psi must be a finite number that is not negative"),
        ({"psi": "a"}, "psi must be a finite number that is not negative"),
        ({"temperature": "a"}, "temperature must be a positive number"),
        ({"gamma": 2.0}, "gamma must be"),
    ],
)
def test_wrong_words_are_named(options, message):
    arguments = {"gamma": 0.9, "psi": 1.0} | options
    with pytest.raises(UserError, match=message):
        oracle.gradient(coin_and_choice(), np.zeros((3, 2)), **arguments)


def test_a_policy_that_never_ends_has_no_gradient_without_discount():
    mdp = reference.random_mdp(np.random.default_rng(0), n_terminal=0)
    with pytest.raises(OracleError, match="never ends"):
        oracle.gradient(mdp, np.zeros((5, 3)), 1.0, 1.0)
