"""Agents by what a user calls them: a folder that was saved, a folder of `vpac train`, or a stored run, by name or folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium

from vpac.envs.recipes import Recipe, Wanted
from vpac.errors import UserError, suggestion
from vpac.evaluation.environments import as_remembered
from vpac.evaluation.fitting import check_fits
from vpac.evaluation.loading import described, load_agent
from vpac.execution.acting import stored_record, stored_with
from vpac.execution.making import task_recipe
from vpac.execution.store import Store

__all__ = ["Trained", "find_agents", "find_trained", "short_name"]


@dataclass(frozen=True)
class Trained:
    """An agent that is not loaded yet."""

    name: str
    """A short one."""
    where: str
    """What was read."""
    env: Any
    """What the file calls its environment."""
    recipe: Recipe | None
    """Where it learned; None: the file does not say how that was made."""
    ready: Callable[[gymnasium.Env[Any, Any], Recipe], Any]
    """Loads it for an environment, made from a recipe."""
    remark: str = ""
    """What is worth saying of it."""

    def settle(self, wanted: Wanted) -> tuple[Recipe, str]:
        """Where it is to act, and remarks: on it, and on what of that came from its file."""
        recipe, words = wanted.settle(self.recipe, self.where, self.env)
        return recipe, "; ".join(filter(None, (self.remark, words)))

    def load(self, made: gymnasium.Env[Any, Any], recipe: Recipe) -> Any:
        """The agent; one that does not fit the environment is refused."""
        agent = self.ready(made, recipe)
        acts_in = as_remembered(made, agent)
        check_fits(agent, acts_in.observation_space, acts_in.action_space, recipe.env)
        return agent


def find_agents(
    name: str, store: Path, wanted: Wanted | None = None, remark: Callable[[str], object] = lambda text: None
) -> dict[str, tuple[Any, Any]]:
    """Agents by short names, each with the environment it is to act in, as `vpac.evaluate` takes it.

    Args:
        name: a folder with `agent.json`, a folder of `vpac train` (all of its runs), or a run in the store.
        store: where stored runs are.
        wanted: where they are to act; default: where they learned.
        remark: called with what is worth saying of the environment.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for one in find_trained(name, store):
        recipe, words = one.settle(wanted or Wanted())
        if words:
            remark(words)
        made = recipe.make()
        found[one.name] = one.load(made, recipe), made
    return found


def find_trained(name: str, store: Path) -> list[Trained]:
    """What is there under this name; of a folder of `vpac train` all of its runs, or the last checkpoint."""
    folder = Path(name)
    if not folder.is_dir():
        return [_stored(name, Store(store), store)]
    if (folder / "run.json").is_file():
        whole = folder.resolve()
        return [_stored(whole.name, Store(whole.parent.parent), whole.parent.parent)]
    if (folder / "agent.json").is_file():
        return [_saved(folder, short_name(folder))]
    runs = sorted((p.parent for p in folder.glob("run-*/agent.json")), key=lambda p: (len(p.name), p.name))
    if runs:
        return [_saved(run, short_name(run) if len(runs) > 1 else folder.resolve().name) for run in runs]
    for place in sorted((folder / "checkpoints").glob("[0-9]*/agent.json"), reverse=True):
        words = (
            f"{folder} was stopped before its end: this is its checkpoint after {int(place.parent.name):,} iterations"
        )
        return [replace(_saved(place.parent, folder.resolve().name), remark=words)]
    raise UserError(f"{folder} holds no policy: expected a folder that `vpac train` wrote")


def short_name(folder: Path) -> str:
    """`vpac-FourRooms/run-0`: the folder and the one above it."""
    whole = folder.resolve()
    return f"{whole.parent.name}/{whole.name}" if whole.name.startswith("run-") else whole.name


def _saved(folder: Path, name: str) -> Trained:
    about = described(folder)
    return Trained(
        name, str(folder), about.get("env"), Recipe.read(about), lambda made, recipe: load_agent(folder, made)
    )


def _stored(name: str, store: Store, root: Path) -> Trained:
    names = store.names()
    if name not in names:
        raise UserError(
            f"there is no agent {name!r}: expected a folder with agent.json, one that `vpac train` wrote, or a run in {root} "
            f"(`vpac runs --store {root}` lists them){suggestion(name, names)}"
        )
    record = stored_record(store, name)
    try:
        recipe = task_recipe(record.run.task)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{name} does not hold a learner: {error!s:.200}") from None
    return Trained(name, name, recipe.env, recipe, lambda made, recipe: stored_with(record, made, recipe))
