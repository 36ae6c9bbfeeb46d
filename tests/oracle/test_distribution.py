from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import reference
from vpac import FiniteMDP, oracle
from vpac.envs import CatchUp, FourRooms, RiskyShortcut
from vpac.errors import UserError
from vpac.oracle.linear import OracleError
from vpac.risk import metrics


def enumerated(mdp, policy, gamma, horizon, listed=None):
    """Every path of at most `horizon` steps: its return of mean rewards, probability and variance of the noise."""
    found, todo = [], [(s, 0, 0.0, p, 0.0) for s, p in enumerate(mdp.start) if p > 0.0]
    stored = zip(*divmod(mdp.row, mdp.n_actions), mdp.successor, mdp.probability, mdp.reward, mdp.noise, strict=True)
    listed = list(stored) if listed is None else listed
    while todo:
        s, k, g, p, v = todo.pop()
        if k == horizon or mdp.terminal[s]:
            found.append((g, p, v))
            continue
        for state, action, successor, chance, reward, noise in listed:
            if state == s and policy[s, action] * chance > 0.0:
                paid, more = g + gamma**k * reward, v + gamma ** (2 * k) * noise
                todo.append((int(successor), k + 1, paid, p * policy[s, action] * chance, more))
    return np.array(sorted(found)).T


def true_below(paths, c):
    value, chance, variance = paths
    z = np.divide(c - value, np.sqrt(variance), out=np.zeros_like(value), where=variance > 0.0)
    return float(chance @ np.where(variance > 0.0, stats.norm.cdf(z), value < c))


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_agrees_with_every_path_within_its_error(seed, gamma, noise):
    rng = np.random.default_rng(seed)
    mdp = reference.random_mdp(rng, 4, 2, 1, noise=noise, density=0.6)
    policy = rng.dirichlet(np.ones(2), 4)
    paths = enumerated(mdp, policy, gamma, 4)
    coarse, fine = (oracle.distribution(mdp, policy, gamma, 4, points=n) for n in (200, 2000))
    assert 0.0 < fine.error < coarse.error / 5.0
    for found in (coarse, fine):
        assert found.probability.sum() == pytest.approx(1.0, abs=1e-9)
        for c in np.linspace(paths[0].min() - 0.1, paths[0].max() + 0.1, 41):
            assert found.below(c - found.error) - 1e-9 <= true_below(paths, c) <= found.below(c + found.error) + 1e-9
        exact = oracle.evaluate(mdp, policy, gamma, 4)
        assert found.mean == pytest.approx(float(exact.mean), abs=found.error)
    assert fine.variance == pytest.approx(float(exact.total_variance), rel=0.02)
    if noise == 0.0:
        # The worst share of the enumerated paths, in order.
        for alpha in (0.05, 0.3, 1.0):
            before = np.append(0.0, np.cumsum(paths[1]))[:-1]
            worst = np.clip(alpha - before, 0.0, paths[1]) @ paths[0] / alpha
            assert fine.cvar(alpha) == pytest.approx(worst, abs=min(fine.error, fine.average_error / alpha) + 1e-9)
            assert fine.cvar(alpha) <= fine.quantile(alpha) + 1e-12


def test_rewards_on_a_grid_are_exact_without_discount():
    """Risky shortcut with γ = 1: returns are whole numbers. The optimal policy is thrown back until it gets through."""
    mdp = RiskyShortcut().mdp
    policy = oracle.optimal_policy(mdp, 1.0)
    found, exact = oracle.distribution(mdp, policy, 1.0), oracle.evaluate(mdp, policy, 1.0)
    assert found.error == 0.0
    assert found.lost < 1e-9
    assert found.mean == pytest.approx(float(exact.mean), abs=1e-8)
    assert found.variance == pytest.approx(float(exact.total_variance), abs=1e-6)
    # 15 without a throw; each throw, with probability 0.3, costs 4 more.
    assert found.below(15.0) == pytest.approx(0.3, abs=1e-12)
    assert found.below(11.0) == pytest.approx(0.09, abs=1e-12)
    assert found.quantile(0.05) == 7.0
    assert found.cvar(0.09) == pytest.approx((float(exact.mean) - 0.7 * 15 - 0.21 * 11) / 0.09, abs=1e-7)


def test_normal_noise_in_closed_form():
    """Five steps that each pay 1 with variance 0.25 and two kinds of end: a mixture of two normal distributions."""
    transition, noise = np.zeros((7, 1, 7)), np.zeros((7, 1, 7))
    for s in range(5):
        transition[s, 0, s + 1] = 1.0
    transition[4, 0] = [0, 0, 0, 0, 0, 0.25, 0.75]
    noise[:, 0] = 0.25
    noise[4, 0, 6] = 4.0
    mdp = FiniteMDP(transition, 1.0, noise, np.eye(7)[0], np.arange(7) >= 5)
    found = oracle.distribution(mdp, np.ones((7, 1)), 0.9)
    mean, spread = (1 - 0.9**5) / 0.1, 0.25 * (1 - 0.81**4) / 0.19
    parts = [(0.25, spread + 0.25 * 0.81**4), (0.75, spread + 4.0 * 0.81**4)]
    assert found.error == 0.0
    for c in (2.0, 4.0, 5.5):
        assert found.below(c) == pytest.approx(sum(p * stats.norm.cdf(c, mean, v**0.5) for p, v in parts), abs=1e-12)
    q = found.quantile(0.1)
    assert found.below(q) == pytest.approx(0.1, abs=1e-9)
    tail = sum(p * (mean * stats.norm.cdf(z := (q - mean) / v**0.5) - v**0.5 * stats.norm.pdf(z)) for p, v in parts)
    assert found.cvar(0.1) == pytest.approx(tail / 0.1, abs=1e-8)


def test_noise_that_differs_between_ways_is_spread_over_the_grid():
    """Two ways to one state, one of them noisy, then an end: again a mixture of two normal distributions."""
    transition, noise = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    transition[0, :, 1] = transition[1, :, 2] = 1.0
    noise[0, 1, 1], noise[1] = 2.0, 0.5
    mdp = FiniteMDP(transition, 0.0, noise, [1.0, 0, 0], [False, False, True])
    found = oracle.distribution(mdp, np.full((3, 2), 0.5), 1.0)
    assert 0.0 < found.error < 0.01
    for c in (-2.0, -0.3, 0.0, 1.0):
        exact = 0.5 * stats.norm.cdf(c / 0.5**0.5) + 0.5 * stats.norm.cdf(c / 2.5**0.5)
        assert found.below(c) == pytest.approx(exact, abs=1e-5)


def test_a_coin_that_pays_on_the_way_to_one_state_is_no_normal_noise():
    """±10 on the way to the only end: merged to mean 0 and variance 100 for moments, two points for the distribution."""
    mdp = FiniteMDP.from_transitions(2, 1, [0, 0], [0, 0], [1, 1], 0.5, [10.0, -10.0], terminal=[False, True])
    for gamma in (1.0, 0.9):
        found = oracle.distribution(mdp.with_start([1.0, 0.0]), np.ones((2, 1)), gamma)
        assert (found.value.tolist(), found.probability.tolist()) == ([-10.0, 10.0], [0.5, 0.5])
        assert (found.error, found.below(-10.5), found.cvar(0.05), found.variance) == (0.0, 0.0, -10.0, 100.0)
    assert (mdp.reward.tolist(), mdp.noise.tolist()) == ([0.0], [100.0])
    equal = FiniteMDP.from_transitions(2, 1, [0, 0], [0, 0], [1, 1], 0.5, 3.0, terminal=[False, True])
    assert equal.outcomes[0] is equal.row


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_several_rewards_to_the_same_state_against_every_path(gamma, noise):
    """Three states, two rewards for each transition, some of them noisy."""
    rng, listed = np.random.default_rng(3), []
    for state, action, successor in np.ndindex(2, 2, 3):
        listed += [(state, action, successor, 1 / 6, reward, noise * (reward > 1.0)) for reward in rng.uniform(0, 2, 2)]
    mdp = FiniteMDP.from_transitions(3, 2, *np.array(listed).T, [1.0, 0, 0], [False, False, True])
    policy = rng.dirichlet(np.ones(2), 3)
    paths = enumerated(mdp, policy, gamma, 3, listed)
    found = oracle.distribution(mdp, policy, gamma, 3)
    assert found.probability.sum() == pytest.approx(1.0, abs=1e-9)
    for c in np.linspace(0.0, 6.0, 61):
        assert found.below(c - found.error) - 1e-9 <= true_below(paths, c) <= found.below(c + found.error) + 1e-9
    assert found.variance == pytest.approx(float(oracle.evaluate(mdp, policy, gamma, 3).total_variance), rel=0.01)
    assert found.error < 0.02


@pytest.mark.parametrize(("world", "gamma"), [(CatchUp, 0.95), (FourRooms, 0.99)])
def test_moments_of_worlds_that_go_on(world, gamma):
    mdp = world().mdp
    policy = oracle.softmax(2.0 * oracle.optimal_policy(mdp, gamma))
    found, exact = oracle.distribution(mdp, policy, gamma, points=500), oracle.evaluate(mdp, policy, gamma)
    assert found.mean == pytest.approx(float(exact.mean), abs=found.average_error + 1e-6)
    assert found.average_error < 0.05 * float(exact.std)
    assert found.average_error <= found.error
    assert found.variance == pytest.approx(float(exact.total_variance), rel=0.02)


def test_simulated_returns_have_these_quantiles():
    """20 000 episodes of catch-up; the share below each exact quantile is within five standard errors."""
    mdp, rng = CatchUp().mdp, np.random.default_rng(0)
    policy = oracle.softmax(2.0 * oracle.optimal_policy(mdp, 0.95))
    found = oracle.distribution(mdp, policy, 0.95)
    state, returns, k = np.zeros(20_000, int) + int(np.argmax(mdp.start)), np.zeros(20_000), 0
    while (alive := ~mdp.terminal[state]).any() and k < 400:
        before = state.copy()
        for s in np.unique(state[alive]):
            who = np.flatnonzero(alive & (before == s))
            here = np.flatnonzero(mdp.row // mdp.n_actions == s)
            chance = policy[s, mdp.row[here] % mdp.n_actions] * mdp.probability[here]
            drawn = here[rng.choice(len(here), len(who), p=chance / chance.sum())]
            returns[who] += 0.95**k * mdp.reward[drawn]
            state[who] = mdp.successor[drawn]
        k += 1
    for c in (0.0, 4.0, 8.0):
        low, high = found.below(c - found.error - 1e-6), found.below(c + found.error + 1e-6)
        slack = 5.0 * np.sqrt(0.25 / len(returns))
        assert low - slack <= (returns < c).mean() <= high + slack
    assert found.cvar(0.1) == pytest.approx(float(metrics.cvar(returns, 0.1)), abs=0.15 + found.error)


def test_bad_input_is_named():
    mdp = CatchUp().mdp
    found = oracle.distribution(mdp, oracle.uniform(mdp), 0.9, 3)
    for call, message in (
        (lambda: found.cvar(0.0), "alpha must be above 0"),
        (lambda: found.quantile(1.5), "q must be between 0 and 1"),
        (lambda: oracle.distribution(mdp, oracle.uniform(mdp), 0.9, points=2), "points must be a whole number from 10"),
        (lambda: oracle.distribution(mdp, oracle.uniform(mdp)[None], 0.9), "one policy at a time"),
    ):
        with pytest.raises(UserError, match=message):
            call()
    stays = FiniteMDP([[[1.0]]], 1.0)
    with pytest.raises(OracleError, match="never ends"):
        oracle.distribution(stays, [[1.0]], 1.0)
    assert oracle.distribution(stays, [[1.0]], 0.5).quantile(0.5) == pytest.approx(2.0, abs=1e-6)
