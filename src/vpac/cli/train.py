"""`vpac train`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import Field, dataclass, field, fields, make_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vpac import algorithms
from vpac.algorithms import ALGORITHMS, Algorithm
from vpac.checks import whole
from vpac.cli.arguments import Count, EnvName, EnvOptions, Folder, Jobs, Pairs, Seed, Verb, flat, key_values, read_value
from vpac.cli.output import next_step, note, print_error, show_summary
from vpac.envs.make import spec_of
from vpac.errors import UserError, suggestion
from vpac.files import hold
from vpac.progress import Bar
from vpac.risk.budget import Budget, BudgetReport

if TYPE_CHECKING:
    from vpac.lab.report.chart import Summary

DEFAULT_STEPS, DEFAULT_EPISODES = 1_000_000, 1000
"""Default length of training."""
SCHEDULES = ("psi", "alpha_theta", "alpha_w", "alpha_z")
"""Options that stay text, also in agent.json: a number or a schedule."""
INSTEAD = {
    "steps": "use --episodes N", "episodes": "use --steps N", "max_episode_steps": "use --set max_episode_steps=N",
    "runs": "train again with another --seed and --out, or use vpac frontier or vpac sweep",
}  # fmt: skip


@dataclass(frozen=True)
class TabularTraining:
    """Options of the tabular and linear learners only."""

    episodes: Count = None
    """Episodes of each run. Default: 1000."""
    runs: Count = None
    """Independent runs. Default: 1."""
    policy: Annotated[str | None, tyro.conf.arg(metavar="greedy|softmax")] = None
    """The policy that is measured during training. Default: greedy; with a budget softmax."""
    threads: Jobs = None


@dataclass(frozen=True)
class PPOTraining:
    """Options of the PPO family only."""

    steps: Count = None
    """Environment steps. Default: a million; with --resume: as in the first command."""
    preset: Annotated[str | None, tyro.conf.arg(metavar="default|paper")] = None
    """Settings: current practice, or the paper's."""
    track: Annotated[str | None, tyro.conf.arg(metavar="wandb|mlflow|trackio")] = None
    """Experiment trackers besides TensorBoard, separated by commas; each needs the extra of its name."""
    resume: Folder = None
    """Continue a run from its last checkpoint in this folder."""


_BUDGET_FIELDS: Any = [
    (name, Annotated[kind | None, tyro.conf.arg(metavar=metavar, help=algorithms.option_docs(Budget)[name])], None)
    for name, kind, metavar in (
        ("max_std", float, "S"), ("max_variance", float, "V"), ("keep_mean", float, "SHARE"), ("min_cvar", str, "A:C"),
        ("max_ruin", str, "P:C"), ("wait", float, "N"),
    )
]  # fmt: skip


@dataclass(frozen=True)
class VarianceBudget(make_dataclass("BudgetOptions", _BUDGET_FIELDS, frozen=True)):  # type: ignore[misc]
    """Limits of the return, one or more: ψ is then found automatically, and the limits are checked at the end.

    Examples: --keep-mean 0.95 · --max-ruin 0.05:0 · --min-cvar 0.1:100 --max-std 50
    """

    def setting(self) -> dict[str, Any]:
        """The learner's option `budget`; empty without one."""
        given = {name: value for name, value, _ in flat(self) if value is not None}
        if set(given) == {"wait"}:
            raise UserError("--wait belongs to a budget: add --max-std, --max-variance or another limit")
        return {"budget": given} if given else {}


@dataclass(frozen=True)
class Train(Verb):
    """Train an algorithm on an environment; writes policies, curves and a figure.

    `vpac train ALGORITHM --help` also shows the options of its learner.

    Example: vpac train vpac vpac/FourRooms-v0 --psi 0.015 --runs 10
    """

    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")]
    """`vpac list algorithms` shows all: vpac-ppo and its family for any environment, vpac and others for small ones."""
    env: EnvName
    seed: Seed = 0
    out: Folder = None
    """Output folder. Default: results/train/ALGORITHM-ENV."""
    overwrite: bool = False
    """Replace an existing training in the folder; without this it is an error."""
    option: Pairs = ()
    """Options of the learner by name, e.g. --option baseline=false temperature=2."""
    settings: Annotated[Path | None, tyro.conf.arg(metavar="FILE.toml")] = None
    """Options of the learner in a file, such as the best.toml of `vpac tune`; the command line overrides it."""
    tabular: TabularTraining = field(default_factory=TabularTraining)
    ppo: PPOTraining = field(default_factory=PPOTraining)
    budget: VarianceBudget = field(default_factory=VarianceBudget)
    environment: EnvOptions = field(default_factory=EnvOptions)

    def run(self) -> int:
        """Train, measure, write, show."""
        if self.algorithm not in ALGORITHMS and self.env in ALGORITHMS:
            raise UserError(f"the algorithm comes first: vpac train {self.env} {self.algorithm}")
        algorithm = algorithms.find(self.algorithm)
        settings = self._settings(algorithm)
        given = {name: value for name, value in settings.items() if name != "preset"}
        preset = [settings["preset"]] if "preset" in settings else []
        algorithm.load_options().read(given, *preset)  # a bad option is an error before the environment is tried
        env = self._check_env(algorithm, settings)
        folder = self.ppo.resume or self.out or self.usual_folder(self.algorithm, self.env)
        train = _train_deep if algorithm.deep else _train_tabular
        summary, budgets, diverged = train(self, algorithm.load(), env, folder, settings)
        show_summary(summary, self.json)
        for budget in budgets:
            self.say(budget.words)
        self.say(f"wrote {folder}")
        prices = ("--psi", *map(str, settings["psi_range"])) if settings.get("psi_range") else ()
        next_step(self.json, "evaluate", folder, *prices, env=self.env, wrap=self.environment.wrappers)
        for error in diverged:
            print_error(f"a run is missing: {error}")
        return 2 if diverged else 0

    def _settings(self, algorithm: Algorithm) -> dict[str, Any]:
        """The options of the learner; options that the algorithm does not have are errors."""
        group = getattr(self, "learner", None)
        given = {name: text for name, text, _ in flat(group) if text is not None} if group else {}
        learner = {name: text if name in SCHEDULES else read_value(text) for name, text in given.items()}
        others = [name for name, value, _ in flat(self.tabular if algorithm.deep else self.ppo) if value is not None]
        for name in [*others, *(name for name in learner if name not in algorithm.options)]:
            owners = [one for one in ALGORITHMS.values() if name in one.options]
            owner = "the tabular and linear learners" if algorithm.deep else "the PPO family"
            owner = "the off-policy learners" if owners and all(one.off_policy for one in owners) else owner
            instead = f": {INSTEAD[name]}" if name in INSTEAD else ""
            raise UserError(f"--{name.replace('_', '-')} is an option of {owner}, not of {self.algorithm}{instead}")
        options = key_values(self.option)
        algorithm.check_settings(options)
        settings = self._file(algorithm) | learner | self.budget.setting() | options
        psi = settings.get("psi")
        if algorithm.deep and not algorithm.priced and psi is not None:
            raise UserError(f"{algorithm.name} has no price of variance: vpac train vpac-ppo {self.env} --psi {psi}")
        if not algorithm.deep and psi == "conditioned":
            raise UserError(
                f"--psi conditioned, one policy for many prices, is for the PPO family: vpac train vpac-ppo {self.env} "
                "--psi conditioned --option psi_range=[0,0.1]"
            )
        if algorithm.deep and algorithm.priced and not (self.ppo.resume or {"psi", "budget"} & settings.keys()):
            raise UserError(
                f"{self.algorithm} needs a price of variance, --psi PSI, in units of 1/reward, or a budget, --max-std S. "
                f"Without units: vpac frontier {self.env} --risk-aversion 0.1,0.3,1 trains the risk-neutral policy first and "
                f"says which PSI that is. Risk-neutral: vpac train ppo {self.env}"
            )
        return settings if self.ppo.preset is None else settings | {"preset": self.ppo.preset}

    def _file(self, algorithm: Algorithm) -> dict[str, Any]:
        """Options of the learner in the file of --settings."""
        if self.settings is None:
            return {}
        from vpac.lab.experiments.catalogue import read_toml

        given = read_toml(self.settings)
        found = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        for name in found:
            if name not in (known := algorithm.options):
                raise UserError(f"{self.settings}: {self.algorithm} has no option {name!r}{suggestion(name, known)}")
        return found

    def _check_env(self, algorithm: Algorithm, settings: dict[str, Any]) -> Any:
        """The specification of the environment, after one was made and checked."""
        limit = {name: settings[name] for name in ("max_episode_steps",) if name in settings}
        kind = type(self.environment.check(self.env, **limit)).__name__
        if "Box" not in algorithm.actions and kind != "Discrete":
            env, name = self.env, self.algorithm
            raise UserError(f"{env} has {kind} actions and {name} needs Discrete ones: vpac train vpac-ppo {env}")
        return spec_of(self.env, self.environment.wrappers, **self.environment.arguments)


def with_learner_options(words: Sequence[str]) -> type[Train]:
    """`Train` with the options of the learner that the words name.

    Help shows only those of the algorithm. Else those of all are read, so that a mistake can be named.
    """
    folded = (word.casefold().replace("_", "-") for word in words)
    named = tuple(ALGORITHMS[word] for word in folded if word in ALGORITHMS)[:1]
    return _with_options_of(named, True) if {"-h", "--help"} & set(words) else _with_options_of((*ALGORITHMS.values(),))


@cache
def _with_options_of(chosen: tuple[Algorithm, ...], show_defaults: bool = False) -> type[Train]:
    """`Train` with a text option for each field of the options of these algorithms; the learner reads the value."""
    options: dict[str, tuple[str, Any, None]] = {}
    for algorithm in chosen:
        kind = algorithm.load_options()
        docs, defaults = algorithms.option_docs(kind), _defaults(algorithm) if show_defaults else {}
        for one in fields(kind):
            default = defaults.get(one.name)
            text = default if isinstance(default, str) else json.dumps(default)
            hint = "" if default is None else f"(default: {text})"
            shown: Any = tyro.conf.arg(metavar=_metavar(one), help=docs.get(one.name, ""), help_behavior_hint=hint)
            options.setdefault(one.name, (one.name, Annotated[str | None, shown], None))
    options.pop("steps", None)  # --steps is the length of training; that of an iteration is --option steps=N
    if not options:
        return Train
    learner = make_dataclass("Learner", options.values(), frozen=True)
    learner.__doc__ = f"Options of {chosen[0].class_name}; values are JSON or text."
    made = make_dataclass("Train", [("learner", learner, field(default_factory=learner))], bases=(Train,), frozen=True)
    made.__doc__ = Train.__doc__
    return made


def _defaults(algorithm: Algorithm) -> dict[str, Any]:
    """Defaults of the options; a tabular class may have its own, and the PPO family has no default price."""
    found = {one.name: one.default for one in fields(algorithm.load_options())}
    return found | ({"psi": None} if algorithm.deep else algorithm.load().defaults)


def _metavar(option: Field[Any]) -> str:
    """The words that a value can be, else VALUE."""
    kind = str(option.type)
    if kind.startswith("Literal"):
        return "|".join(re.findall(r"[\w-]+", kind)[1:])
    return "true|false" if kind == "bool" else "VALUE"


TrainingResult = tuple["Summary", Sequence[BudgetReport], Sequence[UserError]]
"""The summary, the reports of budgets, and why runs are missing."""


def _train_tabular(verb: Train, kind: Any, env: Any, folder: Path, settings: dict[str, Any]) -> TrainingResult:
    """Train all runs and write them."""
    from vpac.lab.kinds.saved_agents import check_unused, record_training, remove_training
    from vpac.lab.kinds.tabular import train
    from vpac.lab.report.training import TrainingSummary
    from vpac.lab.workers.worker import about

    policy = verb.tabular.policy or ("greedy" if settings.get("budget") is None else "softmax")
    episodes = DEFAULT_EPISODES if verb.tabular.episodes is None else verb.tabular.episodes
    runs = 1 if verb.tabular.runs is None else verb.tabular.runs
    begun = time.monotonic()
    with hold(folder), Bar(episodes * runs, quiet=verb.json) as bar:
        check_unused(folder, verb.overwrite)
        result = train(
            kind, env, episodes, runs, verb.seed, policy=policy, threads=verb.tabular.threads, progress=bar.update, **settings
        )  # fmt: skip
        summary = TrainingSummary(result)
        summary.write(folder)
        if verb.overwrite:
            remove_training(folder, keep=len(result.learners))
        for run, outcome in result.results:
            record_training(folder / f"run-{run.number}", run, outcome, about(run, time.monotonic() - begun))
    return summary, result.budgets, result.diverged


def _train_deep(verb: Train, kind: Any, env: Any, folder: Path, settings: dict[str, Any]) -> TrainingResult:
    """Train from the beginning, or continue from the last checkpoint; then save and draw."""
    from vpac.evaluation.play import held_budget
    from vpac.lab.kinds.deep import learn, resumed, trained
    from vpac.lab.kinds.saved_agents import check_unused, record_training
    from vpac.lab.report.draw import write
    from vpac.lab.report.training import DeepTrainingSummary
    from vpac.lab.workers.worker import about

    begun, steps = time.monotonic(), verb.ppo.steps
    if verb.ppo.resume is None:
        check_unused(folder, verb.overwrite)
        agent, usual = kind(env, seed=verb.seed, **settings), DEFAULT_STEPS
    else:
        agent = resumed(kind, env, folder, settings, note)
        if verb.out is not None and verb.out != folder:
            raise UserError(f"--resume {folder} continues in that folder: leave out --out {verb.out}")
        usual = agent.span[1] - agent.span[0]
    trackers = verb.ppo.track.split(",") if verb.ppo.track else []
    length = usual if steps is None else whole(steps, "--steps", 1)
    learn(agent, length, folder, note, quiet=verb.json, overwrite=verb.overwrite, trackers=trackers)
    agent.save(folder)
    run, outcome = trained(agent)
    record_training(folder, run, outcome, about(run, time.monotonic() - begun))
    write(DeepTrainingSummary(agent).charts()[0], folder, ("png",))
    held = None if agent.controller is None else held_budget(agent, env)
    return DeepTrainingSummary(agent, held), [held] if held else [], []
