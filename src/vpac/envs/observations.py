"""Observations for learners: one vector, or for networks a vector, an image and a mask of actions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import FlattenObservation

from vpac.errors import UserError
from vpac.typing import BoolArray, FloatArray

FLAT = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)
SIDE = 16
"""Images have at least this many rows and columns."""
MASK = "action_mask"
"""The name of a mask in an observation or an `info`, as in PettingZoo."""


class Flattened(FlattenObservation):
    """The `FlattenObservation` that `make_env` adds; one that a user names is part of the environment."""


def flattened(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment with observations that are one vector or one whole number; unchanged if they are.

    Dict (also nested), Tuple, MultiDiscrete, MultiBinary and Box observations of several dimensions become one Box: numbers
    in the order of the space (a Dict's keys sorted), each Discrete part one-hot.
    """
    space = getattr(env, "observation_space", None)
    reason = why_not_flat(space)
    if reason:
        raise UserError(f"{env.spec.id if env.spec else env}: {reason}")
    plain = isinstance(space, spaces.Discrete) or (isinstance(space, spaces.Box) and len(space.shape) <= 1)
    return env if plain else Flattened(env)


def why_not_flat(space: Any, *, but_one_image: bool = False) -> str:
    """Reason why observations of this space cannot become a vector, and what to do; empty if they can.

    `but_one_image`: one part may be an image, for which networks have an encoder.
    """
    if not isinstance(space, spaces.Space):
        return f"observation_space is {space!r}: set self.observation_space in __init__ to a space of gymnasium.spaces"
    spare = but_one_image
    for name, part in parts(space):
        where = f"observation {name}" if name else "the observation"
        if is_image(part):
            if but_one_image and not spare:
                way = "put images of one size together as the channels of one, or --wrap gymnasium.wrappers:FlattenObservation"
                return f"{where} is a second image ({part}): {way}"
            if not spare:
                return (
                    f"{where} is an image ({part}), and only the PPO family has networks for images (give it "
                    "vpac.envs.spec_of(name, wrap, …), not make_env): let the environment give the numbers that matter "
                    "(positions, speeds, counts), or compute them from the image in a wrapper; if it is no image, give its "
                    "numbers as a vector, a Box of one dimension"
                )
            spare = False
        elif isinstance(part, spaces.Text) or (part.dtype is not None and part.dtype.kind == "U"):
            return (
                f"{where} is text ({type(part).__name__}), which no network here reads: remove it in a wrapper "
                "(--wrap gymnasium.wrappers:FilterObservation filter_keys='[…]' keeps the named keys of a Dict; minigrid has "
                "--wrap minigrid.wrappers:ImgObsWrapper), or give numbers that say the same, a Discrete for a few sentences"
            )
        elif not isinstance(part, FLAT):
            return (
                f"{where} is a {type(part).__name__} space, whose size varies: use Box, Discrete, MultiDiscrete, "
                "MultiBinary, or a Dict or Tuple of them"
            )
    return ""


def arranged(env: gymnasium.Env[Any, Any], masked: bool | None = None) -> gymnasium.Env[Any, Any]:
    """The environment with observations as the networks of the PPO family take them.

    Without an image and a mask of actions that is `flattened(env)`. Otherwise it is the image, or a Dict of those that exist of
    "image", unchanged, "vector", all other numbers in a row or one whole number, and "action_mask".

    `masked`: whether there is a mask, as `has_masks` describes; None: if one can be found without a reset.
    """
    if isinstance(env, ArrangedObservation):
        return env
    space: Any = getattr(env, "observation_space", None)
    if reason := why_not_flat(space, but_one_image=True):
        raise UserError(f"{env.spec.id if env.spec else env}: {reason}")
    masked = has_masks(env) if masked is None else masked
    if not masked and not any(is_image(part) for _, part in parts(space)):
        return flattened(env)
    return env if not masked and isinstance(space, spaces.Box) else ArrangedObservation(env, masked)


class ArrangedObservation(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Observations as `arranged` describes them; masks are checked."""

    def __init__(self, env: gymnasium.Env[Any, Any], masked: bool = False) -> None:
        RecordConstructorArgs.__init__(self, masked=masked)
        gymnasium.Wrapper.__init__(self, env)
        self._masked, self._actions = masked, sum(choices(env.action_space))
        self._seen: Any = without_mask(env.observation_space) if masked else env.observation_space
        every = [part for _, part in parts(self._seen)]
        found: dict[str, Any] = dict(zip(("image",), filter(is_image, every), strict=False))
        rest = [part for part in every if not is_image(part)]
        self._number = len(rest) == 1 and isinstance(rest[0], spaces.Discrete)
        if rest:
            flat: Any = spaces.flatten_space(spaces.Tuple(rest))
            found["vector"] = rest[0] if self._number else spaces.Box(flat.low, flat.high, dtype=flat.dtype)
        if masked:
            found[MASK] = spaces.MultiBinary(self._actions)
        self.observation_space = spaces.Dict(found) if len(found) > 1 else found["image"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._arrange(observation, info, "reset", False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        seen = self._arrange(observation, info, "step", bool(terminated or truncated))
        return seen, reward, terminated, truncated, info

    def _arrange(self, observation: Any, info: Any, by: str, over: bool) -> Any:
        """An observation as input of networks."""
        found, rest = dict[str, Any](), list[Any]()
        for part, value in part_values(self._seen, observation):
            if is_image(part):
                found["image"] = value
            else:
                rest.append(value if self._number else spaces.flatten(part, value))
        if rest:
            found["vector"] = rest[0] if self._number else np.concatenate(rest)
        if self._masked:
            mask = read_mask(self.env, observation, info, f"{self.env}: after {by}", over)
            if mask is None and not over:
                raise UserError(f"{self.env}: after {by} there is no mask of actions: give one every time")
            found[MASK] = np.ones(self._actions, bool) if mask is None else mask
        return found if len(found) > 1 else found["image"]


def without_mask(space: Any) -> Any:
    """A space of observations without a mask of actions."""
    masked = isinstance(space, spaces.Dict) and MASK in space.spaces
    return spaces.Dict({key: part for key, part in space.items() if key != MASK}) if masked else space


def part_values(space: spaces.Space[Any], value: Any) -> Iterator[tuple[spaces.Space[Any], Any]]:
    """The parts of an observation with their spaces, in the order of `parts`."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            yield from part_values(part, value[key])
    elif isinstance(space, spaces.Tuple):
        for part, one in zip(space, value, strict=True):
            yield from part_values(part, one)
    else:
        yield space, value


def choices(space: Any) -> tuple[int, ...]:
    """Number of values of each part of an action, for spaces whose actions can be masked; otherwise empty."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiBinary):
        return (2,) * math.prod(space.shape)
    return tuple(int(n) for n in space.nvec.ravel()) if isinstance(space, spaces.MultiDiscrete) else ()


def has_masks(env: gymnasium.Env[Any, Any], reset: bool = False) -> bool:
    """Whether an environment has a mask of allowed actions, in one of three ways.

    A Dict observation has the key "action_mask", the environment or a wrapper has a method `action_masks()`, or `info` has the
    key "action_mask", which only a reset can show.
    """
    space = env.observation_space
    if not choices(env.action_space):
        return False
    if (isinstance(space, spaces.Dict) and MASK in space.spaces) or env.has_wrapper_attr("action_masks"):
        return True
    return reset and MASK in env.reset(seed=0)[1]


def read_mask(
    env: gymnasium.Env[Any, Any], observation: Any, info: Any, where: str, over: bool = False
) -> BoolArray | None:
    """The mask of an environment after a reset or step, in the form of `mask_row`; None if there is none."""
    if isinstance(observation, dict) and MASK in observation:
        given = observation[MASK]
    elif env.has_wrapper_attr("action_masks"):
        given = env.get_wrapper_attr("action_masks")()
    else:
        given = info.get(MASK)
    each = choices(env.action_space)
    return None if given is None or not each else mask_row(given, each, where, over)


def mask_row(given: Any, choices: tuple[int, ...], where: str, over: bool = False) -> BoolArray:
    """A mask as one row of bools: for each part of an action, whether each of its values, `choices`, is allowed.

    `given` is that row, of bools or of zeros and ones, or a list with one of them for each part. When the episode is `over`,
    all entries may be zero.
    """
    row = np.concatenate([np.ravel(part) for part in given]) if isinstance(given, tuple | list) else np.ravel(given)
    if row.dtype.kind not in "biuf" or row.shape != (sum(choices),) or not ((row == 0) | (row == 1)).all():
        each = f" ({' + '.join(map(str, choices))})" if len(choices) > 1 else ""
        expected = f"{sum(choices)}{each} zeros and ones, 1 for what is allowed"
        raise UserError(f"{where} the mask of actions is {given!r:.80}: expected {expected}")
    row = row.astype(bool)
    if not over and not np.logical_or.reduceat(row, np.cumsum((0, *choices[:-1]))).all():
        raise UserError(f"{where} the mask allows no action: let the episode end there, or allow one")
    return row


def allowed_action(space: Any, row: BoolArray, rng: np.random.Generator) -> Any:
    """An action whose parts are drawn uniformly from the values that a row of `mask_row` allows."""
    each = np.split(row, np.cumsum(choices(space))[:-1])
    drawn = np.array([rng.choice(np.flatnonzero(part)) for part in each]).reshape(space.shape)
    return (drawn + getattr(space, "start", 0)).astype(space.dtype)[()]


def parts(space: spaces.Space[Any], name: str = "") -> Iterator[tuple[str, spaces.Space[Any]]]:
    """The spaces in a Dict or Tuple, with the path to each."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            yield from parts(part, f"{name}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space):
            yield from parts(part, f"{name}[{place}]")
    else:
        yield name, space


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether a space holds images: bytes in two or more dimensions; or numbers with two sides of 16 or more, and 1, 3 or 4
    channels or the same two finite bounds everywhere. Small matrices and tables of quantities are not images."""
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


RANGE_ROUNDING = 1e-6
"""Differences below this share of a number's range are rounding errors."""


def as_row(observation: Any) -> FloatArray:
    """A copy of an observation as one row of numbers; a Discrete part is one number, not one-hot."""
    if isinstance(observation, dict):
        observation = tuple(part for _, part in sorted(observation.items()))
    if isinstance(observation, tuple):
        return np.concatenate([as_row(part) for part in observation])
    return np.array(observation, np.float64).ravel()


def tells_time(seen: FloatArray) -> bool:
    """Whether observations [episodes, steps, numbers] of episodes of the same length determine the time.

    There are three ways; if the third is undecided, because nothing ever recurs, the answer is yes, too.

    1. Numbers that depend only on the step differ, together, at every step: a countdown, sine and cosine, one-hot.
    2. A number has disjoint ranges at different steps: 21 · week + stock.
    3. A whole number, or all zeros and ones together, never recurs at another step: 12 · stock + week, one-hot or not.
    """
    episodes, steps, _ = seen.shape
    size = np.ptp(seen, axis=(0, 1))
    scaled = seen[..., size > 0.0] / size[size > 0.0]
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    clock = low[:, (high - low < RANGE_ROUNDING).all(axis=0)]
    if len(np.unique(np.round(clock / RANGE_ROUNDING), axis=0)) == steps:
        return True
    order = np.argsort(low, axis=0)
    low, high = (np.take_along_axis(bound, order, axis=0) for bound in (low, high))
    if (low[1:] > high[:-1] + RANGE_ROUNDING).all(axis=0).any():
        return True
    whole = seen[..., (seen % 1.0 == 0.0).all(axis=(0, 1))].reshape(episodes * steps, -1)
    bits = ((whole == 0.0) | (whole == 1.0)).all(axis=0)
    together = np.unique(whole[:, bits], axis=0, return_inverse=True)[1].ravel()
    step = np.tile(np.arange(steps), episodes)
    return any(
        len(np.unique(column)) == np.unique([column, step], axis=1).shape[1]
        for column in (*whole[:, ~bits].T, together)
    )
