"""From a run's name or folder to a policy that acts, without JAX and without learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac.errors import UserError, suggestion
from vpac.evaluation.loading import described
from vpac.execution.store import Damaged, Record, Store

if TYPE_CHECKING:
    from vpac.deep.policy import NumpyPolicy
    from vpac.learners.learner import Learner

__all__ = ["Actor", "find_actor", "stored_policy"]

Act = Callable[[Any, np.random.Generator, bool], Any]
"""An action for (observation, generator, whether to take the most likely one)."""


@dataclass(frozen=True)
class Actor:
    """A learned policy, and where it learned."""

    name: str
    """Of the run."""
    env: str
    """Gymnasium id of its environment."""
    arguments: dict[str, Any]
    """Of the environment."""
    ready: Callable[[Any, str, dict[str, Any]], Act]
    """Fits it to an environment, its id and its arguments."""


def find_actor(run: str, store: Path) -> Actor:
    """The policy of a run: a folder that `vpac train` wrote, or the name of a run in a store."""
    folder = Path(run)
    if folder.is_dir():
        return _of_folder(folder)
    found = Store(store)
    if not found.has(run):
        raise UserError(
            f"there is no run {run!r}: expected a folder that `vpac train` wrote or a run in {store} "
            f"(`vpac runs` lists them){suggestion(run, found.names())}"
        )
    return _of_store(found, run)


def _of_folder(folder: Path) -> Actor:
    if (folder / "run.json").is_file():
        return _of_store(Store(folder.resolve().parent.parent), folder.resolve().name)
    place = _with_agent(folder)
    if (place / "policy.json").is_file():
        return _of_agent(place, folder.resolve().name)
    about = described(place)
    kind, env, arguments = about.get("algorithm"), str(about.get("env")), about.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise UserError(f"{place / 'agent.json'} does not describe a learner: its arguments are {arguments!r:.60}")
    from vpac.execution.training import ALGORITHMS

    classes = {found.__name__: found for found in ALGORITHMS.values()}
    if kind not in classes:
        raise UserError(f"{place} holds a {kind!r:.40}, whose policy cannot be watched")
    return Actor(
        folder.resolve().name, env, arguments, lambda made, name, given: _tabular(classes[kind].load(place, made))
    )


def _with_agent(folder: Path) -> Path:
    """The folder itself, its first run's, or its last checkpoint's."""
    checkpoints = sorted((folder / "checkpoints").glob("[0-9]*"), reverse=True)
    for place in (folder, folder / "run-0", *checkpoints):
        if (place / "agent.json").is_file():
            return place
    raise UserError(f"{folder} holds no policy: expected a folder that `vpac train` wrote")


def _of_agent(place: Path, name: str) -> Actor:
    from vpac.deep.policy import load_policy
    from vpac.deep.saved import read_agent

    about, policy = read_agent(place), load_policy(place)
    return Actor(name, about["env"], about["arguments"] or {}, lambda made, env, given: _deep(policy, made, env))


def _of_store(store: Store, name: str) -> Actor:
    try:
        record = store.read(name)
    except Damaged as damage:
        raise UserError(f"the run is damaged: {damage}") from None
    task = record.run.task
    if task["kind"] == "deep":
        return Actor(
            name,
            task["env"],
            task.get("env_settings") or {},
            lambda made, env, given: _deep(stored_policy(record, made, env), made, env),
        )
    if "theta" not in record.policy() or task["kind"] != "training":
        raise UserError(f"{name} is a run of kind {task['kind']!r}: it has no policy to watch")

    def ready(made: Any, env: str, given: dict[str, Any]) -> Act:
        from vpac.execution.making import learner_of

        learner, theta = (
            learner_of({**task, "env": env, "env_settings": given}, record.run.seed),
            record.policy()["theta"],
        )
        if learner.weights.theta.shape != theta.shape:
            raise UserError(
                f"{env} needs a policy of shape {list(learner.weights.theta.shape)}, this one has {list(theta.shape)}"
            )
        learner.weights.theta[...] = theta
        return _tabular(learner)

    return Actor(name, task["env"], task.get("env_settings") or {}, ready)


def stored_policy(record: Record, made: Any, env: str) -> NumpyPolicy:
    """The policy of a run of the PPO family: its arrays are stored, the rest follows from its task."""
    from vpac.deep.conditioning import PriceRange
    from vpac.deep.options import Options
    from vpac.deep.policy import NumpyPolicy
    from vpac.deep.spaces import Interface

    settings = dict(record.run.task["settings"])
    options = Options.read(settings, settings.pop("preset", "default"))
    arrays = record.policy()
    layers = range(sum(name.startswith("weight.") for name in arrays))
    return NumpyPolicy(
        Interface.of(made.observation_space, made.action_space, env), [arrays[f"weight.{i}"] for i in layers],
        [arrays[f"bias.{i}"] for i in layers], options.activation, arrays.get("log_std"), arrays["mean"], arrays["scale"],
        options.normalise_observations, options.gamma, PriceRange.read(options.psi_range) if options.conditioned else None,
    )  # fmt: skip


def _deep(policy: NumpyPolicy, made: Any, env: str) -> Act:
    from vpac.deep.spaces import Interface

    theirs = Interface.of(made.observation_space, made.action_space, env)
    inputs, outputs = policy.weights[0].shape[0] - (policy.prices is not None), policy.weights[-1].shape[1]
    discrete = policy.log_std is None
    if (theirs.inputs, theirs.actions, theirs.discrete_actions) != (inputs, outputs, discrete):
        raise UserError(
            f"{env} has {theirs.inputs} numbers to see and {theirs.actions} {_kind(theirs.discrete_actions)}; this policy "
            f"takes {inputs} and {outputs} {_kind(discrete)}"
        )

    def act(observation: Any, generator: np.random.Generator, deterministic: bool) -> Any:
        return policy.act(np.asarray(observation)[None], generator, deterministic)[0]

    return act


def _kind(discrete: bool) -> str:
    return "actions to choose from" if discrete else "numbers of an action"


def _tabular(learner: Learner) -> Act:
    from vpac.oracle.policies import softmax

    def act(observation: Any, generator: np.random.Generator, deterministic: bool) -> Any:
        if deterministic:
            return learner.predict(observation)[0]
        preferences = learner.weights.theta[learner.sight.features(observation)].sum(axis=0)
        chances = softmax(preferences, learner.options.temperature)
        return int(generator.choice(len(chances), p=chances)) + learner.sight.first_action

    return act
