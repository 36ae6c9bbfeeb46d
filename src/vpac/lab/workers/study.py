"""A study: execute an experiment's unfinished runs, and note which runs belong to it."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vpac import algorithms
from vpac.envs.check import check_env
from vpac.envs.observations import arranged
from vpac.envs.worlds import ContinuousPuddleWorld
from vpac.errors import UserError
from vpac.files import Unwritable, sealed
from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.experiments.spec import Experiment, Figure
from vpac.lab.store.records import NOTE_FORMAT, Damaged, note_key, read_study
from vpac.lab.store.run import Run, canonical, runs_of
from vpac.lab.store.store import Store

if TYPE_CHECKING:
    from vpac.lab.workers.pool import Executor
    from vpac.lab.workers.worker import Outcome
    from vpac.tabular.agents import Learner

FEWEST_RUNS = 5
"""Fewest runs of an arm of the PPO family under a scale: fewer decide nothing."""
MOST_RUNS = 1_000_000
POLL = 0.2
"""Seconds between two checks of runs that another process executes."""


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment."""

    experiment: Experiment
    runs: dict[str, list[Run]]
    """The runs of each arm, by its label."""
    scale: float
    """Factor of the episodes, or of the steps and runs of the PPO family."""

    def all(self) -> list[Run]:
        """The runs, alternating between the arms, so that all of them progress equally; each once."""
        longest = max(len(runs) for runs in self.runs.values())
        ordered = [runs[i] for i in range(longest) for runs in self.runs.values() if i < len(runs)]
        return list({run.name: run for run in ordered}.values())


def plan(experiment: Experiment, *, full: bool = False, runs: int | None = None, scale: float = 1.0) -> Plan:
    """The runs of an experiment. `full`: at full size, also if the default is smaller; `runs`: this many per arm.

    `scale` multiplies episodes, and for the PPO family steps and runs (at least five); below 1 for a quick look.
    """
    if runs is not None and not 1 <= runs <= MOST_RUNS:
        raise UserError(f"runs must be a whole number from 1 to {MOST_RUNS:,}, got {runs:,}")
    if not 0.0 < scale <= 1.0:
        raise UserError(f"scale must be above 0 and at most 1, got {scale!r}")
    usual = experiment.runs if full or experiment.usual_runs is None else experiment.usual_runs
    if experiment.kind == "deep":
        usual = min(usual, max(FEWEST_RUNS, round(experiment.runs * scale)))
    once = experiment.kind in ("theorems", "frontier")
    count = 1 if once else runs or usual
    return Plan(experiment, {arm.label: list(runs_of(experiment, arm, count, scale)) for arm in experiment.arms}, scale)


@dataclass
class Tally:
    """The outcome of a study."""

    kept: int = 0
    """Runs that were finished before."""
    done: int = 0
    """Runs that were finished now, here."""
    found: int = 0
    """Runs that were finished meanwhile by another process, or by a worker that died before it reported."""
    failed: list[Outcome] = field(default_factory=list)
    """Runs that failed or diverged."""
    damaged: list[str] = field(default_factory=list)
    """Damage that was found in stored runs; they were set aside and repeated."""
    seconds: float = 0.0
    """Wall time from the start of its first run to the end of its last; 0 if there was nothing to do."""
    waiting: set[str] = field(default_factory=set)
    """Names of the unfinished runs."""
    begun: float | None = None
    """Time when its first run started."""

    def count(self, outcome: Outcome) -> None:
        """Add the outcome of one run."""
        now = time.perf_counter()
        self.begun = min(now - outcome.seconds, now if self.begun is None else self.begun)
        self.seconds = now - self.begun
        self.waiting.discard(outcome.name)
        self.damaged += outcome.damaged
        if outcome.status == "finished":
            self.done += 1
        elif outcome.status == "found":
            self.found += 1
        else:
            self.failed.append(outcome)


def carry_out_studies(
    plans: Sequence[Plan], store: Store, executor: Executor, watch: Callable[[Outcome], None] = lambda outcome: None,
    command: str = "",
) -> dict[str, Tally]:  # fmt: skip
    """Execute all unfinished runs, those of all plans from one queue; `watch` is called for every run.

    Plans share runs: one that is part of an earlier plan counts as kept. `command` is noted as the command of experiments that
    are not in the catalogue.
    """
    from vpac.lab.workers.worker import Outcome

    for plan in plans:
        read_study(store, plan.experiment.name)  # raises `Newer` before anything is done
    finished = set(store.names())
    store.prefetch(dict.fromkeys(run.name for plan in plans for run in plan.all() if run.name in finished))
    tallies = {plan.experiment.name: Tally() for plan in plans}
    todo: dict[str, tuple[Run, Plan]] = {}
    damaged: dict[str, str] = {}
    for plan in plans:
        tally = tallies[plan.experiment.name]
        for run in plan.all():
            damage = _damage(store, run) if run.name in finished else ""
            if run.name in todo:
                tally.kept += 1
            elif damage is None:
                tally.kept += 1
                watch(Outcome(run.name, "finished"))
            else:
                if damage:
                    damaged[run.name] = damage
                todo[run.name] = (run, plan)
                tally.waiting.add(run.name)
    store.tidy()
    for name, damage in damaged.items():
        with store.lock(name) as free:  # False if another process holds it
            if free and store.has(name):
                words = f"{damage}; set aside as {store.set_aside(name)}"
                tallies[todo[name][1].experiment.name].damaged.append(words)
    for plan in plans:
        _write_study(plan, store, tallies[plan.experiment.name], command)
    runs = [run for run, _ in todo.values()]
    while runs:
        elsewhere = []
        with closing(executor.run(store, runs)) as outcomes:  # type: ignore[type-var]
            for outcome in outcomes:
                if outcome.status == "unwritable":
                    raise Unwritable(errno.EIO, outcome.error)
                if outcome.status == "refused":
                    raise UserError(outcome.error)
                run, plan = todo[outcome.name]
                if outcome.status == "elsewhere":
                    elsewhere.append(run)
                    continue
                watch(outcome)
                tally = tallies[plan.experiment.name]
                tally.count(outcome)
                if not tally.waiting:
                    _write_study(plan, store, tally, command)
        runs = elsewhere
        if runs:
            time.sleep(POLL)
    return tallies


def _damage(store: Store, run: Run) -> str | None:
    """The damage of a finished run; None if it is intact."""
    try:
        store.read(run.name)
    except Damaged as damage:
        return str(damage)
    return None


def _write_study(plan: Plan, store: Store, tally: Tally, command: str) -> None:
    """Note the study, unless the store has it at a larger size."""
    names = {label: [run.name for run in runs] for label, runs in plan.runs.items()}
    before = read_study(store, plan.experiment.name)
    work = plan.scale * sum(len(runs) for runs in names.values())
    if before and before.experiment == plan.experiment and before.work > work:
        return
    seconds = before.seconds if before and before.runs == names else 0.0
    note = {
        "format": NOTE_FORMAT, "experiment": plan.experiment.model_dump(mode="json"), "runs": names, "scale": plan.scale,
        "command": f"vpac reproduce {plan.experiment.name}" if plan.experiment.name in EXPERIMENTS else command,
        "seconds": seconds + tally.seconds,
        "time": datetime.now(UTC).isoformat(timespec="seconds") if tally.seconds or before is None else before.time,
    }  # fmt: skip
    store.backend.write(note_key(plan.experiment.name), sealed(note, indent=1).encode())


def check(experiment: Experiment) -> None:
    """Raise a `UserError` that names the arm or the figure that is wrong."""
    if experiment.kind not in ("training", "deep"):
        return
    checked: set[str] = set()
    for arm in experiment.arms:
        (run,) = runs_of(experiment, arm, 1)
        world = canonical([run.task["env"], run.task.get("env_settings", {}), run.task.get("wrappers", [])])
        try:
            learner = None if experiment.kind == "deep" else _check_learner(experiment, run, world in checked)
            if learner is None:
                _check_deep(run, world in checked)
        except UserError as error:
            raise UserError(f"arm {arm.label!r}: {error}") from None
        checked.add(world)
        for figure in experiment.figures:
            if learner is not None and (not figure.arms or arm.label in figure.arms):
                _check_figure(figure, learner, run)


def _check_learner(experiment: Experiment, run: Run, known: bool) -> Learner:
    """Check a tabular learner's settings and environment, which may be known already."""
    from vpac.lab.kinds.task import learner_of

    learner = learner_of(run.task, run.seed)
    if learner.environment.env is not None and not known:
        check_env(learner.environment.env)
    if learner.environment.world is None and experiment.evaluate not in ("returns", "episodes"):
        name = learner.environment.name
        raise UserError(f'policies of {name} cannot be measured: write evaluate = "returns", or "episodes"')
    return learner


def _check_deep(run: Run, known: bool) -> None:
    """Check the algorithm, the settings and the spaces of the PPO family."""
    from vpac.deep.options import PPOOptions
    from vpac.deep.spaces import Interface
    from vpac.lab.kinds.task import task_recipe

    settings = dict(run.task["settings"])
    algorithm = algorithms.find(run.task["algorithm"], algorithms.DEEP)
    algorithm.check_settings(settings)
    settings.pop("backend", None)
    PPOOptions.read(settings, settings.pop("preset", "default"))
    if not known:
        with closing(task_recipe(run.task).make()) as env:
            check_env(env)
            seen = arranged(env)
            Interface.of(seen.observation_space, seen.action_space, run.task["env"])


def _check_figure(figure: Figure, learner: Learner, run: Run) -> None:
    from vpac.lab.kinds.task import world_of

    mdp, (world, _) = learner.environment.mdp, world_of(run.task)
    if figure.kind == "maps" and (mdp is None or mdp.layout is None):
        raise UserError(f"figure {figure.title!r}: {learner.environment.name} cannot be drawn as a map")
    if figure.kind == "paths" and not isinstance(getattr(world, "unwrapped", None), ContinuousPuddleWorld):
        raise UserError(f"figure {figure.title!r}: paths are drawn of the continuous puddle world only")
