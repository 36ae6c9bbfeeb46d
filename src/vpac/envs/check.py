"""Whether an environment keeps the rules that learners rely on; each message says what to change.

`check_env` and `look_over` take random actions for a moment. Learners and `vpac.evaluate` call `check_before_use` first: what
can be made again (an id, a class, a function, a specification) is made once more, checked for a moment and closed, once a
name in a process. The environment that is used is not touched, and no random numbers are taken. An existing object is only
checked without a step, because a step might change it; loops check its answers as they come (`vpac.envs.answers`).
Environments of Gymnasium and vpac are not checked.
"""

from __future__ import annotations

import inspect
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, PassiveEnvChecker

from vpac.envs.answers import InvalidAnswer, read_reset, read_step, remark
from vpac.envs.make import name_of, spec_of
from vpac.envs.observations import as_row, tells_time, why_not_flat
from vpac.errors import UserError
from vpac.typing import FloatArray

EPISODES = 3
"""Episodes that are played, if they end soon enough."""
MORE_EPISODES, MORE_STEPS = 20, 5000
"""If nothing is wrong, further episodes begin while there are fewer of both, so that returns have a standard deviation."""
GAMMA = 0.99
"""The learners' default discount factor."""
Episode = tuple[list[FloatArray], bool]
"""The observations of an episode, as rows, and whether a time limit ended it."""
AGAIN = 200
"""Steps that are repeated with the same seed and actions."""


@dataclass
class Findings:
    """What a check of an environment found."""

    errors: list[str] = field(default_factory=list)
    """What has to be changed before anything can learn from it."""
    remarks: list[str] = field(default_factory=list)
    """What works and may surprise."""
    steps: int = 0
    """Steps that were taken."""
    lengths: list[int] = field(default_factory=list)
    """Lengths of the episodes that ended, with random actions."""
    returns: list[float] = field(default_factory=list)
    """Their undiscounted returns."""
    discounted: list[float] = field(default_factory=list)
    """Their returns discounted with γ = 0.99, the learners' default."""


def check_env(env: gymnasium.Env[Any, Any], steps: int = 20_000, seconds: float = 5.0, seed: int = 0) -> Findings:
    """Take random actions for a moment and raise a `UserError` with everything that is wrong; else return what was found.

    Args:
        env: the environment; it is reset and stepped, and left in the middle of an episode.
        steps: at most so many.
        seconds: after so many no further step is taken.
        seed: of the resets and the actions.
    """
    found = look_over(env, steps, seconds, seed)
    refuse(env, found.errors)
    return found


def refuse(env: Any, errors: list[str], what: str = "learned from") -> None:
    """Raise a `UserError` with a list of errors, if there are any; `what` cannot be done yet."""
    if errors:
        listed = "\n".join(f"  {number}. {error}" for number, error in enumerate(errors, 1))
        raise UserError(f"{name_of(env)} cannot be {what} yet:\n{listed}")


def look_over(
    env: Any, steps: int = 20_000, seconds: float = 5.0, seed: int = 0, *, learning: bool = True, ends: bool = True
) -> Findings:
    """`check_env` without raising.

    `learning`: whether spaces and observations must suit our learners; `ends`: whether it is an error if no episode ends.
    """
    found = Findings()
    if isinstance(env, FlattenObservation):
        env = env.env
    found.errors += seen_without_a_step(env, learning)
    if found.errors:
        return found
    inner = env
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, PassiveEnvChecker):  # its assertions would come before our messages
            inner.checked_reset = inner.checked_step = inner.checked_data_reuse = True
        inner = inner.env
    try:
        play = partial(_play, env, found, np.random.default_rng(seed), steps, time.monotonic() + seconds, learning)
        paths = play(EPISODES, steps)
        limit = env.spec.max_episode_steps if env.spec else None
        if ends and not found.lengths and limit is None:
            found.errors.append(
                f"no episode ended within {found.steps} random steps, and there is no step limit: let step return terminated "
                "or truncated = True, or set a limit: max_episode_steps=… (command line: --set max_episode_steps=500)"
            )
        _play_again(env, found, seed, learning)
        if not found.errors:
            _look_at_time(found, paths + play(MORE_EPISODES, MORE_STEPS), limit)
    except InvalidAnswer as error:
        found.errors.append(str(error))
    return found


def seen_without_a_step(env: Any, learning: bool = True) -> list[str]:
    """The errors that show without a step: of the class, the spaces and the signature of reset."""
    if not isinstance(env, gymnasium.Env):
        return [
            f"it is a {type(env).__module__}.{type(env).__name__}: derive its class from gymnasium.Env (the old gym.Env is "
            "another class)"
        ]
    reasons = (_actions(env), why_not_flat(getattr(env, "observation_space", None))) if learning else ()
    return [*(reason for reason in reasons if reason), *_reset_signature(env)]


def _actions(env: gymnasium.Env[Any, Any]) -> str:
    space = getattr(env, "action_space", None)
    if isinstance(space, spaces.Discrete):
        return ""
    if not isinstance(space, spaces.Space):
        return f"action_space is {space!r}: set self.action_space in __init__ to gymnasium.spaces.Discrete(n) or Box(low, high)"
    if not isinstance(space, spaces.Box):
        return f"action_space is {space}: use Discrete (number the combinations) or Box"
    if math.prod(space.shape) == 0:
        return f"action_space is {space}, without a number: use Box(low, high, (n,)) or Discrete(n)"
    if not (space.low < space.high).all():
        return f"action_space is {space}: every lower bound must be below its upper bound"
    return ""


def _reset_signature(env: gymnasium.Env[Any, Any]) -> list[str]:
    known = inspect.signature(env.unwrapped.reset).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return []
    missing = [name for name in ("seed", "options") if name not in known]
    if not missing:
        return []
    return [
        f"reset takes no {' and no '.join(missing)}: write def reset(self, *, seed=None, options=None), and begin it with "
        "super().reset(seed=seed)"
    ]


def _play(
    env: gymnasium.Env[Any, Any], found: Findings, random: np.random.Generator, steps: int, until: float, learning: bool,
    episodes: int, begun: int,
) -> list[Episode]:  # fmt: skip
    """Take random actions until `episodes` have ended; none begins after `begun` steps, and all stop at `steps` or `until`."""
    if isinstance(env.action_space, spaces.Box) and not env.action_space.is_bounded():
        remark(
            found.remarks,
            f"action_space is {env.action_space}: a policy begins with actions around 0, about 1 apart; finite bounds, scaled "
            "inside step, are easier to learn",
        )
    paths = list[Episode]()
    while len(found.lengths) < episodes and found.steps < min(begun, steps) and time.monotonic() < until:
        last = read_reset(env, int(random.integers(2**31)), found.remarks, learning)
        rows, rewards = list[FloatArray](), list[float]()
        while found.steps < steps and time.monotonic() < until:
            rows += [as_row(last)] if learning else []
            step = read_step(env, _action(env, random), found.remarks, learning)
            found.steps += 1
            rewards.append(step.reward)
            if step.observation is last and isinstance(last, np.ndarray):
                remark(
                    found.remarks,
                    "step returns the same array every time and changes it: return a copy, observation.copy()",
                )
            last = step.observation
            if step.over:
                found.lengths.append(len(rewards))
                found.returns.append(sum(rewards))
                found.discounted.append(sum(GAMMA**k * reward for k, reward in enumerate(rewards)))
                paths.append((rows, step.cut))
                break
    return paths


def _look_at_time(found: Findings, paths: list[Episode], limit: int | None) -> None:
    """Remark on episodes of one length whose observations do not show the time."""
    played, length = len(paths), max(found.lengths, default=0)
    rows = [path for path, _ in paths]
    if played < EPISODES or {len(path) for path in rows} != {length} or length == 1 or tells_time(np.array(rows)):
        return
    cut = all(cut for _, cut in paths)
    ended = f"reached the time limit of {length} steps" if cut else f"ended after {length} steps"
    words = f"{'' if limit else f'--set max_episode_steps={length} '}--wrap gymnasium.wrappers:TimeAwareObservation"
    remark(
        found.remarks,
        f"all {played} random episodes {ended}, and the observation does not show the time: a policy cannot plan for the end. "
        "The critics of vpac-ppo see the elapsed time by default; to show it to the policy, add it to the observation "
        f"({words})",
    )


def _play_again(env: gymnasium.Env[Any, Any], found: Findings, seed: int, learning: bool) -> None:
    """Check that the same seed and actions give the same episode."""
    one, two = (_episode(env, seed, min(found.steps, AGAIN), learning) for _ in range(2))
    if not _same(one[0], two[0]):
        found.errors.append(
            "reset ignores its seed: two resets with the same seed gave different first observations; begin reset with "
            "super().reset(seed=seed) and draw from self.np_random, not from random or np.random"
        )
        return
    for number, (first, second) in enumerate(zip(one, two, strict=False)):
        if not _same(first, second):
            found.errors.append(
                f"step {number} differs though seed and actions were the same: draw everything random from self.np_random, and "
                "let reset set every attribute that step changes"
            )
            return
    _look_at_seeds(env, found, seed, learning)


def _same(one: Any, two: Any) -> bool:
    """Whether two answers are equal; NaN equals NaN."""
    try:
        np.testing.assert_equal(one, two)
    except AssertionError:
        return False
    return True


def _look_at_seeds(env: gymnasium.Env[Any, Any], found: Findings, seed: int, learning: bool) -> None:
    """Remark on a reset that always uses a seed of its own: every episode would be the same."""
    taken = set()
    for other in (seed + 1, seed + 2):
        read_reset(env, other, [], learning)
        taken.add(getattr(env.unwrapped, "_np_random_seed", None))
    if len(taken) == 1 and not taken & {None, -1, seed + 1, seed + 2}:
        remark(
            found.remarks,
            f"reset seeds with {taken.pop()} whatever its seed is, so that every episode draws the same: begin it with "
            "super().reset(seed=seed)",
        )


def _episode(env: gymnasium.Env[Any, Any], seed: int, steps: int, learning: bool) -> list[tuple[Any, ...]]:
    random, remarks = np.random.default_rng(seed), list[str]()
    seen: list[tuple[Any, ...]] = [(deepcopy(read_reset(env, seed, remarks, learning)),)]
    for _ in range(steps):
        step = read_step(env, _action(env, random), remarks, learning)
        seen.append((deepcopy(step.observation), step.reward, step.over))
        if step.over:
            break
    return seen


def _action(env: gymnasium.Env[Any, Any], random: np.random.Generator) -> Any:
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start + random.integers(space.n))
    if isinstance(space, spaces.Box) and space.is_bounded() and space.dtype is not None and space.dtype.kind == "f":
        return np.asarray(random.uniform(space.low, space.high), space.dtype)
    space.seed(int(random.integers(2**31)))
    return space.sample()


STEPS, SECONDS = 100, 0.1
"""Limits of a check before use; then as many steps are repeated twice."""
TRUSTED = ("gymnasium.envs.", "vpac.envs.", "vpac.envs:")
"""Where environments come from that are not checked."""
CHECKED_NAMES: dict[bool, set[str]] = {True: set(), False: set()}
"""Specifications that this process has checked, for learning or only for measuring."""
CHECKED_CALLABLES: dict[bool, WeakSet[Any]] = {True: WeakSet(), False: WeakSet()}
"""Classes and functions, likewise."""
CHECKING: ContextVar[bool] = ContextVar("CHECKING", default=True)
"""Whether environments are checked before use."""


@contextmanager
def skip_checks() -> Iterator[None]:
    """Check nothing in this context: the environments of a study were checked before its first run."""
    token = CHECKING.set(False)
    try:
        yield
    finally:
        CHECKING.reset(token)


def check_before_use(
    given: Any,
    make: Callable[[], gymnasium.Env[Any, Any]],
    *,
    arguments: Mapping[str, Any] | None = None,
    learning: bool = True,
) -> None:
    """Raise a `UserError` that says what to change, if an environment is not fit.

    Args:
        given: what the user named: an object, an id, a class, a function, a specification.
        make: makes one, unless it is an object.
        arguments: of the environment.
        learning: whether our learners are to use it; otherwise its spaces and observations are not checked.
    """
    what, arguments = "learned from" if learning else "measured in", arguments or {}
    if isinstance(given, gymnasium.Env):
        refuse(given, seen_without_a_step(given, learning), what)
    elif CHECKING.get() and not _is_known(given, arguments, learning):
        with restore_global_rng():
            _look(given, make, learning, what)
        _remember(given, arguments, learning)


def _look(given: Any, make: Callable[[], gymnasium.Env[Any, Any]], learning: bool, what: str) -> None:
    fresh = make()
    if callable(given) and not inspect.isclass(given):
        other = make()
        if other.unwrapped is fresh.unwrapped:  # a function that returns an existing object
            refuse(fresh, seen_without_a_step(fresh, learning), what)
            return
        _close(other)
    try:
        errors = look_over(fresh, STEPS, SECONDS, learning=learning, ends=False).errors
    finally:
        _close(fresh)
    refuse(fresh, errors, what)


def _close(env: gymnasium.Env[Any, Any]) -> None:
    with suppress(Exception):  # whatever an environment raises
        env.close()


def _is_known(given: Any, arguments: Mapping[str, Any], learning: bool) -> bool:
    if callable(given):
        trusted = inspect.isclass(given) and f"{given.__module__}.".startswith(TRUSTED)
        return trusted or (not arguments and any(given in CHECKED_CALLABLES[kind] for kind in (True, learning)))
    spec = spec_of(given, **arguments)
    parts = [spec.entry_point, *(wrapper.entry_point for wrapper in spec.additional_wrappers)]
    if all(isinstance(part, str) and part.startswith(TRUSTED) for part in parts):
        return True
    return any(repr(spec) in CHECKED_NAMES[kind] for kind in (True, learning))


def _remember(given: Any, arguments: Mapping[str, Any], learning: bool) -> None:
    if callable(given):
        if not arguments:
            with suppress(TypeError):  # what cannot be referred to weakly is checked each time
                CHECKED_CALLABLES[learning].add(given)
        return
    spec = spec_of(given, **arguments)
    if isinstance(spec.entry_point, str):  # the text of a specification names it in full only then
        CHECKED_NAMES[learning].add(repr(spec))


@contextmanager
def restore_global_rng() -> Iterator[None]:
    """Leave the global generators of Python, NumPy and, where it is loaded, PyTorch as they were."""
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
