"""Limits in the user's words: how far returns exceed them, which moves ψ in training, and whether a measured policy holds them.

keep-mean 0.95      the mean is at least 95 % of a baseline's: of the policy at ψ = 0, or of another on common random numbers
min-mean 30         the mean is at least 30
max-std 4           the standard deviation is at most 4
max-variance 16     the variance is at most 16
min-cvar 0.1:100    the worst tenth averages at least 100
max-ruin 0.05:0     P(G < 0) is at most 5 %

A budget holds keep-mean, min-cvar and max-ruin by the controller of `budget`, which gets from a sample of returns how far
each is exceeded, x from −1 to 1, and how large ψ may become:

    min-cvar    CVaR_α(G) ≥ c                 x = (c − CVaR + e) / s               ψ ≤ (mean − CVaR) / (2 s²)
    max-ruin    P(G < c) ≤ p                  x = (q + e − p) / max(q + e, p)      ψ ≤ (mean − c) / (2 s²)
    keep-mean   mean ≥ m − (1 − k) |m|        x = (mean − e − floor) / ((1 − k) |m|)

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
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from vpac.checks import real
from vpac.errors import UserError, one_of
from vpac.risk import metrics
from vpac.risk.intervals import Interval, cvar_interval, normal_quantile, probability_below, skewed_mean_interval
from vpac.risk.sample import ReturnSample
from vpac.typing import FloatArray

METHODS = {
    "keep-mean": "Hall, of the paired differences G − share · baseline", "min-mean": "Hall",
    "max-std": "Hall or rare events", "max-variance": "Hall or rare events", "min-cvar": "Hall",
    "max-ruin": "Clopper–Pearson, for every distribution",
}  # fmt: skip
KINDS = tuple(METHODS)
Holding = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class NeutralMean:
    """The mean return that was learned at ψ = 0."""

    mean: float
    error: float
    """Its standard error."""


@dataclass(frozen=True)
class Limit:
    """A limit of the return."""

    kind: str
    """One of `KINDS`."""
    value: float
    """The limit itself."""
    at: float = 0.0
    """Of min-cvar the share of worst episodes; of max-ruin the return below which ruin begins."""

    def __post_init__(self) -> None:
        one_of(self.kind, KINDS, "limit")
        if not (np.isfinite(self.value) and np.isfinite(self.at)):
            raise UserError(f"--{self.kind} must be finite, got {self.value:g}")
        if self.kind in ("max-std", "max-variance") and self.value < 0.0:
            raise UserError(f"--{self.kind} must not be negative, got {self.value:g}")
        if self.kind == "keep-mean" and self.value <= 0.0:
            raise UserError(f"--keep-mean must be above 0, for example 0.95, got {self.value:g}")
        share = {"max-ruin": self.value, "min-cvar": self.at}.get(self.kind, 0.5)
        if not 0.0 < share <= 1.0:
            raise UserError(f"the probability of --{self.kind} must be above 0 and at most 1, got {share:g}")

    @classmethod
    def read(cls, kind: str, text: str | float) -> Limit:
        """From what follows the option: a number, or two with a colon between them."""
        parts = str(text).split(":")
        needed = 2 if kind in ("min-cvar", "max-ruin") else 1
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) != needed:
            example = {"min-cvar": "SHARE:RETURN, e.g. 0.1:100", "max-ruin": "PROBABILITY:RETURN, e.g. 0.05:0"}
            raise UserError(f"cannot read --{kind} {text}: expected {example.get(kind, 'a number')}")
        if kind == "min-cvar":
            return cls(kind, numbers[1], numbers[0])
        return cls(kind, *numbers)

    @property
    def words(self) -> str:
        """The limit as a sentence."""
        v = f"{self.value:g}".replace("-", "−")
        at = f"{self.at:g}".replace("-", "−")
        return {
            "keep-mean": f"the mean is at least {100 * self.value:g} % of the baseline's",
            "min-mean": f"the mean is at least {v}",
            "max-std": f"the standard deviation is at most {v}",
            "max-variance": f"the variance is at most {v}",
            "min-cvar": f"the worst {100 * self.at:g} % of episodes average at least {v}",
            "max-ruin": f"P(G < {at}) is at most {100 * self.value:g} %",
        }[self.kind]

    # Judged, of a policy that was measured

    def judge(self, sample: ReturnSample, level: float = 0.95, baseline: ReturnSample | None = None) -> dict[str, Any]:
        """The limit, what was measured with its interval, and whether it holds, as plain data."""
        found, target = self._measured(sample, level, baseline)
        if self.kind.startswith("max"):
            well, ill = found.high <= target, found.low > target
        else:
            well, ill = found.low >= target, found.high < target
        verdict: Holding = "holds" if well else "does not hold" if ill else "undecided"  # unknown ends decide nothing
        return {
            "limit": asdict(self), "words": self.words, "measured": asdict(found), "verdict": verdict,
            "episodes": len(sample), "method": METHODS[self.kind],
        }  # fmt: skip

    def _measured(self, sample: ReturnSample, level: float, baseline: ReturnSample | None) -> tuple[Interval, float]:
        """What is measured, and the number that it is compared with."""
        if self.kind == "keep-mean":
            if baseline is None or len(baseline) != len(sample):
                raise UserError("--keep-mean needs a policy to compare with: --baseline RUN")
            return skewed_mean_interval(sample.returns - self.value * baseline.returns, level=level), 0.0
        if self.kind in ("min-cvar", "max-ruin"):
            return self.check(sample.returns, level)
        return sample.interval(self.name, level), self.value

    # Held, by a budget: keep-mean, min-cvar and max-ruin

    @property
    def name(self) -> str:
        """What is limited: mean, std, variance, cvar or ruin."""
        return self.kind.partition("-")[2]

    @property
    def symbol(self) -> str:
        """The same for people."""
        tail = {"cvar": f"mean of the worst {100 * self.at:g} %", "ruin": f"P(return < {self.at:g})"}
        return tail.get(self.name, "mean")

    @property
    def in_words(self) -> str:
        """As a budget was given."""
        if self.kind == "keep-mean":
            return f"at least {100 * self.value:g} % of the mean at ψ = 0"
        return f"{self.symbol} " + (f"≥ {self.value:g}" if self.name == "cvar" else f"≤ {100 * self.value:g} %")

    @property
    def level(self) -> float:
        """The return that a limit of the tail is about."""
        return self.value if self.kind == "min-cvar" else self.at

    def of(self, returns: FloatArray) -> float:
        """CVaR_α, the share q of returns below c, or the mean."""
        if self.kind == "min-cvar":
            return float(metrics.cvar(returns, self.at))
        return float(np.mean(returns < self.at) if self.kind == "max-ruin" else returns.mean())

    def excess(self, returns: FloatArray, reference: NeutralMean | None = None) -> float:
        """x; of the mean positive while some of it may still be given up."""
        found = self.of(returns)
        if self.kind == "min-cvar":
            edge = float(metrics.value_at_risk(returns, self.at))
            error = _error(np.minimum(returns - edge, 0.0) / self.at)
            return _share(self.value - found + error, float(metrics.std(returns)))
        if self.kind == "max-ruin":
            p = self.value
            q = found + min(math.sqrt(p * (1.0 - p) / len(returns)), 0.2 * p)
            return (q - p) / max(q, p)
        assert reference is not None
        allowed = (1.0 - self.value) * abs(reference.mean)
        return _share(found - min(_error(returns), 0.5 * allowed) - self.floor(reference), allowed)

    def most(self, returns: FloatArray) -> float:
        """The largest ψ that is of use: (mean − level) / (2 s²), and 0 if the mean is below the level."""
        level = self.of(returns) if self.kind == "min-cvar" else self.at
        variance, above = float(metrics.variance(returns)), float(returns.mean()) - level
        return max(above, 0.0) / (2.0 * variance) if variance > 0.0 else math.inf

    def floor(self, reference: NeutralMean | None) -> float:
        """The smallest mean that is accepted; NaN before the reference is known."""
        return math.nan if reference is None else reference.mean - (1.0 - self.value) * abs(reference.mean)

    def check(self, returns: FloatArray, level: float, reference: NeutralMean | None = None) -> tuple[Interval, float]:
        """What is measured with its interval, of a mean with the error of the reference as well, and its bound."""
        if self.kind == "min-cvar":
            return cvar_interval(returns, self.at, level=level), self.value
        if self.kind == "max-ruin":
            return probability_below(returns, self.at, level=level), self.value
        found = skewed_mean_interval(returns, level=level)
        unsure = 0.0 if reference is None else normal_quantile(level) * self.value * reference.error
        down, up = math.hypot(found.estimate - found.low, unsure), math.hypot(found.high - found.estimate, unsure)
        return Interval(found.estimate, found.estimate - down, found.estimate + up), self.floor(reference)

    def reaches(self, found: Interval, bound: float) -> bool:
        """Whether an interval reaches the bound; an unknown end counts as the estimate."""
        end = found.low if self.kind == "max-ruin" else found.high
        return bool(self.missing(end if math.isfinite(end) else found.estimate, bound) <= 0.0)

    def missing(self, value: Any, bound: float) -> Any:
        """By how much values miss the bound; negative where they keep it."""
        return value - bound if self.kind == "max-ruin" else bound - value


def _error(terms: FloatArray) -> float:
    """The standard error of a mean."""
    return float(np.std(terms, ddof=1) / math.sqrt(len(terms)))


def _share(what: float, unit: float) -> float:
    """A quotient kept within ±1, also of a unit of 0."""
    return min(max(what / unit, -1.0), 1.0) if unit > 0.0 else float(np.sign(what))


def pair(given: Any, name: str, example: str) -> tuple[float, float]:
    """A probability within (0, 1) and a return, from a pair or from text such as "0.05:0"."""
    parts: Sequence[Any] = given.split(":") if isinstance(given, str) else given
    try:
        first, second = (float(part) for part in parts)
    except (TypeError, ValueError):
        expected = f"a probability and a return, for example {example}"
        raise UserError(f"{name} of a budget must be {expected}, got {given!r}") from None
    if not math.isfinite(second):
        raise UserError(f"the return in {name} of a budget must be finite, got {second!r}")
    return probability(first, name), second


def probability(value: Any, name: str) -> float:
    """A number between 0 and 1, both excluded."""
    expected = "above 0 and below 1"
    if not 0.0 < (found := real(value, f"{name} of a budget", expected)) < 1.0:
        raise UserError(f"{name} of a budget must be {expected}, got {value!r}")
    return found
