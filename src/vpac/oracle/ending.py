"""γ = 1: which states and actions leave a way to a sure end, and a process without what is never met."""

from __future__ import annotations

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP, reachable
from vpac.envs.graph import reached
from vpac.oracle.linear import Chain
from vpac.typing import BoolArray, FloatArray

__all__ = ["end_surely", "endable", "without_unmet"]


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
    """Which policies of a batch [N, S, A] surely end from the start; for small processes."""
    step = np.eye(mdp.n_states) + (Chain(mdp, policies, sparse=False).matrix > 0.0)
    for _ in range(int(np.ceil(np.log2(max(mdp.n_states, 2))))):
        step = ((step @ step) > 0.0).astype(np.float64)
    met = (mdp.start @ step) > 0.0
    return np.asarray((step[..., mdp.terminal].any(axis=-1) | ~met).all(axis=-1), np.bool_)
