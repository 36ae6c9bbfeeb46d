"""A budget for variance: the largest mean whose variance is at most V, kept by a controller of the price ψ.

The price is the multiplier of the constraint: mean − ψ · (variance − V). A PID controller measures the variance now and
then and sets ψ. Its quantities have no units, so its gains do not depend on the size of rewards:

    excess   x = (variance − V) / max(variance, V)                  from −1 (no variance) to 1 (far too much)
    control  u = K_p x + I + K_d ẋ,   kept in [0, log(1 + largest)]
    price    ψ = (exp(u) − 1) / √V                                   in units of 1/reward

Small prices move in straight lines and large ones by factors. Time is counted in samples: a look (one measurement) at which a
quarter of the sample is new advances it by ¼. Derivatives are of what was measured, and smoothed. The integral I stays between
the least and the greatest u, does not grow beyond what brings u to its limit, and waits while the variance is on its way to
the budget already, as policies learn more slowly than numbers are added up (anti-windup).

The budget may lie between two actions, and a mixture of two varies more than their average: at a constant price a policy is
drawn to one or the other. What keeps it between them is a price that answers at once, the proportional part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from vpac.errors import UserError, suggestion
from vpac.risk.intervals import Interval, log_variance_error, normal_quantile
from vpac.typing import FloatArray

SMOOTHING = 0.5
"""Share of a new slope in the smoothed one."""
SETTLING_TIME = 200.0
"""While a variance would reach its budget within this many samples, the integral stays."""


class Multiplier(NamedTuple):
    """The state of the controller, as plain numbers."""

    psi: float = 0.0
    """The price now, in units of 1/reward."""
    integral: float = 0.0
    """I, free of units."""
    excess: float = 0.0
    """x at the last look."""
    slope: float = 0.0
    """ẋ, smoothed."""
    looks: int = 0
    """How many looks there were."""

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> Multiplier:
        """From what `_asdict` gave."""
        psi, integral, excess, slope = (float(saved[name]) for name in cls._fields[:4])
        return cls(psi, integral, excess, slope, int(saved["looks"]))


@dataclass(frozen=True)
class Budget:
    """The variance of the return is to be at most `max_variance`, or the standard deviation at most `max_std`: give one.

    It is the variance of the discounted return, start state, environment and the policy's own draws all together.
    """

    max_variance: float | None = None
    """V, in units of reward²."""
    max_std: float | None = None
    """√V, in units of reward."""
    wait: float = 0.0
    """Episodes, or steps of the PPO family, during which ψ stays 0. A price put on a poor policy may be paid by standing
    still: let it learn to be good first."""
    proportional: float = 1.0
    """K_p."""
    integral: float = 0.1
    """K_i: what I gains in one sample at x = 1."""
    derivative: float = 0.1
    """K_d."""
    largest: float = 100.0
    """The largest price, as ψ · √V."""

    def __post_init__(self) -> None:
        if (self.max_variance is None) == (self.max_std is None):
            raise UserError("a budget is max_variance or max_std: give one of them, for example Budget(max_std=2)")
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0.0 if field.name in ("wait", "proportional", "integral", "derivative") else 1e-150
            if value is None:
                continue
            good = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not (good and math.isfinite(value) and least <= value <= 1e150):
                expected = "a positive number" if least else "a number that is not negative"
                raise UserError(f"{field.name} of a budget must be {expected}, got {value!r}")
            object.__setattr__(self, field.name, float(value))

    @property
    def variance(self) -> float:
        """V."""
        return self.max_std**2 if self.max_variance is None else self.max_variance  # type: ignore[operator]

    @property
    def std(self) -> float:
        """√V, the unit of the price: ψ · √V has none."""
        return math.sqrt(self.variance)

    @property
    def in_words(self) -> str:
        """As it was given."""
        return f"variance ≤ {self.max_variance:g}" if self.max_std is None else f"standard deviation ≤ {self.max_std:g}"

    def as_dict(self) -> dict[str, float]:
        """As plain data; `as_budget` takes it back."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def step(self, state: Multiplier, variance: float, share: float = 1.0) -> Multiplier:
        """The state after a measurement of the variance.

        Args:
            state: before.
            variance: as measured, in units of reward². One that is not finite says nothing: the state stays.
            share: how much of the sample behind it is new since the last look, in (0, 1].
        """
        if not math.isfinite(variance):
            return state
        most = math.log1p(self.largest)
        excess = (variance - self.variance) / max(variance, self.variance)
        raw = (excess - state.excess) / share if state.looks else 0.0
        slope = (1.0 - SMOOTHING) * state.slope + SMOOTHING * raw
        around = self.proportional * excess + self.derivative * slope
        grown = min(max(state.integral + self.integral * excess * share, 0.0), most)
        if excess * (excess + SETTLING_TIME * slope) < 0.0:
            grown = state.integral
        integral = min(grown, max(state.integral, most - around))
        control = min(max(around + integral, 0.0), most)
        return Multiplier(math.expm1(control) / self.std, integral, excess, slope, state.looks + 1)

    def is_largest(self, psi: float) -> bool:
        """Whether a price is about as large as it may become."""
        return psi * self.std >= 0.9 * self.largest


WORDS = {"std": "max_std", "variance": "max_variance"}


def as_budget(value: Any) -> Budget | None:
    """A budget from a budget, from text such as "std:2" or "variance:4" (a second number is `wait`), or from a mapping."""
    if value is None or isinstance(value, Budget):
        return value
    if isinstance(value, Mapping):
        known = [field.name for field in fields(Budget)]
        for name in value:
            if name not in known:
                raise UserError(f"a budget has no {name!r}{suggestion(str(name), known)}")
        return Budget(**value)
    if isinstance(value, str):
        word, *numbers = value.split(":")
        try:
            if word in WORDS and 1 <= len(numbers) <= 2:
                limit, wait = (float(number) for number in [*numbers, "0"][:2])
                return Budget(**{WORDS[word]: limit}, wait=wait)
        except UserError:
            raise
        except ValueError:
            pass
    raise UserError(f"cannot read a budget from {value!r}: expected std:S or variance:V, for example std:2")


LEEWAY = 0.05
"""An exact variance may be above its budget by this share and count as met: learning goes on and steers around the budget."""


class PricePath(NamedTuple):
    """The history of the multiplier, one row a look."""

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

        The lowest of many estimates is low partly by chance. So its interval, s² exp(± z e), has the confidence
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
    """The smallest variance that was measured, on the way or in the end; its interval allows for the number of looks."""
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
        """Whether the variance is at most its budget, judged by its interval; an exact variance may exceed it by 5 %."""
        if self.episodes is None:
            return self.variance.estimate <= self.budget.variance * (1.0 + LEEWAY)
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
        among = f", the lowest of {self.looks:,} looks" if self.episodes is not None and self.looks > 1 else ""
        return (
            f"The budget, {self.budget.in_words}, is not met: {found} ({how}). The smallest {what} that was reached is "
            f"{least}{among}. {self._advice()}"
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
