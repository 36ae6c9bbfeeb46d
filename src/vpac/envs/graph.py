"""Which states can be reached from which."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.typing import BoolArray, IntArray

__all__ = ["closed_classes", "reached"]


FEW = 2000
"""Up to this many nodes."""


def _graph(tails: IntArray, heads: IntArray, size: int) -> Any:
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(tails), np.int8), (tails, heads)), shape=(size, size))


def reached(tails: IntArray, heads: IntArray, sources: BoolArray) -> BoolArray:
    """The nodes that a path along the edges tails → heads leads to from `sources`, the sources included."""
    size = len(sources)
    if size <= FEW:
        return _spread(tails, heads, sources)
    from scipy.sparse.csgraph import breadth_first_order

    first = np.flatnonzero(sources)
    graph = _graph(np.concatenate([tails, np.full(len(first), size)]), np.concatenate([heads, first]), size + 1)
    found = np.zeros(size + 1, bool)
    found[breadth_first_order(graph, size, return_predecessors=False)] = True
    return found[:-1]


def _spread(tails: IntArray, heads: IntArray, sources: BoolArray) -> BoolArray:
    """The same, one step of all paths at a time: for few nodes this is quicker than to load a graph library."""
    found = sources.copy()
    while True:
        before = int(found.sum())
        found[heads[found[tails]]] = True
        if int(found.sum()) == before:
            return found


def closed_classes(tails: IntArray, heads: IntArray, size: int) -> tuple[IntArray, BoolArray]:
    """The strongly connected class of each node, and whether no edge leads out of that class."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(_graph(tails, heads, size), connection="strong")
    leaves = label[tails] != label[heads]
    closed = np.ones(count, bool)
    closed[label[tails[leaves]]] = False
    return label.astype(np.int64), closed[label]
