"""The loop, once: every tabular and linear algorithm of the paper runs through it.

    for each episode                                                       (Algorithm 1, lines 5–19)
        S, A ~ start, b(·|S)
        repeat
            take A, observe R, S'; A' ~ b(·|S')                            line 9
            δ, δ̄ ← the critics' TD errors                                  lines 10–11
            w ← w + α_w δ,   z ← z + α_z δ̄                                 lines 12–13
            θ ← θ + α_θ ∇log π(A|S) · (I_Q Q̂ − ψ · penalty)                lines 14–15
            advance the trace; S, A ← S', A'                               lines 16–17
        until S' is terminal or the episode is cut off

An algorithm is its critics (`critics.py`, `monte_carlo.py`) and its penalty (`penalty.py`). An episode that is cut off is
not over: the last step bootstraps like any other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vpac.errors import UserError
from vpac.tabular.agents import Learner
from vpac.tabular.arrays import (
    CLIPPED,
    ENDLESS,
    GOOD,
    MONTE_CARLO,
    TARGET,
    History,
    Rates,
    Settings,
    Weights,
    Workspace,
)
from vpac.tabular.behaviour import act, ratios
from vpac.tabular.environment import World, as_table, move, observe, reset
from vpac.tabular.kernel.compiled import compiled, inlined
from vpac.tabular.kernel.exponential import LANES
from vpac.tabular.kernel.generator import WORDS, RngState, generator, pick
from vpac.tabular.kernel.memory import borrow, give_back, on_stack, table_in
from vpac.tabular.kernel.softmax import fill_policy, greedy_action, mean_value, policy_at, value
from vpac.tabular.monte_carlo import EpisodeBuffer, learn_from_episode, record
from vpac.tabular.update import augment, begin, learn_step, prices
from vpac.typing import FloatArray


@inlined
def as_on_policy(s: Settings) -> Settings:
    """Settings of an on-policy learner, in code that is compiled for nothing else."""
    return Settings(
        s.critic, s.form, s.variance_of, s.baseline, s.gamma, s.temperature, s.score, s.limit, True, TARGET, 0.0,
        CLIPPED, False, s.limited, s.volatility,
    )  # fmt: skip


@inlined
def in_registers(work: Workspace) -> Workspace:
    """The workspace of a table: one active feature, which is the state's number. Nobody else sees these arrays."""
    here, there, position = on_stack(work.here, 1), on_stack(work.there, 1), on_stack(work.position, 2)
    return Workspace(here, there, work.policy, work.policy_next, work.behaviour, position)


@compiled
def train(
    world: World,
    settings: Settings,
    weights: Weights,
    ascent: FloatArray,
    rates: Rates,
    table: FloatArray,
    rng: RngState,
    work: Workspace,
    buffer: EpisodeBuffer,
    history: History,
) -> tuple[int, int, int]:
    """Learn for as many episodes as `history` has room; returns (what was found, episode, step).

    `ascent` is where the actor's updates go: θ itself, or another array to look at the updates of a policy held fixed.

    The loop is written once and compiled three times: for tables of four actions on-policy, for all tables, and for tiles.
    What a loop is for it need not ask at each step, and the few numbers that tell where a table's episode is stay in registers.
    """
    rows = world.n_features if world.n_active == 1 else 2
    memory = borrow(rows, world.n_actions)
    policies = table_in(memory, rows, world.n_actions)
    if world.finite:
        own, small = on_stack(rng, WORDS), in_registers(work)
        if settings.on_policy and world.n_actions == LANES:
            of_four, known = table_in(memory, rows, LANES), as_on_policy(settings)
            result = _train(
                as_table(world, LANES), known, weights, ascent, rates, table, own, small, buffer, history, of_four
            )
        else:
            any_table = as_table(world, world.n_actions)
            result = _train(any_table, settings, weights, ascent, rates, table, own, small, buffer, history, policies)
        for index in range(WORDS):
            rng[index] = own[index]
    else:
        result = _train(world, settings, weights, ascent, rates, table, rng, work, buffer, history, policies)
    give_back(memory)
    return result


@inlined
def _train(
    world: World,
    settings: Settings,
    weights: Weights,
    ascent: FloatArray,
    rates: Rates,
    table: FloatArray,
    rng: RngState,
    work: Workspace,
    buffer: EpisodeBuffer,
    history: History,
    policies: FloatArray,
) -> tuple[int, int, int]:
    """`train`, with room for policies.

    A table's policies are kept, one row for each state, until θ changes there: drawing the next action then waits for no
    exp. A row of zeros is not known yet. With tiles, θ changes for many positions at once, and two rows take turns.
    """
    theta, position, behaviour = weights.theta, work.position, work.behaviour
    here, there = work.here, work.there
    coldness = 1.0 / settings.temperature
    for episode in range(len(history.returns)):
        (psi, step_price), alpha_theta = (
            prices(settings, rates.psi[episode]),
            rates.alpha_theta[episode] / world.n_active,
        )
        alpha_w, alpha_z = rates.alpha_w[episode] / world.n_active, rates.alpha_z[episode] / world.n_active
        reset(world, position, rng)
        observe(world, position, here)
        policy = policies[policy_at(theta, here, coldness, policies, 0)]
        action = act(settings, table, theta, here, policy, behaviour, rng)
        rho, actor_rho, excess = ratios(settings, policy, behaviour, action)
        state_value = mean_value(weights.w, here, policy)
        if not settings.volatility:
            weights.mean[0] += rates.alpha_mean[episode] * (state_value - weights.mean[0])
        trace = begin(settings, value(weights.w, here, action), state_value, weights.mean[0], rho, actor_rho)
        step_mean = weights.mean[0]
        total, discount, terminated, steps = 0.0, 1.0, False, 0
        product, weight_sum, square_sum, excess_sum = actor_rho, 0.0, 0.0, 0.0
        while steps < settings.limit and not terminated:
            reward, terminated = move(world, position, action, rng)
            next_action, rho_next, actor_rho_next, excess_next, policy_next = action, 1.0, 1.0, 0.0, policy
            if not terminated:
                observe(world, position, there)
                policy_next = policies[policy_at(theta, there, coldness, policies, 1 - steps % 2)]
                next_action = act(settings, table, theta, there, policy_next, behaviour, rng)
                rho_next, actor_rho_next, excess_next = ratios(settings, policy_next, behaviour, next_action)
            if settings.critic == MONTE_CARLO:
                found = record(buffer, steps, here, action, policy, reward, rho, actor_rho)
            else:
                found, trace = learn_step(
                    settings, weights, ascent, trace, psi, alpha_theta, alpha_w, alpha_z, here, action, policy,
                    augment(reward, step_price, step_mean), terminated, there, next_action, policy_next, rho_next,
                    actor_rho_next,
                )  # fmt: skip
            if found != GOOD:
                return found, episode, steps
            steps += 1
            total += discount * reward
            discount *= settings.gamma
            if not settings.on_policy:
                weight_sum += product
                square_sum += product * product
                excess_sum += excess
                product *= actor_rho_next
            changed = here if world.n_active == 1 else there  # of a table's policies, the state's that was left
            fill_policy(theta, changed, coldness, policy if world.n_active == 1 else policy_next)
            if world.n_active == 1:
                here[0] = there[0]
            else:
                here, there = there, here
            action, rho, actor_rho, excess, policy = next_action, rho_next, actor_rho_next, excess_next, policy_next
        if settings.critic == MONTE_CARLO:
            ahead = 0.0 if terminated else value(weights.w, here, action)
            ahead_square = 0.0 if terminated else value(weights.z, here, action)
            found, at = learn_from_episode(
                settings, weights, ascent, psi, alpha_theta, alpha_w, alpha_z, buffer, steps, rho, ahead, ahead_square
            )
            if found != GOOD:
                return found, episode, at
            for step in range(steps):  # θ has changed wherever the episode went: those policies are not known any more
                policies[buffer.active[step, 0] if world.n_active == 1 else 0, 0] = 0.0
        if settings.volatility:
            weights.mean[0] += rates.alpha_mean[episode] * ((1.0 - settings.gamma) * total - weights.mean[0])
        history.returns[episode] = total
        history.lengths[episode] = steps
        history.terminated[episode] = terminated
        history.clipped[episode] = excess_sum / steps
        history.effective[episode] = (
            1.0 if settings.on_policy else weight_sum * weight_sum / (steps * max(square_sum, 1e-300))
        )
        if not (settings.limited or terminated):
            return ENDLESS, episode + 1, steps
    return GOOD, len(history.returns), 0


@inlined
def play_once(
    world: World,
    theta: FloatArray,
    coldness: float,
    greedy: bool,
    gamma: float,
    limit: int,
    rng: RngState,
    work: Workspace,
) -> float:
    """The discounted return of an episode."""
    position, here, policy = work.position, work.here, work.policy
    reset(world, position, rng)
    total, discount, terminated, steps = 0.0, 1.0, False, 0
    while steps < limit and not terminated:
        observe(world, position, here)
        if greedy:
            action = greedy_action(theta, here)
        else:
            fill_policy(theta, here, coldness, policy)
            action = pick(policy, rng)
        reward, terminated = move(world, position, action, rng)
        total += discount * reward
        discount *= gamma
        steps += 1
    return total


@compiled
def play(
    world: World,
    theta: FloatArray,
    coldness: float,
    greedy: bool,
    gamma: float,
    limit: int,
    rng: RngState,
    work: Workspace,
    returns: FloatArray,
) -> None:
    """Fill `returns` with the discounted returns of episodes of the greedy or the softmax policy."""
    for episode in range(len(returns)):
        returns[episode] = play_once(world, theta, coldness, greedy, gamma, limit, rng, work)


@compiled
def train_and_look(
    world: World,
    settings: Settings,
    weights: Weights,
    rates: Rates,
    table: FloatArray,
    rng: RngState,
    rollout_rng: RngState,
    work: Workspace,
    buffer: EpisodeBuffer,
    history: History,
    returns: FloatArray,
) -> tuple[int, int, int]:
    """`train`, and after each episode one of the target policy, with random numbers of its own, into `returns`."""
    for e in range(len(returns)):
        now = Rates(
            rates.psi[e : e + 1],
            rates.alpha_theta[e : e + 1],
            rates.alpha_w[e : e + 1],
            rates.alpha_z[e : e + 1],
            rates.alpha_mean[e : e + 1],
        )
        one = History(
            history.returns[e : e + 1],
            history.lengths[e : e + 1],
            history.terminated[e : e + 1],
            history.effective[e : e + 1],
            history.clipped[e : e + 1],
        )
        found, done, step = train(world, settings, weights, weights.theta, now, table, rng, work, buffer, one)
        if found != GOOD:
            returns[e] = math.nan
            return found, e + done, step
        returns[e] = play_once(
            world, weights.theta, 1.0 / settings.temperature, False, settings.gamma, settings.limit, rollout_rng, work
        )
    return GOOD, len(returns), 0


def paths(learner: Learner, policy: str, count: int, limit: int, seed: np.random.SeedSequence) -> list[Any]:
    """Where `count` episodes of the learner's greedy or softmax policy went, from start to end.

    Returns:
        For each episode its states, [steps + 1], or in the continuous puddle world its points, [steps + 1, 2].
    """
    environment = learner.environment
    if environment.world is None:
        raise UserError(f"{environment.name} is not compiled: its episodes cannot be watched here")
    work, rng = Workspace.make(environment.n_active, environment.n_actions), generator(seed)
    coldness, positions = 1.0 / learner.options.temperature, np.zeros((limit + 1, 2))
    found = []
    for _ in range(count):
        steps = _walk(
            environment.world, learner.weights.theta, coldness, policy == "greedy", limit, rng, work, positions
        )
        walked = positions[: steps + 1]
        found.append(walked[:, 0].copy().view(np.int64) if environment.mdp is not None else walked.copy())
    return found


@compiled
def _walk(
    world: World,
    theta: FloatArray,
    coldness: float,
    greedy: bool,
    limit: int,
    rng: RngState,
    work: Workspace,
    positions: FloatArray,
) -> int:
    """One episode; writes down every position and returns the number of steps."""
    position, here, policy = work.position, work.here, work.policy
    reset(world, position, rng)
    positions[0, 0], positions[0, 1] = position[0], position[1]
    terminated, steps = False, 0
    while steps < limit and not terminated:
        observe(world, position, here)
        if greedy:
            action = greedy_action(theta, here)
        else:
            fill_policy(theta, here, coldness, policy)
            action = pick(policy, rng)
        _, terminated = move(world, position, action, rng)
        steps += 1
        positions[steps, 0], positions[steps, 1] = position[0], position[1]
    return steps
