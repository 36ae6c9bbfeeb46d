"""Every mistake in the description of an MDP has a message: what is wrong, where, and what was expected."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import GridMap
from vpac.errors import UserError

TERMINAL = [False, False, True]


def arrays():
    """A sound process of three states and two actions, whose last state is terminal."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = 1.0
    transition[1] = [0.25, 0.25, 0.5]
    return {"transition": transition, "reward_mean": np.zeros((3, 2, 3)), "reward_variance": np.ones((3, 2, 3))}


def raises_error(*parts):
    """Expect an error whose message holds these parts in this order."""
    return pytest.raises(UserError, match=".*".join(re.escape(part) for part in parts))


def test_the_sound_process_is_accepted():
    assert FiniteMDP(**arrays(), terminal=TERMINAL).n_states == 3


@pytest.mark.parametrize("sparse", [False, True])
def test_probabilities_that_do_not_sum_to_one(sparse):
    table = arrays()["transition"]
    table[1, 1] = [0.25, 0.25, 0.4]
    given = scipy.sparse.csr_array(table.reshape(6, 3)) if sparse else table
    with raises_error("transition probabilities of state 1, action 1 sum to 0.9, expected 1"):
        FiniteMDP(given, terminal=TERMINAL)
    table[1, 0, 2] = 0.75
    given = scipy.sparse.csr_array(table.reshape(6, 3)) if sparse else table
    with raises_error("state 1, action 0 sum to 1.25, expected 1 (and 1 more rows)"):
        FiniteMDP(given, terminal=TERMINAL)


def test_a_state_without_transitions_must_be_terminal():
    with raises_error("transition probabilities of state 2, action 0 sum to 0, expected 1 (and 1 more rows)"):
        FiniteMDP(**arrays())


def test_sums_may_be_off_by_rounding_only():
    table = arrays()["transition"]
    table[0, 0, 1] = 1.0 + 9e-9
    FiniteMDP(table, terminal=TERMINAL)
    table[0, 0, 1] = 1.0 - 2e-8
    with raises_error("state 0, action 0 sum to 0.99999998, expected 1"):
        FiniteMDP(table, terminal=TERMINAL)


WRONG_ENTRIES = [
    ("transition", "transition probability", -0.5, "-0.5", "a finite number that is not negative"),
    ("transition", "transition probability", np.nan, "nan", "a finite number that is not negative"),
    ("transition", "transition probability", np.inf, "inf", "a finite number that is not negative"),
    ("reward_mean", "mean reward", np.nan, "nan", "a finite number"),
    ("reward_mean", "mean reward", -np.inf, "-inf", "a finite number"),
    ("reward_variance", "reward variance", -1.0, "-1", "a finite number that is not negative"),
    ("reward_variance", "reward variance", np.nan, "nan", "a finite number that is not negative"),
    ("reward_variance", "reward variance", np.inf, "inf", "a finite number that is not negative"),
]


@pytest.mark.parametrize(("table", "name", "value", "shown", "expected"), WRONG_ENTRIES)
def test_a_wrong_entry_is_named(table, name, value, shown, expected):
    given = arrays()
    given[table][1, 0, 2] = value
    where = f"{name} of state 1, action 0, next state 2 is {shown}: expected {expected}"
    with raises_error(where):
        FiniteMDP(**given, terminal=TERMINAL)
    with raises_error(where):
        FiniteMDP(**{key: scipy.sparse.csr_array(x.reshape(6, 3)) for key, x in given.items()}, terminal=TERMINAL)
    row, successor = np.nonzero(given["transition"].reshape(6, 3))
    entries = (given[key].reshape(6, 3)[row, successor] for key in ("transition", "reward_mean", "reward_variance"))
    with raises_error(where):
        FiniteMDP.from_transitions(3, 2, row // 2, row % 2, successor, *entries, terminal=TERMINAL)


def test_rewards_of_transitions_that_cannot_happen_do_not_matter():
    given = arrays()
    given["reward_mean"][0, 0, 0] = np.nan
    assert np.isfinite(FiniteMDP(**given, terminal=TERMINAL).reward_mean).all()


@pytest.mark.parametrize(
    ("shape", "shown"),
    [((3, 3), "[3, 3]"), ((3, 2, 4), "[3, 2, 4]"), ((0, 0, 0), "[0, 0, 0]"), ((2, 0, 2), "[2, 0, 2]")],
)
def test_shape_of_dense_transitions(shape, shown):
    with raises_error(f"transition must have shape [S, A, S], got {shown}"):
        FiniteMDP(np.zeros(shape))


@pytest.mark.parametrize("shape", [(5, 3), (2, 3), (0, 3)])
def test_shape_of_sparse_transitions(shape):
    with raises_error("a sparse transition matrix must have shape [S·A, S]", f"got [{shape[0]}, {shape[1]}]"):
        FiniteMDP(scipy.sparse.csr_array(shape))


def test_a_sparse_vector_is_no_transition_matrix():
    with raises_error("[S·A, S]", "got [3]"):
        FiniteMDP(scipy.sparse.coo_array(np.ones(3)))


@pytest.mark.parametrize("name", ["reward_mean", "reward_variance"])
def test_shape_of_rewards(name):
    given = arrays()
    given[name] = np.zeros((2, 3))
    with raises_error(f"{name} must be one number or have shape [3, 2] or [3, 2, 3], got [2, 3]"):
        FiniteMDP(**given, terminal=TERMINAL)
    given[name] = scipy.sparse.csr_array((3, 6))
    with raises_error(f"{name} must have shape [6, 3], got [3, 6]"):
        FiniteMDP(**given, terminal=TERMINAL)


@pytest.mark.parametrize("name", ["transition", "reward_mean", "reward_variance"])
def test_what_is_not_numbers(name):
    with raises_error(f"{name} must be an array of numbers"):
        FiniteMDP(**arrays() | {name: [["a"], ["b"]]}, terminal=TERMINAL)
    with raises_error(f"{name} must be an array of numbers"):
        FiniteMDP(**arrays() | {name: [[1.0, 2.0], [3.0]]}, terminal=TERMINAL)


@pytest.mark.parametrize(
    ("start", "parts"),
    [
        ([0.5, 0.5], ("start must have shape [3], got [2]",)),
        ([[1.0, 0.0, 0.0]], ("start must have shape [3], got [1, 3]",)),
        ([0.5, 0.25, 0.0], ("start probabilities sum to 0.75, expected 1",)),
        ([1.5, -0.5, 0.0], ("start probability of state 1 is -0.5", "not negative")),
        ([np.nan, 1.0, 0.0], ("start probability of state 0 is nan", "finite number")),
        ([0.0, np.inf, 0.0], ("start probability of state 1 is inf", "finite number")),
        ([0.5, 0.25, 0.25], ("start probability of terminal state 2 is 0.25, expected 0",)),
        (["a", "b", "c"], ("start must be an array of numbers",)),
    ],
)
def test_start(start, parts):
    with raises_error(*parts):
        FiniteMDP(**arrays(), start=start, terminal=TERMINAL)


@pytest.mark.parametrize("name", ["terminal", "goal"])
@pytest.mark.parametrize(
    ("values", "shown"), [([False, True], "bool[2]"), ([0, 0, 1], "int64[3]"), ([[False, False, True]], "bool[1, 3]")]
)
def test_masks(name, values, shown):
    with raises_error(f"{name} must be bool[3], got {shown}"):
        FiniteMDP(**arrays(), **{"terminal": TERMINAL, name: values})


def test_every_state_terminal():
    with raises_error("every state is terminal: there is nowhere to start"):
        FiniteMDP(**arrays(), terminal=[True] * 3)


def test_a_goal_that_is_not_terminal():
    with raises_error("goal state 1 is not terminal"):
        FiniteMDP(**arrays(), terminal=TERMINAL, goal=[False, True, True])


@pytest.mark.parametrize("names", [("left",), ("left", "right", "up"), ()])
def test_number_of_action_names(names):
    with raises_error(f"{len(names)} action names for 2 actions"):
        FiniteMDP(**arrays(), terminal=TERMINAL, action_names=names)


def test_a_layout_of_another_world():
    with raises_error("a layout of 4 cells for 3 states"):
        FiniteMDP(**arrays(), terminal=TERMINAL, layout=GridMap.strip(4))


def listed(**changes):
    columns = {"state": [0, 1], "action": [0, 0], "successor": [1, 0], "probability": [1.0, 1.0]}
    return FiniteMDP.from_transitions(**({"n_states": 2, "n_actions": 1} | columns | changes))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"state": [0, 2]}, "state 2 is out of range: expected a whole number from 0 to 1"),
        ({"state": [-1, 1]}, "state -1 is out of range: expected a whole number from 0 to 1"),
        ({"action": [0, 1]}, "action 1 is out of range: expected a whole number from 0 to 0"),
        ({"successor": [1, 7]}, "successor 7 is out of range: expected a whole number from 0 to 1"),
        ({"successor": [1, 0.5]}, "successor 0.5 is out of range: expected a whole number from 0 to 1"),
        ({"state": [0, np.nan]}, "state nan is out of range: expected a whole number from 0 to 1"),
        ({"state": 0}, "state must be a list, got an array of shape []"),
        ({"action": [0]}, "action must be a list of 2 like the states, got an array of shape [1]"),
        ({"successor": [[1, 0]]}, "successor must be a list of 2 like the states, got an array of shape [1, 2]"),
        ({"probability": [1.0]}, "probability must be one number or a list of 2 like the states"),
        ({"reward_mean": [1.0] * 3}, "reward_mean must be one number or a list of 2 like the states"),
        ({"reward_variance": [[1.0]]}, "reward_variance must be one number or a list of 2 like the states"),
        ({"n_states": 0}, "n_states must be a whole number from 1 up, got 0"),
        ({"n_actions": 0}, "n_actions must be a whole number from 1 up, got 0"),
        ({"n_actions": 1.5}, "n_actions must be a whole number from 1 up, got 1.5"),
    ],
)
def test_lists_of_transitions(changes, part):
    listed()
    with raises_error(part):
        listed(**changes)
