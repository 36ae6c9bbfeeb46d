"""An iteration's steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vpac.deep.spaces import Interface
from vpac.risk.volatility import augmented
from vpac.typing import BoolArray, Numbers

__all__ = ["Rollout", "Tape", "paid"]


class Rollout(NamedTuple):
    """An iteration's steps, [time, environment, …], as the networks take them."""

    observations: Numbers
    """One row more than there are steps: the last is where they led. Normalised, float32."""
    successors: Numbers | None
    """Where each step led, if that is not the next row of `observations`."""
    actions: Any
    rewards: Numbers
    """As the environments gave them."""
    continues: Numbers
    """0 where the episode terminated."""
    running: Numbers
    """0 where it terminated or was cut off."""
    valid: Numbers
    """0 on steps that only began an episode."""
    raw: Numbers
    """Observations before normalising, without the last row."""
    prices: Numbers | None = None
    """The price of variance of each step's episode, of a conditioned policy."""
    elapsed: Numbers = np.zeros(())
    """Steps of the episode before each row; one row more than there are steps."""
    extras: Numbers | None = None
    """What the environment shows to critics alone, one row more than there are steps."""
    led_to_extras: Numbers | None = None
    """The same of `successors`."""


def paid(rollout: Rollout, floor: float | None, price: float) -> Numbers:
    """The rewards to learn from: not below the floor and, in MVPI, less what their spread over steps costs at a price.

    y, the mean reward of a step of the present policy, is that of these steps.
    """
    rewards = rollout.rewards if floor is None else np.maximum(rollout.rewards, floor)
    if price == 0.0:
        return rewards
    return augmented(rewards, price, float(rewards[rollout.valid > 0.0].mean()))


@dataclass(frozen=True)
class Tape:
    """What is written down while the environments are stepped, [time, environment, …]; see `Rollout`."""

    raw: Numbers
    seen: Numbers
    actions: Any
    rewards: Numbers
    terminated: BoolArray
    over: BoolArray
    valid: BoolArray
    after: Numbers | None
    prices: Numbers | None
    extras: Numbers | None
    after_extras: Numbers | None

    @classmethod
    def blank(cls, steps: int, n: int, interface: Interface, priced: bool, same_step: bool, extras: int) -> Tape:
        """For so many steps of `n` environments."""
        seen = np.empty((steps + 1, n, interface.inputs + priced), np.float32)
        choice = np.empty((steps, n), np.int64)
        return cls(
            raw=np.empty((steps + 1, n, interface.inputs), np.float32),
            seen=seen,
            actions=choice if interface.discrete_actions else np.empty((steps, n, interface.actions), np.float32),
            rewards=np.empty((steps, n)),
            terminated=np.empty((steps, n), bool),
            over=np.empty((steps, n), bool),
            valid=np.empty((steps, n), bool),
            after=np.empty_like(seen[1:]) if same_step else None,
            prices=np.empty((steps, n)) if priced else None,
            extras=np.empty((steps + 1, n, extras)) if extras else None,
            after_extras=np.empty((steps, n, extras)) if extras and same_step else None,
        )

    def rollout(self, elapsed: Numbers) -> Rollout:
        """As the networks take it; `elapsed` is how many steps each episode underway had before the first row."""
        continues, running, acted = (x.astype(np.float32) for x in (~self.terminated, ~self.over, self.valid))
        return Rollout(
            self.seen, self.after, self.actions, self.rewards, continues, running, acted, self.raw[:-1], self.prices,
            self._elapsed(elapsed), self.extras, self.after_extras,
        )  # fmt: skip

    def _elapsed(self, first: Numbers) -> Numbers:
        """Steps of the episode before each row; the row after an episode's last step shows where that step led."""
        rows = np.empty(self.raw.shape[:2])
        rows[0] = first
        begins = ~self.valid if self.after is None else self.over
        for t, begun in enumerate(begins):
            rows[t + 1] = np.where(begun, 0.0, rows[t] + 1.0)
        return rows
