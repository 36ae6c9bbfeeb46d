"""Bounds that hold for every distribution: of a probability, of a whole distribution function, of a mean between 0 and 1.

All that is assumed is that the episodes are independent and alike. No tail is estimated, so none can be underestimated.

    P(G < c), one c that was named beforehand     Clopper and Pearson (1934): the number of episodes below c is binomial
    P(G < c), every c at once                     Dvoretzky, Kiefer, Wolfowitz; Massart (1990): |F̂ − F| ≤ √(log(2/α) / (2n))
    E[Z], 0 ≤ Z ≤ 1                               betting (Waudby-Smith and Ramdas 2024)

Betting: if E[Z] were m or more, the capital Π (1 + λᵢ (m − Zᵢ)) of a gambler who stakes λᵢ before seeing Zᵢ would be 1 or less
on average, and would reach 1/α with probability α at most (Ville 1939). So every m at which it gets there is refused; the
capital grows with m, so the rest is found by bisection.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vpac.checks import whole
from vpac.errors import UserError
from vpac.risk.intervals import Interval, normal_quantile, one_sample
from vpac.typing import FloatArray

BOLDEST = 0.75
"""The largest part of its capital that a bet risks."""
HALVINGS = 40
"""Of the bisection: the bound is exact to 1e-12."""


def clopper_pearson(count: int, n: int, *, level: float = 0.95) -> Interval:
    """A probability, seen in `count` of n independent trials; each end errs with probability (1 − level)/2 at most."""
    from scipy.special import betaincinv

    n = whole(n, "n", 1)
    count = whole(count, "count", 0, n)
    tail = (1.0 - _checked(level)) / 2.0
    low = 0.0 if count == 0 else float(betaincinv(count, n - count + 1, tail))
    high = 1.0 if count == n else float(betaincinv(count + 1, n - count, 1.0 - tail))
    return Interval(count / n, low, high)


def probability_below(sample: ArrayLike, threshold: float, *, level: float = 0.95) -> Interval:
    """P(G < c) for a threshold that was named before the sample was seen (Clopper–Pearson)."""
    x = one_sample(sample)
    return clopper_pearson(int(np.count_nonzero(x < threshold)), len(x), level=level)


def uniform_margin(n: int, *, level: float = 0.95) -> float:
    """ε = √(log(2/α) / (2n)): with probability `level` no share of n returns is farther than ε from its probability (DKW)."""
    return float(np.sqrt(np.log(2.0 / (1.0 - _checked(level))) / (2.0 * whole(n, "n", 1))))


def uniform_probability_below(sample: ArrayLike, threshold: ArrayLike, *, level: float = 0.95) -> FloatArray:
    """P(G < c) at any number of thresholds, also those chosen after a look at the sample: rows estimate, low, high (DKW)."""
    x = np.sort(one_sample(sample))
    share = np.searchsorted(x, np.asarray(threshold, np.float64), side="left") / len(x)
    margin = uniform_margin(len(x), level=level)
    return np.stack([share, np.maximum(share - margin, 0.0), np.minimum(share + margin, 1.0)])


def mean_upper_bound(sample: ArrayLike, *, level: float = 0.95, anytime: bool = False) -> float:
    """A number that the mean of Z, 0 ≤ Z ≤ 1, exceeds with probability 1 − level at most.

    λᵢ = √(2 log(1/α) / (σ̂² n)) with the variance σ̂² of what was seen before i, at most 3/4 of what could be lost. Because λ may
    depend on the past only, the bound also holds for dependent Z with that mean given the past.

    Args:
        sample: Z, in the order in which they came.
        level: the confidence.
        anytime: let it hold for all beginnings of the sample at once (a confidence sequence): λ has i log(1 + i) for n.
    """
    z = one_sample(sample)
    if not (np.all(z >= 0.0) and np.all(z <= 1.0)):
        raise UserError("expected numbers between 0 and 1")
    n, wanted = len(z), -np.log1p(-_checked(level))
    count = np.arange(1, n + 1)
    centre = (0.5 + np.cumsum(z)) / (count + 1)
    spread = (0.25 + np.cumsum((z - centre) ** 2)) / (count + 1)
    before = np.concatenate([[0.25], spread[:-1]])
    stake = np.sqrt(2.0 * wanted / (before * (count * np.log1p(count) if anytime else n)))

    def refused(mean: float) -> bool:
        bets = np.minimum(stake, BOLDEST / (1.0 - mean))
        return bool(np.cumsum(np.log1p(bets * (mean - z))).max() >= wanted)

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if refused(middle) else (middle, high)
    return high


def _checked(level: float) -> float:
    normal_quantile(level)  # refuses what is not a level
    return level
