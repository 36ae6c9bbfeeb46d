"""A run of a tabular or linear learner: train, and measure its policies during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.checks import MOST_EPISODES, whole
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import make_env
from vpac.envs.worlds import ContinuousPuddleWorld
from vpac.errors import one_of
from vpac.evaluation.play import discounted, held_budget, measure
from vpac.lab.kinds.task import learner_of, task_recipe, training_run
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result
from vpac.oracle.occupancy import visits
from vpac.oracle.policies import greedy
from vpac.risk import BudgetReport, Interval, mean_interval
from vpac.risk.intervals import not_negative
from vpac.tabular import Diverged, Learner, learn_many
from vpac.tabular.curves import Curve, Snapshots, exact_state_moments, paths
from vpac.typing import BoolArray, FloatArray, IntArray

WATCHED_EPISODES = 200
"""Episodes that are played where the share cannot be computed."""


def risky_states(mdp: FiniteMDP) -> BoolArray:
    """The states with a random reward, [S]: the frozen cells of a map."""
    if mdp.layout is not None:
        return np.asarray(mdp.layout.letters[tuple(mdp.layout.position.T)] == "f")
    risky = np.zeros(mdp.n_states, bool)
    risky[np.unique(mdp.row[mdp.noise > 0.0] // mdp.n_actions)] = True
    return risky


def risky_share(learner: Learner, policy: FloatArray | None, kind: str, horizon: int) -> float | None:
    """Share of steps taken from risky positions; None if no position is risky.

    Exact for a finite MDP, whose `policy` table is given; from sampled episodes in the continuous puddle world.
    """
    mdp = learner.environment.mdp
    if mdp is not None and policy is not None:
        risky = risky_states(mdp)
        taken = np.where(mdp.terminal, 0.0, visits(mdp, policy, 1.0, horizon))  # expected steps from each state
        return float(taken[risky].sum() / taken.sum()) if risky.any() else None
    low, high = ContinuousPuddleWorld().puddle
    walks = paths(learner, kind, WATCHED_EPISODES, horizon, np.random.SeedSequence([learner.seed, 2]))
    positions = np.concatenate([walk[:-1] for walk in walks])
    return float(((positions >= low) & (positions <= high)).all(axis=1).mean())


def perform(run: Run, _: Scratch) -> Result:
    """Train a tabular or linear learner and measure its policies during training."""
    kept, learner = Snapshots(), learner_of(run.task, run.seed)
    learner.learn(run.task["episodes"], callback=kept, every=run.task["every"])
    return _measured(run, learner, kept)


def _measured(run: Run, learner: Learner, kept: Snapshots) -> Result:
    """The result of a trained learner; `kept` are its policies during training."""
    task, episodes = run.task, np.array(kept.episodes)
    metrics: dict[str, Any] = {"episode": episodes, "return": _windows(learner.returns, episodes, np.mean)}
    metrics["length"] = _windows(learner.history.lengths, episodes, np.mean)
    samples: dict[str, Any] = {}
    if task["evaluate"] in ("returns", "episodes"):
        metrics |= {"mean": metrics["return"], "variance": _windows(learner.returns, episodes, np.var)}
        tail = learner.returns[-max(2, learner.episodes // 10) :]  # the last tenth, if nothing else is measured
        if task["evaluate"] == "episodes":
            samples = play_episodes(learner, run)
            tail = samples["returns"]
        final = _of_moments(float(np.mean(tail)), float(np.var(tail, ddof=1)) if len(tail) > 1 else float("nan"))
    else:
        horizon = task["horizon"] or learner.environment.limit
        curve = kept.curve(learner, task["policy"], evaluate=task["evaluate"], horizon=horizon)
        metrics |= {"mean": curve.mean, "variance": curve.variance}
        final = _final(learner, task["policy"], horizon, metrics)
    arrays = {name: np.asarray(array) for name, array in learner.weights._asdict().items()}
    return Result(metrics, arrays | samples, final)


def _windows(values: Any, ends: Any, statistic: Callable[[FloatArray], Any]) -> FloatArray:
    """A statistic of the values from one end to the next."""
    return np.array([statistic(part) for part in np.split(np.asarray(values, np.float64), ends)[:-1]])


def _of_moments(mean: float, variance: float) -> dict[str, float | None]:
    """Mean, variance and Sharpe ratio; None if unknown or not finite."""
    if not np.isfinite(variance):
        return {"mean": mean, "variance": None, "sharpe": None}
    return {"mean": mean, "variance": variance, "sharpe": mean / variance**0.5 if variance > 0.0 else None}


def _final(learner: Any, kind: str, horizon: int, metrics: dict[str, Any]) -> dict[str, float | None]:
    """Mean, variance and Sharpe ratio of the final policy, its variance within starts and its share of risky steps."""
    table = None
    if learner.environment.mdp is not None:
        table = greedy(learner.weights.theta) if kind == "greedy" else learner.policy()
    return _of_moments(float(metrics["mean"][-1]), float(metrics["variance"][-1])) | {
        "within": _within(learner, table, horizon), "risky": risky_share(learner, table, kind, horizon),
    }  # fmt: skip


def _within(learner: Any, policy: FloatArray | None, horizon: int) -> float | None:
    """The variance given the start, averaged over starts."""
    if policy is None:
        return None
    mdp = learner.environment.mdp
    value, moment = exact_state_moments(mdp, policy[None], learner.options.gamma, horizon)
    return max(0.0, float((mdp.start * (moment[0] - value[0] ** 2)).sum()))


def play_episodes(learner: Learner, run: Run) -> dict[str, Any]:
    """Discounted returns of the task's number of episodes, and their discounted sums of squared rewards."""

    def squared(rewards: FloatArray, steps: IntArray, discount: FloatArray) -> Any:
        return discount * np.array([reward**2 for reward in rewards.tolist()])  # NumPy's may differ in the last digit

    env, arguments = task_recipe(run.task).parts()
    seed = int(np.random.SeedSequence(run.seed, spawn_key=(1000,)).generate_state(1)[0])
    (returns, squares), *_ = measure(
        learner, lambda: make_env(env, **arguments), (discounted, squared), run.task["measure"], seed=seed,
        gamma=learner.options.gamma, deterministic=run.task["policy"] == "greedy",
    )  # fmt: skip
    return {"returns": returns, "squares": squares}


MOST_TRAINED = 100_000


@dataclass(frozen=True)
class Training:
    """The result of `vpac train`."""

    learners: Sequence[Learner]
    """The trained learners, one per run."""
    results: Sequence[tuple[Run, Result]]
    """Each as a run like those of a study, and its result."""
    policy: str
    """The policy that was measured: greedy or softmax."""
    diverged: Sequence[Diverged] = ()
    """Errors of diverged runs, which are missing."""
    budgets: Sequence[BudgetReport] = ()
    """Budget reports, one per run; empty without a budget."""

    @property
    def curves(self) -> Sequence[Curve] | None:
        """Mean and variance of the measured policy during each run; None if policies cannot be measured."""
        if self.results[0][0].task["evaluate"] == "returns":
            return None
        found = [result.metrics for _, result in self.results]
        return [Curve(columns["episode"], columns["mean"], columns["variance"]) for columns in found]

    def final(self) -> dict[str, Interval]:
        """Mean and variance of the final policies, over runs; without curves those of the last tenth of the returns."""
        mean, variance = (np.array([r.final[k] for _, r in self.results], np.float64) for k in ("mean", "variance"))
        return {"mean": mean_interval(mean), "variance": not_negative(mean_interval(variance))}


def train(
    kind: type[Learner], env: Any, episodes: int, runs: int, seed: int, *, points: int = 40, policy: str = "greedy",
    threads: int | None = None, progress: Callable[[Learner], None] = lambda learner: None, **settings: Any,
) -> Training:  # fmt: skip
    """Train `runs` independent runs, whose seeds are spawned from `seed`, and measure `points` policies of each.

    Runs that diverge are left out; if all do, that is an error.
    """
    whole(episodes, "episodes", 1, MOST_EPISODES)
    whole(runs, "runs", 1, MOST_TRAINED)
    one_of(policy, ("greedy", "softmax"), "policy")
    whole(seed, "seed")
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(runs)]
    kept: dict[int, Snapshots] = {s: Snapshots() for s in seeds}

    def look(learner: Learner) -> None:
        kept[learner.seed](learner)
        progress(learner)

    every = max(1, -(-episodes // points))
    diverged: list[Diverged] = []
    how: dict[str, Any] = {"threads": threads, "callback": look, "every": every, "diverged": diverged}
    learners = learn_many(kind, env, seeds, episodes, **how, **settings)
    if not learners:
        raise diverged[0]
    results = []
    for number, learner in enumerate(learners):
        evaluate = "returns" if learner.environment.world is None else "exact"
        how = {"episodes": episodes, "every": every, "policy": policy, "horizon": None, "evaluate": evaluate}
        run = training_run(learner, learner.environment, number, **how)
        results.append((run, _measured(run, learner, kept[learner.seed])))
    budgets = [held_budget(learner, env) for learner in learners if learner.options.budget is not None]
    return Training(learners, results, policy, diverged, budgets)
