from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vpac.errors import UserError
from vpac.risk import (
    Interval,
    bootstrap,
    bootstrap_many,
    cvar,
    intervals,
    mean,
    mean_interval,
    quantile,
    std,
    variance,
    variance_interval,
)

SKEWED = np.random.default_rng(0).exponential(size=40)
OTHER = np.random.default_rng(1).exponential(2.0, size=25)


def ends(interval):
    return interval.low, interval.high


def coverage(interval_of, draw, truth, n, trials=1000):
    """The share of samples whose interval holds the truth."""
    found = [interval_of(row) for row in draw((trials, n))]
    return np.mean([i.low <= truth <= i.high for i in found])


def binomial_error(share, trials=1000):
    return np.sqrt(share * (1 - share) / trials)


def test_mean_by_hand():
    """Four numbers with mean 3 and standard deviation 2: 3 ± 3.182 · 2/√4 (Student's t with 3 degrees of freedom)."""
    sample = np.array([3 - np.sqrt(3), 3 - np.sqrt(3), 3 + np.sqrt(3), 3 + np.sqrt(3)])
    found = mean_interval(sample)
    assert (found.estimate, found.low, found.high) == pytest.approx((3.0, 3 - 3.18245, 3 + 3.18245), abs=1e-4)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_mean_against_scipy(level):
    assert ends(mean_interval(SKEWED, level=level)) == pytest.approx(
        tuple(stats.ttest_1samp(SKEWED, 0.0).confidence_interval(level)), rel=1e-9
    )


def test_what_is_unknown_is_nan():
    for function, size in ((mean_interval, 1), (variance_interval, 4)):
        found = function(np.arange(size))
        assert np.isfinite(found.estimate) or size == 1
        assert np.isnan(ends(found)).all()
        assert np.isnan(function([1.0, 2.0, 3.0, 4.0, 5.0, np.nan]).low)
    assert mean_interval([2.0]).estimate == 2.0


@pytest.mark.parametrize("function", [mean_interval, variance_interval])
def test_mistakes_are_named(function):
    with pytest.raises(UserError, match="list of numbers"):
        function([])
    with pytest.raises(UserError, match="list of numbers"):
        function(np.ones((2, 2)))
    for level in (0.0, 1.0, 95):
        with pytest.raises(UserError, match="level must be between 0 and 1"):
            function(SKEWED, level=level)


def test_variance_by_hand():
    """0, 0, 0, 0, 10: s² = 20, Σ(x − x̄)² = 80, m = the median 0, κ = 5 · 10⁴/80², e² = (κ − 2/5)/4, c = 5/(5 − z)."""
    z = 1.959963984540054
    c = 5 / (5 - z)
    factor = np.exp(c * z * np.sqrt((5e4 / 6400 - 0.4) / 4))
    found = variance_interval([0.0, 10.0, 0.0, 0.0, 0.0])
    assert (found.estimate, found.low, found.high) == pytest.approx((20.0, c * 20 / factor, c * 20 * factor), rel=1e-12)


def test_variance_without_spread():
    assert variance_interval([0.1] * 10) == Interval(0.0, 0.0, 0.0)


def test_variance_of_a_large_normal_sample_is_the_chi_squared_interval():
    """Both come to s² (1 ± z √(2/n)); the difference is of the order of 1/n and of the noise in the kurtosis."""
    sample = np.random.default_rng(2).normal(size=20_000)
    squares = variance(sample) * (len(sample) - 1)
    known = squares / stats.chi2.ppf([0.975, 0.025], len(sample) - 1)
    assert ends(variance_interval(sample)) == pytest.approx(tuple(known), abs=0.003)


NORMAL = (lambda size: np.random.default_rng(3).normal(size=size), 1.0)
EXPONENTIAL = (lambda size: np.random.default_rng(4).exponential(size=size), 1.0)
STUDENT = (lambda size: np.random.default_rng(5).standard_t(5, size=size), 5 / 3)
LOTTERY = (lambda size: 10.0 * (np.random.default_rng(6).random(size) < 0.1), 9.0)


@pytest.mark.parametrize(
    ("world", "n", "measured"),
    [
        (NORMAL, 50, 0.94),
        (NORMAL, 200, 0.95),
        (NORMAL, 1000, 0.95),
        (EXPONENTIAL, 50, 0.89),
        (EXPONENTIAL, 200, 0.93),
        (EXPONENTIAL, 1000, 0.94),
        (STUDENT, 50, 0.91),
        (STUDENT, 200, 0.92),
        (STUDENT, 1000, 0.93),
        (LOTTERY, 50, 0.97),
        (LOTTERY, 200, 0.96),
        (LOTTERY, 1000, 0.96),
    ],
)
def test_the_variance_is_covered_as_the_docstring_says(world, n, measured):
    """The shares of the docstring, of 10 000 other trials and rounded to a point: 3.5 standard errors and half a point."""
    draw, truth = world
    found = coverage(variance_interval, draw, truth, n)
    assert found == pytest.approx(measured, abs=3.5 * binomial_error(measured) + 0.005)


def test_the_mean_is_covered():
    for n in (5, 30):
        assert coverage(mean_interval, NORMAL[0], 0.0, n) == pytest.approx(0.95, abs=3.5 * binomial_error(0.95))


def test_the_bootstrap_covers():
    """The mean of 50 numbers: of 5000 other trials 93.7 % (percentile, normal) and 93.1 % (BCa, exponential) covered."""

    def percentile(row):
        return bootstrap(row, mean, resamples=1000, seed=0)

    def bca(row):
        return bootstrap(row, mean, resamples=1000, seed=0, method="bca")

    assert coverage(percentile, NORMAL[0], 0.0, 50) == pytest.approx(0.937, abs=3.5 * binomial_error(0.937))
    assert coverage(bca, EXPONENTIAL[0], 1.0, 50) == pytest.approx(0.931, abs=3.5 * binomial_error(0.931))


def ratio(x, y):
    return mean(x) / mean(y)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("method", ["percentile", "bca"])
@pytest.mark.parametrize(
    ("samples", "statistic"),
    [([SKEWED], mean), ([SKEWED], variance), ([SKEWED], cvar), ([SKEWED, OTHER], ratio)],
    ids=["mean", "variance", "cvar", "ratio"],
)
def test_the_bootstrap_against_scipy(monkeypatch, samples, statistic, method, level):
    """Equal ends for equal resamples (SciPy interpolates between two of them); for others a like middle and spread.

    The error of a mean of B resamples is their standard deviation over √B; of two such means, 5√2 of that are allowed, and
    for the standard deviation as much, because its error is smaller but for the kurtosis.
    """
    of_axis = lambda *arrays, axis: statistic(*(np.moveaxis(x, axis, -1) for x in arrays))  # noqa: E731
    known = stats.bootstrap(
        samples, of_axis, method=method, n_resamples=20_000, rng=7, confidence_level=level, batch=2000
    )
    drawn, resampled = [], intervals._resampled
    monkeypatch.setattr(
        intervals, "_resampled", lambda *args: drawn.append(resampled(*args)) or known.bootstrap_distribution
    )
    found = bootstrap_many(samples, statistic, method=method, resamples=20_000, seed=8, level=level)
    assert found.estimate == statistic(*samples)
    assert ends(found) == pytest.approx(tuple(known.confidence_interval), abs=0.01 * known.standard_error)
    error = 5 * np.sqrt(2 / 20_000) * known.standard_error
    assert len(drawn[0]) == 20_000
    assert drawn[0].mean() == pytest.approx(known.bootstrap_distribution.mean(), abs=error)
    assert drawn[0].std() == pytest.approx(known.standard_error, abs=error)


def test_the_acceleration_by_hand():
    """For the mean a = Σ(xᵢ − x̄)³ / (6 (Σ(xᵢ − x̄)²)^{3/2}): leaving out a large number lowers it."""
    x = np.array([0.0, 1.0, 2.0, 9.0])
    known = np.sum((x - 3.0) ** 3) / 6.0 / np.sum((x - 3.0) ** 2) ** 1.5
    assert intervals._acceleration([4], lambda index: mean(x[index])) == pytest.approx(known, rel=1e-12)


def test_the_acceleration_of_two_samples_by_hand():
    """For x̄ − ȳ the influences are (xᵢ − x̄)/n and −(yⱼ − ȳ)/m, here with n = 2 and m = 8."""
    x, y = np.array([0.0, 2.0]), np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0])
    u = np.array([-1 / 2, 1 / 2, *[1 / 8] * 7, -7 / 8])
    found = intervals._acceleration([2, 8], lambda i, j: mean(x[i]) - mean(y[j]))
    assert found == pytest.approx(np.sum(u**3) / 6.0 / np.sum(u**2) ** 1.5, rel=1e-12)


def test_the_seed_decides():
    one, again = (bootstrap(SKEWED, std, seed=3) for _ in range(2))
    assert one == again == bootstrap(SKEWED, std, seed=np.random.SeedSequence(3))
    assert one == bootstrap(SKEWED, std, seed=np.random.default_rng(3))
    assert one != bootstrap(SKEWED, std, seed=4)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_chunks_do_not_change_one_sample(monkeypatch, method):
    whole = bootstrap(SKEWED, quantile, seed=0, resamples=777, method=method)
    monkeypatch.setattr(intervals, "CHUNK", 500)
    assert bootstrap(SKEWED, quantile, seed=0, resamples=777, method=method) == whole


def test_memory_is_bounded():
    sizes = []

    def looked_at(x):
        sizes.append(x.size)
        return mean(x)

    bootstrap(np.arange(500.0), looked_at, seed=0, resamples=3000, method="bca")
    assert max(sizes) <= intervals.CHUNK
    assert sum(sizes) == 500 + 3000 * 500 + 500 * 499


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_samples_without_spread(method):
    assert bootstrap([2.0, 2.0, 2.0], mean, seed=0, resamples=50, method=method) == Interval(2.0, 2.0, 2.0)
    assert bootstrap([2.0], mean, seed=0, resamples=50, method=method) == Interval(2.0, 2.0, 2.0)


def test_statistics_that_are_infinite_or_unknown_for_some_resamples():
    """One success in three: all successes in 1/27 of the resamples, none in 8/27."""
    with np.errstate(divide="ignore"):
        found = bootstrap([0.0, 0.0, 1.0], lambda x: 1.0 / mean(x), seed=0)
    assert (found.low, found.high) == (1.0, np.inf)
    for method in ("percentile", "bca"):
        with np.errstate(invalid="ignore"):
            found = bootstrap([0.0, 0.0, 1.0], lambda x: mean(x) / mean(x), seed=0, method=method)
        assert found.estimate == 1.0
        assert np.isnan(ends(found)).all()


def test_an_estimate_beyond_all_resamples_still_has_an_interval():
    """The statistic is 1 for the sample itself, whose observations all differ, and less for a resample with repetitions."""
    found = bootstrap(np.arange(30.0), lambda x: (np.diff(np.sort(x)) > 0).mean(axis=-1), seed=0, method="bca")
    assert found.estimate == 1.0
    assert 0.0 < found.low <= found.high < 1.0


def test_mistakes_of_the_bootstrap_are_named():
    with pytest.raises(UserError, match="did you mean 'percentile'"):
        bootstrap(SKEWED, mean, seed=0, method="percentil")
    with pytest.raises(UserError, match="at least one resample"):
        bootstrap(SKEWED, mean, seed=0, resamples=0)
    with pytest.raises(UserError, match="got 0 samples"):
        bootstrap_many([], mean, seed=0)
    with pytest.raises(UserError, match="list of numbers"):
        bootstrap_many([SKEWED, []], lambda x, y: mean(x), seed=0)
