"""A look at a study before anything is run: whether its arms can be made, measured and drawn at all."""

from __future__ import annotations

from contextlib import closing

from vpac.envs.checking import check_env
from vpac.envs.continuous_puddle_world import ContinuousPuddleWorld
from vpac.envs.making import make_env
from vpac.errors import UserError
from vpac.execution.making import learner_of, world_of
from vpac.execution.run import canonical, runs_of
from vpac.experiments.spec import Experiment, Figure
from vpac.learners.learner import Learner

__all__ = ["check"]


def check(experiment: Experiment) -> None:
    """Raise a `UserError` that names the arm or the figure that is wrong."""
    if experiment.kind == "deep":
        _check_deep(experiment)
    if experiment.kind != "training":
        return
    checked = set()
    for arm in experiment.arms:
        (run,) = runs_of(experiment, arm, 1)
        try:
            learner = learner_of(run.task, run.seed)
            world = canonical([run.task["env"], run.task.get("env_settings", {}), run.task.get("wrappers", [])])
            if learner.sight.env is not None and world not in checked:
                check_env(learner.sight.env)
                checked.add(world)
            if learner.sight.world is None and experiment.evaluate not in ("returns", "episodes"):
                raise UserError(
                    f'policies of {learner.sight.name} cannot be measured: write evaluate = "returns", or "episodes"'
                )
        except UserError as error:
            raise UserError(f"arm {arm.label!r}: {error}") from None
        continuous = isinstance(getattr(world_of(run.task)[0], "unwrapped", None), ContinuousPuddleWorld)
        for figure in experiment.figures:
            if not figure.arms or arm.label in figure.arms:
                _check_figure(figure, learner, continuous)


def _check_deep(experiment: Experiment) -> None:
    """The algorithm, the settings and the spaces of each arm."""
    from vpac.deep.options import Options
    from vpac.deep.spaces import Interface
    from vpac.execution.deep import deep_algorithm

    checked = set()
    for arm in experiment.arms:
        (run,) = runs_of(experiment, arm, 1)
        settings = dict(run.task["settings"])
        try:
            deep_algorithm(run.task["algorithm"])
            Options.read(settings, settings.pop("preset", "default"))
            world = canonical([run.task["env"], run.task["env_settings"]])
            if world not in checked:
                with closing(make_env(run.task["env"], **run.task["env_settings"])) as env:
                    check_env(env)
                    Interface.of(env.observation_space, env.action_space, run.task["env"])
                checked.add(world)
        except UserError as error:
            raise UserError(f"arm {arm.label!r}: {error}") from None


def _check_figure(figure: Figure, learner: Learner, continuous: bool) -> None:
    mdp = learner.sight.mdp
    if figure.kind == "maps" and (mdp is None or mdp.layout is None):
        raise UserError(f"figure {figure.title!r}: {learner.sight.name} cannot be drawn as a map")
    if figure.kind == "paths" and not continuous:
        raise UserError(f"figure {figure.title!r}: paths are drawn of the continuous puddle world only")
