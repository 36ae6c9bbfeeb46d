"""Inputs and outputs of networks: observations become rows of numbers, actions come from numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from vpac.envs.observations import MASK, choices, is_image, mask_row
from vpac.errors import UserError
from vpac.typing import IntArray, Numbers, namespace

INTEGERS = ("", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
LATER = ("integers", "image", "pixels", "masked")
"""Fields that are written to files only if they are not empty: earlier versions do not know them."""
NEVER = -1e9
"""The logit of a masked action: its probability is exactly 0 in 32 bits, and so is its gradient."""


class Seen(NamedTuple):
    """Inputs of networks with an image or a mask, [..., …]; the fields of the rows of `Interface.rows`."""

    numbers: Any
    pixels: Any = None
    """[..., height, width, channel], as the environment gives them."""
    levels: Any = None
    """Mean and 1 / standard deviation of each channel, for normalising pixels."""
    allowed: Any = None
    """The mask of allowed actions."""


def numbers_of(rows: Any) -> Any:
    """The numbers in rows, without image and mask."""
    return rows["numbers"] if rows.dtype.names else rows


def beside(rows: Any, columns: Numbers) -> Any:
    """Append columns to the numbers in rows."""
    numbers = namespace(columns).concatenate([numbers_of(rows), columns], axis=-1, dtype=np.float32)
    if not rows.dtype.names:
        return numbers
    kinds = [(name, *rows.dtype[name].subdtype) for name in rows.dtype.names]
    found = np.empty(rows.shape, [("numbers", np.float32, numbers.shape[-1:]), *kinds[1:]])
    for name in rows.dtype.names:
        found[name] = numbers if name == "numbers" else rows[name]
    return found


@dataclass(frozen=True)
class Interface:
    """Converts an environment's observations and actions to numbers. Plain data: it is stored with a policy."""

    inputs: int
    """Numbers in an observation, without its image; a Discrete one is one-hot."""
    first_observation: int | None
    """The smallest Discrete observation; None: a Box."""
    actions: int
    """Numbers in a Box action, the number of Discrete actions, or the total number of values of all parts."""
    first_action: int | None
    """The smallest Discrete action, 0 if an action has several parts; None: a Box."""
    shape: tuple[int, ...]
    """Shape of a Box action, or of one with several parts."""
    low: tuple[float, ...]
    """Smallest Box action, flattened, or the smallest value of each part."""
    high: tuple[float, ...]
    """Largest Box action, flattened, or the largest value of each part."""
    integers: str = ""
    """The dtype of an action if it is an integer type; Box actions are rounded to it."""
    image: tuple[int, ...] = ()
    """The shape of the image, if there is one."""
    pixels: str = ""
    """The dtype of the image: uint8, or float32 for all others."""
    masked: bool = False
    """Whether observations have a mask of allowed actions."""

    @classmethod
    def of(cls, seen: spaces.Space[Any], acts: spaces.Space[Any], name: str) -> Interface:
        """The interface of an environment with these spaces, as `vpac.envs.arranged` makes them."""
        parts: Mapping[str, Any] = seen.spaces if isinstance(seen, spaces.Dict) else {"vector": seen}
        if isinstance(seen, spaces.Box) and is_image(seen):
            parts = {"image": seen}
        vector: Any
        vector, image, known = parts.get("vector"), parts.get("image"), {"image", "vector", MASK}
        if not parts.keys() <= known or not isinstance(vector, spaces.Box | spaces.Discrete | None):
            raise UserError(
                f"{name} has {type(seen).__name__} observations: PPO needs Box or Discrete observations, or what "
                "vpac.envs.arranged(env) makes of them"
            )
        size, first = 0 if vector is None else max(1, math.prod(vector.shape or ())), None
        if isinstance(vector, spaces.Discrete):
            size, first = int(vector.n), int(vector.start)
        more: dict[str, Any] = {"masked": MASK in parts}
        if image is not None:
            more |= {"image": tuple(image.shape), "pixels": "uint8" if image.dtype == np.uint8 else "float32"}
            if len(image.shape) > 4 or 0 in image.shape:
                raise UserError(f"{name} shows {image}: expected [height, width], with channels, frames before them")
        if isinstance(acts, spaces.Discrete):
            return cls(size, first, int(acts.n), int(acts.start), (), (), (), **more)
        kind, shape = str(acts.dtype), tuple(acts.shape or ())
        if each := choices(acts):
            low = tuple(int(x) for x in np.ravel(getattr(acts, "start", np.zeros(shape))))
            high = tuple(x + n - 1 for x, n in zip(low, each, strict=True))
            return cls(size, first, sum(each), 0, shape, low, high, kind, **more)
        if not isinstance(acts, spaces.Box):
            expected = "Box, Discrete, MultiDiscrete or MultiBinary actions"
            raise UserError(f"{name} has {type(acts).__name__} actions: PPO needs {expected}")
        least, most = (tuple(float(x) for x in bound.ravel()) for bound in (acts.low, acts.high))
        integers = kind if np.issubdtype(acts.dtype, np.integer) else ""
        return cls(size, first, max(1, math.prod(shape)), None, shape, least, most, integers, **more)

    def fields(self) -> dict[str, Any]:
        """Fields as a dictionary, for files."""
        return {name: value for name, value in asdict(self).items() if name not in LATER or value}

    def check(self) -> None:
        """Raise a `ValueError` if it was read from a file and could not come from `of`."""
        counts, firsts = (self.inputs + bool(self.image), self.actions), (self.first_observation, self.first_action)
        whole = [*counts, *(first for first in firsts if first is not None)]
        shape, bounds = self.shape, (self.low, self.high)
        if not all(type(n) is int and abs(n) < 2**31 for n in whole) or min(counts) < 1:
            raise ValueError("observations and actions must be counted in whole numbers")
        if not all(isinstance(x, tuple) and all(type(n) is int and n >= 0 for n in x) for x in (shape, self.image)):
            raise ValueError("the shapes of an action and of an image must consist of whole numbers")
        if not all(isinstance(side, tuple) and all(type(x) in (int, float) for x in side) for side in bounds):
            raise ValueError("the bounds of actions must be numbers")
        if self.integers not in INTEGERS:
            raise ValueError("the type of actions must be one of whole numbers")
        if self.pixels not in (("uint8", "float32") if self.image else ("",)) or type(self.masked) is not bool:
            raise ValueError("an image must have 8 or 32 bits, and masks must be there or not")
        size = self.actions if self.first_action is None else len(self.low)
        if not len(self.low) == len(self.high) == size or (size and max(1, math.prod(shape)) != size):
            raise ValueError("the bounds of actions must be as many as there are numbers in one")
        if size and self.first_action is not None and not all(type(x) is int for x in (*self.low, *self.high)):
            raise ValueError("the values of the parts of an action must be whole numbers")
        if self.choices and (sum(self.choices) != self.actions or min(self.choices) < 1 or not self.integers):
            raise ValueError("the values of the parts of an action must be as many as there are")
        if len(self.image) not in (0, 2, 3, 4) or 0 in self.image or (self.masked and self.first_action is None):
            raise ValueError("an image must have two to four sides, and only actions that are counted can be masked")

    @property
    def discrete_observations(self) -> bool:
        """Whether observations are Discrete, that is one-hot rows."""
        return self.first_observation is not None

    @property
    def discrete_actions(self) -> bool:
        """Whether actions are Discrete or have several discrete parts."""
        return self.first_action is not None

    @property
    def choices(self) -> tuple[int, ...]:
        """Number of values of each part of an action; empty if it has no parts."""
        if self.first_action is None or not self.low:
            return ()
        return tuple(int(high - low) + 1 for low, high in zip(self.low, self.high, strict=True))

    @property
    def plain(self) -> bool:
        """Whether an observation has neither image nor mask."""
        return not (self.image or self.masked)

    @cached_property
    def sides(self) -> tuple[int, int, int]:
        """Height, width and channels of the image."""
        _, height, width, channels = self._channels_last(np.empty((1, *self.image), bool)).shape
        return height, width, channels

    def row_type(self, more: int = 0) -> np.dtype[Any]:
        """The dtype of a row with `more` numbers: float32, or a record with the fields of `Seen`."""
        if self.plain:
            return np.dtype((np.float32, (self.inputs + more,)))
        fields: list[Any] = [("numbers", np.float32, (self.inputs + more,))]
        if self.image:
            fields += [("pixels", self.pixels, self.sides), ("levels", np.float32, (2 * self.sides[-1],))]
        return np.dtype(fields + ([("allowed", bool, (self.actions,))] if self.masked else []))

    def batch(self, observation: Any, shape: tuple[int, ...], action_masks: Any = None) -> tuple[Any, bool]:
        """A single observation as a batch of one, or a batch unchanged, and which it was; `shape` is that of an observation.

        Matrices may be flattened or not. Masks may be separate from the observation.
        """
        if not self.plain:
            return self._parts(observation, action_masks)
        if action_masks is not None:
            raise UserError("this policy learned without masks of actions: leave out action_masks")
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
            what = f"an array of shape {list(found.shape)}"
            raise UserError(f"{what} is no observation of this policy: it takes {expected}")
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

    def _parts(self, observation: Any, action_masks: Any) -> tuple[dict[str, Any], bool]:
        """`batch` of an observation with an image or a mask."""
        vector = () if self.discrete_observations else (self.inputs,)
        shapes = {"image": self.image} if self.image else {}
        shapes |= ({"vector": vector} if self.inputs else {}) | ({MASK: (self.actions,)} if self.masked else {})
        alone = "vector" if self.inputs else "image"
        parts = dict(observation) if isinstance(observation, Mapping) else {alone: observation}
        if action_masks is not None:
            parts[MASK] = action_masks
        if parts.keys() != shapes.keys():
            missing = ", and action_masks=… is missing" if self.masked and MASK not in parts else ""
            raise UserError(
                f"this policy takes {' and '.join(shapes)}, got {' and '.join(map(str, parts))}: vpac.envs.arranged(env) gives "
                f"what it takes{missing}"
            )
        found = {name: np.asarray(part) for name, part in parts.items()}
        several = found[alone].ndim > len(shapes[alone])
        found = {name: part if several else part[None] for name, part in found.items()}
        for name, part in found.items():
            if part.shape[1:] != shapes[name] or part.dtype.kind not in "biuf":
                shape = list(part.shape[not several :])
                raise UserError(f"{name} has the shape {shape}: this policy takes {list(shapes[name])}")
        for row in found.get(MASK, ()):
            mask_row(row, self.choices or (self.actions,), "to act")
        return found, several

    def rows(self, observations: Any) -> Any:
        """A batch of observations as rows, see `row_type`."""
        if self.plain:
            return self._numbers(observations)
        parts = observations if isinstance(observations, Mapping) else {"image": observations}
        found = np.zeros(len(next(iter(parts.values()))), self.row_type())
        if self.inputs:
            found["numbers"] = self._numbers(parts["vector"])
        if self.image:
            found["pixels"] = self._channels_last(np.asarray(parts["image"]))
        if self.masked:
            found["allowed"] = parts[MASK]
        return found

    def _numbers(self, observations: Any) -> Numbers:
        """A batch of observations without image and mask, as float32 rows."""
        if self.first_observation is None:
            found = np.asarray(observations, np.float32)
            return found.reshape(len(found), -1)
        one_hot: Numbers = self._one_hot[np.asarray(observations) - self.first_observation]
        return one_hot

    @property
    def channels_first(self) -> bool:
        """Whether an image has its channels first: if only its last two axes are equal, or no neighbouring axes are equal and
        the first is shorter than the last."""
        if len(self.image) < 3:
            return False
        first, middle, last = self.image[-3:]
        return first != middle and (middle == last or first < last)

    def _channels_last(self, images: Any) -> Any:
        """A batch of images as [row, height, width, channel]; stacked frames become channels."""
        if images.ndim == 3:
            return images[..., None]
        if self.channels_first:
            images = np.moveaxis(images, -3, -1)
        if images.ndim == 4:
            return images
        return np.moveaxis(images, 1, 3).reshape(len(images), *images.shape[2:4], -1)

    def choose(self, preferences: Numbers) -> Any:
        """The argmax of each row, or of each part of an action."""
        if not self.choices:
            return preferences.argmax(axis=-1)
        return np.where(self.table < 0, -np.inf, preferences[..., self.table]).argmax(axis=-1)

    @cached_property
    def table(self) -> IntArray:
        """Indices of the values of each part of an action among all values, [part, value]; −1 where a part has fewer values."""
        ends, value = np.cumsum((0, *self.choices)), np.arange(max(self.choices))
        return np.where(value < np.diff(ends)[:, None], ends[:-1, None] + value, -1)

    def commands(self, actions: Any) -> Any:
        """A batch of the policy's actions as the environment takes them; Box actions within their bounds."""
        if self.choices:
            return (actions + np.array(self.low, np.int64)).astype(self.integers).reshape(len(actions), *self.shape)
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
        """Bounds of Box actions, as arrays."""
        return np.array(self.low, np.float32), np.array(self.high, np.float32)
