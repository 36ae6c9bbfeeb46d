from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpac.envs.finite_mdp import closed_classes, reached, row_sums


def edges(*pairs):
    tails, heads = np.array(pairs, np.int64).reshape(-1, 2).T
    return tails, heads


def test_reached_follows_edges_forward_and_includes_the_sources():
    tails, heads = edges((0, 1), (1, 2), (3, 2), (4, 4))
    assert reached(tails, heads, np.array([True, False, False, False, False])).tolist() == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert reached(tails, heads, np.array([False, False, False, True, True])).tolist() == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_nothing_is_reached_from_no_source_or_without_edges():
    tails, heads = edges((0, 1))
    assert not reached(tails, heads, np.zeros(2, bool)).any()
    assert reached(*edges(), np.array([False, True])).tolist() == [False, True]


@pytest.mark.parametrize("copies", [127, 128, 255, 256, 257])
def test_many_parallel_edges_are_still_an_edge(copies):
    tails, heads = np.zeros(copies, np.int64), np.ones(copies, np.int64)
    assert reached(tails, heads, np.array([True, False])).tolist() == [True, True]
    label, closed = closed_classes(tails, heads, 2)
    assert label[0] != label[1]
    assert closed.tolist() == [False, True]


def test_closed_classes_by_hand():
    # 0 ⇄ 1 → 2 ⇄ 3, 4 alone with a loop, 5 → 4, 6 with no edge at all
    label, closed = closed_classes(*edges((0, 1), (1, 0), (1, 2), (2, 3), (3, 2), (4, 4), (5, 4)), 7)
    assert closed.tolist() == [False, False, True, True, True, False, True]
    assert label[0] == label[1]
    assert label[2] == label[3]
    assert len({label[0], label[2], label[4], label[5], label[6]}) == 5
    assert label.dtype == np.int64


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20), st.integers(0, 6))
def test_reached_is_the_transitive_closure(pairs, source):
    closure = np.eye(7, dtype=bool)
    for tail, head in pairs:
        closure[tail, head] = True
    for middle in range(7):
        closure |= closure[:, [middle]] & closure[[middle], :]
    tails, heads = edges(*pairs)
    assert reached(tails, heads, np.arange(7) == source).tolist() == closure[source].tolist()
    label, closed = closed_classes(tails, heads, 7)
    both_ways = closure & closure.T
    assert (label[:, None] == label[None, :]).tolist() == both_ways.tolist()
    assert closed.tolist() == [bool((both_ways[i] == closure[i]).all()) for i in range(7)]


def test_row_sums_of_rows_of_every_kind():
    indptr = np.array([0, 0, 2, 2, 3, 6, 6])
    entries = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    assert row_sums(indptr, entries).tolist() == [0.0, 3.0, 0.0, 4.0, 56.0, 0.0]


def test_row_sums_of_a_batch_and_of_nothing():
    indptr = np.array([0, 1, 1, 3])
    entries = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    assert row_sums(indptr, entries).tolist() == [[1.0, 0.0, 5.0], [10.0, 0.0, 50.0]]
    assert row_sums(np.array([0, 0, 0]), np.zeros(0)).tolist() == [0.0, 0.0]
