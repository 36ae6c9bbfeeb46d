"""Environments from what users write: an id, an import path, a class or factory, a specification, an object; and wrappers.

One function, `make_env`, for every verb and learner. What is imported is what the user names; files of learners never name it.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec, load_env_creator

from vpac.envs import noise
from vpac.envs.naming import allow_import
from vpac.envs.flattening import flattened
from vpac.errors import UserError, suggestion

__all__ = ["OWN", "Wrap", "as_given", "make_env", "spec_of"]

OWN = {name: f"{noise.__name__}:{name}" for name in noise.__all__} | {
    "RememberReturn": "vpac.envs.remember:RememberReturn"
}
"""Where the wrappers are that have short names."""
Wrap = str | tuple[str, Mapping[str, Any]]
"""A wrapper's import path `package.module:Wrapper`, or a name in `vpac.envs` such as RewardNoise; with its arguments."""


def make_env(env: Any, /, wrap: Sequence[Wrap] = (), **arguments: Any) -> gymnasium.Env[Any, Any]:
    """An environment that learners can use, or a `UserError` that says what is wrong and what is near.

    Args:
        env: a Gymnasium id (`CartPole-v1`), an id with the module that registers it (`package.module:Name-v0`), the import path
            of a class or of a function that makes one (`package.module:Class`), such a class or function, an `EnvSpec`, or an
            environment.
        wrap: wrappers, the innermost first; each an import path, or a pair of it and its arguments.
        arguments: of the environment; `max_episode_steps` is Gymnasium's limit. An environment that is there takes none.

    Observations that are dictionaries, tuples or matrices are flattened; images are refused.
    """
    return flattened(as_given(env, wrap, **arguments))


def as_given(env: Any, /, wrap: Sequence[Wrap] = (), **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The same with the observations that it has, for policies of others."""
    if isinstance(env, gymnasium.Env):
        if arguments:
            raise UserError(
                f"{env} is made already and takes no argument {next(iter(arguments))!r}: pass its id or class"
            )
        made = env
    else:
        made = _make(spec_of(env, **arguments), arguments)
    for wrapper in _wrappers(wrap):
        made = _wrapped(made, wrapper)
    return made


def spec_of(env: Any, /, wrap: Sequence[Wrap] = (), **arguments: Any) -> EnvSpec:
    """The recipe for `make_env(env, wrap, **arguments)`, from which `gymnasium.make` makes any number of them."""
    if isinstance(env, str):
        found = _spec_by_name(env)
    elif isinstance(env, EnvSpec):
        found = env
    elif callable(env):
        name = re.sub(r"[^\w.:-]", "", f"{env.__module__}:{getattr(env, '__qualname__', type(env).__name__)}")
        found = EnvSpec(name, entry_point=env, disable_env_checker=True)
    else:
        raise UserError(
            f"expected a Gymnasium environment, its id, its class or an import path, got {type(env).__name__}"
        )
    spec = deepcopy(found)
    given = dict(arguments)
    if "max_episode_steps" in given:
        spec.max_episode_steps = _limit(given.pop("max_episode_steps"))
    spec.kwargs = {**spec.kwargs, **given}
    spec.additional_wrappers += tuple(_wrappers(wrap))
    return spec


def _limit(steps: Any) -> int | None:
    if steps is None or (isinstance(steps, int) and steps >= 1):
        return steps
    raise UserError(f"max_episode_steps must be a whole number from 1 up, got {steps!r}")


def _spec_by_name(name: str) -> EnvSpec:
    module, colon, rest = name.partition(":")
    if not colon:
        return _registered(name, name)
    allow_import(name)
    home = _imported(module, name)
    if rest in gymnasium.registry:
        found = deepcopy(_registered(rest, name))
        found.id = name  # so that whoever asks where it is from is told the module, too
        return found
    creator = getattr(home, rest, None)
    if callable(creator):
        return EnvSpec(name, entry_point=name, disable_env_checker=True)
    own = [spec.id for spec in gymnasium.registry.values() if str(spec.entry_point).startswith(f"{module}:")]
    classes = [key for key, value in vars(home).items() if inspect.isclass(value) and issubclass(value, gymnasium.Env)]
    near = suggestion(rest, [*own, *classes]) or (f"; it has {', '.join([*own, *classes])}" if own or classes else "")
    raise UserError(f"{module} has no environment {rest!r}, neither registered nor as a class or function{near}")


def _registered(identity: str, name: str) -> EnvSpec:
    try:
        return gymnasium.spec(identity)
    except (gymnasium.error.Error, ModuleNotFoundError):
        near = suggestion(name, gymnasium.registry) or _nearest_stem(name)
        own = (
            ""
            if ":" in name
            else f", and one of your own is named with its module, my_module:{name.rpartition('/')[2]}"
        )
        raise UserError(
            f"unknown environment {name!r}{near or f'; `vpac list` shows those that can be solved{own}'}"
        ) from None


def _imported(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise UserError(
                f"cannot import {module!r} of {name!r}: there is no module {error.name!r} where Python looks; run vpac in the "
                "folder that holds it, or install it"
            ) from None
        raise UserError(
            f"cannot import {module!r} of {name!r}: it needs {error.name!r}, which is not installed"
        ) from None
    except Exception as error:  # whatever running the module raises
        raise UserError(f"cannot import {module!r} of {name!r}: {type(error).__name__}: {error}") from None


def _make(spec: EnvSpec, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(spec)
    except UserError:
        raise
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        absent = isinstance(error, gymnasium.error.DependencyNotInstalled | ModuleNotFoundError)
        if absent and "mujoco" in str(error).casefold():
            raise UserError(f"{spec.id} needs MuJoCo: pip install 'vpac[mujoco]'") from None
        raise UserError(f"{spec.id} cannot be made: {error}") from None
    except Exception as error:  # whatever a constructor makes of arguments that it cannot use
        reason = f"{type(error).__name__}: {str(error).split(' was raised from the environment creator')[0]}"
        entry = spec.entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        unknown = _unknown_argument(spec.id, creator, arguments)
        said = "does not take these arguments" if arguments else "cannot be made"
        missing = _missing_argument(spec.id, creator, spec.kwargs)
        raise UserError(unknown or missing or f"{spec.id} {said} ({reason})") from None


def _missing_argument(name: str, creator: Any, given: Mapping[str, Any]) -> str:
    """What to say of arguments that a constructor needs and did not get; empty if it got all."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [
        key
        for key, one in (inspect.signature(creator).parameters.items() if callable(creator) else ())
        if one.kind in named and one.default is one.empty and key not in given
    ]
    if not needed:
        return ""
    flags, words = " ".join(f"{key}=…" for key in needed), " and ".join(map(repr, needed))
    return f"{name} cannot be made without {words}: --set {flags}"


def _unknown_argument(name: str, creator: Any, arguments: Mapping[str, Any]) -> str:
    """What to say of the first argument that a constructor does not know; empty if it knows all."""
    known = inspect.signature(creator).parameters if callable(creator) else {}
    unknown = [key for key in arguments if key not in (*known, "max_episode_steps")]
    if not unknown or any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return ""
    return f"{name} has no argument {unknown[0]!r}{suggestion(unknown[0], known)}"


def _nearest_stem(name: str) -> str:
    """A suggestion for a name without the namespace and version that are most of what an id consists of."""
    by_stem = {known.rpartition("/")[2].rpartition("-v")[0].casefold(): known for known in gymnasium.registry}
    near = difflib.get_close_matches(name.casefold(), by_stem, n=1, cutoff=0.5)
    return f"; did you mean {by_stem[near[0]]!r}?" if near else ""


def _wrappers(wrap: Sequence[Wrap]) -> list[WrapperSpec]:
    found = []
    for given in [wrap] if isinstance(wrap, str) else wrap:
        path, arguments = (given, {}) if isinstance(given, str) else given
        found.append(WrapperSpec(path.rpartition(":")[2], _wrapper_path(path), dict(arguments)))
    return found


def _wrapper_path(path: str) -> str:
    module, colon, name = path.rpartition(":")
    if not colon:
        if path not in OWN:
            raise UserError(
                f"unknown wrapper {path!r}: expected {', '.join(OWN)} or an import path package.module:Wrapper"
                f"{suggestion(path, OWN)}"
            )
        return OWN[path]
    allow_import(path)
    home = _imported(module, path)
    if not callable(getattr(home, name, None)):
        known = [
            key for key, value in vars(home).items() if inspect.isclass(value) and issubclass(value, gymnasium.Wrapper)
        ]
        near = suggestion(name, known) or (f"; it has {', '.join(known)}" if known else "")
        raise UserError(f"{module} has no wrapper {name!r}{near}")
    return path


def _wrapped(env: gymnasium.Env[Any, Any], wrapper: WrapperSpec) -> gymnasium.Env[Any, Any]:
    creator: Callable[..., Any] = load_env_creator(wrapper.entry_point)
    arguments = wrapper.kwargs or {}
    try:
        made = creator(env, **arguments)
    except UserError as error:
        raise UserError(f"wrapper {wrapper.name}: {error}") from None
    except Exception as error:  # whatever somebody's wrapper raises
        unknown = _unknown_argument(f"wrapper {wrapper.name}", creator, arguments)
        raise UserError(
            unknown or f"wrapper {wrapper.name} cannot be put around {env} ({type(error).__name__}: {error})"
        ) from None
    if not isinstance(made, gymnasium.Env):
        raise UserError(f"wrapper {wrapper.name} made a {type(made).__name__}: expected an environment")
    return made
