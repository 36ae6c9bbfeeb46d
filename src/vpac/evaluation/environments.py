"""Environments to measure in: from an id, a factory, an object, a finite process or a vector environment."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from vpac.envs.answers import five
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.first_look import look_first
from vpac.envs.flattening import flattened
from vpac.envs.making import as_given
from vpac.envs.remember import RememberReturn, memory_of
from vpac.errors import UserError
from vpac.learners.sight import remake

__all__ = ["Several", "as_remembered", "check_first", "is_users", "one_environment", "several", "what_it_is"]

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

    @property
    def first(self) -> Any:
        """Its first sub-environment, if it was made here."""
        return self.env.envs[0] if isinstance(self.env, SyncVectorEnv) else self.env


def several(env: Any, count: int, flat: bool) -> Several:
    """At most `count` sub-environments, their observations flattened or as they are.

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
    made, name = _makers(env, count, flat), what_it_is(env)
    try:
        vector = SyncVectorEnv([_read(one, name) for one in made], autoreset_mode=AutoresetMode.DISABLED)
    except RuntimeError as error:
        raise UserError(f"the environments differ from one another: {error}") from None
    return Several(vector, AutoresetMode.DISABLED, ours=True)


class Read(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose answers are read before a vector environment, which would take text for a number, gets them."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str) -> None:
        super().__init__(env)
        self.name = name

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the environment."""
        return five(self.env, action, self.name)


def _read(make: Callable[[], gymnasium.Env[Any, Any]], name: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    return lambda: Read(make(), name)


def check_first(env: Any, learning: bool) -> None:
    """Look whether something can be measured in an environment, as far as it is not known (`vpac.envs.first_look`)."""
    if isinstance(env, str | EnvSpec | gymnasium.Env) or (callable(env) and not isinstance(env, FiniteMDP | VectorEnv)):
        look_first(env, lambda: one_environment(env, False), learning=learning)


def _makers(env: Any, count: int, flat: bool) -> list[Callable[[], gymnasium.Env[Any, Any]]]:
    if isinstance(env, str | EnvSpec | FiniteMDP) or (callable(env) and not isinstance(env, gymnasium.Env)):
        return [lambda: one_environment(env, flat)] * count
    first = one_environment(env, flat)
    if type(first.unwrapped).__module__.startswith(COPIED) and count > 1:
        return [lambda: copy.deepcopy(first)] * count
    return [lambda: first]


def one_environment(env: Any, flat: bool) -> gymnasium.Env[Any, Any]:
    """A single environment, its observations flattened or as they are; an object is used itself, perhaps in a wrapper."""
    made = _one(env)
    return flattened(made) if flat else made


def is_users(env: gymnasium.Env[Any, Any], given: Any) -> bool:
    """Whether an environment is the user's own object, which is not ours to close."""
    return isinstance(given, gymnasium.Env) and env.unwrapped is given.unwrapped


def _one(env: Any) -> gymnasium.Env[Any, Any]:
    if isinstance(env, gymnasium.Env):
        return env
    if isinstance(env, str):
        return as_given(env)
    if isinstance(env, EnvSpec):
        return as_given(remake(env))
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


def as_remembered(env: Any, agent: Any) -> Any:
    """The environment with the memory of a learner that remembers its return; itself if it has one or needs none."""
    memory = getattr(getattr(agent, "sight", agent), "memory", None)
    if memory is None or isinstance(env, VectorEnv):
        return env

    def wrapped(made: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        return made if memory_of(made) is not None else RememberReturn(made, **memory)

    return wrapped(env) if isinstance(env, gymnasium.Env) else lambda: wrapped(_one(env))


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
