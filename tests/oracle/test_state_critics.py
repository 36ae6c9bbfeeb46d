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


def three_steps(rng, n=2, n_actions=2):
    """A random process of three steps; state k·n + i is place i at step k, the last state is the end."""
    end = 3 * n
    transition, reward = np.zeros((2, end + 1, n_actions, end + 1))
    for k in range(3):
        here, there = slice(k * n, k * n + n), slice(k * n + n, k * n + 2 * n) if k < 2 else slice(end, end + 1)
        size = (n, n_actions, there.stop - there.start)
        transition[here, :, there] = rng.dirichlet(np.ones(size[2]), size=size[:2])
        reward[here, :, there] = rng.normal(size=size)
    transition[n, :, :] = 0.0
    transition[n, :, end] = 1.0  # some episodes are shorter
    reward[n, :, end] = rng.normal(size=n_actions)
    start = np.append(rng.dirichlet(np.ones(n)), np.zeros(end + 1 - n))
    return FiniteMDP(transition, reward, 0.0, start, np.arange(end + 1) == end)


def every_trajectory(mdp, policy):
    """(probability, [(state, action, reward, next state), …]) of all episodes."""

    def go_on(probability, steps, state):
        if mdp.terminal[state]:
            yield probability, steps
            return
        for action in range(mdp.n_actions):
            for there in np.flatnonzero(mdp.transition[state, action]):
                share = probability * policy[state, action] * mdp.transition[state, action, there]
                step = (state, action, mdp.reward_mean[state, action, there], there)
                yield from go_on(share, [*steps, step], there)

    for first in np.flatnonzero(mdp.start):
        yield from go_on(mdp.start[first], [], first)


def enumerated(mdp, theta, gamma, psi, form):
    """The mean over all episodes of Σ_k ∇log π · weight_k: n_k A_V − ψ (m_k A_σ + 2 E_k A_V), or A_V − ψ A_σ."""
    policy, total = oracle.softmax(theta), np.zeros(theta.shape)
    moments = oracle.evaluate(mdp, policy, gamma)
    value, variance = moments.value, moments.variance
    for probability, steps in every_trajectory(mdp, policy):
        n, m, luck = 1.0, 1.0, 0.0
        for s, a, r, s_next in steps:
            delta = r + gamma * value[s_next] - value[s]
            a_value, a_sigma = delta, delta**2 + gamma**2 * variance[s_next] - variance[s]  # A_V, A_σ on average
            weight = a_value - psi * a_sigma
            if form == "exact":
                weight = n * a_value - psi * (m * a_sigma + 2.0 * luck * a_value)
            total[s] += probability * weight * (np.eye(mdp.n_actions)[a] - policy[s])
            n, m, luck = 1.0 + gamma * n, 1.0 + gamma**2 * m, gamma * (luck + m * delta)
    return total


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_uniform_form_of_episodes_by_enumerating_all_of_them(seed, gamma):
    rng = np.random.default_rng(seed)
    mdp, psi = three_steps(rng), 0.7
    theta = rng.normal(size=(mdp.n_states, mdp.n_actions))
    for form in ("exact", "published"):
        found = oracle.state_critic_gradient(mdp, theta, gamma, psi, form)
        assert found == pytest.approx(enumerated(mdp, theta, gamma, psi, form), abs=1e-10)


@pytest.mark.parametrize(
    "mdp", [three_steps(np.random.default_rng(5)), reference.random_mdp(np.random.default_rng(5), noise=1.0)]
)
def test_the_exact_uniform_form_of_episodes_is_the_gradient_with_the_visits_held_fixed(mdp):
    """Σ_s x(s) [V(s) − ψ Var(s)] is Σ x times the objective from the start x/Σx."""
    gamma, psi, theta = 0.9, 0.7, np.random.default_rng(6).normal(size=(mdp.n_states, mdp.n_actions))
    visits = np.where(mdp.terminal, 0.0, oracle.evaluate(mdp, oracle.softmax(theta), gamma).visits)
    moved = mdp.with_start(visits / visits.sum())
    true = visits.sum() * reference.complex_step(
        lambda theta: reference.objective(moved, theta, gamma, psi, "state"), theta
    )
    assert oracle.state_critic_gradient(mdp, theta, gamma, psi) == pytest.approx(true, abs=1e-10)


def test_visits_without_a_mean_are_refused():
    mdp = FiniteMDP([[[0.0, 0.5, 0.5]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]], terminal=[False, False, True])
    with pytest.raises(OracleError, match="state 1 and never ends"):
        oracle.state_critic_gradient(mdp, np.zeros((3, 1)), 0.9, 1.0)


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
