"""The arrays that the compiled loop works on. Python makes them; compiled code only fills them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpac.learners.trace import LENGTH
from vpac.typing import BoolArray, FloatArray, IntArray

__all__ = ["History", "Rates", "Weights", "Workspace"]

GOOD, BAD_REWARD, BAD_VALUE, BAD_SPREAD, BAD_ACTOR = 0, 1, 2, 3, 4
"""What a step may find: all is well, or the first quantity that is not finite."""


class Weights(NamedTuple):
    """What a learner learns."""

    theta: FloatArray
    """Policy parameters, [features, actions]."""
    w: FloatArray
    """Value critic Q̂."""
    z: FloatArray
    """Critic of the spread: σ̂ or M̂."""
    mean: FloatArray
    """Ĵ, the mean of V̂(S_0) over starts, [1]."""


class Rates(NamedTuple):
    """Prices and step sizes, one number for each episode."""

    psi: FloatArray
    alpha_theta: FloatArray
    alpha_w: FloatArray
    alpha_z: FloatArray
    alpha_mean: FloatArray
    """Step size of Ĵ."""


class Workspace(NamedTuple):
    """Scratch arrays of one run."""

    here: IntArray
    there: IntArray
    policy: FloatArray
    policy_next: FloatArray
    behaviour: FloatArray
    place: FloatArray
    trace: FloatArray

    @classmethod
    def make(cls, n_active: int, n_actions: int) -> Workspace:
        """For so many active features and actions."""
        here, there = np.zeros(n_active, np.int64), np.zeros(n_active, np.int64)
        policy, policy_next, behaviour = np.zeros(n_actions), np.zeros(n_actions), np.zeros(n_actions)
        return cls(here, there, policy, policy_next, behaviour, np.zeros(2), np.zeros(LENGTH))


class History(NamedTuple):
    """What happened in each episode."""

    returns: FloatArray
    """Discounted return."""
    lengths: IntArray
    """Steps."""
    terminated: BoolArray
    """Whether it ended by itself; otherwise it was cut off."""
    effective: FloatArray
    """Off-policy, the effective share of its steps, (Σ ρ_{0:k})² / (steps · Σ ρ_{0:k}²); 1 on-policy."""

    def until(self, episode: int) -> History:
        """The episodes before one."""
        return History(
            self.returns[:episode], self.lengths[:episode], self.terminated[:episode], self.effective[:episode]
        )

    @classmethod
    def make(cls, episodes: int) -> History:
        """Room for so many episodes."""
        return cls(np.zeros(episodes), np.zeros(episodes, np.int64), np.zeros(episodes, bool), np.zeros(episodes))
