from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy.linalg import lapack

import reference
from oracle.strategies import cases
from simulate import assert_mean, returns, simulate
from vpac import FiniteMDP, oracle
from vpac.envs import CatchUp, FourRooms, PuddleWorld
from vpac.errors import UserError
from vpac.oracle.linear import Chain, OracleError


def coin_and_choice(lucky_reward: float = 0.0) -> FiniteMDP:
    """State 0: a coin, heads to state 1, tails ends. State 1: action 0 pays 1, action 1 pays 0, both end."""
    transition = np.zeros((3, 2, 3))
    transition[0, :, 1] = transition[0, :, 2] = 0.5
    transition[1, :, 2] = 1.0
    reward = np.zeros((3, 2, 3))
    reward[0, :, 1] = lucky_reward
    reward[1, 0, 2] = 1.0
    return FiniteMDP(transition, reward, 0.0, [1.0, 0.0, 0.0], [False, False, True])


def test_moments_of_the_coin_and_the_choice_by_hand():
    p = 0.25
    found = oracle.evaluate(coin_and_choice(), [[0.5, 0.5], [p, 1 - p], [0.5, 0.5]], gamma=1.0)
    assert found.value == pytest.approx([p / 2, p, 0.0])
    assert found.action_value == pytest.approx(np.array([[p / 2, p / 2], [1.0, 0.0], [0.0, 0.0]]))
    assert found.action_variance[0] == pytest.approx([p / 2 * (1 - p / 2)] * 2)
    assert found.action_variance[1] == pytest.approx([0.0, 0.0])
    assert found.variance == pytest.approx([p / 2 * (1 - p / 2), p * (1 - p), 0.0])
    assert found.second_moment == pytest.approx([p / 2, p, 0.0])
    assert found.visits == pytest.approx([1.0, 0.5, 1.0])
    assert float(found.sharpe) == pytest.approx((p / 2) / np.sqrt(p / 2 * (1 - p / 2)))


def test_reward_noise_and_discount_by_hand():
    """One state that pays N(2, 9) and goes on with probability 1/2: G = Σ γ^k R_k over a geometric number of steps."""
    mdp = FiniteMDP([[[0.5, 0.5]], [[0.0, 1.0]]], 2.0, 9.0, [1.0, 0.0], [False, True])
    gamma = 0.8
    found = oracle.evaluate(mdp, [[1.0], [1.0]], gamma)
    mean = 2.0 / (1 - gamma / 2)
    # Var = 9 + γ² (Var/2 + V²/4): the noise, what lies ahead, and the coin that decides if there is anything ahead.
    variance = (9.0 + gamma**2 * mean**2 / 4) / (1 - gamma**2 / 2)
    assert float(found.mean) == pytest.approx(mean)
    assert float(found.total_variance) == pytest.approx(variance)
    assert found.visitation == pytest.approx([1 / (1 - gamma / 2), gamma / 2 / (1 - gamma / 2)])


@given(cases())
def test_direct_and_indirect_variance_agree_with_each_other_and_with_the_reference(case):
    found = oracle.evaluate(case.mdp, oracle.softmax(case.theta), case.gamma)
    policy = reference.softmax(case.theta)
    q, m = reference.action_moments(case.mdp, policy, policy, case.gamma)
    scale = 1.0 + np.abs(m).max()
    assert found.action_value == pytest.approx(q, abs=1e-10 * scale)
    assert found.action_second_moment == pytest.approx(m, abs=1e-10 * scale)
    assert found.action_variance == pytest.approx(m - q**2, abs=1e-10 * scale)
    assert found.variance == pytest.approx(found.second_moment - found.value**2, abs=1e-10 * scale)
    total = case.mdp.start @ found.second_moment - float(found.mean) ** 2
    assert float(found.total_variance) == pytest.approx(total, abs=1e-10 * scale)


@given(cases())
def test_theorem_1_holds_and_the_state_variance_has_its_own_bellman_equation(case):
    """σ = E[δ² + γ² σ'] with δ of action values, and Var(G|s) = E[(δ^V)² + γ² Var(G|S')] with δ of state values."""
    mdp, gamma, policy = case.mdp, case.gamma, oracle.softmax(case.theta)
    found = oracle.evaluate(mdp, policy, gamma)
    p, r, v = mdp.transition, mdp.reward_mean, mdp.reward_variance
    q, sigma = found.action_value, found.action_variance
    delta = r[..., None] + gamma * q[None, None] - q[:, :, None, None]
    right = np.einsum("sat,tb,satb->sa", p, policy, delta**2 + gamma**2 * sigma[None, None]) + (p * v).sum(-1)
    scale = 1.0 + np.abs(found.action_second_moment).max()
    assert sigma == pytest.approx(right, abs=1e-10 * scale)
    delta_v = r + gamma * found.value - found.value[:, None, None]
    by_state = np.einsum("sa,sat,sat->s", policy, p, delta_v**2 + v + gamma**2 * found.variance)
    assert found.variance == pytest.approx(by_state, abs=1e-10 * scale)


@given(cases())
def test_a_long_horizon_agrees_with_none_and_a_short_one_with_unrolling(case):
    policy = oracle.softmax(case.theta)
    forever = oracle.evaluate(case.mdp, policy, case.gamma)
    long = oracle.evaluate(case.mdp, policy, case.gamma, horizon=800)
    scale = 1.0 + np.abs(forever.action_second_moment).max()
    for name in ("value", "action_value", "action_variance", "variance", "visitation", "action_second_moment"):
        assert getattr(long, name) == pytest.approx(getattr(forever, name), abs=1e-9 * scale), name

    unrolled = unroll(case.mdp, horizon := 4)
    expected = oracle.evaluate(unrolled, np.tile(policy, (horizon + 1, 1)), case.gamma)
    short = oracle.evaluate(case.mdp, policy, case.gamma, horizon=horizon)
    n = case.mdp.n_states
    for name in ("value", "action_value", "action_variance", "variance", "action_second_moment"):
        assert getattr(short, name) == pytest.approx(getattr(expected, name)[:n], abs=1e-10 * scale), name
    visits = expected.visits.reshape(horizon + 1, n)[:horizon].sum(axis=0)
    assert short.visits == pytest.approx(visits, abs=1e-10)


def unroll(mdp: FiniteMDP, horizon: int) -> FiniteMDP:
    """The same process with the step number in its state; step `horizon` is the end."""
    n = mdp.n_states
    steps = np.arange(horizon)[:, None]
    terminal = np.concatenate([np.tile(mdp.terminal, horizon), np.ones(n, bool)])
    return FiniteMDP.from_transitions(
        n * (horizon + 1),
        mdp.n_actions,
        (mdp.row // mdp.n_actions + n * steps).ravel(),
        np.tile(mdp.row % mdp.n_actions, horizon),
        (mdp.successor + n * (steps + 1)).ravel(),
        np.tile(mdp.probability, horizon),
        np.tile(mdp.reward, horizon),
        np.tile(mdp.noise, horizon),
        np.concatenate([mdp.start, np.zeros(n * horizon)]),
        terminal,
    )


@given(cases())
def test_dense_and_sparse_give_the_same(case):
    policy = oracle.softmax(case.theta)
    dense, sparse = Chain(case.mdp, policy, sparse=False), Chain(case.mdp, policy, sparse=True)
    source = np.arange(1.0, case.mdp.n_states + 1)
    for solve in ("accumulate", "flow"):
        one, other = (getattr(chain, solve)(case.gamma, source) for chain in (dense, sparse))
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12)


def test_a_large_world_is_solved_sparsely_like_its_dense_self(monkeypatch):
    mdp = FourRooms(scale=3).mdp
    policy = oracle.softmax(np.random.default_rng(0).normal(size=(mdp.n_states, mdp.n_actions)))
    dense = oracle.evaluate(mdp, policy, 0.99)
    monkeypatch.setattr("vpac.oracle.linear.DENSE_STATES", 10)
    sparse = oracle.evaluate(mdp, policy, 0.99)
    assert Chain(mdp, policy).sparse
    for name in ("value", "action_value", "action_variance", "second_moment", "visitation", "visits"):
        one, other = getattr(dense, name), getattr(sparse, name)
        assert one == pytest.approx(other, rel=1e-8, abs=1e-8 * np.abs(one).max()), name
    assert float(sparse.goal_probability) == pytest.approx(1.0)


def test_a_batch_of_policies_is_each_policy_alone(rng):
    mdp = PuddleWorld().mdp
    policies = oracle.softmax(rng.normal(size=(3, mdp.n_states, mdp.n_actions)))
    for horizon in (None, 30):
        batch = oracle.evaluate(mdp, policies, 0.99, horizon)
        alone = [oracle.evaluate(mdp, policy, 0.99, horizon) for policy in policies]
        for name in (
            "value", "action_value", "action_variance", "variance", "mean", "total_variance", "sharpe", "second_moment",
            "visitation", "visits", "goal_probability",
        ):  # fmt: skip
            expected = np.stack([getattr(one, name) for one in alone])
            assert getattr(batch, name) == pytest.approx(expected, rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize(("n_terminal", "gamma"), [(1, 1.0), (1, 0.9), (0, 0.8)])
def test_monte_carlo_agrees(rng, n_terminal, gamma):
    mdp = reference.random_mdp(rng, n_terminal=n_terminal, noise=1.0)
    policy = oracle.softmax(rng.normal(size=(5, 3)))
    exact = oracle.evaluate(mdp, policy, gamma)
    sample = returns(simulate(mdp, policy, 100_000, 400 if n_terminal else 150, rng, whole=False), gamma)
    assert_mean(sample, exact.mean)
    assert_mean((sample - exact.mean) ** 2, exact.total_variance)


def test_monte_carlo_agrees_with_the_horizon_in_four_rooms(rng):
    mdp = FourRooms().mdp
    policy = oracle.greedy(rng.normal(size=(104, 4)), ties="first")
    episodes = simulate(mdp, policy, 20_000, 60, rng)
    exact = oracle.evaluate(mdp, policy, 0.99, horizon=60)
    sample = returns(episodes, 0.99)
    assert_mean(sample, exact.mean)
    assert_mean((sample - exact.mean) ** 2, exact.total_variance)
    visited = np.stack([(episodes.state == s).sum(axis=0) for s in range(104)], axis=1)
    assert_mean(visited[:, ~mdp.terminal], exact.visits[~mdp.terminal])
    assert_mean(mdp.goal[episodes.state[-1]], oracle.evaluate(mdp, policy, 0.99, horizon=59).goal_probability)


def test_catch_up_has_the_risk_neutral_moments_that_are_known():
    mdp = CatchUp().mdp
    found = oracle.evaluate(mdp, oracle.optimal_policy(mdp, 0.95), 0.95)
    # Lucky, 4 cells to go: run, run. Unlucky, 9 cells to go: walk three times, then run three times.
    lucky = -2.5 + 0.95 * (-2.5 + 20.0)
    unlucky = -(1 + 0.95 + 0.95**2) - 2.5 * (0.95**3 + 0.95**4 + 0.95**5) + 20.0 * 0.95**5
    assert found.value[[6, 1]] == pytest.approx([lucky, unlucky])
    assert float(found.mean) == pytest.approx(0.95 * (lucky + unlucky) / 2)
    assert float(found.total_variance) == pytest.approx((0.95 * (lucky - unlucky) / 2) ** 2)
    assert float(found.mean) == pytest.approx(9.80, abs=0.005)
    assert float(found.total_variance) == pytest.approx(13.09, abs=0.005)


def test_visits_and_goal_probability_where_a_policy_may_stay_forever():
    """State 0 goes to the goal (2), to a trap (1) or stays; the trap is not terminal."""
    transition = np.zeros((3, 1, 3))
    transition[0, 0] = [0.5, 0.2, 0.3]
    transition[1, 0, 1] = 1.0
    mdp = FiniteMDP(transition, 1.0, 0.0, [1.0, 0.0, 0.0], [False, False, True])
    found = oracle.evaluate(mdp, np.ones((3, 1)), 0.9)
    assert found.visits == pytest.approx([2.0, np.inf, 0.6])
    assert found.goal_probability_by_state == pytest.approx([0.6, 0.0, 1.0])
    with pytest.raises(OracleError, match="state 1 and never ends"):
        oracle.evaluate(mdp, np.ones((3, 1)), 1.0)


def test_without_discount_states_that_are_never_met_may_stay_forever():
    """From 0 action 0 ends; action 1 leads to the trap 1, which the policy avoids: its moments are NaN, not wrong."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 2] = transition[0, 1, 1] = transition[1, :, 1] = 1.0
    mdp = FiniteMDP(transition, 1.0, 4.0, [1.0, 0.0, 0.0], [False, False, True])
    found = oracle.evaluate(mdp, [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], 1.0)
    assert float(found.mean) == 1.0
    assert float(found.total_variance) == 4.0
    assert np.isnan(found.value[1])
    assert np.isnan(found.action_value[0, 1])
    assert found.second_moment[0] == pytest.approx(5.0)


def test_a_policy_that_hardly_ever_ends_is_an_error_and_not_a_wrong_number():
    transition = np.array([[[1.0 - 1e-17, 1e-17]], [[0.0, 1.0]]])
    mdp = FiniteMDP(transition, 1.0, 0.0, [1.0, 0.0], [False, True])
    with pytest.raises(OracleError, match="singular"):
        oracle.evaluate(mdp, np.ones((2, 1)), 1.0)


def test_a_solution_that_does_not_solve_is_an_error(monkeypatch):
    """Whatever the solver returns is put back into its equation."""
    one, many = lapack.dgetrs, np.linalg.solve
    monkeypatch.setattr(lapack, "dgetrs", lambda *system, **options: (one(*system, **options)[0] * (1 + 1e-8), 0))
    monkeypatch.setattr(np.linalg, "solve", lambda system, source: many(system, source) * (1 + 1e-8))
    for shape in ((3, 2), (4, 3, 2)):
        with pytest.raises(OracleError, match="leaves a residual"):
            oracle.evaluate(coin_and_choice(), np.full(shape, 0.5), 0.9)


@pytest.mark.parametrize("gamma", ["a", None, -0.1, 1.1, float("nan")])
def test_gamma_outside_zero_to_one_is_an_error(gamma):
    with pytest.raises(UserError, match="gamma must be a number from 0 to 1"):
        oracle.evaluate(coin_and_choice(), np.full((3, 2), 0.5), gamma)


@pytest.mark.parametrize("horizon", [0, -3, 2.5, True, 10**20])
def test_a_horizon_that_is_not_a_number_of_steps_is_an_error(horizon):
    with pytest.raises(UserError, match="horizon must be a whole number from 1 to"):
        oracle.evaluate(coin_and_choice(), np.full((3, 2), 0.5), 0.9, horizon)


def test_the_meanings_of_variance(rng):
    mdp = reference.random_mdp(rng)
    found = oracle.evaluate(mdp, oracle.softmax(rng.normal(size=(5, 3))), 0.9)
    ordered = [float(found.variance_of(kind)) for kind in ("action", "state", "return")]
    assert ordered == sorted(ordered)
    assert ordered[0] < ordered[1] < ordered[2]
    with pytest.raises(UserError, match="did you mean 'return'"):
        found.variance_of("returns")
