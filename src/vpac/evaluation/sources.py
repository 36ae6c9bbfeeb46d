"""Where the variance of the return comes from: start state, the policy's draws, the environment's noise.

The definition is that of `vpac.oracle.sources`: the law of total variance, applied to the start, to every action given the
past, and to every answer of the environment given past and action. It is estimated by a nested design. Each start is played
twice; the covariance of the two returns is the start's part, and half their mean squared difference is the rest. In the first
of the two a step t is picked at random, and the episode is led there again by its seeds and its actions. From there

    policy        two actions are drawn; d₁ = G(a) − G(a') with one continuation's random numbers, d₂ with another's;
    environment   one action is answered twice; d₁, d₂ likewise.

½ E[d₁d₂] is the variance of the expected return over actions (answers), because the continuations are independent of one
another; within a pair they share random numbers, which changes nothing about the mean and makes d small. Multiplied by
γ^{2t} and the number of steps that t was picked from, it estimates the sum over the episode. Parts that are known to add up
to the rest are made to, with the weights that have the least variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.evaluation.actors import gamma_of, global_noise_kept
from vpac.evaluation.branches import Walker, exact_sources
from vpac.evaluation.environments import what_it_is
from vpac.evaluation.progress import shown
from vpac.learners.checks import MOST_EPISODES, whole
from vpac.oracle.moments import check_gamma
from vpac.oracle.sources import VarianceSources
from vpac.risk.intervals import Interval, student_quantile
from vpac.typing import FloatArray

__all__ = ["PARTS", "Sources", "variance_sources"]

PARTS = ("start", "policy", "environment")
CHECKED = 10
"""Episodes that are repeated as a whole, to see whether the environment obeys its seeds."""


@dataclass(frozen=True)
class Sources:
    """Parts of the variance of the return, with intervals."""

    total: Interval
    """Var(G)."""
    parts: dict[str, Interval]
    """Of "start", "policy" and "environment"; their estimates add up to the total. Estimates may be below zero by chance."""
    shares: dict[str, Interval]
    """The same over the total."""
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
    rows = np.zeros((starts, 4))
    with global_noise_kept(), shown(progress, starts, what_it_is(env)) as tell:
        for number, child in enumerate(np.random.SeedSequence(whole(seed, "seed")).spawn(starts)):
            rows[number] = _one_start(walker, child, check=number < CHECKED)
            tell(number + 1)
    walker.close()
    return _estimate(rows, level, gamma, exact_sources(agent, walker.env, gamma, deterministic), walker.notes())


def _one_start(walker: Walker, seed: np.random.SeedSequence, check: bool) -> FloatArray:
    """Returns of two episodes, and estimates of what policy and environment add after the start."""
    begin, first, second, pick, *more = seed.spawn(10)
    way = walker.episode(begin, first)
    again = walker.episode(begin, second)
    if check:
        walker.check(way, begin, first)
    rng = np.random.default_rng(pick)
    t = int(rng.integers(len(way.actions)))
    weight = 0.5 * walker.gamma ** (2 * t) * len(way.actions)

    def to_go(action: Any, answer: np.random.SeedSequence | None, rest: np.random.SeedSequence) -> float:
        return walker.branch(way, begin, first, t, action, answer, rest)

    (one, other), noisy = walker.look(way, begin, first, t, more[:2])
    chosen = answered = 0.0
    if not np.array_equal(one, other):
        pairs = [to_go(one, None, rest) - to_go(other, None, rest) for rest in more[2:4]]
        chosen = weight * pairs[0] * pairs[1]
    if noisy:
        answers = more[4:6]
        rests = np.random.SeedSequence(int(more[4].generate_state(1)[0])).spawn(2)
        pairs = [to_go(one, answers[0], rest) - to_go(one, answers[1], rest) for rest in rests]
        answered = weight * pairs[0] * pairs[1]
    return np.array([way.total, again.total, chosen, answered])


def _estimate(
    rows: FloatArray, level: float, gamma: float, exact: VarianceSources | None, notes: tuple[str, ...]
) -> Sources:
    one, two, chosen, answered = rows.T
    n = len(rows)
    centre = rows[:, :2].mean()
    bessel = n / (n - 0.5)  # the common mean is estimated from 2n returns
    start = bessel * (one - centre) * (two - centre) + (bessel - 1.0) * 0.5 * (one - two) ** 2
    rest = 0.5 * (one - two) ** 2
    gap = rest - chosen - answered  # has mean zero
    spread = float(np.var(gap))
    share = -float(np.cov(chosen, gap, ddof=0)[0, 1]) / spread if spread > 0.0 else 0.0
    columns = {
        "start": start, "policy": chosen + share * gap, "environment": answered + (1.0 - share) * gap
    }  # fmt: skip
    total = start + rest
    t = student_quantile(level, n - 1)

    def around(estimate: float, influence: FloatArray) -> Interval:
        half = t * float(influence.std(ddof=1)) / np.sqrt(n)
        return Interval(estimate, float(max(estimate - half, 0.0)), float(max(estimate + half, 0.0)))

    whole_ = float(total.mean())
    parts = {name: around(float(column.mean()), column) for name, column in columns.items()}
    if whole_ > 0.0:
        shares = {
            name: around(float(column.mean()) / whole_, (column - column.mean() / whole_ * total) / whole_)
            for name, column in columns.items()
        }
    else:
        shares = dict.fromkeys(PARTS, Interval(np.nan, np.nan, np.nan))
    return Sources(around(whole_, total), parts, shares, exact, n, gamma, notes)
