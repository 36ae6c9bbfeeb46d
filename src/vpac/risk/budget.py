"""A variance budget: maximise the mean subject to variance ≤ V, with a controller that adjusts ψ.

ψ is the multiplier of the constraint: mean − ψ · (variance − V). A PID controller measures the variance at intervals and sets
ψ. Its quantities have no units, so its gains do not depend on the scale of rewards:

    excess   x = (variance − V) / max(variance, V)                  from −1 (no variance) to 1 (far too much)
    control  u = K_p x + I + K_d ẋ,   kept in [0, log(1 + largest)]
    price    ψ = (exp(u) − 1) / √V                                   in units of 1/reward

Small ψ change linearly, large ones exponentially. Time is counted in samples: a look (one measurement) at which a quarter of
the sample is new advances it by ¼. Derivatives are of the measurements, and smoothed. The integral I is clamped to the range
of u, does not grow while u is at its limit, and waits while the variance is already approaching the budget, because policies
respond with a delay (anti-windup).

The budget may lie between two actions, and a mixture of two varies more than their average: at a constant ψ a policy
converges to one or the other. The proportional part, which responds at once, keeps it between them.

Other limits have an excess x for the same controller. With several limits the one that is exceeded most counts; a share of the
mean to be kept limits all of them, and alone it lets ψ rise until the share is reached. Without a V the unit of ψ is the
standard deviation of the returns at the first look, in place of √V.

All limits, in the user's words; `Limit.judge` decides whether a measured policy keeps them:

    keep-mean 0.95      the mean is at least 95 % of a baseline's: of the policy at ψ = 0, or of another on common
                        random numbers
    min-mean 30         the mean is at least 30
    max-std 4           the standard deviation is at most 4
    max-variance 16     the variance is at most 16
    min-cvar 0.1:100    the worst tenth averages at least 100
    max-ruin 0.05:0     P(G < 0) is at most 5 %

A budget keeps keep-mean, min-cvar and max-ruin with the same controller, which gets the excess x of each, from −1 to 1, and
the largest useful ψ from a sample of returns:

    min-cvar    CVaR_α(G) ≥ c                 x = (c − CVaR + e) / s               ψ ≤ (mean − CVaR) / (2 s²)
    max-ruin    P(G < c) ≤ p                  x = (q + e − p) / max(q + e, p)      ψ ≤ (mean − c) / (2 s²)
    keep-mean   mean ≥ m − (1 − k) |m|        x = (mean − e − floor) / ((1 − k) |m|)

s is the standard deviation, e the standard error of the estimate (for ruin at most 0.2 p, for the mean at most half of what
may be lost), m the mean of the policy learned at ψ = 0. While x > 0, ψ rises: for tail and ruin because the limit is exceeded,
for the mean because more of it may be given up.

A higher ψ lowers the mean too, and beyond some ψ the tail gets worse. In a location–scale family CVaR is mean − k s, whose
gradient is that of mean − ψ · variance at ψ = k / (2 s), k = (mean − CVaR) / s; and P(G < c) falls with (mean − c) / s, whose
gradient has the direction of that of mean − ψ · variance at ψ = (mean − c) / (2 s²). So ψ stays below these values, and is 0
while the mean is below c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np

from vpac.checks import real
from vpac.errors import UserError, one_of, suggestion
from vpac.files import jsonable
from vpac.risk import intervals, metrics
from vpac.risk.intervals import Interval
from vpac.risk.sample import ReturnSample
from vpac.typing import FloatArray

LIMIT_METHODS = {
    "keep-mean": "Hall, of the paired differences G − share · baseline", "min-mean": "Hall",
    "max-std": "Hall or rare events", "max-variance": "Hall or rare events", "min-cvar": "Hall",
    "max-ruin": "Clopper–Pearson, for every distribution",
}  # fmt: skip
LIMIT_KINDS = tuple(LIMIT_METHODS)
ONE_OF_TWO = "a budget is max_variance or max_std: give one of them"
NO_BASELINE = "--keep-mean needs a policy to compare with: --baseline RUN"
Holding = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class NeutralMean:
    """The mean return of the policy learned at ψ = 0."""

    mean: float
    error: float
    """Its standard error."""


@dataclass(frozen=True)
class Limit:
    """A limit of the return."""

    kind: str
    """One of `LIMIT_KINDS`."""
    value: float
    """The limit itself."""
    at: float = 0.0
    """Share of worst episodes for min-cvar, threshold c for max-ruin."""

    def __post_init__(self) -> None:
        one_of(self.kind, LIMIT_KINDS, "limit")
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
        """Parse the value of an option: a number, or two with a colon between them."""
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

    # Judging a measured policy

    def judge(self, sample: ReturnSample, level: float = 0.95, baseline: ReturnSample | None = None) -> dict[str, Any]:
        """The limit, the estimate with its interval, and whether it holds, as plain data."""
        found, target = self._measured(sample, level, baseline)
        if self.kind.startswith("max"):
            well, ill = found.high <= target, found.low > target
        else:
            well, ill = found.low >= target, found.high < target
        verdict: Holding = "holds" if well else "does not hold" if ill else "undecided"  # unknown ends decide nothing
        return {
            "limit": asdict(self), "words": self.words, "measured": asdict(found), "verdict": verdict,
            "episodes": len(sample), "method": LIMIT_METHODS[self.kind],
        }  # fmt: skip

    def _measured(self, sample: ReturnSample, level: float, baseline: ReturnSample | None) -> tuple[Interval, float]:
        """The estimate, and the number that it is compared with."""
        if self.kind == "keep-mean":
            if baseline is None or len(baseline) != len(sample):
                raise UserError(NO_BASELINE)
            return intervals.skewed_mean_interval(sample.returns - self.value * baseline.returns, level=level), 0.0
        if self.kind in ("min-cvar", "max-ruin"):
            return self.check(sample.returns, level)
        return sample.interval(self.name, level), self.value

    # Keeping a limit during training: keep-mean, min-cvar and max-ruin

    @property
    def name(self) -> str:
        """The limited quantity: mean, std, variance, cvar or ruin."""
        return self.kind.partition("-")[2]

    @property
    def symbol(self) -> str:
        """The limited quantity as a formula, for messages."""
        tail = {"cvar": f"mean of the worst {100 * self.at:g} %", "ruin": f"P(return < {self.at:g})"}
        return tail.get(self.name, "mean")

    @property
    def in_words(self) -> str:
        """The limit as it was given."""
        if self.kind == "keep-mean":
            return f"at least {100 * self.value:g} % of the mean at ψ = 0"
        return f"{self.symbol} " + (f"≥ {self.value:g}" if self.name == "cvar" else f"≤ {100 * self.value:g} %")

    @property
    def level(self) -> float:
        """The threshold of a limit of the tail."""
        return self.value if self.kind == "min-cvar" else self.at

    def of(self, returns: FloatArray) -> float:
        """CVaR_α, the share q of returns below c, or the mean."""
        if self.kind == "min-cvar":
            return float(metrics.cvar(returns, self.at))
        return float(np.mean(returns < self.at) if self.kind == "max-ruin" else returns.mean())

    def excess(self, returns: FloatArray, reference: NeutralMean | None = None) -> float:
        """x; for the mean positive while more of it may be given up."""
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
        """The largest useful ψ: (mean − level) / (2 s²), and 0 if the mean is below the level."""
        level = self.of(returns) if self.kind == "min-cvar" else self.at
        variance, above = float(metrics.variance(returns)), float(returns.mean()) - level
        return max(above, 0.0) / (2.0 * variance) if variance > 0.0 else math.inf

    def floor(self, reference: NeutralMean | None) -> float:
        """The smallest accepted mean; NaN while the reference is unknown."""
        return math.nan if reference is None else reference.mean - (1.0 - self.value) * abs(reference.mean)

    def check(self, returns: FloatArray, level: float, reference: NeutralMean | None = None) -> tuple[Interval, float]:
        """The estimate with its interval (for a mean including the error of the reference), and its bound."""
        if self.kind == "min-cvar":
            return intervals.cvar_interval(returns, self.at, level=level), self.value
        if self.kind == "max-ruin":
            return intervals.probability_below(returns, self.at, level=level), self.value
        found = intervals.skewed_mean_interval(returns, level=level)
        unsure = 0.0 if reference is None else intervals.normal_quantile(level) * self.value * reference.error
        down, up = math.hypot(found.estimate - found.low, unsure), math.hypot(found.high - found.estimate, unsure)
        return Interval(found.estimate, found.estimate - down, found.estimate + up), self.floor(reference)

    def reaches(self, found: Interval, bound: float) -> bool:
        """Whether an interval reaches the bound; an unknown end counts as the estimate."""
        end = found.low if self.kind == "max-ruin" else found.high
        return bool(self.missing(end if math.isfinite(end) else found.estimate, bound) <= 0.0)

    def missing(self, value: Any, bound: float) -> Any:
        """Distance by which values miss the bound; negative if they keep it."""
        return value - bound if self.kind == "max-ruin" else bound - value


def _error(terms: FloatArray) -> float:
    """The standard error of a mean."""
    return float(np.std(terms, ddof=1) / math.sqrt(len(terms)))


def _share(what: float, unit: float) -> float:
    """A quotient clipped to ±1, also for a unit of 0."""
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


SMOOTHING = 0.5
"""Share of a new slope in the smoothed one."""
SETTLING_TIME = 200.0
"""The integral waits while the variance would reach its budget within this many samples."""


class Multiplier(NamedTuple):
    """The state of the controller, as plain numbers."""

    psi: float = 0.0
    """The current ψ, in units of 1/reward."""
    integral: float = 0.0
    """I, dimensionless."""
    excess: float = 0.0
    """x at the last look."""
    slope: float = 0.0
    """ẋ, smoothed."""
    looks: int = 0
    """Number of measurements."""
    begin: float = 0.0
    """The time at which the measurement of the mean at ψ = 0 ends and ψ may rise."""
    seen: float = 0.0
    """Number of measured episodes at ψ = 0; their mean is `neutral`, the sum of squared deviations from it `squares`."""
    neutral: float = 0.0
    squares: float = 0.0
    unit: float = 0.0
    """The standard deviation that is the unit of ψ, if no variance is limited."""

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> Multiplier:
        """Restore what `as_dict` gave."""
        numbers = {name: float(saved[name]) for name in cls._fields if name in saved}
        return cls(**numbers | {"looks": int(saved["looks"])})  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, float]:
        """State as plain data; fields for limits other than the variance are left out if none is set."""
        return dict(zip(self._fields, self if any(self[5:]) else self[:5], strict=False))

    @property
    def reference(self) -> NeutralMean | None:
        """The mean at ψ = 0; None before it is measured."""
        if self.seen < 2.0:
            return None
        return NeutralMean(self.neutral, math.sqrt(self.squares / (self.seen - 1.0) / self.seen))

    def with_neutral(self, returns: FloatArray) -> Multiplier:
        """Add episodes at ψ = 0 (sums of squares are merged as by Chan, Golub and LeVeque)."""
        n = len(returns)
        if not n:
            return self
        total, apart = self.seen + n, float(returns.mean()) - self.neutral
        squares = self.squares + float(np.square(returns - returns.mean()).sum()) + apart**2 * self.seen * n / total
        return self._replace(seen=total, neutral=self.neutral + apart * n / total, squares=squares)


@dataclass(frozen=True)
class Budget:
    """Limits of the return: its variance or standard deviation (one of them), its tail, and its mean; one or several.

    The return is discounted; its variance includes start state, environment and the policy's own draws.
    """

    max_variance: float | None = None
    """Largest variance V of the return, in units of reward²."""
    max_std: float | None = None
    """Largest standard deviation √V of the return, in units of reward."""
    keep_mean: float | None = None
    """PPO family: least variance for this share, e.g. 0.95, of the mean learned with ψ = 0 at first (`wait`)."""
    min_cvar: tuple[float, float] | None = None
    """PPO family: the worst share A of returns has at least the mean C; (A, C) or text such as 0.1:100."""
    max_ruin: tuple[float, float] | None = None
    """PPO family: a return below C has at most probability P; (P, C) or text such as 0.05:0."""
    wait: float = 0.0
    """Episodes, or steps of the PPO family, with ψ = 0 at first: with ψ > 0 an untrained policy may learn to stand still.
    For `keep_mean` 0 means 40 % of the training; that mean is measured at the end of this time."""
    proportional: float = 1.0
    """K_p."""
    integral: float = 0.1
    """K_i: the change of I in one sample at x = 1."""
    derivative: float = 0.1
    """K_d."""
    largest: float = 100.0
    """The largest ψ, as ψ · √V."""

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the class is frozen
        for name, example in (("min_cvar", "0.1:100 or (0.1, 100)"), ("max_ruin", "0.05:0 or (0.05, 0)")):
            if getattr(self, name) is not None:
                set_field(self, name, pair(getattr(self, name), name, example))
        if self.keep_mean is not None:
            set_field(self, "keep_mean", probability(self.keep_mean, "keep_mean"))
        both = self.max_variance is not None and self.max_std is not None
        if both or not (self.limits or self.limits_variance):
            raise UserError(
                f"{ONE_OF_TWO}, for example Budget(max_std=2), or keep_mean, min_cvar or max_ruin, for example "
                "Budget(max_ruin=(0.05, 0))"
            )
        for name in ("max_variance", "max_std", "largest", "wait", "proportional", "integral", "derivative"):
            if (value := getattr(self, name)) is not None:
                least = 1e-150 if name in ("max_variance", "max_std", "largest") else 0.0
                expected = "a positive number" if least else "a number that is not negative"
                set_field(self, name, real(value, f"{name} of a budget", expected, least, 1e150))

    @property
    def limits_variance(self) -> bool:
        """Whether the variance is limited."""
        return self.max_variance is not None or self.max_std is not None

    @property
    def variance(self) -> float:
        """V; infinite if the variance is not limited."""
        if self.max_std is not None:
            return self.max_std**2
        return math.inf if self.max_variance is None else self.max_variance

    @property
    def std(self) -> float:
        """√V, the unit of 1/ψ: ψ · √V is dimensionless."""
        return math.sqrt(self.variance)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Limits other than that of the variance."""
        tail = self.min_cvar and Limit("min-cvar", self.min_cvar[1], self.min_cvar[0])
        ruin = self.max_ruin and Limit("max-ruin", *self.max_ruin)
        mean = None if self.keep_mean is None else Limit("keep-mean", self.keep_mean)
        return tuple(limit for limit in (tail, ruin, mean) if limit is not None)

    @property
    def in_words(self) -> str:
        """The budget as it was given."""
        words = [self.variance_in_words] if self.limits_variance else []
        return " and ".join([*words, *(limit.in_words for limit in self.limits)])

    @property
    def variance_in_words(self) -> str:
        """The limit of the variance as it was given."""
        return f"variance ≤ {self.variance:g}" if self.max_std is None else f"standard deviation ≤ {self.max_std:g}"

    def as_dict(self) -> dict[str, Any]:
        """Budget as plain data, which `as_budget` accepts."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def step(self, state: Multiplier, variance: float, share: float = 1.0) -> Multiplier:
        """The state after a measurement of the variance, in units of reward²; one that is not finite changes nothing.

        `share`: how much of the sample is new since the last look, in (0, 1].
        """
        return self._moved(state, self._excess(variance), share, self.std) if math.isfinite(variance) else state

    def look(self, state: Multiplier, returns: FloatArray, share: float = 1.0, aim: float = 1.0) -> Multiplier:
        """The state after a measurement of all limits in a sample of returns; see `step`. `aim`: the share of V aimed at."""
        variance = float(np.var(returns, ddof=1))
        if not math.isfinite(variance):
            return state
        unit = self.std if self.limits_variance else state.unit or math.sqrt(variance)
        if unit == 0.0:
            return state
        wanted = [(self._excess(variance / aim), math.inf)] if self.limits_variance else []
        risky = [limit for limit in self.limits if limit.name != "mean"]
        wanted += [(limit.excess(returns), limit.most(returns)) for limit in risky]
        excess, most = max(wanted) if wanted else (1.0, math.inf)
        if self.keep_mean is not None:
            excess = min(excess, Limit("keep-mean", self.keep_mean).excess(returns, state.reference))
        return self._moved(state._replace(unit=unit), excess, share, unit, most)

    def _excess(self, variance: float) -> float:
        return (variance - self.variance) / max(variance, self.variance)

    def _moved(
        self, state: Multiplier, excess: float, share: float, unit: float, largest: float = math.inf
    ) -> Multiplier:
        """The controller's step; ψ · unit stays below `self.largest`, ψ below `largest`."""
        most = math.log1p(min(self.largest, largest * unit))
        raw = (excess - state.excess) / share if state.looks else 0.0
        slope = (1.0 - SMOOTHING) * state.slope + SMOOTHING * raw
        around = self.proportional * excess + self.derivative * slope
        grown = min(max(state.integral + self.integral * excess * share, 0.0), most)
        if excess * (excess + SETTLING_TIME * slope) < 0.0:
            grown = state.integral
        integral = min(grown, max(state.integral, most - around))
        control = min(max(around + integral, 0.0), most)
        return state._replace(
            psi=math.expm1(control) / unit, integral=integral, excess=excess, slope=slope, looks=state.looks + 1
        )

    def is_largest(self, psi: float) -> bool:
        """Whether ψ is near its upper bound."""
        return psi * self.std >= 0.9 * self.largest


LIMIT_WORDS = {
    "std": ("max_std", 1), "variance": ("max_variance", 1), "keep-mean": ("keep_mean", 1), "cvar": ("min_cvar", 2),
    "ruin": ("max_ruin", 2),
}  # fmt: skip
"""Limits in text: the field and how many numbers it takes."""


def as_budget(value: Any) -> Budget | None:
    """A budget from a budget, a mapping, or text: "std:2", "variance:4", "keep-mean:0.95", "cvar:0.1:100" or "ruin:0.05:0", or
    several with commas between them; one number more is `wait`."""
    if value is None or isinstance(value, Budget):
        return value
    if isinstance(value, Mapping):
        known = [field.name for field in fields(Budget)]
        for name in value:
            if name not in known:
                raise UserError(f"a budget has no {name!r}{suggestion(str(name), known)}")
        return Budget(**value)
    found: dict[str, Any] = {}
    try:
        for text in value.split(","):
            word, *given = text.strip().split(":")
            (name, count), numbers = LIMIT_WORDS[word], [float(number) for number in given]
            if len(numbers) not in (count, count + 1) or name in found:
                raise ValueError
            limit, wait = numbers[:count], numbers[count:]
            found |= {name: limit[0] if count == 1 else tuple(limit)} | ({"wait": wait[0]} if wait else {})
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(
            f"cannot read a budget from {value!r}: expected std:S or variance:V, for example std:2, or keep-mean:K, cvar:A:C "
            "or ruin:P:C, with commas between them"
        ) from None
    return Budget(**found)


LEEWAY = 0.05
"""Share by which an exact variance may exceed its budget and count as met: during learning it fluctuates around it."""


class PricePath(NamedTuple):
    """The history of ψ, one row per look."""

    at: FloatArray
    """Episodes, or steps of the PPO family, before it."""
    psi: FloatArray
    """ψ from then on, in units of 1/reward."""
    variance: FloatArray
    """The measured variance; NaN while the sample is too small."""
    error: FloatArray
    """The standard error of its logarithm; 0 where it is exact, NaN where it is unknown."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> PricePath:
        """Path from rows (at, psi, variance, error)."""
        return cls(*np.array(rows, np.float64).reshape(-1, 4).T.copy())

    def smallest(self, level: float = 0.95) -> tuple[Interval, float, int]:
        """The smallest variance of all looks, its time, and the number of looks.

        The lowest of many estimates is low partly by chance. So its interval, s² exp(± z e), has the confidence
        1 − (1 − level) / looks (Bonferroni): all intervals together hold with confidence `level`.
        """
        looks = int(np.isfinite(self.variance).sum())
        if not looks:
            return Interval(math.nan, math.nan, math.nan), math.nan, 0
        which = int(np.nanargmin(self.variance))
        z, found = intervals.normal_quantile(1.0 - (1.0 - level) / looks), float(self.variance[which])
        factor = float(np.exp(z * self.error[which]))
        return Interval(found, found / factor, found * factor), float(self.at[which]), looks


def measured(returns: FloatArray, least: int) -> tuple[float, float]:
    """The variance of returns and the standard error of its logarithm; NaN for fewer than `least` returns (at least 5).

    The error is at least that of normal returns, because the lowest of many variances tends to have too small a kurtosis.
    """
    if len(returns) < least:
        return math.nan, math.nan
    variance = float(np.var(returns, ddof=1))
    with np.errstate(all="ignore"):  # returns that hardly differ
        normal = math.sqrt(2.0 / (len(returns) - 1))
        error = max(intervals.log_variance_error(returns), normal) if variance > 0.0 else 0.0
    return variance, error


@dataclass(frozen=True)
class LimitCheck:
    """Whether a trained policy keeps a limit other than that of the variance."""

    limit: Limit
    found: Interval
    """The estimate."""
    bound: float
    """The bound; NaN if the mean at ψ = 0 is unknown."""
    closest: float
    """The value at the measurement that came closest to all limits."""

    @property
    def met(self) -> bool:
        """Whether the interval reaches the bound."""
        return self.limit.reaches(self.found, self.bound)

    @property
    def words(self) -> str:
        """The result in words."""
        asked = f", at least {self.bound:.4g} is asked" if self.limit.name == "mean" else ""
        return f"{self.limit.symbol} is {_shown(self.found, 1.0, self.limit.name == 'ruin')}{asked}"

    def as_dict(self) -> dict[str, Any]:
        """Result as plain data."""
        about = {"name": self.limit.name, "limit": self.limit.in_words, "bound": self.bound, "met": self.met}
        return {**about, **asdict(self.found), "closest": self.closest}


def _shown(interval: Interval, power: float = 1.0, percent: bool = False) -> str:
    """An estimate with its interval, if known."""
    unit, sign = (100.0, " %") if percent else (1.0, "")
    estimate, low, high = (unit * x**power for x in (interval.estimate, interval.low, interval.high))
    return f"{estimate:.4g}{sign}" + (f" ({low:.4g} … {high:.4g}{sign})" if math.isfinite(interval.low) else "")


def check_kinds(limits: Sequence[Limit], compared: bool) -> None:
    """Reject limits of both standard deviation and variance, and a share of a mean if nothing is `compared` with."""
    kinds = {limit.kind for limit in limits}
    if {"max-std", "max-variance"} <= kinds:
        raise UserError(f"{ONE_OF_TWO}, for example --max-std 2")
    if "keep-mean" in kinds and not compared:
        raise UserError(NO_BASELINE)


def check_limits(
    budget: Budget, returns: FloatArray, state: Multiplier, looks: Mapping[str, FloatArray], level: float, now: float
) -> tuple[tuple[LimitCheck, ...], float, float]:
    """Check all limits other than the variance in a sample of returns, measured at the time `now`; returns the checks, and the
    time and the variance of the measurement, this one or a look during training, that came closest to all limits.

    `state` has the mean at ψ = 0; `looks` are the measurements during training: "at", "variance", and the values of each limit.
    """
    checked = [limit.check(returns, level, state.reference) for limit in budget.limits]
    final = {"at": now, "variance": float(np.var(returns, ddof=1))}
    final |= {limit.name: found.estimate for limit, (found, _) in zip(budget.limits, checked, strict=True)}
    every = {name: np.append(looks[name], value) for name, value in final.items()}
    unit = math.sqrt(float(np.var(returns)) or 1.0)
    missing = [every["variance"] / budget.variance - 1.0] if budget.limits_variance else []
    for limit, (_, bound) in zip(budget.limits, checked, strict=True):
        missing.append(limit.missing(every[limit.name], bound) / (bound if limit.name == "ruin" else unit))
    early = max(budget.wait, state.begin, 0.1 * now)  # looks at a policy that has hardly learned say nothing
    worst = np.where(every["at"] > early, np.max(missing, axis=0), np.nan)
    which = int(np.nanargmin(worst)) if np.isfinite(worst[:-1]).any() else None
    nearest = [math.nan if which is None else float(every[limit.name][which]) for limit in budget.limits]
    found = zip(budget.limits, checked, nearest, strict=True)
    at, variance = (math.nan if which is None else float(every[name][which]) for name in ("at", "variance"))
    return tuple(LimitCheck(limit, *check, closest) for limit, check, closest in found), at, variance


@dataclass(frozen=True)
class BudgetReport:
    """Whether a trained policy keeps its budget."""

    budget: Budget
    """The budget of training."""
    mean: Interval
    """Mean return of the policy."""
    variance: Interval
    """Variance of its return; both ends are the estimate if it is exact."""
    psi: float
    """The final ψ."""
    smallest: Interval
    """The smallest measured variance, during training or at the end; its interval allows for the number of looks."""
    smallest_at: float
    """The time of that measurement."""
    counted: str
    """The unit of `smallest_at`: episodes or steps."""
    episodes: int | None
    """Episodes behind the intervals; None: mean and variance are exact."""
    looks: int = 1
    """Number of measured variances."""
    limits: tuple[LimitCheck, ...] = ()
    """Checks of the limits other than that of the variance."""
    closest_at: float = math.nan
    """Steps before the measurement that came closest to all limits, if there are such."""
    closest_variance: float = math.nan
    """The variance then."""
    gamma: float = 1.0
    """Discount of the return that was measured."""

    @property
    def met(self) -> bool:
        """Whether all limits are met, judged by their intervals; an exact variance may exceed its budget by 5 %."""
        return self.variance_met and all(check.met for check in self.limits)

    @property
    def variance_met(self) -> bool:
        """Whether the variance is at most its budget."""
        if self.episodes is None:
            return self.variance.estimate <= self.budget.variance * (1.0 + LEEWAY)
        low = self.variance.low if math.isfinite(self.variance.low) else self.variance.estimate
        return low <= self.budget.variance

    @property
    def words(self) -> str:
        """The result in a few sentences."""
        if self.limits:
            return self._words_of_limits()
        what, unit = ("variance", 1.0) if self.budget.max_std is None else ("standard deviation", 0.5)
        found = f"the {what} is {self._shown(self.variance, unit)}, the mean {self._shown(self.mean)}"
        how = "exactly" if self.episodes is None else self._measured
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

    @property
    def _measured(self) -> str:
        discounted = f", returns discounted with γ = {self.gamma:g}" if self.gamma < 1.0 else ""
        return f"measured in {self.episodes:,} episodes{discounted}"

    def _advice(self) -> str:
        if self.smallest.estimate <= self.budget.variance:
            was = "was" if self.episodes is None or self.smallest.high <= self.budget.variance else "may have been"
            return f"It {was} within the budget on the way: longer training or smaller step sizes may hold it."
        if self.budget.is_largest(self.psi):
            return f"ψ = {self.psi:.4g} is about as large as it may become: this learner finds no policy that varies so little."
        return f"ψ = {self.psi:.4g} is still below its largest value: longer training may help."

    def _words_of_limits(self) -> str:
        """The result if there are limits other than the variance."""
        deviation = "the variance" if self.budget.max_std is None else "the standard deviation"
        mean = [] if self.budget.keep_mean is not None else [f"mean {_shown(self.mean)}"]
        found = [*(check.words for check in self.limits), *mean, f"standard deviation {_shown(self.variance, 0.5)}"]
        text = f"{', '.join(found)} ({self._measured}), at ψ = {self.psi:.4g}."
        if self.met:
            return f"The budget, {self.budget.in_words}, is met within its intervals: {text}"
        missed = [check.limit.in_words for check in self.limits if not check.met]
        missed += [] if self.variance_met else [deviation]
        values = [(c.limit, Interval(c.closest, math.nan, math.nan)) for c in self.limits]
        near = [f"{limit.symbol} {_shown(value, 1.0, limit.name == 'ruin')}" for limit, value in values]
        near += [f"standard deviation {self.closest_variance**0.5:.4g}"] if self.budget.limits_variance else []
        closest = f" The closest look: {', '.join(near)}, after {self.closest_at:,.0f} steps."
        closest = " No look during training came closer than this final policy." if self.closest_is_final else closest
        closest = "" if math.isnan(self.closest_at) else closest
        said = "" if len(self.limits) + self.budget.limits_variance == 1 else f" ({'; '.join(missed)})"
        return f"The budget, {self.budget.in_words}, is not met{said}: {text}{closest} {self._advice_on_limits()}"

    @property
    def closest_is_final(self) -> bool:
        """Whether no look during training came closer to all limits than the final policy."""
        same = math.isclose(self.closest_variance, self.variance.estimate, rel_tol=1e-9)
        return same and all(check.closest == check.found.estimate for check in self.limits)

    def _advice_on_limits(self) -> str:
        nearest = "final policy" if self.closest_is_final else "closest look"
        checks = {check.limit.name: check for check in self.limits if not check.met}
        if "mean" in checks:
            if math.isnan(checks["mean"].bound):
                return "The mean at ψ = 0 was not measured yet: train longer than the risk-neutral part (`wait`)."
            return "Train longer, so that the price can settle, or with a longer risk-neutral part (`wait`)."
        if self.budget.keep_mean is not None:
            return "The mean that is to be kept may exclude the rest: ask for one without the other, or for less."
        if not checks:
            return f"Train longer, or ask for less: the {nearest} says what was within reach."
        level = max(check.limit.level for name, check in checks.items() if name != "mean")
        if self.mean.estimate <= level:
            return f"The mean itself is below {level:g}: train longer or better first, no price of variance helps."
        return (
            "Train longer, or with a stricter limit: a policy that is still learning ends on either side of its limit. Or let "
            f'it see the return so far (remember="return"), or ask for what the {nearest} reached.'
        )

    def _shown(self, interval: Interval, power: float = 1.0) -> str:
        return _shown(interval if self.episodes is not None else Interval(interval.estimate, math.nan, math.nan), power)

    def as_dict(self) -> dict[str, Any]:
        """Report as plain data; unknown numbers become null."""
        found = {
            "budget": self.budget.as_dict(), "max_variance": self.budget.variance, "met": self.met,
            "exact": self.episodes is None, "episodes": self.episodes, "mean": asdict(self.mean),
            "variance": asdict(self.variance), "psi": self.psi, "smallest_variance": self.smallest.estimate,
            "smallest_interval": asdict(self.smallest), "looks": self.looks,
            f"smallest_after_{self.counted}": self.smallest_at, "words": self.words,
        }  # fmt: skip
        found["limits"] = [*(check.as_dict() for check in self.limits), *self._variance_as_dict()]
        if self.limits:
            found["closest_after_steps"] = self.closest_at
        return dict(jsonable(found))

    def _variance_as_dict(self) -> list[dict[str, Any]]:
        """The limit of the variance, if there is one, with the names of `LimitCheck.as_dict`."""
        if not self.budget.limits_variance:
            return []
        name, power = ("variance", 1.0) if self.budget.max_std is None else ("std", 0.5)
        about = {"name": name, "limit": self.budget.variance_in_words, "met": self.variance_met}
        closest = self.closest_variance if self.limits else self.smallest.estimate
        numbers = {"bound": self.budget.variance, **asdict(self.variance), "closest": closest}
        return [{**about, **{name: number**power for name, number in numbers.items()}}]
