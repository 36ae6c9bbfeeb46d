"""Trains several runs of one algorithm and measures their policies along the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.checks import MOST_EPISODES, whole
from vpac.errors import UserError, one_of
from vpac.risk import BudgetReport, Interval, mean_interval
from vpac.risk.intervals import not_negative
from vpac.tabular import Diverged, Learner, learn_many
from vpac.tabular.curves import Curve, Snapshots

MOST_RUNS = 100_000


def late_returns(learner: Learner) -> tuple[float, float]:
    """Mean and variance of the last tenth of a learner's returns, for policies that cannot be measured."""
    tail = learner.returns[-max(2, learner.episodes // 10) :]
    return float(np.mean(tail)), float(np.var(tail, ddof=1)) if len(tail) > 1 else float("nan")


@dataclass(frozen=True)
class Training:
    """What came of it."""

    learners: Sequence[Learner]
    """The trained learners, one a run."""
    curves: Sequence[Curve] | None
    """Mean and variance of the measured policy along each run; None where policies cannot be measured."""
    policy: str
    """Which policy was measured: greedy or softmax."""
    diverged: Sequence[Diverged] = ()
    """Why runs are missing: they met numbers that are not finite."""
    budgets: Sequence[BudgetReport] = ()
    """What came of the budget, one a run; empty without one."""

    def final(self) -> dict[str, Interval]:
        """Mean and variance of the final policies, over runs; without curves those of the last tenth of the returns."""
        if self.curves:
            means = np.array([curve.mean[-1] for curve in self.curves])
            variances = np.array([curve.variance[-1] for curve in self.curves])
        else:
            means, variances = np.array([late_returns(learner) for learner in self.learners]).T
        return {"mean": mean_interval(means), "variance": not_negative(mean_interval(variances))}


def train(
    kind: type[Learner],
    env: Any,
    episodes: int,
    runs: int,
    seed: int,
    *,
    points: int = 40,
    policy: str = "greedy",
    threads: int | None = None,
    progress: Callable[[Learner], None] = lambda learner: None,
    **settings: Any,
) -> Training:
    """Train `runs` independent runs, whose seeds are spawned from `seed`, and measure `points` policies along each.

    Runs that diverge are left out; if all do, that is an error.
    """
    if runs < 1 or episodes < 1:
        raise UserError(f"expected at least one run of one episode, got {runs} runs of {episodes} episodes")
    whole(episodes, "episodes", 1, MOST_EPISODES)
    whole(runs, "runs", 1, MOST_RUNS)
    one_of(policy, ("greedy", "softmax"), "policy")
    whole(seed, "seed")
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(runs)]
    kept: dict[int, Snapshots] = {s: Snapshots() for s in seeds}

    def look(learner: Learner) -> None:
        kept[learner.seed](learner)
        progress(learner)

    every = max(1, -(-episodes // points))
    diverged: list[Diverged] = []
    learners = learn_many(
        kind, env, seeds, episodes, threads=threads, callback=look, every=every, diverged=diverged, **settings
    )
    if not learners:
        raise diverged[0]
    curves = None
    if learners[0].environment.world is not None:
        curves = [kept[x.seed].curve(x, policy) for x in learners]  # type: ignore[arg-type]
    budgets = [_held(learner, env) for learner in learners if learner.options.budget is not None]
    return Training(learners, curves, policy, diverged, budgets)


def _held(learner: Learner, env: Any) -> BudgetReport:
    from vpac.evaluation.measure import budget_report

    return budget_report(learner, env, seed=int(np.random.SeedSequence([learner.seed, 2]).generate_state(1)[0]))
