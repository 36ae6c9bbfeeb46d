"""The interval of a mean that a few rare, large terms may make up.

Terms that are mostly zero are a weighted count of events. Student's interval of their mean is too short above when few
events were seen, and reaches below zero. Fay and Feuer (1997) treat the sum as gamma distributed, with the mean y and the
variance v of the estimate, and for the upper end add one more event w, as large as the largest that was seen or more:

    low = q(α/2) of Γ(mean y, variance v)     high = q(1 − α/2) of Γ(mean y + w, variance v + w²)

which for equal terms is the exact interval of a count. Without any event the upper end is −log(α/2) · w ("rule of three"),
where the caller has to say how large an event may be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vpac.risk.intervals import Interval, mean_interval, not_negative, one_sample

__all__ = ["gamma_ends", "rare_mean_interval"]


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
