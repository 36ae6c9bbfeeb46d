"""What a budget can hold beside the variance: a tail mean, the probability of ruin, and a share of the mean.

Each limit says of a sample of returns how far it is exceeded, x from −1 to 1, and what the controller of `budget` may do:

    cvar        CVaR_α(G) ≥ c                 x = (c − CVaR + e) / s               ψ ≤ (mean − CVaR) / (2 s²)
    ruin        P(G < c) ≤ p                  x = (q + e − p) / max(q + e, p)      ψ ≤ (mean − c) / (2 s²)
    keep_mean   mean ≥ m − (1 − k) |m|        x = (mean − e − floor) / ((1 − k) |m|)

s is the standard deviation, e the standard error of what is measured (of ruin at most 0.2 p, of the mean at most half of
what may be lost), m the mean of the policy that was learned at ψ = 0. Where x > 0 the price ψ rises: for tail and ruin
because the limit is exceeded, for the mean because some of it may still be given up.

A higher price lowers the mean too, and beyond some price the tail gets worse. In a location–scale family CVaR is mean − k
s, whose gradient is that of the mean − ψ · variance at ψ = k / (2 s), k = (mean − CVaR) / s; and P(G < c) falls with (mean
− c) / s, whose gradient points the same way as that of the mean − ψ · variance at ψ = (mean − c) / (2 s²). So no price
above is asked; where the mean is below c, none is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vpac.errors import UserError
from vpac.risk import metrics
from vpac.risk.bounds import probability_below
from vpac.risk.intervals import Interval, cvar_interval, normal_quantile, skewed_mean_interval
from vpac.typing import FloatArray


@dataclass(frozen=True)
class NeutralMean:
    """The mean return that was learned at ψ = 0."""

    mean: float
    error: float
    """Its standard error."""


@dataclass(frozen=True)
class TailLimit:
    """CVaR_α(G) ≥ c: the worst α share of episodes returns c or more on average."""

    alpha: float
    least: float
    name: ClassVar[str] = "cvar"
    percent: ClassVar[bool] = False

    @property
    def in_words(self) -> str:
        """As it was given."""
        return f"{self.symbol} ≥ {self.least:g}"

    @property
    def symbol(self) -> str:
        """What is limited."""
        return f"mean of the worst {100 * self.alpha:g} %"

    @property
    def level(self) -> float:
        """The return that it is about."""
        return self.least

    def value(self, returns: FloatArray) -> float:
        """CVaR_α."""
        return float(metrics.cvar(returns, self.alpha))

    def excess(self, returns: FloatArray, reference: NeutralMean | None = None) -> float:
        """x."""
        edge = float(metrics.value_at_risk(returns, self.alpha))
        error = _error(np.minimum(returns - edge, 0.0) / self.alpha)
        return _share(self.least - self.value(returns) + error, float(metrics.std(returns)))

    def most(self, returns: FloatArray) -> float:
        """The largest ψ that is of use."""
        return _best_price(returns, self.value(returns))

    def check(self, returns: FloatArray, level: float, reference: NeutralMean | None = None) -> tuple[Interval, float]:
        """The measured value with its interval, and its bound."""
        return cvar_interval(returns, self.alpha, level=level), self.least

    def holds(self, found: Interval, bound: float) -> bool:
        """Whether the interval reaches the bound."""
        return (found.high if math.isfinite(found.high) else found.estimate) >= bound

    def missing(self, value: Any, bound: float) -> Any:
        """By how much values miss the bound; negative where they keep it."""
        return bound - value


@dataclass(frozen=True)
class RuinLimit:
    """P(G < c) ≤ p: a return below c is rare."""

    probability: float
    below: float
    name: ClassVar[str] = "ruin"
    percent: ClassVar[bool] = True

    @property
    def in_words(self) -> str:
        """As it was given."""
        return f"{self.symbol} ≤ {100 * self.probability:g} %"

    @property
    def symbol(self) -> str:
        """What is limited."""
        return f"P(return < {self.below:g})"

    @property
    def level(self) -> float:
        """The return that it is about."""
        return self.below

    def value(self, returns: FloatArray) -> float:
        """q, the share of returns below c."""
        return float(np.mean(returns < self.below))

    def excess(self, returns: FloatArray, reference: NeutralMean | None = None) -> float:
        """x."""
        p, q = self.probability, self.value(returns)
        q += min(math.sqrt(p * (1.0 - p) / len(returns)), 0.2 * p)
        return (q - p) / max(q, p)

    def most(self, returns: FloatArray) -> float:
        """The largest ψ that is of use."""
        return _best_price(returns, self.below)

    def check(self, returns: FloatArray, level: float, reference: NeutralMean | None = None) -> tuple[Interval, float]:
        """The measured share with its interval, and its bound."""
        return probability_below(returns, self.below, level=level), self.probability

    def holds(self, found: Interval, bound: float) -> bool:
        """Whether the interval reaches the bound."""
        return found.low <= bound

    def missing(self, value: Any, bound: float) -> Any:
        """By how much values miss the bound; negative where they keep it."""
        return value - bound


@dataclass(frozen=True)
class MeanLimit:
    """The mean stays above a share k of that of the risk-neutral policy: m − (1 − k) |m|."""

    kept: float
    name: ClassVar[str] = "mean"
    percent: ClassVar[bool] = False
    symbol: ClassVar[str] = "mean"

    @property
    def in_words(self) -> str:
        """As it was given."""
        return f"at least {100 * self.kept:g} % of the mean at ψ = 0"

    def value(self, returns: FloatArray) -> float:
        """The mean."""
        return float(returns.mean())

    def floor(self, reference: NeutralMean | None) -> float:
        """The smallest mean that is accepted; NaN before the reference is known."""
        return math.nan if reference is None else reference.mean - (1.0 - self.kept) * abs(reference.mean)

    def excess(self, returns: FloatArray, reference: NeutralMean | None = None) -> float:
        """x: positive while some of the mean may still be given up."""
        assert reference is not None
        allowed = (1.0 - self.kept) * abs(reference.mean)
        spare = self.value(returns) - min(_error(returns), 0.5 * allowed) - self.floor(reference)
        return _share(spare, allowed)

    def check(self, returns: FloatArray, level: float, reference: NeutralMean | None = None) -> tuple[Interval, float]:
        """The mean with its interval, which allows for the error of the reference as well, and its bound."""
        found = skewed_mean_interval(returns, level=level)
        unsure = 0.0 if reference is None else normal_quantile(level) * self.kept * reference.error
        down, up = math.hypot(found.estimate - found.low, unsure), math.hypot(found.high - found.estimate, unsure)
        return Interval(found.estimate, found.estimate - down, found.estimate + up), self.floor(reference)

    def holds(self, found: Interval, bound: float) -> bool:
        """Whether the interval reaches the bound."""
        return (found.high if math.isfinite(found.high) else found.estimate) >= bound

    def missing(self, value: Any, bound: float) -> Any:
        """By how much values miss the bound; negative where they keep it."""
        return bound - value


HeldLimit = TailLimit | RuinLimit | MeanLimit


def _error(terms: FloatArray) -> float:
    """The standard error of a mean."""
    return float(np.std(terms, ddof=1) / math.sqrt(len(terms)))


def _share(what: float, unit: float) -> float:
    """A quotient kept within ±1, also of a unit of 0."""
    return min(max(what / unit, -1.0), 1.0) if unit > 0.0 else float(np.sign(what))


def _best_price(returns: FloatArray, level: float) -> float:
    """(mean − level) / (2 s²), and 0 if the mean is below the level."""
    variance, above = float(metrics.variance(returns)), float(returns.mean()) - level
    return max(above, 0.0) / (2.0 * variance) if variance > 0.0 else math.inf


def pair(given: Any, name: str, example: str) -> tuple[float, float]:
    """A probability within (0, 1) and a return, from a pair or from text such as "0.05:0"."""
    parts: Sequence[Any] = given.split(":") if isinstance(given, str) else given
    try:
        first, second = (float(part) for part in parts)
    except (TypeError, ValueError):
        raise UserError(
            f"{name} of a budget must be a probability and a return, for example {example}, got {given!r}"
        ) from None
    return probability(first, name), finite(second, name)


def probability(value: Any, name: str) -> float:
    """A number between 0 and 1, both excluded."""
    good = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (good and 0.0 < value < 1.0):
        raise UserError(f"{name} of a budget must be above 0 and below 1, got {value!r}")
    return float(value)


def finite(value: float, name: str) -> float:
    """A return that can be reached."""
    if not math.isfinite(value):
        raise UserError(f"the return in {name} of a budget must be finite, got {value!r}")
    return value
