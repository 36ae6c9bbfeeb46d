from __future__ import annotations

import numpy as np
import pytest

from vpac import oracle
from vpac.envs import CatchUp
from vpac.errors import UserError
from vpac.oracle.policies import check_policy


def test_softmax_by_hand_and_with_temperature():
    assert oracle.softmax([[0.0, np.log(3.0)]]) == pytest.approx(np.array([[0.25, 0.75]]))
    assert oracle.softmax([[0.0, 2 * np.log(3.0)]], temperature=2.0) == pytest.approx(np.array([[0.25, 0.75]]))
    assert oracle.softmax([[1000.0, 0.0]])[0, 0] == 1.0
    with pytest.raises(UserError, match="temperature must be a positive number"):
        oracle.softmax([[0.0]], temperature=0.0)
    with pytest.raises(UserError, match="finite"):
        oracle.softmax([[np.nan, 0.0]])


def test_greedy_breaks_ties_as_stated():
    preferences = [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]
    assert oracle.greedy(preferences).tolist() == [[0, 1, 0], [1, 0, 0]]
    shared = oracle.greedy(preferences, ties="uniform")
    assert shared == pytest.approx(np.array([[0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]]))
    with pytest.raises(UserError, match="did you mean 'first'"):
        oracle.greedy(preferences, ties="fist")


@pytest.mark.parametrize("values", ["x", [[1.0], [1.0, 2.0]], [[1j]]])
def test_what_is_not_an_array_of_real_numbers_is_named(values):
    for make in (oracle.softmax, oracle.greedy):
        with pytest.raises(UserError, match="must be an array of real numbers"):
            make(values)
    with pytest.raises(UserError, match="expected a FiniteMDP"):
        oracle.evaluate("vpac/FourRooms-v0", [[1.0]], 0.9)


def test_a_wrong_policy_is_named():
    mdp = CatchUp().mdp
    good = oracle.uniform(mdp)
    with pytest.raises(UserError, match=r"shape \[11, 3\], got \[3, 11\]"):
        check_policy(mdp, good.T)
    wrong = good.copy()
    wrong[4] = [0.5, 0.2, 0.2]
    with pytest.raises(UserError, match=r"state 4 sum to 0.9, expected 1"):
        check_policy(mdp, wrong)
    wrong[4] = [1.5, -0.5, 0.0]
    with pytest.raises(UserError, match="action 1 in state 4"):
        check_policy(mdp, wrong)
    terminal_row = good.copy()
    terminal_row[10] = 0.0
    assert check_policy(mdp, terminal_row) == pytest.approx(good)
