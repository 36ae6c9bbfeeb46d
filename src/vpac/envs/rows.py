"""Sums over the transitions of each state and action."""

from __future__ import annotations

import numpy as np

from vpac.typing import FloatArray, IntArray

__all__ = ["row_sums"]


def row_sums(indptr: IntArray, entries: FloatArray) -> FloatArray:
    """Add up the last axis of `entries` row by row: out[..., i] = Σ entries[..., indptr[i]:indptr[i + 1]]."""
    sums = np.zeros((*entries.shape[:-1], len(indptr) - 1))
    filled = indptr[1:] > indptr[:-1]
    if filled.any():
        sums[..., filled] = np.add.reduceat(entries, indptr[:-1][filled], axis=-1)
    return sums
