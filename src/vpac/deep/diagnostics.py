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
"""Metrics that follow from an update; a loss, gradient or weight that is not finite is named before them."""

BINS = 16
"""Number of values of k for which the drift is computed: 1, 2, 4, …"""
FEWEST_SAMPLES = 20.0
"""Fewest samples from which a drift is computed."""
LARGE_DRIFT, SURE_DRIFT, FELT_DRIFT = 0.5, 5.0, 0.2
"""A mean luck of half a standard deviation is a drift, if it is five standard errors from 0 and 2ψ times it is at least 0.2."""
LEARNED = 20
"""Iterations without a warning, because critics are still inaccurate; also about the memory of `LuckDriftMonitor`."""


class NotFinite(Diverged):
    """A number that is not finite stopped a run; the last valid checkpoint is kept."""


def check_finite(metrics: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an update as floats; raise `NotFinite` unless all are finite.

    `inputs` are the arrays of the update, causes before consequences, so that the message names the first cause.
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
    """The first name that is a cause and not a consequence of the others, in words."""
    return min(bad, key=lambda name: name in CONSEQUENCES).replace("_", " ")


class NoEpisodeEnded(UserWarning):
    """No episode has ended yet, so scores, returns and their variances are unknown."""


class LuckDrift(UserWarning):
    """The luck of an episode, a sum of TD errors, has a mean that depends on the time: the value critic misses something."""


class LargestDrift(NamedTuple):
    """The largest mean luck."""

    mean: float
    """Mean luck in units of the raw reward."""
    share: float
    """Mean luck in standard deviations of the luck."""
    errors: float
    """Mean luck in standard errors."""


def stopped_at(k: Any, elapsed: Any, running: Any) -> tuple[Any, Any]:
    """Masks of the steps before which an episode is k steps old, and of those that end an episode of at most k steps."""
    return elapsed == k, (running == 0.0) & (elapsed + 1.0 <= k)


def largest_drift(sums: Any) -> LargestDrift:
    """The largest drift, from the number of samples, their sum and the sum of their squares for each k."""
    xp = namespace(sums)
    count, known = xp.maximum(sums[0], 1.0), sums[0] >= FEWEST_SAMPLES
    mean = sums[1] / count
    share = mean / (xp.sqrt(xp.maximum(sums[2] / count - mean**2, 0.0)) + 1e-12)
    mean, share = xp.where(known, mean, 0.0), xp.where(known, share, 0.0)
    which = xp.argmax(xp.abs(share))
    return LargestDrift(mean[which], share[which], share[which] * xp.sqrt(count[which]))


class LuckDriftMonitor:
    """Estimates the mean luck after k steps, or at the end of shorter episodes, which is 0 if V is correct.

    D_k is a martingale: stopped at the end of the episode, it has mean 0. Given that the episode continues, its mean is not 0,
    because luck may decide when the episode ends. k is 1, 2, 4, 8, …; older rollouts have exponentially falling weights.
    """

    keep = 0.9
    """Factor of a rollout's weight after the next one."""

    def __init__(self) -> None:
        self.sums: FloatArray = np.zeros((3, BINS))
        """Samples, their sum and the sum of their squares, for each k."""

    def add(self, before: Numbers, after: Numbers, elapsed: Numbers, valid: Numbers, running: Numbers) -> None:
        """Add a rollout [time, environment] with D_k before and after each step; ignored if a number is not finite."""
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
        """The mean luck that is the most standard deviations from 0."""
        return LargestDrift(*(float(x) for x in largest_drift(self.sums)))

    def warn(self, psi: float, time_aware: bool = True) -> bool:
        """Warn of a drift that is significant and large enough to change what is learned at ψ, per unit of the raw reward."""
        mean, share, errors = self.worst
        if not (abs(share) > LARGE_DRIFT and abs(errors) > SURE_DRIFT and abs(2.0 * psi * mean) > FELT_DRIFT):
            return False
        advice = "Train" if time_aware else "Set time_aware=True, train"
        warnings.warn(
            f"the luck of episodes has a drift (mean {mean:.3g}, {abs(share):.1f} standard deviations from 0): the critics do "
            f"not see what the value depends on, or learn it too slowly. {advice} longer, show critics more (by "
            "info['critic'] or the observation), or use form=\"published\"",
            LuckDrift,
            stacklevel=2,
        )
        return True


def conditioned_objective(returns: Any, priced: Any, psi: Any, ended: Any) -> Any:
    """U of episodes that have a ψ each: the mean of G less that of ψ · Var(G given ψ); NaN with fewer than three.

    The mean of G given ψ is a line, fitted by least squares. `ended` marks the entries that are episodes; `priced` are their
    returns with the discount of the variance.
    """
    xp, n = namespace(ended), ended.sum()

    def mean(x: Any) -> Any:
        return xp.where(ended, x, 0.0).sum() / xp.maximum(n, 1)

    deviation, price = priced - mean(priced), psi - mean(psi)
    slope = mean(price * deviation) / xp.maximum(mean(price**2), 1e-30)
    risk = mean(psi * (deviation - slope * price) ** 2) * n / xp.maximum(n - 2, 1)
    return xp.where(n > 2, mean(returns) - risk, xp.nan)


def windowed(sums: Any, new: Any, size: float) -> Any:
    """`EpisodeSums` including one more rollout; what exceeds the window is dropped, oldest first."""
    xp = namespace(new)
    kept = xp.minimum(1.0, xp.maximum(0.0, size - new[::3]) / xp.maximum(sums[::3], 1e-9))
    return xp.where(xp.isfinite(new).all(), sums * xp.repeat(kept, 3) + new, sums)


class EpisodeWindow:
    """`EpisodeSums` over about the last `size` episodes that began, and that ended."""

    def __init__(self, size: int) -> None:
        self.size, self.sums = float(size), np.zeros(6)

    def add(self, episodes: Any) -> None:
        """Add the sums of a rollout."""
        self.sums = windowed(self.sums, np.array([float(x) for x in episodes]), self.size)

    @property
    def metrics(self) -> dict[str, float]:
        """Mean V(S_0) and σ(S_0); NaN before the first episode."""
        count = self.sums[0] or math.nan
        return {"start_value": float(self.sums[1] / count), "start_variance": float(self.sums[2] / count)}
