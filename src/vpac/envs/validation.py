"""The numbers of a finite process: checks, and transitions stored row by row, one row for each state and action."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vpac.checks import whole
from vpac.errors import UserError
from vpac.typing import BoolArray, FloatArray, IntArray


def row_sums(indptr: IntArray, entries: FloatArray) -> FloatArray:
    """Add up the last axis of `entries` row by row: out[..., i] = Σ entries[..., indptr[i]:indptr[i + 1]]."""
    sums = np.zeros((*entries.shape[:-1], len(indptr) - 1))
    filled = indptr[1:] > indptr[:-1]
    sums[..., filled] = np.add.reduceat(entries, indptr[:-1][filled], axis=-1)  # which cannot sum an empty row
    return sums


def sorted_and_merged(
    row: IntArray, successor: IntArray, probability: FloatArray, mean: FloatArray, variance: FloatArray,
    n_rows: int, n_states: int,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """Sort transitions by (row, successor) and merge equal ones, keeping the reward's conditional moments."""
    order = np.argsort(row * n_states + successor, kind="stable")
    row, successor, probability = row[order], successor[order], probability[order]
    mean, variance = mean[order], variance[order]
    new = np.ones(len(row), bool)
    new[1:] = (row[1:] != row[:-1]) | (successor[1:] != successor[:-1])
    if not new.all():
        first, group = np.flatnonzero(new), np.cumsum(new) - 1
        total = np.add.reduceat(probability, first)
        weight = probability / total[group]
        merged_mean = _averages(mean, weight, first)
        spread = (mean - merged_mean[group]) ** 2
        variance = _averages(variance, weight, first) + np.add.reduceat(weight * spread, first)
        row, successor, probability, mean = row[new], successor[new], total, merged_mean
    indptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=n_rows), out=indptr[1:])
    return indptr, successor, probability, mean, variance


def _averages(values: FloatArray, weight: FloatArray, first: IntArray) -> FloatArray:
    """Weighted averages of the groups that begin at `first`; the weights of each add up to one.

    Rounding must not carry an average past its extremes: equal rewards would seem to differ, and to have a variance.
    """
    low, high = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    return np.clip(np.add.reduceat(weight * values, first), low, high)


SUM_TOLERANCE = 1e-8
"""How far the probabilities of a state and action may be from adding up to one."""

Entries = tuple[IntArray, IntArray, FloatArray, tuple[int, int]]


def transition_entries(transition: Any) -> Entries:
    """The non-zero entries of P as (row s·A + a, successor, probability) and the sizes (S, A)."""
    if hasattr(transition, "tocoo"):
        shape = list(transition.shape)
        if len(shape) != 2 or 0 in shape or shape[0] % shape[1]:
            raise UserError(
                f"a sparse transition matrix must have shape [S·A, S], a multiple of S rows by S columns, got {shape}"
            )
        rows, columns = shape
        coo = transition.tocoo()
        entries = coo.row.astype(np.int64), coo.col.astype(np.int64), coo.data.astype(np.float64)
        return *entries, (columns, rows // columns)
    dense = _numbers(transition, "transition")
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
        raise UserError(f"transition must have shape [S, A, S], got {list(dense.shape)}")
    n_states, n_actions, _ = dense.shape
    flat = dense.reshape(n_states * n_actions, n_states)
    row, successor = np.nonzero(flat)
    return row, successor, flat[row, successor], (n_states, n_actions)


def reward_entries(
    reward: Any, row: IntArray, successor: IntArray, n_states: int, n_actions: int, name: str
) -> FloatArray:
    """The entries of a reward table that belong to the given transitions."""
    if hasattr(reward, "tocsr"):
        if reward.shape != (n_states * n_actions, n_states):
            raise UserError(f"{name} must have shape [{n_states * n_actions}, {n_states}], got {list(reward.shape)}")
        return np.asarray(reward.tocsr()[row, successor], np.float64).ravel()
    table = _numbers(reward, name)
    if table.ndim == 0:
        return np.full(len(row), float(table))
    if table.shape == (n_states, n_actions):
        return table.reshape(-1)[row]
    if table.shape in ((n_states, n_actions, n_states), (n_states * n_actions, n_states)):
        return table.reshape(-1, n_states)[row, successor]
    raise UserError(
        f"{name} must be one number or have shape [{n_states}, {n_actions}] or [{n_states}, {n_actions}, {n_states}], "
        f"got {list(table.shape)}"
    )


def finite(
    row: IntArray, successor: IntArray, probability: FloatArray, mean: FloatArray, variance: FloatArray, n_actions: int
) -> None:
    """Probabilities and variances are finite and not negative, mean rewards are finite."""
    for name, entries, signed in (
        ("transition probability", probability, False),
        ("mean reward", mean, True),
        ("reward variance", variance, False),
    ):
        bad = ~np.isfinite(entries) if signed else ~(np.isfinite(entries) & (entries >= 0.0))
        if bad.any():
            first = int(np.argmax(bad))
            state, action = divmod(int(row[first]), n_actions)
            expected = "a finite number" if signed else "a finite number that is not negative"
            raise UserError(
                f"{name} of state {state}, action {action}, next state {int(successor[first])} is "
                f"{entries[first]:g}: expected {expected}"
            )


def rows_sum_to_one(indptr: IntArray, probability: FloatArray, terminal: BoolArray, n_actions: int) -> None:
    """The probabilities of each action in each non-terminal state add up to one."""
    sums = row_sums(indptr, probability)
    bad = (np.abs(sums - 1.0) > SUM_TOLERANCE) & ~np.repeat(terminal, n_actions)
    if bad.any():
        first = int(np.argmax(bad))
        state, action = divmod(first, n_actions)
        more = f" (and {bad.sum() - 1} more rows)" if bad.sum() > 1 else ""
        raise UserError(
            f"transition probabilities of state {state}, action {action} sum to {sums[first]:.10g}, expected 1{more}"
        )


def start_distribution(start: ArrayLike | None, terminal: BoolArray) -> FloatArray:
    """A distribution over the non-terminal states; uniform if none is given."""
    if terminal.all():
        raise UserError("every state is terminal: there is nowhere to start")
    if start is None:
        return (~terminal) / float((~terminal).sum())
    distribution = _numbers(start, "start").copy()  # later changes to the caller's array are the caller's own
    if distribution.shape != terminal.shape:
        raise UserError(f"start must have shape [{len(terminal)}], got {list(distribution.shape)}")
    bad = ~(np.isfinite(distribution) & (distribution >= 0.0))
    if bad.any():
        state = int(np.argmax(bad))
        raise UserError(
            f"start probability of state {state} is {distribution[state]:g}: "
            "expected a finite number that is not negative"
        )
    if abs(float(distribution.sum()) - 1.0) > SUM_TOLERANCE:
        raise UserError(f"start probabilities sum to {distribution.sum():.10g}, expected 1")
    on_terminal = (distribution > 0.0) & terminal
    if on_terminal.any():
        state = int(np.argmax(on_terminal))
        raise UserError(f"start probability of terminal state {state} is {distribution[state]:g}, expected 0")
    return distribution


def mask(values: ArrayLike | None, n_states: int, name: str) -> BoolArray:
    """A boolean for each state; all false if none is given."""
    if values is None:
        return np.zeros(n_states, bool)
    found = np.asarray(values)
    if found.shape != (n_states,) or found.dtype != np.bool_:
        raise UserError(f"{name} must be bool[{n_states}], got {found.dtype}{list(found.shape)}")
    return found.copy()


def sizes(n_states: int, n_actions: int) -> None:
    """There is at least one state and one action."""
    whole(n_states, "n_states", 1)
    whole(n_actions, "n_actions", 1)


def indices(values: ArrayLike, limit: int, name: str, length: int | None = None) -> IntArray:
    """A list of whole numbers from 0 up to, not including, `limit`."""
    found = _numbers(values, name)
    if found.ndim != 1 or len(found) != (len(found) if length is None else length):
        expected = "a list" if length is None else f"a list of {length} like the states"
        raise UserError(f"{name} must be {expected}, got an array of shape {list(found.shape)}")
    bad = ~((found >= 0) & (found < limit) & (found == np.floor(found)))
    if bad.any():
        raise UserError(
            f"{name} {found[np.argmax(bad)]:.10g} is out of range: expected a whole number from 0 to {limit - 1}"
        )
    return found.astype(np.int64)


def column(values: ArrayLike, name: str, length: int) -> FloatArray:
    """One number for each of `length` transitions; a single number stands for all."""
    found = _numbers(values, name)
    if found.ndim != 0 and found.shape != (length,):
        raise UserError(
            f"{name} must be one number or a list of {length} like the states, "
            f"got an array of shape {list(found.shape)}"
        )
    return np.broadcast_to(found, (length,))


def _numbers(values: Any, name: str) -> FloatArray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be an array of numbers: {error}") from None
