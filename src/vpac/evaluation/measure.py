"""`vpac.evaluate`: episodes of an agent in an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from vpac.checks import MOST_EPISODES, whole
from vpac.envs.check import restore_global_rng
from vpac.envs.make import name_of
from vpac.errors import UserError
from vpac.evaluation.actors import Actor, gamma_of, takes_vectors
from vpac.evaluation.play import (
    Term,
    as_remembered,
    check_first,
    discounted,
    is_users,
    one_environment,
    plain,
    play,
    vectorised,
)
from vpac.oracle.moments import check_gamma
from vpac.progress import shown
from vpac.risk.budget import BudgetReport
from vpac.risk.intervals import Interval
from vpac.risk.sample import ReturnSample
from vpac.typing import BoolArray, FloatArray, IntArray


def evaluate(
    agent: Any,
    env: Any,
    episodes: int = 1000,
    *,
    seed: int = 0,
    gamma: float | None = None,
    deterministic: bool = False,
    envs: int = 8,
    progress: bool | Callable[[int, int], object] = False,
) -> ReturnSample:
    """Returns of so many episodes. The same arguments give the same sample.

    Every sub-environment plays a number of episodes that is fixed beforehand, so that short episodes do not get in more
    often than long ones.

    Args:
        agent: one of ours, a model with `predict(observation, deterministic=…)` as those of Stable-Baselines3 have, or a
            function from an observation to an action. Box actions are clipped to their space.
        env: a Gymnasium id, a function that makes an environment, an environment, a `FiniteMDP`, or a
            `gymnasium.vector.VectorEnv` in any autoreset mode.
        episodes: how many.
        seed: of the environments and of the policy.
        gamma: discount factor; default: the agent's own, or 0.99.
        deterministic: measure the policy's most preferred actions instead of drawn ones.
        envs: sub-environments that are stepped together; a vector environment has its own number. It changes which
            random numbers go where, so it belongs to what decides the sample.
        progress: show a bar if it takes more than two seconds, or call this with episodes done and episodes in all.
    """
    gamma = gamma_of(agent) if gamma is None else check_gamma(gamma)
    (returns, scores), lengths, terminated, about = measure(
        agent, env, (discounted, plain), episodes, seed=seed, gamma=gamma, deterministic=deterministic, envs=envs,
        progress=progress,
    )  # fmt: skip
    return ReturnSample(returns, scores, lengths, terminated, gamma=gamma, about=about)


def measure(
    agent: Any,
    env: Any,
    terms: Sequence[Term],
    episodes: int,
    *,
    seed: int,
    gamma: float,
    deterministic: bool,
    envs: int = 8,
    progress: bool | Callable[[int, int], object] = False,
) -> tuple[FloatArray, IntArray, BoolArray, dict[str, Any]]:
    """Play the episodes of `evaluate` and sum the `terms` over each; returns what `play` does, and what was done in words."""
    episodes, envs, seed = whole(episodes, "episodes", 1, MOST_EPISODES), whole(envs, "envs", 1), whole(seed, "seed")
    check_first(env, callable(getattr(agent, "act", None)))
    made = vectorised(as_remembered(env, agent), min(envs, episodes), takes_vectors(agent))
    about = {
        "agent": _name(agent), "env": name_of(env), "episodes": episodes, "seed": seed, "envs": made.n,
        "deterministic": bool(deterministic),
    }  # fmt: skip
    noise, world = np.random.SeedSequence(seed).spawn(2)
    made.seed(world, episodes)
    try:
        actor = Actor(agent, made.env.single_observation_space, made.env.single_action_space, made.n, deterministic)
        with restore_global_rng(), shown(progress, episodes, name_of(env)) as tell:
            actor.begin(noise)
            return *play(made, actor.actions, episodes, gamma, terms, tell), about
    finally:
        if made.ours and not is_users(made.first, env):
            made.env.close()


def _name(agent: Any) -> str:
    plain = getattr(agent, "__name__", None)
    return str(plain) if isinstance(plain, str) else type(agent).__name__


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
    deep = hasattr(agent, "variance_gamma")
    if not deep and (exact := _exact(agent)) is not None:
        mean, variance = (Interval(x, x, x) for x in exact)
        count = None
    elif env is None:
        raise UserError("the variance is measured in episodes of the environment: pass it, budget_report(agent, env)")
    else:
        gamma = agent.variance_gamma if deep else agent.options.gamma
        limit = None if deep else agent.options.max_episode_steps
        sample = evaluate(agent, _limited(env, limit), episodes, seed=seed, gamma=gamma)
        mean, variance, count = sample.interval("mean", level), sample.interval("variance", level), len(sample)
    smallest, at, looks = agent.prices.smallest(level)
    if not smallest.estimate < variance.estimate:
        smallest, at, looks = variance, float(agent.timesteps if deep else agent.episodes), 1
    counted = "steps" if deep else "episodes"
    return BudgetReport(budget, mean, variance, agent.psi, smallest, at, counted, count, looks)


def _exact(learner: Any) -> tuple[float, float] | None:
    """Mean and variance of a learner's policy; None where they are not computed exactly."""
    from vpac.tabular.budget import exact_now, is_exact

    return exact_now(learner) if is_exact(learner) else None


def _limited(env: Any, limit: int | None) -> Any:
    """The environment with episodes of at most so many steps."""
    if limit is None or isinstance(env, VectorEnv):
        return env
    if isinstance(env, gymnasium.Env):
        return TimeLimit(env, limit)
    return lambda: TimeLimit(one_environment(env, True), limit)
