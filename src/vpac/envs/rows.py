"""Transitions kept row by row: one row for each state and action."""

from __future__ import annotations

import numpy as np

from vpac.typing import FloatArray, IntArray

__all__ = ["row_sums", "sorted_and_merged"]


def row_sums(indptr: IntArray, entries: FloatArray) -> FloatArray:
    """Add up the last axis of `entries` row by row: out[..., i] = Σ entries[..., indptr[i]:indptr[i + 1]]."""
    sums = np.zeros((*entries.shape[:-1], len(indptr) - 1))
    filled = indptr[1:] > indptr[:-1]
    sums[..., filled] = np.add.reduceat(entries, indptr[:-1][filled], axis=-1)  # which cannot sum an empty row
    return sums


def sorted_and_merged(
    row: IntArray,
    successor: IntArray,
    probability: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    n_rows: int,
    n_states: int,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
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
