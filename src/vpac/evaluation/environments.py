"""Environments to measure in: from an id, a factory, an object, a finite process or a vector environment."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.making import make_env
from vpac.errors import UserError
from vpac.learners.sight import remake

__all__ = ["Several", "one_environment", "several", "what_it_is"]

COPIED = ("vpac.envs.", "gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
"""Where environments come from whose deep copies are independent of them and keep what a user has changed."""


@dataclass(frozen=True)
class Several:
    """Sub-environments that are stepped together."""

    env: VectorEnv[Any, Any, Any]
    """The vector environment."""
    mode: AutoresetMode
    """What it does at the end of an episode."""
    ours: bool
    """Whether it was made here: then every episode gets a seed of its own, and it is closed at the end."""


def several(env: Any, count: int) -> Several:
    """At most `count` sub-environments.

    An object is copied if it comes from a family that is known to survive it; any other object is used itself, alone,
    because a copy might share a simulator with it.
    """
    if isinstance(env, VectorEnv):
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise UserError(
                f"{type(env).__name__} does not say what it does at the end of an episode: expected "
                f"metadata['autoreset_mode'] to be a gymnasium.vector.AutoresetMode, got {mode!r}"
            )
        return Several(env, mode, ours=False)
    made = _makers(env, count)
    try:
        vector = SyncVectorEnv(made, autoreset_mode=AutoresetMode.DISABLED)
    except RuntimeError as error:
        raise UserError(f"the environments differ from one another: {error}") from None
    return Several(vector, AutoresetMode.DISABLED, ours=True)


def _makers(env: Any, count: int) -> list[Callable[[], gymnasium.Env[Any, Any]]]:
    if isinstance(env, str | EnvSpec | FiniteMDP) or (callable(env) and not isinstance(env, gymnasium.Env)):
        return [lambda: one_environment(env)] * count
    first = one_environment(env)
    if type(first.unwrapped).__module__.startswith(COPIED) and count > 1:
        return [lambda: copy.deepcopy(first)] * count
    return [lambda: first]


def one_environment(env: Any) -> gymnasium.Env[Any, Any]:
    """A single environment; an object is used itself."""
    if isinstance(env, gymnasium.Env):
        return env
    if isinstance(env, str):
        return make_env(env)
    if isinstance(env, EnvSpec):
        return make_env(remake(env))
    if isinstance(env, FiniteMDP):
        return env.to_gymnasium()
    made = env() if callable(env) else None
    if not isinstance(made, gymnasium.Env):
        found = "a function that made " + type(made).__name__ if callable(env) else type(env).__name__
        raise UserError(
            "expected a Gymnasium environment, its id, a function that makes one, a FiniteMDP or a vector environment, "
            f"got {found}"
        )
    return made


def what_it_is(env: Any) -> str:
    """A name for the record."""
    if isinstance(env, str):
        return env
    spec = env if isinstance(env, EnvSpec) else getattr(env, "spec", None)
    if isinstance(spec, EnvSpec):
        return spec.id
    if isinstance(env, gymnasium.Env):
        return type(env.unwrapped).__name__
    return getattr(env, "__name__", None) or (repr(env) if isinstance(env, FiniteMDP) else type(env).__name__)
