"""What warns of a learner that climbs something else than it should: luck with a drift, critics that are wrong from the start."""

from __future__ import annotations

import numpy as np

from vpac.deep.assessment import Starts
from vpac.typing import FloatArray, Numbers

__all__ = ["Drift", "LuckDrift", "StartMeans"]

BINS = 16
"""Of elapsed time: 1, 2–3, 4–7, … steps."""
LEAST = 20.0
"""Fewer samples of a bin say nothing."""
LARGE, SURE = 0.5, 5.0
"""A mean luck of half a standard deviation is a drift, if it is five standard errors from nothing."""


class LuckDrift(UserWarning):
    """The luck of an episode, a sum of TD errors, has a mean that depends on the time: the value critic misses something."""


class Drift:
    """The mean of D_k given k, which is 0 if V is the value. Older rollouts count less and less.

    A sample is the mean luck of one environment's steps in one bin of elapsed time in one rollout.
    """

    keep = 0.95
    """What is left of a rollout's weight after the next one."""

    def __init__(self) -> None:
        self.sums: FloatArray = np.zeros((3, BINS))
        """Samples, their sum and the sum of their squares, bin by bin."""

    def add(self, luck: Numbers, elapsed: Numbers, valid: Numbers) -> None:
        """Take a rollout [time, environment] into account."""
        self.sums *= self.keep
        which = np.minimum(np.log2(np.maximum(elapsed, 1.0)).astype(np.int64), BINS - 1)
        for k in range(BINS):
            there = (which == k) & (valid > 0.0) & (elapsed > 0.0)
            steps = there.sum(axis=0)
            seen = steps > 0
            if seen.any():
                means = (luck * there).sum(axis=0)[seen] / steps[seen]
                self.sums[:, k] += len(means), means.sum(), (means**2).sum()

    @property
    def worst(self) -> tuple[float, float]:
        """The largest drift of a bin in standard deviations of luck, with its sign, and in standard errors."""
        count, total, squares = self.sums[:, self.sums[0] >= LEAST]
        if not len(count):
            return 0.0, 0.0
        mean = total / count
        std = np.sqrt(np.maximum(squares / count - mean**2, 0.0)) + 1e-12
        which = int(np.argmax(np.abs(mean / std)))
        drift = float(mean[which] / std[which])
        return drift, drift * float(np.sqrt(count[which]))

    @property
    def found(self) -> bool:
        """Whether there is one beyond chance that is large enough to matter."""
        drift, errors = self.worst
        return abs(drift) > LARGE and abs(errors) > SURE


class StartMeans:
    """Means of both critics' predictions where episodes begin, in units of the raw reward; older rollouts count less and less."""

    keep = 0.9
    """What is left of a rollout's weight after the next one."""

    def __init__(self) -> None:
        self.sums: FloatArray = np.zeros(3)
        """Episodes that began, and sums of their V(S_0) and σ(S_0)."""

    @property
    def before(self) -> Starts:
        """As the next rollout needs them."""
        return Starts(*(np.float32(x) for x in self.sums * self.keep))  # type: ignore[arg-type]

    def add(self, starts: Starts) -> None:
        """Take a rollout into account."""
        self.sums = self.keep * self.sums + np.array([float(x) for x in starts])

    @property
    def numbers(self) -> dict[str, float]:
        """Mean V(S_0) and σ(S_0); NaN before the first episode."""
        count, value, variance = self.sums
        return {
            "start_value": value / count if count else float("nan"),
            "start_variance": variance / count if count else float("nan"),
        }
