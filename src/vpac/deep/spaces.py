"""What networks see and say: observations become rows of numbers, actions come from numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from vpac.envs.observations import is_image
from vpac.errors import UserError
from vpac.typing import Numbers

INTEGERS = ("", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))


@dataclass(frozen=True)
class Interface:
    """How an environment's observations and actions are written as numbers. Plain data: it is stored with a policy."""

    inputs: int
    """Numbers of an observation; a Discrete one is one-hot."""
    first_observation: int | None
    """The smallest Discrete observation; None: a Box."""
    actions: int
    """Numbers of a Box action, or how many Discrete actions there are."""
    first_action: int | None
    """The smallest Discrete action; None: a Box."""
    shape: tuple[int, ...]
    """Of a Box action."""
    low: tuple[float, ...]
    """Smallest Box action, flattened."""
    high: tuple[float, ...]
    """Largest Box action, flattened."""
    integers: str = ""
    """The type of a Box action's numbers if they are whole; the nearest is taken."""

    @classmethod
    def of(cls, seen: spaces.Space[Any], acts: spaces.Space[Any], name: str) -> Interface:
        """From an environment's two spaces."""
        if isinstance(seen, spaces.Box):
            if is_image(seen):
                raise UserError(
                    f"{name} shows images {list(seen.shape)}: these networks read vectors; wrap it so that it does"
                )
            inputs, first_observation = max(1, math.prod(seen.shape)), None
        elif isinstance(seen, spaces.Discrete):
            inputs, first_observation = int(seen.n), int(seen.start)
        else:
            raise UserError(f"{name} has {type(seen).__name__} observations: PPO needs Box or Discrete observations")
        if isinstance(acts, spaces.Discrete):
            return cls(inputs, first_observation, int(acts.n), int(acts.start), (), (), ())
        if not isinstance(acts, spaces.Box):
            raise UserError(f"{name} has {type(acts).__name__} actions: PPO needs Box or Discrete actions")
        low, high = (tuple(float(x) for x in bound.ravel()) for bound in (acts.low, acts.high))
        integers = str(acts.dtype) if np.issubdtype(acts.dtype, np.integer) else ""
        size, shape = max(1, math.prod(acts.shape)), tuple(acts.shape)
        return cls(inputs, first_observation, size, None, shape, low, high, integers)

    def fields(self) -> dict[str, Any]:
        """As it is written into a file."""
        return {name: value for name, value in asdict(self).items() if name != "integers" or value}

    def check(self) -> None:
        """Raise a `ValueError` if it was read from a file and is none that `of` makes."""
        counts, firsts = (self.inputs, self.actions), (self.first_observation, self.first_action)
        whole = [*counts, *(first for first in firsts if first is not None)]
        shape, bounds = self.shape, (self.low, self.high)
        if not all(type(n) is int and abs(n) < 2**31 for n in whole) or min(counts) < 1:
            raise ValueError("observations and actions must be counted in whole numbers")
        if not (isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)):
            raise ValueError("the shape of an action must consist of whole numbers")
        if not all(isinstance(side, tuple) and all(type(x) in (int, float) for x in side) for side in bounds):
            raise ValueError("the bounds of actions must be numbers")
        if self.integers not in INTEGERS:
            raise ValueError("the type of actions must be one of whole numbers")
        size = self.actions if self.first_action is None else 0
        if not len(self.low) == len(self.high) == size or (size and max(1, math.prod(shape)) != size):
            raise ValueError("the bounds of actions must be as many as there are numbers in one")

    @property
    def discrete_observations(self) -> bool:
        """Whether an observation is one of a few, written as zeros and a one."""
        return self.first_observation is not None

    @property
    def discrete_actions(self) -> bool:
        """Whether an action is one of a few."""
        return self.first_action is not None

    def batch(self, observation: Any, shape: tuple[int, ...]) -> tuple[Any, bool]:
        """An observation as a batch of one, or a batch as it is, and which it was; `shape` is that of what was learned from.

        A matrix was flattened before it was learned from, and may come as it was.
        """
        try:
            found = np.asarray(None if isinstance(observation, Mapping) else observation)
        except ValueError:  # parts of different lengths
            found = np.asarray(None)
        if found.dtype.kind not in "biuf":
            raise UserError(
                "this policy learned from flattened observations: vpac.envs.flattened(env) gives them, and a "
                f"{type(observation).__name__} is none"
            )
        alike = found.shape[found.ndim - len(shape) :] == shape
        several = found.ndim > len(shape) if alike else found.size != self.inputs
        rows = found if several else found[None]
        if math.prod(rows.shape[1:]) != (1 if self.discrete_observations else self.inputs):
            expected = f"{self.inputs} numbers" if not self.discrete_observations else "one whole number"
            raise UserError(
                f"an array of shape {list(found.shape)} is no observation of this policy: it takes {expected}"
            )
        if self.first_observation is not None:
            place = rows - self.first_observation
            if not ((place >= 0) & (place < self.inputs) & (place == np.floor(place))).all():
                last = self.first_observation + self.inputs - 1
                raise UserError(
                    f"{observation!r:.80} is no observation of this policy: it takes whole numbers from "
                    f"{self.first_observation} to {last}"
                )
            rows = rows.astype(np.int64)
        return rows, several

    def rows(self, observations: Any) -> Numbers:
        """A batch of observations as float32 rows."""
        if self.first_observation is None:
            found = np.asarray(observations, np.float32)
            return found.reshape(len(found), -1)
        one_hot: Numbers = self._one_hot[np.asarray(observations) - self.first_observation]
        return one_hot

    def commands(self, actions: Numbers) -> Any:
        """A batch of the policy's actions as the environment takes them; Box actions within their bounds."""
        if self.first_action is not None:
            return actions + self.first_action
        low, high = self._bounds
        bounded = np.minimum(np.maximum(actions, low), high)  # np.clip takes twice as long
        found = np.rint(bounded).astype(self.integers) if self.integers else bounded
        return found.reshape(len(actions), *self.shape)

    @cached_property
    def _one_hot(self) -> Numbers:
        """A row of zeros and a one for each Discrete observation."""
        return np.eye(self.inputs, dtype=np.float32)

    @cached_property
    def _bounds(self) -> tuple[Numbers, Numbers]:
        """Of Box actions, as arrays."""
        return np.array(self.low, np.float32), np.array(self.high, np.float32)
