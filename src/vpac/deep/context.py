"""What critics see beside the policy: the elapsed time, and what an environment offers to critics alone.

Where episodes end after a fixed number of steps, the value depends on the time that is left. Critics that do not see it are
wrong, and sums of their errors have a drift. The policy does not change: it sees what the environment shows.
"""

from __future__ import annotations

import numpy as np

from vpac.deep.normaliser import RunningMoments
from vpac.deep.policy import SEEN
from vpac.deep.rollout import Rollout
from vpac.typing import Numbers

__all__ = ["Context"]


class Context:
    """The columns that critics see and the policy does not.

    Args:
        time_aware: whether the elapsed time is one of them.
        limit: steps after which episodes are cut off; None: no limit is known, and time has a running scale.
        extras: numbers that the environment offers to critics.
    """

    def __init__(self, time_aware: bool, limit: int | None, extras: int) -> None:
        self.time_aware, self.limit, self.extras = time_aware, limit, extras
        self.moments = RunningMoments.of((time_aware + extras,))

    @property
    def columns(self) -> int:
        """How many there are."""
        return self.time_aware + self.extras

    def beside(self, rollout: Rollout) -> Rollout:
        """A rollout whose observations and successors have these columns behind those of the policy."""
        if not self.columns:
            return rollout
        seen = np.concatenate([rollout.observations, self._scaled(self._raw(rollout))], axis=-1, dtype=np.float32)
        after = rollout.successors
        if after is not None:
            led_to = self._scaled(self._stacked(rollout.elapsed[:-1] + 1.0, rollout.led_to_extras))
            after = np.concatenate([after, led_to], axis=-1, dtype=np.float32)
        return rollout._replace(observations=seen, successors=after)

    def add(self, rollout: Rollout) -> None:
        """Take a rollout into account."""
        if self.columns:
            self.moments.add(self._raw(rollout)[:-1][rollout.valid > 0.0])

    def _raw(self, rollout: Rollout) -> Numbers:
        return self._stacked(rollout.elapsed, rollout.extras)

    def _stacked(self, elapsed: Numbers, extras: Numbers | None) -> Numbers:
        parts = [elapsed[..., None]] if self.time_aware else []
        return np.concatenate([*parts, *([] if extras is None else [extras])], axis=-1)

    def _scaled(self, raw: Numbers) -> Numbers:
        """From −1 to 1 up to a known limit; all else less its running mean, in running standard deviations."""
        scaled = (raw - self.moments.mean) / np.sqrt(self.moments.variance + 1e-8)
        if self.time_aware and self.limit is not None:
            scaled[..., 0] = 2.0 * raw[..., 0] / self.limit - 1.0
        return np.asarray(np.clip(scaled, -SEEN, SEEN), np.float32)
