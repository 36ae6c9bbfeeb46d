"""Check that an environment follows the rules that learners rely on; each message says what to change.

`check_env` and `look_over` take random actions. How many depends on counts of steps and episodes, never on the clock. The
environment is checked with its wrappers. Learners and `vpac.evaluate` call `check_before_use` first: an environment that can be
made again (from an id, a class, a function, a specification) is made once more, checked for 100 steps and closed, once per
name and process. The environment that is used is not touched, and no random numbers are drawn. An existing object is checked
without a step, because a step might change it; loops check its results with `checked_step`. Environments of Gymnasium and vpac
are not checked.

Gymnasium's own checker is not used: it checks one step, stops at the first assertion and does not say what to change.
"""

from __future__ import annotations

import inspect
import math
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import PassiveEnvChecker

from vpac.algorithms import DEFAULT_GAMMA
from vpac.envs.make import name_of, spec_of
from vpac.envs.observations import (
    ArrangedObservation,
    Flattened,
    allowed_action,
    as_row,
    choices,
    is_image,
    part_values,
    read_mask,
    tells_time,
    why_not_flat,
)
from vpac.errors import UserError
from vpac.typing import BoolArray, FloatArray

PLAYED_EPISODES = (3, 3000), (20, 2000)
"""Episodes to play, and steps after which no further one begins; the second pair only if nothing is wrong."""
AGAIN = 200
"""Steps that are repeated with the same seed and actions."""
BOUND_ROUNDING, SMALL_BREACH = 1e-6, 1e-2
"""Violations of bounds that are ignored, relative to the number, and that are only remarks, as a share of the range. The first
also bounds what counts as a rounding error when an episode is repeated."""
FIRST_ACTIONS, LEAST_SHARE = 0.8, 0.1
"""Most actions of an untrained policy lie within ± this; and the least share of the range of actions that this should be."""
MOVING_SHARE = 0.1
"""Share of an image's values that may differ for the same seed, for example in a moving background."""
SEED_HINT = "; if it is not yours to change and draws from random or np.random: --wrap SeedGlobals"
WIDEST_IMAGE, GREY = 96, " --wrap gymnasium.wrappers:GrayscaleObservation"
"""Side of an image from which networks learn in minutes on a CPU; and a wrapper that removes colours."""
LARGE_OBSERVATION = 1000
"""Larger observations, such as images, are not searched for the time."""


@dataclass
class Findings:
    """The result of a check of an environment."""

    errors: list[str] = field(default_factory=list)
    """Faults to remove before learning."""
    remarks: list[str] = field(default_factory=list)
    """Properties that work but may be surprising."""
    steps: int = 0
    """Number of steps taken."""
    lengths: list[int] = field(default_factory=list)
    """Lengths of the episodes that ended, with random actions."""
    returns: list[float] = field(default_factory=list)
    """Their undiscounted returns."""
    discounted: list[float] = field(default_factory=list)
    """Their returns discounted with γ = 0.99, the learners' default."""

    def remark(self, text: str) -> None:
        """Add a remark, once."""
        if text not in self.remarks:
            self.remarks.append(text)


def check_env(env: gymnasium.Env[Any, Any], steps: int = 20_000, *, seed: int = 0) -> Findings:
    """Take random actions and raise a `UserError` with all errors; otherwise return the findings.

    Args:
        env: the environment; it is reset and stepped, and left in the middle of an episode.
        steps: largest number of steps.
        seed: seed of the resets and the actions.
    """
    found = look_over(env, steps, seed=seed)
    refuse(env, found.errors)
    return found


def refuse(env: Any, errors: list[str], what: str = "cannot be learned from yet:") -> None:
    """Raise a `UserError` with a list of errors, if there are any."""
    if errors:
        listed = "\n".join(f"  {number}. {error}" for number, error in enumerate(errors, 1))
        raise UserError(f"{name_of(env)} {what}\n{listed}")


def look_over(env: Any, steps: int = 20_000, *, seed: int = 0, learning: bool = True, ends: bool = True) -> Findings:
    """`check_env` without raising.

    `learning`: whether spaces and observations must suit vpac's learners; `ends`: whether it is an error if no episode ends.
    """
    if isinstance(env, Flattened | ArrangedObservation):
        env = env.env  # messages name the parts of the original observation
    found = Findings(seen_without_a_step(env, learning))
    if found.errors:
        return found
    inner = env
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, PassiveEnvChecker):  # its assertions would come before our messages
            inner.checked_reset = inner.checked_step = inner.checked_data_reuse = True
        inner = inner.env
    try:
        _Trial(env, found, learning).run(steps, seed, ends)
    except UserError as error:
        found.errors.append(str(error))
    return found


def seen_without_a_step(env: Any, learning: bool = True) -> list[str]:
    """The errors that can be found without a step: in the class, the spaces and the signature of reset."""
    if not isinstance(env, gymnasium.Env):
        kind = f"{type(env).__module__}.{type(env).__name__}"
        return [f"it is a {kind}: derive its class from gymnasium.Env (the old gym.Env is another class)"]
    seen = getattr(env, "observation_space", None)
    reasons = (_actions(env), why_not_flat(seen, but_one_image=True)) if learning else ()
    return [reason for reason in (*reasons, _reset_signature(env)) if reason]


def _actions(env: gymnasium.Env[Any, Any]) -> str:
    space = getattr(env, "action_space", None)
    if choices(space):
        return ""
    if not isinstance(space, spaces.Space):
        return f"action_space is {space!r}: set self.action_space in __init__ to gymnasium.spaces.Discrete(n) or Box(low, high)"
    if not isinstance(space, spaces.Box):
        return f"action_space is {space}: use MultiDiscrete for several choices at once, MultiBinary, Discrete or Box"
    if math.prod(space.shape) == 0:
        return f"action_space is {space}, without a number: use Box(low, high, (n,)) or Discrete(n)"
    if not (space.low < space.high).all():
        return f"action_space is {space}: every lower bound must be below its upper bound"
    return ""


def _reset_signature(env: gymnasium.Env[Any, Any]) -> str:
    while isinstance(env, gymnasium.Wrapper) and type(env).reset.__module__.startswith("gymnasium."):
        env = env.env  # it passes its arguments on
    known = inspect.signature(env.reset).parameters
    missing = [name for name in ("seed", "options") if name not in known]
    if not missing or any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return ""
    return (
        f"reset takes no {' and no '.join(missing)}: write def reset(self, *, seed=None, options=None), and begin it with "
        "super().reset(seed=seed)"
    )


class _Episode(NamedTuple):
    seen: list[Any]
    """Observations, including the last one, as converted by `keep`."""
    rewards: list[float]
    over: bool
    cut: bool
    """Whether it was truncated."""


class _Trial:
    """Random episodes in an environment, whose results are checked strictly."""

    def __init__(self, env: gymnasium.Env[Any, Any], found: Findings, learning: bool) -> None:
        self.env, self.found, self.learning = env, found, learning
        self.critic_inputs = critic_inputs(env) if learning else 0
        self.mask: BoolArray | None = None
        """The current mask of allowed actions, if there is one."""

    def run(self, steps: int, seed: int, ends: bool) -> None:
        found, space = self.found, self.env.action_space
        if isinstance(space, spaces.Box) and not space.is_bounded():
            found.remark(
                f"action_space is {space}: a policy begins with actions around 0, about 1 apart; finite bounds, scaled inside "
                "step, are easier to learn"
            )
        elif isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind == "f":
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            reached = np.minimum(high, FIRST_ACTIONS) - np.maximum(low, -FIRST_ACTIONS)
            for where in np.flatnonzero((reached < LEAST_SHARE * (high - low)) | (high - low < LEAST_SHARE))[:1]:
                found.remark(
                    f"actions lie between {space.low.flat[where]:g} and {space.high.flat[where]:g}, and a policy begins with "
                    "actions around 0, about 0.4 apart; scale them: "
                    "--wrap gymnasium.wrappers:RescaleAction min_action=-1 max_action=1"
                )
        seen: Any = self.env.observation_space
        if self.learning and is_image(seen) and min(seen.shape[:2]) > WIDEST_IMAGE:
            found.remark(
                f"images of {seen.shape[0]} by {seen.shape[1]} take long to learn from; make them smaller: --wrap "
                f"gymnasium.wrappers:ResizeObservation shape=[84,84]{GREY if seen.shape[2:] == (3,) else ''}"
            )
        rng = np.random.default_rng(seed)
        limit = self.env.spec.max_episode_steps if self.env.spec else None
        played = self.play(*PLAYED_EPISODES[0], steps, rng)
        if ends and not found.lengths and limit is None:
            found.errors.append(
                f"no episode ended within {found.steps} random steps, and there is no step limit: let step return terminated "
                "or truncated = True, or set a limit: max_episode_steps=… (command line: --set max_episode_steps=500)"
            )
        self.play_again(seed + 1)  # some packages treat seed 0 as no seed
        if not found.errors:
            self.look_at_time(played + self.play(*PLAYED_EPISODES[1], steps, rng), limit)

    def play(self, episodes: int, begun: int, steps: int, rng: np.random.Generator) -> list[_Episode]:
        """Play until `episodes` have ended; none begins after `begun` steps, and all stop at `steps`."""
        found, played = self.found, list[_Episode]()
        while len(found.lengths) < episodes and found.steps < min(begun, steps):
            one = self.episode(int(rng.integers(2**31)), steps - found.steps, rng, self.row)
            found.steps += len(one.rewards)
            if one.over:
                played.append(one)
                found.lengths.append(len(one.rewards))
                found.returns.append(sum(one.rewards))
                found.discounted.append(sum(DEFAULT_GAMMA**k * reward for k, reward in enumerate(one.rewards)))
        return played

    def row(self, observation: Any) -> FloatArray | None:
        """An observation as numbers, if learners see it and it is small enough to be searched for the time."""
        row = as_row(observation) if self.learning else None
        return row if row is not None and row.size <= LARGE_OBSERVATION else None

    def episode(self, seed: int, steps: int, rng: np.random.Generator, keep: Callable[[Any], Any]) -> _Episode:
        """Play an episode, cut off after `steps` steps; `keep` is applied to its observations."""
        last, over, cut = self.reset(seed), False, False
        seen, rewards = [keep(last)], list[float]()
        while not over and len(rewards) < steps:
            observation, reward, over, cut = self.step(self.action(rng))
            if observation is last and isinstance(last, np.ndarray):
                self.found.remark(
                    "step returns the same array every time and changes it: return a copy, observation.copy()"
                )
            last = observation
            seen.append(keep(last))
            rewards.append(reward)
        return _Episode(seen, rewards, over, cut)

    def reset(self, seed: int) -> Any:
        answer = _call(self.env.reset, "reset", seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            raise InvalidAnswer(
                f"reset returned {_shown(answer)}: return two things, observation and a dictionary: `return observation, {{}}`"
            )
        if self.learning:
            check_observation(answer[0], self.env.observation_space, "reset", self.found)
        if self.critic_inputs:
            critic_row(answer[1], self.critic_inputs, "after reset ")
        self.mask = read_mask(self.env, *answer, "after reset")
        if self.mask is not None and self.learning:
            self.found.remark(
                "it says which actions are allowed: the PPO family takes no others; other learners do not look"
            )
        return answer[0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool]:
        observation, reward, terminated, truncated, info = _five_parts(_call(self.env.step, "step", action))
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if isinstance(flag, bool | np.bool_):
                continue
            if not isinstance(flag, int | np.integer) or flag not in (0, 1):
                raise InvalidAnswer(f"step returned {name} = {flag!r}: return True or False, for example bool(…)")
            self.found.remark(f"step returns {name} = {flag!r}, taken as {bool(flag)}: return True or False")
        if not isinstance(info, dict):
            raise InvalidAnswer(
                f"step returned the info {info!r}: return a dictionary, {{}} if there is nothing to say"
            )
        if self.learning:
            check_observation(observation, self.env.observation_space, "step", self.found)
        if self.critic_inputs:
            critic_row(info, self.critic_inputs, "after step ")
        value = _number(reward)
        if not np.isfinite(value):
            raise InvalidAnswer(
                f"step returned the reward {value}: return a finite number; look for a division by zero or a log of zero"
            )
        over = bool(terminated or truncated)
        self.mask = read_mask(self.env, observation, info, "after step", over)
        return observation, value, over, over and not terminated

    def action(self, rng: np.random.Generator) -> Any:
        space = self.env.action_space
        if self.mask is not None:
            return allowed_action(space, self.mask, rng)
        if isinstance(space, spaces.Discrete):
            return np.int64(space.start + rng.integers(space.n))
        if isinstance(space, spaces.Box) and space.is_bounded() and space.dtype is not None and space.dtype.kind == "f":
            return np.asarray(rng.uniform(space.low, space.high), space.dtype)
        space.seed(int(rng.integers(2**31)))
        return space.sample()

    def play_again(self, seed: int) -> None:
        """Check that the same seed and actions give the same episode, and remark on a reset that uses a seed of its own."""
        most, errors = min(self.found.steps, AGAIN), self.found.errors
        one, two = (self.episode(seed, most, np.random.default_rng(seed), deepcopy) for _ in range(2))
        apart = _apart(self.env.observation_space, one.seen[0], two.seen[0])
        if apart > MOVING_SHARE:
            errors.append(
                "reset ignores its seed: two resets with the same seed gave different first observations; begin reset with "
                f"super().reset(seed=seed) and draw from self.np_random, not from random or np.random{SEED_HINT}"
            )
            return
        steps = (zip_longest(x.seen[1:], x.rewards) for x in (one, two))
        for k, (first, second) in enumerate(zip_longest(*steps, fillvalue=(None, None)), 1):
            apart = max(apart, _apart(self.env.observation_space, first[0], second[0]))
            if apart > MOVING_SHARE or not _same(first[1], second[1]):
                if _nearly(self.env.observation_space, first, second):
                    self.found.remark(
                        f"step {k} differs by a rounding error though seed and actions were the same: learning works, but "
                        "results cannot be repeated exactly"
                    )
                    break
                errors.append(
                    f"step {k} differs though seed and actions were the same: draw everything random from self.np_random, "
                    f"and let reset set every attribute that step changes{SEED_HINT}"
                )
                return
        if 0.0 < apart <= MOVING_SHARE:
            self.found.remark(
                f"the same seed and actions gave images that differ in {apart:.1%} of their values: learning works, but "
                "results cannot be repeated exactly; let reset set everything that is drawn"
            )
        taken = set()
        for other in (seed + 1, seed + 2):
            self.reset(other)
            taken.add(getattr(self.env.unwrapped, "_np_random_seed", None))
        if len(taken) == 1 and not taken & {None, -1, seed + 1, seed + 2}:
            self.found.remark(
                f"reset seeds with {taken.pop()} whatever its seed is, so that every episode draws the same: begin it with "
                "super().reset(seed=seed)"
            )

    def look_at_time(self, played: list[_Episode], limit: int | None) -> None:
        """Remark on episodes of one length whose observations do not show the time."""
        rows, length = [one.seen[:-1] for one in played], max(self.found.lengths, default=0)
        if len(played) < PLAYED_EPISODES[0][0] or {len(row) for row in rows} != {length} or length == 1:
            return
        if rows[0][0] is None or tells_time(np.array(rows)):
            return
        ended = f"reached the time limit of {length}" if all(one.cut for one in played) else f"ended after {length}"
        words = "--wrap gymnasium.wrappers:TimeAwareObservation"
        if not limit:
            words = f"--set max_episode_steps={length} {words}; if a better policy lasts longer, set its length"
        self.found.remark(
            f"all {len(played)} random episodes {ended} steps, and the observation does not show the time: a policy cannot "
            "plan for the end. The critics of vpac-ppo see the elapsed time by default; to show it to the policy, add it to "
            f"the observation ({words})"
        )


def _apart(space: spaces.Space[Any], one: Any, two: Any) -> float:
    """The share of an image's values in which two observations differ; 1 if anything else differs."""
    if _same(one, two):
        return 0.0
    if one is None or two is None:
        return 1.0
    share = 0.0
    for (part, a), (_, b) in zip(part_values(space, one), part_values(space, two), strict=True):
        if is_image(part) and np.shape(a) == np.shape(b):
            share = max(share, float(np.mean(np.asarray(a) != np.asarray(b))))
        elif not _same(a, b):
            return 1.0
    return share


def _nearly(space: spaces.Space[Any], one: tuple[Any, Any], two: tuple[Any, Any]) -> bool:
    """Whether two steps, observation and reward, differ by no more than rounding errors."""
    if one[0] is None or two[0] is None or not np.allclose(float(one[1]), float(two[1]), BOUND_ROUNDING, 1e-12):
        return False
    pairs = zip(part_values(space, one[0]), part_values(space, two[0]), strict=True)
    return all(
        np.allclose(a, b, BOUND_ROUNDING, 1e-12)
        if isinstance(part, spaces.Box) and np.shape(a) == np.shape(b)
        else _same(a, b)
        for (part, a), (_, b) in pairs
    )


def _same(one: Any, two: Any) -> bool:
    """Whether two results are equal; NaN equals NaN."""
    try:
        np.testing.assert_equal(one, two)
    except AssertionError:
        return False
    return True


OLD_STEP = (
    "step returned four things, as the old gym did: return five, `return observation, reward, terminated, truncated, {}`; "
    "terminated is an end of the task, truncated a time limit"
)


class InvalidAnswer(UserError):
    """A result of an environment that no learner can use."""


def critic_inputs(env: Any, where: str = "") -> int:
    """Number of extra inputs of the critics: the size of the attribute `critic_space`, a Box."""
    space = env.get_wrapper_attr("critic_space") if env.has_wrapper_attr("critic_space") else None
    if not isinstance(space, spaces.Box | None):
        raise InvalidAnswer(f"{where}critic_space must be a Box of what info['critic'] holds, got {space!r:.80}")
    return 0 if space is None else int(np.prod(space.shape))


def critic_row(info: Any, inputs: int, where: str = "") -> FloatArray:
    """info["critic"] as numbers."""
    try:
        row = np.asarray(info["critic"], np.float64).ravel()
    except (KeyError, TypeError, ValueError):
        row = np.zeros(0)
    if row.size != inputs or not np.isfinite(row).all():
        found = info.get("critic", "nothing") if isinstance(info, dict) else info
        raise InvalidAnswer(
            f"{where}info['critic'] must hold {inputs} finite numbers, as critic_space says, got {found!r:.80}"
        )
    return row


def checked_step(env: Any, action: Any, name: str) -> tuple[Any, float, Any, Any, Any]:
    """Take a step; returns the five values, with the reward as a float, finite or not.

    Every step of every loop calls this, so the usual case is fast. `name` is the environment's name in messages.
    """
    try:
        answer = env.step(action)
    except ValueError as error:
        place = traceback.extract_tb(error.__traceback__)[-1].filename
        if "to unpack (expected 5" not in str(error) or "gymnasium" not in place:
            raise
        raise InvalidAnswer(f"{name}: {OLD_STEP}") from None  # a wrapper of Gymnasium unpacked it first
    if type(answer) is tuple and len(answer) == 5 and type(answer[1]) in (float, int, np.float64, np.float32):
        return answer
    try:
        observation, reward, terminated, truncated, info = _five_parts(answer)
        return observation, _number(reward), terminated, truncated, info
    except InvalidAnswer as error:
        raise InvalidAnswer(f"{name}: {error}") from None


def reward_array(rewards: Any, name: str) -> FloatArray:
    """The rewards of a vector environment; text is rejected, although NumPy would convert it."""
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
    if not isinstance(answer, tuple) or len(answer) != 5:
        old = isinstance(answer, tuple) and len(answer) == 4
        five = f"step returned {_shown(answer)}: return observation, reward, terminated, truncated and a dictionary"
        raise InvalidAnswer(OLD_STEP if old else five)
    return answer


def _number(reward: Any) -> float:
    if isinstance(reward, np.ndarray) and reward.ndim:
        raise InvalidAnswer(
            f"step returned the reward {reward!r}, an array: return a number, for example float(reward[0])"
        )
    try:
        if isinstance(reward, str | bytes):  # which float() would convert
            raise TypeError
        return float(reward)
    except (TypeError, ValueError):
        raise InvalidAnswer(
            f"step returned the reward {reward!r}: return a number, on every path through step"
        ) from None


def check_observation(observation: Any, space: spaces.Space[Any], by: str, found: Findings) -> None:
    """Raise an `InvalidAnswer` unless an observation is (nearly) in its space; `by` names what returned it."""
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, dict) or observation.keys() != space.spaces.keys():
            keys = list(observation) if isinstance(observation, dict) else _shown(observation)
            raise InvalidAnswer(f"{by} returned {keys}: return a dictionary with the keys of the space, {list(space)}")
        for name, part in space.spaces.items():
            check_observation(observation[name], part, f"{by}, observation[{name!r}],", found)
    elif isinstance(space, spaces.Tuple):
        if not (isinstance(observation, tuple) and len(observation) == len(space)):
            raise InvalidAnswer(
                f"{by} returned {_shown(observation)}: return a tuple of {len(space)} like observation_space"
            )
        for number, part in enumerate(space.spaces):
            check_observation(observation[number], part, f"{by}, observation[{number}],", found)
    elif isinstance(space, spaces.Discrete):
        if not isinstance(observation, int | np.integer) or isinstance(observation, bool):
            raise InvalidAnswer(f"{by} returned {_shown(observation)}: return a whole number, int(…), as {space} says")
        last = space.start + space.n - 1
        if not space.start <= observation <= last:
            raise InvalidAnswer(
                f"{by} returned {observation}, outside {space}: expected {space.start} to {last}; change one of the two"
            )
    else:
        _check_array(observation, space, by, found)


def _check_array(observation: Any, space: spaces.Space[Any], by: str, found: Findings) -> None:
    if not isinstance(observation, np.ndarray | np.generic):
        raise InvalidAnswer(
            f"{by} returned {_shown(observation)}: return an array, np.array(…, np.{space.dtype}), as {space} says"
        )
    if observation.shape != space.shape:
        raise InvalidAnswer(
            f"{by} returned an array of shape {list(observation.shape)}, observation_space has {list(space.shape or ())}: "
            "change one of the two"
        )
    if observation.dtype.kind not in "fiub":
        raise InvalidAnswer(
            f"{by} returned an array of {observation.dtype}: return numbers, np.array(…, np.{space.dtype})"
        )
    values = np.asarray(observation, np.float64).ravel()
    if not np.isfinite(values).all():
        where = int(np.argmin(np.isfinite(values)))
        raise InvalidAnswer(f"{by} returned {values[where]} at place {where}: every observation must be finite")
    _check_bounds(values, space, by, found)
    if not np.can_cast(observation.dtype, space.dtype or observation.dtype):
        found.remark(f"{by} returns {observation.dtype}, observation_space says {space.dtype}: make them the same")


def _check_bounds(values: FloatArray, space: Any, by: str, found: Findings) -> None:
    """Raise for numbers outside their bounds, remark on those that are outside by less than 1 % of the range."""
    first = getattr(space, "start", 0)
    bounds: tuple[Any, Any] = first, first + getattr(space, "nvec", 2) - 1  # MultiDiscrete, or MultiBinary: 0 and 1
    if isinstance(space, spaces.Box):
        bounds = space.low, space.high
    low, high = (np.broadcast_to(np.asarray(bound, np.float64).ravel(), values.shape) for bound in bounds)
    breach = np.maximum(low - values, values - high)
    if not (breach > 0.0).any():
        return
    size = 1.0 + np.abs(values)
    small = SMALL_BREACH * np.where(np.isfinite(high - low), high - low, size)
    large = breach > np.maximum(small, BOUND_ROUNDING * size)
    for where in np.flatnonzero(large if large.any() else breach > BOUND_ROUNDING * size)[:1]:
        words = f"outside its bounds {low[where]:g} to {high[where]:g}: widen observation_space or clip the observation"
        if large.any():
            raise InvalidAnswer(f"{by} returned {values[where]:g} at place {where}, {words}")
        if any("numbers at place" in remark for remark in found.remarks):
            return  # report the first index only
        found.remark(f"{by} returns numbers at place {where} that are a little (at most 1 %) {words}")


def _shown(answer: Any) -> str:
    return f"a tuple of {len(answer)}" if isinstance(answer, tuple) else f"{answer!r:.40} ({type(answer).__name__})"


STEPS_BEFORE_USE = 100
"""Steps of a check before use; twice as many are then repeated."""
TRUSTED = ("gymnasium.envs.", "vpac.envs.", "vpac.envs:")
"""Modules whose environments are not checked."""
CHECKED_SPECS: dict[str, bool] = {}
"""Specifications that this process has checked, and whether for learning (which includes measuring)."""
CHECKED_CALLABLES: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Classes and functions, likewise."""
CHECKING: ContextVar[bool] = ContextVar("CHECKING", default=True)
"""Whether environments are checked before use."""


@contextmanager
def skip_checks() -> Iterator[None]:
    """Skip all checks in this context: the environments of a study were checked before its first run."""
    token = CHECKING.set(False)
    try:
        yield
    finally:
        CHECKING.reset(token)


def check_before_use(
    given: Any, make: Callable[[], gymnasium.Env[Any, Any]], *, arguments: Mapping[str, Any] | None = None,
    learning: bool = True,
) -> None:  # fmt: skip
    """Raise a `UserError` that says what to change, if an environment cannot be used.

    `given` is the user's argument: an object, an id, a class, a function, a specification; `make` makes one, unless it is an
    object. Without `learning` spaces and observations are not checked.
    """
    what = "cannot be learned from yet:" if learning else "cannot be measured in yet:"
    if isinstance(given, gymnasium.Env):
        refuse(given, seen_without_a_step(given, learning), what)
        return
    record, key = _record(given, arguments or {})
    if not CHECKING.get() or record.get(key, -1) >= learning:
        return
    with restore_global_rng():
        _look(given, make, learning, what)
    record[key] = learning


def _look(given: Any, make: Callable[[], gymnasium.Env[Any, Any]], learning: bool, what: str) -> None:
    fresh = make()
    if callable(given) and not inspect.isclass(given):
        other = make()
        if other.unwrapped is fresh.unwrapped:  # a function that returns an existing object
            refuse(fresh, seen_without_a_step(fresh, learning), what)
            return
        _close(other)
    try:
        errors = look_over(fresh, STEPS_BEFORE_USE, learning=learning, ends=False).errors
    finally:
        _close(fresh)
    refuse(fresh, errors, what)


def _close(env: gymnasium.Env[Any, Any]) -> None:
    with suppress(Exception):  # whatever an environment raises
        env.close()


def _record(given: Any, arguments: Mapping[str, Any]) -> tuple[MutableMapping[Any, bool], Any]:
    """The dictionary and the key that record the check of an environment; none if the key would be ambiguous."""
    if callable(given):
        if inspect.isclass(given) and f"{given.__module__}.".startswith(TRUSTED):
            return {"": True}, ""
        try:
            CHECKED_CALLABLES.get(given)
        except TypeError:  # no weak reference to it is possible
            return {}, ""
        return ({}, "") if arguments else (CHECKED_CALLABLES, given)
    spec = spec_of(given, **arguments)
    parts = [spec.entry_point, *(wrapper.entry_point for wrapper in spec.additional_wrappers)]
    if all(isinstance(part, str) and part.startswith(TRUSTED) for part in parts):
        return {"": True}, ""
    return (CHECKED_SPECS, repr(spec)) if isinstance(spec.entry_point, str) else ({}, "")


@contextmanager
def restore_global_rng() -> Iterator[None]:
    """Restore the global generators of Python, NumPy and, if it is loaded, PyTorch afterwards."""
    torch = sys.modules.get("torch")
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch_state = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if torch:
            torch.set_rng_state(torch_state)
