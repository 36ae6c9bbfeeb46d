"""The loop for environments that are not compiled: the same update functions, stepped from Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.envs.check import checked_step
from vpac.tabular import arrays as codes
from vpac.tabular import update
from vpac.tabular.arrays import History, Rates, Settings, Weights, Workspace
from vpac.tabular.environment import Environment
from vpac.tabular.kernel.generator import RngState
from vpac.tabular.kernel.jit import compiled, inlined
from vpac.tabular.kernel.softmax import fill_policy
from vpac.tabular.update import Choice, StepSizes, Trace, Transition
from vpac.typing import FloatArray, IntArray


@inlined
def _choose(
    settings: Settings, weights: Weights, work: Workspace, state: IntArray, policy: FloatArray, rng: RngState
) -> Choice:
    fill_policy(weights.theta, state, 1.0 / settings.temperature, policy)
    return update.choose(settings, work.table, weights.theta, state, policy, work.behaviour, rng)


@compiled
def _begin(
    settings: Settings, weights: Weights, work: Workspace, rates: Rates, episode: int, rng: RngState
) -> tuple[StepSizes, Choice, Trace]:
    """Algorithm 1, lines 6–7."""
    choice = _choose(settings, weights, work, work.here, work.policy, rng)
    trace = update.begin_episode(settings, weights, work.here, work.policy, choice, rates.alpha_mean[episode])
    return update.step_sizes(settings, rates, episode, 1), choice, trace


@compiled
def _learn(
    settings: Settings, weights: Weights, work: Workspace, trace: Trace, sizes: StepSizes, choice: Choice, step: int,
    reward: float, terminated: bool, rng: RngState,
) -> tuple[int, Trace, Choice]:  # fmt: skip
    """A' ~ b(·|S'); learn from the step or record it; S ← S' (Algorithm 1, lines 9–17)."""
    next_choice = Choice(choice.action, 1.0, 1.0, 0.0)
    if not terminated:
        next_choice = _choose(settings, weights, work, work.there, work.policy_next, rng)
    if settings.critic == codes.MONTE_CARLO:
        found = update.record(work.buffer, step, work.here, work.policy, choice, reward)
    else:
        paid = update.augment(reward, sizes.reward_psi, weights.mean[0])
        transition = Transition(
            work.here, work.policy, choice.action, paid, terminated, work.there, work.policy_next, next_choice
        )
        if settings.by_return:
            update.record(work.buffer, step, work.here, work.policy, choice, reward)
            sizes = update.risk_neutral(sizes)
        found, trace = update.learn_step(settings, weights, weights.theta, trace, transition, sizes)
    for index in range(len(work.here)):
        work.here[index] = work.there[index]
    fill_policy(weights.theta, work.here, 1.0 / settings.temperature, work.policy)
    return found, trace, next_choice


@compiled
def _learn_episode(
    settings: Settings, weights: Weights, work: Workspace, sizes: StepSizes, steps: int, choice: Choice, terminated: bool
) -> tuple[int, int]:  # fmt: skip
    return update.learn_from_episode(
        settings, weights, weights.theta, sizes, work.buffer, steps, work.here, choice, terminated
    )


@compiled
def _learn_return(
    settings: Settings, weights: Weights, work: Workspace, sizes: StepSizes, steps: int, total: float
) -> tuple[int, int]:
    return update.learn_from_return(settings, weights, weights.theta, sizes, work, steps, total)


def train_gymnasium(
    environment: Environment, settings: Settings, weights: Weights, rates: Rates, rng: RngState, work: Workspace,
    history: History, seeds: list[int],
) -> tuple[int, int, int]:  # fmt: skip
    """`loop.train` for a Gymnasium environment; every episode resets it with its own seed."""
    env: Any = environment.env
    shared = {name: getattr(rates, name) / environment.n_active for name in ("alpha_theta", "alpha_w", "alpha_z")}
    rates = rates._replace(**shared)
    for episode, seed in enumerate(seeds):
        work.here[:] = environment.features(env.reset(seed=seed)[0])
        sizes, choice, trace = _begin(settings, weights, work, rates, episode, rng)
        total, discount, steps, terminated, truncated, cut = 0.0, 1.0, 0, False, False, False
        products, excesses = [], []
        while not (terminated or cut):
            observation, paid, terminated, truncated, _ = checked_step(
                env, choice.action + environment.first_action, environment.name
            )
            reward, terminated, steps = float(paid), bool(terminated), steps + 1
            cut = bool(truncated) or steps >= settings.limit
            if not terminated:
                work.there[:] = environment.features(observation)
            products.append(choice.actor_rho)
            excesses.append(choice.excess)
            found, trace, choice = _learn(
                settings, weights, work, trace, sizes, choice, steps - 1, reward, terminated, rng
            )
            if found != codes.GOOD:
                return found, episode, steps - 1
            total += discount * reward
            discount *= settings.gamma
        if settings.critic == codes.MONTE_CARLO:
            found, at = _learn_episode(settings, weights, work, sizes, steps, choice, terminated)
            if found != codes.GOOD:
                return found, episode, at
        if settings.by_return:
            found, at = _learn_return(settings, weights, work, sizes, steps, total)
            if found != codes.GOOD:
                return found, episode, at
        if settings.volatility:
            weights.mean[0] += rates.alpha_mean[episode] * ((1.0 - settings.gamma) * total - weights.mean[0])
        weight = np.cumprod(products)
        history.returns[episode], history.lengths[episode] = total, steps
        history.terminated[episode], history.clipped[episode] = terminated, np.mean(excesses)
        history.effective[episode] = 1.0 if settings.on_policy else weight.sum() ** 2 / (steps * (weight**2).sum())
        if not (settings.limited or terminated or truncated):
            return codes.ENDLESS, episode + 1, steps
    return codes.GOOD, len(seeds), 0
