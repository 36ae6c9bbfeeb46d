"""Where a policy goes: how often it visits each state, whether it surely ends, and where."""

from __future__ import annotations

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.graph import closed_classes, reached
from vpac.oracle.linear import Chain, OracleError
from vpac.typing import BoolArray, FloatArray, IntArray

__all__ = ["goal_probability", "stays_forever", "surely_ends", "visits"]


def visits(mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int | None) -> FloatArray:
    """Σ_k γ^k P(S_k = s) over the first `horizon` steps; arriving in a terminal state counts as a visit."""
    if policy.ndim > 2:
        return np.stack([visits(mdp, one, gamma, horizon) for one in policy])
    if horizon is not None:
        return _visits_within(mdp, policy, gamma, horizon)
    chain = Chain(mdp, policy)
    if gamma < 1.0:
        return chain.flow(gamma, mdp.start)
    stays = stays_forever(mdp, policy)
    counted = chain.flow(1.0, np.where(stays, 0.0, mdp.start), kept=~stays)
    tails, heads = _edges(mdp, policy)
    return np.where(stays, np.where(reached(tails, heads, mdp.start > 0.0), np.inf, 0.0), counted)


def _visits_within(mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int) -> FloatArray:
    matrix = gamma * Chain(mdp, policy).matrix.T
    here, total = mdp.start, np.zeros(mdp.n_states)
    for _ in range(horizon):
        total = total + here
        here = matrix @ here
    return total


def goal_probability(mdp: FiniteMDP, policy: FloatArray, horizon: int | None) -> FloatArray:
    """Probability of ending in the goal from each state, within `horizon` steps if there is one."""
    if policy.ndim > 2:
        return np.stack([goal_probability(mdp, one, horizon) for one in policy])
    chain = Chain(mdp, policy)
    if horizon is None:
        stays = stays_forever(mdp, policy)
        arrives = np.where(stays, 0.0, chain.matrix @ mdp.goal.astype(np.float64))
        return np.clip(np.where(mdp.goal, 1.0, chain.accumulate(1.0, arrives, kept=~stays)), 0.0, 1.0)
    reaches = mdp.goal.astype(np.float64)
    for _ in range(horizon):
        reaches = np.where(mdp.goal, 1.0, chain.matrix @ reaches)
    return reaches


def surely_ends(mdp: FiniteMDP, policy: FloatArray) -> BoolArray:
    """The states from which the policy reaches a terminal state with probability one.

    Raises an `OracleError` if the start distribution leads to a state that is not among them.
    """
    if policy.ndim > 2:
        return np.stack([surely_ends(mdp, one) for one in policy])
    tails, heads = _edges(mdp, policy)
    never = stays_forever(mdp, policy)
    if (stuck := never & reached(tails, heads, mdp.start > 0.0)).any():
        raise OracleError(
            f"with gamma = 1 the return has no mean: the policy can reach state {int(np.argmax(stuck))} and never ends "
            "from there; use gamma below 1, a horizon, or a policy that ends"
        )
    return ~reached(heads, tails, never)


def _edges(mdp: FiniteMDP, policy: FloatArray) -> tuple[IntArray, IntArray]:
    """The transitions that the policy takes with positive probability, as edges."""
    taken = policy.reshape(-1)[mdp.row] > 0.0
    return mdp.row[taken] // mdp.n_actions, mdp.successor[taken]


def stays_forever(mdp: FiniteMDP, policy: FloatArray) -> BoolArray:
    """The non-terminal states of closed classes: once there, the policy never leaves nor ends."""
    _, closed = closed_classes(*_edges(mdp, policy), mdp.n_states)
    return closed & ~mdp.terminal
