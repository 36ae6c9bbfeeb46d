"""What an environment answers to reset and step, read strictly; `Broken` says what to change."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from vpac.errors import UserError
from vpac.typing import FloatArray

PLAIN = {float, int, np.float64, np.float32}
"""Types of rewards that need no second look."""

OLD = (
    "step returned four things, as the old gym did: return five, `return observation, reward, terminated, truncated, {}`; "
    "terminated is an end of the task, truncated a time limit"
)


class Broken(UserError):
    """An answer that no learner can use."""


class Step(NamedTuple):
    """A step's answer, read."""

    observation: Any
    reward: float
    over: bool
    cut: bool
    """By a time limit."""


def read_reset(env: gymnasium.Env[Any, Any], seed: int, remarks: list[str], seen: bool = True) -> Any:
    """Reset and return the observation; `seen`: whether it has to be one of its space."""
    answer = _call(env.reset, "reset", seed=seed)
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
        raise Broken(
            f"reset returned {_shown(answer)}: return two things, observation and a dictionary: `return observation, {{}}`"
        )
    if seen:
        check_observation(answer[0], env.observation_space, "reset", remarks)
    return answer[0]


def read_step(env: gymnasium.Env[Any, Any], action: Any, remarks: list[str], seen: bool = True) -> Step:
    """Take a step and read its five parts; `seen` as for `read_reset`."""
    observation, reward, terminated, truncated, info = _five(_call(env.step, "step", action))
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            raise Broken(f"step returned {name} = {flag!r}: return True or False, for example bool(…)")
    if not isinstance(info, dict):
        raise Broken(f"step returned the info {info!r}: return a dictionary, {{}} if there is nothing to say")
    if seen:
        check_observation(observation, env.observation_space, "step", remarks)
    over = bool(terminated) or bool(truncated)
    return Step(observation, _reward(reward), over, over and not terminated)


def checked_step(env: Any, action: Any, name: str) -> tuple[Any, float, Any, Any, Any]:
    """Take a step; its five parts, the reward a number, finite or not. Every step of every loop passes here, so it is quick.

    Args:
        env: which.
        action: as it takes it.
        name: what to call it in a message.
    """
    try:
        answer = env.step(action)
    except ValueError as error:
        place = traceback.extract_tb(error.__traceback__)[-1].filename
        if "to unpack (expected 5" not in str(error) or "gymnasium" not in place:
            raise
        raise Broken(f"{name}: {OLD}") from None  # a wrapper was the first to find out
    if type(answer) is tuple and len(answer) == 5 and type(answer[1]) in PLAIN:
        return answer
    try:
        observation, reward, terminated, truncated, info = _five(answer)
        return observation, number(reward), terminated, truncated, info
    except Broken as error:
        raise Broken(f"{name}: {error}") from None


def _five(answer: Any) -> tuple[Any, ...]:
    if isinstance(answer, tuple) and len(answer) == 4:
        raise Broken(OLD)
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise Broken(
            f"step returned {_shown(answer)}: return observation, reward, terminated, truncated and a dictionary"
        )
    return answer


def reward_array(rewards: Any, name: str) -> FloatArray:
    """The rewards of a vector environment; text is none, though NumPy would read it."""
    found = np.asarray(rewards)
    if found.dtype.kind not in "fiub":
        raise Broken(f"{name}: step returned the rewards {found!r:.60}: return an array of numbers")
    return np.asarray(found, np.float64)


def same(one: Any, two: Any) -> bool:
    """Whether two observations are equal."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))
    floats = all(np.asarray(x).dtype.kind == "f" for x in (one, two))
    return bool(np.array_equal(one, two, equal_nan=floats))


def _call(method: Any, name: str, *arguments: Any, **named: Any) -> Any:
    try:
        return method(*arguments, **named)
    except Exception as error:  # whatever somebody's environment raises
        place = traceback.extract_tb(error.__traceback__)[-1]
        given = f" with action {arguments[0]!r}" if arguments else ""
        raise Broken(
            f"{name}{given} raised {type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
        ) from None


def number(reward: Any) -> float:
    """A reward as a number, finite or not."""
    if isinstance(reward, np.ndarray) and reward.ndim:
        raise Broken(f"step returned the reward {reward!r}, an array: return a number, for example float(reward[0])")
    if isinstance(reward, str | bytes):
        raise Broken(f"step returned the reward {reward!r}: return a number")
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise Broken(f"step returned the reward {reward!r}: return a number, on every path through step") from None


def _reward(reward: Any) -> float:
    value = number(reward)
    if not np.isfinite(value):
        raise Broken(
            f"step returned the reward {value}: return a finite number; look for a division by zero or a log of zero"
        )
    return value


def check_observation(observation: Any, space: spaces.Space[Any], by: str, remarks: list[str]) -> None:
    """Raise `Broken` unless an observation is one of its space; `by` says who returned it."""
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, dict) or observation.keys() != space.spaces.keys():
            keys = list(observation) if isinstance(observation, dict) else _shown(observation)
            raise Broken(f"{by} returned {keys}: return a dictionary with the keys of the space, {list(space)}")
    elif isinstance(space, spaces.Tuple) and not (isinstance(observation, tuple) and len(observation) == len(space)):
        raise Broken(f"{by} returned {_shown(observation)}: return a tuple of {len(space)} like observation_space")
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner: Any = space
        names: Any = space.spaces if isinstance(space, spaces.Dict) else range(len(space))
        for name in names:
            check_observation(observation[name], inner[name], f"{by}, observation[{name!r}],", remarks)
        return
    _check_part(observation, space, by, remarks)


def _check_part(observation: Any, space: spaces.Space[Any], by: str, remarks: list[str]) -> None:
    if isinstance(space, spaces.Discrete):
        if not isinstance(observation, int | np.integer) or isinstance(observation, bool):
            raise Broken(f"{by} returned {_shown(observation)}: return a whole number, int(…), as {space} says")
        if not space.start <= observation < space.start + space.n:
            last = space.start + space.n - 1
            raise Broken(
                f"{by} returned {observation}, outside {space}: expected {space.start} to {last}; change one of the two"
            )
        return
    if not isinstance(observation, np.ndarray | np.generic):
        raise Broken(
            f"{by} returned {_shown(observation)}: return an array, np.array(…, np.{space.dtype}), as {space} says"
        )
    if observation.shape != space.shape:
        raise Broken(
            f"{by} returned an array of shape {list(observation.shape)}, observation_space has {list(space.shape or ())}: "
            "change one of the two"
        )
    if not np.issubdtype(observation.dtype, np.number) and observation.dtype != np.bool_:
        raise Broken(f"{by} returned an array of {observation.dtype}: return numbers, np.array(…, np.{space.dtype})")
    if not np.isfinite(observation).all():
        where = int(np.argmin(np.isfinite(observation).ravel()))
        raise Broken(f"{by} returned {observation.ravel()[where]} at place {where}: every observation must be finite")
    _check_bounds(observation, space, by)
    if not np.can_cast(observation.dtype, space.dtype or observation.dtype):
        text = f"{by} returns {observation.dtype}, observation_space says {space.dtype}: make them the same"
        if text not in remarks:
            remarks.append(text)


def _check_bounds(observation: Any, space: spaces.Space[Any], by: str) -> None:
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:
        low, high = np.zeros(space.shape or ()), np.ones(space.shape or ())
    slack = 1e-6 * (
        1.0 + np.abs(np.where(np.isfinite(observation), observation, 0.0))
    )  # single precision beside double
    outside = ((observation < low - slack) | (observation > high + slack)).ravel()
    if outside.any():
        where = int(np.argmax(outside))
        value, least, most = (float(np.ravel(x)[where]) for x in (observation, low, high))
        raise Broken(
            f"{by} returned {value:g} at place {where}, outside its bounds {least:g} to {most:g}: widen observation_space "
            "or clip the observation"
        )


def _shown(answer: Any) -> str:
    if isinstance(answer, tuple):
        return f"a tuple of {len(answer)}"
    return f"{answer!r:.40} ({type(answer).__name__})"
