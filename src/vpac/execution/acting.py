"""From a stored run to an agent that acts, without JAX and without learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vpac.envs.recipes import Recipe
from vpac.errors import UserError
from vpac.execution.store import Damaged, Record, Store

if TYPE_CHECKING:
    from vpac.deep.policy import NumpyPolicy
    from vpac.learners.learner import Learner

__all__ = ["stored_policy", "stored_record", "stored_with"]

WEIGHTS = ("theta", "w", "z", "mean")


def stored_record(store: Store, name: str) -> Record:
    """A run of the store that left an agent."""
    try:
        record = store.read(name)
    except Damaged as damage:
        raise UserError(f"the run is damaged: {damage}") from None
    kind = record.run.task.get("kind")
    if kind not in ("training", "deep"):
        raise UserError(f"{name} is a run of kind {kind!r}: only training leaves an agent")
    return record


def stored_with(record: Record, made: Any, recipe: Recipe) -> Any:
    """The agent of a run, for an environment made from a recipe; its task says how it was, its file what it learned."""
    try:
        if record.run.task["kind"] == "deep":
            return stored_policy(record, made, recipe.env)
        return _learner(record, recipe)
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{record.run.name} does not hold a learner: {type(error).__name__}: {error!s:.200}") from None


def _learner(record: Record, recipe: Recipe) -> Learner:
    from vpac.execution.making import learner_of

    there = {"env": recipe.env, "env_settings": recipe.arguments, "wrappers": [list(pair) for pair in recipe.wrappers]}
    learner, learned = learner_of({**record.run.task, **there}, record.run.seed), record.policy()
    for name, mine in zip(WEIGHTS, learner.weights, strict=True):
        found = learned.get(name, mine)  # runs that measure only keep what acts
        if found.shape != mine.shape:
            raise UserError(
                f"{recipe.env} needs a policy of shape {list(mine.shape)}, this one has {list(found.shape)} ({name})"
            )
        mine[...] = found
    return learner


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
