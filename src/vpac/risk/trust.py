"""Can the intervals of a sample be trusted? The sample's own tail says when not.

The variance is a sum of squared distances d² from the mean, its error one of their squares. Two numbers say who carries them:

    N = (Σ d²)² / Σ d⁴ = n / kurtosis     on how many episodes the variance rests
    T = max d⁴ / Σ d⁴                     how much of its error is one episode's

N is a third of the episodes for a normal distribution and a ninth for an exponential one; below ten an interval knows too
little. T falls with the number of episodes unless the fourth moment is infinite: where the kurtosis is above 15 and one episode
has more than 0.3 of it, the next one as large will move the variance beyond any interval. docs/measuring.md has the coverage
beside the share of samples that are told so. A tail that a sample has not seen it cannot tell of.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vpac.risk.intervals import one_sample

__all__ = ["carriers", "tail_note"]

FEW = 10.0
"""A variance that rests on fewer episodes than this has no interval to be relied on."""
HEAVY, ALONE = 15.0, 0.3
"""Nor has one with more than this kurtosis, if a single episode carries more than this share of it."""


def carriers(sample: ArrayLike) -> tuple[float, float]:
    """N and T above; NaN if the sample does not vary."""
    x = one_sample(sample)
    squares = (x - x.mean()) ** 2
    scale = float(squares.max())
    if not scale > 0.0 or np.ptp(x) == 0.0:
        return float("nan"), float("nan")
    shares = squares / scale
    fourth = float(shares @ shares)
    return float(shares.sum()) ** 2 / fourth, 1.0 / fourth


def tail_note(sample: ArrayLike) -> str | None:
    """What to say about a sample whose variance rests on too few of its observations; None if there is nothing to say."""
    (number, top), n = carriers(sample), len(one_sample(sample))
    if number < FEW:
        why = f"the variance rests on about {max(number, 1.0):.0f} of {n} episodes"
    elif number * HEAVY < n and top > ALONE:
        why = f"one of {n} episodes carries {100 * top:.0f} % of the error of the variance"
    else:
        return None
    return (
        f"{why}: the intervals of variance, semi-variance and Sharpe ratio may be too short; measure more episodes, or rely on "
        "quantiles, CVaR and the Gini deviation"
    )
