"""`vpac frontier`: choose values of ψ, train a learner at each as stored runs, and measure mean and risk."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vpac import algorithms
from vpac.checks import MOST_EPISODES, MOST_TRAINING_STEPS, whole
from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.lab.experiments.spec import Arm, Experiment, Figure
from vpac.lab.kinds.frontier import Measurement, frontier_point, measurement, priced_measure
from vpac.lab.kinds.task import process_of, world_of
from vpac.lab.store.run import canonical
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Executor
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.lab.workers.worker import Outcome
from vpac.risk.frontier import FrontierPoint, TradeOff, aversion_of, first_prices, next_prices, psi_of, rounded
from vpac.risk.measures import Measure

__all__ = ["Exact", "FrontierResult", "FrontierSpec", "PriceChoice", "trace_frontier"]

MOST_POINTS = 1000
MOST_STATES = 300
"""Finite MDPs up to this size are solved exactly."""


@dataclass(frozen=True)
class FrontierSpec:
    """The options of `vpac frontier` that decide a run, except ψ: learner and environment."""

    env: str
    algorithm: str
    env_settings: dict[str, Any]
    wrappers: tuple[tuple[str, dict[str, Any]], ...]
    settings: dict[str, Any]
    """Settings of the learner, except ψ."""
    length: int
    """Episodes of a run; for the PPO family, environment steps."""
    seeds: int
    measure: int
    warm_up: float
    seed: int

    def __post_init__(self) -> None:
        found = algorithms.find(self.algorithm)
        if not found.priced:
            priced = "an algorithm with a price of variance, " + ", ".join(one.name for one in algorithms.PRICED)
            raise UserError(f"{self.algorithm!r} has no frontier: expected {priced}")
        object.__setattr__(self, "algorithm", found.name)
        found.check_settings(self.settings)
        if self.penalty is not None and self.penalty.name == "volatility" and not self.deep and self.gamma == 1.0:
            raise UserError("the volatility of tabular learners is known below gamma = 1 only: choose --gamma 0.99")
        if "psi" in self.settings:
            raise UserError("psi is what a frontier varies: name its values with --psi, or their number with --points")
        if not 0.0 <= self.warm_up <= 0.5:
            raise UserError(f"warm-up must be a share of the training from 0 to 0.5, got {self.warm_up!r}")
        for name in ("length", "seeds", "measure"):
            most = MOST_TRAINING_STEPS if name == "length" and self.deep else MOST_EPISODES
            whole(getattr(self, name), name, 2 if name == "measure" else 1, most)

    @property
    def deep(self) -> bool:
        """Whether it is one of the PPO family."""
        return algorithms.find(self.algorithm).deep

    @property
    def penalty(self) -> Measure | None:
        """The penalised measure; None: the variance."""
        return priced_measure(self.algorithm, self.settings)

    @property
    def axis(self) -> str:
        """The name of the risk axis."""
        if self.penalty is None:
            return "standard deviation"
        given, words = self.settings["penalty"], self.penalty.words
        return f"{words} ({given})" if ":" in given else words

    def scale(self, first: FrontierPoint) -> float:
        """Risk aversion / ψ: the standard deviation at ψ = 0, or 1 if the measure has the unit of the reward."""
        if self.penalty is None:
            return first.std.estimate
        spread = first.volatility if self.penalty.name == "volatility" and first.volatility else first.std
        return float(spread.estimate ** (self.penalty.degree - 1))

    @property
    def of_mvpi(self) -> FrontierSpec:
        """The same for MVPI with the risk-neutral learner of the same family, without settings of the variance."""
        settings = {k: v for k, v in self.settings.items() if k not in ("form", "variance_of", "weighting")}
        return replace(self, algorithm="mvpi-ppo" if self.deep else "mvpi", settings=settings)

    def price(self, psi: float) -> float | str:
        """ψ as an option of the learner."""
        wait = round(self.warm_up * self.length)
        return f"warm-up:{psi:g}:{wait}:{wait}" if wait and psi > 0.0 else psi

    def experiment(self, psis: Sequence[float]) -> Experiment:
        """The study of these ψ; its name does not depend on them."""
        priced = "variance" if self.penalty is None else self.axis
        about = {key: value for key, value in vars(self).items() if key != "seeds"}
        digest = hashlib.sha256(canonical(about).encode()).hexdigest()[:8]
        world = re.sub(r"[^a-z0-9]+", "-", re.split("[/:]", self.env)[-1].casefold()).strip("-")[:32].strip("-")
        given: dict[str, Any] = {"steps": self.length, "episodes": self.measure}
        if not self.deep:
            every = max(1, -(-self.length // 40))
            given = {"episodes": self.length, "every": every, "policy": "softmax", "measure": self.measure}
            given["evaluate"] = "exact" if self._finite() else "episodes"
        return Experiment(
            name=f"frontier/{world or 'env'}-{self.algorithm}-{digest}",
            title=f"{self.env}: mean and spread along the price of {priced}",
            kind="deep" if self.deep else "training", env=self.env, env_settings=self.env_settings, wrappers=self.wrappers,
            algorithm=self.algorithm, settings=self.settings, runs=self.seeds, seed=self.seed, **given,
            arms=tuple(
                Arm(label=f"ψ = {psi:g}", settings={"psi": self.price(psi)}, at={"psi": psi}) for psi in sorted(psis)
            ),
            figures=(Figure(kind="effect", title=f"What a price on {priced} does", x="psi", shows=("mean", "variance")),),
        )  # fmt: skip

    def task(self) -> dict[str, Any]:
        """The entries of its runs' tasks that describe the environment."""
        return {"env": self.env, "env_settings": self.env_settings, "wrappers": [list(w) for w in self.wrappers]}

    def _finite(self) -> bool:
        return isinstance(world_of(self.task())[0], FiniteMDP)

    def solvable(self) -> bool:
        """Whether the exact frontier can be drawn; only for the variance."""
        return self.penalty is None and self._finite() and process_of(self.task()).n_states <= MOST_STATES

    @property
    def gamma(self) -> float:
        """The discount factor."""
        default = algorithms.find(self.algorithm).load_options().gamma
        return float(self.settings.get("gamma", default))


@dataclass(frozen=True)
class PriceChoice:
    """Choice of the ψ to train; one of the three fields."""

    psis: tuple[float, ...] = ()
    aversions: tuple[float, ...] = ()
    """Risk aversions R: ψ = R / standard deviation of the risk-neutral return (`FrontierSpec.scale`)."""
    points: int = 8
    """A number of values, chosen where the curve bends."""

    def __post_init__(self) -> None:
        for name, values in (("psi", self.psis), ("risk aversion", self.aversions)):
            if not all(np.isfinite(value) and value >= 0.0 for value in values):
                listed = ", ".join(map(str, values))
                raise UserError(f"{name} must be finite numbers that are not negative, got {listed}")
        if not 2 <= self.points <= MOST_POINTS:
            raise UserError(f"points must be a whole number from 2 to {MOST_POINTS}, got {self.points!r}")

    @property
    def count(self) -> int:
        """The largest number of points; ψ = 0 is always one of them."""
        given = self.psis or self.aversions
        return len({0.0, *given}) if given else self.points


AT_A_TIME = 2
"""Values of ψ that are chosen at once where the curve bends; independent of the number of workers."""
EXACT_POINTS = 12


@dataclass(frozen=True)
class Exact:
    """The oracle's frontier: ψ, and mean and standard deviation of the best policy at each."""

    psis: list[float]
    means: list[float]
    stds: list[float]


@dataclass
class FrontierResult:
    """The result of `trace_frontier`."""

    question: FrontierSpec
    """The learner and environment."""
    trade_off: TradeOff
    """Its points."""
    runs: dict[float, list[str]]
    """Names of the runs for each ψ."""
    exact: Exact | None = None
    """The exact frontier; None: unknown."""
    mvpi: TradeOff | None = None
    """MVPI's points, if requested."""
    failed: list[Outcome] = field(default_factory=list)
    """Runs that failed or diverged and are left out."""
    notes: list[str] = field(default_factory=list)
    """Notes for readers."""

    @property
    def std(self) -> float:
        """Standard deviation of the risk-neutral return."""
        return self.trade_off.points[0].std.estimate

    @property
    def scale(self) -> float:
        """Risk aversion / ψ."""
        return self.question.scale(self.trade_off.points[0])


class _Tracing:
    """Trains the values of ψ of one spec, round by round."""

    def __init__(
        self, question: FrontierSpec, store: Store, executor: Executor, watch: Callable[[Outcome], None], command: str
    ) -> None:
        self.question, self.store, self.executor, self.watch, self.command = question, store, executor, watch, command
        self.found: dict[float, list[Measurement]] = {}
        self.runs: dict[float, list[str]] = {}
        self.failed: dict[str, Outcome] = {}

    def run(self, psis: Sequence[float]) -> None:
        """Train and measure these values of ψ."""
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
        """The points so far."""
        points = tuple(frontier_point(psi, found) for psi, found in self.found.items() if found)
        return TradeOff(points, self.question.axis)


def trace_frontier(
    question: FrontierSpec, asked: PriceChoice, store: Store, executor: Executor,
    watch: Callable[[Outcome], None] = lambda outcome: None, *, mvpi: bool = False, command: str = "",
) -> FrontierResult:  # fmt: skip
    """Train along ψ and measure; stored runs are not trained again.

    MVPI's frontier, if requested, has the same risk aversions, for the reward per step instead of the return.
    """
    tracing = _Tracing(question, store, executor, watch, command)
    for psis in _rounds(asked, tracing):
        tracing.run(psis)
    found = FrontierResult(question, tracing.trade_off(), tracing.runs)
    found.notes += _remarks(tracing, asked)
    if question.solvable():
        found.exact = _exact(question, list(tracing.found), store, executor, watch)
    if mvpi:
        other = _Tracing(question.of_mvpi, store, executor, watch, command)
        first = found.trade_off.points[0].volatility
        if first is None or not first.estimate > 0.0:
            found.notes.append("MVPI was left out: the risk-neutral policy's rewards do not vary from step to step.")
        else:
            aversions = [aversion_of(psi, found.std) for psi in tracing.found]
            other.run([rounded(psi_of(aversion, first.estimate)) for aversion in aversions])
            found.mvpi = other.trade_off()
        tracing.failed |= other.failed
    found.failed = list(tracing.failed.values())
    return found


def _rounds(asked: PriceChoice, tracing: _Tracing) -> Iterator[list[float]]:
    """The next values of ψ, from the measurements so far."""
    if asked.psis:
        yield sorted({0.0, *asked.psis})
        return
    yield [0.0]
    first = tracing.trade_off().points[0]
    scale = tracing.question.scale(first)
    if asked.aversions:
        yield sorted({0.0, *(rounded(psi_of(aversion, scale)) for aversion in asked.aversions)})
        return
    if not first.std.estimate > 0.0:
        return
    yield first_prices(scale)[: asked.points - 1]
    while (left := asked.points - len(tracing.runs)) > 0:
        so_far = tracing.trade_off()
        psis = [point.psi for point in so_far.points]
        means, spreads = so_far.means.tolist(), so_far.spreads.tolist()
        more = next_prices(psis, means, spreads, list(tracing.runs), min(AT_A_TIME, left), scale)
        if not more:
            return
        yield more


def _remarks(tracing: _Tracing, asked: PriceChoice) -> Iterator[str]:
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
    question: FrontierSpec, psis: Sequence[float], store: Store, executor: Executor, watch: Callable[[Outcome], None]
) -> Exact | None:
    """The oracle's frontier around these ψ, as a stored run; None if there is none."""
    positive = [psi for psi in psis if psi > 0.0] or [1.0]
    grid = [0.0, *(rounded(psi) for psi in np.geomspace(min(positive) / 2.0, max(positive) * 2.0, EXACT_POINTS))]
    experiment = Experiment(
        name=f"{question.experiment([0.0]).name}-exact", title=f"{question.env}: the exact frontier", kind="frontier",
        env=question.env, env_settings=question.env_settings, settings={"psis": grid, "gamma": question.gamma},
        arms=(Arm(label="oracle"),), figures=(Figure(kind="curves", title="Mean and variance along the frontier"),),
    )  # fmt: skip
    made = plan(experiment)
    carry_out_studies([made], store, executor, watch)
    (run,) = made.all()
    if not store.finished(run):
        return None
    rows = store.read(run.name).metrics()
    return Exact(rows["psi"].to_list(), rows["mean"].to_list(), np.sqrt(rows["variance"].to_numpy()).tolist())
