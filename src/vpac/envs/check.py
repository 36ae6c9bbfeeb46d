"""Whether an environment keeps the rules that learners rely on; each message says what to change.

What can be made again, an id, a class, a function, a specification, is made once more, looked over for a moment as `vpac check`
does, and closed; the one that is used is not touched, and nobody's random numbers are taken. Once a process, for each name.
An object is there only once, and resetting or stepping it might change what it does later: of it only what shows without a step
is judged, and loops read its answers as they come (`vpac.envs.answers`). What comes with Gymnasium or vpac is known already.
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
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import FlattenObservation, PassiveEnvChecker

from vpac.envs.answers import Broken, read_reset, read_step, same
from vpac.envs.make import spec_of
from vpac.envs.observations import as_row, tells_time, why_not_flat
from vpac.errors import UserError
from vpac.liveness import watched
from vpac.typing import FloatArray

EPISODES = 3
"""Episodes that are looked at, if they end soon enough."""
MORE_EPISODES, MORE_STEPS = 20, 5000
"""If nothing is wrong, further episodes begin while there are fewer of both, so that returns have a standard deviation."""
GAMMA = 0.99
"""The learners' default discount factor."""
Path = tuple[list[FloatArray], bool]
"""The observations of an episode, as rows, and whether a time limit ended it."""
AGAIN = 200
"""Steps of the first episode that are repeated with the same seed and actions."""


@dataclass
class Findings:
    """What a look at an environment found."""

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
        raise UserError(f"{_name(env)} cannot be {what} yet:\n{listed}")


def look_over(
    env: Any, steps: int = 20_000, seconds: float = 5.0, seed: int = 0, *, learning: bool = True, ends: bool = True
) -> Findings:
    """As `check_env`, without raising.

    Args:
        env: as for `check_env`, and so are steps, seconds and seed.
        steps: as above.
        seconds: as above.
        seed: as above.
        learning: whether spaces and observations have to be such that our learners can use them.
        ends: whether it is an error if no episode ends.
    """
    found = Findings()
    if isinstance(env, FlattenObservation):
        env = env.env
    found.errors += seen_without_a_step(env, learning)
    if found.errors:
        return found
    for inner in _chain(env):  # its one-time assertions would come before our words
        if isinstance(inner, PassiveEnvChecker):
            inner.checked_reset = inner.checked_step = inner.checked_data_reuse = True
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
    except Broken as error:
        found.errors.append(str(error))
    return found


def seen_without_a_step(env: Any, learning: bool = True) -> list[str]:
    """What is wrong with an environment that shows without stepping it: its class, spaces and the arguments of its reset."""
    if not isinstance(env, gymnasium.Env):
        return [
            f"it is a {type(env).__module__}.{type(env).__name__}: derive its class from gymnasium.Env (the old gym.Env is "
            "another class)"
        ]
    reasons = (_actions(env), why_not_flat(getattr(env, "observation_space", None))) if learning else ()
    return [*(reason for reason in reasons if reason), *_reset_signature(env)]


def _name(env: Any) -> str:
    return env.spec.id if getattr(env, "spec", None) else type(getattr(env, "unwrapped", env)).__name__


def _chain(env: gymnasium.Env[Any, Any]) -> list[gymnasium.Env[Any, Any]]:
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


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
) -> list[Path]:  # fmt: skip
    """Random actions until so many episodes have ended, the last one begun before so many steps, or steps or time are up."""
    if isinstance(env.action_space, spaces.Box) and not env.action_space.is_bounded():
        _remark(
            found,
            f"action_space is {env.action_space}: a policy begins with actions around 0, about 1 apart; finite bounds, scaled "
            "inside step, are easier to learn",
        )
    paths = list[Path]()
    while len(found.lengths) < episodes and found.steps < min(begun, steps) and time.monotonic() < until:
        last = read_reset(env, int(random.integers(2**31)), found.remarks, learning)
        rows, rewards = list[FloatArray](), list[float]()
        while found.steps < steps and time.monotonic() < until:
            rows += [as_row(last)] if learning else []
            step = read_step(env, _action(env, random), found.remarks, learning)
            found.steps += 1
            rewards.append(step.reward)
            if step.observation is last and isinstance(last, np.ndarray):
                _remark(
                    found, "step returns the same array every time and changes it: return a copy, observation.copy()"
                )
            last = step.observation
            if step.over:
                found.lengths.append(len(rewards))
                found.returns.append(sum(rewards))
                found.discounted.append(sum(GAMMA**k * reward for k, reward in enumerate(rewards)))
                paths.append((rows, step.cut))
                break
    return paths


def _look_at_time(found: Findings, paths: list[Path], limit: int | None) -> None:
    """Whether all episodes have the same length and no observation tells how much of it is left."""
    played, length = len(paths), max(found.lengths, default=0)
    rows = [path for path, _ in paths]
    if played < EPISODES or {len(path) for path in rows} != {length} or length == 1 or tells_time(np.array(rows)):
        return
    cut = all(cut for _, cut in paths)
    ended = f"reached the time limit of {length} steps" if cut else f"ended after {length} steps"
    words = f"{'' if limit else f'--set max_episode_steps={length} '}--wrap gymnasium.wrappers:TimeAwareObservation"
    _remark(
        found,
        f"all {played} random episodes {ended}, and the observation does not show the time: a policy cannot plan for the end. "
        "The critics of vpac-ppo see the elapsed time by default; to show it to the policy, add it to the observation "
        f"({words})",
    )


def _play_again(env: gymnasium.Env[Any, Any], found: Findings, seed: int, learning: bool) -> None:
    """The same seed and the same actions must give the same episode."""
    one, two = (_episode(env, seed, min(found.steps, AGAIN), learning) for _ in range(2))
    if not same(one[0][0], two[0][0]):
        found.errors.append(
            "reset ignores its seed: two resets with the same seed gave different first observations; begin reset with "
            "super().reset(seed=seed) and draw from self.np_random, not from random or np.random"
        )
        return
    for number, (first, second) in enumerate(zip(one, two, strict=False)):
        if not (same(first[0], second[0]) and first[1:] == second[1:]):
            found.errors.append(
                f"step {number} differs though seed and actions were the same: draw everything random from self.np_random, and "
                "let reset set every attribute that step changes"
            )
            return
    _look_at_seeds(env, found, seed, learning)


def _look_at_seeds(env: gymnasium.Env[Any, Any], found: Findings, seed: int, learning: bool) -> None:
    """Whether `reset` hands its seed on: one that always takes its own makes every episode the same."""
    taken = set()
    for other in (seed + 1, seed + 2):
        read_reset(env, other, [], learning)
        taken.add(getattr(env.unwrapped, "_np_random_seed", None))
    if len(taken) == 1 and not taken & {None, -1, seed + 1, seed + 2}:
        _remark(
            found,
            f"reset seeds with {taken.pop()} whatever its seed is, so that every episode draws the same: begin it with "
            "super().reset(seed=seed)",
        )


def _episode(env: gymnasium.Env[Any, Any], seed: int, steps: int, learning: bool) -> list[tuple[Any, ...]]:
    random, remarks = np.random.default_rng(seed), list[str]()
    seen: list[tuple[Any, ...]] = [(_kept(read_reset(env, seed, remarks, learning)),)]
    for _ in range(steps):
        step = read_step(env, _action(env, random), remarks, learning)
        seen.append((_kept(step.observation), step.reward, step.over))
        if step.over:
            break
    return seen


def _kept(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _kept(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_kept(part) for part in observation)
    return observation.copy() if isinstance(observation, np.ndarray) else observation


def _action(env: gymnasium.Env[Any, Any], random: np.random.Generator) -> Any:
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start + random.integers(space.n))
    if isinstance(space, spaces.Box) and space.is_bounded() and space.dtype is not None and space.dtype.kind == "f":
        return np.asarray(random.uniform(space.low, space.high), space.dtype)
    space.seed(int(random.integers(2**31)))
    return space.sample()


def _remark(found: Findings, text: str) -> None:
    if text not in found.remarks:
        found.remarks.append(text)


STEPS, SECONDS = 100, 0.1
"""What a look takes at most; then as many steps twice, to see whether they repeat themselves."""
TRUSTED = ("gymnasium.envs.", "vpac.envs.", "vpac.envs:")
"""Where environments come from that are known to be right."""
NAMED: set[tuple[str, bool]] = set()
"""Specifications that this process has looked at, and whether for learning."""
CALLED: dict[bool, WeakSet[Any]] = {True: WeakSet(), False: WeakSet()}
"""Classes and functions that it has looked at, for learning or only for measuring."""
LOOKING: ContextVar[bool] = ContextVar("LOOKING", default=True)
"""Whether anything is to be looked at."""


@contextmanager
def skip_checks() -> Iterator[None]:
    """Look at nothing for a while: the runs of a study, whose environments were looked at before the first of them."""
    token = LOOKING.set(False)
    try:
        yield
    finally:
        LOOKING.reset(token)


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
        learning: whether our learners are to use it; else it is somebody's environment for somebody's agent, whose spaces and
            observations are no concern of ours.
    """
    what = "learned from" if learning else "measured in"
    if isinstance(given, gymnasium.Env):
        refuse(given, seen_without_a_step(given, learning), what)
    elif LOOKING.get() and not _is_known(given, arguments or {}, learning):
        with restore_global_rng(), watched():
            _look(given, make, learning, what)
        _remember(given, arguments or {}, learning)


def _look(given: Any, make: Callable[[], gymnasium.Env[Any, Any]], learning: bool, what: str) -> None:
    fresh = make()
    if callable(given) and not inspect.isclass(given):
        other = make()
        if other.unwrapped is fresh.unwrapped:  # a function that hands out one object
            refuse(fresh, seen_without_a_step(fresh, learning), what)
            return
        _close(other)
    try:
        errors = look_over(fresh, STEPS, SECONDS, learning=learning, ends=False).errors
    finally:
        _close(fresh)
    refuse(fresh, errors, what)


def _close(env: gymnasium.Env[Any, Any]) -> None:
    with suppress(Exception):  # whatever somebody's environment raises
        env.close()


def _is_known(given: Any, arguments: Mapping[str, Any], learning: bool) -> bool:
    if callable(given):
        home = f"{given.__module__}." if inspect.isclass(given) else ""
        try:
            seen = not arguments and any(given in CALLED[kind] for kind in {True, learning})
        except TypeError:  # nobody can refer to it weakly
            seen = False
        return seen or home.startswith(TRUSTED)
    spec = _spec(given, arguments)
    home = spec.entry_point if isinstance(spec.entry_point, str) else ""
    if home.startswith(TRUSTED) and all(one.entry_point.startswith(TRUSTED) for one in spec.additional_wrappers):
        return True
    return any((repr(spec), kind) in NAMED for kind in (True, learning))


def _remember(given: Any, arguments: Mapping[str, Any], learning: bool) -> None:
    if not callable(given):
        spec = _spec(given, arguments)
        if isinstance(spec.entry_point, str):  # what it says of other things is not what they are
            NAMED.add((repr(spec), learning))
    elif not arguments:
        with suppress(TypeError):
            CALLED[learning].add(given)


def _spec(given: Any, arguments: Mapping[str, Any]) -> EnvSpec:
    return given if isinstance(given, EnvSpec) else spec_of(given, **arguments)


@contextmanager
def restore_global_rng() -> Iterator[None]:
    """Put the global generators of Python, NumPy and, where it is loaded, PyTorch back as they were."""
    torch = sys.modules.get("torch")
    ours, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002
    torchs = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)  # noqa: NPY002
        if torch:
            torch.set_rng_state(torchs)
