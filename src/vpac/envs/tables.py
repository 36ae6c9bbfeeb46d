"""Finite MDPs from Gymnasium environments with a transition table."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP, indices, reachable, start_distribution
from vpac.envs.make import make_env
from vpac.envs.maps import GridMap
from vpac.errors import UserError
from vpac.typing import BoolArray, FloatArray, IntArray


def from_table(env: gymnasium.Env[Any, Any] | str, start: ArrayLike | None = None) -> FiniteMDP:
    """The MDP of `env`: its own, or that of its transition table.

    A state is terminal if only terminating transitions lead to it from reachable states. If a reachable state is entered in
    both ways, the terminating transitions lead to an extra state at the end instead. The goal is the terminal states with the
    largest reward on entering, so that FrozenLake's holes are terminal but not the goal.
    """
    if not isinstance(env, str | gymnasium.Env):
        raise UserError(f"expected a Gymnasium environment or its id, got {env!r:.60}")
    inner = (make_env(env) if isinstance(env, str) else env).unwrapped
    known = getattr(inner, "mdp", None)
    if isinstance(known, FiniteMDP):
        return known if start is None else known.with_start(start)
    table = getattr(inner, "P", None)
    if not isinstance(table, dict) or not table:
        raise UserError(
            f"{type(inner).__name__} has no transition table: expected an attribute P with "
            "P[state][action] = [(probability, next state, reward, terminated), …]; `vpac train` and `vpac evaluate` need none"
        )
    if getattr(inner, "fickle_passenger", False):
        raise UserError("Taxi's transition table leaves out that a fickle passenger changes the destination")
    if start is None:
        start = getattr(inner, "initial_state_distrib", None)
        if start is None:
            raise UserError(f"{type(inner).__name__} has no initial_state_distrib: pass start=…")
    return _from_entries(table, start_distribution(start, np.zeros(len(table), bool)), *_layout(inner))


def _from_entries(
    table: dict[int, dict[int, list[Any]]],
    start: FloatArray,
    layout: GridMap | None,
    action_names: tuple[str, ...] | None,
) -> FiniteMDP:
    n_states, n_actions = len(table), len(next(iter(table.values())))
    entries = [
        (s, a, successor, probability, reward, terminated)
        for s, actions in table.items()
        for a, outcomes in actions.items()
        for probability, successor, reward, terminated in outcomes
    ]
    columns = list(zip(*entries, strict=True))
    state = indices(columns[0], n_states, "state")
    action = indices(columns[1], n_actions, "action")
    successor = indices(columns[2], n_states, "next state")
    probability, reward = (np.array(column, np.float64) for column in columns[3:5])
    ends = np.array(columns[5], bool)

    lost = n_states  # terminating transitions lead here until it is known how each state is entered
    walk = FiniteMDP.from_transitions(
        n_states + 1, n_actions, state, action, np.where(ends, lost, successor), probability,
        start=np.append(start, 0.0), terminal=np.arange(n_states + 1) == lost,
    )  # fmt: skip
    alive = reachable(walk)[:-1]
    ended = np.zeros(n_states, bool)
    ended[successor[ends & (probability > 0.0)]] = True
    if np.any(alive & ended):
        successor = np.where(ends, n_states, successor)
        start, layout, terminal = np.append(start, 0.0), None, np.arange(n_states + 1) == n_states
    else:
        terminal = ended
    return FiniteMDP.from_transitions(
        len(terminal), n_actions, state, action, successor, probability, reward, start=start, terminal=terminal,
        goal=_best_paid(successor, reward, terminal, alive[state] & (probability > 0.0)),
        layout=layout, action_names=action_names,
    )  # fmt: skip


def _best_paid(successor: IntArray, reward: FloatArray, terminal: BoolArray, counts: BoolArray) -> BoolArray:
    entering = terminal[successor] & counts
    goal = np.zeros_like(terminal)
    if entering.any():
        goal[successor[entering & (reward >= reward[entering].max())]] = True
    return goal


def _layout(env: Any) -> tuple[GridMap | None, tuple[str, ...] | None]:
    """The map and the names of the actions of FrozenLake and CliffWalking, whose states are the cells row by row."""
    if hasattr(env, "desc") and hasattr(env, "nrow"):
        to_ours = {b"S": "s", b"F": ".", b"H": "x", b"G": "g"}
        letters = np.array([[to_ours.get(letter, ".") for letter in row] for row in env.desc])
        return GridMap.from_letters(letters), ("left", "down", "right", "up")
    if hasattr(env, "_cliff"):
        letters = np.where(env._cliff, "x", ".")
        letters.reshape(-1)[env.start_state_index], letters.reshape(-1)[-1] = "s", "g"
        return GridMap.from_letters(letters), ("up", "right", "down", "left")
    return None, None
