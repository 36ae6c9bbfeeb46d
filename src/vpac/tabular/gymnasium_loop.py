"""The loop for environments that are not compiled: the same update functions, stepped from Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.envs.answers import checked_step
from vpac.liveness import advance, watched
from vpac.tabular.arrays import ENDLESS, GOOD, MONTE_CARLO, History, Rates, Settings, Weights, Workspace
from vpac.tabular.behaviour import act, ratios
from vpac.tabular.environment import Environment
from vpac.tabular.kernel.compiled import compiled
from vpac.tabular.kernel.generator import RngState
from vpac.tabular.kernel.softmax import fill_policy, mean_value, value
from vpac.tabular.monte_carlo import EpisodeBuffer, learn_from_episode, record
from vpac.tabular.update import Trace, augment, begin, learn_step, prices
from vpac.typing import FloatArray, IntArray


@compiled
def choose(
    settings: Settings,
    table: FloatArray,
    theta: FloatArray,
    active: IntArray,
    policy: FloatArray,
    behaviour: FloatArray,
    rng: RngState,
) -> tuple[int, float, float, float]:
    """Fill the policy of a state and draw an action; also its ratios and what clipping takes away from them."""
    fill_policy(theta, active, 1.0 / settings.temperature, policy)
    action = act(settings, table, theta, active, policy, behaviour, rng)
    rho, actor_rho, excess = ratios(settings, policy, behaviour, action)
    return action, rho, actor_rho, excess


@compiled
def _begin(
    settings: Settings, weights: Weights, work: Workspace, action: int, rho: float, actor_rho: float, alpha_mean: float
) -> Trace:
    state_value = mean_value(weights.w, work.here, work.policy)
    if not settings.volatility:
        weights.mean[0] += alpha_mean * (state_value - weights.mean[0])
    return begin(settings, value(weights.w, work.here, action), state_value, weights.mean[0], rho, actor_rho)


@compiled
def _learn(
    settings: Settings,
    weights: Weights,
    work: Workspace,
    trace: Trace,
    rates: FloatArray,
    action: int,
    reward: float,
    terminated: bool,
    next_action: int,
    rho_next: float,
    actor_rho_next: float,
) -> tuple[int, Trace]:
    """One step; then what was there becomes what is here."""
    psi, step_price = prices(settings, rates[0])
    found, trace = learn_step(
        settings, weights, weights.theta, trace, psi, rates[1], rates[2], rates[3], work.here, action,
        work.policy, augment(reward, step_price, weights.mean[0]), terminated, work.there, next_action,
        work.policy_next, rho_next, actor_rho_next,
    )  # fmt: skip
    _turn(settings, weights, work)
    return found, trace


@compiled
def _record(
    settings: Settings,
    weights: Weights,
    work: Workspace,
    buffer: EpisodeBuffer,
    step: int,
    action: int,
    reward: float,
    rho: float,
    actor_rho: float,
) -> int:
    found = record(buffer, step, work.here, action, work.policy, reward, rho, actor_rho)
    _turn(settings, weights, work)
    return found


@compiled
def _turn(settings: Settings, weights: Weights, work: Workspace) -> None:
    for index in range(len(work.here)):
        work.here[index] = work.there[index]
    fill_policy(weights.theta, work.here, 1.0 / settings.temperature, work.policy)


@compiled
def _close(
    settings: Settings,
    weights: Weights,
    work: Workspace,
    buffer: EpisodeBuffer,
    rates: FloatArray,
    steps: int,
    action: int,
    rho: float,
    terminated: bool,
) -> tuple[int, int]:
    ahead = 0.0 if terminated else value(weights.w, work.here, action)
    ahead_square = 0.0 if terminated else value(weights.z, work.here, action)
    return learn_from_episode(
        settings, weights, weights.theta, rates[0], rates[1], rates[2], rates[3], buffer, steps, rho, ahead,
        ahead_square,
    )  # fmt: skip


@watched()
def train_gymnasium(
    environment: Environment,
    settings: Settings,
    weights: Weights,
    rates: Rates,
    table: FloatArray,
    rng: RngState,
    work: Workspace,
    buffer: EpisodeBuffer,
    history: History,
    seeds: list[int],
) -> tuple[int, int, int]:
    """`actor_critic.train` for a Gymnasium environment; every episode resets it with a seed of its own."""
    env: Any = environment.env
    for episode, seed in enumerate(seeds):
        now = np.array([x[episode] for x in rates])
        now[1:4] /= environment.n_active
        work.here[:] = environment.features(env.reset(seed=seed)[0])
        action, rho, actor_rho, excess = choose(
            settings, table, weights.theta, work.here, work.policy, work.behaviour, rng
        )
        trace = _begin(settings, weights, work, action, rho, actor_rho, now[4])
        total, discount, steps, terminated, truncated, cut = 0.0, 1.0, 0, False, False, False
        products, excesses = [], []
        while not (terminated or cut):
            observation, paid, terminated, truncated, _ = checked_step(
                env, action + environment.first_action, environment.name
            )
            reward, steps = float(paid), steps + 1
            advance()
            cut = bool(truncated) or steps >= settings.limit
            next_action, rho_next, actor_rho_next, excess_next = action, 1.0, 1.0, 0.0
            if not terminated:
                work.there[:] = environment.features(observation)
                next_action, rho_next, actor_rho_next, excess_next = choose(
                    settings, table, weights.theta, work.there, work.policy_next, work.behaviour, rng
                )
            if settings.critic == MONTE_CARLO:
                found = _record(settings, weights, work, buffer, steps - 1, action, reward, rho, actor_rho)
            else:
                found, trace = _learn(
                    settings, weights, work, trace, now, action, reward, bool(terminated), next_action, rho_next,
                    actor_rho_next,
                )  # fmt: skip
            if found != GOOD:
                return found, episode, steps - 1
            products.append(actor_rho)
            excesses.append(excess)
            total += discount * reward
            discount *= settings.gamma
            action, rho, actor_rho, excess = next_action, rho_next, actor_rho_next, excess_next
        if settings.critic == MONTE_CARLO:
            found, at = _close(settings, weights, work, buffer, now, steps, action, rho, bool(terminated))
            if found != GOOD:
                return found, episode, at
        if settings.volatility:
            weights.mean[0] += now[4] * ((1.0 - settings.gamma) * total - weights.mean[0])
        weight = np.cumprod(products)
        history.returns[episode], history.lengths[episode] = total, steps
        history.terminated[episode], history.clipped[episode] = terminated, np.mean(excesses)
        history.effective[episode] = 1.0 if settings.on_policy else weight.sum() ** 2 / (steps * (weight**2).sum())
        if not (settings.limited or terminated or truncated):
            return ENDLESS, episode + 1, steps
    return GOOD, len(seeds), 0
