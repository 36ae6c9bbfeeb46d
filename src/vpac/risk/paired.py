"""Comparison of two policies on common random numbers: episode i of both has the same seeds.

What both meet alike, such as an easy start, drops out of the differences, so they are known better than from independent
samples. Nothing is assumed of how alike the episodes are; if seeds mean nothing to the environment, nothing is gained or lost.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vpac.errors import UserError
from vpac.risk import metrics
from vpac.risk.bounds import clopper_pearson
from vpac.risk.intervals import Interval, one_sample, skewed_interval, skewed_mean_interval
from vpac.typing import FloatArray


@dataclass(frozen=True)
class PairedComparison:
    """A against B, episode by episode."""

    difference_of_means: Interval
    """Mean of A − mean of B (Hall, of the differences)."""
    ratio_of_variances: Interval
    """Variance of A / variance of B."""
    difference_of_cvars: Interval
    """CVaR of A − CVaR of B, of the worst share α each."""
    better: Interval
    """P(A > B) with the same seeds (Clopper–Pearson)."""
    worse: Interval
    """P(A < B) with the same seeds (Clopper–Pearson)."""
    correlation: float
    """Of the returns of A and B; NaN if one of them does not vary."""
    episodes: int
    """How many pairs."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare_paired(a: ArrayLike, b: ArrayLike, *, level: float = 0.95, alpha: float = 0.05) -> PairedComparison:
    """Compare returns of two policies, episode i of both played with the same seeds.

    Args:
        a: returns of one.
        b: returns of the other.
        level: the confidence of each interval.
        alpha: the share of worst episodes of the CVaR.
    """
    x, y = one_sample(a), one_sample(b)
    if len(x) != len(y):
        raise UserError(f"expected as many returns of both, got {len(x)} and {len(y)}")
    varies = np.ptp(x) > 0.0 and np.ptp(y) > 0.0
    return PairedComparison(
        skewed_mean_interval(x - y, level=level),
        _ratio(x, y, level),
        _cvars(x, y, level, alpha),
        clopper_pearson(int(np.count_nonzero(x > y)), len(x), level=level),
        clopper_pearson(int(np.count_nonzero(x < y)), len(x), level=level),
        float(np.corrcoef(x, y)[0, 1]) if varies else float("nan"),
        len(x),
    )


def _ratio(x: FloatArray, y: FloatArray, level: float) -> Interval:
    """s²ₓ/s²_y: exp of Hall's interval of the logarithm, whose influences are (x − x̄)²/s²ₓ − (y − ȳ)²/s²_y."""
    first, second = float(metrics.variance(x)), float(metrics.variance(y))
    if not (first > 0.0 and second > 0.0):
        return Interval(first / second if second > 0.0 else float("nan"), float("nan"), float("nan"))
    h = (x - x.mean()) ** 2 / first - (y - y.mean()) ** 2 / second
    found = skewed_interval(float(np.log(first / second)), h, level=level)
    return Interval(*(float(np.exp(end)) for end in (found.estimate, found.low, found.high)))


def _cvars(x: FloatArray, y: FloatArray, level: float, alpha: float) -> Interval:
    """Influences of a CVaR are min(x − v, 0)/α with the value at risk v; of fewer than five of them the ends are unknown."""
    estimate = float(metrics.cvar(x, alpha) - metrics.cvar(y, alpha))
    if alpha * len(x) < 5.0:
        return Interval(estimate, float("nan"), float("nan"))
    h = [np.minimum(one - metrics.value_at_risk(one, alpha), 0.0) / alpha for one in (x, y)]
    return skewed_interval(estimate, h[0] - h[1], level=level)
