"""Confidence intervals: of a mean, of a variance, and by the bootstrap of anything else.

Observations are independent: one number a run, or one return an episode of a fixed policy. Statistics that the bootstrap is
given look along the last axis of arrays [..., n], as all of `vpac.risk.METRICS` do, because thousands of resamples are
computed at once.

Terms that are mostly zero are a weighted count of events. Student's interval of their mean is too short above when few
events were seen, and reaches below zero. Fay and Feuer (1997) treat the sum as gamma distributed, with the mean y and the
variance v of the estimate, and for the upper end add one more event w, as large as the largest that was seen or more:

    low = q(α/2) of Γ(mean y, variance v)     high = q(1 − α/2) of Γ(mean y + w, variance v + w²)

which for equal terms is the exact interval of a count. Without any event the upper end is −log(α/2) · w ("rule of three"),
where the caller has to say how large an event may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from vpac.errors import UserError, one_of
from vpac.risk.metrics import mean, variance
from vpac.typing import FloatArray, IntArray

Method = Literal["percentile", "bca"]
METHODS = ("percentile", "bca")
Seed = int | np.random.SeedSequence | np.random.Generator
CHUNK = 200_000
"""How many numbers are resampled at once: few enough for a processor's cache."""


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its confidence interval; ends that are not known are NaN."""

    estimate: float
    """The estimate itself."""
    low: float
    """The lower end."""
    high: float
    """The upper end."""


def mean_interval(sample: ArrayLike, *, level: float = 0.95) -> Interval:
    """x̄ ± t · s/√n with n − 1 degrees of freedom (Student); of a single number the ends are unknown."""
    x = one_sample(sample)
    centre = float(mean(x))
    half = student_quantile(level, len(x) - 1) * float(np.sqrt(variance(x) / len(x)))
    return Interval(centre, centre - half, centre + half)


def not_negative(interval: Interval) -> Interval:
    """The same, cut at 0: for what cannot be less. The truth is not there, so the interval covers it as often as before."""
    return Interval(interval.estimate, _cut(interval.low), _cut(interval.high))


def _cut(end: float) -> float:
    return 0.0 if end < 0.0 else end  # unknown ends stay unknown


def variance_interval(sample: ArrayLike, *, level: float = 0.95) -> Interval:
    """Bonett's interval for a variance, which asks the sample for its kurtosis instead of assuming a normal one.

    c s² · exp(± c z · e) with c = n/(n − z), the normal quantile z and the standard error e of log s²
    (`log_variance_error`); of fewer than five numbers the ends are unknown. Measured coverage of a nominal 95 %, for 50,
    200 and 1000 observations: normal 94, 95, 95 %; exponential 89, 93, 94 %; Student's t with 5 degrees of freedom
    91, 92, 93 %; a lottery that pays once in ten draws 97, 96, 96 %. A tail that has not shown itself in the sample cannot
    be in the interval; in particular a sample without spread has the interval 0 … 0.

    Bonett (2006), Approximate confidence interval for standard deviation of nonnormal distributions.
    """
    x = one_sample(sample)
    estimate, z = float(variance(x)), normal_quantile(level)
    if estimate == 0.0:
        return Interval(0.0, 0.0, 0.0)
    if len(x) < 5 or len(x) <= z:
        return Interval(estimate, np.nan, np.nan)
    correction = len(x) / (len(x) - z)
    factor = float(np.exp(correction * z * log_variance_error(x)))
    return Interval(estimate, correction * estimate / factor, correction * estimate * factor)


def log_variance_error(x: FloatArray) -> float:
    """e = √((κ − (n − 3)/n) / (n − 1)), the standard error of log s², with Bonett's estimate of the kurtosis.

    κ = n Σ (xᵢ − m)⁴ / (Σ (xᵢ − x̄)²)², where m is the mean without the share 1/(2√(n − 4)) at each end: about an m that
    the tail does not drag along, a skewed sample shows more of its kurtosis. Needs five numbers that are not all the same.
    """
    n = len(x)
    cut = int(n / (2.0 * np.sqrt(n - 4.0)))
    middle = np.sort(x)[cut : n - cut].mean()
    kurtosis = n * np.sum((x - middle) ** 4) / ((n - 1.0) * variance(x)) ** 2
    return float(np.sqrt((kurtosis - (n - 3.0) / n) / (n - 1.0)))


def bootstrap(
    sample: ArrayLike,
    statistic: Callable[[FloatArray], FloatArray],
    *,
    seed: Seed,
    level: float = 0.95,
    resamples: int = 10_000,
    method: Method = "percentile",
) -> Interval:
    """A bootstrap interval for `statistic` of one sample.

    "percentile" takes the quantiles of the statistic over resamples; "bca" (Efron 1987) moves them by the bias z₀ and the
    acceleration a, to Φ(z₀ + (z₀ + z)/(1 − a(z₀ + z))) instead of Φ(z), which is better for skewed statistics and costs n²
    numbers more, because a leaves out each observation once. A statistic that is NaN for a resample has NaN ends. Of the mean
    of 50 exponential numbers the nominal 95 % covered 92 % and 93 % (measured).
    """
    return bootstrap_many([sample], statistic, seed=seed, level=level, resamples=resamples, method=method)


def bootstrap_many(
    samples: Sequence[ArrayLike],
    statistic: Callable[..., FloatArray],
    *,
    seed: Seed,
    level: float = 0.95,
    resamples: int = 10_000,
    method: Method = "percentile",
) -> Interval:
    """A bootstrap interval for a function of several independent samples, each of which is resampled on its own.

    For example the ratio of the mean variances of two algorithms, from one variance a run:
    `bootstrap_many([ours, theirs], lambda a, b: mean(a) / mean(b), seed=0)`.
    """
    arrays = [one_sample(sample) for sample in samples]

    def of_indices(*indices: IntArray) -> FloatArray:
        return statistic(*(np.take(x, index) for x, index in zip(arrays, indices, strict=True)))

    sizes = [len(x) for x in arrays]
    return bootstrap_by_index(sizes, of_indices, seed=seed, level=level, resamples=resamples, method=method)


def bootstrap_by_index(
    sizes: Sequence[int],
    statistic: Callable[..., FloatArray],
    *,
    seed: Seed,
    level: float,
    resamples: int,
    method: Method,
) -> Interval:
    """A bootstrap interval for a function of which observations are in the sample: of indices [..., n] for each size n."""
    one_of(method, METHODS, "bootstrap method")
    if not sizes or resamples < 1:
        raise UserError(f"expected a sample and at least one resample, got {len(sizes)} samples, {resamples} resamples")
    estimate = float(statistic(*(np.arange(n) for n in sizes)))
    z = normal_quantile(level) * np.array([-1.0, 1.0])
    values = _resampled(sizes, statistic, resamples, np.random.default_rng(seed))
    if method == "bca":
        bias = _bias(values, estimate)
        z = bias + (bias + z) / (1.0 - _acceleration(sizes, statistic) * (bias + z))
    from scipy.special import ndtr

    low, high = np.quantile(values, ndtr(z), method="inverted_cdf")
    return Interval(estimate, float(low), float(high))


def one_sample(sample: ArrayLike) -> FloatArray:
    """The sample as an array of one dimension that is not empty."""
    x = np.asarray(sample, np.float64)
    if x.ndim != 1 or len(x) == 0:
        raise UserError(f"expected a list of numbers, got an array of shape {x.shape}")
    return x


def normal_quantile(level: float) -> float:
    """z for which a standard normal number lies in −z … z with probability `level`."""
    from scipy.special import ndtri

    return float(ndtri(_upper(level)))


def student_quantile(level: float, freedom: float) -> float:
    """The same for Student's t; NaN without any degrees of freedom."""
    from scipy.special import stdtrit

    upper = _upper(level)
    return float(stdtrit(freedom, upper)) if freedom > 0 else np.nan


def _upper(level: float) -> float:
    """The probability of lying below the upper end of an interval of this level."""
    if not 0.0 < level < 1.0:
        raise UserError(f"level must be between 0 and 1, got {level!r}")
    return 0.5 + level / 2.0


def _resampled(
    sizes: Sequence[int], statistic: Callable[..., FloatArray], resamples: int, rng: np.random.Generator
) -> FloatArray:
    """The statistic of each resample; drawn in chunks, so that memory does not grow with their number."""
    chunk = max(1, CHUNK // sum(sizes))
    rows = [min(chunk, resamples - done) for done in range(0, resamples, chunk)]
    return np.concatenate([statistic(*(rng.integers(0, n, (count, n)) for n in sizes)) for count in rows])


def _bias(values: FloatArray, estimate: float) -> float:
    """z₀ = Φ⁻¹(share of the resamples below the estimate), those equal to it counting half."""
    from scipy.special import ndtri

    share = np.mean(values < estimate) + np.mean(values == estimate) / 2.0
    return float(ndtri(np.clip(share, 0.5 / len(values), 1.0 - 0.5 / len(values))))


def _acceleration(sizes: Sequence[int], statistic: Callable[..., FloatArray]) -> float:
    """a = Σ u³ / (6 (Σ u²)^{3/2}) over the observations of all samples, u = (1 − 1/n)(mean of the θ₍₋ⱼ₎ − θ₍₋ᵢ₎)."""
    influences = []
    for number, n in enumerate(sizes):
        without = _leaving_one_out(sizes, statistic, number)
        influences.append((1.0 - 1.0 / n) * (without.mean() - without))
    u = np.concatenate(influences)
    squares = np.sum(u**2)
    return float(np.sum(u**3) / (6.0 * squares**1.5)) if squares > 0.0 else 0.0


def _leaving_one_out(sizes: Sequence[int], statistic: Callable[..., FloatArray], number: int) -> FloatArray:
    """θ₍₋ᵢ₎: the statistic without observation i of the sample with this number, for each i; the other samples are whole."""
    n, chunk = sizes[number], max(1, CHUNK // sum(sizes))
    if n < 2:
        return np.zeros(1)  # a single observation cannot be left out
    values = []
    for start in range(0, n, chunk):
        left_out = np.arange(start, min(start + chunk, n))
        indices = [np.broadcast_to(np.arange(size), (len(left_out), size)) for size in sizes]
        indices[number] = np.arange(n - 1) + (np.arange(n - 1) >= left_out[:, None])
        values.append(statistic(*indices))
    return np.concatenate(values)


def rare_mean_interval(sample: ArrayLike, *, event: float = 0.0, level: float = 0.95) -> Interval:
    """Of a mean that cannot be negative; at each end the wider of the gamma interval and Student's.

    Terms may be negative by chance; so may the estimate.

    Args:
        sample: the terms.
        event: how large a term may be of which the sample holds none; in the mean it counts as one of n.
        level: the confidence.
    """
    x = one_sample(sample)
    n, plain = len(x), not_negative(mean_interval(x, level=level))
    largest = max(float(np.abs(x).max()), event) / n
    low, high = gamma_ends(max(plain.estimate, 0.0), float(x.var()) / n, largest, level=level)
    return Interval(plain.estimate, min(plain.low, low), max(plain.high, high))


def gamma_ends(y: float, v: float, w: float, *, level: float) -> tuple[float, float]:
    """The ends above, from an estimate that is not negative, its variance, and the weight in it of an event."""
    from scipy.special import gammaincinv

    tail = (1.0 - level) / 2.0
    low = v / y * float(gammaincinv(y**2 / v, tail)) if y > 0.0 and v > 0.0 else y
    more, wide = y + w, v + w**2
    return low, wide / more * float(gammaincinv(more**2 / wide, 1.0 - tail)) if w > 0.0 else y
