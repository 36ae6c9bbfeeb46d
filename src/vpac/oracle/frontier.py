"""The mean–variance frontier: for each ψ the best stationary policy found by exact ascent, with a certificate.

The objective U = mean − ψ · variance has many local optima. An ascent computes the exact gain of every change of a single state
(`vpac.oracle.changes`), makes the best changes of many states together, and ends when no change of a single state improves. In
larger MDPs most ascents use the slopes of U instead, which need a few sparse solutions. A last step adjusts all probabilities
between zero and one together. Ascents begin

- along a sequence of ψ that starts far below the smallest one and doubles, from the best policy so far, softened: with a high
  ψ from the start a poor policy would end by standing still;
- from ascents of E[G − ψ (G − y)²] for several y: U is its maximum over y, at y = E[G], and the mean of the best policy lies
  between the best U so far and the largest possible mean;
- from the risk-neutral optimum, the uniform and some random policies, alone and mixed with the best one;
- from the best of all deterministic policies, if there are few enough to try them all;
- at the end every ψ may use any policy that was found for another.

The result for a ψ is never worse than the risk-neutral policy nor, in small MDPs, than the best deterministic one. Finding the
global optimum is NP-hard in general; `vpac.oracle.upper_bound` bounds the distance to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.oracle import linear
from vpac.oracle.changes import Resolvents, single_state_gains
from vpac.oracle.gradient import slopes
from vpac.oracle.linear import Chain, OracleError
from vpac.oracle.moments import Moments, VarianceOf, check_gamma, evaluate, moments_of
from vpac.oracle.occupancy import endable, stays_forever, surely_ends, without_unmet
from vpac.oracle.optimal import every_deterministic, optimal_policy
from vpac.oracle.policies import check_policy, check_price, uniform
from vpac.threads import one_blas_thread
from vpac.typing import BoolArray, FloatArray, IntArray

RUNGS_BELOW = 6
"""Number of times ψ is halved below the smallest requested one."""
MOST_RUNGS = 60
"""Longest sequence of doublings between two requested ψ."""
SOFTENING = 0.05
"""Share of the uniform policy that is mixed in before an ascent: unvisited states have no gradient."""
REFERENCES = 5
"""Number of y for which E[G − ψ (G − y)²] is maximised."""
MOST_RANDOM, SMALL_MDP = 20, 700
"""Factor of the number of random starts in small MDPs: `SMALL_MDP` / (states · actions), at most the first."""
TO, FROM = np.array([1.0, 0.5, 0.2, 0.05, 0.01, 0.002]), np.array([-1.0, -0.5, -0.2, -0.05, -0.01])
"""Shares of probability that an ascent moves to an action, and shares of an action's own probability that it removes."""
EXACT_STATES = 320
"""Limit of states; with more, only ascents from a neighbouring ψ and the last compute exact gains, the others follow slopes."""
ROUGH, FINE = 1e-5, 1e-11
"""Gains, relative to 1 + |U|, at which a search from another start and the last ascent stop."""
MOST_ASCENT_ROUNDS, FEW_ASCENT_ROUNDS = 200, 20
"""Most rounds of an ascent, and of one along slopes."""
STEEPEST_PAIRS, STEEPEST_STATES, BLOCK_STATES = 24, 1500, 125
"""Limits with too many states for dense inverses: the states with the steepest slopes whose changes are all computed, and the
size of a block of them; with too many to factorise, the pairs of state and action that are tried one by one."""


@dataclass(frozen=True)
class Certificate:
    """Evidence that the policy of a frontier is a local optimum."""

    gradient: float
    """Norm of the exact gradient over policies: of the steepest slope ∂U / ∂(share moved to an action) of each state."""
    improvement: float
    """The largest gain in U of any checked change of a single state's probabilities."""
    checked: int
    """Pairs of state and action to which shares of probability were moved. Up to 1500 states these are all; up to 20 000
    states those of the 1500 states with the steepest slopes; beyond, the 24 steepest pairs, with the whole probability only."""


@dataclass(frozen=True)
class Frontier:
    """Mean, variance and policy for each ψ."""

    psis: FloatArray
    """ψ, ascending."""
    means: FloatArray
    """Mean return of each policy."""
    variances: FloatArray
    """Variance of the return of each policy, as defined by `variance_of`."""
    policies: FloatArray = field(repr=False)
    """The policies, [points, S, A]."""
    variance_of: VarianceOf
    """The variance that is penalised and reported."""
    certificates: tuple[Certificate, ...] = ()
    """A certificate for each policy."""

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
    mdp: FiniteMDP, psis: Sequence[float] | float, gamma: float, variance_of: VarianceOf = "return", *, restarts: int = 2,
    seed: int = 0, progress: Callable[[float], None] = lambda done: None,
) -> Frontier:  # fmt: skip
    """The best stationary policy found for each ψ, with a certificate of local optimality.

    Args:
        mdp: the process.
        psis: values of ψ, not negative, in any order; the result has them ascending.
        gamma: discount factor in [0, 1]; with 1 an end must be reachable after every action.
        variance_of: the penalised variance; the default is that of the whole return.
        restarts: ascents from random policies at each ψ, in addition to those from known ones; small MDPs get more of them.
        seed: seed of the random policies.
        progress: called with the finished share.
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
            search.climb(psi, _soft(search.best(psi)), exact=psi in prices)
            if psi in prices:
                search.improve(psi, random, restarts)
            progress((done + 1) / len(ladder))
        found = [search.finish(psi) for psi in prices]
        found = [search.finish(psi) for psi in prices] if len(prices) > 1 else found
        certificates = tuple(certify(m, psi, variance_of) for m, psi in zip(found, prices, strict=True))
    means, variances = [float(m.mean) for m in found], [float(m.variance_of(variance_of)) for m in found]
    policies = np.stack([m.policy for m in found])
    return Frontier(prices, np.array(means), np.array(variances), policies, variance_of, certificates)


def best_policy(mdp: FiniteMDP, psi: float, gamma: float, variance_of: VarianceOf = "return") -> FloatArray:
    """The best stationary policy found for one ψ, [S, A]."""
    return np.asarray(frontier(mdp, [psi], gamma, variance_of).policies[0], np.float64)


def _ladder(prices: FloatArray) -> FloatArray:
    """The requested ψ and, below and between them, a sequence that doubles."""
    positive = prices[prices > 0.0]
    if not len(positive):
        return prices
    rungs = int(np.ceil(min(np.log2(positive[-1]) - np.log2(positive[0]), MOST_RUNGS))) + RUNGS_BELOW
    return np.unique(np.concatenate([prices, positive[-1] * 0.5 ** np.arange(1, rungs)]))


def _soft(policy: FloatArray) -> FloatArray:
    return np.asarray((1.0 - SOFTENING) * policy + SOFTENING / policy.shape[-1], np.float64)


class _Search:
    """A pool of policies with their means and variances, which grows as ψ after ψ is searched."""

    def __init__(self, mdp: FiniteMDP, gamma: float, variance_of: VarianceOf) -> None:
        self.mdp, self.gamma, self.variance_of = mdp, gamma, variance_of
        self.policies: list[FloatArray] = []
        self.means: list[float] = []
        self.variances: list[float] = []
        self.climbed: set[tuple[float, bytes]] = set()
        self.neutral = optimal_policy(mdp, gamma)
        self._add(evaluate(mdp, self.neutral, gamma))
        self.deterministic = every_deterministic(mdp, gamma, variance_of)

    def _add(self, moments: Moments) -> None:
        self.policies.append(moments.policy)
        self.means.append(float(moments.mean))
        self.variances.append(float(moments.variance_of(self.variance_of)))

    def best(self, psi: float) -> FloatArray:
        """The best policy of the pool at this ψ."""
        return self.policies[int(np.argmax(self._objectives(psi)))]

    def _objectives(self, psi: float) -> FloatArray:
        return np.array(self.means) - psi * np.array(self.variances)

    def climb(self, psi: float, policy: FloatArray, reference: float | None = None, exact: bool = False) -> FloatArray:
        """Ascend, first with a reference if there is one, and keep the result.

        Slopes are followed if there are many states, or with `exact` only if there are too many for dense inverses.
        """
        exact = self.mdp.n_states <= (linear.DENSE_STATES if exact else EXACT_STATES)
        how: dict[str, Any] = {"most_steps": MOST_ASCENT_ROUNDS if exact else FEW_ASCENT_ROUNDS, "by_slopes": not exact}
        if reference is not None:
            policy = _ascend(self.mdp, policy, psi, self.gamma, self.variance_of, ROUGH, reference, **how).policy
            if (psi, policy.tobytes()) in self.climbed:  # nearby references lead to the same policies
                return policy
            self.climbed.add((psi, policy.tobytes()))
        moments = _ascend(self.mdp, policy, psi, self.gamma, self.variance_of, ROUGH, **how)
        self._add(moments)
        return moments.policy

    def improve(self, psi: float, random: np.random.Generator, restarts: int) -> None:
        """Search from every known and some random starts."""
        mdp, count = self.mdp, REFERENCES
        every, large = uniform(mdp), mdp.n_states > linear.DENSE_STATES
        self.climb(psi, self.neutral)
        self.climb(psi, every)
        if self.deterministic is not None:
            actions, means, variances = self.deterministic
            self.climb(psi, self._ending(np.eye(mdp.n_actions)[actions[int(np.argmax(means - psi * variances))]]))
        low, high, policy = float(self._objectives(psi).max()), max(self.means), self.neutral
        if references := self.variance_of == "return" and psi > 0.0 and not large:
            for k, share in enumerate((np.arange(count)[::-1] + 0.5) / count):
                policy = self.climb(psi, _soft(policy), low + share * (high - low))
                if k % 3 == 1:
                    self.climb(psi, every, low + share * (high - low))
        few = min(restarts, 1) if large else restarts * int(np.clip(SMALL_MDP // self.neutral.size, 1, MOST_RANDOM))
        for k in range(few):
            drawn = random.dirichlet(np.ones(mdp.n_actions), mdp.n_states)
            if k % 2 and references:
                self.climb(psi, drawn, random.uniform(low, high))
            else:
                self.climb(psi, 0.7 * self.best(psi) + 0.3 * drawn)

    def finish(self, psi: float) -> Moments:
        """The best policy at this ψ, brought as close to its local optimum as rounding allows."""
        moments = evaluate(self.mdp, self.best(psi), self.gamma)
        for _ in range(4):
            climbed = _ascend(self.mdp, moments.policy, psi, self.gamma, self.variance_of, FINE)
            adjusted = _adjust(climbed, psi, self.variance_of)
            if _gains_little(moments, adjusted, psi, self.variance_of):
                break
            moments = adjusted
        self._add(moments)
        return moments

    def _ending(self, policy: FloatArray) -> FloatArray:
        """The policy, made risk-neutral in unvisited states from which it would never end."""
        if self.gamma < 1.0:
            return policy
        return np.where(surely_ends(self.mdp, policy)[:, None], policy, self.neutral)


def ascend(
    mdp: FiniteMDP, policy: FloatArray, psi: float, gamma: float, variance_of: VarianceOf = "return",
    most_steps: int = MOST_ASCENT_ROUNDS,
) -> FloatArray:  # fmt: skip
    """The local optimum of mean − ψ · variance that changes of single states lead to from a softened `policy`."""
    with one_blas_thread():
        return _ascend(mdp, _soft(policy), psi, gamma, variance_of, FINE, most_steps=most_steps).policy


def _objective(moments: Moments, psi: float, variance_of: VarianceOf, reference: float | None = None) -> float:
    """mean − ψ · variance, or E[G − ψ (G − y)²]."""
    off = 0.0 if reference is None else float(moments.mean) - reference
    return float(moments.mean - psi * (moments.variance_of(variance_of) + off**2))


def _gains_little(before: Moments, after: Moments, psi: float, variance_of: VarianceOf) -> bool:
    old, new = _objective(before, psi, variance_of), _objective(after, psi, variance_of)
    return new - old <= FINE * (1.0 + abs(old))


def _ascend(
    mdp: FiniteMDP, policy: FloatArray, psi: float, gamma: float, variance_of: VarianceOf, tolerance: float,
    reference: float | None = None, most_steps: int = MOST_ASCENT_ROUNDS, by_slopes: bool = False,
) -> Moments:  # fmt: skip
    """Change single states, as many at once as gain at least as much as the best one alone, until none gains."""
    exact = mdp.n_states <= linear.DENSE_STATES and not by_slopes
    chain = Chain(mdp, check_policy(mdp, policy), sparse=not exact)
    moments = moments_of(chain, gamma)
    now, count = _objective(moments, psi, variance_of, reference), mdp.n_states
    for _ in range(most_steps):
        least = tolerance * (1.0 + abs(now))
        gain, row = (_exact_moves if exact else _steepest_moves)(moments, chain, psi, variance_of, reference)
        worth = least if exact else least / mdp.n_states  # slopes of many states add up
        order = np.argsort(-gain, kind="stable")[: int((gain > worth).sum())]
        needed = 0.999 * float(gain.max()) if exact else least
        for chosen, share in _trials(order, count, exact):
            trial = moments.policy.copy()
            trial[chosen] += share * (row[chosen] - trial[chosen])
            if gamma == 1.0 and stays_forever(mdp, trial).any():
                continue
            changed = Chain(mdp, trial, sparse=not exact)
            found = moments_of(changed, gamma)
            if (then := _objective(found, psi, variance_of, reference)) >= now + needed or (
                len(chosen) == 1 and then > now + 0.1 * least
            ):
                moments, chain, now, count = found, changed, then, 2 * len(chosen)
                break
        else:
            break
    return moments


def _trials(order: IntArray, count: int, exact: bool) -> Iterator[tuple[IntArray, float]]:
    """The states to change together and how far: fewer and fewer and then, if gains are only known locally, smaller steps."""
    size = min(count, len(order))
    while size:
        yield order[:size], 1.0
        size //= 2 if exact else 4
    if not exact and len(order):
        yield from ((order, share) for share in (0.3, 0.1, 0.03, 0.01, 0.001))


def _shares(policy: FloatArray) -> FloatArray:
    """Shares t for `single_state_gains`, [T, S, A]."""
    own = np.divide(policy, 1.0 - policy, out=np.zeros_like(policy), where=policy < 1.0)
    return np.concatenate([np.broadcast_to(TO[:, None, None], (len(TO), *policy.shape)), FROM[:, None, None] * own])


def _exact_moves(
    moments: Moments, chain: Chain, psi: float, variance_of: VarianceOf, reference: float | None
) -> tuple[FloatArray, FloatArray]:
    """The largest gain of changing each state alone, [S], and its new probabilities, [S, A]."""
    shares, states = _shares(moments.policy), np.arange(moments.mdp.n_states)
    of = Resolvents(moments, chain)
    gains = single_state_gains(moments, psi, variance_of, shares, reference, resolvents=of)
    gains = gains.swapaxes(0, 1).reshape(len(states), -1)
    best = gains.argmax(axis=1)
    which, action = divmod(best, moments.mdp.n_actions)
    share = shares[which, states, action]
    row = (1.0 - share)[:, None] * moments.policy
    row[states, action] += share
    row = np.where(row < 1e-15, 0.0, row)
    return gains[states, best], row / row.sum(axis=-1, keepdims=True)


def _steepest_moves(
    moments: Moments, chain: Chain, psi: float, variance_of: VarianceOf, reference: float | None
) -> tuple[FloatArray, FloatArray]:
    """The steepest slope of each state, [S], and the action of that slope, [S, A]."""
    slope = _slopes(moments, chain, psi, variance_of, reference)
    return slope.max(axis=-1), np.eye(moments.mdp.n_actions)[slope.argmax(axis=-1)]


def _slopes(
    moments: Moments, chain: Chain, psi: float, variance_of: VarianceOf, reference: float | None = None
) -> FloatArray:
    """∂U / ∂(share of the probability of s that moves to a), [S, A]."""
    by_action = slopes(moments, chain, psi, variance_of, reference)
    relative = by_action - (moments.policy * by_action).sum(axis=-1, keepdims=True)
    return np.where(moments.mdp.terminal[:, None], 0.0, relative)


def _adjust(moments: Moments, psi: float, variance_of: VarianceOf) -> Moments:
    """L-BFGS over the logarithms of the probabilities that are neither zero nor one."""
    from scipy.optimize import minimize

    policy = moments.policy
    mixed = (policy > 0.0) & (policy < 1.0) & ~moments.mdp.terminal[:, None]
    if not mixed.any():
        return moments
    states, best = mixed.any(axis=-1), moments
    scale = 1.0 + abs(_objective(moments, psi, variance_of))

    def loss(logits: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        weights = np.where(mixed, 0.0, policy)
        weights[mixed] = np.exp(logits)
        weights[states] /= weights[states].sum(axis=-1, keepdims=True)
        chain = Chain(moments.mdp, check_policy(moments.mdp, weights))
        found = moments_of(chain, moments.gamma)
        if _objective(found, psi, variance_of) > _objective(best, psi, variance_of):
            best = found
        slope = weights * _slopes(found, chain, psi, variance_of)
        return -_objective(found, psi, variance_of) / scale, -slope[mixed] / scale

    steps = MOST_ASCENT_ROUNDS if moments.mdp.n_states <= linear.DENSE_STATES else FEW_ASCENT_ROUNDS
    minimize(loss, np.log(policy[mixed]), jac=True, method="L-BFGS-B", bounds=[(-40.0, 10.0)] * int(mixed.sum()),
             options={"maxiter": steps, "ftol": 1e-16, "gtol": 1e-13})  # fmt: skip
    return best


def certify(moments: Moments, psi: float, variance_of: VarianceOf = "return") -> Certificate:
    """The gradient of U at a policy, and the largest gain of changing a single state."""
    chain = Chain(moments.mdp, moments.policy)
    slope = _slopes(moments, chain, psi, variance_of)
    steepest = float(np.hypot.reduce(slope.max(axis=-1)))  # no overflow at any ψ
    alive = ~moments.mdp.terminal
    if moments.mdp.n_states <= linear.DENSE_STATES:
        gain = _exact_moves(moments, chain, psi, variance_of, None)[0]
        return Certificate(steepest, max(0.0, float(gain.max())), int(alive.sum()) * moments.mdp.n_actions)
    if moments.mdp.n_states <= linear.WHOLE_FACTORS:
        steep = np.argsort(-np.where(alive, slope.max(axis=-1), -np.inf), kind="stable")[:STEEPEST_STATES]
        chosen, of, best = np.sort(steep[alive[steep]]), Resolvents(moments, chain), 0.0
        for first in range(0, len(chosen), BLOCK_STATES):
            block = chosen[first : first + BLOCK_STATES]
            shares = _shares(moments.policy[block])
            gains = single_state_gains(moments, psi, variance_of, shares, None, block, of)
            best = max(best, float(gains.max()))
        return Certificate(steepest, best, len(chosen) * moments.mdp.n_actions)
    now, most, tried = _objective(moments, psi, variance_of), 0.0, moments.policy < 1.0
    order = np.argsort(-np.where(tried & alive[:, None], slope, -np.inf), axis=None)[:STEEPEST_PAIRS]
    for state, action in zip(*np.unravel_index(order, slope.shape), strict=True):
        trial = moments.policy.copy()
        trial[state] = np.eye(moments.mdp.n_actions)[action]
        if moments.gamma < 1.0 or not stays_forever(moments.mdp, trial).any():
            most = max(most, _objective(evaluate(moments.mdp, trial, moments.gamma), psi, variance_of) - now)
    return Certificate(steepest, most, len(order))


def _that_ends(mdp: FiniteMDP) -> FiniteMDP:
    """γ = 1: the MDP without unreachable states, if a policy that takes every action terminates with probability 1."""
    trimmed = without_unmet(mdp)
    states, allowed = endable(trimmed)
    trap: BoolArray = (~allowed.all(axis=-1) | ~states) & ~trimmed.terminal
    if trap.any():
        raise OracleError(
            f"with gamma = 1 some action in state {int(np.argmax(trap))} may lead where no policy ends: the search takes every "
            "action now and then; use gamma below 1"
        )
    return trimmed
