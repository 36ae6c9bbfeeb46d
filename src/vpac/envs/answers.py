"""What an environment answers to reset and step, read strictly; an `InvalidAnswer` says what to change.

Gymnasium's own checker stops at an assertion that does not say what to change, and checks only the first step.
"""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from vpac.errors import UserError
from vpac.typing import FloatArray

PLAIN = {float, int, np.float64, np.float32}
"""Types of rewards that need no conversion."""
OLD = (
    "step returned four things, as the old gym did: return five, `return observation, reward, terminated, truncated, {}`; "
    "terminated is an end of the task, truncated a time limit"
)


class InvalidAnswer(UserError):
    """An answer that no learner can use."""


class StepAnswer(NamedTuple):
    """The answer of a step, checked."""

    observation: Any
    reward: float
    over: bool
    cut: bool
    """Whether a time limit ended the episode."""


def read_reset(env: gymnasium.Env[Any, Any], seed: int, remarks: list[str], in_space: bool = True) -> Any:
    """Reset and return the observation; `in_space`: whether it has to be one of its space."""
    answer = _call(env.reset, "reset", seed=seed)
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
        raise InvalidAnswer(
            f"reset returned {_shown(answer)}: return two things, observation and a dictionary: `return observation, {{}}`"
        )
    if in_space:
        check_observation(answer[0], env.observation_space, "reset", remarks)
    return answer[0]


def read_step(env: gymnasium.Env[Any, Any], action: Any, remarks: list[str], in_space: bool = True) -> StepAnswer:
    """Take a step and check the five parts of its answer; `in_space` as for `read_reset`."""
    observation, reward, terminated, truncated, info = _five_parts(_call(env.step, "step", action))
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            raise InvalidAnswer(f"step returned {name} = {flag!r}: return True or False, for example bool(…)")
    if not isinstance(info, dict):
        raise InvalidAnswer(f"step returned the info {info!r}: return a dictionary, {{}} if there is nothing to say")
    if in_space:
        check_observation(observation, env.observation_space, "step", remarks)
    value = _number(reward)
    if not np.isfinite(value):
        raise InvalidAnswer(
            f"step returned the reward {value}: return a finite number; look for a division by zero or a log of zero"
        )
    over = bool(terminated) or bool(truncated)
    return StepAnswer(observation, value, over, over and not terminated)


def checked_step(env: Any, action: Any, name: str) -> tuple[Any, float, Any, Any, Any]:
    """Take a step; the five parts of its answer, the reward as a number, finite or not.

    Every step of every loop passes here, so the usual case is quick. `name` is the environment's in messages.
    """
    try:
        answer = env.step(action)
    except ValueError as error:
        place = traceback.extract_tb(error.__traceback__)[-1].filename
        if "to unpack (expected 5" not in str(error) or "gymnasium" not in place:
            raise
        raise InvalidAnswer(f"{name}: {OLD}") from None  # one of Gymnasium's wrappers unpacked it first
    if type(answer) is tuple and len(answer) == 5 and type(answer[1]) in PLAIN:
        return answer
    try:
        observation, reward, terminated, truncated, info = _five_parts(answer)
        return observation, _number(reward), terminated, truncated, info
    except InvalidAnswer as error:
        raise InvalidAnswer(f"{name}: {error}") from None


def reward_array(rewards: Any, name: str) -> FloatArray:
    """The rewards of a vector environment; text is refused, though NumPy would read it."""
    found = np.asarray(rewards)
    if found.dtype.kind not in "fiub":
        raise InvalidAnswer(f"{name}: step returned the rewards {found!r:.60}: return an array of numbers")
    return np.asarray(found, np.float64)


def _call(method: Any, name: str, *arguments: Any, **named: Any) -> Any:
    try:
        return method(*arguments, **named)
    except Exception as error:  # whatever an environment raises
        place = traceback.extract_tb(error.__traceback__)[-1]
        given = f" with action {arguments[0]!r}" if arguments else ""
        raise InvalidAnswer(
            f"{name}{given} raised {type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
        ) from None


def _five_parts(answer: Any) -> tuple[Any, ...]:
    if isinstance(answer, tuple) and len(answer) == 4:
        raise InvalidAnswer(OLD)
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise InvalidAnswer(
            f"step returned {_shown(answer)}: return observation, reward, terminated, truncated and a dictionary"
        )
    return answer


def _number(reward: Any) -> float:
    if isinstance(reward, np.ndarray) and reward.ndim:
        raise InvalidAnswer(
            f"step returned the reward {reward!r}, an array: return a number, for example float(reward[0])"
        )
    if isinstance(reward, str | bytes):
        raise InvalidAnswer(f"step returned the reward {reward!r}: return a number")
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise InvalidAnswer(
            f"step returned the reward {reward!r}: return a number, on every path through step"
        ) from None


def check_observation(observation: Any, space: spaces.Space[Any], by: str, remarks: list[str]) -> None:
    """Raise an `InvalidAnswer` unless an observation is one of its space; `by` says what returned it."""
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, dict) or observation.keys() != space.spaces.keys():
            keys = list(observation) if isinstance(observation, dict) else _shown(observation)
            raise InvalidAnswer(f"{by} returned {keys}: return a dictionary with the keys of the space, {list(space)}")
        for name, part in space.spaces.items():
            check_observation(observation[name], part, f"{by}, observation[{name!r}],", remarks)
    elif isinstance(space, spaces.Tuple):
        if not (isinstance(observation, tuple) and len(observation) == len(space)):
            raise InvalidAnswer(
                f"{by} returned {_shown(observation)}: return a tuple of {len(space)} like observation_space"
            )
        for number, part in enumerate(space.spaces):
            check_observation(observation[number], part, f"{by}, observation[{number}],", remarks)
    elif isinstance(space, spaces.Discrete):
        if not isinstance(observation, int | np.integer) or isinstance(observation, bool):
            raise InvalidAnswer(f"{by} returned {_shown(observation)}: return a whole number, int(…), as {space} says")
        last = space.start + space.n - 1
        if not space.start <= observation <= last:
            raise InvalidAnswer(
                f"{by} returned {observation}, outside {space}: expected {space.start} to {last}; change one of the two"
            )
    else:
        _check_array(observation, space, by, remarks)


def _check_array(observation: Any, space: spaces.Space[Any], by: str, remarks: list[str]) -> None:
    if not isinstance(observation, np.ndarray | np.generic):
        raise InvalidAnswer(
            f"{by} returned {_shown(observation)}: return an array, np.array(…, np.{space.dtype}), as {space} says"
        )
    if observation.shape != space.shape:
        raise InvalidAnswer(
            f"{by} returned an array of shape {list(observation.shape)}, observation_space has {list(space.shape or ())}: "
            "change one of the two"
        )
    if not np.issubdtype(observation.dtype, np.number) and observation.dtype != np.bool_:
        raise InvalidAnswer(
            f"{by} returned an array of {observation.dtype}: return numbers, np.array(…, np.{space.dtype})"
        )
    if not np.isfinite(observation).all():
        where = int(np.argmin(np.isfinite(observation).ravel()))
        raise InvalidAnswer(
            f"{by} returned {observation.ravel()[where]} at place {where}: every observation must be finite"
        )
    low, high = _bounds(space)
    slack = 1e-6 * (1.0 + np.abs(observation))  # single precision beside double
    outside = ((observation < low - slack) | (observation > high + slack)).ravel()
    if outside.any():
        where = int(np.argmax(outside))
        value, least, most = (float(np.ravel(x)[where]) for x in (observation, low, high))
        raise InvalidAnswer(
            f"{by} returned {value:g} at place {where}, outside its bounds {least:g} to {most:g}: widen observation_space "
            "or clip the observation"
        )
    if not np.can_cast(observation.dtype, space.dtype or observation.dtype):
        remark(remarks, f"{by} returns {observation.dtype}, observation_space says {space.dtype}: make them the same")


def _bounds(space: spaces.Space[Any]) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return np.zeros(space.shape or ()), np.ones(space.shape or ())


def remark(remarks: list[str], text: str) -> None:
    """Add a remark, once."""
    if text not in remarks:
        remarks.append(text)


def _shown(answer: Any) -> str:
    if isinstance(answer, tuple):
        return f"a tuple of {len(answer)}"
    return f"{answer!r:.40} ({type(answer).__name__})"
