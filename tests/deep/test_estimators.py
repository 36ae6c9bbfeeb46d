"""The estimators against numbers worked out by hand, and against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

jnp = pytest.importorskip("jax.numpy")
from vpac.deep import estimators, penalties  # noqa: E402
from vpac.deep.estimators import EpisodeTrace  # noqa: E402


def column(*numbers):
    return jnp.asarray(numbers, jnp.float32)[:, None]


def test_errors_by_hand():
    one, zero = jnp.ones(1), jnp.zeros(1)
    # R = 2, V = 3, V' = 5, γ = 0.5: δ = 2 + 2.5 − 3; the end of an episode is worth nothing
    assert float(estimators.td_error(2.0 * one, 3.0 * one, 5.0 * one, one, 0.5)[0]) == 1.5
    assert float(estimators.td_error(2.0 * one, 3.0 * one, 5.0 * one, zero, 0.5)[0]) == -1.0
    # δ² + γ² σ' − σ = 2.25 + 0.25 · 8 − 4
    assert float(estimators.variance_error(1.5 * one, 4.0 * one, 8.0 * one, one, 0.5)[0]) == 0.25
    assert float(estimators.variance_error(1.5 * one, 4.0 * one, 8.0 * one, zero, 0.5)[0]) == -1.75
    # R² + 2γRV' + γ²M' − M = 4 + 10 + 0.25 · 40 − 20
    assert float(estimators.moment_error(2.0 * one, 5.0 * one, 20.0 * one, 40.0 * one, one, 0.5)[0]) == 4.0
    assert float(estimators.moment_error(2.0 * one, 5.0 * one, 20.0 * one, 40.0 * one, zero, 0.5)[0]) == -16.0


def test_advantages_by_hand_stop_at_ends_and_at_idle_steps():
    # an episode of two steps, a step that only starts the next, then two more; discount · λ = 0.5
    error, running, valid = column(1, 2, 100, 3, 4), column(1, 0, 1, 1, 1), column(1, 1, 0, 1, 1)
    found = estimators.advantages(error, running, valid, 1.0, 0.5)
    np.testing.assert_allclose(found[:, 0], [1 + 0.5 * 2, 2, 0, 3 + 0.5 * 4, 4])
    # the next episode begins within the step that ends the one before
    found = estimators.advantages(column(1, 2, 3, 4), column(1, 0, 1, 1), column(1, 1, 1, 1), 1.0, 0.5)
    np.testing.assert_allclose(found[:, 0], [1 + 0.5 * 2, 2, 3 + 0.5 * 4, 4])


@pytest.mark.parametrize("discount", [0.9, 0.81])
def test_advantages_are_their_definition(discount, rng):
    T, n, lam = 30, 5, 0.7
    error = rng.normal(size=(T, n))
    running, valid = np.ones((T, n)), np.ones((T, n))
    for i in range(n):
        end = rng.integers(5, T - 5)
        running[end, i], valid[end + 1, i] = 0.0, 0.0
    expected = np.zeros((T, n))
    for i in range(n):
        for t in range(T):
            weight = 1.0
            for later in range(t, T):
                if not valid[later, i]:
                    break
                expected[t, i] += weight * error[later, i]
                weight *= discount * lam
                if not running[later, i]:
                    break
    found = estimators.advantages(*(jnp.asarray(x, jnp.float32) for x in (error, running, valid)), discount, lam)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_traces_by_hand_begin_anew_with_each_episode():
    gamma = 0.5
    delta, reward, value = column(1, 2, 50, 3, 4), column(10, 20, 0, 30, 40), column(7, 8, 99, 9, 5)
    running, valid = column(1, 0, 1, 1, 1), column(1, 1, 0, 1, 1)
    rows, last = estimators.traces(EpisodeTrace.first(1), delta, reward, value, running, valid, gamma)
    acting = np.array([0, 1, 3, 4])
    np.testing.assert_allclose(rows.luck[acting, 0], [0, 1, 0, 3])
    np.testing.assert_allclose(rows.discount[acting, 0], [1, 0.5, 1, 0.5])
    np.testing.assert_allclose(rows.recent_luck[acting, 0], [0, 0.5, 0, 1.5])
    np.testing.assert_allclose(rows.visits[acting, 0], [1, 1.5, 1, 1.5])
    np.testing.assert_allclose(rows.squared_visits[acting, 0], [1, 1.25, 1, 1.25])
    np.testing.assert_allclose(rows.collected[acting, 0], [0, 10, 0, 30])
    np.testing.assert_allclose(rows.start_value[acting, 0], [7, 7, 9, 9])
    # carried on: D = 3 + 0.5 · 4, γ², E = γ (1.5 + 1.25 · 4), n = 1 + γ 1.5, m = 1 + γ² 1.25, Ḡ = 30 + 0.25 · 40, V(S_0)
    expected = {
        "luck": 5.0, "discount": 0.25, "recent_luck": 3.25, "visits": 1.75, "squared_visits": 1.3125, "collected": 40.0,
        "start_value": 9.0, "begun": 1.0,
    }  # fmt: skip
    assert {name: float(x[0]) for name, x in last._asdict().items()} == expected
    # the next episode begins within the step that ends the one before: without the idle step all is the same
    acting = jnp.asarray(acting)
    same, end = estimators.traces(
        EpisodeTrace.first(1), delta[acting], reward[acting], value[acting], running[acting], valid[acting], gamma
    )
    for name in EpisodeTrace._fields:
        np.testing.assert_array_equal(getattr(same, name), getattr(rows, name)[acting])
    assert {name: float(x[0]) for name, x in end._asdict().items()} == expected


def test_other_units_of_reward():
    """What is a reward is multiplied; discounts, counts and whether it has begun are not."""
    trace = EpisodeTrace(*(jnp.array([x]) for x in (2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 1.0))).times(
        jnp.float32(10.0)
    )
    assert [float(x[0]) for x in trace] == [20.0, 3.0, 50.0, 7.0, 11.0, 130.0, 170.0, 1.0]


def test_traces_do_not_see_where_rollouts_are_cut(rng):
    T, n = 24, 4
    delta, reward, value = (jnp.asarray(rng.normal(size=(T, n)), jnp.float32) for _ in range(3))
    running, valid = np.ones((T, n), np.float32), np.ones((T, n), np.float32)
    running[5, 0] = running[11, 1] = 0.0
    valid[6, 0] = valid[12, 1] = 0.0
    whole, _ = estimators.traces(EpisodeTrace.first(n), delta, reward, value, running, valid, 0.9)
    carried, parts = EpisodeTrace.first(n), []
    for cut in (slice(0, 6), slice(6, 12), slice(12, 13), slice(13, 24)):
        rows, carried = estimators.traces(carried, delta[cut], reward[cut], value[cut], running[cut], valid[cut], 0.9)
        parts.append(rows)
    for name in EpisodeTrace._fields:
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined * valid, getattr(whole, name) * valid)


def test_penalties_by_hand():
    a, s = jnp.array([2.0]), jnp.array([3.0])
    trace = EpisodeTrace(
        *(jnp.array([x]) for x in (7.0, 0.25, 5.0, 4.0, 6.0, 11.0, 13.0, 1.0))
    )  # D, γ^k, E, n, m, Ḡ, V(S_0), begun
    luck, share = penalties.luck_and_share(trace, "uniform", jnp.float32(9.0))
    assert (float(luck[0]), float(share[0])) == (5.0 / 4.0, 6.0 / 4.0)
    luck, share = penalties.luck_and_share(trace, "start", jnp.float32(9.0))
    assert (float(luck[0]), float(share[0])) == (7.0 + 13.0 - 9.0, 0.25)
    assert float(penalties.corrected(a, s, luck, share)[0]) == 0.25 * 3 + 2 * 11 * 2
    assert float(penalties.published_vaac(a, s, trace, 0.5)[0]) == 3 + 2 * 0.5 * 11 * 2 - 2 * 13 * 2
    assert float(penalties.variance_advantage(s, jnp.array([4.0]), a)[0]) == 3 - 2 * 4 * 2
