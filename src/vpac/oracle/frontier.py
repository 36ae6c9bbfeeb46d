"""The mean–variance frontier: for each price ψ the best stationary policy that exact ascent finds.

The objective has many local optima and plateaus, so the search is thorough where it can be:

- natural-gradient ascent, the softmax gradient divided by occupancy · π, which does not stall where π(a|s) is small;
- along a ladder of prices that starts far below the smallest ψ and doubles, each rung from the best policy so far: a
  high price put on a poor policy at once is best paid by standing still;
- from policies that are greedy in Q − ψσ, as policy iteration would improve them if the risk ahead were all there is;
- from the risk-neutral optimum, the uniform and some random policies;
- from the best of all deterministic policies, where there are few enough to try them all;
- at the end every ψ may take any policy that was found for another.

What is returned for a ψ is therefore never worse than the risk-neutral policy nor, on small processes, than the best
deterministic one. It is not proven to be the global optimum: that problem is NP-hard in general.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.oracle.gradient import on_policy_weights
from vpac.oracle.linear import OracleError
from vpac.oracle.moments import Moments, VarianceOf, check_gamma, evaluate
from vpac.oracle.occupancy import end_surely, endable, without_unmet
from vpac.oracle.optimal import every_deterministic, optimal_policy
from vpac.oracle.policies import check_price, greedy, softmax, uniform
from vpac.threads import one_blas_thread
from vpac.typing import FloatArray

MOST_ITERATIONS = 30
"""Rounds of policy iteration with Q − ψσ at each price; they need not settle."""
RUNGS_BELOW = 6
"""How many times the price is halved below the smallest one that is asked for."""
MOST_RUNGS = 60
"""How far apart the prices may be, in doublings, for the ladder to reach from one to the other."""
SMALLEST_LOGIT = -40.0


@dataclass(frozen=True)
class Frontier:
    """Mean, variance and policy for each price of variance."""

    psis: FloatArray
    """Prices of variance, ascending."""
    means: FloatArray
    """Mean return of each policy."""
    variances: FloatArray
    """Variance of the return of each policy, in the meaning `variance_of`."""
    policies: FloatArray
    """The policies, [points, S, A]."""
    variance_of: VarianceOf
    """Which variance is penalised and reported."""

    @property
    def objectives(self) -> FloatArray:
        """mean − ψ · variance at each point."""
        return self.means - self.psis * self.variances

    @property
    def sharpe(self) -> FloatArray:
        """Mean over standard deviation at each point; inf where the return does not vary."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.means / np.sqrt(self.variances), np.float64)


def frontier(
    mdp: FiniteMDP,
    psis: Sequence[float] | float,
    gamma: float,
    variance_of: VarianceOf = "return",
    *,
    restarts: int = 2,
    seed: int = 0,
    progress: Callable[[float], None] = lambda done: None,
) -> Frontier:
    """The best stationary policy found for each ψ.

    Args:
        mdp: the process.
        psis: prices of variance, not negative, in any order; the result has them ascending.
        gamma: discount factor in [0, 1]; with 1 every action must leave a way to an end.
        variance_of: the variance that is penalised; the default is the one that a user of the policy sees.
        restarts: ascents from random policies at each ψ, beside those from known ones.
        seed: of the random policies.
        progress: called with the share that is done.
    """
    gamma = check_gamma(gamma)
    asked: Any = psis if isinstance(psis, list | tuple | np.ndarray) else [psis]
    try:
        prices = np.sort(np.array([check_price(psi) for psi in asked]))
    except UserError:
        prices = np.zeros(0)
    if not len(prices):
        raise UserError(f"psis must be finite numbers that are not negative, at least one, got {psis!r}")
    if not (isinstance(restarts, int) and isinstance(seed, int) and restarts >= 0 and seed >= 0):
        raise UserError(f"restarts and seed must be whole numbers from 0 up, got {restarts!r} and {seed!r}")
    if gamma == 1.0:
        mdp = _that_ends(mdp)
    random, ladder = np.random.default_rng(seed), _ladder(prices)
    with one_blas_thread():
        search = _Search(mdp, gamma, variance_of)
        for done, psi in enumerate(ladder):
            search.iterate(psi)
            search.climb(psi, [search.best(psi)])
            if psi in prices:
                search.improve(psi, random, restarts)
            progress((done + 1) / len(ladder))
    chosen = [search.best(psi) for psi in prices]
    moments = [evaluate(mdp, policy, gamma) for policy in chosen]
    means, variances = [float(m.mean) for m in moments], [float(m.variance_of(variance_of)) for m in moments]
    return Frontier(prices, np.array(means), np.array(variances), np.stack(chosen), variance_of)


def best_policy(mdp: FiniteMDP, psi: float, gamma: float, variance_of: VarianceOf = "return") -> FloatArray:
    """The best stationary policy found for one price of variance, [S, A]."""
    return np.asarray(frontier(mdp, [psi], gamma, variance_of).policies[0], np.float64)


def _ladder(prices: FloatArray) -> FloatArray:
    """The prices and, below and between them, rungs that double."""
    positive = prices[prices > 0.0]
    if not len(positive):
        return prices
    rungs = int(np.ceil(min(np.log2(positive[-1]) - np.log2(positive[0]), MOST_RUNGS))) + RUNGS_BELOW
    return np.unique(np.concatenate([prices, positive[-1] * 0.5 ** np.arange(1, rungs)]))


class _Search:
    """A pool of policies with their means and variances, which grows as ψ after ψ is searched."""

    def __init__(self, mdp: FiniteMDP, gamma: float, variance_of: VarianceOf) -> None:
        self.mdp, self.gamma, self.variance_of = mdp, gamma, variance_of
        self.policies: list[FloatArray] = []
        self.means: list[float] = []
        self.variances: list[float] = []
        self.neutral = optimal_policy(mdp, gamma)
        self._add(self.neutral)
        self.deterministic = every_deterministic(mdp, gamma, variance_of)

    def _add(self, policy: FloatArray) -> None:
        moments = evaluate(self.mdp, policy, self.gamma)
        self.policies.append(policy)
        self.means.append(float(moments.mean))
        self.variances.append(float(moments.variance_of(self.variance_of)))

    def best(self, psi: float) -> FloatArray:
        """The best policy of the pool at this price."""
        return self.policies[int(np.argmax(np.array(self.means) - psi * np.array(self.variances)))]

    def improve(self, psi: float, random: np.random.Generator, restarts: int) -> None:
        """Search from every known and some random starts."""
        shape = (self.mdp.n_states, self.mdp.n_actions)
        starts = [self.neutral, uniform(self.mdp)]
        if self.deterministic is not None:
            actions, means, variances = self.deterministic
            starts.append(greedy(np.eye(shape[1])[actions[int(np.argmax(means - psi * variances))]]))
        starts += [random.dirichlet(np.ones(shape[1]), shape[0]) for _ in range(restarts)]
        self.climb(psi, starts)

    def iterate(self, psi: float) -> None:
        """Policy iteration with Q − ψσ in place of Q: no ascent, but it moves all states at once, past local optima."""
        moments = evaluate(self.mdp, self.best(psi), self.gamma)
        for _ in range(MOST_ITERATIONS):
            policy = greedy(np.nan_to_num(moments.action_value - psi * moments.action_variance, nan=-np.inf))
            if np.array_equal(policy, moments.policy) or not _ends(policy, self.mdp, self.gamma):
                return
            self._add(policy)
            moments = evaluate(self.mdp, policy, self.gamma)

    def climb(self, psi: float, starts: Iterable[FloatArray]) -> None:
        """Ascend from each start and keep it, what the ascent found, and the nearest deterministic policy."""
        for start in starts:
            found = ascend(self.mdp, start, psi, self.gamma, self.variance_of)
            for policy in (start, found, greedy(found)):
                if policy is found or _ends(policy, self.mdp, self.gamma):
                    self._add(policy)


def ascend(
    mdp: FiniteMDP,
    policy: FloatArray,
    psi: float,
    gamma: float,
    variance_of: VarianceOf = "return",
    most_steps: int = 2000,
    softening: float = 0.01,
) -> FloatArray:
    """Natural-gradient ascent of mean − ψ · variance with a doubling step, from a softened `policy`."""
    logits = np.log((1.0 - softening) * policy + softening / mdp.n_actions)
    moments = evaluate(mdp, softmax(logits), gamma)
    best = _objective(moments, psi, variance_of)
    step, idle = 1.0, 0
    for _ in range(most_steps):
        direction = _natural_direction(moments, psi, variance_of)
        size = np.abs(direction).max()
        if size == 0.0:
            break
        step = min(step, 30.0 / size)
        while step * size > 1e-9:
            trial = np.maximum(logits + step * direction, SMALLEST_LOGIT)
            trial -= trial.max(axis=-1, keepdims=True)
            trial_moments = evaluate(mdp, softmax(trial), gamma)
            if (found := _objective(trial_moments, psi, variance_of)) > best:
                break
            step /= 4.0
        else:
            break
        idle = idle + 1 if found - best < 1e-12 * (1.0 + abs(best)) else 0
        logits, moments, best = trial, trial_moments, found
        step *= 2.0
        if idle >= 10:
            break
    return moments.policy


def _objective(moments: Moments, psi: float, variance_of: VarianceOf) -> float:
    return float(moments.mean - psi * moments.variance_of(variance_of))


def _natural_direction(moments: Moments, psi: float, variance_of: VarianceOf) -> FloatArray:
    """The softmax gradient divided by occupancy · π: how much better each action is, given its state."""
    policy, visits = moments.policy, moments.visitation[:, None]
    total = on_policy_weights(moments, policy, psi, "exact", variance_of)
    per_visit = np.divide(total, policy * visits, out=np.zeros_like(total), where=(policy > 0.0) & (visits > 0.0))
    per_visit[moments.mdp.terminal] = 0.0
    return np.asarray(per_visit - (policy * per_visit).sum(axis=-1, keepdims=True), np.float64)


def _that_ends(mdp: FiniteMDP) -> FiniteMDP:
    """γ = 1: the process without what is never met, if a policy that takes every action surely ends in it."""
    trimmed = without_unmet(mdp)
    states, allowed = endable(trimmed)
    trap = (~allowed.all(axis=-1) | ~states) & ~trimmed.terminal
    if trap.any():
        raise OracleError(
            f"with gamma = 1 some action in state {int(np.argmax(trap))} may lead where no policy ends: the search takes every "
            "action now and then; use gamma below 1"
        )
    return trimmed


def _ends(policy: FloatArray, mdp: FiniteMDP, gamma: float) -> bool:
    """Whether the policy has a mean return."""
    return gamma < 1.0 or bool(end_surely(mdp, policy[None])[0])
