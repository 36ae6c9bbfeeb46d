"""Observations as vectors: dictionaries, tuples and matrices are flattened, what cannot be a vector is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from vpac.errors import UserError
from vpac.typing import FloatArray

FLAT = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)
SIDE = 16
"""Pictures have at least so many rows and columns."""


class Flattened(FlattenObservation):
    """`FlattenObservation` that `make_env` has added, and adds again; one that a user names is part of the environment."""


def flattened(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment with observations that are one vector or one whole number; itself if they are.

    Dict (also nested), Tuple, MultiDiscrete, MultiBinary and Box observations of several dimensions become one Box: numbers
    in the order of the space (a Dict's keys sorted), each Discrete part as zeros and a one.
    """
    space = getattr(env, "observation_space", None)
    reason = why_not_flat(space)
    if reason:
        raise UserError(f"{env.spec.id if env.spec else env}: {reason}")
    plain = isinstance(space, spaces.Discrete) or (isinstance(space, spaces.Box) and len(space.shape) <= 1)
    return env if plain else Flattened(env)


def why_not_flat(space: Any) -> str:
    """Why observations of this space cannot become a vector, and what to do; empty if they can."""
    if not isinstance(space, spaces.Space):
        return f"observation_space is {space!r}: set self.observation_space in __init__ to a space of gymnasium.spaces"
    for name, part in parts(space):
        where = f"observation {name}" if name else "the observation"
        if is_image(part):
            return (
                f"{where} is an image ({part}), and there are no networks for images here: let the environment give the "
                "numbers that matter (positions, speeds, counts), or compute them from the image in a wrapper; if it is no "
                "image, give its numbers as a vector, a Box of one dimension"
            )
        if not isinstance(part, FLAT):
            return (
                f"{where} is a {type(part).__name__} space, whose size varies: use Box, Discrete, MultiDiscrete, "
                "MultiBinary, or a Dict or Tuple of them"
            )
    return ""


def parts(space: spaces.Space[Any], name: str = "") -> Iterator[tuple[str, spaces.Space[Any]]]:
    """The spaces that a Dict or Tuple consists of, with the way to each."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            yield from parts(part, f"{name}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space):
            yield from parts(part, f"{name}[{place}]")
    else:
        yield name, space


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether a space holds pictures: bytes in two or more dimensions; or numbers with two sides of 16 or more, and 1, 3 or 4
    channels or the same two finite bounds for all, as brightness has. Small matrices and tables of quantities are none."""
    if not isinstance(space, spaces.Box) or len(space.shape) < 2:
        return False
    if space.dtype == np.uint8:
        return True
    if sorted(space.shape)[-2] < SIDE:
        return False
    channels = len(space.shape) == 3 and bool({space.shape[0], space.shape[-1]} & {1, 3, 4})
    low, high = (np.unique(bound) for bound in (space.low, space.high))
    brightness = len(low) == len(high) == 1 and bool(np.isfinite([low[0], high[0]]).all())
    return channels or brightness


SAME = 1e-6
"""Differences below this share of a number's range are rounding errors."""


def as_row(observation: Any) -> FloatArray:
    """A copy of an observation as one row of numbers; a Discrete part is one number, not zeros and a one."""
    if isinstance(observation, dict):
        observation = tuple(part for _, part in sorted(observation.items()))
    if isinstance(observation, tuple):
        return np.concatenate([as_row(part) for part in observation])
    return np.array(observation, np.float64).ravel()


def tells_time(seen: FloatArray) -> bool:
    """Whether the time can be read off observations [episodes, steps, numbers] of episodes of the same length.

    It can in three ways; where the third is undecided, because nothing ever recurs, the answer is yes, too.

    1. Numbers that depend on the step alone together differ at every step: a countdown, sine and cosine, one-hot.
    2. A number has disjoint ranges at different steps: 21 · week + stock.
    3. A whole number, or all zeros and ones together, never recurs at another step: 12 · stock + week, one-hot or not.
    """
    episodes, steps, _ = seen.shape
    size = np.ptp(seen, axis=(0, 1))
    scaled = seen[..., size > 0.0] / size[size > 0.0]
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    clock = low[:, (high - low < SAME).all(axis=0)]
    if len(np.unique(np.round(clock / SAME), axis=0)) == steps:
        return True
    order = np.argsort(low, axis=0)
    low, high = (np.take_along_axis(bound, order, axis=0) for bound in (low, high))
    if (low[1:] > high[:-1] + SAME).all(axis=0).any():
        return True
    whole = seen[..., (seen % 1.0 == 0.0).all(axis=(0, 1))].reshape(episodes * steps, -1)
    bits = ((whole == 0.0) | (whole == 1.0)).all(axis=0)
    together = np.unique(whole[:, bits], axis=0, return_inverse=True)[1].ravel()
    step = np.tile(np.arange(steps), episodes)
    return any(
        len(np.unique(column)) == np.unique([column, step], axis=1).shape[1]
        for column in (*whole[:, ~bits].T, together)
    )
