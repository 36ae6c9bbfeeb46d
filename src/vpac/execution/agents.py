"""Agents by what a user calls them: a folder that was saved, a folder of `vpac train`, or the name of a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vpac.envs.making import make_env
from vpac.errors import UserError, suggestion
from vpac.evaluation.loading import check_named, load_agent, saved_environment
from vpac.execution.acting import stored_policy
from vpac.execution.making import learner_of, recipe_of
from vpac.execution.store import Damaged, Record, Store
from vpac.learners.learner import Learner

__all__ = ["find_agents"]


def find_agents(name: str, store: Path, env: Any = None) -> dict[str, tuple[Any, Any]]:
    """Agents by short names, each with the environment that it was trained in, as `vpac.evaluate` takes it.

    Args:
        name: a folder with `agent.json`, a folder of `vpac train` (all of its runs), or a run in the store.
        store: where stored runs are.
        env: load the agent for this environment instead.
    """
    folder = Path(name)
    if (folder / "agent.json").is_file():
        return {_short(folder): _loaded(folder, env)}
    runs = sorted((p.parent for p in folder.glob("run-*/agent.json")), key=lambda p: (len(p.name), p.name))
    if runs:
        return {_short(run) if len(runs) > 1 else folder.name: _loaded(run, env) for run in runs}
    agent, own = _stored(name, store)
    return {name: (agent, own if env is None else env)}


def _short(folder: Path) -> str:
    """`vpac-FourRooms/run-0`: the folder and the one above it."""
    whole = folder.resolve()
    return f"{whole.parent.name}/{whole.name}" if whole.name.startswith("run-") else whole.name


def _loaded(folder: Path, env: Any) -> tuple[Any, Any]:
    return load_agent(folder, env), saved_environment(folder) if env is None else env


def _stored(name: str, root: Path) -> tuple[Any, Any]:
    """A run of the store: its task says how the learner was made, its file what it learned."""
    store = Store(root)
    names = store.names()
    if name not in names:
        raise UserError(
            f"there is no agent {name!r}: expected a folder with agent.json, one that `vpac train` wrote, or a run in {root} "
            f"(`vpac runs --store {root}` lists them){suggestion(name, names)}"
        )
    try:
        record = store.read(name)
    except Damaged as error:
        raise UserError(str(error)) from None
    task = record.run.task
    if task["kind"] not in ("training", "deep"):
        raise UserError(f"{name} is a run of kind {task['kind']!r}: only training leaves an agent")
    try:
        for imported in (task["env"], *(path for path, _ in task.get("wrappers", ()))):
            check_named(imported, name)
        world = _world(record)
        return stored_policy(record, world, task["env"]) if task["kind"] == "deep" else _trained(record), world
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{name} does not hold a learner: {error!s:.200}") from None


def _trained(record: Record) -> Learner:
    learner, learned = learner_of(record.run.task, record.run.seed), record.policy()
    for name, weights in zip(("theta", "w", "z", "mean"), learner.weights, strict=True):
        weights[...] = learned[name]
    return learner


def _world(record: Record) -> Any:
    env, arguments = recipe_of(record.run.task)
    return make_env(env, **arguments)
