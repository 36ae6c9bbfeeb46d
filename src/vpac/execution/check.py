"""A look at a study before anything is run: whether its arms can be made at all."""

from __future__ import annotations

import warnings

from vpac.errors import UserError
from vpac.execution.perform import world_of
from vpac.execution.run import runs_of
from vpac.execution.training import algorithm
from vpac.experiments.spec import Experiment
from vpac.learners.options import StepSizeOrder

__all__ = ["check"]


def check(experiment: Experiment) -> None:
    """Raise a `UserError` that names the arm whose algorithm, environment or settings are wrong."""
    if experiment.kind != "training":
        return
    for arm in experiment.arms:
        (run,) = runs_of(experiment, arm, 1)
        try:
            kind = algorithm(run.task["algorithm"])
            env, limit = world_of(run.task)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StepSizeOrder)
                kind(env, **({"max_episode_steps": limit} if limit else {}) | run.task["settings"])
        except UserError as error:
            raise UserError(f"arm {arm.label!r}: {error}") from None
