"""Which import paths this process' user has named. An import path is code, and a file must not say what is imported.

One function, `make_env`, for every verb and learner. What is imported is what the user names; files of learners never name it.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec, load_env_creator

from vpac.envs import noise
from vpac.envs.observations import flattened
from vpac.errors import UserError, suggestion

__all__ = [
    "OWN",
    "Recipe",
    "Wanted",
    "Wrap",
    "allow_import",
    "as_given",
    "is_named_by_user",
    "is_wrapper_named",
    "make_env",
    "noted",
    "recipe_of",
    "remade",
    "remake",
    "spec_of",
]

NAMED: set[str] = set()
"""Import paths of environments and wrappers that were named; what is read from files does not get here."""


def allow_import(path: str) -> None:
    """Note that the user has named this; of what has no module in it nothing needs to be noted."""
    if ":" in path:
        NAMED.add(path)


def is_named_by_user(path: str) -> bool:
    """Whether an environment that a file names may be made: a registered id, or an import path that the user named, too.

    An import path is code: `os:system` is one. A file must not say what is imported.
    """
    return ":" not in path or path in NAMED


def is_wrapper_named(path: str) -> bool:
    """Whether a wrapper that a file names may be used: one of ours, one that the user named, or a class of wrappers that is
    written in a module from which the user named something."""
    if is_named_by_user(path):
        return True
    module, _, attribute = path.rpartition(":")
    if module not in {named.partition(":")[0] for named in NAMED}:
        return False
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:  # which making the environment will say in full
        return False
    return inspect.isclass(found) and issubclass(found, gymnasium.Wrapper) and found.__module__ == module


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


def remake(spec: EnvSpec | None, why: str = "") -> gymnasium.Env[Any, Any]:
    """An environment from its specification: a new one, with the same arguments and wrappers."""
    reason: object = "it has no specification, because it was not made with gymnasium.make"
    if spec is not None:
        try:
            return gymnasium.make(spec)
        except Exception as error:  # whatever constructors and wrappers make of it
            reason = error
    raise UserError(f"this environment cannot be made again ({reason}){why}")


SHORT = {path: name for name, path in OWN.items()}
"""The short names of our wrappers, by import path."""


@dataclass(frozen=True)
class Recipe:
    """A name, arguments and wrappers; `make_env` takes all three."""

    env: str
    """The name that the user gave: an id, or an import path."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Of the environment."""
    wrappers: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Each a path and its arguments, the innermost first."""

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self | None:
        """From what a file says under `env`, `arguments` and `wrappers`; None if it does not say it all.

        Older files name no wrappers, and still older ones no arguments: there were none.
        """
        env, arguments, wrappers = data.get("env"), data.get("arguments", {}), data.get("wrappers", [])
        if not (isinstance(env, str) and isinstance(arguments, dict) and isinstance(wrappers, list)):
            return None
        for one in wrappers:
            if not (isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], dict)):
                return None
        return cls(env, arguments, tuple((path, given) for path, given in wrappers))

    @property
    def plain(self) -> bool:
        """Whether JSON can write it."""
        try:
            json.dumps([self.arguments, self.wrappers], allow_nan=False)
        except (TypeError, ValueError):
            return False
        return True

    def make(self, **more: Any) -> gymnasium.Env[Any, Any]:
        """An environment; `more` are arguments that come on top."""
        return make_env(self.env, self.wrappers, **{**self.arguments, **more})

    def parts(self) -> tuple[Any, dict[str, Any]]:
        """As makers of environments take it: a name and arguments or, with wrappers or an import path, a specification."""
        if self.wrappers or ":" in self.env:
            return spec_of(self.env, self.wrappers, **self.arguments), {}
        return self.env, dict(self.arguments)

    def unnamed(self) -> str:
        """The first import path in it that the user has not named; empty if there is none."""
        if not is_named_by_user(self.env):
            return self.env
        return next((path for path, _ in self.wrappers if not is_wrapper_named(path)), "")

    def flags(self) -> str:
        """What to add to a command so that all of it is named; wrappers only if naming the environment is not enough."""
        module = self.env.partition(":")[0]
        named = all(":" not in path or path.startswith(f"{module}:") for path, _ in self.wrappers)
        wrap = [word for pair in self.wrappers for word in ("--wrap", *_wrapper_words(pair))]
        return shlex.join(["--env", self.env, *([] if named else wrap)])

    def words(self) -> str:
        """In words, on one line."""
        found = " ".join([self.env, *_pairs(self.arguments)])
        around = " and ".join(" ".join(_wrapper_words(pair)) for pair in self.wrappers)
        return found + (f", wrapped by {around}" if around else "")


@dataclass(frozen=True)
class Wanted:
    """Where a user wants an agent to act; what is left out is as it was in training, if the environment is the same."""

    env: str | None = None
    """Another name; None: the one that it learned in."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Beside those of training, or instead of them."""
    wrappers: Sequence[tuple[str, dict[str, Any]]] | None = None
    """Instead of those of training; None: those."""
    command: str = ""
    """What the user typed, for advice: `vpac evaluate RUN`; empty: it was a call from Python."""
    call: str = "load_agent"
    """Which one."""

    def settle(self, stored: Recipe | None, where: object, name: object = "") -> tuple[Recipe, str]:
        """The recipe, and a remark on what of it came from the file; empty if nothing did.

        Args:
            stored: what the file says; None: it does not.
            where: the file.
            name: the environment's name there, if that is all it says.
        """
        same = stored is not None and self.env in (None, stored.env, _with_module(self.env, stored.env))
        if not same or stored is None:
            if self.env is None:
                raise UserError(
                    f"{where} does not say how its environment, {name}, was made: name one, {self.command} --env ENV"
                    if self.command
                    else f"{where} does not say how its environment, {name}, was made: pass it, {self.call}(path, env)"
                )
            return Recipe(self.env, dict(self.arguments), tuple(self.wrappers or ())), (
                f"{where} does not say with which arguments and wrappers it learned: taken as given"
                if stored is None and self.env == name
                else ""
            )
        if self.env is not None:
            allow_import(self.env)
            stored = replace(stored, env=self.env)
        chosen = replace(stored, arguments={**stored.arguments, **self.arguments})
        if self.wrappers is not None:
            chosen = replace(chosen, wrappers=tuple(self.wrappers))
            for path, _ in chosen.wrappers:
                allow_import(path)
        self._check(chosen, where)
        taken = _pairs({key: value for key, value in stored.arguments.items() if key not in self.arguments})
        taken += ["its wrappers"] if stored.wrappers and self.wrappers is None else []
        return chosen, f"{where}: in {chosen.words()} (from its training: {', '.join(taken)})" if taken else ""

    def _check(self, chosen: Recipe, where: object) -> None:
        """Refuse what only a file names by an import path."""
        path = chosen.unnamed()
        if not path:
            return
        what = "its environment" if path == chosen.env else "a wrapper of its environment"
        advice = f"{self.command} {chosen.flags()}" if self.command else f"{self.call}({str(where)!r}, {chosen.env!r})"
        if path != chosen.env:
            advice += "; without wrappers: --wrap none" if self.command else ", or pass an environment that has it"
        raise UserError(
            f"{where} names {what} by an import path, {path!r:.80}, and files do not decide what is imported: "
            f"name it yourself, {advice}"
        )


def noted(name: str, recipe: Recipe | None) -> dict[str, Any]:
    """What a file says of an environment; `Recipe.read` reads it."""
    if recipe is None or not recipe.plain:
        return {"env": name, "arguments": None, "wrappers": []}
    return {"env": recipe.env, "arguments": recipe.arguments, "wrappers": [list(pair) for pair in recipe.wrappers]}


def remade(data: Mapping[str, Any], env: Any, where: object, kind: str) -> tuple[Any, dict[str, Any]]:
    """The environment of a file for a learner of this kind, as `Recipe.parts` gives it.

    Args:
        data: what the file says.
        env: what the user says: None, the name that is in the file, which stands for all that the file says of it, or
            anything else, which is taken as it is.
        where: the file.
        kind: whose `load` is called.
    """
    stored = Recipe.read(data)
    if env is not None and not (isinstance(env, str) and stored is not None and env == stored.env):
        return env, {}
    return Wanted(env, call=f"{kind}.load").settle(stored, where, data.get("env"))[0].parts()


def recipe_of(env: Any, **arguments: Any) -> Recipe | None:
    """The recipe of what `make_env` takes; None if plain data cannot say how it is made."""
    spec = env.spec if isinstance(env, gymnasium.Env) else spec_of(env, **arguments)
    if spec is None or not _is_found_by_name(spec):
        return None
    base = gymnasium.registry.get(spec.id) or gymnasium.registry.get(spec.id.partition(":")[2])
    before = list(base.additional_wrappers) if base else []
    wrappers = list(spec.additional_wrappers)
    if wrappers and wrappers[-1].name == "FlattenObservation":
        del wrappers[-1]  # ours: `make_env` adds it again
    if wrappers[: len(before)] != before or any(one.kwargs is None for one in wrappers):
        return None
    limit = spec.max_episode_steps != (base.max_episode_steps if base else None)
    given = spec.kwargs | ({"max_episode_steps": spec.max_episode_steps} if limit else {})
    return Recipe(spec.id, given, tuple(_pair(one) for one in wrappers[len(before) :]))


def _is_found_by_name(spec: EnvSpec) -> bool:
    """Whether its id leads to it again: a registered one, or an import path of what makes it."""
    if spec.id in gymnasium.registry or isinstance(spec.entry_point, str):
        return True
    module, _, name = spec.id.partition(":")
    return module != "__main__" and getattr(sys.modules.get(module), name, None) is spec.entry_point


def _pair(wrapper: WrapperSpec) -> tuple[str, dict[str, Any]]:
    return SHORT.get(wrapper.entry_point, wrapper.entry_point), dict(wrapper.kwargs or {})


def _with_module(given: str | None, stored: str) -> str | None:
    """The given name, if it is the stored one with the module that registers it: older files left that out."""
    return given if given is not None and given.partition(":")[2] == stored else None


def _wrapper_words(wrapper: tuple[str, dict[str, Any]]) -> list[str]:
    """As `--wrap` takes it."""
    path, given = wrapper
    return [path, *_pairs(given)]


def _pairs(arguments: Mapping[str, Any]) -> list[str]:
    """As `--set` takes them."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments.items()]
