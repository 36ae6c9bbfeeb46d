"""Observations as vectors: dictionaries, tuples and matrices are flattened, what cannot be a vector is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from vpac.errors import UserError

__all__ = ["flattened", "is_image", "why_not_flat"]

FLAT = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)
SIDE = 16
"""Pictures have at least so many rows and columns."""


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
    return env if plain else FlattenObservation(env)


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
