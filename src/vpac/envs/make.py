"""Make environments from what users write: for learners, evaluation, the command line and the lab.

`make_env` takes an id, an import path, a class, a function, a specification, a `FiniteMDP` or an environment. `EnvRecipe` is
the same as plain data, for files. An import path is code (`os:system` is one), so a file never decides what is imported: a
path from a file is used only if the user has named it in the same process.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec, load_env_creator

from vpac.checks import whole
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.observations import flattened
from vpac.errors import UserError, suggestion
from vpac.portable import deduplicated_stderr

NAMED_BY_USER: set[str] = set()
"""Import paths of environments and wrappers that the user has named."""


HARMLESS = {
    "ClipAction", "FilterObservation", "FlattenObservation", "FrameStackObservation", "GrayscaleObservation", "RescaleAction",
    "RescaleObservation", "ResizeObservation", "ReshapeObservation", "TimeAwareObservation",
}  # fmt: skip
"""Wrappers of Gymnasium that only rearrange observations and actions: they leave rewards, and write and call nothing."""


def allow_import(path: str) -> None:
    """Record that the user has named an import path; an id without a module needs no record."""
    if ":" in path:
        NAMED_BY_USER.add(path)


def is_named_by_user(path: str) -> bool:
    """Whether an environment that a file names may be made: a registered id, or an import path that the user has named."""
    word, _, rest = path.partition(":")
    return ":" not in (rest if word in FUNCTIONAL_WORDS else path) or path in NAMED_BY_USER


def is_wrapper_named(path: str) -> bool:
    """Whether a wrapper that a file names may be used: one of vpac, one of Gymnasium that only computes, one that the user has
    named, or a wrapper class defined in a module from which the user has named something."""
    module, _, attribute = path.rpartition(":")
    if is_named_by_user(path) or (module == "gymnasium.wrappers" and attribute in HARMLESS):
        return True
    if module not in {named.partition(":")[0] for named in NAMED_BY_USER}:
        return False
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:  # reported in full when the environment is made
        return False
    return inspect.isclass(found) and issubclass(found, gymnasium.Wrapper) and found.__module__ == module


NOISES = ("ActionNoise", "RandomFirstSteps", "RandomStart", "RegionalRewardNoise", "RewardNoise", "SeedGlobals")
OWN_WRAPPERS = {name: f"vpac.envs.noise:{name}" for name in NOISES} | {
    "RememberReturn": "vpac.envs.remember:RememberReturn"
}
"""Import paths of the wrappers that have short names."""
SHORT_NAMES = {path: name for name, path in OWN_WRAPPERS.items()}
MOST_WRAPPERS = 100
"""Most wrappers around one environment; each step passes through all of them."""
FUNCTIONAL_WORDS = ("gymnax", "brax", "jax")
"""`gymnax:NAME` and `brax:NAME` are environments of these libraries, `jax:ID` the JAX version of another environment."""
Wrap = str | tuple[str, Mapping[str, Any]]
"""A wrapper's import path `package.module:Wrapper`, or a name in `vpac.envs` such as RewardNoise; with its arguments."""


def make_env(env: Any, /, wrap: Sequence[Wrap] = (), **arguments: Any) -> gymnasium.Env[Any, Any]:
    """Make an environment that learners can use; a `UserError` names the mistake and the nearest right spelling.

    Args:
        env: a Gymnasium id (`CartPole-v1`), an id with the module that registers it (`package.module:Name-v0`), the import path
            of a class or of a function that makes one (`package.module:Class`), such a class or function, an `EnvSpec`, a
            `FiniteMDP`, or an environment.
        wrap: wrappers, the innermost first; each an import path, or a pair of it and its arguments.
        arguments: arguments of the environment; `max_episode_steps` is Gymnasium's limit. An existing environment takes none.

    Dict, Tuple and matrix observations are flattened, and so is a mask in one; images are rejected. The result of
    `gymnasium.make(spec_of(env, wrap, **arguments))` keeps images and masks, and the PPO family takes it.
    """
    return flattened(make_unflattened(env, wrap, **arguments))


def make_unflattened(env: Any, /, wrap: Sequence[Wrap] = (), **arguments: Any) -> gymnasium.Env[Any, Any]:
    """`make_env` without flattening: agents choose the form of their observations."""
    if isinstance(env, gymnasium.Env | FiniteMDP):
        for name in arguments:
            raise UserError(f"{env} is made already and takes no argument {name!r}: pass its id or class")
        made = env.to_gymnasium() if isinstance(env, FiniteMDP) else env
    else:
        made = _make(spec_of(env, **arguments), arguments)
    for wrapper in _wrapper_specs(wrap):
        made = _wrapped(made, wrapper)
    return made


def remake(spec: EnvSpec | None, advice: str = "") -> gymnasium.Env[Any, Any]:
    """Make another environment with the specification of an existing one; `advice` is added to the error message."""
    reason: object = "it has no specification, because it was not made with gymnasium.make"
    if spec is not None:
        try:
            return _made(spec)
        except Exception as error:  # whatever constructors and wrappers raise
            reason = error
    raise UserError(f"this environment cannot be made again ({reason}){advice}")


def name_of(env: Any) -> str:
    """A name for anything that `make_env` takes: the id, the name of the class or function, or a short description."""
    if isinstance(env, str):
        return env
    spec = env if isinstance(env, EnvSpec) else getattr(env, "spec", None)
    if isinstance(spec, EnvSpec):
        return spec.id
    if isinstance(env, FiniteMDP):
        return repr(env)
    return getattr(env, "__name__", None) or type(getattr(env, "unwrapped", env)).__name__


def spec_of(env: Any, /, wrap: Sequence[Wrap] = (), **arguments: Any) -> EnvSpec:
    """The specification of `make_env(env, wrap, **arguments)`, from which `gymnasium.make` makes any number of environments."""
    if isinstance(env, str):
        found = _spec_by_name(env)
    elif isinstance(env, EnvSpec):
        found = env
    elif callable(env):
        name = re.sub(r"[^\w.:-]", "", f"{env.__module__}:{getattr(env, '__qualname__', type(env).__name__)}")
        found = EnvSpec(name, entry_point=env, disable_env_checker=True)
    else:
        expected = "a Gymnasium environment, its id, its class or an import path"
        raise UserError(f"expected {expected}, got {type(env).__name__}")
    spec = deepcopy(found)
    given = dict(arguments)
    if "max_episode_steps" in given:
        limit = given.pop("max_episode_steps")
        spec.max_episode_steps = None if limit is None else whole(limit, "max_episode_steps", 1)
    spec.kwargs = {**spec.kwargs, **given}
    spec.additional_wrappers += tuple(_wrapper_specs(wrap))
    return spec


def _spec_by_name(name: str) -> EnvSpec:
    module, colon, rest = name.partition(":")
    if not colon:
        return _registered(name, name)
    allow_import(name)
    if module.startswith("vpac.envs."):  # stored names may refer to modules that have moved
        module = "vpac.envs"
    from vpac.envs.functional import FunctionalEnv, FunctionalMaker

    functional = partial(EnvSpec, name, entry_point=FunctionalMaker(name), disable_env_checker=True)
    if module in FUNCTIONAL_WORDS:
        return functional()
    home = _imported(module, name)
    if rest in gymnasium.registry:
        found = deepcopy(_registered(rest, name))
        found.id = name  # with the module that registers it
        return found
    creator = getattr(home, rest, None)
    if inspect.isclass(creator) and issubclass(creator, FunctionalEnv):
        return functional()
    if callable(creator):
        return EnvSpec(name, entry_point=f"{module}:{rest}", disable_env_checker=True)
    own = [spec.id for spec in gymnasium.registry.values() if str(spec.entry_point).startswith(f"{module}:")]
    classes = [key for key, value in vars(home).items() if inspect.isclass(value) and issubclass(value, gymnasium.Env)]
    near = suggestion(rest, [*own, *classes]) or (f"; it has {', '.join([*own, *classes])}" if own or classes else "")
    makers = [key for key, value in vars(home).items() if key.startswith("register") and callable(value)]
    if makers and not near:
        near = f"; if {module}.{makers[0]}() registers it, call that in a module of yours, mine.py, and name it mine:{rest}"
    raise UserError(f"{module} has no environment {rest!r}, neither registered nor as a class or function{near}")


def _registered(identity: str, name: str) -> EnvSpec:
    try:
        return gymnasium.spec(identity)
    except (gymnasium.error.Error, ModuleNotFoundError):
        near = suggestion(name, gymnasium.registry) or _nearest_stem(name)
        module, _, attribute = name.rpartition(".")
        if module.isidentifier() and attribute.isidentifier() and attribute[0].isupper():  # a class
            near = f"; did you mean '{module}:{attribute}'?"
        own = f", and one of your own is named with its module, my_module:{name.rpartition('/')[2]}"
        unknown = f"; `vpac list` shows those that can be solved{'' if ':' in name else own}"
        raise UserError(f"unknown environment {name!r}{near or unknown}") from None


def _imported(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:  # whatever running the module raises
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            why = f"it needs {error.name!r}, which is not installed"
            if module.endswith(".py"):
                right = name.replace(".py:", ":")
                raise UserError(f"a module is named without .py: did you mean {right}?") from None
            if f"{module}.".startswith(f"{error.name}."):
                raise UserError(
                    f"cannot import {module!r} of {name!r}: there is no module {error.name!r} where Python looks; run vpac in "
                    "the folder that holds it, or install it"
                ) from None
        raise UserError(f"cannot import {module!r} of {name!r}: {why}") from None


def _made(spec: EnvSpec) -> gymnasium.Env[Any, Any]:
    """`gymnasium.make`, extended to names of a module, a colon and an id with a slash."""
    registered = spec.id.partition(":")[2]
    if "/" not in registered:
        return gymnasium.make(spec)
    plain = deepcopy(spec)
    plain.id = registered
    env = gymnasium.make(plain)
    assert env.unwrapped.spec is not None
    env.unwrapped.spec.id = spec.id
    return env


def _make(spec: EnvSpec, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        with deduplicated_stderr():
            return _made(spec)
    except UserError:
        raise
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        absent = isinstance(error, gymnasium.error.DependencyNotInstalled | ModuleNotFoundError)
        if absent and "mujoco" in str(error).casefold():
            raise UserError(f"{spec.id} needs MuJoCo: pip install 'vpac[mujoco]'") from None
        raise UserError(f"{spec.id} cannot be made: {error}") from None
    except Exception as error:  # whatever a constructor raises
        reason = f"{type(error).__name__}: {str(error).split(' was raised from the environment creator')[0]}"
        entry = spec.entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        unknown = _unknown_argument(spec.id, creator, arguments)
        said = "does not take these arguments" if arguments else "cannot be made"
        missing = _missing_argument(spec.id, creator, spec.kwargs)
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason += f" ({place.filename}, line {place.lineno})" if "gymnasium" not in place.filename else ""
        raise UserError(unknown or missing or f"{spec.id} {said} ({reason})") from None


def _missing_argument(name: str, creator: Any, given: Mapping[str, Any]) -> str:
    """The message about required arguments that were not given; empty if all were."""
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
    """The message about the first argument that a constructor does not take; empty if it takes all."""
    known = inspect.signature(creator).parameters if callable(creator) else {}
    unknown = [key for key in arguments if key not in (*known, "max_episode_steps")]
    if not unknown or any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return ""
    has = f"; it has {', '.join(known)}" if known else ""
    return f"{name} has no argument {unknown[0]!r}{suggestion(unknown[0], known) or has}"


def _nearest_stem(name: str) -> str:
    """A suggestion for a name that lacks the namespace and the version of an id."""
    by_stem = {known.rpartition("/")[2].rpartition("-v")[0].casefold(): known for known in gymnasium.registry}
    near = difflib.get_close_matches(name.casefold(), by_stem, n=1, cutoff=0.5)
    return f"; did you mean {by_stem[near[0]]!r}?" if near else ""


def _wrapper_specs(wrap: Sequence[Wrap]) -> list[WrapperSpec]:
    found = []
    each = [wrap] if isinstance(wrap, str) else wrap
    if not isinstance(each, Sequence) or len(each) > MOST_WRAPPERS:
        raise UserError(f"wrap must hold wrappers, at most {MOST_WRAPPERS}, got {wrap!r:.80}")
    for given in each:
        path, arguments = (given, {}) if isinstance(given, str) else given
        found.append(WrapperSpec(path.rpartition(":")[2], _wrapper_path(path), dict(arguments)))
    return found


def _wrapper_path(path: str) -> str:
    module, colon, name = path.rpartition(":")
    if not colon:
        if path not in OWN_WRAPPERS:
            raise UserError(
                f"unknown wrapper {path!r}: expected {', '.join(OWN_WRAPPERS)} or an import path package.module:Wrapper"
                f"{suggestion(path, OWN_WRAPPERS)}"
            )
        return OWN_WRAPPERS[path]
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
    except Exception as error:  # whatever a wrapper raises
        unknown = _unknown_argument(f"wrapper {wrapper.name}", creator, arguments)
        why = f"wrapper {wrapper.name} cannot be put around {env} ({type(error).__name__}: {error})"
        raise UserError(unknown or why) from None
    if not isinstance(made, gymnasium.Env):
        raise UserError(f"wrapper {wrapper.name} made a {type(made).__name__}: expected an environment")
    return made


@dataclass(frozen=True)
class EnvRecipe:
    """Recipe of an environment, as plain data: the arguments of `make_env`."""

    env: str
    """The name that the user gave: an id, or an import path."""
    arguments: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Each a path and its arguments, the innermost first."""

    def __post_init__(self) -> None:
        if "wrap" in self.arguments:  # of `make_env`
            raise UserError(f"{self.env} cannot have an argument 'wrap': wrappers are named apart, --wrap WRAPPER")

    @classmethod
    def of(cls, env: Any, **arguments: Any) -> Self | None:
        """The recipe of anything that `make_env` takes; None if it cannot be expressed as plain data."""
        if isinstance(env, FiniteMDP):
            return None
        spec = env.spec if isinstance(env, gymnasium.Env) else spec_of(env, **arguments)
        if spec is None or not _is_found_by_name(spec):
            return None
        base = gymnasium.registry.get(spec.id) or gymnasium.registry.get(spec.id.partition(":")[2])
        if spec.id.partition(":")[0] in FUNCTIONAL_WORDS:  # the part after the colon names another environment
            base = None
        before = list(base.additional_wrappers) if base else []
        wrappers = list(spec.additional_wrappers)
        if wrappers and wrappers[-1].name in ("Flattened", "ArrangedObservation"):
            del wrappers[-1]  # learners add it again
        if wrappers[: len(before)] != before or any(one.kwargs is None for one in wrappers):
            return None
        limited = spec.max_episode_steps != (base.max_episode_steps if base else None)
        arguments = spec.kwargs | ({"max_episode_steps": spec.max_episode_steps} if limited else {})
        added = wrappers[len(before) :]
        pairs = tuple((SHORT_NAMES.get(one.entry_point, one.entry_point), dict(one.kwargs or {})) for one in added)
        return cls(spec.id, arguments, pairs)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self | None:
        """Recipe from a file's entries `env`, `arguments` and `wrappers`; None if they are incomplete.

        Older files have no wrappers, and still older ones no arguments: there were none.
        """
        env, arguments, wrappers = data.get("env"), data.get("arguments", {}), data.get("wrappers", [])
        if not (isinstance(env, str) and isinstance(arguments, dict) and isinstance(wrappers, list)):
            return None
        for one in wrappers:
            if not (isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], dict)):
                return None
        return cls(env, arguments, tuple((path, given) for path, given in wrappers))

    def make(self, **more: Any) -> gymnasium.Env[Any, Any]:
        """Make an environment, without flattening; `more` are additional arguments."""
        return make_unflattened(self.env, self.wrappers, **{**self.arguments, **more})

    def parts(self) -> tuple[Any, dict[str, Any]]:
        """An environment and its arguments, as learners take them: the name or, with wrappers or an import path, a
        specification without further arguments."""
        if self.wrappers or ":" in self.env:
            return spec_of(self.env, self.wrappers, **self.arguments), {}
        return self.env, dict(self.arguments)

    def unnamed(self) -> str:
        """The first import path in it that the user has not named; empty if there is none."""
        if not is_named_by_user(self.env):
            return self.env
        return next((path for path, _ in self.wrappers if not is_wrapper_named(path)), "")

    def flags(self) -> str:
        """The command-line options that name everything in it; wrappers only if naming the environment is not enough."""
        module = self.env.partition(":")[0]
        named = all(":" not in path or path.startswith(f"{module}:") for path, _ in self.wrappers)
        wrap = [word for pair in self.wrappers for word in ("--wrap", *wrapper_words(pair))]
        return shlex.join(["--env", self.env, *([] if named else wrap)])

    def describe(self) -> str:
        """A one-line description."""
        found = " ".join([self.env, *_pairs(self.arguments)])
        around = " and ".join(" ".join(wrapper_words(pair)) for pair in self.wrappers)
        return found + (f", wrapped by {around}" if around else "")


@dataclass(frozen=True)
class EnvOverrides:
    """The user's changes to the environment of a stored agent; the rest is as in training, if the environment is the same."""

    env: str | None = None
    """The environment's name; None: that of training."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments in addition to those of training; equal names are replaced."""
    wrappers: Sequence[tuple[str, dict[str, Any]]] | None = None
    """Wrappers instead of those of training; None: those of training."""
    command: str = ""
    """The command line for advice in messages, `vpac evaluate RUN`; empty: a call from Python."""
    call: str = "load_agent"
    """The name of that call."""

    def apply(self, stored: EnvRecipe | None, where: object, name: object = "") -> tuple[EnvRecipe, str]:
        """The recipe, and a remark on what came from the file `where`, which has the recipe `stored`, or only a `name`."""
        # older files omit the module that registers an id
        if stored is None or (self.env not in (None, stored.env) and str(self.env).partition(":")[2] != stored.env):
            if self.env is None:
                advice = f"name one, {self.command} --env ENV" if self.command else f"pass it, {self.call}(path, env)"
                raise UserError(f"{where} does not say how its environment, {name}, was made: {advice}")
            unknown = stored is None and self.env == name
            remark = f"{where} does not say with which arguments and wrappers it learned: taken as given"
            return EnvRecipe(self.env, dict(self.arguments), tuple(self.wrappers or ())), remark if unknown else ""
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
        return chosen, f"{where}: in {chosen.describe()} (from its training: {', '.join(taken)})" if taken else ""

    def _check(self, chosen: EnvRecipe, where: object) -> None:
        """Reject import paths that only a file names."""
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


def env_to_record(name: str, recipe: EnvRecipe | None) -> dict[str, Any]:
    """The entries of a file about an environment, which `EnvRecipe.read` reads; only its name if JSON cannot express more."""
    try:
        json.dumps([recipe.arguments, recipe.wrappers] if recipe else None, allow_nan=False)
    except (TypeError, ValueError):
        recipe = None
    if recipe is None:
        return {"env": name, "arguments": None, "wrappers": []}
    return {"env": recipe.env, "arguments": recipe.arguments, "wrappers": [list(pair) for pair in recipe.wrappers]}


def env_from_record(data: Mapping[str, Any], env: Any, where: object, kind: str) -> tuple[Any, dict[str, Any]]:
    """The environment of a file `where` for the `load` of a learner of this kind, as `EnvRecipe.parts` gives it.

    `env` is the user's argument: None; the name in the file, which then stands for all the file says about it; or anything
    else, which is used unchanged.
    """
    stored = EnvRecipe.read(data)
    if env is not None and not (isinstance(env, str) and stored is not None and env == stored.env):
        return env, {}
    return EnvOverrides(env, call=f"{kind}.load").apply(stored, where, data.get("env"))[0].parts()


def _is_found_by_name(spec: EnvSpec) -> bool:
    """Whether its id is sufficient to make it again: a registered id, or an import path."""
    from vpac.envs.functional import FunctionalMaker

    if spec.id in gymnasium.registry or isinstance(spec.entry_point, str | FunctionalMaker):
        return True
    module, _, name = spec.id.partition(":")
    return module != "__main__" and getattr(sys.modules.get(module), name, None) is spec.entry_point


def wrapper_words(wrapper: tuple[str, dict[str, Any]]) -> list[str]:
    """Words of a wrapper, as `--wrap` takes them."""
    return [wrapper[0], *_pairs(wrapper[1])]


def _pairs(arguments: Mapping[str, Any]) -> list[str]:
    """Pairs KEY=VALUE, as `--set` takes them."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments.items()]
