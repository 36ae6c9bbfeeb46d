"""Metrics of a sample of returns, one function each.

Each function takes one return per episode, or an array of such samples [..., n], and reduces the last axis. Returns are
gains: the worst are the smallest, and quantiles and tails are given as returns, not as losses. A NaN in the sample makes
every metric NaN, and so does a sample too small for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from vpac import checks
from vpac.errors import UserError
from vpac.typing import FloatArray

RANK_ROUNDING = 1e-9
"""Largest excess of a share of the sample over a whole number of observations that still counts as that number."""


def mean(sample: ArrayLike) -> FloatArray:
    """x̄ = Σ xᵢ / n."""
    return np.asarray(_checked(sample).mean(axis=-1))[()]


def variance(sample: ArrayLike) -> FloatArray:
    """s² = Σ (xᵢ − x̄)² / (n − 1), unbiased; exactly 0 where all returns are the same."""
    return _over_all_but_one(np.square(_deviations(sample)))


def std(sample: ArrayLike) -> FloatArray:
    """s, the square root of the unbiased variance."""
    return np.sqrt(variance(sample))


def semivariance(sample: ArrayLike) -> FloatArray:
    """Σ min(xᵢ − x̄, 0)² / (n − 1): the part of the variance that lies below the mean."""
    return _over_all_but_one(np.square(np.minimum(_deviations(sample), 0.0)))


def semivariance_below(sample: ArrayLike, target: float = 0.0) -> FloatArray:
    """Σ min(xᵢ − target, 0)² / n: the mean squared shortfall from a target return."""
    return mean(np.square(np.minimum(_checked(sample) - target, 0.0)))


def sharpe(sample: ArrayLike) -> FloatArray:
    """x̄ / s, the mean per unit of risk. If s = 0 it is ∞ or −∞ by the mean's sign, and NaN for a mean of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(mean(sample), std(sample))


def quantile(sample: ArrayLike, share: float = 0.5) -> FloatArray:
    """The smallest x with F(x) ≥ share, F the sample's distribution function, so an observation; by default the median."""
    return _quantile(_checked(sample), checks.share(share, "share"))


def value_at_risk(sample: ArrayLike, alpha: float = 0.05) -> FloatArray:
    """The largest of the worst α share of the returns: the same as `quantile` of α."""
    return _quantile(_checked(sample), checks.share(alpha, "alpha"))


def cvar(sample: ArrayLike, alpha: float = 0.05) -> FloatArray:
    """The mean of the worst α share; the observation at its edge has fractional weight.

    With x₍₁₎ ≤ x₍₂₎ ≤ … this is Σ clip(αn − i + 1, 0, 1) x₍ᵢ₎ / (αn), the same as max_v v − Σ max(v − xᵢ, 0) / (αn).
    """
    x = _checked(sample)
    if not checks.share(alpha, "alpha"):
        raise UserError("alpha must be above 0")
    observations = alpha * x.shape[-1]
    return _weighted_in_order(x, np.clip(observations - np.arange(x.shape[-1]), 0.0, 1.0) / observations)


def gini_deviation(sample: ArrayLike) -> FloatArray:
    """½ · mean of |xᵢ − xⱼ| over pairs i ≠ j, unbiased; in order of size Σ (2i − n − 1) x₍ᵢ₎ / (n (n − 1))."""
    x = _checked(sample)
    n = x.shape[-1]
    if n < 2:
        return _unknown(x)
    return _weighted_in_order(x - x[..., :1], (2.0 * np.arange(1, n + 1) - n - 1.0) / (n * (n - 1.0)))


def interquartile_mean(sample: ArrayLike) -> FloatArray:
    """The mean without ⌊n/4⌋ observations at each end (rliable's IQM)."""
    x = _checked(sample)
    n = x.shape[-1]
    kept = (np.arange(n) >= n // 4) & (np.arange(n) < n - n // 4)
    return _weighted_in_order(x, kept / np.count_nonzero(kept))


METRICS: dict[str, Callable[..., FloatArray]] = {
    function.__name__: function
    for function in (
        mean, variance, std, semivariance, semivariance_below, sharpe,
        quantile, value_at_risk, cvar, gini_deviation, interquartile_mean,
    )
}  # fmt: skip
"""Every metric by its name; each can be called with a sample alone."""


def _checked(sample: ArrayLike) -> FloatArray:
    x = np.asarray(sample, np.float64)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise UserError("expected a sample of at least one return")
    return x


def _quantile(x: FloatArray, share: float) -> FloatArray:
    rank = int(np.ceil(share * x.shape[-1] - RANK_ROUNDING))
    return _weighted_in_order(x, np.arange(1, x.shape[-1] + 1) == max(rank, 1))


def _deviations(sample: ArrayLike) -> FloatArray:
    """xᵢ − x̄; the first return is subtracted before the mean, so that equal returns deviate by exactly 0."""
    x = _checked(sample)
    from_first = x - x[..., :1]
    return np.asarray(from_first - from_first.mean(axis=-1, keepdims=True), np.float64)


def _over_all_but_one(terms: FloatArray) -> FloatArray:
    """Σ terms / (n − 1)."""
    n = terms.shape[-1]
    return np.asarray(terms.sum(axis=-1) / (n - 1))[()] if n > 1 else _unknown(terms)


def _weighted_in_order(x: FloatArray, weights: ArrayLike) -> FloatArray:
    """Σ weightsᵢ · x₍ᵢ₎, x in order of size."""
    return np.asarray(np.sort(x, axis=-1) @ np.asarray(weights, np.float64))[()]


def _unknown(x: FloatArray) -> FloatArray:
    return np.full(x.shape[:-1], np.nan)[()]
