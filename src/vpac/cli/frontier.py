"""`vpac frontier`."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vpac import algorithms
from vpac.cli.output import next_step, say, show
from vpac.cli.studies import tell_of_deaths
from vpac.errors import UserError, one_of

if TYPE_CHECKING:
    from vpac.lab.frontier import Asked, Found, Question
    from vpac.lab.workers.worker import Outcome

__all__ = ["Frontier"]

COUNT = int | None
TEXT = str | None
EXECUTORS = ("processes", "serial", "ray")
STEPS, EPISODES = 200_000, 5_000
"""Training of a run, if nothing is said."""


@dataclass(frozen=True)
class Frontier:
    """Train along the price of variance ψ, and show what a dependable return costs.

    Resumable: what is finished is not trained again.

    Example: vpac frontier CartPole-v1 --points 6 --steps 100000
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Gymnasium id, package.module:Name-v0 or package.module:Class."""
    algorithm: Annotated[str, tyro.conf.arg(metavar="NAME")] = "vpac-ppo"
    """vpac-ppo or vaac-ppo; vpac, vaac, vaac-td, or one of these with off-policy- before it; mvpi, mvpi-ppo."""
    psi: Annotated[TEXT, tyro.conf.arg(metavar="PSI,…")] = None
    """Prices of variance, in units of 1/reward, e.g. 0,0.05,0.2; 0 is always one of them."""
    points: Annotated[COUNT, tyro.conf.arg(metavar="N")] = None
    """Place so many prices where the curve bends. Default: 8."""
    risk_aversion: Annotated[TEXT, tyro.conf.arg(metavar="R,…")] = None
    """Prices without a unit: psi = R / standard deviation of the risk-neutral return, which is trained first."""
    seeds: int = 3
    """Independent runs of each price."""
    steps: Annotated[COUNT, tyro.conf.arg(metavar="N")] = None
    """Environment steps of a run of the PPO family. Default: 200000."""
    episodes: Annotated[COUNT, tyro.conf.arg(metavar="N")] = None
    """Episodes of a run of the tabular and linear learners. Default: 5000."""
    measure: int = 1000
    """Episodes that each policy is measured in, where it cannot be measured exactly."""
    warm_up: float = 0.0
    """Share of training without a price, after which psi rises over the same time again."""
    mvpi: bool = False
    """Also MVPI, which prices the variance of single rewards, at the same risk aversions."""
    seed: int = 0
    """Of everything random."""
    gamma: Annotated[float | None, tyro.conf.arg(metavar="G")] = None
    """Discount factor."""
    option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Any other setting of the learner, e.g. --option envs=8 learning_rate=0.001."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Arguments of the environment, e.g. --set slip=0.1."""
    wrap: Annotated[tuple[str, ...], tyro.conf.arg(metavar="WRAPPER [KEY=VALUE …]")] = ()
    """Wrappers around it, the innermost first, e.g. --wrap RewardNoise std=2."""
    store: Annotated[str, tyro.conf.arg(metavar="DIR|URL")] = "results"
    """Where the runs are kept: a folder, or s3://BUCKET/PREFIX."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Where figure and table go. Default: results/frontier/ALGORITHM-ENV."""
    executor: Annotated[str, tyro.conf.arg(metavar="processes|serial|ray")] = "processes"
    """Who carries out the runs; the results do not depend on it."""
    address: Annotated[TEXT, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Of a Ray cluster."""
    jobs: Annotated[COUNT, tyro.conf.arg(metavar="N")] = None
    """Runs at a time. Default: one for each core."""
    time_limit: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Stop a run that takes longer, and report it; the others go on."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Train, measure, draw, advise."""
        from vpac.cli.evaluating import as_rich
        from vpac.files import make_folder, write_text
        from vpac.lab.frontier import trace_frontier
        from vpac.lab.report import draw, trade_off
        from vpac.lab.report.trade_off import chart
        from vpac.lab.store.store import Store
        from vpac.lab.workers.pool import make_executor

        asked, question = self._asked(), self._question()
        self._check()
        folder = self.out or Path("results") / "frontier" / f"{question.algorithm}-{re.split('[/:]', self.env)[-1]}"
        make_folder(folder)
        store = Store(self.store)
        hands = make_executor(one_of(self.executor, EXECUTORS, "executor"), self.jobs, self.address, self.time_limit)
        store.place.prepare()
        total = asked.count * self.seeds * (2 if self.mvpi else 1) + question.solvable()
        try:
            with Progress(total, self.json) as bar:
                found = trace_frontier(
                    question, asked, store, hands, bar.tell, mvpi=self.mvpi, command=self._again()
                )  # fmt: skip
        except KeyboardInterrupt:
            say(f"stopped; finished runs are kept in {self.store}. To go on: {self._again()}", quiet=True)
            raise
        finally:
            hands.close()
        tell_of_deaths(hands)
        data, tables = trade_off.as_dict(found), trade_off.tables(found)
        picture = chart(found)
        draw.write(picture, folder)
        write_text(folder / "summary.json", json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        show(data if self.json else None, *map(as_rich, tables))
        for sentence in [*found.trade_off.advice(), *picture.notes]:
            say(sentence, quiet=self.json)
        say(f"wrote {folder}", quiet=self.json)
        self._next(found)
        for outcome in found.failed:
            say(f"{outcome.name}: {outcome.last_line}", quiet=True)
        return 1 if found.failed else 0

    def _next(self, found: Found) -> None:
        """Measuring the policy that the advice is about, if there is one."""
        best = next((i for i in (found.trade_off.knee, found.trade_off.best_sharpe) if i is not None), 0)
        runs = found.runs.get(found.trade_off.points[best].psi)
        if runs:
            store = ["--store", self.store] if str(self.store) != "results" else []
            next_step(self.json, "evaluate", runs[0], *store, env=self.env)

    def _asked(self) -> Asked:
        from vpac.lab.frontier import Asked

        given = [name for name in ("psi", "points", "risk_aversion") if getattr(self, name) is not None]
        if len(given) > 1:
            words = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UserError(f"{words} say the same thing twice: choose one")
        return Asked(
            _numbers(self.psi, "--psi"), _numbers(self.risk_aversion, "--risk-aversion"),
            8 if self.points is None else self.points,
        )  # fmt: skip

    def _question(self) -> Question:
        from vpac.cli.reading import key_values, wrappers
        from vpac.lab.frontier import Question

        settings = ({} if self.gamma is None else {"gamma": self.gamma}) | key_values(self.option)
        deep = algorithms.find(self.algorithm).deep
        wrong, right, usual = ("episodes", "steps", STEPS) if deep else ("steps", "episodes", EPISODES)
        if getattr(self, wrong) is not None:
            raise UserError(f"{self.algorithm} counts {right}: use --{right}")
        length = getattr(self, right)
        return Question(
            self.env, self.algorithm, _plain(key_values(self.set)),
            tuple((path, _plain(given)) for path, given in wrappers(self.wrap)), _plain(settings),
            usual if length is None else length, self.seeds, self.measure, self.warm_up, self.seed,
        )  # fmt: skip

    def _check(self) -> None:
        """Look the environment over before anything is trained."""
        from vpac.cli.reading import key_values, wrappers
        from vpac.envs.check import check_env
        from vpac.envs.make import make_env

        with closing(make_env(self.env, wrappers(self.wrap), **key_values(self.set))) as trial:
            for remark in check_env(trial).remarks:
                say(f"{self.env}: {remark}", quiet=True)

    def _again(self) -> str:
        """What to type to go on."""
        words = ["vpac", "frontier", self.env]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("env", "json") or value == field.default:
                continue
            name = f"--{field.name.replace('_', '-')}"
            words += [name] if value is True else [name, *(value if isinstance(value, tuple) else (str(value),))]
        return shlex.join(words)


def _numbers(text: str | None, name: str) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(word) for word in text.replace(" ", "").split(","))
    except ValueError:
        raise UserError(
            f"cannot read {name} from {text!r}: expected numbers with commas between them, e.g. 0,0.05,0.2"
        ) from None


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as JSON has them."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


class Progress:
    """A bar over the runs of a frontier, with the time that is left."""

    def __init__(self, total: int, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )  # fmt: skip
        self._bar = Bar(*columns, console=Console(stderr=True), disable=quiet, speed_estimate_period=3600.0)
        self._task = self._bar.add_task("training", total=total)
        self._seen: set[str] = set()
        self._failed = 0

    def __enter__(self) -> Progress:
        self._bar.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._bar.__exit__(*reason)

    def tell(self, outcome: Outcome) -> None:
        """A run is through; each counts once, whoever asks for it again."""
        if outcome.name in self._seen:
            return
        self._seen.add(outcome.name)
        self._failed += not outcome.well
        words = f"training, {self._failed} failed" if self._failed else "training"
        self._bar.update(self._task, completed=len(self._seen), description=words)
