"""The trade-off between mean and spread: which ψ to choose, and which to try next.

ψ is a price in units of 1/reward: the objective is mean − ψ · variance, and a variance has the unit of a squared reward. The
risk aversion R = ψ · (standard deviation of the risk-neutral policy's return) has no unit; R = 1 means that the risk-neutral
policy's variance costs one standard deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vpac.checks import not_negative
from vpac.errors import UserError
from vpac.risk.intervals import Interval
from vpac.typing import BoolArray, FloatArray

LEAST_BEND = 0.02
"""Smallest distance of a knee from the straight line between the ends, with both axes scaled to their range."""


def psi_of(aversion: float, std: float) -> float:
    """ψ = R / std: the price of variance of a risk aversion, std being that of the risk-neutral policy's return."""
    if not_negative(aversion, "risk aversion") == 0.0:
        return 0.0
    if not (np.isfinite(std) and std > 0.0):
        raise UserError(
            f"risk aversion needs a risk-neutral policy whose return varies; its standard deviation is {std:g}: there is no "
            "risk to avoid"
        )
    return float(aversion / std)


def aversion_of(psi: float, std: float) -> float:
    """R = ψ · std, the inverse of `psi_of`."""
    return float(psi * std)


@dataclass(frozen=True)
class FrontierPoint:
    """The result at one ψ."""

    psi: float
    """ψ, in units of 1/reward."""
    mean: Interval
    """Mean of the return."""
    std: Interval
    """Standard deviation of the return."""
    volatility: Interval | None = None
    """Standard deviation of the reward per step; None: not measured."""
    measure: Interval | None = None
    """The penalised measure of risk; None: the variance."""

    @property
    def spread(self) -> Interval:
        """The risk axis: the measure or, for the variance, the standard deviation."""
        return self.std if self.measure is None else self.measure

    @property
    def variance(self) -> float:
        """Variance of the return."""
        return self.std.estimate**2

    @property
    def sharpe(self) -> float:
        """Mean over standard deviation of the return."""
        return self.mean.estimate / self.std.estimate if self.std.estimate > 0.0 else float("nan")


@dataclass(frozen=True)
class TradeOff:
    """Points along ψ and their interpretation; the first, with the smallest ψ, is the reference."""

    points: tuple[FrontierPoint, ...]
    """Points, ascending in ψ, at least one."""
    axis: str = "standard deviation"
    """Name of the risk axis."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(sorted(self.points, key=lambda point: point.psi)))
        if not self.points:
            raise UserError("a trade-off needs at least one point")

    @property
    def means(self) -> FloatArray:
        """Mean return of each point."""
        return np.array([point.mean.estimate for point in self.points])

    @property
    def stds(self) -> FloatArray:
        """Standard deviation of the return of each point."""
        return np.array([point.std.estimate for point in self.points])

    @property
    def spreads(self) -> FloatArray:
        """The spread of each point."""
        return np.array([point.spread.estimate for point in self.points])

    @property
    def dominated(self) -> BoolArray:
        """Whether each point is dominated: another has at least the mean and at most the spread, and is not equal."""
        m, s = self.means, self.spreads
        as_good = (m >= m[:, None]) & (s <= s[:, None])
        return np.asarray((as_good & ((m > m[:, None]) | (s < s[:, None]))).any(axis=1), bool)

    @property
    def surely_dominated(self) -> BoolArray:
        """Whether each point is dominated significantly: another is better by its whole interval in both directions."""
        mean, spread = ([getattr(point, name) for point in self.points] for name in ("mean", "spread"))
        above = np.array([one.low for one in mean]) > np.array([[one.high] for one in mean])
        below = np.array([one.high for one in spread]) < np.array([[one.low] for one in spread])
        return np.asarray((above & below).any(axis=1), bool)

    def better(self, number: int) -> int | None:
        """A point whose policies are significantly better at this point's ψ, by mean − ψ · risk; None if there is none.

        The training of this point then ended at a worse optimum, or too early.
        """
        psi = self.points[number].psi

        def objective(point: FrontierPoint) -> tuple[float, float]:
            power = 2 if point.measure is None else 1
            least = point.spread.low if point.measure is not None else max(point.spread.low, 0.0)
            return point.mean.low - psi * point.spread.high**power, point.mean.high - psi * least**power

        worst = [objective(point)[0] for point in self.points]
        best = int(np.argmax(np.nan_to_num(worst, nan=-np.inf)))
        return best if worst[best] > objective(self.points[number])[1] else None

    @property
    def knee(self) -> int | None:
        """Index of the bend of the curve: the point farthest above the line between the ends of what is not dominated.

        Both axes are scaled to their range. None if there are fewer than three such points or no point stands out.
        """
        kept = np.flatnonzero(~self.dominated)
        m, s = self.means[kept], self.spreads[kept]
        if len(kept) < 3 or np.ptp(m) == 0.0 or np.ptp(s) == 0.0:
            return None
        above = (_share(m) - _share(s)) / np.sqrt(2.0)  # points that are not dominated run from (0, 0) to (1, 1)
        best = int(np.argmax(above))
        return int(kept[best]) if above[best] > LEAST_BEND else None

    @property
    def best_sharpe(self) -> int | None:
        """The largest mean / standard deviation; None if no mean is positive, because more spread would then look better, or if
        the risk is another measure."""
        m, s = self.means, self.spreads
        if not (m > 0.0).any() or self.points[0].measure is not None:
            return None
        ratio = np.divide(m, s, out=np.full_like(m, np.inf), where=s > 0.0)
        return int(np.argmax(np.where(m > 0.0, ratio, -np.inf)))

    def kept(self, number: int) -> float:
        """The share of the first point's mean that a point keeps; NaN if either mean is not positive."""
        first, here = self.points[0].mean.estimate, self.points[number].mean.estimate
        return here / first if first > 0.0 and here >= 0.0 else float("nan")

    def removed(self, number: int) -> float:
        """The share of the first point's spread that a point removes."""
        first = self.points[0].spread.estimate
        return 1.0 - self.points[number].spread.estimate / first if first > 0.0 else float("nan")

    def advice(self) -> list[str]:
        """The interpretation in sentences."""
        if len(self.points) == 1:
            return ["There is one point only: with more prices of variance there is something to choose from."]
        found = []
        bend, best = self.knee, self.best_sharpe
        if bend is not None:
            found.append(f"The curve bends at ψ = {self.points[bend].psi:g} (the knee): {self.in_words(bend)}.")
        if best is not None and best != bend:
            edge = ", the largest price that was tried" if best == len(self.points) - 1 else ""
            found.append(f"The best Sharpe ratio is at ψ = {self.points[best].psi:g}{edge}: {self.in_words(best)}.")
        if bend is None and best is None:
            kept = [i for i in np.flatnonzero(~self.dominated) if i]
            found += [f"ψ = {self.points[i].psi:g}: {self.in_words(int(i))}." for i in kept]
        if not (self.spreads[1:] < self.spreads[0]).any():
            found.append(f"No price that was tried lowered the {self.axis}.")
        stuck = {i: better for i in np.flatnonzero(~self.dominated) if (better := self.better(int(i))) is not None}
        for other in sorted(set(stuck.values())):
            prices = ", ".join(f"{self.points[i].psi:g}" for i in stuck if stuck[i] == other)
            found.append(
                f"At ψ = {prices} the policies of ψ = {self.points[other].psi:g} are better by the objective: training there "
                "ended too early, or stopped looking. Train longer, or let ψ wait until the policy is good (--warm-up 0.4)."
            )
        for sure, words in ((True, ""), (False, ", though the intervals overlap")):
            poor = [
                f"{p.psi:g}"
                for p, lost, surely in zip(self.points, self.dominated, self.surely_dominated, strict=True)
                if lost and surely == sure
            ]
            if poor:
                found.append(
                    f"Not worth choosing: ψ = {', '.join(poor)}; another point has at least the same mean and at most the same "
                    f"{self.axis}{words}."
                )
        return found

    def in_words(self, number: int) -> str:
        """A point relative to the first: "keeps 96 % of the mean and removes 58 % of the standard deviation"."""
        if number == 0:
            return "no price does better"
        here, first = self.points[number], self.points[0]
        if np.isnan(kept := self.kept(number)):
            mean = f"it takes the mean from {first.mean.estimate:.4g} to {here.mean.estimate:.4g}"
        else:
            mean = f"it keeps {_percent(kept)} of the mean"
        removed = self.removed(number)
        if np.isnan(removed):
            spread = "changes nothing about a return that does not vary"
        elif removed >= 0.0:
            spread = f"removes {_percent(removed)} of the {self.axis}"
        else:
            spread = f"adds {_percent(-removed)} to the {self.axis}"
        pairs = {"mean": (here.mean, first.mean), self.axis: (here.spread, first.spread)}
        doubtful = [
            name for name, (one, other) in pairs.items()
            if one.estimate != other.estimate and one.low < other.high and other.low < one.high
        ]  # fmt: skip
        whose = "" if not doubtful else "both" if len(doubtful) == 2 else f"the {doubtful[0]}"
        unsure = f" (the intervals of {whose} overlap: use more seeds or episodes to decide)" if whose else ""
        return f"{mean} and {spread}{unsure}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %".replace("-", "−")


def hypervolume(means: FloatArray, risks: FloatArray, floor: float, ceiling: float) -> FloatArray:
    """Area below the concave frontier of the points, between a mean of `floor` and a risk (variance or other) of `ceiling`.

    The frontier joins points by straight lines: a mixture of the policies of two points lies on them. A frontier above and to
    the left of another has the larger area. Points along the last axis.
    """
    rows = zip(np.reshape(means, (-1, np.shape(means)[-1])), np.reshape(risks, (-1, np.shape(risks)[-1])), strict=True)
    return np.reshape([_area(m, r, floor, ceiling) for m, r in rows], np.shape(means)[:-1])


def _area(means: FloatArray, risks: FloatArray, floor: float, ceiling: float) -> float:
    kept = (means > floor) & (risks <= ceiling)
    corners: list[tuple[float, float]] = []
    for x, y in sorted(zip(risks[kept].tolist(), (means[kept] - floor).tolist(), strict=True)):
        if corners and y <= corners[-1][1]:
            continue
        while len(corners) > 1 and (y - corners[-2][1]) * (corners[-1][0] - corners[-2][0]) >= (
            corners[-1][1] - corners[-2][1]
        ) * (x - corners[-2][0]):
            corners.pop()
        if corners and x == corners[-1][0]:
            corners.pop()
        corners.append((x, y))
    if not corners:
        return 0.0
    x, y = np.array([*corners, (ceiling, corners[-1][1])]).T
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1])) / 2.0)


FIRST_AVERSIONS = (0.1, 0.5, 2.5)
"""First risk aversions besides 0: a trade-off, if there is one, is mostly between these."""
PRICE_STEP = 4.0
"""Factor of a step below the smallest ψ, or beyond the largest one."""
LEAST_RATIO = 1.1
"""Values of ψ with a smaller ratio count as equal."""
LARGEST_AVERSION = 1000.0
"""The largest risk aversion that is tried."""


def rounded(psi: float) -> float:
    """Round to three digits: readable, and the same on every machine."""
    return float(f"{psi:.3g}")


def first_prices(std: float) -> list[float]:
    """ψ on a logarithmic scale relative to the spread of the risk-neutral return."""
    return [rounded(psi_of(aversion, std)) for aversion in FIRST_AVERSIONS]


def next_prices(
    psis: Sequence[float], means: Sequence[float], spreads: Sequence[float], tried: Sequence[float], count: int,
    scale: float | None = None,
) -> list[float]:  # fmt: skip
    """The next ψ, at most `count`: in the middle of the longest and most bent segments of the curve, or beyond its end.

    The priority of a segment between neighbouring ψ is its length in the plane of mean and spread, both scaled to their range,
    times 1 + the turns at its ends in half circles. It is halved on a logarithmic scale. Beyond the largest ψ the priority is
    half that of the last segment: the curve may continue there. `psis` were measured, `tried` are not proposed again; `scale`
    is risk aversion / ψ, by default the spread at the smallest ψ.
    """
    order = np.argsort(psis)
    prices = np.asarray(psis, np.float64)[order]
    points = np.stack([_share(np.asarray(x, np.float64)[order]) for x in (spreads, means)], axis=1)
    steps = np.diff(points, axis=0)
    lengths = np.hypot(*steps.T)
    bends = np.concatenate([[0.0], _turns(steps), [0.0]])
    scores = []
    for i, (length, low, high) in enumerate(zip(lengths, prices, prices[1:], strict=False)):
        between = high / PRICE_STEP if low == 0.0 else float(np.sqrt(low * high))
        scores.append((length * (1.0 + (bends[i] + bends[i + 1]) / np.pi), rounded(between)))
    scale = float(np.asarray(spreads, np.float64)[order][0]) if scale is None else scale
    beyond = rounded(prices[-1] * PRICE_STEP)
    if beyond * scale <= LARGEST_AVERSION:
        scores.append((0.5 * lengths[-1] if len(lengths) else 0.0, beyond))
    taken = [*tried, *psis]
    found: list[float] = []
    for score, psi in sorted(scores, key=lambda one: (-one[0], one[1])):
        others = [other for other in [*taken, *found] if other]
        new = psi > 0.0 and all(max(psi / other, other / psi) > LEAST_RATIO for other in others)
        if len(found) < count and new and (score > 0.0 or psi == beyond):
            found.append(psi)
    return sorted(found)


def _share(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.min()) / (np.ptp(values) or 1.0), np.float64)


def _turns(steps: FloatArray) -> FloatArray:
    """Angles between consecutive segments; 0 if a segment has no length."""
    one, two = steps[:-1], steps[1:]
    cross, dot = one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0], (one * two).sum(axis=1)
    return np.asarray(np.abs(np.arctan2(cross, dot)), np.float64)
