"""Running means and variances: of observations, of the critics' extra inputs, and of returns as the scale of rewards.

They are constant during an iteration, so that the policy that acts and the policy that learns see the same numbers, and are
updated after it. The formulas work with NumPy and JAX arrays: both ways of training share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vpac.deep.policy import BOUND
from vpac.deep.spaces import beside
from vpac.typing import FloatArray, Numbers, namespace

if TYPE_CHECKING:
    from vpac.deep.collect import Rollout


class RunningMoments(NamedTuple):
    """Mean and variance of everything seen so far."""

    mean: Any
    variance: Any
    count: Any

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> RunningMoments:
        """Initial moments: mean 0 and variance 1."""
        return cls(np.zeros(shape), np.ones(shape), 0.0)

    def joined(self, rows: Any) -> RunningMoments:
        """The moments after these rows (Chan's formula for merging two samples)."""
        n = float(len(rows))
        if n == 0.0:
            return self
        kind = self.mean.dtype
        mean, variance = rows.mean(axis=0, dtype=kind), rows.var(axis=0, dtype=kind)
        total, shift = self.count + n, mean - self.mean
        variance = (self.count * self.variance + n * variance + shift**2 * self.count * n / total) / total
        return RunningMoments(self.mean + shift * n / total, variance, total)

    @property
    def per_std(self) -> Any:
        """1 / standard deviation."""
        return 1.0 / namespace(self.variance).sqrt(self.variance + 1e-8)

    def as_arrays(self, prefix: str) -> dict[str, FloatArray]:
        """The numbers by name, for files."""
        return {f"{prefix}.{name}": np.asarray(value) for name, value in self._asdict().items()}

    @classmethod
    def read(cls, arrays: dict[str, Any], prefix: str) -> RunningMoments:
        """Moments from `as_arrays`."""
        mean, variance, count = (np.array(arrays[f"{prefix}.{name}"]) for name in ("mean", "variance", "count"))
        return cls(mean, variance, float(count))


@dataclass
class RewardScale:
    """The factor of rewards before learning.

    A number, or 1 / the standard deviation of the discounted sums of past rewards, which are kept for each environment and
    restart with its episodes.
    """

    fixed: float | None
    gamma: float
    moments: RunningMoments
    sums: FloatArray

    @classmethod
    def of(cls, fixed: float | None, gamma: float, n: int) -> RewardScale:
        """The scale of `n` environments before their first step; `fixed=None` for a running scale."""
        return cls(fixed, gamma, RunningMoments.of(()), np.zeros(n))

    @property
    def value(self) -> float:
        """The scale now."""
        if self.fixed is not None:
            return self.fixed
        return float(self.moments.per_std) if self.moments.count else 1.0

    def add(self, rewards: Numbers, running: Numbers, valid: Numbers) -> None:
        """Add a rollout [time, environment]."""
        if self.fixed is not None:
            return
        sums = np.empty_like(rewards, np.float64)
        for t in range(len(rewards)):
            self.sums, sums[t] = next_sums(self.sums, rewards[t], running[t] * valid[t], self.gamma)
        self.moments = self.moments.joined(sums[valid > 0.0])

    def restart(self) -> None:
        """Reset the sums of all environments."""
        self.sums = np.zeros_like(self.sums)


def next_sums(sums: Any, reward: Any, keep: Any, gamma: float) -> tuple[Any, Any]:
    """γ times the discounted sum of past rewards, plus this one: to be carried on (0 after an episode), and its value now."""
    here = gamma * sums + reward
    return here * keep, here


class CriticContext:
    """Inputs of the critics that the policy does not have: the elapsed time, and `extras` numbers of `info["critic"]`.

    In episodes of fixed length the value depends on the remaining time. Critics that do not observe it are wrong, and sums of
    their errors drift. Without a known `limit` of steps, time is normalised by running moments.
    """

    def __init__(self, time_aware: bool, limit: int | None, extras: int) -> None:
        self.time_aware, self.limit, self.columns = time_aware, limit, time_aware + extras
        self.moments = RunningMoments.of((self.columns,))

    def beside(self, rollout: Rollout) -> Rollout:
        """A rollout whose observations and successors have these columns after those of the policy."""
        if not self.columns:
            return rollout
        seen, after = self._scaled(self._stacked(rollout.elapsed, rollout.extras)), rollout.successors
        if after is not None:
            shown = self._scaled(self._stacked(rollout.elapsed[:-1] + 1.0, rollout.successor_extras))
            after = beside(after, shown)
        return rollout._replace(observations=beside(rollout.observations, seen), successors=after)

    def add(self, rollout: Rollout) -> None:
        """Add a rollout."""
        if self.columns:
            self.moments = self.moments.joined(self._stacked(rollout.elapsed, rollout.extras)[:-1][rollout.valid > 0.0])

    def _stacked(self, elapsed: Any, extras: Any) -> Any:
        parts = [elapsed[..., None]] if self.time_aware else []
        return namespace(elapsed).concatenate([*parts, *([] if extras is None else [extras])], axis=-1)

    def _scaled(self, raw: Any) -> Any:
        """Time scaled to −1 … 1 if the limit is known; all else normalised by its running mean and standard deviation."""
        xp = namespace(raw)
        scaled = (raw - self.moments.mean) / xp.sqrt(self.moments.variance + 1e-8)
        if self.time_aware and self.limit is not None:
            scaled = xp.concatenate([2.0 * raw[..., :1] / self.limit - 1.0, scaled[..., 1:]], axis=-1)
        return xp.clip(scaled, -BOUND, BOUND).astype(np.float32)
