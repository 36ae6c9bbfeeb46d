"""`vpac frontier` and `vpac tune`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vpac import algorithms
from vpac.algorithms import DEFAULT_GAMMA
from vpac.checks import whole
from vpac.cli.arguments import Count, Discount, EnvName, EnvOptions, Execution, Folder, Pairs, Seed, Verb, key_values
from vpac.cli.output import RunProgress, next_step, note, plain_table, show
from vpac.cli.studies import stopping
from vpac.envs.make import spec_of
from vpac.errors import UserError
from vpac.files import hold, jsonable, make_folder

if TYPE_CHECKING:
    from vpac.lab.frontier import FrontierResult, FrontierSpec, PriceChoice

LENGTHS = {"steps": 200_000, "episodes": 5_000}
"""Default length of training, by the unit of the algorithm."""


@dataclass(frozen=True)
class FrontierVerb(Verb):
    """Train at several ψ, and show how much mean a lower risk costs.

    Resumable: finished runs are not repeated.

    Example: vpac frontier CartPole-v1 --points 6 --steps 100000
    """

    env: EnvName
    algorithm: Annotated[str, tyro.conf.arg(metavar="NAME")] = "vpac-ppo"
    """An algorithm with ψ: vpac-ppo, vaac-ppo, mvpi-ppo, vpac, vaac, …; `vpac list algorithms` shows all."""
    penalty: Annotated[str, tyro.conf.arg(metavar="NAME")] = "variance"
    """The penalised measure: one of `vpac list penalties`, e.g. gini or cvar:0.1. For vpac-ppo and vpac."""
    psi: Annotated[str | None, tyro.conf.arg(metavar="PSI,…")] = None
    """Values of ψ, for the variance in units of 1/reward, e.g. 0,0.05,0.2; 0 is always included."""
    points: Count = None
    """Number of values of ψ, placed where the curve bends. Default: 8."""
    risk_aversion: Annotated[str | None, tyro.conf.arg(metavar="R,…")] = None
    """Risk aversion, ψ without a unit: psi = R / standard deviation of the risk-neutral return, which is trained first; for a
    measure in units of the reward, such as gini, psi = R."""
    seeds: int = 3
    """Independent runs for each ψ."""
    steps: Count = None
    """Environment steps of a run of the PPO family. Default: 200000."""
    episodes: Count = None
    """Episodes of a run of the tabular and linear learners. Default: 5000."""
    measure: int = 1000
    """Episodes in which each policy is measured, where it cannot be measured exactly."""
    warm_up: float = 0.0
    """Share of training with psi = 0, after which psi rises over the same time again."""
    mvpi: bool = False
    """Also train MVPI, which penalises the variance of the reward per step, at the same risk aversions."""
    seed: Seed = 0
    gamma: Discount = None
    """Discount factor."""
    option: Pairs = ()
    """Any other setting of the learner, e.g. --option envs=8 learning_rate=0.001."""
    out: Folder = None
    """Folder of figure and table. Default: results/frontier/ALGORITHM-ENV, with the penalty if it is not the variance."""
    environment: EnvOptions = field(default_factory=EnvOptions)
    execution: Execution = field(default_factory=Execution)

    def run(self) -> int:
        """Train, measure, draw, advise."""
        from vpac.lab.frontier import trace_frontier
        from vpac.lab.report.trade_off import TracedFrontier

        asked, question = self._asked(), self._question()
        self.environment.check(self.env)
        folder = self.out or self.usual_folder(question.algorithm, self.env, self.penalty)
        make_folder(folder)
        store, executor = self.execution.open()
        command = self.again("frontier", self.env, leave_out=("env",))
        total = asked.count * self.seeds * (2 if self.mvpi else 1) + question.solvable()
        with stopping(executor, self.execution.store, command), RunProgress(total, self.json) as bar:
            found = trace_frontier(question, asked, store, executor, bar.count, mvpi=self.mvpi, command=command)
        summary = TracedFrontier(found)
        self.present(summary, folder)
        for sentence in [*found.trade_off.advice(), *summary.charts()[0].notes, f"wrote {folder}"]:
            self.say(sentence)
        self._next(found)
        for outcome in found.failed:
            note(f"{outcome.name}: {outcome.last_line}")
        return 1 if found.failed else 0

    def _next(self, found: FrontierResult) -> None:
        """The command that measures the policy of the advice, if there is one."""
        best = next((i for i in (found.trade_off.knee, found.trade_off.best_sharpe) if i is not None), 0)
        runs = found.runs.get(found.trade_off.points[best].psi)
        if runs:
            store = ["--store", self.execution.store] if self.execution.store != "results" else []
            next_step(self.json, "evaluate", runs[0], *store, env=self.env, wrap=self.environment.wrappers)

    def _asked(self) -> PriceChoice:
        from vpac.lab.frontier import PriceChoice

        given = [name for name in ("psi", "points", "risk_aversion") if getattr(self, name) is not None]
        if len(given) > 1:
            words = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UserError(f"{words} say the same thing twice: choose one")
        aversions = _numbers(self.risk_aversion, "--risk-aversion")
        return PriceChoice(_numbers(self.psi, "--psi"), aversions, 8 if self.points is None else self.points)

    def _question(self) -> FrontierSpec:
        from vpac.lab.frontier import FrontierSpec

        settings = ({} if self.gamma is None else {"gamma": self.gamma}) | key_values(self.option)
        if self.penalty != "variance":
            settings = {"penalty": self.penalty} | settings
        if self.mvpi and settings.get("penalty", "variance") != "variance":
            raise UserError(
                "--mvpi is for a frontier of the variance: leave it out; --penalty volatility prices the same"
            )
        unit = algorithms.find(self.algorithm).unit
        for other in LENGTHS:
            if other != unit and getattr(self, other) is not None:
                raise UserError(f"{self.algorithm} counts {unit}: use --{unit}")
        length = getattr(self, unit)
        return FrontierSpec(
            self.env, self.algorithm, jsonable(self.environment.arguments),
            tuple((path, jsonable(given)) for path, given in self.environment.wrappers), jsonable(settings),
            LENGTHS[unit] if length is None else length, self.seeds, self.measure, self.warm_up, self.seed,
        )  # fmt: skip


def _numbers(text: str | None, name: str) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(word) for word in text.replace(" ", "").split(","))
    except ValueError:
        expected = "numbers with commas between them, e.g. 0,0.05,0.2"
        raise UserError(f"cannot read {name} from {text!r}: expected {expected}") from None


@dataclass(frozen=True)
class Tune(Verb):
    """Search settings of the PPO family for the best mean − psi · measure of risk.

    Uses Optuna. The same command continues; a larger --trials adds trials.

    Example: vpac tune CartPole-v1 --trials 30 --risk-aversion 0.3
    """

    env: EnvName
    trials: Annotated[int, tyro.conf.arg(metavar="N")] = 30
    """Number of finished trials of the study."""
    algorithm: Annotated[str, tyro.conf.arg(metavar="NAME")] = "vpac-ppo"
    """An algorithm of the PPO family with ψ."""
    penalty: Annotated[str, tyro.conf.arg(metavar="NAME")] = "variance"
    """The penalised measure: one of `vpac list penalties` but volatility, e.g. gini or cvar:0.1. For vpac-ppo."""
    psi: Annotated[float | None, tyro.conf.arg(metavar="PSI")] = None
    """ψ; for the variance in units of 1/reward."""
    risk_aversion: Annotated[float | None, tyro.conf.arg(metavar="R")] = None
    """ψ without a unit: psi = R / standard deviation of the risk-neutral return, which is trained first."""
    steps: int = 100_000
    """Environment steps of each training."""
    seeds: int = 1
    """Trainings of each trial."""
    measure: int = 500
    """Episodes in which each policy is measured."""
    gamma: float = DEFAULT_GAMMA
    """Discount factor of the measurement, whatever a trial learns with."""
    seed: Seed = 0
    option: Pairs = ()
    """Settings of all trials, e.g. --option envs=8; these are not searched."""
    storage: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Optuna's storage. Default: sqlite, search.db in the folder."""
    out: Folder = None
    """Folder of best.toml and plots.html. Default: results/tune/ALGORITHM-ENV, with the penalty if it is not the variance."""
    environment: EnvOptions = field(default_factory=EnvOptions)

    def run(self) -> int:
        """Search, write, show."""
        from vpac.lab.search import Search, finished, search, write_search

        fixed = dict(jsonable(key_values(self.option)))
        if self.penalty != "variance":
            fixed = {"penalty": self.penalty} | fixed
        place = [self.env, *self.environment.words]
        what = Search(
            shlex.join(place), self.algorithm, self.psi, self.risk_aversion, self.steps, self.seeds, self.measure, self.gamma,
            whole(self.seed, "--seed"), fixed,
        )  # fmt: skip
        what.check()
        whole(self.trials, "--trials", 1)
        self.environment.check(self.env)
        env = spec_of(self.env, self.environment.wrappers, **self.environment.arguments)
        folder = self.out or self.usual_folder(self.algorithm, self.env, self.penalty)
        with hold(folder):
            storage = self.storage or f"sqlite:///{(folder / 'search.db').resolve().as_posix()}"
            study = search(what, env, self.trials, storage, lambda trial: note(_words(trial, self.trials)))
            best = write_search(study, what, folder)
        ranked = sorted((t for t in study.trials if t.value is not None), key=lambda t: t.value or 0.0, reverse=True)
        about = {"best": best, "U": study.best_value, "trials": finished(study), "psi": study.user_attrs["psi"]}
        show(
            {**about, "file": str(folder / "best.toml"), "storage": storage} if self.json else None,
            plain_table(f"best trials on {self.env}, psi = {about['psi']:.4g}", [_row(trial) for trial in ranked[:5]]),
        )
        self.say(f"wrote {folder}")
        next_step(self.json, "train", self.algorithm, *place, "--settings", folder / "best.toml")
        return 0


def _row(trial: Any) -> dict[str, Any]:
    known = {"trial": trial.number, "U": f"{trial.value:.5g}", "mean": f"{trial.user_attrs['mean']:.5g}"}
    what = "measure" if "measure" in trial.user_attrs else "variance"
    known[what] = f"{trial.user_attrs[what]:.4g}"
    return known | {k: f"{v:.3g}" if isinstance(v, float) else str(v) for k, v in trial.params.items()}


def _words(trial: Any, trials: int) -> str:
    """A finished trial, as a line."""
    if trial.value is None:
        return f"trial {trial.number}: given up, its numbers were not finite"
    settings = "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in trial.params.items())
    return f"trial {trial.number} of {trials}: U {trial.value:.5g}  {settings}"
