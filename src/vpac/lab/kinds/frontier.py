"""Points of frontiers: exact ones of a finite process, and what stored policies are worth, exactly where that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac import algorithms
from vpac.envs.finite_mdp import FiniteMDP
from vpac.lab.kinds.task import learner_of, process_of, world_of
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Record, Result
from vpac.oracle import evaluate, frontier, softmax, step_reward
from vpac.risk.frontier import FrontierPoint
from vpac.risk.intervals import Interval, mean_interval, not_negative, variance_interval
from vpac.tabular.options import Options
from vpac.typing import FloatArray


def perform(run: Run, _: Scratch) -> Result:
    """Solve for the exact mean–variance frontier of a finite process."""
    settings = run.task["settings"]
    found = frontier(process_of(run.task), settings["psis"], settings["gamma"], restarts=0)
    metrics = {"psi": found.psis, "mean": found.means, "variance": found.variances}
    return Result(metrics, {"policies": found.policies}, {})


@dataclass(frozen=True)
class Measurement:
    """One policy."""

    mean: float
    """Of the return."""
    std: float
    """Of the return."""
    volatility: float | None
    """Standard deviation of a step's reward."""
    returns: FloatArray | None
    """The sample behind it; None: the numbers are exact."""


def measurement(record: Record) -> Measurement:
    """What a stored run's last policy is worth.

    The reward of a step is that of the normalised discounted occupancy, in which an episode that has ended pays 0 for ever; of
    runs of the PPO family, which weighs all steps alike, that of the steps of its episodes.
    """
    task, arrays = record.run.task, record.policy()
    if algorithms.find(task["algorithm"]).deep:
        return _exact_deep(record) or _of_returns(arrays["returns"], record.final.get("volatility"))
    gamma = float(task["settings"].get("gamma", Options.gamma))
    if "returns" in arrays:
        second = (1.0 - gamma) * float(arrays["squares"].mean())
        mean = (1.0 - gamma) * float(arrays["returns"].mean())
        return _of_returns(arrays["returns"], max(0.0, second - mean**2) ** 0.5 if gamma < 1.0 else None)
    remembers = bool(task.get("wrappers")) or "remember" in task["settings"]
    mdp = (learner_of(task, 0).environment.mdp if remembers else None) or process_of(task)
    mean, variance = float(record.final["mean"] or 0.0), float(record.final["variance"] or 0.0)  # exact: never unknown
    policy = softmax(arrays["theta"], task["settings"].get("temperature", 1.0))
    volatility = float(step_reward(mdp, policy, gamma).variance ** 0.5) if gamma < 1.0 else None
    return Measurement(mean, variance**0.5, volatility, None)


def _of_returns(found: Any, volatility: float | None) -> Measurement:
    returns = np.asarray(found, np.float64)
    return Measurement(float(returns.mean()), float(returns.std(ddof=1)), volatility, returns)


def _exact_deep(record: Record) -> Measurement | None:
    """Of a policy of the PPO family in a finite world, whose table can be written down; None elsewhere."""
    from vpac.deep.options import Options
    from vpac.lab.kinds.agents import stored_policy

    task = record.run.task
    mdp, limit = world_of(task)
    if not isinstance(mdp, FiniteMDP) or task["settings"].get("remember", "nothing") != "nothing":
        return None
    policy = stored_policy(record, mdp.to_gymnasium(), task["env"])
    table = softmax(policy.outputs(policy.view(np.eye(mdp.n_states, dtype=np.float32))).astype(np.float64))
    moments = evaluate(mdp, table, float(task["settings"].get("gamma", Options.gamma)), limit)
    return Measurement(float(moments.mean), float(moments.total_variance) ** 0.5, record.final.get("volatility"), None)


def frontier_point(psi: float, found: Sequence[Measurement]) -> FrontierPoint:
    """A price's point: over several seeds with Student's intervals, which hold the noise of training and of measuring; of a
    single one with the intervals of its episodes, which say nothing about another training."""
    volatilities = [one.volatility for one in found if one.volatility is not None]
    volatility = _over_seeds(volatilities) if volatilities else None
    if len(found) > 1:
        mean, std = _over_seeds([one.mean for one in found]), _over_seeds([one.std for one in found])
        return FrontierPoint(psi, mean, not_negative(std), None if volatility is None else not_negative(volatility))
    (one,) = found
    if one.returns is None:
        return FrontierPoint(psi, _certain(one.mean), _certain(one.std), volatility)
    spread = variance_interval(one.returns)
    low, high = (end**0.5 if np.isfinite(end) else one.std for end in (spread.low, spread.high))
    return FrontierPoint(psi, mean_interval(one.returns), Interval(one.std, low, high), volatility)


def _over_seeds(values: Sequence[float]) -> Interval:
    return mean_interval(values) if len(values) > 1 else _certain(values[0])


def _certain(value: float) -> Interval:
    return Interval(value, value, value)
