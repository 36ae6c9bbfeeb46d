"""Two policies side by side, from their samples of returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from vpac.errors import UserError
from vpac.risk.compare import (
    difference_of_means,
    first_order_dominates,
    ratio_of_variances,
    second_order_dominates,
    share_of_wins_interval,
)
from vpac.risk.influence import skewed_variance_interval
from vpac.risk.intervals import Interval, normal_quantile
from vpac.risk.sample import ReturnSample
from vpac.typing import FloatArray

__all__ = ["Comparison", "compare_samples"]

Verdict = Literal["A", "B", "neither", "undecided"]
RESAMPLES = 200
"""How often the samples are drawn again to see whether a dominance is more than luck."""
SURE = 0.9
"""The share of resamples that have to agree with a dominance before it is called one."""


@dataclass(frozen=True)
class Comparison:
    """What speaks for A and what for B; dominance is of the samples, beside the share of resamples that agree."""

    difference_of_means: Interval
    """Mean of A − mean of B (Welch)."""
    ratio_of_variances: Interval
    """Variance of A / variance of B."""
    varies_less: float
    """How sure the samples make it that A's variance is the smaller: Φ(−log ratio / its standard error)."""
    better_episode: Interval
    """Probability that an episode of A brings more than one of B, ties counting half (Wilson)."""
    first_order: tuple[bool, bool]
    """Whether A dominates B, and B A, at first order: more of everything, good for whoever likes more."""
    second_order: tuple[bool, bool]
    """The same at second order: good for whoever is moreover averse to risk."""
    first_order_share: tuple[float, float]
    """Share of resamples in which it is so."""
    second_order_share: tuple[float, float]
    """Share of resamples in which it is so."""

    @property
    def prefers(self) -> tuple[Verdict, Verdict]:
        """Whom one prefers who likes more, and who dislikes risk, too.

        "A" or "B" dominates in the samples and in nine of ten resamples; "neither": no dominance in as many; else "undecided".
        """
        return _verdict(self.first_order, self.first_order_share), _verdict(self.second_order, self.second_order_share)


def compare_samples(a: ReturnSample, b: ReturnSample, *, level: float = 0.95, seed: int = 0) -> Comparison:
    """Compare two independent samples.

    The ratio of variances has the wider of two intervals at each end: `ratio_of_variances`, and the one that follows from
    the intervals of both variances for skewed samples.

    Args:
        a: returns of one policy.
        b: returns of the other, seen with the same discount.
        level: the confidence.
        seed: of what is resampled.
    """
    if a.kind != b.kind or (a.kind == "discounted" and a.gamma != b.gamma):
        raise UserError(
            f"cannot compare {a.kind} returns (gamma {a.gamma:g}) with {b.kind} ones (gamma {b.gamma:g}): "
            "measure both with the same gamma"
        )
    x, y = a.returns, b.returns
    ratio = _ratio(x, y, level)
    won = share_of_wins_interval(x, y, level=level)
    rng = np.random.default_rng(seed)
    orders = np.zeros((RESAMPLES, 4), bool)
    for row in orders:
        row[:] = _dominance(rng.choice(x, len(x)), rng.choice(y, len(y)))
    found, shares = _dominance(x, y), orders.mean(axis=0).tolist()
    return Comparison(
        difference_of_means(x, y, level=level), ratio, _varies_less(ratio, x, y, level), won, (found[0], found[1]),
        (found[2], found[3]), (shares[0], shares[1]), (shares[2], shares[3]),
    )  # fmt: skip


def _verdict(dominates: tuple[bool, bool], share: tuple[float, float]) -> Verdict:
    if dominates[0] and share[0] >= SURE:
        return "A"
    if dominates[1] and share[1] >= SURE:
        return "B"
    return "neither" if not any(dominates) and sum(share) <= 1.0 - SURE else "undecided"


def _dominance(x: FloatArray, y: FloatArray) -> tuple[bool, bool, bool, bool]:
    return (
        first_order_dominates(x, y), first_order_dominates(y, x),
        second_order_dominates(x, y), second_order_dominates(y, x),
    )  # fmt: skip


def _ratio(x: FloatArray, y: FloatArray, level: float) -> Interval:
    """sₓ²/s_y² · exp of ends whose distances on the log scale are added up as errors are, √(dₓ² + d_y²)."""
    found = ratio_of_variances(x, y, level=level)
    if np.isnan(found.low):
        return found
    one, other = (skewed_variance_interval(sample, level=level) for sample in (x, y))
    with np.errstate(divide="ignore"):
        low = -np.hypot(np.log(np.divide(one.estimate, one.low)), np.log(other.high / other.estimate))
        high = np.hypot(np.log(one.high / one.estimate), np.log(np.divide(other.estimate, other.low)))
    ends = float(found.estimate * np.exp(low)), float(found.estimate * np.exp(high))
    return Interval(found.estimate, min(found.low, ends[0]), max(found.high, ends[1]))


def _varies_less(ratio: Interval, x: FloatArray, y: FloatArray, level: float) -> float:
    from scipy.special import ndtr

    if np.isnan(ratio.low):  # one of them does not vary, or there is too little to say
        spread = float(np.ptp(x)), float(np.ptp(y))
        return float("nan") if (spread[0] and spread[1]) or spread == (0.0, 0.0) else float(spread[0] < spread[1])
    end = ratio.high if ratio.estimate < 1.0 else ratio.low
    with np.errstate(divide="ignore"):
        error = abs(np.log(end / ratio.estimate)) / normal_quantile(level)
    return float(ndtr(-np.log(ratio.estimate) / error))
