"""Running means and variances: of observations, and of discounted returns as the scale of rewards.

They stay as they are during an iteration, so that the policy that acts and the policy that learns see the same numbers, and
are brought up to date after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.typing import FloatArray, Numbers

__all__ = ["RewardScale", "RunningMoments"]


@dataclass
class RunningMoments:
    """Mean and variance of everything seen so far."""

    mean: FloatArray
    variance: FloatArray
    count: float

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> RunningMoments:
        """Of nothing yet: mean 0 and variance 1."""
        return cls(np.zeros(shape), np.ones(shape), 0.0)

    def add(self, rows: Numbers) -> None:
        """Take rows into account (Chan's formula for joining two samples)."""
        n = float(len(rows))
        if n == 0.0:
            return
        mean, variance = rows.mean(axis=0, dtype=np.float64), rows.var(axis=0, dtype=np.float64)
        total, shift = self.count + n, mean - self.mean
        self.variance = (self.count * self.variance + n * variance + shift**2 * self.count * n / total) / total
        self.mean, self.count = self.mean + shift * n / total, total

    def as_arrays(self) -> dict[str, FloatArray]:
        """Its numbers by name, for files."""
        return {"mean": self.mean, "variance": self.variance, "count": np.array(self.count)}

    @classmethod
    def read(cls, arrays: dict[str, Any]) -> RunningMoments:
        """From `as_arrays`."""
        return cls(np.array(arrays["mean"]), np.array(arrays["variance"]), float(arrays["count"]))


@dataclass
class RewardScale:
    """What rewards are multiplied by before they are learned from.

    A number, or 1 / the standard deviation of the discounted sums of past rewards, which are kept for each environment and
    begin anew with its episodes.
    """

    fixed: float | None
    gamma: float
    moments: RunningMoments
    sums: FloatArray

    @classmethod
    def of(cls, fixed: float | None, gamma: float, n: int) -> RewardScale:
        """Of `n` environments before their first step; `fixed=None` for a running scale."""
        return cls(fixed, gamma, RunningMoments.of(()), np.zeros(n))

    @property
    def value(self) -> float:
        """The scale now."""
        if self.fixed is not None:
            return self.fixed
        return float(1.0 / np.sqrt(self.moments.variance + 1e-8)) if self.moments.count else 1.0

    def add(self, rewards: Numbers, running: Numbers, valid: Numbers) -> None:
        """Take a rollout [time, environment] into account."""
        if self.fixed is not None:
            return
        sums = np.empty_like(rewards, np.float64)
        for t in range(len(rewards)):
            self.sums = self.gamma * self.sums + rewards[t]
            sums[t] = self.sums
            self.sums = self.sums * (running[t] * valid[t])
        self.moments.add(sums[valid > 0.0])

    def restart(self) -> None:
        """All environments begin anew."""
        self.sums = np.zeros_like(self.sums)
