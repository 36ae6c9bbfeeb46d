"""Intervals of metrics for heavy tails and skewed samples, without resampling.

Near the truth a smooth metric is a mean: θ̂ − θ ≈ Σ hᵢ / n, where hᵢ, the influence of observation i, says how the metric
moves if that observation gets more weight. So the metric has the interval of a mean, for which Student's is too short on
the side of a long tail; Hall's transformation bends it by the skewness of the hᵢ:

    W = √n (θ̂ − θ) / s_h,   g(W) = W + aW²/3 + a²W³/27 + a/6,   a = skewness of h / √n

g(W) is nearly normal, and g⁻¹(x) = 3 (∛(1 + a(x − a/6)) − 1) / a is known. Quantiles are not smooth; theirs are exact, by
counting how many observations fall below them.

Hall (1992), On the removal of skewness by transformation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vpac.errors import UserError
from vpac.risk import metrics
from vpac.risk.intervals import Interval, gamma_ends, normal_quantile, not_negative, one_sample, student_quantile
from vpac.typing import FloatArray

FURTHER = 2.5
"""How many times as many episodes one looks ahead for the largest; with 2 the Sharpe ratio of lognormal losses was at 93 %."""
STRAIGHT = 1e-6
"""Below this a, Hall's transformation is a straight line but for rounding."""


def skewed_interval(estimate: float, influence: FloatArray, *, level: float, more: float = 0.0) -> Interval:
    """Hall's interval of a metric from the influence of each observation.

    Args:
        estimate: the metric of the sample.
        influence: hᵢ; their mean is taken off.
        level: the confidence.
        more: what the error's variance has beside s_h²/n, where influences alone would be too sure.
    """
    n = len(influence)
    if n < 5:
        return Interval(estimate, np.nan, np.nan)
    h = influence - influence.mean()
    spread = float(np.sqrt(h @ h / (n - 1.0)))
    error = float(np.sqrt(spread**2 / n + more))
    if not np.isfinite(error):
        return Interval(estimate, np.nan, np.nan)
    a = float(np.mean((h / spread) ** 3)) / np.sqrt(n) if spread > 0.0 else 0.0
    t = student_quantile(level, n - 1)
    return Interval(estimate, estimate - error * _unbent(t, a), estimate - error * _unbent(-t, a))


def _unbent(x: float, a: float) -> float:
    """g⁻¹(x)."""
    return float(3.0 * (np.cbrt(1.0 + a * (x - a / 6.0)) - 1.0) / a) if abs(a) > STRAIGHT else x


def skewed_mean_interval(sample: ArrayLike, *, level: float = 0.95) -> Interval:
    """Of the mean; h = x − x̄."""
    x = one_sample(sample)
    return skewed_interval(float(metrics.mean(x)), x - x[0], level=level)


def skewed_variance_interval(sample: ArrayLike, *, level: float = 0.95) -> Interval:
    """Of the variance, at each end the wider of two.

    Hall's with h = (x − x̄)² − s², and 2s⁴/(n(n − 1)) more, which is all there is for a fair coin; and that of rare events
    (`vpac.risk.intervals`), for which one more is counted, as large as the largest (x − x̄)² of some more episodes would be
    (`unseen_event`).
    """
    x = one_sample(sample)
    return not_negative(_wider(*_variance_intervals(x, level)))


def semivariance_interval(sample: ArrayLike, *, level: float = 0.95) -> Interval:
    """Of the semi-variance, likewise; h = min(d, 0)² − 2 d · mean of min(d, 0), d = x − x̄: x̄ is an estimate, too."""
    x = one_sample(sample)
    d = x - x.mean()
    below = np.minimum(d, 0.0)
    h = below**2 - 2.0 * below.mean() * d
    hall = skewed_interval(float(metrics.semivariance(x)), h, level=level)
    return not_negative(_wider(hall, _counted(hall, h, below**2, level)))


def sharpe_interval(sample: ArrayLike, *, level: float = 0.95) -> Interval:
    """Of mean over standard deviation, at each end the wider of two. Without spread there is none.

    Hall's with h = d/s − x̄ (d² − s²) / (2s³), d = x − x̄; and one that follows from the intervals of mean and variance: what
    the mean's end changes and what the variance's end changes are added up as errors are, √(a² + b² + 2rab), where r is the
    correlation of d and d² with the sign that it has here. The ratio bends where the spread is uncertain; Hall's
    transformation alone does not see that.
    """
    x = one_sample(sample)
    estimate, s = float(metrics.sharpe(x)), float(metrics.std(x))
    if not s > 0.0:
        return Interval(estimate, np.nan, np.nan)
    d = (x - x.mean()) / s
    hall = skewed_interval(estimate, d - 0.5 * estimate * d**2, level=level)
    mean, (one, other) = skewed_mean_interval(x, level=level), _variance_intervals(x, level)
    spread = _wider(one, other) if one.low > 0.0 else Interval(s**2, other.low, max(one.high, other.high))
    together = float(np.std(d) * np.std(d**2))
    r = -np.sign(estimate) * float(np.mean(d**3)) / together if together > 0.0 else 0.0
    larger, smaller = (abs(estimate * (1.0 - s / np.sqrt(end))) for end in (spread.high, spread.low))
    if estimate < 0.0:
        larger, smaller = smaller, larger
    down, up = ((mean.estimate - mean.low) / s, larger), ((mean.high - mean.estimate) / s, smaller)
    added = [float(np.sqrt(max(a**2 + b**2 + 2.0 * r * a * b, 0.0))) for a, b in (down, up)]
    return _wider(hall, Interval(estimate, estimate - added[0], estimate + added[1]))


def _variance_intervals(x: FloatArray, level: float) -> tuple[Interval, Interval]:
    variance, n = float(metrics.variance(x)), len(x)
    more = 2.0 * variance**2 / (n * (n - 1.0)) if n > 1 else 0.0
    squares = (x - x.mean()) ** 2
    hall = skewed_interval(variance, squares, level=level, more=more)
    return hall, _counted(hall, squares, squares, level)


def _counted(hall: Interval, h: FloatArray, terms: FloatArray, level: float) -> Interval:
    """The interval of rare events where Hall's is known; `terms` are what the metric is the mean of."""
    if np.isnan(hall.low) or hall.low == hall.high:
        return hall
    n, event = len(h), unseen_event(terms)
    return Interval(hall.estimate, *gamma_ends(hall.estimate, float(np.var(h)) / n, event / n, level=level))


def unseen_event(terms: FloatArray) -> float:
    """2.5^ξ times the largest term: about the largest of 2.5 n, if the tail goes on as the √n largest terms of n do.

    ξ is Hill's index of the tail, the mean of log(term / smallest of them): near 0 for a tail that ends, 2/3 for squares of
    Pareto losses of index 3, at most 1 here, because from there on no mean exists. With the largest term itself the variance of
    1000 lognormal losses was covered in 92 % of samples: the tail beyond what was seen carries a part of it.

    Hill (1975), A simple general approach to inference about the tail of a distribution.
    """
    tail = np.sort(terms)[::-1][: int(np.sqrt(len(terms))) + 1]
    if not tail[-1] > 0.0:
        return float(tail[0])
    return float(tail[0] * FURTHER ** min(float(np.mean(np.log(tail[:-1] / tail[-1]))), 1.0))


def _wider(one: Interval, other: Interval) -> Interval:
    return Interval(one.estimate, min(one.low, other.low), max(one.high, other.high))


def cvar_interval(sample: ArrayLike, alpha: float = 0.05, *, level: float = 0.95) -> Interval:
    """Of the mean of the worst α share; h = −max(v − x, 0)/α, v the α quantile.

    Of fewer than five observations in that share the ends are unknown.
    """
    x = one_sample(sample)
    estimate = float(metrics.cvar(x, alpha))
    if alpha * len(x) < 5.0:
        return Interval(estimate, np.nan, np.nan)
    edge = float(metrics.value_at_risk(x, alpha))
    return skewed_interval(estimate, -np.maximum(edge - x, 0.0) / alpha, level=level)


def gini_interval(sample: ArrayLike, *, level: float = 0.95) -> Interval:
    """Of Gini's deviation G; hᵢ = mean over j of |xᵢ − xⱼ|, and (s² − 2G²)/n² more, the part that comes from pairs."""
    x = one_sample(sample)
    n, order = len(x), np.argsort(x, kind="stable")
    estimate = float(metrics.gini_deviation(x))
    if n < 5:
        return Interval(estimate, np.nan, np.nan)
    sorted_ = x[order] - x[order[0]]
    up_to = np.cumsum(sorted_)
    distance = ((2.0 * np.arange(1, n + 1) - n) * sorted_ - 2.0 * up_to + up_to[-1]) / (n - 1.0)
    pairs = max(float(metrics.variance(x)) - 2.0 * estimate**2, 0.0) / n**2
    return not_negative(skewed_interval(estimate, distance, level=level, more=pairs))


def quantile_interval(sample: ArrayLike, share: float = 0.5, *, level: float = 0.95) -> Interval:
    """Of a quantile (or value at risk, which is one), exact for every distribution: how many returns lie below it is binomial.

    From x₍ₗ₎ to x₍ᵤ₎ with the largest l and the smallest u whose errors are at most (1 − level)/2 each. An end that would
    lie beyond the sample is unknown.

    Args:
        sample: the returns.
        share: how much lies below the quantile.
        level: the confidence.
    """
    from scipy.stats import binom

    x = np.sort(one_sample(sample))
    n, tail = len(x), (1.0 - level) / 2.0
    normal_quantile(level)  # refuses what is not a level
    estimate = float(metrics.quantile(x, share))
    if np.isnan(x[-1]):
        return Interval(estimate, np.nan, np.nan)
    below = binom.cdf(np.arange(n + 1), n, share)
    first = int(np.searchsorted(below, tail, side="right"))
    last = int(np.searchsorted(below, 1.0 - tail, side="left")) + 1
    return Interval(estimate, float(x[first - 1]) if first else np.nan, float(x[last - 1]) if last <= n else np.nan)


def unseen_share(n: int, *, level: float = 0.95) -> float:
    """1 − (1 − level)^(1/n): the share of returns beyond an end of the sample is at most this, with confidence `level`."""
    if n < 1:
        raise UserError("expected a sample of at least one return")
    normal_quantile(level)
    return float(-np.expm1(np.log1p(-level) / n))
