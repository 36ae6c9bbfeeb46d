"""Agents by what a user calls them: a folder that was saved, a folder of `vpac train`, or the name of a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vpac.errors import UserError, suggestion
from vpac.evaluation.loading import load_agent
from vpac.execution.making import learner_of
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
    return {name: _stored(name, store)}


def _short(folder: Path) -> str:
    """`vpac-FourRooms/run-0`: the folder and the one above it."""
    whole = folder.resolve()
    return f"{whole.parent.name}/{whole.name}" if whole.name.startswith("run-") else whole.name


def _loaded(folder: Path, env: Any) -> tuple[Any, Any]:
    agent = load_agent(folder, env)
    return agent, env if env is not None else environment_of(agent)


def environment_of(agent: Any) -> Any:
    """The environment that an agent was loaded with."""
    sight = getattr(agent, "sight", None)
    if sight is None:
        return agent.env
    from vpac.envs.tables import make_env

    return sight.env if sight.env is not None else make_env(sight.name, **(sight.arguments or {}))


def _stored(name: str, root: Path) -> tuple[Learner, Any]:
    """A run of the store: its task says how the learner was made, its file what it learned."""
    store = Store(root)
    names = store.names()
    if name not in names:
        near = suggestion(name, names) or f"; expected a folder with agent.json, of `vpac train`, or a run in {root}"
        raise UserError(f"there is no agent {name!r}{near}")
    try:
        record = store.read(name)
    except Damaged as error:
        raise UserError(str(error)) from None
    if record.run.task["kind"] != "training":
        raise UserError(f"{name} is a run of kind {record.run.task['kind']!r}: only training leaves an agent")
    return _trained(record), _world(record)


def _trained(record: Record) -> Learner:
    learner, learned = learner_of(record.run.task, record.run.seed), record.policy()
    for name, weights in zip(("theta", "w", "z", "mean"), learner.weights, strict=True):
        weights[...] = learned[name]
    return learner


def _world(record: Record) -> Any:
    from vpac.envs.tables import make_env

    task = record.run.task
    return make_env(task["env"], **task.get("env_settings", {}))
