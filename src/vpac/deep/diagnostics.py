"""Diagnostics: numbers that are not finite, a drift of the luck, and what critics predict where episodes begin."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vpac.errors import Diverged
from vpac.typing import FloatArray, Numbers, namespace

CONSEQUENCES = (
    "kl", "clip_fraction", "entropy", "explained_variance", "predicted_variance", "measured_variance", "penalty_share",
    "weight_share", "reversed_share",
)  # fmt: skip
"""Metrics that follow from an update; its loss, its gradient and the weights are named before them."""

BINS = 16
"""How many numbers of steps k the drift is looked at: 1, 2, 4, …"""
FEWEST_SAMPLES = 20.0
"""From fewer samples no drift is measured."""
LARGE, SURE, FELT = 0.5, 5.0, 0.2
"""A mean luck of half a standard deviation is a drift, if it is five standard errors from 0 and 2ψ times it is at least 0.2."""
LEARNED = 20
"""Iterations before which critics know too little for a drift to mean anything: `LuckDriftMonitor` remembers about so many."""


class NotFinite(Diverged):
    """A number that is not finite has stopped a run; the last good checkpoint is kept."""


def check_finite(metrics: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an update as plain numbers, if all are finite, else `NotFinite`.

    `inputs` are the arrays that it learned from, first causes first: one bad number breeds others, so the first is named.
    """
    found = {name: float(np.asarray(number)) for name, number in metrics.items()}
    if np.isfinite(list(found.values())).all():
        return found
    for name, array in inputs.items():
        if not np.isfinite(np.asarray(array)).all():
            raise NotFinite(f"the {name} is not finite")
    bad = first_cause([name for name, number in found.items() if not np.isfinite(number)])
    raise NotFinite(f"the {bad} is not finite")


def first_cause(bad: Sequence[str]) -> str:
    """Of names of what is not finite, the first that does not only follow from others, in words."""
    return min(bad, key=lambda name: name in CONSEQUENCES).replace("_", " ")


class NoEpisodeEnded(UserWarning):
    """No episode has ended yet, so that scores, returns and their variances are not known."""


class LuckDrift(UserWarning):
    """The luck of an episode, a sum of TD errors, has a mean that depends on the time: the value critic misses something."""


class LargestDrift(NamedTuple):
    """The largest mean luck."""

    mean: float
    """In units of the raw reward."""
    share: float
    """In standard deviations of the luck."""
    errors: float
    """In standard errors."""


def stopped_at(k: Any, elapsed: Any, running: Any) -> tuple[Any, Any]:
    """The steps before which an episode is k steps old, and those that end one of at most k steps."""
    return elapsed == k, (running == 0.0) & (elapsed + 1.0 <= k)


def largest_drift(sums: Any) -> LargestDrift:
    """From the number of samples, their sum and the sum of their squares after each k."""
    xp = namespace(sums)
    count, known = xp.maximum(sums[0], 1.0), sums[0] >= FEWEST_SAMPLES
    mean = sums[1] / count
    share = mean / (xp.sqrt(xp.maximum(sums[2] / count - mean**2, 0.0)) + 1e-12)
    mean, share = xp.where(known, mean, 0.0), xp.where(known, share, 0.0)
    which = xp.argmax(xp.abs(share))
    return LargestDrift(mean[which], share[which], share[which] * xp.sqrt(count[which]))


class LuckDriftMonitor:
    """The mean luck after k steps, or at the end of episodes that were shorter, which is 0 if V is the value.

    D_k is a martingale: stopped at the end of the episode its mean stays 0. Its mean given that the episode goes on does not,
    because luck may decide when it ends. k is 1, 2, 4, 8, …; older rollouts count less and less.
    """

    keep = 0.9
    """What is left of a rollout's weight after the next one."""

    def __init__(self) -> None:
        self.sums: FloatArray = np.zeros((3, BINS))
        """Samples, their sum and the sum of their squares, for each k."""

    def add(self, before: Numbers, after: Numbers, elapsed: Numbers, valid: Numbers, running: Numbers) -> None:
        """Take a rollout [time, environment] into account, D_k before and after each step, if all is finite."""
        acted = valid > 0.0
        if not (np.isfinite(before).all() and np.isfinite(after).all()):
            return  # `check_finite` reports it
        self.sums = self.sums * self.keep
        known = int(np.flatnonzero(self.sums[0] > 0.0).max(initial=-1)) + 1
        longest = float(elapsed[acted].max(initial=0.0))
        for place in range(max(known, min(BINS, int(np.log2(longest)) + 1 if longest else 0))):
            now, ended = stopped_at(2.0**place, elapsed, running)
            luck = np.append(before[acted & now], after[acted & ended])
            self.sums[:, place] += len(luck), luck.sum(), (luck**2).sum()

    @property
    def worst(self) -> LargestDrift:
        """The k after which the mean luck is the most standard deviations from 0."""
        return LargestDrift(*(float(x) for x in largest_drift(self.sums)))

    def warn(self, psi: float) -> bool:
        """Warn of a drift that is beyond chance and, at the price ψ per unit of the raw reward, changes what is learned."""
        mean, share, errors = self.worst
        if not (abs(share) > LARGE and abs(errors) > SURE and abs(2.0 * psi * mean) > FELT):
            return False
        warnings.warn(
            f"the luck of episodes has a drift (mean {mean:.3g}, {abs(share):.1f} standard deviations from 0): the critics do "
            "not see what the value depends on, or learn it too slowly. Keep time_aware=True, train longer, show critics more "
            "(info['critic']), or use form=\"published\"",
            LuckDrift,
            stacklevel=2,
        )
        return True


def windowed(sums: Any, new: Any, size: float) -> Any:
    """`EpisodeSums` with those of one more rollout; what goes beyond the window is forgotten, oldest first."""
    xp = namespace(new)
    kept = xp.minimum(1.0, xp.maximum(0.0, size - new[::3]) / xp.maximum(sums[::3], 1e-9))
    return xp.where(xp.isfinite(new).all(), sums * xp.repeat(kept, 3) + new, sums)


class EpisodeWindow:
    """`EpisodeSums` over about the last hundred episodes that began, and that ended."""

    size = 100.0

    def __init__(self) -> None:
        self.sums: FloatArray = np.zeros(6)

    def add(self, episodes: Any) -> None:
        """Add the sums of a rollout."""
        self.sums = windowed(self.sums, np.array([float(x) for x in episodes]), self.size)

    @property
    def metrics(self) -> dict[str, float]:
        """Mean V(S_0) and σ(S_0); NaN before the first episode."""
        count = self.sums[0] or math.nan
        return {"start_value": float(self.sums[1] / count), "start_variance": float(self.sums[2] / count)}
