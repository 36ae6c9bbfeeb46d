"""The mean–variance frontier of a learner: prices of variance are chosen, trained as runs of the store, and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from vpac.errors import UserError
from vpac.execution.executors import Executor
from vpac.execution.measuring import Measurement, frontier_point, measurement
from vpac.execution.questions import Asked, Question
from vpac.execution.store import Store
from vpac.execution.study import Plan, carry_out_studies, plan
from vpac.execution.worker import Outcome
from vpac.experiments.spec import Arm, Experiment, Figure
from vpac.risk.frontier import TradeOff, aversion_of, psi_of
from vpac.risk.search import first_prices, next_prices, rounded

__all__ = ["Exact", "Found", "trace_frontier"]

AT_A_TIME = 2
"""Prices that are chosen at once where the curve bends; not more, however many workers there are."""
EXACT_POINTS = 12


@dataclass(frozen=True)
class Exact:
    """The frontier that the oracle finds."""

    psis: list[float]
    """Prices."""
    means: list[float]
    """Of the best policy at each."""
    stds: list[float]
    """Of the best policy at each."""


@dataclass
class Found:
    """A frontier."""

    question: Question
    """Whose it is."""
    trade_off: TradeOff
    """Its points."""
    runs: dict[float, list[str]]
    """Names of the runs of each price."""
    exact: Exact | None = None
    """The best there is; None: nobody knows."""
    outsider: TradeOff | None = None
    """MVPI's points, if they were asked for."""
    failed: list[Outcome] = field(default_factory=list)
    """Runs that failed or diverged; what is said rests on the others."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know."""

    @property
    def std(self) -> float:
        """Of the risk-neutral return: what turns ψ into risk aversion."""
        return self.trade_off.points[0].std.estimate


class _Tracing:
    """Carries out prices of one question, round by round."""

    def __init__(
        self, question: Question, store: Store, executor: Executor, watch: Callable[[Outcome], None], command: str
    ) -> None:
        self.question, self.store, self.executor, self.watch, self.command = question, store, executor, watch, command
        self.found: dict[float, list[Measurement]] = {}
        self.runs: dict[float, list[str]] = {}
        self.failed: dict[str, Outcome] = {}

    def run(self, psis: Sequence[float]) -> None:
        """Train and measure these, too."""
        every = sorted({*self.runs, *psis})
        made = plan(self.question.experiment(every), full=True)
        (tally,) = carry_out_studies([made], self.store, self.executor, self.watch, self.command).values()
        self.failed |= {outcome.name: outcome for outcome in tally.failed}
        for psi, runs in zip(every, made.runs.values(), strict=True):
            self.runs[psi] = [run.name for run in runs]
            self.found[psi] = [measurement(self.store.read(run.name)) for run in runs if self.store.finished(run)]
        if not self.found[every[0]]:
            why = self.failed[self.runs[every[0]][0]].last_line
            raise UserError(f"no run at ψ = {every[0]:g} came to its end: {why}")

    def trade_off(self) -> TradeOff:
        """What there is so far."""
        return TradeOff(tuple(frontier_point(psi, found) for psi, found in self.found.items() if found))


def trace_frontier(
    question: Question,
    asked: Asked,
    store: Store,
    executor: Executor,
    watch: Callable[[Outcome], None] = lambda outcome: None,
    *,
    mvpi: bool = False,
    command: str = "",
) -> Found:
    """Train along ψ and measure; what the store has is not trained again.

    Args:
        question: whose frontier.
        asked: which prices.
        store: where the runs are kept.
        executor: who carries them out; the result does not depend on it.
        watch: hears of every run.
        mvpi: MVPI's frontier, too, at the same risk aversions, of a step's reward instead of the return.
        command: what to type to go on.
    """
    tracing = _Tracing(question, store, executor, watch, command)
    for psis in _rounds(asked, tracing):
        tracing.run(psis)
    found = Found(question, tracing.trade_off(), tracing.runs)
    found.notes += _remarks(tracing, asked)
    if question.solvable():
        found.exact = _exact(question, list(tracing.found), store, executor, watch)
    if mvpi:
        other = _Tracing(question.outsider, store, executor, watch, command)
        first = found.trade_off.points[0].volatility
        if first is None or not first.estimate > 0.0:
            found.notes.append(
                "MVPI was left out: the rewards of the risk-neutral policy do not vary from step to step."
            )
        else:
            aversions = [aversion_of(psi, found.std) for psi in tracing.found]
            other.run([rounded(psi_of(aversion, first.estimate)) for aversion in aversions])
            found.outsider = other.trade_off()
        tracing.failed |= other.failed
    found.failed = list(tracing.failed.values())
    return found


def _rounds(asked: Asked, tracing: _Tracing) -> Iterator[list[float]]:
    """Prices to be trained next; what has been measured decides."""
    if asked.psis:
        yield sorted({0.0, *asked.psis})
        return
    yield [0.0]
    std = tracing.trade_off().points[0].std.estimate
    if asked.aversions:
        yield sorted({0.0, *(rounded(psi_of(aversion, std)) for aversion in asked.aversions)})
        return
    if not std > 0.0:
        return
    yield first_prices(std)[: asked.points - 1]
    while (left := asked.points - len(tracing.runs)) > 0:
        so_far = tracing.trade_off()
        psis = [point.psi for point in so_far.points]
        more = next_prices(psis, so_far.means.tolist(), so_far.stds.tolist(), list(tracing.runs), min(AT_A_TIME, left))
        if not more:
            return
        yield more


def _remarks(tracing: _Tracing, asked: Asked) -> Iterator[str]:
    if not tracing.trade_off().points[0].std.estimate > 0.0:
        yield "The risk-neutral policy's return does not vary: there is no risk to trade."
    elif len(tracing.runs) < asked.count:
        yield f"{len(tracing.runs)} of {asked.count} points were placed: more would be too close to tell apart."
    missing = [psi for psi, found in tracing.found.items() if len(found) < len(tracing.runs[psi])]
    if missing:
        yield f"Runs are missing at ψ = {', '.join(f'{psi:g}' for psi in missing)}: they failed or diverged."
    if tracing.question.seeds == 1:
        yield "One seed: the intervals say nothing about what another training would bring."


def _exact(
    question: Question, psis: Sequence[float], store: Store, executor: Executor, watch: Callable[[Outcome], None]
) -> Exact | None:
    """The oracle's frontier around these prices, as a run of the store; None if there is none."""
    positive = [psi for psi in psis if psi > 0.0] or [1.0]
    grid = [0.0, *(rounded(psi) for psi in np.geomspace(min(positive) / 2.0, max(positive) * 2.0, EXACT_POINTS))]
    experiment = Experiment(
        name=f"{question.experiment([0.0]).name}-exact", title=f"{question.env}: the exact frontier", kind="frontier",
        env=question.env, env_settings=question.env_settings, settings={"psis": grid, "gamma": question.gamma},
        arms=(Arm(label="oracle"),), figures=(Figure(kind="curves", title="Mean and variance along the frontier"),),
    )  # fmt: skip
    made: Plan = plan(experiment)
    carry_out_studies([made], store, executor, watch)
    (run,) = made.all()
    if not store.finished(run):
        return None
    rows = store.read(run.name).metrics()
    return Exact(rows["psi"].to_list(), rows["mean"].to_list(), np.sqrt(rows["variance"].to_numpy()).tolist())
