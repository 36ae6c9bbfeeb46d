from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from vpac.errors import UserError
from vpac.risk import metrics
from vpac.risk.metrics import METRICS

SAMPLE = [4.0, -2.0, 1.0, 1.0, 6.0]
"""In order −2, 1, 1, 4, 6: mean 2, deviations −4, −1, −1, 2, 4."""
samples = arrays(np.float64, st.integers(2, 30), elements=st.floats(-100, 100, width=32))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("mean", {}, 2.0),
        ("variance", {}, 38 / 4),
        ("std", {}, np.sqrt(38 / 4)),
        ("semivariance", {}, 18 / 4),
        ("semivariance_below", {}, 4 / 5),
        ("semivariance_below", {"target": 3.0}, (25 + 4 + 4) / 5),
        ("sharpe", {}, 2 / np.sqrt(38 / 4)),
        ("quantile", {}, 1.0),
        ("quantile", {"share": 0.625}, 4.0),
        ("quantile", {"share": 1.0}, 6.0),
        ("value_at_risk", {}, -2.0),
        ("value_at_risk", {"alpha": 0.2}, -2.0),
        ("value_at_risk", {"alpha": 0.21}, 1.0),
        ("value_at_risk", {"alpha": 0.0}, -2.0),
        ("value_at_risk", {"alpha": 1.0}, 6.0),
        ("cvar", {}, -2.0),
        ("cvar", {"alpha": 0.2}, -2.0),
        ("cvar", {"alpha": 0.3}, (-2 + 0.5 * 1) / 1.5),
        ("cvar", {"alpha": 0.7}, (-2 + 1 + 1 + 0.5 * 4) / 3.5),
        ("cvar", {"alpha": 1.0}, 2.0),
        # the ten pairs differ by 3 3 6 8, 0 3 5, 3 5, 2
        ("gini_deviation", {}, 38 / 10 / 2),
        ("interquartile_mean", {}, (1 + 1 + 4) / 3),
    ],
)
def test_by_hand(name, arguments, expected):
    assert METRICS[name](SAMPLE, **arguments) == pytest.approx(expected, rel=1e-14)


def test_a_share_that_is_a_whole_number_of_observations_up_to_rounding():
    """0.07 · 100 is 7.000000000000001 in floating point; the worst 7 are meant."""
    assert metrics.value_at_risk(np.arange(1, 101), 0.07) == 7.0


@pytest.mark.parametrize("name", METRICS)
def test_many_samples_at_once(name):
    many = np.random.default_rng(0).normal(size=(3, 2, 17))
    each = [[METRICS[name](sample) for sample in row] for row in many]
    assert METRICS[name](many) == pytest.approx(np.array(each), rel=1e-12)
    assert isinstance(METRICS[name](many[0, 0]), float)


@pytest.mark.parametrize("name", METRICS)
def test_what_is_unknown_is_nan_and_what_is_empty_an_error(name):
    assert np.isnan(METRICS[name]([1.0, 2.0, np.nan, 3.0, 4.0]))
    with pytest.raises(UserError, match="at least one return"):
        METRICS[name]([])
    with pytest.raises(UserError, match="at least one return"):
        METRICS[name](1.0)


def test_a_single_return_has_a_mean_but_no_spread():
    of_one = {name: float(function([3.0])) for name, function in METRICS.items()}
    needs_two = {"variance", "std", "semivariance", "sharpe", "gini_deviation"}
    assert {name for name, value in of_one.items() if np.isnan(value)} == needs_two
    assert {value for name, value in of_one.items() if name not in needs_two} == {3.0, 0.0}


@pytest.mark.parametrize(("value", "expected"), [(0.1, np.inf), (-0.1, -np.inf), (0.0, np.nan)])
def test_returns_without_spread(value, expected):
    """Seven times 0.1 add up to a little less than 0.7; the spread has to be 0 all the same."""
    same = np.full(7, value)
    assert metrics.variance(same) == metrics.semivariance(same) == metrics.gini_deviation(same) == 0.0
    assert np.array_equal(metrics.sharpe(same), expected, equal_nan=True)


def test_the_variance_does_not_cancel_far_from_zero():
    assert metrics.variance(1e9 + np.array(SAMPLE)) == pytest.approx(38 / 4, rel=1e-12)


@pytest.mark.parametrize("function", [metrics.cvar, metrics.value_at_risk, metrics.quantile])
def test_shares_outside_0_and_1_are_refused(function):
    name = list(inspect.signature(function).parameters)[1]
    for share in (-0.1, 1.1, np.nan):
        with pytest.raises(UserError, match=f"{name} must be between 0 and 1"):
            function(SAMPLE, share)


def test_cvar_of_an_empty_share_is_an_error():
    with pytest.raises(UserError, match="above 0"):
        metrics.cvar(SAMPLE, 0.0)


@given(samples, st.floats(0.01, 1.0))
def test_cvar_is_the_best_value_of_its_variational_form(x, alpha):
    """max_v v − E max(v − X, 0)/α is reached at an observation, among them the value at risk."""
    values = x[:, None] - np.maximum(x[:, None] - x, 0.0).mean(axis=1, keepdims=True) / alpha
    assert metrics.cvar(x, alpha) == pytest.approx(values.max(), rel=1e-9, abs=1e-9)
    at_risk = metrics.value_at_risk(x, alpha)
    assert at_risk - np.maximum(at_risk - x, 0.0).mean() / alpha == pytest.approx(values.max(), rel=1e-9, abs=1e-9)


@given(samples)
def test_against_definitions_and_scipy(x):
    n = len(x)
    pairs = np.abs(x[:, None] - x).sum() / (n * (n - 1)) / 2
    assert metrics.gini_deviation(x) == pytest.approx(pairs, rel=1e-9, abs=1e-9)
    assert metrics.variance(x) == pytest.approx(np.var(x, ddof=1), rel=1e-9, abs=1e-9)
    assert metrics.interquartile_mean(x) == pytest.approx(stats.trim_mean(x, 0.25), rel=1e-9, abs=1e-9)
    assert metrics.semivariance(x) + metrics.semivariance(-x) == pytest.approx(metrics.variance(x), rel=1e-9, abs=1e-9)


def test_large_samples_come_near_the_closed_forms():
    """Exponential(1) and standard normal; each bound is five standard errors or more."""
    rng = np.random.default_rng(1)
    exponential, normal = rng.exponential(size=200_000), rng.normal(size=200_000)
    assert metrics.gini_deviation(exponential) == pytest.approx(1 / 2, abs=0.01)
    assert metrics.gini_deviation(normal) == pytest.approx(1 / np.sqrt(np.pi), abs=0.01)
    assert metrics.cvar(normal, 0.1) == pytest.approx(-stats.norm.pdf(stats.norm.ppf(0.1)) / 0.1, abs=0.03)
    assert metrics.cvar(exponential, 0.5) == pytest.approx(1 - np.log(2), abs=0.01)
    assert metrics.semivariance(normal) == pytest.approx(0.5, abs=0.02)
    assert metrics.value_at_risk(exponential, 0.5) == pytest.approx(np.log(2), abs=0.02)


def test_against_rliable():
    """rliable 1.2.0 needs arch and seaborn, so its answer is kept here: rliable.metrics.aggregate_iqm(scores)."""
    scores = np.random.default_rng(5).standard_t(3, size=(11, 3)).round(6)
    assert metrics.interquartile_mean(scores.ravel()) == pytest.approx(-0.49069217647058827, rel=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.5, 0.95, 1.0])
def test_a_value_at_risk_is_a_quantile(share):
    """One definition for both: they stand in one table."""
    x = np.random.default_rng(6).normal(size=37)
    assert metrics.quantile(x, share) == metrics.value_at_risk(x, share)
    assert metrics.quantile(x, share) == np.quantile(x, share, method="inverted_cdf")
