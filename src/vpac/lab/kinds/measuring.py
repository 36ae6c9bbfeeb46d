"""What stored policies are worth: mean and spread of the return, and the spread of a step's reward; exact where that can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac import algorithms
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import make_env
from vpac.lab.kinds.task import learner_of, process_of, task_recipe, world_of
from vpac.lab.store.run import Run
from vpac.lab.store.store import Record
from vpac.risk.frontier import FrontierPoint
from vpac.risk.intervals import Interval, mean_interval, not_negative, variance_interval
from vpac.tabular.agents import Learner
from vpac.typing import FloatArray, IntArray


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


def measure_tabular(learner: Learner, run: Run) -> dict[str, Any]:
    """Discounted returns of so many episodes as the task asks for, and discounted sums of squared rewards of the same ones."""
    from vpac.evaluation.measure import measure
    from vpac.evaluation.play import discounted

    def squared(rewards: FloatArray, steps: IntArray, discount: FloatArray) -> Any:
        return discount * np.array([reward**2 for reward in rewards.tolist()])  # NumPy's may differ in the last digit

    env, arguments = task_recipe(run.task).parts()
    seed = int(np.random.SeedSequence(run.seed, spawn_key=(1000,)).generate_state(1)[0])
    (returns, squares), *_ = measure(
        learner, lambda: make_env(env, **arguments), (discounted, squared), run.task["measure"], seed=seed,
        gamma=learner.options.gamma, deterministic=run.task["policy"] == "greedy",
    )  # fmt: skip
    return {"returns": returns, "squares": squares}


def measurement(record: Record) -> Measurement:
    """What a stored run's last policy is worth.

    The reward of a step is that of the normalised discounted occupancy, in which an episode that has ended pays 0 for ever; of
    runs of the PPO family, which weighs all steps alike, that of the steps of its episodes.
    """
    task, final, arrays = record.run.task, record.final, record.policy()
    if algorithms.find(task["algorithm"]).deep:
        if (exact := _exact_deep(record)) is not None:
            return exact
        returns, volatility = np.asarray(arrays["returns"], np.float64), final.get("volatility")
        return Measurement(float(returns.mean()), float(returns.std(ddof=1)), volatility, returns)
    gamma = _gamma(task)
    if "returns" in arrays:
        returns = np.asarray(arrays["returns"], np.float64)
        second = (1.0 - gamma) * float(arrays["squares"].mean())
        volatility = max(0.0, second - ((1.0 - gamma) * float(returns.mean())) ** 2) ** 0.5 if gamma < 1.0 else None
        return Measurement(float(returns.mean()), float(returns.std(ddof=1)), volatility, returns)
    mean, variance = float(final["mean"] or 0.0), float(final["variance"] or 0.0)  # exact: never unknown
    remembers = bool(task.get("wrappers")) or "remember" in task["settings"]
    mdp = (learner_of(task, 0).environment.mdp if remembers else None) or process_of(task)
    return Measurement(mean, variance**0.5, _exact_volatility(mdp, task, arrays["theta"], gamma), None)


def _exact_deep(record: Record) -> Measurement | None:
    """Of a policy of the PPO family in a finite world, whose table can be written down; None elsewhere."""
    from vpac.deep.options import Options
    from vpac.lab.kinds.agents import stored_policy
    from vpac.oracle import evaluate, softmax

    task = record.run.task
    mdp, limit = world_of(task)
    if not isinstance(mdp, FiniteMDP):
        return None
    policy = stored_policy(record, mdp.to_gymnasium(), task["env"])
    table = softmax(policy.outputs(policy.view(np.eye(mdp.n_states, dtype=np.float32))).astype(np.float64))
    gamma = float(task["settings"].get("gamma", Options.gamma))
    moments = evaluate(mdp, table, gamma, limit)
    return Measurement(float(moments.mean), float(moments.total_variance) ** 0.5, record.final.get("volatility"), None)


def _gamma(task: dict[str, Any]) -> float:
    from vpac.tabular.options import Options

    return float(task["settings"].get("gamma", Options.gamma))


def _exact_volatility(mdp: FiniteMDP, task: dict[str, Any], theta: FloatArray, gamma: float) -> float | None:
    from vpac.oracle import softmax, step_reward

    if gamma == 1.0:
        return None
    return float(step_reward(mdp, softmax(theta, task["settings"].get("temperature", 1.0)), gamma).variance ** 0.5)


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
