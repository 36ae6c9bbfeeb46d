"""The compiled loop, written once: every tabular and linear algorithm runs through it.

    for each episode                                                       (Algorithm 1, lines 5–19)
        S, A ~ start, b(·|S);  I_Q, I_σ ← 1, 1                             lines 6–7
        repeat
            take A, observe R, S'; A' ~ b(·|S')                            line 9
            the critics and the actor learn; the trace advances            lines 10–16, update.py
            S, A ← S', A'                                                  line 17
        until S' is terminal or the episode is truncated                   line 18

After a truncation the last step bootstraps like any other.
"""

from __future__ import annotations

from typing import NamedTuple

from vpac.tabular import arrays as codes
from vpac.tabular import update
from vpac.tabular.arrays import History, Rates, Settings, Weights, Workspace
from vpac.tabular.environment import World, as_table, move, observe, reset
from vpac.tabular.kernel.exponential import LANES
from vpac.tabular.kernel.generator import STATE_WORDS, RngState, pick
from vpac.tabular.kernel.jit import compiled, inlined
from vpac.tabular.kernel.memory import borrow, give_back, on_stack, table_in
from vpac.tabular.kernel.softmax import fill_policy, greedy_action, policy_at
from vpac.typing import FloatArray


@compiled
def train(
    world: World, settings: Settings, weights: Weights, ascent: FloatArray, rates: Rates, rng: RngState,
    work: Workspace, history: History, rollout_rng: RngState, target: FloatArray,
) -> tuple[int, int, int]:  # fmt: skip
    """Learn for as many episodes as `history` has rows; returns (GOOD or an error, episode, step).

    `ascent` receives the actor's updates: θ itself, or another array to collect the updates of a fixed policy. If `target` is
    not empty, one episode of the target policy follows each training episode, with separate random numbers, and its return is
    stored there.

    The loop is written once and compiled three times: for on-policy tables of four actions, for all tables, and for tiles.
    Each version has constants folded, and the position of a table's episode stays in registers.
    """
    rows = world.n_features if world.n_active == 1 else 2
    memory = borrow(rows, world.n_actions)
    policies = table_in(memory, rows, world.n_actions)
    if world.finite:
        own, small = on_stack(rng, STATE_WORDS), in_registers(work)
        if settings.on_policy and world.n_actions == LANES:
            four, fixed, of_four = as_table(world, LANES), as_on_policy(settings), table_in(memory, rows, LANES)
            result = _train(four, fixed, weights, ascent, rates, own, small, history, rollout_rng, target, of_four)
        else:
            table = as_table(world, world.n_actions)
            result = _train(table, settings, weights, ascent, rates, own, small, history, rollout_rng, target, policies)
        for index in range(STATE_WORDS):
            rng[index] = own[index]
    else:
        result = _train(world, settings, weights, ascent, rates, rng, work, history, rollout_rng, target, policies)
    give_back(memory)
    return result


@inlined
def as_on_policy(s: Settings) -> Settings:
    """The settings of an on-policy learner, with constants that the compiler can fold."""
    return Settings(
        s.critic, s.form, s.variance_of, s.baseline, s.gamma, s.temperature, s.score, s.limit, True, codes.TARGET, 0.0,
        codes.CLIPPED, False, s.limited, s.volatility, s.by_return,
    )  # fmt: skip


@inlined
def in_registers(work: Workspace) -> Workspace:
    """The workspace of a table, on the stack: one active feature, the state's index."""
    here, there, position = on_stack(work.here, 1), on_stack(work.there, 1), on_stack(work.position, 2)
    return Workspace(
        here, there, work.policy, work.policy_next, work.behaviour, position, work.table, work.buffer, work.influence
    )  # fmt: skip


@inlined
def _train(
    world: World, settings: Settings, weights: Weights, ascent: FloatArray, rates: Rates, rng: RngState,
    work: Workspace, history: History, rollout_rng: RngState, target: FloatArray, policies: FloatArray,
) -> tuple[int, int, int]:  # fmt: skip
    """`train`, with an array for cached policies.

    A table's policies are cached, one row for each state, until θ changes there, so that drawing the next action needs no exp.
    A row of zeros is not computed yet. With tiles, θ changes for many positions at once, and two rows are used in turn.
    """
    theta, position, here, there = weights.theta, work.position, work.here, work.there
    coldness = 1.0 / settings.temperature
    for episode in range(len(history.returns)):
        sizes = update.step_sizes(settings, rates, episode, world.n_active)
        reset(world, position, rng)  # line 6
        observe(world, position, here)
        policy = policies[policy_at(theta, here, coldness, policies, 0)]
        choice = update.choose(settings, work.table, theta, here, policy, work.behaviour, rng)
        trace = update.begin_episode(settings, weights, here, policy, choice, rates.alpha_mean[episode])  # line 7
        step_mean = weights.mean[0]
        total, discount, terminated, steps = 0.0, 1.0, False, 0
        product, weight_sum, square_sum, excess_sum = choice.actor_rho, 0.0, 0.0, 0.0
        while steps < settings.limit and not terminated:
            reward, terminated = move(world, position, choice.action, rng)  # line 9
            next_choice, next_policy = update.Choice(choice.action, 1.0, 1.0, 0.0), policy
            if not terminated:
                observe(world, position, there)
                next_policy = policies[policy_at(theta, there, coldness, policies, 1 - steps % 2)]
                next_choice = update.choose(settings, work.table, theta, there, next_policy, work.behaviour, rng)
            if settings.critic == codes.MONTE_CARLO:
                found = update.record(work.buffer, steps, here, policy, choice, reward)
            else:
                paid = update.augment(reward, sizes.reward_psi, step_mean)
                t = update.Transition(here, policy, choice.action, paid, terminated, there, next_policy, next_choice)
                if settings.by_return:
                    update.record(work.buffer, steps, here, policy, choice, reward)
                paying = update.risk_neutral(sizes) if settings.by_return else sizes
                found, trace = update.learn_step(settings, weights, ascent, trace, t, paying)  # lines 10–16
            if found != codes.GOOD:
                return found, episode, steps
            steps += 1
            total += discount * reward
            discount *= settings.gamma
            if not settings.on_policy:
                weight_sum += product
                square_sum += product * product
                excess_sum += choice.excess
                product *= next_choice.actor_rho
            changed = here if world.n_active == 1 else there  # of a table only that state changed
            fill_policy(theta, changed, coldness, policy if world.n_active == 1 else next_policy)
            if world.n_active == 1:
                here[0] = there[0]
            else:
                here, there = there, here
            choice, policy = next_choice, next_policy  # line 17
        if settings.critic == codes.MONTE_CARLO or settings.by_return:
            if settings.by_return:
                found, at = update.learn_from_return(settings, weights, ascent, sizes, work, steps, total)
            else:
                found, at = update.learn_from_episode(
                    settings, weights, ascent, sizes, work.buffer, steps, here, choice, terminated
                )
            if found != codes.GOOD:
                return found, episode, at
            for step in range(steps):  # θ has changed in all visited states: discard their cached policies
                policies[work.buffer.active[step, 0] if world.n_active == 1 else 0, 0] = 0.0
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
            return codes.ENDLESS, episode + 1, steps
        if len(target) > 0:
            fixed = FixedPolicy(theta, coldness, False, settings.gamma, settings.limit)
            target[episode], _ = play_once(world, fixed, rollout_rng, work, policies[:0])
    return codes.GOOD, len(history.returns), 0


class FixedPolicy(NamedTuple):
    """A fixed policy to be rolled out."""

    theta: FloatArray
    coldness: float
    """1/temperature."""
    greedy: bool
    """Whether it takes the most probable action (the first of equals) instead of sampling."""
    gamma: float
    limit: int
    """Episodes are truncated after this many steps."""


@compiled
def play(world: World, fixed: FixedPolicy, rng: RngState, work: Workspace, returns: FloatArray) -> None:
    """Fill `returns` with discounted returns of a policy's episodes."""
    for episode in range(len(returns)):
        returns[episode], _ = play_once(world, fixed, rng, work, work.table[:0])


@compiled
def play_path(world: World, fixed: FixedPolicy, rng: RngState, work: Workspace, path: FloatArray) -> int:
    """Play one episode and write its positions to `path`, [limit + 1, 2]; returns the number of steps."""
    _, steps = play_once(world, fixed, rng, work, path)
    return steps


@inlined
def play_once(world: World, fixed: FixedPolicy, rng: RngState, work: Workspace, path: FloatArray) -> tuple[float, int]:
    """The discounted return of an episode, and its steps; writes its positions to `path` if that is not empty."""
    position, here, policy = work.position, work.here, work.policy
    reset(world, position, rng)
    total, discount, terminated, steps = 0.0, 1.0, False, 0
    while steps < fixed.limit and not terminated:
        if len(path) > 0:
            path[steps, 0], path[steps, 1] = position[0], position[1]
        observe(world, position, here)
        if fixed.greedy:
            action = greedy_action(fixed.theta, here)
        else:
            fill_policy(fixed.theta, here, fixed.coldness, policy)
            action = pick(policy, rng)
        reward, terminated = move(world, position, action, rng)
        total += discount * reward
        discount *= fixed.gamma
        steps += 1
    if len(path) > 0:
        path[steps, 0], path[steps, 1] = position[0], position[1]
    return total, steps
