"""Diagnostics of the critics: luck that has a drift, and what they predict where episodes begin."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from vpac.deep.assessment import Starts
from vpac.typing import FloatArray, Numbers

__all__ = ["LEARNED", "Drift", "LuckDrift", "StartMeans"]

BINS = 16
"""Of elapsed time: 1, 2–3, 4–7, … steps."""
LEAST = 20.0
"""Fewer samples of a bin say nothing."""
LARGE, SURE, FELT = 0.5, 5.0, 0.2
"""A mean luck of half a standard deviation is a drift, if it is five standard errors from 0 and 2ψ times it is at least 0.2."""


LEARNED = 20
"""Iterations before which critics know too little for a drift to mean anything: `Drift` remembers about so many."""


class LuckDrift(UserWarning):
    """The luck of an episode, a sum of TD errors, has a mean that depends on the time: the value critic misses something."""


class Worst(NamedTuple):
    """The largest mean luck of a bin of elapsed time."""

    mean: float
    """In units of the raw reward."""
    share: float
    """In standard deviations of the luck."""
    errors: float
    """In standard errors."""


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
        """Take a rollout [time, environment] into account, if its numbers are finite: others stop the run later."""
        if not np.isfinite(luck).all():
            return
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
    def worst(self) -> Worst:
        """The bin whose mean luck is the most standard deviations from 0."""
        count, total, squares = self.sums[:, self.sums[0] >= LEAST]
        if not len(count):
            return Worst(0.0, 0.0, 0.0)
        mean = total / count
        share = mean / (np.sqrt(np.maximum(squares / count - mean**2, 0.0)) + 1e-12)
        which = int(np.argmax(np.abs(share)))
        return Worst(float(mean[which]), float(share[which]), float(share[which] * np.sqrt(count[which])))

    def warn(self, psi: float) -> bool:
        """Warn of a drift that is beyond chance and, at the price ψ per unit of the raw reward, changes what is learned."""
        mean, share, errors = self.worst
        if not (abs(share) > LARGE and abs(errors) > SURE and abs(2.0 * psi * mean) > FELT):
            return False
        warnings.warn(
            f"the luck of episodes has a drift (mean {mean:.3g}, {abs(share):.1f} standard deviations from 0): the critics do "
            "not see what the value depends on. Keep time_aware=True, show critics more (info['critic']), or use "
            'form="published"',
            LuckDrift,
            stacklevel=2,
        )
        return True


class StartMeans:
    """Mean V(S_0) and σ(S_0) in units of the raw reward; older rollouts count less and less."""

    keep = 0.9
    """What is left of a rollout's weight after the next one."""
    most = 8.0
    """Episodes that all older rollouts count as beside the next one. They were seen by older critics: if many counted, a
    value that rises because the policy improves would look like luck."""

    def __init__(self) -> None:
        self.sums: FloatArray = np.zeros(3)
        """Episodes that began, and sums of their V(S_0) and σ(S_0)."""

    @property
    def before(self) -> Starts:
        """As the next rollout needs them."""
        share = min(self.keep, self.most / max(self.sums[0], 1e-6))
        return Starts(*(np.float32(x) for x in self.sums * share))  # type: ignore[arg-type]

    def add(self, starts: Starts) -> None:
        """Take a rollout into account, if its numbers are finite."""
        found = np.array([float(x) for x in starts])
        if np.isfinite(found).all():
            self.sums = self.keep * self.sums + found

    @property
    def numbers(self) -> dict[str, float]:
        """Mean V(S_0) and σ(S_0); NaN before the first episode."""
        count, value, variance = self.sums
        return {
            "start_value": value / count if count else float("nan"),
            "start_variance": variance / count if count else float("nan"),
        }
