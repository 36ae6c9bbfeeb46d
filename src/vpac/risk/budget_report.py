"""What came of a budget: the variance that was achieved, with its interval, and in words whether that is enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vpac.risk.budget import Budget
from vpac.risk.intervals import Interval, log_variance_error, normal_quantile
from vpac.typing import FloatArray

__all__ = ["BudgetReport", "PricePath", "measured"]

SLACK = 0.05
"""An exact variance may be above its budget by this share and count as met: learning goes on and steers around the budget."""


class PricePath(NamedTuple):
    """The way of the multiplier, one row a look."""

    at: FloatArray
    """Episodes, or steps of the PPO family, that were behind it."""
    psi: FloatArray
    """The price from then on, in units of 1/reward."""
    variance: FloatArray
    """The variance that was measured; NaN before there was enough to measure."""
    error: FloatArray
    """The standard error of its logarithm; 0 where it is exact, NaN where it is unknown."""

    @classmethod
    def of(cls, rows: list[tuple[float, float, float, float]]) -> PricePath:
        """From rows (at, psi, variance, error)."""
        return cls(*np.array(rows, np.float64).reshape(-1, 4).T.copy())

    def smallest(self, level: float = 0.95) -> tuple[Interval, float, int]:
        """The smallest variance of all looks, when that was, and how many looks there were.

        The lowest of many estimates is low by luck, too. So its interval, s² exp(± z e), has the confidence
        1 − (1 − level) / looks: that of all looks together holds with confidence `level`.
        """
        looks = int(np.isfinite(self.variance).sum())
        if not looks:
            return Interval(math.nan, math.nan, math.nan), math.nan, 0
        which = int(np.nanargmin(self.variance))
        z, found = normal_quantile(1.0 - (1.0 - level) / looks), float(self.variance[which])
        factor = float(np.exp(z * self.error[which]))
        return Interval(found, found / factor, found * factor), float(self.at[which]), looks


def measured(returns: FloatArray, least: int) -> tuple[float, float]:
    """The variance of some returns and the standard error of its logarithm; NaN of fewer than `least`, which is at least 5.

    The error is at least that of normal returns: the lowest of many variances likely has too small a kurtosis, too.
    """
    if len(returns) < least:
        return math.nan, math.nan
    variance = float(np.var(returns, ddof=1))
    with np.errstate(all="ignore"):  # of returns that differ by next to nothing
        error = max(log_variance_error(returns), math.sqrt(2.0 / (len(returns) - 1))) if variance > 0.0 else 0.0
    return variance, error


@dataclass(frozen=True)
class BudgetReport:
    """Whether a trained policy keeps its budget."""

    budget: Budget
    """What was asked for."""
    mean: Interval
    """Mean return of the policy."""
    variance: Interval
    """Variance of its return; both ends are the estimate if it is exact."""
    psi: float
    """The price in the end."""
    smallest: Interval
    """The smallest variance that was measured, on the way or in the end; its interval knows of how many looks."""
    smallest_at: float
    """When that was."""
    counted: str
    """What `smallest_at` counts: episodes or steps."""
    episodes: int | None
    """Episodes behind the intervals; None: mean and variance are exact."""
    looks: int = 1
    """Of how many measured variances `smallest` is the smallest."""

    @property
    def met(self) -> bool:
        """Whether the variance is at most its budget, as far as its interval can tell; an exact one has 5 % of leeway."""
        if self.episodes is None:
            return self.variance.estimate <= self.budget.variance * (1.0 + SLACK)
        low = self.variance.low if math.isfinite(self.variance.low) else self.variance.estimate
        return low <= self.budget.variance

    @property
    def words(self) -> str:
        """The outcome in a few plain sentences."""
        what, unit = ("variance", 1.0) if self.budget.max_std is None else ("standard deviation", 0.5)
        found = f"the {what} is {self._shown(self.variance, unit)}, the mean {self._shown(self.mean)}"
        how = "exactly" if self.episodes is None else f"measured in {self.episodes:,} episodes"
        if self.met:
            over = self.variance.estimate > self.budget.variance
            within = "" if not over else " to within 5 %" if self.episodes is None else " within its interval"
            price = f"at ψ = {self.psi:.4g}" if self.psi > 0.0 else "and no price is needed (ψ = 0)"
            return f"The budget, {self.budget.in_words}, is met{within}: {found} ({how}), {price}."
        least = f"{self._shown(self.smallest, unit)}, after {self.smallest_at:,.0f} {self.counted}"
        luck = f", the lowest of {self.looks:,} looks" if self.episodes is not None and self.looks > 1 else ""
        return (
            f"The budget, {self.budget.in_words}, is not met: {found} ({how}). The smallest {what} that was reached is "
            f"{least}{luck}. {self._advice()}"
        )

    def _advice(self) -> str:
        if self.smallest.estimate <= self.budget.variance:
            was = "was" if self.episodes is None or self.smallest.high <= self.budget.variance else "may have been"
            return f"It {was} within the budget on the way: longer training or smaller step sizes may hold it."
        if self.budget.is_largest(self.psi):
            return f"ψ = {self.psi:.4g} is about as large as it may become: this learner finds no policy that varies so little."
        return f"ψ = {self.psi:.4g} is still below its largest value: longer training may help."

    def _shown(self, interval: Interval, power: float = 1.0) -> str:
        if self.episodes is None or not math.isfinite(interval.low):
            return f"{interval.estimate**power:.4g}"
        return f"{interval.estimate**power:.4g} ({interval.low**power:.4g} … {interval.high**power:.4g})"

    def as_dict(self) -> dict[str, Any]:
        """As plain data; numbers that are not known become null."""

        def known(value: float) -> float | None:
            return float(value) if math.isfinite(value) else None

        def ends(interval: Interval) -> dict[str, float | None]:
            return {
                "estimate": known(interval.estimate), "low": known(interval.low), "high": known(interval.high),
            }  # fmt: skip

        return {
            "budget": self.budget.as_dict(), "max_variance": self.budget.variance, "met": self.met,
            "exact": self.episodes is None, "episodes": self.episodes, "mean": ends(self.mean),
            "variance": ends(self.variance), "psi": self.psi, "smallest_variance": known(self.smallest.estimate),
            "smallest_interval": ends(self.smallest), "looks": self.looks,
            f"smallest_after_{self.counted}": known(self.smallest_at), "words": self.words,
        }  # fmt: skip
