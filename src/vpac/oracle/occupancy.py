"""Occupancy of a policy: how often it visits each state, whether it surely ends, and where."""

from __future__ import annotations

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP, closed_classes, reachable, reached
from vpac.oracle.linear import Chain, OracleError
from vpac.typing import BoolArray, FloatArray, IntArray


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
    if not mdp.may_stay.any():
        return np.ones(policy.shape[:-1], bool)
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
    if not mdp.may_stay.any():
        return np.zeros(mdp.n_states, bool)
    _, closed = closed_classes(*_edges(mdp, policy), mdp.n_states)
    return closed & ~mdp.terminal


def endable(mdp: FiniteMDP) -> tuple[BoolArray, BoolArray]:
    """The states from which some policy surely ends, [S], and the actions that such a policy may take, [S, A].

    The largest set of states that can reach an end by actions which never leave the set.
    """
    states = np.ones(mdp.n_states, bool)
    while True:
        leaves = np.bincount(mdp.row, ~states[mdp.successor], mdp.n_states * mdp.n_actions) > 0
        safe = ~leaves.reshape(mdp.n_states, mdp.n_actions) & states[:, None] & ~mdp.terminal[:, None]
        taken = safe.reshape(-1)[mdp.row]
        ends = reached(mdp.successor[taken], mdp.row[taken] // mdp.n_actions, mdp.terminal) & states
        if np.array_equal(ends, states):
            return states, safe
        states = ends


def without_unmet(mdp: FiniteMDP) -> FiniteMDP:
    """The same process with the states that no policy meets made terminal, so that they cannot spoil a solution."""
    unmet = ~reachable(mdp) & ~mdp.terminal
    if not unmet.any():
        return mdp
    kept = ~unmet[mdp.row // mdp.n_actions]
    state, action = divmod(mdp.row[kept], mdp.n_actions)
    return FiniteMDP.from_transitions(
        mdp.n_states, mdp.n_actions, state, action, mdp.successor[kept], mdp.probability[kept], mdp.reward[kept],
        mdp.noise[kept], mdp.start, mdp.terminal | unmet, goal=mdp.goal, layout=mdp.layout,
        action_names=mdp.action_names,
    )  # fmt: skip


def end_surely(mdp: FiniteMDP, policies: FloatArray) -> BoolArray:
    """Whether each policy of a batch [N, S, A] surely ends from the start; for small processes."""
    step = np.eye(mdp.n_states) + (Chain(mdp, policies, sparse=False).matrix > 0.0)
    for _ in range(int(np.ceil(np.log2(max(mdp.n_states, 2))))):
        step = ((step @ step) > 0.0).astype(np.float64)
    met = (mdp.start @ step) > 0.0
    return np.asarray((step[..., mdp.terminal].any(axis=-1) | ~met).all(axis=-1), np.bool_)
