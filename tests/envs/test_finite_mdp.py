from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from vpac.envs import finite_mdp
from vpac.envs.finite_mdp import FiniteMDP, reachable
from vpac.envs.maps import GridMap
from vpac.errors import UserError

TERMINAL = [False, False, True]
START = [0.75, 0.25, 0.0]
TRANSITION = np.array(
    [
        [[0.25, 0.25, 0.5], [0.0, 1.0, 0.0]],
        [[0.125, 0.0, 0.875], [0.0, 0.5, 0.5]],
        [[3.0, -1.0, np.nan], [0.0, 0.0, 5.0]],  # a terminal state's rows do not matter
    ]
)
REWARD = np.arange(18.0).reshape(3, 2, 3) - 5.0
NOISE = np.arange(18.0).reshape(3, 2, 3) / 4.0

INDPTR = [0, 3, 4, 6, 8, 8, 8]
SUCCESSOR = [0, 1, 2, 1, 0, 2, 1, 2]
PROBABILITY = [0.25, 0.25, 0.5, 1.0, 0.125, 0.875, 0.5, 0.5]
REWARDS = [-5.0, -4.0, -3.0, -1.0, 1.0, 3.0, 5.0, 6.0]
NOISES = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 2.75]


def assert_is_the_example(mdp, reward=REWARDS, noise=NOISES):
    assert (mdp.n_states, mdp.n_actions) == (3, 2)
    assert mdp.indptr.tolist() == INDPTR
    assert mdp.row.tolist() == [0, 0, 0, 1, 2, 2, 3, 3]
    assert mdp.successor.tolist() == SUCCESSOR
    assert mdp.probability.tolist() == PROBABILITY
    assert mdp.reward.tolist() == reward
    assert mdp.noise.tolist() == noise
    assert mdp.start.tolist() == START
    assert mdp.terminal.tolist() == mdp.goal.tolist() == TERMINAL


def flat(table):
    return np.nan_to_num(table.reshape(6, 3))


def test_from_dense_arrays():
    assert_is_the_example(FiniteMDP(TRANSITION, REWARD, NOISE, START, TERMINAL))
    assert_is_the_example(FiniteMDP(TRANSITION.tolist(), REWARD.tolist(), NOISE.tolist(), START, TERMINAL))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_from_sparse(form, kind):
    sparse = getattr(scipy.sparse, f"{form}_{kind}")
    transition, reward, noise = (sparse(flat(table)) for table in (TRANSITION, REWARD, NOISE))
    assert_is_the_example(FiniteMDP(transition, reward, noise, START, TERMINAL))
    assert_is_the_example(FiniteMDP(transition, REWARD, flat(NOISE), START, TERMINAL))
    assert_is_the_example(FiniteMDP(TRANSITION, reward, NOISE, START, TERMINAL))


def test_rewards_by_state_and_action_and_as_one_number():
    by_action = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    spread = [1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 4.0, 4.0]
    for transition in (TRANSITION, scipy.sparse.csr_array(flat(TRANSITION))):
        assert_is_the_example(FiniteMDP(transition, by_action, by_action, START, TERMINAL), spread, spread)
        assert_is_the_example(FiniteMDP(transition, -2, 0.5, START, TERMINAL), [-2.0] * 8, [0.5] * 8)
        assert_is_the_example(FiniteMDP(transition, start=START, terminal=TERMINAL), [0.0] * 8, [0.0] * 8)


def test_sparse_duplicates_add_up_and_stored_zeros_are_dropped():
    row, column = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 0, 1, 0])
    transition = scipy.sparse.coo_array((np.array([0.25, 0.5, 0.25, 1.0, 0.0]), (row, column)), shape=(2, 2))
    mdp = FiniteMDP(transition)
    assert mdp.transition.tolist() == [[[0.5, 0.5]], [[0.0, 1.0]]]
    assert len(mdp.probability) == 3


def listed(order, **changes):
    row = np.repeat(np.arange(6), np.diff(INDPTR))
    columns = {
        "state": row // 2,
        "action": row % 2,
        "successor": SUCCESSOR,
        "probability": PROBABILITY,
        "reward_mean": REWARDS,
        "reward_variance": NOISES,
    } | changes
    listed = {name: np.asarray(values)[order] for name, values in columns.items()}
    return FiniteMDP.from_transitions(3, 2, **listed, start=START, terminal=TERMINAL)


def test_from_transitions_in_any_order():
    assert_is_the_example(listed(np.arange(8)))
    assert_is_the_example(listed(np.array([3, 7, 0, 2, 5, 6, 1, 4])))


def test_from_transitions_drops_rows_of_terminal_states_and_impossible_transitions():
    mdp = FiniteMDP.from_transitions(
        2, 1, [0, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1], [1.0, 0.0, 0.3, np.nan], [2.0, np.inf, np.nan, 1.0],
        terminal=[False, True],
    )  # fmt: skip
    assert mdp.indptr.tolist() == [0, 1, 1]
    assert (mdp.successor.tolist(), mdp.probability.tolist(), mdp.reward.tolist()) == ([1], [1.0], [2.0])


def test_one_reward_for_all_transitions_of_a_list():
    mdp = FiniteMDP.from_transitions(1, 2, [0, 0], [0, 1], [0, 0], 1.0, -1.0, 4.0)
    assert (mdp.probability.tolist(), mdp.reward.tolist(), mdp.noise.tolist()) == ([1.0] * 2, [-1.0] * 2, [4.0] * 2)


def test_merging_by_hand():
    # A reward of 2 ± 0 three times out of four, 10 ± 3 else: mean 4, variance 3/4·4 + 1/4·(36 + 9).
    mdp = FiniteMDP.from_transitions(1, 1, [0, 0], [0, 0], [0, 0], [0.75, 0.25], [2.0, 10.0], [0.0, 9.0])
    assert (mdp.probability.tolist(), mdp.reward.tolist(), mdp.noise.tolist()) == ([1.0], [4.0], [14.25])


weights = st.integers(1, 1000)
rewards = st.integers(-1000, 1000).map(lambda n: n / 8.0)
variances = st.integers(0, 1000).map(lambda n: n / 8.0)
outcomes = st.lists(st.tuples(st.integers(0, 2), weights, rewards, variances), min_size=1, max_size=12)


@given(outcomes, st.randoms(use_true_random=False))
def test_merged_transitions_keep_the_conditional_moments(entries, random):
    total = sum(weight for _, weight, _, _ in entries)
    random.shuffle(entries)
    successor, weight, reward, variance = (np.array(column, np.float64) for column in zip(*entries, strict=True))
    n = len(entries)
    mdp = FiniteMDP.from_transitions(
        4, 1, [0] * n + [1, 2], [0] * (n + 2), [*successor, 3, 3], [*(weight / total), 1.0, 1.0],
        [*reward, 0.0, 0.0], [*variance, 0.0, 0.0], terminal=np.arange(4) == 3,
    )  # fmt: skip
    for found, to in enumerate(sorted(set(successor.tolist()))):
        chosen = [(Fraction(w, total), Fraction(r), Fraction(v)) for s, w, r, v in entries if s == to]
        probability = sum(p for p, _, _ in chosen)
        mean = sum(p * r for p, r, _ in chosen) / probability
        spread = sum(p * (v + (r - mean) ** 2) for p, r, v in chosen) / probability
        assert mdp.successor[found] == to
        assert mdp.probability[found] == pytest.approx(float(probability), rel=1e-14)
        # a few roundings of numbers up to 125 and of squares up to 250²
        assert mdp.reward[found] == pytest.approx(float(mean), rel=1e-14, abs=1e-13)
        assert mdp.noise[found] == pytest.approx(float(spread), rel=1e-13, abs=1e-11)


@given(st.lists(weights, min_size=2, max_size=9), st.floats(-1e3, 1e3), st.floats(0.0, 1e3))
def test_merging_equal_rewards_changes_nothing(weight, reward, variance):
    n = len(weight)
    mdp = FiniteMDP.from_transitions(1, 1, [0] * n, [0] * n, [0] * n, np.array(weight) / sum(weight), reward, variance)
    assert mdp.reward.tolist() == [reward]
    assert mdp.noise.tolist() == [variance]


def test_dense_tables_round_trip():
    mdp = FiniteMDP(TRANSITION, REWARD, NOISE, START, TERMINAL)
    assert mdp.transition[:2].tolist() == TRANSITION[:2].tolist()
    there_is_one = mdp.transition > 0.0
    assert not there_is_one[2].any()
    assert mdp.reward_mean.tolist() == np.where(there_is_one, REWARD, 0.0).tolist()
    assert mdp.reward_variance.tolist() == np.where(there_is_one, NOISE, 0.0).tolist()
    assert_is_the_example(FiniteMDP(mdp.transition, mdp.reward_mean, mdp.reward_variance, mdp.start, mdp.terminal))


def test_a_dense_table_that_is_too_large_is_refused(monkeypatch):
    size = 20_000
    cells = np.arange(size)
    large = FiniteMDP.from_transitions(size, 1, cells, 0 * cells, cells, 1.0)
    for table in ("transition", "reward_mean", "reward_variance"):
        with pytest.raises(UserError, match=r"dense \[S, A, S\] array of 20000 states would hold 4.0e\+08 numbers"):
            getattr(large, table)
    small = FiniteMDP(TRANSITION, start=START, terminal=TERMINAL)
    monkeypatch.setattr(finite_mdp, "DENSE_ENTRIES", 18)
    assert small.transition.shape == (3, 2, 3)
    monkeypatch.setattr(finite_mdp, "DENSE_ENTRIES", 17)
    with pytest.raises(UserError, match="row, successor, probability, reward, noise"):
        _ = small.transition


def test_with_start_shares_everything_else():
    mdp = FiniteMDP(TRANSITION, REWARD, NOISE, START, TERMINAL)
    other = mdp.with_start([0.0, 1.0, 0.0])
    assert other.start.tolist() == [0.0, 1.0, 0.0]
    assert mdp.start.tolist() == START
    assert other.probability is mdp.probability
    assert_is_the_example(other.with_start(START))
    with pytest.raises(UserError, match="start probability of terminal state 2 is 1, expected 0"):
        mdp.with_start([0.0, 0.0, 1.0])


def test_defaults():
    mdp = FiniteMDP(TRANSITION, terminal=TERMINAL)
    assert mdp.start.tolist() == [0.5, 0.5, 0.0]
    assert mdp.action_names == ("0", "1")
    assert mdp.layout is None
    assert repr(mdp) == "FiniteMDP(3 states, 2 actions, 8 transitions, 1 terminal)"
    unending = FiniteMDP(np.ones((1, 1, 1)))
    assert unending.terminal.tolist() == unending.goal.tolist() == [False]


def test_goal_layout_and_action_names_are_kept():
    layout = GridMap.strip(3)
    mdp = FiniteMDP(
        TRANSITION, terminal=TERMINAL, goal=[False] * 3, layout=layout, action_names=("stay", "go")
    )  # fmt: skip
    assert not mdp.goal.any()
    assert mdp.layout is layout
    assert mdp.action_names == ("stay", "go")


def test_what_the_caller_does_to_its_arrays_later_is_its_own():
    start, terminal, goal = np.array(START), np.array(TERMINAL), np.array(TERMINAL)
    transition = TRANSITION.copy()
    mdp = FiniteMDP(transition, REWARD, NOISE, start, terminal, goal=goal)
    for array in (start, terminal, goal, transition):
        array[:] = 0
    assert_is_the_example(mdp)


def test_reachable_states():
    # 0 → 1 → 3 (the end), 2 → 0
    mdp = FiniteMDP.from_transitions(
        4, 1, [0, 1, 2], [0, 0, 0], [1, 3, 0], 1.0, start=[1.0, 0.0, 0.0, 0.0], terminal=np.arange(4) == 3
    )
    assert reachable(mdp).tolist() == [True, True, False, True]
    assert reachable(mdp.with_start([0.0, 0.0, 1.0, 0.0])).all()
