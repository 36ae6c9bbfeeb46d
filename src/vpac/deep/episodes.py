"""The episodes that end while environments are stepped."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vpac.typing import Numbers

__all__ = ["Episodes", "recently"]


@dataclass
class Episodes:
    """Returns of the episodes that have ended; what is underway is kept for each environment."""

    gamma: float
    score: Numbers
    """Undiscounted sums underway."""
    sums: Numbers
    """Discounted sums underway."""
    lengths: Numbers
    ended: list[tuple[float, float, float]] = field(default_factory=list)
    """(score, discounted return, length) of each that has ended since `take`."""

    @classmethod
    def of(cls, n: int, gamma: float) -> Episodes:
        """Of `n` environments."""
        return cls(gamma, np.zeros(n), np.zeros(n), np.zeros(n))

    def add(self, rewards: Numbers, over: Any, valid: Any) -> None:
        """A step of each environment."""
        self.score += rewards * valid
        self.sums += self.gamma**self.lengths * rewards * valid
        self.lengths += valid
        if over.any():
            for i in np.flatnonzero(over):
                self.ended.append((float(self.score[i]), float(self.sums[i]), float(self.lengths[i])))
            self.restart(over)

    def restart(self, which: Any = slice(None)) -> None:
        """Forget what is underway."""
        self.score[which] = self.sums[which] = self.lengths[which] = 0.0

    def take(self) -> list[tuple[float, float, float]]:
        """The episodes that have ended since it was last asked."""
        found, self.ended = self.ended, []
        return found


def recently(ended: Collection[tuple[float, float, float]]) -> dict[str, float]:
    """Mean and variance of episodes; NaN of none."""
    score, sums, lengths = np.array(list(ended)).reshape(-1, 3).T if ended else np.full((3, 1), np.nan)
    return {
        "score_mean": float(score.mean()), "score_variance": float(score.var()), "return_mean": float(sums.mean()),
        "return_variance": float(sums.var()), "length_mean": float(lengths.mean()),
    }  # fmt: skip
