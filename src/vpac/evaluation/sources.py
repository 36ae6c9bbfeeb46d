"""Where the variance of the return comes from: start state, the policy's draws, the environment's noise.

The definition is that of `vpac.oracle.sources`: the law of total variance, applied to the start, to every action given the
past, and to every answer of the environment given past and action. It is estimated by a nested design. Each start is played
twice; the covariance of the two returns is the start's part, and half their mean squared difference is the rest. The first of
the two is gone again, and in each of its steps the policy draws three more actions: that is cheap and finds rare ones. Then

    policy        of all pairs of actions that differ, one is picked; the episode is led to its step t by its seeds and actions;
                  d₁ = G(a) − G(a') with one continuation's random numbers, d₂ with another's;
    environment   of all steps whose answer took random numbers, one is picked, and answered twice; d₁, d₂ likewise.

½ E[d₁d₂] is the variance of the expected return over actions (answers), because the continuations are independent of one
another; within a pair they share random numbers, which changes nothing about the mean and makes d small. Steps are picked
with probabilities in proportion to γ^{2t}; times the sum of these weights (over the number of pairs in a step) it estimates the
sum over the episode. What the rest says beside the two is shared among them by how little is known about each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vpac.envs.first_look import global_noise_kept
from vpac.evaluation.actors import gamma_of
from vpac.evaluation.branches import Walker, exact_sources
from vpac.evaluation.environments import what_it_is
from vpac.evaluation.parts import PARTS, estimate
from vpac.evaluation.progress import shown
from vpac.learners.checks import MOST_EPISODES, whole
from vpac.oracle.moments import check_gamma
from vpac.oracle.sources import VarianceSources
from vpac.risk.intervals import Interval, student_quantile
from vpac.typing import FloatArray

__all__ = ["PARTS", "Sources", "variance_sources"]

FRESH = 3
"""Actions that are drawn in each step beside the one that was taken."""
PAIRS = (FRESH + 1) * FRESH // 2
"""Of actions, in each step."""
CHECKED = 10
"""Episodes that are repeated as a whole, to see whether the environment obeys its seeds."""


@dataclass(frozen=True)
class Sources:
    """Parts of the variance of the return, with intervals."""

    total: Interval
    """Var(G)."""
    parts: dict[str, Interval]
    """Of "start", "policy" and "environment"; an estimate that would be below zero by chance is 0, the others add up to the
    total."""
    shares: dict[str, Interval]
    """What the parts make up, between 0 and 1."""
    exact: VarianceSources | None
    """The exact parts, where process and policy are known; else None."""
    starts: int
    """How many starts were played."""
    gamma: float
    """The discount factor."""
    notes: tuple[str, ...]
    """What a reader should know about this environment."""


def variance_sources(
    agent: Any,
    env: Any,
    starts: int = 500,
    *,
    seed: int = 0,
    gamma: float | None = None,
    deterministic: bool = False,
    level: float = 0.95,
    progress: bool | Callable[[int, int], object] = False,
) -> Sources:
    """Estimate the parts; beside them the exact ones, for a tabular agent of ours on a finite process.

    A start is a seed of `reset`; the noise that follows is drawn from a generator that replaces the environment's
    `np_random` after the reset. Noise that an environment takes from elsewhere cannot be told from the start, if `reset`
    seeds it, and makes this impossible, if nothing does: an episode that does not repeat itself is an error.

    Args:
        agent: as for `evaluate`, but without a memory of its own.
        env: as for `evaluate`, but not a vector environment.
        starts: how many starts; each takes up to ten episodes.
        seed: of everything random.
        gamma: discount factor; default: the agent's own, or 0.99.
        deterministic: of the policy's most preferred actions instead of drawn ones.
        level: the confidence of the intervals.
        progress: as for `evaluate`.
    """
    starts = whole(starts, "starts", 10, MOST_EPISODES)
    gamma = gamma_of(agent) if gamma is None else check_gamma(gamma)
    walker = Walker(agent, env, gamma, deterministic)
    student_quantile(level, starts - 1)  # refuses what is not a level
    rows = np.zeros((starts, 5))
    with global_noise_kept(), shown(progress, starts, what_it_is(env)) as tell:
        for number, child in enumerate(np.random.SeedSequence(whole(seed, "seed")).spawn(starts)):
            rows[number] = _one_start(walker, child, check=number < CHECKED)
            tell(number + 1)
    walker.close()
    silent = {"environment": not walker.noisy, "policy": deterministic and not walker.actor.decides_itself}
    found = estimate(rows, level, frozenset(name for name, so in silent.items() if so), FRESH + 1)
    exact = exact_sources(agent, walker.env, gamma, deterministic)
    notes = (*walker.notes(), *(_few(name, count, starts) for name, count in found.few.items()))
    return Sources(found.total, found.parts, found.shares, exact, starts, gamma, notes)


def _few(name: str, count: int, starts: int) -> str:
    what = {"policy": "two draws of the policy", "environment": "two answers of the environment"}[name]
    return (
        f"in only {count} of {starts} episodes {what} made a difference: the share of the {name} is known roughly at best; "
        "more episodes tell more"
    )


def _one_start(walker: Walker, seed: np.random.SeedSequence, check: bool) -> FloatArray:
    """Returns of two episodes, what policy and environment add after the start, and how often the environment spoke."""
    begin, first, second, pick, *more = seed.spawn(9)
    way = walker.episode(begin, first)
    again = walker.episode(begin, second)
    if check:
        walker.check(way, begin, first)
    rng = np.random.default_rng(pick)
    drawn, noisy = walker.look(way, begin, first, more[0], FRESH)
    weights: FloatArray = np.power(walker.gamma, 2.0 * np.arange(len(drawn)), dtype=np.float64)

    def branch(t: int, action: Any, answer: np.random.SeedSequence | None, rest: np.random.SeedSequence) -> float:
        return walker.branch(way, begin, first, t, action, answer, rest)

    chosen = answered = 0.0
    pairs = [
        (t, one, other)
        for t, actions in enumerate(drawn)
        for one, other in combinations(actions, 2)
        if not np.array_equal(one, other)
    ]
    here = weights[[t for t, *_ in pairs]]
    if here.any():
        t, one, other = pairs[_picked(rng, here)]
        gaps = [branch(t, one, None, rest) - branch(t, other, None, rest) for rest in more[1:3]]
        chosen = 0.5 * float(here.sum()) / PAIRS * gaps[0] * gaps[1]
    here = weights * noisy
    if here.any():
        t, answers = _picked(rng, here), more[3:5]
        rests = np.random.SeedSequence(int(more[3].generate_state(1)[0])).spawn(2)
        gaps = [
            branch(t, way.actions[t], answers[0], rest) - branch(t, way.actions[t], answers[1], rest) for rest in rests
        ]
        answered = 0.5 * float(here.sum()) * gaps[0] * gaps[1]
    return np.array([way.total, again.total, chosen, answered, float(weights @ noisy)])


def _picked(rng: np.random.Generator, weights: FloatArray) -> int:
    return int(rng.choice(len(weights), p=weights / weights.sum()))
