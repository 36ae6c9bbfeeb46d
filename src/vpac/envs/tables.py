"""Finite processes from Gymnasium environments that publish their transition table."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP, reachable
from vpac.envs.maps import GridMap
from vpac.errors import UserError, suggestion
from vpac.typing import BoolArray, IntArray

__all__ = ["from_table", "make_env"]


def make_env(name: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """`gymnasium.make` with our kind of error message: an unknown name suggests the nearest."""
    try:
        return gymnasium.make(name, **kwargs)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        if name in gymnasium.registry:
            raise UserError(f"{name} cannot be made: {error}") from None
        near = suggestion(name, gymnasium.registry) or suggestion(f"vpac/{name}-v0", gymnasium.registry)
        raise UserError(
            f"unknown environment {name!r}{near or '; `vpac list` shows those that can be solved'}"
        ) from None
    except TypeError as error:
        raise UserError(f"{name} does not take these arguments: {error}") from None


def from_table(env: gymnasium.Env[Any, Any] | str, start: ArrayLike | None = None) -> FiniteMDP:
    """The process behind `env`: its own, or the one its transition table describes.

    A state is terminal if every way into it from a reachable state terminates the episode. Where a state is entered
    both ways, the terminating ways lead to an extra state at the end. The goal is the terminal states that pay best on
    entering, so that FrozenLake's holes are terminal but not the goal.
    """
    inner = (make_env(env) if isinstance(env, str) else env).unwrapped
    known = getattr(inner, "mdp", None)
    if isinstance(known, FiniteMDP):
        return known if start is None else known.with_start(start)
    table = getattr(inner, "P", None)
    if not isinstance(table, dict):
        raise UserError(
            f"{type(inner).__name__} has no transition table: expected an attribute P with "
            "P[state][action] = [(probability, next state, reward, terminated), …]"
        )
    if start is None:
        start = getattr(inner, "initial_state_distrib", None)
        if start is None:
            raise UserError(f"{type(inner).__name__} has no initial_state_distrib: pass start=…")
    return _from_entries(table, np.asarray(start, np.float64), _layout(inner))


def _from_entries(table: dict[int, dict[int, list[Any]]], start: Any, layout: GridMap | None) -> FiniteMDP:
    n_states, n_actions = len(table), len(table[0])
    entries = [
        (s, a, successor, probability, reward, terminated)
        for s, actions in table.items()
        for a, outcomes in actions.items()
        for probability, successor, reward, terminated in outcomes
    ]
    state, action, successor = (np.array(x, np.int64) for x in list(zip(*entries, strict=True))[:3])
    probability, reward = (np.array(x, np.float64) for x in list(zip(*entries, strict=True))[3:5])
    ends = np.array([entry[5] for entry in entries], bool)

    lost = n_states  # where terminating transitions lead while we look at which states are entered how
    walk = FiniteMDP.from_transitions(
        n_states + 1, n_actions, state, action, np.where(ends, lost, successor), probability,
        start=np.append(start, 0.0), terminal=np.arange(n_states + 1) == lost,
    )  # fmt: skip
    alive = reachable(walk)[:-1]
    ended = np.zeros(n_states, bool)
    ended[successor[ends & alive[state] & (probability > 0.0)]] = True
    if np.any(alive & ended):
        successor = np.where(ends, n_states, successor)
        start, layout, terminal = np.append(start, 0.0), None, np.arange(n_states + 1) == n_states
    else:
        terminal = ended
    return FiniteMDP.from_transitions(
        len(terminal), n_actions, state, action, successor, probability, reward, start=start, terminal=terminal,
        goal=_best_paid(successor, reward, terminal, alive[state] & (probability > 0.0)), layout=layout,
    )  # fmt: skip


def _best_paid(successor: IntArray, reward: Any, terminal: BoolArray, counts: BoolArray) -> BoolArray:
    entering = terminal[successor] & counts
    goal = np.zeros_like(terminal)
    if entering.any():
        goal[successor[entering & (reward >= reward[entering].max())]] = True
    return goal


def _layout(env: Any) -> GridMap | None:
    """The map of FrozenLake and CliffWalking, whose states are the cells row by row."""
    if hasattr(env, "desc") and hasattr(env, "nrow"):
        to_ours = {b"S": "s", b"F": ".", b"H": "x", b"G": "g"}
        letters = np.array([[to_ours.get(letter, ".") for letter in row] for row in env.desc])
    elif hasattr(env, "_cliff"):
        letters = np.where(env._cliff, "x", ".")
        letters.reshape(-1)[env.start_state_index], letters.reshape(-1)[-1] = "s", "g"
    else:
        return None
    return GridMap.from_letters(letters)
