"""Environments that are named in Python are looked at before anything learns from them or is measured in them.

What can be made again, an id, a class, a function, a specification, is made once more, looked over for a moment as `vpac check`
does, and closed; the one that is used is not touched, and nobody's random numbers are taken. Once a process, for each name.
An object is there only once, and resetting or stepping it might change what it does later: of it only what shows without a step
is judged, and loops read its answers as they come (`vpac.envs.answers`). What comes with Gymnasium or vpac is known already.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from vpac.envs.checking import look_over, refuse, seen_without_a_step
from vpac.envs.making import spec_of
from vpac.liveness import watched

__all__ = ["global_noise_kept", "look_first", "looked_at"]

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
def looked_at() -> Iterator[None]:
    """Look at nothing for a while: the runs of a study, whose environments were looked at before the first of them."""
    token = LOOKING.set(False)
    try:
        yield
    finally:
        LOOKING.reset(token)


def look_first(
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
        with global_noise_kept(), watched():
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
def global_noise_kept() -> Iterator[None]:
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
