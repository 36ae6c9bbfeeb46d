"""From what a nested design brought, row by row, to the parts of a variance with their intervals.

Of rare actions few branchings tell, so the intervals are those of rare events (`vpac.risk.rare`). An action that never came up
may still matter as much as anything that was seen: for the upper end of the policy's part one is counted, as large as the
largest difference of two episodes with the same start. Likewise for the environment, if few of its answers differed; otherwise
the returns themselves have seen what it does. Shares are intervals of the
odds: on the log scale the distances of part and remainder add up as errors do, √(d² + e² − 2ρde), with their correlation ρ
where it is negative; so a share lies between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vpac.risk.intervals import Interval
from vpac.risk.rare import rare_mean_interval
from vpac.typing import FloatArray

__all__ = ["PARTS", "Estimate", "estimate"]

PARTS = ("start", "policy", "environment")
FEW = 10
"""Fewer branchings than this that made a difference: a part is known roughly at best."""


@dataclass(frozen=True)
class Estimate:
    """Parts of a variance."""

    total: Interval
    """All of it."""
    parts: dict[str, Interval]
    """By name; what came out below zero is 0."""
    shares: dict[str, Interval]
    """Of each part, between 0 and 1; they add up to 1."""
    few: dict[str, int]
    """How many branchings made a difference, of parts of which that were few."""


def estimate(rows: FloatArray, level: float, silent: frozenset[str], draws: int) -> Estimate:
    """Parts with intervals.

    Args:
        rows: of each start two returns, the policy's term, the environment's, and the number of steps that the latter's was
            picked from.
        level: the confidence.
        silent: parts that are known to be zero.
        draws: how many actions were drawn in each step.
    """
    one, two, chosen, answered, steps = rows.T
    n = len(rows)
    centre = rows[:, :2].mean()
    bessel = n / (n - 0.5)  # the common mean is estimated from 2n returns
    rest = 0.5 * (one - two) ** 2
    start = bessel * (one - centre) * (two - centre) + (bessel - 1.0) * rest
    apart = 2.0 * float(rest.max())  # the largest squared difference that was seen
    events = {"policy": apart / draws, "environment": 0.5 * apart * float(steps.mean())}
    events |= dict.fromkeys(("start", *silent), 0.0)
    gap = rest - chosen - answered  # has mean zero
    doubts = [_doubt(chosen, events["policy"]), _doubt(answered, events["environment"]), _doubt(rest, 0.5 * apart)]
    given = np.array(doubts) / (sum(doubts) or 1.0)
    terms = {"start": start, "policy": chosen + given[0] * gap, "environment": answered + given[1] * gap}
    seen = {"policy": int(np.count_nonzero(chosen)), "environment": int(np.count_nonzero(answered))}
    few = {name: count for name, count in seen.items() if events[name] > 0.0 and count < FEW}
    unseen = events if "environment" in few else events | {"environment": 0.0}
    parts = {name: rare_mean_interval(term, event=unseen[name], level=level) for name, term in terms.items()}
    return Estimate(
        rare_mean_interval(np.sum(list(terms.values()), axis=0), level=level),
        {name: _clipped(part) for name, part in parts.items()},
        {name: _share(name, terms, parts, unseen, level) for name in PARTS},
        few,
    )


def _doubt(term: FloatArray, event: float) -> float:
    """The variance of a term, with one event more: of what was not seen one cannot be sure that it is not there."""
    largest = max(float(np.abs(term).max()), event) if event > 0.0 else 0.0
    return float(np.var(term)) + largest**2 / len(term)


def _clipped(part: Interval) -> Interval:
    return Interval(max(part.estimate, 0.0), part.low, part.high)


def _share(
    name: str, terms: Mapping[str, FloatArray], parts: Mapping[str, Interval], unseen: Mapping[str, float], level: float
) -> Interval:
    part, others = parts[name], [other for other in PARTS if other != name]
    remainder = np.sum([terms[other] for other in others], axis=0)
    left = rare_mean_interval(remainder, event=sum(unseen[other] for other in others), level=level)
    mine, rest = max(part.estimate, 0.0), sum(max(parts[other].estimate, 0.0) for other in others)
    if not mine + rest > 0.0:
        return Interval(np.nan, np.nan, np.nan)
    if mine == 0.0 or rest == 0.0:  # no odds to speak of: the worst cases
        return Interval(
            mine / (mine + rest), _part_of(part.low, left.high), _part_of(part.high, left.low)
        )  # fmt: skip
    together = np.std(terms[name]) * np.std(remainder)
    rho = min(float(np.cov(terms[name], remainder, ddof=0)[0, 1] / together), 0.0) if together > 0.0 else 0.0
    with np.errstate(divide="ignore"):
        down, up = (np.log(np.divide(mine, part.low)), np.log(np.divide(part.high, mine)))
        less, more = (np.log(np.divide(rest, left.low)), np.log(np.divide(left.high, rest)))
    odds = mine / rest
    low, high = odds * np.exp(-_added(down, more, rho)), odds * np.exp(_added(up, less, rho))
    return Interval(mine / (mine + rest), _part_of(low, 1.0), _part_of(high, 1.0))


def _added(one: float, other: float, rho: float) -> float:
    one, other = max(one, 0.0), max(other, 0.0)
    return float(np.inf if np.isinf(one + other) else np.sqrt(one**2 + other**2 - 2.0 * rho * one * other))


def _part_of(part: float, rest: float) -> float:
    if np.isinf(part):
        return 1.0
    return part / (part + rest) if part + rest > 0.0 else 0.0
