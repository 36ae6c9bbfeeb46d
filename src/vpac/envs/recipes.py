"""How an environment is made, as plain data: what a saved agent says of where it learned, and what a user says of it now."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from vpac.envs.naming import allow_import, is_named_by_user, is_wrapper_named
from vpac.envs.making import OWN, make_env, spec_of
from vpac.errors import UserError

__all__ = ["Recipe", "Wanted", "noted", "recipe_of", "remade"]

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
