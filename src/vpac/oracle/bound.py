"""An upper bound of mean − ψ · variance over all stationary policies.

With the reward means r, the visits d(s,a) = E Σ γ^k 1[S_k=s, A_k=a] and e(s,a), the same with γ^{2k}, and with the collected
return z(s,a) = E Σ γ^k G_{0:k} 1[S_k=s, A_k=a], the first two moments are linear,

    E[G] = Σ r d        E[G²] = Σ 2 r z + E[R²|s,a] e

and so are the flow equations of each state:

    Σ_a d(s',a) = d_0(s') + γ Σ P d       Σ_a e(s',a) = d_0(s') + γ² Σ P e       Σ_a z(s',a) = γ Σ P (z + r e)

A stationary policy adds d(s,a) = π(a|s) d(s), and the same for e, z and all sums of them. Without this constraint it is a
linear programme. With probabilities in boxes, l ≤ π(a|s) ≤ u, the constraint is relaxed to l m(s) ≤ m(s,a) ≤ u m(s) for each
non-negative measure m: d, e, d − e, and z − low · d and high · d − z, as G_{0:k} lies between low(s) and high(s). E[G]² is
bounded by its chord on an interval of E[G]. Branch and bound splits boxes and intervals where the solution is farthest from a
policy. If no state can be visited twice, some deterministic policy is optimal, so boxes are split into actions, and policies
with memory (`vpac.oracle.remembering`) give another bound. Rewards are the TD errors of a good policy, as
G = V(S_0) + Σ γ^k δ_k: they are small, and so are low and high. The programmes are solved to about 1e-7.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vpac.checks import whole
from vpac.envs.finite_mdp import FiniteMDP
from vpac.oracle.frontier import frontier
from vpac.oracle.linear import OracleError, backup
from vpac.oracle.moments import check_gamma, evaluate
from vpac.oracle.occupancy import without_unmet
from vpac.oracle.policies import check_policy, check_price
from vpac.oracle.remembering import best_remembering
from vpac.typing import FloatArray

TOLERANCE = 1e-6
"""Gaps below this, relative to 1 + |U|, count as zero."""
LAYERS = 4000
"""Steps after which the range of the collected return must have converged, or counts as unbounded."""


@dataclass(frozen=True)
class Bound:
    """An upper bound of mean − ψ · variance, and the best known policy."""

    bound: float
    """No stationary policy has a larger objective."""
    objective: float
    """mean − ψ · variance of `policy`."""
    policy: FloatArray
    """The best known policy, [S, A]."""
    programmes: int
    """Number of linear programmes that were solved."""

    @property
    def gap(self) -> float:
        """The most by which a stationary policy can be better than `policy`."""
        return self.bound - self.objective


@dataclass(frozen=True, order=True)
class _Node:
    """A box of policies and an interval of their means."""

    negative_bound: float
    order: int
    low: FloatArray = field(compare=False)
    high: FloatArray = field(compare=False)
    interval: tuple[float, float] = field(compare=False)
    solution: FloatArray = field(compare=False)
    """d, e and z, [3, S, A]."""


def upper_bound(
    mdp: FiniteMDP, psi: float, gamma: float, policy: FloatArray | None = None, *, programmes: int = 200
) -> Bound:
    """Bound mean − ψ · variance of the return over all stationary policies, including stochastic ones.

    Args:
        mdp: the process.
        psi: price of variance.
        gamma: discount factor in [0, 1].
        policy: a policy to compare with; default: the one that `frontier` finds.
        programmes: linear programmes to solve; more lower the bound. A gap may stay, also in tiny worlds with cycles.
    """
    gamma, psi = check_gamma(gamma), check_price(psi)
    whole(programmes, "programmes", 1)
    if policy is None:
        policy = frontier(mdp, [psi], gamma).policies[0]
    mdp, policy = without_unmet(mdp) if gamma == 1.0 else mdp, check_policy(mdp, policy)
    search = _Branching(mdp, psi, gamma, policy)
    found = search.run(programmes)
    if search.acyclic and found.gap > TOLERANCE * (1.0 + abs(found.objective)):
        found = replace(found, bound=min(found.bound, best_remembering(mdp, psi, gamma).bound))
    return found


class _Branching:
    """Best-first branch and bound."""

    def __init__(self, mdp: FiniteMDP, psi: float, gamma: float, policy: FloatArray) -> None:
        from scipy.sparse import block_array, csr_array, eye_array, kron

        self.mdp, self.psi, self.gamma = mdp, psi, gamma
        self.policy, self.objective, self.count = policy, -np.inf, 0
        self.value = np.where(np.isnan(value := evaluate(mdp, policy, gamma).value), 0.0, value)
        error = mdp.reward + gamma * self.value[mdp.successor] - self.value[mdp.row // mdp.n_actions]
        self.mean, self.square = backup(mdp, error).ravel(), backup(mdp, error**2 + mdp.noise).ravel()
        self.start_square = float(mdp.start @ self.value**2)
        self.acyclic = _acyclic(mdp)
        moved, paid = (
            csr_array((mdp.probability * x, (mdp.successor, mdp.row)), shape=(mdp.n_states, policy.size))
            for x in (np.ones_like(error), error)
        )
        here = kron(eye_array(mdp.n_states), np.ones((1, mdp.n_actions)))
        self.here, self.alive = here.tocsr(), ~mdp.terminal
        empty = csr_array(here.shape)
        start = mdp.start
        rows: Any = [
            [here - gamma * moved, empty, empty],
            [empty, here - gamma**2 * moved, empty],
            [empty, -gamma * paid, here - gamma * moved],
        ]
        kept = np.tile(self.alive, 3)
        flow: Any = block_array(rows)
        self.flow = flow.tocsr()[kept]
        self.inflow = np.concatenate([start, start, start * self.value])[kept]
        # the least and the most of V(S_0) + Σ_{t<k} γ^t δ_t on arriving in each state at any step k, two of [S]
        low, high = -_most_collected(mdp, -error, -self.value, gamma), _most_collected(mdp, error, self.value, gamma)
        self.measures = self._measures(np.repeat(low, mdp.n_actions), np.repeat(high, mdp.n_actions))
        self._try(policy)

    def _measures(self, low: FloatArray, high: FloatArray) -> list[Any]:
        """Matrices that take (d, e, z) to measures that are not negative, [S·A, 3·S·A] each."""
        from scipy.sparse import block_array, csr_array, diags_array, eye_array

        n = len(low)
        one, none = eye_array(n), csr_array((n, n))
        rows: list[list[Any]] = [[one, none, none], [none, one, none], [one, -one, none]]
        if np.isfinite(low).all():
            rows.append([diags_array(-low), none, one])
        if np.isfinite(high).all():
            rows.append([diags_array(high), none, -one])
        stacked: list[Any] = [block_array([row]) for row in rows]
        return [matrix.tocsr() for matrix in stacked]

    def run(self, programmes: int) -> Bound:
        """Split the node with the largest bound until the gap is closed, or the limit of programmes is reached."""
        shape = self.policy.shape
        first = self._solve(np.zeros(shape), np.ones(shape), self._range())
        heap = [] if first is None else [first]
        while heap and self.count < programmes:
            node = heapq.heappop(heap)
            if -node.negative_bound <= self.objective + TOLERANCE * (1.0 + abs(self.objective)):
                heap = [node]
                break
            for low, high, interval in self._split(node):
                child = self._solve(low, high, interval)
                if child is None:
                    continue
                bound = min(-child.negative_bound, -node.negative_bound)
                heapq.heappush(heap, _Node(-bound, self.count, low, high, interval, child.solution))
        bound = max([self.objective, *(-node.negative_bound for node in heap)])
        return Bound(bound, self.objective, self.policy, self.count)

    def _range(self) -> tuple[float, float]:
        """Range of the best policy's mean: at least its objective, at most the largest mean."""
        from vpac.oracle.optimal import optimal_policy

        best = float(evaluate(self.mdp, optimal_policy(self.mdp, self.gamma), self.gamma).mean)
        slack = 1e-9 * (1.0 + abs(best))
        return min(self.objective, best) - slack, best + slack

    def _solve(self, low: FloatArray, high: FloatArray, interval: tuple[float, float]) -> _Node | None:
        """Solve the linear programme of a node; None if no policy is in it."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, vstack

        self.count += 1
        (first, last), n = interval, self.policy.size
        constant = float(self.mdp.start @ self.value)
        mean = np.concatenate([self.mean, np.zeros(2 * n)])
        square = np.concatenate([np.zeros(n), self.square, 2.0 * self.mean])  # + E[V(S_0)²] is E[G²]
        chord = 1.0 + self.psi * (first + last)
        cost = -(chord * mean - self.psi * square)
        rows, limits = [-x for x in self.measures[2:]], [np.zeros(n) for _ in self.measures[2:]]
        tight = np.flatnonzero((low > 0.0).ravel() | (high < 1.0).ravel())
        if len(tight):
            for measure in self.measures:
                whole = (self.here.T @ (self.here @ measure))[tight]
                own = measure[tight]
                for sign, share in ((-1.0, low.ravel()[tight]), (1.0, high.ravel()[tight])):
                    rows.append(sign * (own - whole.multiply(share[:, None]).tocsr()))
                    limits.append(np.zeros(len(tight)))
        cuts = [mean, -mean] + [2.0 * y * mean - square for y in (first, 0.5 * (first + last), last)]
        rows.append(csr_array(np.array(cuts)))
        limits.append(np.array([
            last - constant, constant - first,
            *(y**2 - 2.0 * y * constant + self.start_square for y in (first, 0.5 * (first + last), last)),
        ]))  # fmt: skip
        bounds: Any = [(0, None)] * (2 * n) + [(None, None)] * n
        table: Any = vstack(rows)
        found: Any = linprog(
            cost, table.tocsr(), np.concatenate(limits), self.flow, self.inflow, bounds, method="highs"
        )
        if found.status == 2:
            return None
        if found.status == 3 or found.x is None:
            raise OracleError(f"the linear programme of the bound has no solution: {found.message}")
        bound = chord * constant - self.psi * (self.start_square + first * last) - found.fun
        bound = min(bound, last)  # the variance is not negative
        solution = found.x.reshape(3, *self.policy.shape)
        self._try(self._implied(solution))
        return _Node(-float(bound), self.count, low, high, interval, solution)

    def _implied(self, solution: FloatArray) -> FloatArray:
        """The policy with the visits d; the known one in unvisited states."""
        visits = np.maximum(solution[0], 0.0)
        total = visits.sum(axis=-1, keepdims=True)
        return np.asarray(np.where(total > 1e-12, visits / np.maximum(total, 1e-300), self.policy), np.float64)

    def _try(self, policy: FloatArray) -> None:
        """Keep the policy if it is the best so far."""
        try:
            found = evaluate(self.mdp, policy, self.gamma)
        except OracleError:
            return
        objective = float(found.mean - self.psi * found.total_variance)
        if objective > self.objective:
            self.policy, self.objective = policy, objective

    def _split(self, node: _Node) -> list[tuple[FloatArray, FloatArray, tuple[float, float]]]:
        """Two intervals, or boxes around the state whose measures are farthest from one policy."""
        implied, (first, last) = self._implied(node.solution), node.interval
        mean = float(self.mdp.start @ self.value + self.mean @ node.solution[0].ravel())
        chord = self.psi * max(last - mean, 0.0) * max(mean - first, 0.0)
        off = np.abs(node.solution - implied * node.solution.sum(axis=-1, keepdims=True))
        weights = np.abs([self.square, 2.0 * self.mean]).reshape(2, *self.policy.shape)
        off = self.psi * (weights * off[1:]).sum(axis=0)
        off = np.where((node.high - node.low > 1e-6) & self.alive[:, None], off, 0.0)
        if chord >= off.sum() or off.max() <= 1e-12:
            middle = float(np.clip(mean, first + 0.1 * (last - first), last - 0.1 * (last - first)))
            return [(node.low, node.high, (first, middle)), (node.low, node.high, (middle, last))]
        state = int(off.sum(axis=-1).argmax())
        if self.acyclic:
            return [self._fixed(node, state, action) for action in map(int, np.flatnonzero(node.high[state] > 0.0))]
        action = int(off[state].argmax())
        low, high = node.low[state, action], node.high[state, action]
        middle = float(np.clip(implied[state, action], low + 0.2 * (high - low), high - 0.2 * (high - low)))
        upper, lower = node.low.copy(), node.high.copy()
        upper[state, action], lower[state, action] = middle, middle
        return [(upper, node.high, node.interval), (node.low, lower, node.interval)]

    def _fixed(self, node: _Node, state: int, action: int) -> tuple[FloatArray, FloatArray, tuple[float, float]]:
        low, high = node.low.copy(), node.high.copy()
        low[state] = high[state] = np.eye(low.shape[1])[action]
        return low, high, node.interval


def _acyclic(mdp: FiniteMDP) -> bool:
    """Whether no state can be visited twice."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    tails, heads = mdp.row // mdp.n_actions, mdp.successor
    graph = csr_array((np.ones(len(tails)), (tails, heads)), shape=(mdp.n_states, mdp.n_states))
    count, _ = connected_components(graph, connection="strong")
    return bool(count == mdp.n_states and not (tails == heads).any())


def _most_collected(mdp: FiniteMDP, error: FloatArray, value: FloatArray, gamma: float) -> FloatArray:
    tail, discount = mdp.row // mdp.n_actions, 1.0
    here = np.where(mdp.start > 0.0, value, -np.inf)
    most, largest = here.copy(), float(np.abs(error).max(initial=0.0))
    for _ in range(LAYERS):
        arrived = np.full(mdp.n_states, -np.inf)
        np.maximum.at(arrived, mdp.successor, here[tail] + discount * error)
        here, discount, most = arrived, discount * gamma, np.maximum(most, arrived)
        rest = discount * largest / (1.0 - gamma) if gamma < 1.0 else np.inf
        if rest < 1e-9 or not np.isfinite(here[~mdp.terminal]).any():
            return np.where(np.isfinite(most), most, 0.0) + (rest if gamma < 1.0 else 0.0)
    return np.full(mdp.n_states, np.inf)
