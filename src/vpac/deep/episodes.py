"""The episodes that end while environments are stepped."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vpac.typing import Numbers

__all__ = ["Episode", "Episodes", "recently"]


class Episode(NamedTuple):
    """An episode that has ended."""

    score: float
    """Undiscounted."""
    discounted: float
    """With the discount of the mean."""
    length: float
    priced: float
    """With the discount of the variance."""


@dataclass
class Episodes:
    """Returns of the episodes that have ended; what is underway is kept for each environment."""

    gamma: float
    score: Numbers
    """Undiscounted sums underway."""
    sums: Numbers
    """Discounted sums underway."""
    lengths: Numbers
    variance_gamma: float
    priced: Numbers
    """Sums underway, with the discount of the variance."""
    ended: list[Episode] = field(default_factory=list)
    """Those that have ended since `take`."""

    @classmethod
    def of(cls, n: int, gamma: float, variance_gamma: float | None = None) -> Episodes:
        """Of `n` environments."""
        other = gamma if variance_gamma is None else variance_gamma
        return cls(gamma, np.zeros(n), np.zeros(n), np.zeros(n), other, np.zeros(n))

    def add(self, rewards: Numbers, over: Any, valid: Any) -> None:
        """A step of each environment."""
        self.score += rewards * valid
        self.sums += self.gamma**self.lengths * rewards * valid
        self.priced += self.variance_gamma**self.lengths * rewards * valid
        self.lengths += valid
        if over.any():
            for i in np.flatnonzero(over):
                found = (self.score[i], self.sums[i], self.lengths[i], self.priced[i])
                self.ended.append(Episode(*(float(x) for x in found)))
            self.restart(over)

    def restart(self, which: Any = slice(None)) -> None:
        """Forget what is underway."""
        self.score[which] = self.sums[which] = self.lengths[which] = self.priced[which] = 0.0

    def take(self) -> list[Episode]:
        """The episodes that have ended since it was last asked."""
        found, self.ended = self.ended, []
        return found


def recently(ended: Collection[Episode]) -> dict[str, float]:
    """Mean and variance of episodes; NaN of none."""
    score, sums, lengths, priced = np.array(list(ended)).reshape(-1, 4).T if ended else np.full((4, 1), np.nan)
    return {
        "score_mean": float(score.mean()), "score_variance": float(score.var()), "return_mean": float(sums.mean()),
        "return_variance": float(sums.var()), "length_mean": float(lengths.mean()), "priced_variance": float(priced.var()),
    }  # fmt: skip
