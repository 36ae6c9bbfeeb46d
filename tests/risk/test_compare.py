from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vpac.errors import UserError
from vpac.risk import (
    compare,
    cvar,
    difference_of_means,
    first_order_dominates,
    probability_of_improvement,
    ratio_of_means,
    ratio_of_variances,
    second_order_dominates,
)
from vpac.risk.compare import share_of_wins, share_of_wins_interval

X = np.array([1.6, 2.3, -2.1, 0.4, 1.5, 1.9, 1.2, 2.0, 0.8, 1.1, 0.7, -0.6])
Y = np.array([-0.8, 0.4, -0.6, 1.3, 1.3, 1.8, 0.0, 1.4, -0.9])
few_whole_numbers = st.lists(st.integers(-3, 3), min_size=1, max_size=6)


def ends(interval):
    return interval.low, interval.high


def covered(interval_of, draw_x, draw_y, truth, trials=1000):
    found = [interval_of(x, y) for x, y in zip(draw_x(trials), draw_y(trials), strict=True)]
    return np.mean([i.low <= truth <= i.high for i in found])


def binomial_error(share, trials=1000):
    return np.sqrt(share * (1 - share) / trials)


@given(few_whole_numbers, few_whole_numbers)
def test_the_share_of_wins_is_that_of_all_pairs(x, y):
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y]
    assert share_of_wins(x, y) == sum(pairs) / len(pairs)
    assert share_of_wins(x, y) == probability_of_improvement(x, y, seed=0, resamples=1).estimate


def test_the_share_of_wins_of_samples_whose_pairs_do_not_fit_into_memory():
    x = np.random.default_rng(0).normal(size=200_000)
    assert share_of_wins(x, x) == 0.5
    assert share_of_wins(x + 100.0, x) == 1.0
    assert np.isnan(share_of_wins([np.nan, 1.0], x))


def test_probability_of_improvement_by_hand():
    """Of the six pairs of 1, 3, 3 and 1, 2: 1 equals 1 and loses to 2, each 3 wins twice."""
    assert probability_of_improvement([1, 3, 3], [1, 2], seed=0).estimate == 4.5 / 6


def test_probability_of_improvement_against_scipy_and_rliable():
    """rliable 1.2.0 needs arch and seaborn, so its answer is kept here.

    It is that of rliable.metrics.probability_of_improvement(X[:, None], Y[:, None]).
    """
    found = probability_of_improvement(X, Y, seed=0).estimate
    assert found == pytest.approx(0.6481481481481481, rel=1e-14)
    assert found == pytest.approx(stats.mannwhitneyu(X, Y).statistic / (len(X) * len(Y)), rel=1e-14)
    assert found + probability_of_improvement(Y, X, seed=0).estimate == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_probability_of_improvement_has_scipys_bootstrap_interval(method):
    """Where a density is about half its normal value an end's error is 0.02 standard errors; 6 of that are allowed."""

    def statistic(x, y, axis):
        pairs = x.shape[axis] * y.shape[axis]
        return stats.mannwhitneyu(x, y, axis=axis, method="asymptotic").statistic / pairs

    known = stats.bootstrap((X, Y), statistic, method=method, n_resamples=20_000, rng=1, batch=5000)
    found = probability_of_improvement(X, Y, method=method, resamples=20_000, seed=2)
    assert ends(found) == pytest.approx(tuple(known.confidence_interval), abs=0.12 * known.standard_error)


def test_probability_of_improvement_of_a_part_of_the_samples(monkeypatch):
    """What leaving one out asks for: 1, 3 against 2 wins one of two pairs; 3, 3 against 2, 2, 3 four and two halves of six."""
    monkeypatch.setattr(compare, "bootstrap_by_index", lambda sizes, statistic, **settings: statistic)
    share_of_wins = probability_of_improvement([1, 3], [2, 3], seed=0)
    assert share_of_wins(np.array([0, 1]), np.array([0])) == 0.5
    assert share_of_wins(np.array([[1, 1]]), np.array([[0, 0, 1]])) == [5 / 6]


def test_probability_of_improvement_when_it_is_certain():
    found = probability_of_improvement([5, 6, 7], [1, 2], seed=0, method="bca")
    assert (found.estimate, found.low, found.high) == (1.0, 1.0, 1.0)


def test_probability_of_improvement_covers():
    """X ~ N(1, 1), Y ~ N(0, 1): Φ(1/√2). Of 5000 other trials 94.0 % covered."""
    rng = np.random.default_rng(0)
    share = covered(
        lambda x, y: probability_of_improvement(x, y, seed=0, resamples=400),
        lambda trials: rng.normal(1.0, size=(trials, 20)),
        lambda trials: rng.normal(size=(trials, 30)),
        stats.norm.cdf(1 / np.sqrt(2)),
    )
    assert share == pytest.approx(0.94, abs=3.5 * binomial_error(0.94))


@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("shift", [0.0, 2.9, 4.0])
def test_wins_are_covered_at_the_edges_too(n, shift):
    """N(shift, 1) against N(0, 1), shares from ½ to 0.998: at least the nominal 95 % of 400 trials, but for 3 standard errors.

    The bootstrap covers 80 % of 0.98 at n = 20: where every x beats every y it knows no other share than 1."""
    rng, truth = np.random.default_rng(1), stats.norm.cdf(shift / np.sqrt(2))
    share = covered(
        share_of_wins_interval,
        lambda trials: rng.normal(shift, size=(trials, n)),
        lambda trials: rng.normal(size=(trials, n)),
        truth, trials=400,
    )  # fmt: skip
    assert share >= 0.95 - 3.0 * binomial_error(0.95, 400)


def test_wins_by_hand():
    """Against a constant a win is a toss of a coin: Wilson's interval of 9 of 10. Certain wins leave 1 … 1/(1 + z²/n)."""
    found = share_of_wins_interval([1.0] * 9 + [-1.0], [0.0] * 10)
    known = stats.binomtest(9, 10).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx(tuple(known), rel=1e-9)
    sure = share_of_wins_interval(np.arange(5.0, 25.0), np.arange(4.0))
    assert (sure.estimate, sure.high) == (1.0, 1.0)
    assert sure.low == pytest.approx(1.0 / (1.0 + 1.959964**2 / 4.0), rel=1e-6)
    assert share_of_wins_interval(X, Y).estimate == pytest.approx(share_of_wins(X, Y))
    assert np.isnan(share_of_wins_interval([1.0, np.nan], [2.0]).low)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_difference_of_means_against_scipy(level):
    known = stats.ttest_ind(X, Y, equal_var=False)
    found = difference_of_means(X, Y, level=level)
    assert found.estimate == pytest.approx(X.mean() - Y.mean())
    assert ends(found) == pytest.approx(tuple(known.confidence_interval(level)), rel=1e-9)


def test_difference_of_means_without_spread_and_of_single_numbers():
    assert ends(difference_of_means([2.0, 2.0], [0.5, 0.5, 0.5])) == (1.5, 1.5)
    assert np.isnan(ends(difference_of_means([2.0, 3.0], [0.5]))).all()
    varying = difference_of_means([1.0, 3.0], [0.5, 0.5])
    assert ends(varying) == pytest.approx((1.5 - 12.7062, 1.5 + 12.7062), abs=1e-3)


def test_ratio_of_means_by_hand():
    """x̄ = 6 with e = 1/3 and ȳ = 2 without error: 3 ± t √(1/3)/2, two degrees of freedom. And a ratio r is in the interval
    exactly if Welch's statistic of x and r·y, with the degrees of freedom at x̄/ȳ, is below t."""
    t = stats.t.ppf(0.975, 2)
    assert ends(ratio_of_means([5.0, 6.0, 7.0], [2.0, 2.0])) == pytest.approx((3 - t / 12**0.5, 3 + t / 12**0.5))
    x, y = X + 4.0, Y + 5.0
    found, errors = ratio_of_means(x, y), np.array([np.var(x, ddof=1) / len(x), np.var(y, ddof=1) / len(y)])
    assert found.estimate == x.mean() / y.mean()
    parts = errors * [1.0, found.estimate**2]
    freedom = parts.sum() ** 2 / (parts[0] ** 2 / (len(x) - 1) + parts[1] ** 2 / (len(y) - 1))
    for r in ends(found):
        statistic = abs(x.mean() - r * y.mean()) / np.sqrt(errors @ [1.0, r**2])
        assert statistic == pytest.approx(stats.t.ppf(0.975, freedom))


def test_ratio_of_means_where_it_is_not_bounded_or_not_known():
    assert ends(ratio_of_means(X, Y - Y.mean() + 0.01)) == (-np.inf, np.inf)
    assert ends(ratio_of_means([2.0, 2.0], [4.0, 4.0])) == (0.5, 0.5)
    assert np.isnan(ends(ratio_of_means([1.0], Y))).all()
    assert np.isnan(ends(ratio_of_means(X, [0.0, 0.0]))).all()


@pytest.mark.parametrize("name", ["normal", "exponential", "lognormal"])
@pytest.mark.parametrize("runs", [5, 20])
def test_two_arms_that_do_the_same_are_rarely_told_apart(name, runs):
    """By few runs, too, and by chance no more often than in 5 % of trials and 3.5 standard errors."""
    rng = np.random.default_rng(3)
    draw = {
        "normal": lambda size: rng.normal(10.0, 2.0, size), "exponential": lambda size: rng.exponential(1.0, size),
        "lognormal": lambda size: rng.lognormal(0.0, 0.7, size),
    }[name]  # fmt: skip
    share = covered(ratio_of_means, lambda trials: draw((trials, runs)), lambda trials: draw((trials, runs)), 1.0)
    assert share >= 0.95 - 3.5 * binomial_error(0.95)


def test_ratio_of_variances_by_hand():
    """0, 0, 0, 0, 10 has e² = (5 · 10⁴/80² − 2/5)/4 (tests/risk/test_intervals.py); so has it times 2, in another order."""
    x = np.array([0.0, 0.0, 0.0, 0.0, 10.0])
    factor = np.exp(1.959963984540054 * np.sqrt(2 * (5e4 / 6400 - 0.4) / 4))
    found = ratio_of_variances(2 * x[::-1], x)
    assert (found.estimate, found.low, found.high) == pytest.approx((4.0, 4 / factor, 4 * factor), rel=1e-12)


def test_ratio_of_variances_of_large_normal_samples_is_the_f_interval():
    """Both come to s₁²/s₂² (1 ± z √(2/n + 2/m)); the difference is of the order of 1/n and of the noise in the kurtosis."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(0, 3, 20_000), rng.normal(size=30_000)
    found = ratio_of_variances(x, y)
    known = found.estimate / stats.f.ppf([0.975, 0.025], len(x) - 1, len(y) - 1)
    assert ends(found) == pytest.approx(tuple(known), rel=0.002)


@pytest.mark.parametrize(
    ("name", "truth", "measured"), [("normal", 4.0, 0.943), ("exponential", 4.0, 0.931), ("lottery", 4.0, 0.976)]
)
def test_ratio_of_variances_covers(name, truth, measured):
    """200 and 100 observations; the shares of 20 000 other trials, and 3.5 standard errors."""
    rng = np.random.default_rng(2)
    draw = {
        "normal": rng.normal,
        "exponential": rng.exponential,
        "lottery": lambda scale, size: scale * (rng.random(size) < 0.1),
    }[name]
    share = covered(
        ratio_of_variances,
        lambda trials: draw(scale=2.0, size=(trials, 200)),
        lambda trials: draw(scale=1.0, size=(trials, 100)),
        truth,
    )
    assert share == pytest.approx(measured, abs=3.5 * binomial_error(measured))


def test_ratio_of_variances_that_is_unknown():
    assert np.isnan(ends(ratio_of_variances(X[:4], Y))).all()
    assert ratio_of_variances(X[:4], Y).estimate == pytest.approx(np.var(X[:4], ddof=1) / np.var(Y, ddof=1))
    assert ratio_of_variances(X, np.ones(6)).estimate == np.inf
    assert ratio_of_variances(np.ones(6), X).estimate == 0.0
    assert np.isnan(ratio_of_variances(np.ones(6), np.ones(6)).estimate)
    assert np.isnan(ends(ratio_of_variances(np.ones(6), X))).all()


@pytest.mark.parametrize(
    ("x", "y", "first", "second"),
    [
        ([1, 3], [1, 2], True, True),
        ([1, 2], [1, 3], False, False),
        ([1, 2], [2, 1], False, False),  # the same distribution
        ([1, 2], [1, 1, 2, 2], False, False),
        ([2, 2], [1, 3], False, True),  # the same mean, less spread
        ([1, 3], [2, 2], False, False),
        ([2], [0, 3], False, True),  # more mean, less spread, but sometimes 3 was better
        ([0, 9], [1, 1], False, False),  # more mean, but sometimes worse
        ([1, 4], [0, 1, 3], True, True),
    ],
)
def test_dominance_by_hand(x, y, first, second):
    assert first_order_dominates(x, y) is first
    assert second_order_dominates(x, y) is second


def test_equal_means_are_equal_up_to_rounding():
    """The means of both are 0.3 on paper; in floating point the areas between the functions end a little below 0."""
    x, y = [0.3, 0.3, 0.3], [0.2, 0.3, 0.4]
    assert second_order_dominates(x, y)
    assert second_order_dominates(1e6 + np.array(x), 1e6 + np.array(y))


@given(few_whole_numbers, few_whole_numbers)
def test_first_order_dominance_means_no_smaller_quantile(x, y):
    """Repeat both to a common length and put them in order: no number may be smaller than its neighbour."""
    a, b = np.sort(np.repeat(x, len(y))), np.sort(np.repeat(y, len(x)))
    assert first_order_dominates(x, y) == bool(np.all(a >= b) and np.any(a > b))


@given(few_whole_numbers, few_whole_numbers)
def test_second_order_dominance_means_no_smaller_cvar(x, y):
    """α · CVaR(α) is the integral of the quantile function, straight between multiples of 1/(nm)."""
    n = len(x) * len(y)
    gap = np.array([cvar(x, k / n) - cvar(y, k / n) for k in range(1, n + 1)])
    assert second_order_dominates(x, y) == bool(np.all(gap > -1e-9) and np.any(gap > 1e-9))


@pytest.mark.parametrize("function", [first_order_dominates, second_order_dominates])
def test_nan_cannot_be_put_in_order(function):
    with pytest.raises(UserError, match="NaN"):
        function([1.0, np.nan], [0.0])
