"""Following a policy without learning, and learning off-policy while looking at the target policy."""

from __future__ import annotations

import math

from vpac.learners.actor_critic import train
from vpac.learners.compiled import compiled, inlined
from vpac.learners.generator import Words, pick
from vpac.learners.monte_carlo import Tape
from vpac.learners.settings import Settings
from vpac.learners.softmax import fill_policy, greedy_action
from vpac.learners.state import GOOD, History, Rates, Weights, Workspace
from vpac.learners.worlds import World, first_place, move, see
from vpac.typing import FloatArray

__all__ = ["play", "train_and_look"]


@inlined
def play_once(
    world: World,
    theta: FloatArray,
    coldness: float,
    greedy: bool,
    gamma: float,
    limit: int,
    words: Words,
    work: Workspace,
) -> float:
    """The discounted return of an episode."""
    place, here, policy = work.place, work.here, work.policy
    first_place(world, place, words)
    total, discount, terminated, steps = 0.0, 1.0, False, 0
    while steps < limit and not terminated:
        see(world, place, here)
        if greedy:
            action = greedy_action(theta, here)
        else:
            fill_policy(theta, here, coldness, policy)
            action = pick(policy, words)
        reward, terminated = move(world, place, action, words)
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
    words: Words,
    work: Workspace,
    returns: FloatArray,
) -> None:
    """Fill `returns` with the discounted returns of episodes of the greedy or the softmax policy."""
    for episode in range(len(returns)):
        returns[episode] = play_once(world, theta, coldness, greedy, gamma, limit, words, work)


@compiled
def train_and_look(
    world: World,
    settings: Settings,
    weights: Weights,
    rates: Rates,
    table: FloatArray,
    words: Words,
    eyes: Words,
    work: Workspace,
    tape: Tape,
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
        found, done, step = train(world, settings, weights, weights.theta, now, table, words, work, tape, one)
        if found != GOOD:
            returns[e] = math.nan
            return found, e + done, step
        returns[e] = play_once(
            world, weights.theta, 1.0 / settings.temperature, False, settings.gamma, settings.limit, eyes, work
        )
    return GOOD, len(returns), 0
