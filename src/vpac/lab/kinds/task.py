"""Run a task: task and seed determine the result, so any process on any machine may run it."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac import algorithms
from vpac.envs.check import skip_checks
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import EnvRecipe, env_to_record, spec_of
from vpac.envs.worlds import FiniteMDPEnv
from vpac.errors import UserError
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run, canonical
from vpac.lab.store.store import Result
from vpac.tabular.options import StepSizeOrder

if TYPE_CHECKING:
    from vpac.tabular.agents import Learner

TASK_KINDS = {
    "training": "tabular.perform", "deep": "deep.perform", "prediction": "convergence.predict",
    "convergence": "convergence.perform", "frontier": "frontier.perform", "theorems": "theorems.perform",
}  # fmt: skip
"""Kinds of tasks, and the module and function of each."""
CACHED_WORLDS: dict[str, tuple[FiniteMDP, int | None]] = {}
"""Cache of finite MDPs in this process."""


def perform(run: Run, scratch: Scratch) -> Result:
    """Run a task; a long run writes checkpoints to `scratch`, and continues from those that it finds there."""
    module, _, function = TASK_KINDS[run.task["kind"]].partition(".")
    with skip_checks():
        result: Result = getattr(importlib.import_module(f"vpac.lab.kinds.{module}"), function)(run, scratch)
    return result


def task_recipe(task: dict[str, Any]) -> EnvRecipe:
    """A task's environment as plain data."""
    return EnvRecipe(
        task["env"],
        dict(task.get("env_settings") or {}),
        tuple((path, given) for path, given in task.get("wrappers", ())),
    )


def training_run(agent: Any, environment: Any, number: int, **how: Any) -> Run:
    """`vpac train` as a run like those of a study; `how` are the further entries of a task of its kind."""
    name, known = type(agent).__name__, algorithms.BY_CLASS.get(type(agent).__name__)
    there = env_to_record(environment.name, environment.recipe)
    task = {
        "kind": "deep" if "steps" in how else "training", "env": there["env"], "env_settings": there["arguments"] or {},
        "wrappers": there["wrappers"], "settings": agent.options.as_dict(), "algorithm": known.name if known else name,
    }  # fmt: skip
    return Run(task | how, number, agent.seed)


def program_of(task: dict[str, Any]) -> str | None:
    """Common part of runs that one compiled program trains (`deep.compiled`): all of their task but a constant or
    scheduled ψ. None: the environment is not one of pure functions."""
    if task["kind"] != "deep" or task.get("wrappers") or not _functional(task["env"]):
        return None
    settings = {k: v for k, v in task["settings"].items() if k != "psi" or v == "conditioned"}
    return canonical(task | {"settings": settings})


@cache
def _functional(env: str) -> bool:
    """Whether a name is that of an environment of pure functions."""
    from vpac.envs.functional import FunctionalMaker

    return ":" in env and isinstance(spec_of(env).entry_point, FunctionalMaker)


def world_of(task: dict[str, Any]) -> tuple[Any, int | None]:
    """A task's environment and its step limit; environments with a transition table become finite MDPs."""
    key = canonical([task["env"], task.get("env_settings", {}), task.get("wrappers", [])])
    if key not in CACHED_WORLDS:
        env = task_recipe(task).make()
        limit = env.spec.max_episode_steps if env.spec else None
        if task.get("wrappers") or not (isinstance(env.unwrapped, FiniteMDPEnv) or hasattr(env.unwrapped, "P")):
            return env, limit
        CACHED_WORLDS[key] = FiniteMDP.from_gymnasium(env), limit
    return CACHED_WORLDS[key]


def process_of(task: dict[str, Any]) -> FiniteMDP:
    """A task's environment as a finite MDP; `random-process` is a random one, drawn with the `seed` among its settings."""
    if task["env"] == "random-process":
        from vpac.lab.kinds.theorems import random_process

        given = dict(task["env_settings"])
        return random_process(np.random.default_rng(given.pop("seed", 0)), **given)
    world, _ = world_of(task)
    if not isinstance(world, FiniteMDP):
        raise UserError(f"{task['env']} has no transition table: this needs a finite process")
    return world


def learner_of(task: dict[str, Any], seed: int) -> Learner:
    """A task's learner, before training."""
    algorithm = algorithms.find(task["algorithm"], algorithms.TABULAR)
    algorithm.check_settings(task["settings"])
    world, limit = world_of(task)
    settings = ({"max_episode_steps": limit} if limit else {}) | task["settings"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StepSizeOrder)  # the paper's own step sizes are not in the required order
        kind: type[Learner] = algorithm.load()
        return kind(world, seed=seed, **settings)
