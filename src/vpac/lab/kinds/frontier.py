"""Points of frontiers: the exact frontier of a finite MDP, and measurements of stored policies, exact where possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac import algorithms
from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.lab.kinds.task import learner_of, process_of, world_of
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Record, Result
from vpac.oracle import evaluate, frontier, softmax, step_reward
from vpac.risk.frontier import FrontierPoint
from vpac.risk.intervals import Interval, mean_interval, not_negative, variance_interval
from vpac.risk.measures import Measure, measure_of
from vpac.tabular.options import Options
from vpac.typing import FloatArray


def perform(run: Run, _: Scratch) -> Result:
    """Solve for the exact mean–variance frontier of a finite MDP."""
    settings = run.task["settings"]
    found = frontier(process_of(run.task), settings["psis"], settings["gamma"], restarts=0)
    metrics = {"psi": found.psis, "mean": found.means, "variance": found.variances}
    return Result(metrics, {"policies": found.policies}, {})


@dataclass(frozen=True)
class Measurement:
    """The measurement of one policy."""

    mean: float
    """Mean of the return."""
    std: float
    """Standard deviation of the return."""
    volatility: float | None
    """Standard deviation of the reward per step."""
    returns: FloatArray | None
    """The sample of returns; None: the numbers are exact."""
    measure: Interval | None = None
    """The penalised measure; None: the variance."""


def priced_measure(algorithm: str, settings: dict[str, Any]) -> Measure | None:
    """The measure that a learner's settings penalise; None: the variance, or the one of the algorithm."""
    measure = measure_of(settings.get("penalty", "variance"))
    if measure.name == "variance":
        return None
    if not algorithms.ALGORITHMS[algorithm].any_penalty:
        raise UserError(f"{algorithm} has no choice of penalties, got {settings['penalty']!r}: use vpac-ppo or vpac")
    return measure


def measurement(record: Record) -> Measurement:
    """Measure the final policy of a stored run.

    The reward per step is that of the normalised discounted occupancy, in which an episode that has ended pays 0 for ever; for
    the PPO family, which weights all steps equally, that of the steps of its episodes.
    """
    task, arrays = record.run.task, record.policy()
    if algorithms.find(task["algorithm"]).deep:
        return _exact_deep(record) or _of_returns(arrays["returns"], record.final.get("volatility"), task)
    gamma = float(task["settings"].get("gamma", Options.gamma))
    if "returns" in arrays:
        second = (1.0 - gamma) * float(arrays["squares"].mean())
        mean = (1.0 - gamma) * float(arrays["returns"].mean())
        return _of_returns(arrays["returns"], max(0.0, second - mean**2) ** 0.5 if gamma < 1.0 else None, task)
    remembers = bool(task.get("wrappers")) or "remember" in task["settings"]
    mdp = (learner_of(task, 0).environment.mdp if remembers else None) or process_of(task)
    mean, variance = float(record.final["mean"] or 0.0), float(record.final["variance"] or 0.0)  # exact: never unknown
    policy = softmax(arrays["theta"], task["settings"].get("temperature", 1.0))
    volatility = float(step_reward(mdp, policy, gamma).variance ** 0.5) if gamma < 1.0 else None
    measure = _priced(task, volatility, lambda one: _certain(one.exact(mdp, policy, gamma, _horizon(task))))
    return Measurement(mean, variance**0.5, volatility, None, measure)


def _horizon(task: dict[str, Any]) -> int | None:
    """The step limit of a tabular learner's episodes; None: there is none."""
    environment = learner_of(task, 0).environment
    return environment.limit if environment.limited else None


def _of_returns(found: Any, volatility: float | None, task: dict[str, Any]) -> Measurement:
    returns = np.asarray(found, np.float64)
    measure = _priced(task, volatility, lambda one: one.interval(returns))
    return Measurement(float(returns.mean()), float(returns.std(ddof=1)), volatility, returns, measure)


def _priced(task: dict[str, Any], volatility: float | None, of: Callable[[Measure], Interval]) -> Interval | None:
    """The penalised measure of a task, by `of` if it is one of the return."""
    measure = priced_measure(task["algorithm"], task["settings"])
    if measure is None or measure.name != "volatility":
        return None if measure is None else of(measure)
    return None if volatility is None else _certain(volatility**2)


def _exact_deep(record: Record) -> Measurement | None:
    """The table of a policy of the PPO family in a finite MDP; None elsewhere."""
    from vpac.deep.options import PPOOptions
    from vpac.lab.kinds.saved_agents import stored_policy

    task = record.run.task
    mdp, limit = world_of(task)
    if not isinstance(mdp, FiniteMDP) or task["settings"].get("remember", "nothing") != "nothing":
        return None
    policy = stored_policy(record, mdp.to_gymnasium(), task["env"])
    table = softmax(policy.outputs(policy.view(np.eye(mdp.n_states, dtype=np.float32))).astype(np.float64))
    gamma, volatility = float(task["settings"].get("gamma", PPOOptions.gamma)), record.final.get("volatility")
    moments = evaluate(mdp, table, gamma, limit)
    measure = _priced(task, volatility, lambda one: _certain(one.exact(mdp, table, gamma, limit)))
    return Measurement(float(moments.mean), float(moments.total_variance) ** 0.5, volatility, None, measure)


def frontier_point(psi: float, found: Sequence[Measurement]) -> FrontierPoint:
    """The point of a ψ: over several seeds with Student's intervals, which include the noise of training and of measuring; for
    a single seed with the intervals of its episodes, which say nothing about another training."""
    volatilities = [one.volatility for one in found if one.volatility is not None]
    volatility = not_negative(_over_seeds(volatilities)) if volatilities else None
    measures = [one.measure for one in found if one.measure is not None]
    measure = measures[0] if len(measures) == 1 else None
    if len(measures) > 1:
        measure = not_negative(_over_seeds([one.estimate for one in measures]))
    if len(found) > 1:
        mean, std = _over_seeds([one.mean for one in found]), _over_seeds([one.std for one in found])
        return FrontierPoint(psi, mean, not_negative(std), volatility, measure)
    (one,) = found
    if one.returns is None:
        return FrontierPoint(psi, _certain(one.mean), _certain(one.std), volatility, measure)
    spread = variance_interval(one.returns)
    low, high = (end**0.5 if np.isfinite(end) else one.std for end in (spread.low, spread.high))
    return FrontierPoint(psi, mean_interval(one.returns), Interval(one.std, low, high), volatility, measure)


def _over_seeds(values: Sequence[float]) -> Interval:
    return mean_interval(values) if len(values) > 1 else _certain(values[0])


def _certain(value: float) -> Interval:
    return Interval(value, value, value)
