"""`vpac frontier`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vpac import algorithms
from vpac.cli.arguments import Count, Discount, EnvName, EnvOptions, Execution, Folder, Pairs, Verb, again, key_values
from vpac.cli.output import RunProgress, next_step, note
from vpac.cli.studies import stopping
from vpac.errors import UserError

if TYPE_CHECKING:
    from vpac.lab.frontier import Asked, Found, Question

LENGTHS = {"steps": 200_000, "episodes": 5_000}
"""Default length of training, by the unit of the algorithm."""


@dataclass(frozen=True)
class Frontier(Verb):
    """Train along the price ψ of a risk, and show what a dependable return costs.

    Resumable: what is finished is not trained again.

    Example: vpac frontier CartPole-v1 --points 6 --steps 100000
    """

    env: EnvName
    """Gymnasium id, package.module:Name-v0 or package.module:Class."""
    algorithm: Annotated[str, tyro.conf.arg(metavar="NAME")] = "vpac-ppo"
    """One with a price of variance: vpac-ppo, vaac-ppo, mvpi-ppo, vpac, vaac, …; `vpac list algorithms` shows all."""
    penalty: Annotated[str, tyro.conf.arg(metavar="NAME")] = "variance"
    """What has the price: one of `vpac list penalties`, e.g. gini or cvar:0.1. For vpac-ppo and vpac."""
    psi: Annotated[str | None, tyro.conf.arg(metavar="PSI,…")] = None
    """Prices, of variance in units of 1/reward, e.g. 0,0.05,0.2; 0 is always one of them."""
    points: Count = None
    """Number of prices, placed where the curve bends. Default: 8."""
    risk_aversion: Annotated[str | None, tyro.conf.arg(metavar="R,…")] = None
    """Prices without a unit: psi = R / standard deviation of the risk-neutral return, which is trained first; of a measure
    in units of the reward, such as gini, psi = R."""
    seeds: int = 3
    """Independent runs of each price."""
    steps: Count = None
    """Environment steps of a run of the PPO family. Default: 200000."""
    episodes: Count = None
    """Episodes of a run of the tabular and linear learners. Default: 5000."""
    measure: int = 1000
    """Episodes that each policy is measured in, where it cannot be measured exactly."""
    warm_up: float = 0.0
    """Share of training without a price, after which psi rises over the same time again."""
    mvpi: bool = False
    """Also MVPI, which prices the variance of single rewards, at the same risk aversions."""
    seed: int = 0
    """Random seed."""
    gamma: Discount = None
    """Discount factor."""
    option: Pairs = ()
    """Any other setting of the learner, e.g. --option envs=8 learning_rate=0.001."""
    out: Folder = None
    """Where figure and table go. Default: results/frontier/ALGORITHM-ENV, with the penalty if it is no variance."""
    environment: EnvOptions = field(default_factory=EnvOptions)
    execution: Execution = field(default_factory=Execution)

    def run(self) -> int:
        """Train, measure, draw, advise."""
        from vpac.files import make_folder
        from vpac.lab.frontier import trace_frontier
        from vpac.lab.report.trade_off import TracedFrontier

        asked, question = self._asked(), self._question()
        self.environment.check(self.env)
        kind = "" if self.penalty == "variance" else "-" + self.penalty.replace(":", "-")
        usual = f"{question.algorithm}-{re.split('[/:]', self.env)[-1]}{kind}"
        folder = self.out or Path("results") / "frontier" / usual
        make_folder(folder)
        store, executor = self.execution.open()
        command = again(self, "frontier", self.env, leave_out=("env",))
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

    def _next(self, found: Found) -> None:
        """Measuring the policy that the advice is about, if there is one."""
        best = next((i for i in (found.trade_off.knee, found.trade_off.best_sharpe) if i is not None), 0)
        runs = found.runs.get(found.trade_off.points[best].psi)
        if runs:
            store = ["--store", self.execution.store] if self.execution.store != "results" else []
            next_step(self.json, "evaluate", runs[0], *store, env=self.env, wrap=self.environment.wrappers)

    def _asked(self) -> Asked:
        from vpac.lab.frontier import Asked

        given = [name for name in ("psi", "points", "risk_aversion") if getattr(self, name) is not None]
        if len(given) > 1:
            words = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UserError(f"{words} say the same thing twice: choose one")
        aversions = _numbers(self.risk_aversion, "--risk-aversion")
        return Asked(_numbers(self.psi, "--psi"), aversions, 8 if self.points is None else self.points)

    def _question(self) -> Question:
        from vpac.files import jsonable
        from vpac.lab.frontier import Question

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
        return Question(
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
