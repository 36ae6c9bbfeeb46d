"""Whether a trained policy keeps its budget: its variance, exact where that is possible, measured elsewhere."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from vpac.errors import UserError
from vpac.evaluation.environments import one_environment
from vpac.evaluation.measure import evaluate
from vpac.learners.holding import exact_now, is_exact
from vpac.learners.learner import Learner
from vpac.risk.budget_report import BudgetReport
from vpac.risk.intervals import Interval

__all__ = ["budget_report"]


def budget_report(
    agent: Any, env: Any = None, *, episodes: int = 1000, seed: int = 0, level: float = 0.95
) -> BudgetReport:
    """The variance that an agent trained with a budget achieves, with its interval, and in words what that means.

    It is the policy as it was trained that is measured: it draws its actions. The return has the discount of the
    variance that is limited: with `variance_gamma=1` mean and variance are those of the score.

    Args:
        agent: a learner or an agent of the PPO family with a budget.
        env: where it is measured, as for `vpac.evaluate`; not needed where the process is finite and small, and the numbers
            exact.
        episodes: how many are measured.
        seed: of them.
        level: the confidence of the intervals.
    """
    budget = getattr(getattr(agent, "options", None), "budget", None)
    if budget is None:
        raise UserError(f"{type(agent).__name__} was not trained with a budget: pass budget=… when it is made")
    finite = isinstance(agent, Learner)
    if finite and is_exact(agent):
        mean, variance = (Interval(x, x, x) for x in exact_now(agent))
        count = None
    elif env is None:
        raise UserError("the variance is measured in episodes of the environment: pass it, budget_report(agent, env)")
    else:
        gamma = agent.options.gamma if finite else agent.variance_gamma
        sample = evaluate(agent, _as_long(agent, env), episodes, seed=seed, gamma=gamma)
        mean, variance, count = sample.interval("mean", level), sample.interval("variance", level), len(sample)
    smallest, at, looks = agent.prices.smallest(level)
    if not smallest.estimate < variance.estimate:
        smallest, at, looks = variance, float(agent.episodes if finite else agent.timesteps), 1
    counted = "episodes" if finite else "steps"
    return BudgetReport(budget, mean, variance, agent.psi, smallest, at, counted, count, looks)


def _as_long(agent: Any, env: Any) -> Any:
    """The environment with episodes as long as those that were learned from."""
    limit = agent.options.max_episode_steps if isinstance(agent, Learner) else None
    if limit is None or isinstance(env, VectorEnv):
        return env
    if isinstance(env, gymnasium.Env):
        return TimeLimit(env, limit)
    return lambda: TimeLimit(one_environment(env, True), limit)
