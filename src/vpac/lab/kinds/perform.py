"""What a run does: its task and its seed become numbers. Nothing else goes in, so anybody may run it anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vpac.envs.check import skip_checks
from vpac.envs.continuous_puddle_world import ContinuousPuddleWorld
from vpac.envs.finite_mdp import FiniteMDP
from vpac.lab.kinds.task import learner_of, process_of
from vpac.lab.store.place import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result
from vpac.oracle.occupancy import visits
from vpac.tabular.agents import Learner
from vpac.tabular.loop import paths
from vpac.typing import BoolArray, FloatArray

__all__ = ["perform", "risky_share", "risky_states", "state_visits"]

WATCHED = 200
"""Episodes that are watched where the share cannot be computed."""


def risky_states(mdp: FiniteMDP) -> BoolArray:
    """The states that pay a random reward, [S]: of a world that is drawn, its frozen cells."""
    if mdp.layout is not None:
        return np.asarray(mdp.layout.letters[tuple(mdp.layout.position.T)] == "f")
    risky = np.zeros(mdp.n_states, bool)
    risky[np.unique(mdp.row[mdp.noise > 0.0] // mdp.n_actions)] = True
    return risky


def state_visits(mdp: FiniteMDP, policy: FloatArray, horizon: int) -> FloatArray:
    """Expected number of steps taken from each state in an episode of at most `horizon` steps, [S]."""
    return np.where(mdp.terminal, 0.0, visits(mdp, policy, 1.0, horizon))


def risky_share(learner: Learner, policy: FloatArray | None, kind: str, horizon: int) -> float | None:
    """Steps taken from risky places, as a share of all steps; None where no place is risky.

    Exact for a finite process, whose `policy` table is given; of watched episodes in the continuous puddle world.
    """
    mdp = learner.environment.mdp
    if mdp is not None and policy is not None:
        risky = risky_states(mdp)
        taken = state_visits(mdp, policy, horizon)
        return float(taken[risky].sum() / taken.sum()) if risky.any() else None
    low, high = ContinuousPuddleWorld().puddle
    walks = paths(learner, kind, WATCHED, horizon, np.random.SeedSequence([learner.seed, 2]))
    places = np.concatenate([walk[:-1] for walk in walks])
    return float(((places >= low) & (places <= high)).all(axis=1).mean())


def perform(run: Run, scratch: Scratch) -> Result:
    """Do it; a long run leaves checkpoints in `scratch`, and goes on from those that it finds there."""
    with skip_checks():
        return KINDS[run.task["kind"]](run, scratch)


def train(run: Run, _: Scratch) -> Result:
    """Train a tabular or linear learner and measure its policies along the way."""
    from vpac.lab.kinds.measuring import measure_tabular
    from vpac.lab.kinds.tabular import late_returns
    from vpac.tabular.curves import Snapshots

    task = run.task
    kept, learner = Snapshots(), learner_of(task, run.seed)
    learner.learn(task["episodes"], callback=kept, every=task["every"])
    episodes = np.array(kept.episodes)
    metrics: dict[str, Any] = {"episode": episodes, "return": _windows(learner.returns, episodes, np.mean)}
    metrics["length"] = _windows(learner.history.lengths, episodes, np.mean)
    samples: dict[str, Any] = {}
    if task["evaluate"] in ("returns", "episodes"):
        metrics |= {"mean": metrics["return"], "variance": _windows(learner.returns, episodes, np.var)}
        final = _of_moments(*late_returns(learner))
        if task["evaluate"] == "episodes":
            samples = measure_tabular(learner, run)
            final = _of_moments(float(samples["returns"].mean()), float(np.var(samples["returns"], ddof=1)))
    else:
        horizon = task["horizon"] or learner.environment.limit
        curve = kept.curve(learner, task["policy"], evaluate=task["evaluate"], horizon=horizon)
        metrics |= {"mean": curve.mean, "variance": curve.variance}
        final = _final(learner, task["policy"], horizon, metrics)
    arrays = dict(zip(("theta", "w", "z", "mean"), learner.weights, strict=True))
    return Result(metrics, {name: np.asarray(array) for name, array in arrays.items()} | samples, final)


def _windows(values: Any, ends: Any, statistic: Callable[[FloatArray], Any]) -> FloatArray:
    """A statistic of the values from one end to the next."""
    return np.array([statistic(part) for part in np.split(np.asarray(values, np.float64), ends)[:-1]])


def _of_moments(mean: float, variance: float) -> dict[str, float | None]:
    """Mean, variance and Sharpe ratio; what is not known, or not finite, is None."""
    if not np.isfinite(variance):
        return {"mean": mean, "variance": None, "sharpe": None}
    return {"mean": mean, "variance": variance, "sharpe": mean / variance**0.5 if variance > 0.0 else None}


def _final(learner: Any, kind: str, horizon: int, metrics: dict[str, Any]) -> dict[str, float | None]:
    """Mean, variance and Sharpe ratio of the last policy, its variance within starts and its share of risky steps."""
    from vpac.oracle.policies import greedy

    table = None
    if learner.environment.mdp is not None:
        table = greedy(learner.weights.theta) if kind == "greedy" else learner.policy()
    return _of_moments(float(metrics["mean"][-1]), float(metrics["variance"][-1])) | {
        "within": _within(learner, table, horizon), "risky": risky_share(learner, table, kind, horizon),
    }  # fmt: skip


def _within(learner: Any, policy: FloatArray | None, horizon: int) -> float | None:
    """The variance from a given start, averaged over starts: what is left without the start state's share."""
    from vpac.tabular.exact import exact_state_moments

    if policy is None:
        return None
    mdp = learner.environment.mdp
    value, moment = exact_state_moments(mdp, policy[None], learner.options.gamma, horizon)
    return max(0.0, float((mdp.start * (moment[0] - value[0] ** 2)).sum()))


def predict(run: Run, _: Scratch) -> Result:
    """Evaluate a policy that stays as it is, with the direct and the indirect critic of the variance.

    The target policy is `greed` times the optimal one, the rest uniform; the behaviour policy likewise, with
    `behaviour_greed`, or the target itself. Errors are relative to the root mean square of the exact variance, and the noise
    of the value is in units of the root of the mean variance.
    """
    from vpac.oracle import optimal_policy, uniform
    from vpac.tabular.prediction import Prediction

    settings = dict(run.task["settings"])
    mdp, greed, behaviour_greed = process_of(run.task), settings.pop("greed"), settings.pop("behaviour_greed", None)
    best, even = optimal_policy(mdp, settings["gamma"]), uniform(mdp)
    target = greed * best + (1.0 - greed) * even
    behaviour = None if behaviour_greed is None else behaviour_greed * best + (1.0 - behaviour_greed) * even
    truth = Prediction(**(settings | {"value_noise": None})).truth(mdp, target, behaviour)
    if settings.get("value_noise") is not None:
        settings["value_noise"] *= float(np.sqrt((truth.shares * truth.action_variance).sum()))
    settings["steps"] = max(10, round(settings["steps"] * run.task.get("scale", 1.0)))
    metrics = Prediction(**settings).run(mdp, target, run.seed, behaviour, truth)
    size = truth.rms(truth.action_variance)
    for name in ("direct_error", "indirect_error", "direct_bias", "indirect_bias"):
        metrics[name] = metrics[name] / size
    late = {name: float(np.exp(np.log(metrics[f"{name}_error"][-5:]).mean())) for name in ("direct", "indirect")}
    final = {**late, "ratio": late["direct"] / late["indirect"]}
    return Result(metrics, {}, {name: value if np.isfinite(value) else None for name, value in final.items()})


def converge(run: Run, _: Scratch) -> Result:
    """Learn with the step sizes of the convergence theorem, compared with the oracle on the way."""
    from vpac.lab.kinds.convergence import Convergence

    task = run.task
    metrics = Convergence(algorithm=task["algorithm"], episodes=task["episodes"], **task["settings"]).run(
        process_of(task), run.seed
    )
    final: dict[str, float | None] = {n: float(column[-1]) for n, column in metrics.items() if n != "episodes"}
    return Result(metrics, {}, final)


def solve_frontier(run: Run, _: Scratch) -> Result:
    """The exact mean–variance frontier of a finite process."""
    from vpac.oracle import frontier

    task = run.task
    found = frontier(process_of(task), task["settings"]["psis"], task["settings"]["gamma"], restarts=0)
    metrics = {"psi": found.psis, "mean": found.means, "variance": found.variances}
    return Result(metrics, {"policies": found.policies}, {})


def try_theorems(run: Run, _: Scratch) -> Result:
    """Every formula of the paper against the derivative itself, in one world."""
    from vpac.lab.experiments.theorems import WORLDS
    from vpac.lab.kinds.theorems import seed_of, try_world

    world = next(world for world in WORLDS if world.name == run.task["settings"]["world"])
    rows: dict[str, list[Any]] = {"world": [], "formula": [], "form": [], "policy": [], "error": [], "cosine": []}
    for verdict in try_world(world, seed_of(world)):
        for policy, (error, cosine) in enumerate(zip(verdict.relative_errors, verdict.cosines, strict=True)):
            row = (verdict.world, verdict.formula, verdict.form, policy, error, cosine)
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    return Result(rows, {}, {})


def train_deep(run: Run, scratch: Scratch) -> Result:
    """Train one of the PPO family and measure its last policy."""
    from vpac.lab.kinds.deep import train_deep

    return train_deep(run, scratch)


KINDS: dict[str, Callable[[Run, Scratch], Result]] = {
    "deep": train_deep,
    "training": train, "prediction": predict, "convergence": converge, "frontier": solve_frontier, "theorems": try_theorems,
}  # fmt: skip
