"""Limits in the user's words, and whether a measured policy holds them: decided by the interval, not by the estimate.

keep-mean 0.95      the mean is at least 95 % of a baseline's (on common random numbers)
min-mean 30         the mean is at least 30
max-std 4           the standard deviation is at most 4
max-variance 16     the variance is at most 16
min-cvar 0.1:100    the worst tenth averages at least 100
max-ruin 0.05:0     P(G < 0) is at most 5 %
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from vpac.errors import UserError, one_of
from vpac.risk.bounds import probability_below
from vpac.risk.intervals import Interval, skewed_mean_interval
from vpac.risk.sample import ReturnSample

KINDS = ("keep-mean", "min-mean", "max-std", "max-variance", "min-cvar", "max-ruin")
METHODS = {
    "keep-mean": "Hall, of the paired differences G − share · baseline", "min-mean": "Hall",
    "max-std": "Hall or rare events", "max-variance": "Hall or rare events", "min-cvar": "Hall",
    "max-ruin": "Clopper–Pearson, for every distribution",
}  # fmt: skip
Holding = Literal["holds", "does not hold", "undecided"]


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
        match self.kind:
            case "keep-mean":
                if baseline is None or len(baseline) != len(sample):
                    raise UserError("--keep-mean needs a policy to compare with: --baseline RUN")
                return skewed_mean_interval(sample.returns - self.value * baseline.returns, level=level), 0.0
            case "min-cvar":
                return sample.interval("cvar", level, alpha=self.at), self.value
            case "max-ruin":
                return probability_below(sample.returns, self.at, level=level), self.value
            case _:
                return sample.interval(self.kind.partition("-")[2], level), self.value
