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

from vpac.learners.behaviour import act, ratios
from vpac.learners.compiled import compiled, inlined
from vpac.learners.exponential import LANES
from vpac.learners.generator import WORDS, Words
from vpac.learners.memory import borrow, give_back, on_stack, table_in
from vpac.learners.monte_carlo import Tape, learn_from_tape, record
from vpac.learners.settings import MONTE_CARLO, Settings, as_on_policy
from vpac.learners.softmax import fill_policy, mean_value, policy_at, value
from vpac.learners.state import ENDLESS, GOOD, History, Rates, Weights, Workspace, in_registers
from vpac.learners.step import learn_step
from vpac.learners.trace import begin
from vpac.learners.volatility import augment, prices
from vpac.learners.worlds import World, as_table, first_place, move, see
from vpac.typing import FloatArray

__all__ = ["train"]


@compiled
def train(
    world: World,
    settings: Settings,
    weights: Weights,
    ascent: FloatArray,
    rates: Rates,
    table: FloatArray,
    words: Words,
    work: Workspace,
    tape: Tape,
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
        own, small = on_stack(words, WORDS), in_registers(work)
        if settings.on_policy and world.n_actions == LANES:
            of_four, known = table_in(memory, rows, LANES), as_on_policy(settings)
            result = _train(
                as_table(world, LANES), known, weights, ascent, rates, table, own, small, tape, history, of_four
            )
        else:
            any_table = as_table(world, world.n_actions)
            result = _train(any_table, settings, weights, ascent, rates, table, own, small, tape, history, policies)
        for index in range(WORDS):
            words[index] = own[index]
    else:
        result = _train(world, settings, weights, ascent, rates, table, words, work, tape, history, policies)
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
    words: Words,
    work: Workspace,
    tape: Tape,
    history: History,
    policies: FloatArray,
) -> tuple[int, int, int]:
    """`train`, with room for policies.

    A table's policies are kept, one row for each state, until θ changes there: drawing the next action then waits for no
    exp. A row of zeros is not known yet. With tiles, θ changes for many places at once, and two rows take turns.
    """
    theta, place, behaviour = weights.theta, work.place, work.behaviour
    here, there = work.here, work.there
    coldness = 1.0 / settings.temperature
    for episode in range(len(history.returns)):
        (psi, step_price), alpha_theta = (
            prices(settings, rates.psi[episode]),
            rates.alpha_theta[episode] / world.n_active,
        )
        alpha_w, alpha_z = rates.alpha_w[episode] / world.n_active, rates.alpha_z[episode] / world.n_active
        first_place(world, place, words)
        see(world, place, here)
        policy = policies[policy_at(theta, here, coldness, policies, 0)]
        action = act(settings, table, theta, here, policy, behaviour, words)
        rho, actor_rho, excess = ratios(settings, policy, behaviour, action)
        state_value = mean_value(weights.w, here, policy)
        if not settings.volatility:
            weights.mean[0] += rates.alpha_mean[episode] * (state_value - weights.mean[0])
        trace = begin(settings, value(weights.w, here, action), state_value, weights.mean[0], rho, actor_rho)
        step_mean = weights.mean[0]
        total, discount, terminated, steps = 0.0, 1.0, False, 0
        product, weight_sum, square_sum, excess_sum = actor_rho, 0.0, 0.0, 0.0
        while steps < settings.limit and not terminated:
            reward, terminated = move(world, place, action, words)
            next_action, rho_next, actor_rho_next, excess_next, policy_next = action, 1.0, 1.0, 0.0, policy
            if not terminated:
                see(world, place, there)
                policy_next = policies[policy_at(theta, there, coldness, policies, 1 - steps % 2)]
                next_action = act(settings, table, theta, there, policy_next, behaviour, words)
                rho_next, actor_rho_next, excess_next = ratios(settings, policy_next, behaviour, next_action)
            if settings.critic == MONTE_CARLO:
                found = record(tape, steps, here, action, policy, reward, rho, actor_rho)
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
            found, at = learn_from_tape(
                settings, weights, ascent, psi, alpha_theta, alpha_w, alpha_z, tape, steps, rho, ahead, ahead_square
            )
            if found != GOOD:
                return found, episode, at
            for step in range(steps):  # θ has changed wherever the episode went: those policies are not known any more
                policies[tape.active[step, 0] if world.n_active == 1 else 0, 0] = 0.0
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
