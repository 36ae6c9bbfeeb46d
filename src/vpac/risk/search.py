"""Where along ψ to look next, so that a few points show the whole curve. What was measured decides, nothing is random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpac.risk.frontier import psi_of
from vpac.typing import FloatArray

__all__ = ["FIRST_AVERSIONS", "first_prices", "next_prices", "rounded"]

FIRST_AVERSIONS = (0.1, 0.5, 2.5)
"""Risk aversions to begin with, beside none: where there is something to trade, it is mostly between these."""
FACTOR = 4.0
"""How far a step below the smallest price, or beyond the largest one, goes."""
CLOSEST = 1.1
"""Prices that are nearer to each other than this ratio are not told apart."""
FARTHEST = 1000.0
"""The largest risk aversion that is tried."""


def rounded(psi: float) -> float:
    """Three digits: readable, and the same on every machine."""
    return float(f"{psi:.3g}")


def first_prices(std: float) -> list[float]:
    """Prices on a logarithmic scale that the spread of the risk-neutral return sets."""
    return [rounded(psi_of(aversion, std)) for aversion in FIRST_AVERSIONS]


def next_prices(
    psis: Sequence[float], means: Sequence[float], stds: Sequence[float], tried: Sequence[float], count: int
) -> list[float]:
    """Up to `count` more prices: in the middle of the longest and most bent pieces of the curve, or beyond its end.

    A piece between neighbouring prices counts by its length in the plane of mean and standard deviation, both in shares of
    their range, times 1 + the turns at its ends in half circles. It is halved on a logarithmic scale. Beyond the largest
    price counts as half of the last piece: a curve that still moves there has not been followed to its end.

    Args:
        psis: prices that were measured; the smallest may be 0.
        means: of the return, at each.
        stds: of the return, at each.
        tried: prices that are not to be proposed again, measured or not.
        count: how many.
    """
    order = np.argsort(psis)
    prices = np.asarray(psis, np.float64)[order]
    places = np.stack([_share(np.asarray(x, np.float64)[order]) for x in (stds, means)], axis=1)
    steps = np.diff(places, axis=0)
    lengths = np.hypot(*steps.T)
    bends = np.concatenate([[0.0], _turns(steps), [0.0]])
    scores = [
        (length * (1.0 + (bends[i] + bends[i + 1]) / np.pi), _between(prices[i], prices[i + 1]))
        for i, length in enumerate(lengths)
    ]
    std = float(np.asarray(stds, np.float64)[order][0])
    beyond = rounded(prices[-1] * FACTOR)
    if beyond * std <= FARTHEST:
        scores.append((0.5 * lengths[-1] if len(lengths) else 0.0, beyond))
    taken = [*tried, *psis]
    found: list[float] = []
    for score, psi in sorted(scores, key=lambda one: (-one[0], one[1])):
        new = psi > 0.0 and all(_apart(psi, other) for other in [*taken, *found])
        if len(found) < count and new and (score > 0.0 or psi == beyond):
            found.append(psi)
    return sorted(found)


def _share(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.min()) / (np.ptp(values) or 1.0), np.float64)


def _turns(steps: FloatArray) -> FloatArray:
    """Angles between consecutive pieces; none where a piece has no length."""
    one, two = steps[:-1], steps[1:]
    cross, dot = one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0], (one * two).sum(axis=1)
    return np.asarray(np.abs(np.arctan2(cross, dot)), np.float64)


def _between(low: float, high: float) -> float:
    return rounded(high / FACTOR if low == 0.0 else float(np.sqrt(low * high)))


def _apart(psi: float, other: float) -> bool:
    return other == 0.0 or max(psi / other, other / psi) > CLOSEST
