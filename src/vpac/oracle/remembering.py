"""Policies that remember: the best mean − ψ · variance when the time k and the return collected so far G_{0:k} are seen, too.

Mean–variance is not time-consistent, so such a policy can be strictly better than every policy of the state. As
Var(G) = min_c E[(G − c)²],

    max_π E[G] − ψ Var(G) = max_c F(c),     F(c) = max_π E[G − ψ (G − c)²],

and for a fixed reference c this is dynamic programming over nodes (k, s, g) with the utility g − ψ (g − c)² at the end. F is
not concave, but F(c) + ψ c² is a maximum of functions that are linear in c. So it is convex and lies below its chords, and
between two references F is at most a chord minus ψ c², whose maximum is known. Splitting the interval with the largest bound
finds the global maximum and proves it.

The nodes that can be met are enumerated layer by layer, equal g merged. Where they are too many, g is rounded at random to one
of two neighbours on a grid so that its mean stays. The variance that rounding adds is known and taken off again: then the
dynamic program is an upper bound, because what it bounds, the value plus ψ g², is convex in g. What is reported beside the
bound is the exact mean and variance of the policy that was found, which carries the rounded return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.oracle.moments import check_gamma, check_horizon
from vpac.oracle.policies import check_price
from vpac.typing import BoolArray, FloatArray, IntArray

SAME_NODE = 1e-9
"""Returns that differ by less are the same node."""
MOST_ENUMERATED = 12_000_000
"""Processes that need more are put on a grid."""
MOST_ON_GRID = 40_000_000
"""More are refused: they would take gigabytes."""
GRID_POINTS = 401
"""Points of that grid in each layer."""
BOUND_TOLERANCE, MOST_SPLITS = 1e-9, 500
"""The search of the reference ends when the bound is this near, relatively, or after so many dynamic programs."""


@dataclass(frozen=True)
class _Layer:
    """The nodes (s, g) that can be met after k steps, sorted by state, then by g, and one step from them."""

    state: IntArray
    value: FloatArray
    """g of each node."""
    leaf: BoolArray
    """Whether each node is an end: terminal, or cut off."""
    step: Any
    """Probabilities, a sparse matrix [nodes · A, nodes of the next layer]; rows of ends are empty."""
    paid: FloatArray
    """γ^k times the mean reward of each entry of `step`."""
    noise: FloatArray
    """γ^{2k} times the variance of the reward of each node and action."""
    rounding: FloatArray
    """The variance that rounding adds to g, of each node and action."""


@dataclass(frozen=True)
class Remembering:
    """The best policy found that sees step, state and collected return; `act` is that policy."""

    mean: float
    """Mean return."""
    variance: float
    """Variance of the return."""
    objective: float
    """mean − ψ · variance."""
    bound: float
    """No policy that remembers has a larger objective."""
    exact: bool
    """Whether every node was enumerated; otherwise the return was rounded to a grid, and `bound − objective` is the error."""
    reference: float
    """The c whose dynamic program found the policy; c = `mean` would give the same objective."""
    horizon: int
    """Steps after which every episode is over."""
    _layers: tuple[_Layer, ...]
    """The nodes, by step."""
    _actions: tuple[IntArray, ...]
    """The action of each node, by step."""

    def act(self, step: int, state: Any, collected: Any) -> Any:
        """The action after `step` steps in `state` with the discounted return `collected` so far; arrays give an array.

        The node with the nearest return answers. A state that cannot be met at that step is an error.
        """
        if not 0 <= step < self.horizon:
            raise UserError(f"step must be from 0 to {self.horizon - 1}, got {step!r}")
        layer = self._layers[step]
        low, high = layer.value.min(), layer.value.max()
        stride = 2.0 * (high - low) + 1.0  # nodes of other states are farther than any of its own
        keys = layer.state * stride + layer.value
        sought = np.asarray(state, np.int64) * stride + np.clip(collected, low, high)
        right = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
        left = np.maximum(right - 1, 0)
        found = np.where(keys[right] - sought < sought - keys[left], right, left)
        if (strange := layer.state[found] != state).any():
            raise UserError(f"state {np.broadcast_to(state, found.shape)[strange][0]} cannot be met after {step} steps")
        return self._actions[step][found]


def best_remembering(
    mdp: FiniteMDP, psi: float, gamma: float, horizon: int | None = None, grid: int | None = None
) -> Remembering:
    """The best policy of mean − ψ · variance among those that see the time and the return collected so far.

    Noise of rewards counts in the variance but is not seen: the return that is remembered adds up mean rewards.

    Args:
        mdp: the process.
        psi: price of variance.
        gamma: discount factor in [0, 1].
        horizon: steps after which episodes are cut off; default: until they have surely ended, if they do.
        grid: points of the return in each step; default: every return that can occur or, if they are too many, 401 points.
    """
    gamma, psi = check_gamma(gamma), check_price(psi)
    steps = _sure_end(mdp) if horizon is None else check_horizon(horizon)
    if grid is not None and not (isinstance(grid, int) and grid >= 2):
        raise UserError(f"grid must be a whole number from 2 up, got {grid!r}")
    layers = _unroll(mdp, gamma, steps, grid)
    exact = grid is None and layers is not None
    if layers is None:
        layers = _unroll(mdp, gamma, steps, GRID_POINTS)
        assert layers is not None
    reference, bound = _search(layers, mdp.start[layers[0].state], psi)
    actions = _solve(layers, psi, reference)[1]
    mean, variance = _moments(layers, actions, mdp.start[layers[0].state])
    objective = mean - psi * variance
    return Remembering(
        mean, variance, objective, max(bound, objective), exact, reference, len(layers) - 1, tuple(layers), tuple(actions)
    )  # fmt: skip


def _sure_end(mdp: FiniteMDP) -> int:
    """The smallest number of steps after which every policy has ended."""
    here, steps = mdp.start > 0.0, 0
    while here.any():
        if steps > mdp.n_states:
            raise UserError("episodes of this process can go on forever: give a horizon, the steps to cut them off")
        met = np.zeros(mdp.n_states, bool)
        met[mdp.successor[here[mdp.row // mdp.n_actions]]] = True
        here, steps = met & ~mdp.terminal, steps + 1
    return steps


def _unroll(mdp: FiniteMDP, gamma: float, horizon: int, grid: int | None) -> list[_Layer] | None:
    """The layers of nodes 0 … horizon; None if they are too many."""
    from scipy.sparse import csr_array

    state, count, total, layers = np.flatnonzero(mdp.start > 0.0), mdp.n_actions, 0, []
    value = np.zeros(len(state))
    for k in range(horizon + 1):
        leaf = mdp.terminal[state] | (k == horizon)
        rows = (state[:, None] * count + np.arange(count)).reshape(-1)
        size = np.where(np.repeat(leaf, count), 0, np.diff(mdp.indptr)[rows])
        total += int(size.sum())
        if grid is None and total > MOST_ENUMERATED:
            return None
        if total > MOST_ON_GRID:
            raise UserError(f"more than {MOST_ON_GRID:,} transitions: use fewer points or a shorter horizon")
        row, ends = np.repeat(np.arange(len(rows)), size), np.cumsum(size)
        entry = np.arange(len(row)) + np.repeat(mdp.indptr[rows] - ends + size, size)
        chance, paid, head = mdp.probability[entry], gamma**k * mdp.reward[entry], mdp.successor[entry]
        noise = _sums(row, chance * gamma ** (2 * k) * mdp.noise[entry], len(rows))
        arrived, rounding = value[row // count] + paid, np.zeros(len(rows))
        if grid is not None and len(row):
            arrived, share, added = _rounded(arrived, grid)
            rounding = _sums(row, chance * added, len(rows))
            chance, paid, head, ends = (chance[:, None] * share).ravel(), paid.repeat(2), head.repeat(2), 2 * ends
        next_state, next_value, child = _merged(head, arrived.ravel(), mdp.n_states)
        step = csr_array((chance, child, np.append(0, ends)), shape=(len(rows), len(next_state)))
        layers.append(_Layer(state, value, leaf, step, paid, noise, rounding))
        state, value = next_state, next_value
        if not len(state):
            break
    return layers


def _sums(place: IntArray, numbers: FloatArray, size: int) -> FloatArray:
    return np.asarray(np.bincount(place, numbers, size), np.float64)


def _rounded(values: FloatArray, grid: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The grid points below and above each value, [N, 2], their shares, which keep the mean, and the variance that they add."""
    first, last = float(values.min()), float(values.max())
    width = max(last - first, SAME_NODE) / (grid - 1)
    place = np.clip((values - first) / width, 0.0, grid - 1)
    below = np.clip(np.floor(place), 0, grid - 2)
    share = np.stack([below + 1.0 - place, place - below], axis=-1)
    return first + width * np.stack([below, below + 1.0], axis=-1), share, width**2 * share.prod(axis=-1)


def _merged(state: IntArray, value: FloatArray, n_states: int) -> tuple[IntArray, FloatArray, IntArray]:
    """The different nodes among (state, value), sorted, and which of them each is."""
    if not len(state):
        return state, value, state
    first = value.min()
    unit = max(SAME_NODE, (value.max() - first) * n_states / 2**61)
    place = np.rint((value - first) / unit).astype(np.int64)
    _, where, child = np.unique(state * (int(place.max()) + 1) + place, return_index=True, return_inverse=True)
    return state[where], value[where], child


def _solve(layers: list[_Layer], psi: float, reference: float) -> tuple[FloatArray, list[IntArray]]:
    """Dynamic programming for E[G − ψ (G − c)²]: E[G] and E[(G − c)²] of the first nodes, [nodes, 2], and all actions."""
    later, actions = np.zeros((0, 2)), []
    for layer in reversed(layers):
        end = np.stack([layer.value, (layer.value - reference) ** 2], axis=-1)
        by_action = (layer.step @ later).reshape(len(layer.state), -1, 2)
        by_action[..., 1] += (layer.noise - layer.rounding).reshape(by_action.shape[:2])
        best = np.argmax(by_action[..., 0] - psi * by_action[..., 1], axis=1)
        later = np.where(layer.leaf[:, None], end, by_action[np.arange(len(best)), best])
        actions.append(best)
    return later, actions[::-1]


def _moments(layers: list[_Layer], actions: list[IntArray], start: FloatArray) -> tuple[float, float]:
    """Exact mean and variance of the return by V and Var of what is to come, whatever the nodes say that g is."""
    value, variance = np.zeros(0), np.zeros(0)
    for layer, action in zip(reversed(layers), reversed(actions), strict=True):
        nodes, child = len(layer.state), layer.step.indices
        node, taken = divmod(
            np.repeat(np.arange(layer.step.shape[0]), np.diff(layer.step.indptr)), len(layer.noise) // nodes
        )
        chance = np.where(taken == action[node], layer.step.data, 0.0)
        target, noise = layer.paid + value[child], layer.noise.reshape(nodes, -1)[np.arange(nodes), action]
        value = _sums(node, chance * target, nodes)
        error = target - value[node]
        variance = noise + _sums(node, chance * (error**2 + variance[child]), nodes)
    mean = float(start @ value)
    return mean, float(start @ (variance + (value - mean) ** 2))


def _search(layers: list[_Layer], start: FloatArray, psi: float) -> tuple[float, float]:
    """The reference c of the largest F, and an upper bound on F everywhere."""
    ends = np.concatenate([layer.value[layer.leaf] for layer in layers])
    low, high = float(ends.min()), float(ends.max())
    middle = 0.5 * (low + high)
    best, reference = -np.inf, middle

    def convex(c: float) -> float:
        """F(c) + ψ (c − middle)²; notes the best objective on the way."""
        nonlocal best, reference
        mean, square = start @ _solve(layers, psi, c)[0]
        objective = mean - psi * (square - (mean - c) ** 2)
        if objective > best:
            best, reference = objective, c
        return float(mean - psi * (square - (c - middle) ** 2))

    def bounded(a: float, b: float, at_a: float, at_b: float) -> tuple[float, ...]:
        """The largest value of the chord less ψ (c − middle)² on [a, b], and where."""
        slope = (at_b - at_a) / (b - a)
        c = float(np.clip(middle + slope / (2.0 * psi), a, b))
        return at_a + slope * (c - a) - psi * (c - middle) ** 2, c, a, b, at_a, at_b

    if psi == 0.0 or high - low < SAME_NODE:
        convex(middle)
        return reference, best
    pieces = [bounded(low, high, convex(low), convex(high))]
    for _ in range(MOST_SPLITS):
        bound, c, a, b, at_a, at_b = max(pieces)
        if bound - best <= BOUND_TOLERANCE * max(1.0, abs(best)):
            break
        pieces.remove((bound, c, a, b, at_a, at_b))
        if min(c - a, b - c) <= 1e-3 * (b - a):
            c = 0.5 * (a + b)
        at_c = convex(c)
        pieces += [bounded(a, c, at_a, at_c), bounded(c, b, at_c, at_b)]
    return reference, max(max(pieces)[0], best)
