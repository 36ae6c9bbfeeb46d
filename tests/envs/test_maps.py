from __future__ import annotations

import numpy as np
import pytest

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import EIGHT_MOVES, FOUR_MOVES, GridMap, enlarge, grid_world
from vpac.errors import UserError

EVERY_LETTER = """
w#. g
fxs.w
"""


def test_cells_are_numbered_row_by_row_without_the_walls():
    layout = GridMap.parse(EVERY_LETTER)
    assert ["".join(row) for row in layout.letters] == ["w#. g", "fxs.w"]
    assert layout.state.tolist() == [[-1, -1, 0, 1, 2], [3, 4, 5, 6, -1]]
    assert layout.position.tolist() == [[0, 2], [0, 3], [0, 4], [1, 0], [1, 1], [1, 2], [1, 3]]


def test_has_and_fill():
    layout = GridMap.parse(EVERY_LETTER)
    for letter, state in {"g": 2, "f": 3, "x": 4, "s": 5}.items():
        assert layout.has(letter).tolist() == [n == state for n in range(7)]
        assert layout.has(letter).dtype == np.bool_
    assert not layout.has("q").any()
    filled = layout.fill(np.arange(7) * 10.0)
    assert np.array_equal(filled, [[np.nan, np.nan, 0.0, 10.0, 20.0], [30.0, 40.0, 50.0, 60.0, np.nan]], equal_nan=True)


def test_strip():
    assert GridMap.strip(3).state.tolist() == [[0, 1, 2]]
    layout = GridMap.strip(70)
    assert layout.letters.shape == (3, 32)
    assert layout.position[[0, 31, 32, 69]].tolist() == [[0, 0], [0, 31], [1, 0], [2, 5]]
    assert np.all(layout.letters[2, 6:] == "w")


def test_indentation_is_not_part_of_a_map():
    indented = """
        ws.
         fg
        """
    assert ["".join(row) for row in GridMap.parse(indented).letters] == ["ws.", " fg"]


def test_a_row_of_spaces_is_a_row_of_free_cells():
    layout = GridMap.parse("..g\n   \n...")
    assert layout.state.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert GridMap.parse("    ..g\n       \n    ...\n    ").letters.shape == (3, 3)


def test_line_ends_of_any_system():
    assert GridMap.parse("\r\nwg\r\ns.\r\n").letters.tolist() == [["w", "g"], ["s", "."]]


@pytest.mark.parametrize("text", ["", "\n", "\n\n\n", "   \n  "])
def test_an_empty_map(text):
    with pytest.raises(UserError, match="the map is empty"):
        grid_world(text)


def test_unequal_rows():
    with pytest.raises(UserError, match="map row 2 has 2 cells, expected 3 like row 0"):
        grid_world("www\nw.g\nww")
    with pytest.raises(UserError, match="map row 1 has 0 cells, expected 3 like row 0"):
        grid_world("www\n\nw.g")


def test_an_unknown_letter():
    with pytest.raises(
        UserError, match=r"unknown letter 'G' in map row 1, column 2: expected w or # \(wall\), .*g \(goal"
    ):
        grid_world("www\nw.G")


def test_enlarge():
    assert enlarge("\n  ws\n  fg\n", 1) == "ws\nfg"
    assert enlarge("\n  ws\n  fg\n", 2) == "wwss\nwwss\nffgg\nffgg"
    assert enlarge("s \ng.", 3).split("\n") == ["sss   "] * 3 + ["ggg..."] * 3
    for factor in (0, -1, 1.5, "2"):
        with pytest.raises(UserError, match=f"enlarged by a whole number from 1 up, got {factor!r}"):
            enlarge("sg", factor)


def test_a_map_without_a_goal():
    with pytest.raises(UserError, match="the map has no goal: draw a g, or pass goal="):
        grid_world("s..")


def test_a_map_of_goals_only():
    for text in ("g", "wgg"):
        with pytest.raises(UserError, match="every free cell of the map is a goal: there is nowhere to start"):
            grid_world(text)


@pytest.mark.parametrize("goal", [2, np.int64(2), (1, 0), [1, 0], (np.int64(1), 0)])
def test_a_goal_that_is_passed(goal):
    mdp = grid_world("#g.\n..w", goal=goal)
    assert mdp.terminal.tolist() == [False, False, True, False]
    assert mdp.start.tolist() == [1 / 3, 1 / 3, 0.0, 1 / 3]
    assert ["".join(row) for row in mdp.layout.letters] == ["#..", "g.w"]


@pytest.mark.parametrize("goal", [4, -1, 100])
def test_a_goal_number_out_of_range(goal):
    with pytest.raises(UserError, match=f"goal {goal} is not a free cell: expected a number from 0 to 3"):
        grid_world("#g.\n..w", goal=goal)


@pytest.mark.parametrize("goal", [(0, 0), (1, 2), (2, 0), (0, 3), (-1, 0), (0, -1), (0,), (0, 1, 1)])
def test_a_goal_cell_that_is_no_free_cell(goal):
    with pytest.raises(UserError, match=r"goal \(.*\) is not a free cell of the 2 × 3 map"):
        grid_world("#g.\n..w", goal=goal)


def test_several_goals_and_several_starts():
    mdp = grid_world("gs.sg")
    assert mdp.terminal.tolist() == mdp.goal.tolist() == [True, False, False, False, True]
    assert mdp.start.tolist() == [0.0, 0.5, 0.0, 0.5, 0.0]


def test_a_start_cell_that_is_cut_off():
    with pytest.raises(UserError, match="the goal cannot be reached from the start cell in row 2, column 1"):
        grid_world("s.g\n###\n.s#")
    with pytest.raises(UserError, match="the goal cannot be reached from the start cell in row 0, column 0"):
        grid_world(".#g")
    assert grid_world("sg#.").n_states == 3  # a cell that is cut off is no mistake unless one starts there
    with pytest.raises(UserError, match="row 0, column 0"):
        grid_world("s#\n#g", moves=4)
    assert grid_world("s#\n#g", moves=8).n_states == 2


def test_a_passage_that_always_throws_back_cuts_off():
    with pytest.raises(UserError, match="the goal cannot be reached from the start cell in row 0, column 0"):
        grid_world("sxg", throw=1.0)
    assert grid_world("sxg", throw=0.99).n_states == 3


def test_names_of_the_actions():
    assert grid_world("sg").action_names == tuple(FOUR_MOVES) == ("up", "down", "left", "right")
    assert grid_world("sg", moves=8).action_names == tuple(EIGHT_MOVES)
    assert tuple(EIGHT_MOVES) == ("up", "down", "left", "right", "up-right", "down-right", "down-left", "up-left")
    assert list(EIGHT_MOVES.values()) == [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, 1), (1, 1), (1, -1), (-1, -1)]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"moves": 5}, "moves must be 4 or 8, got 5"),
        ({"slip": 1.5}, "slip must be a probability from 0 to 1, got 1.5"),
        ({"slip": -0.1}, "slip must be a probability from 0 to 1, got -0.1"),
        ({"slip": float("nan")}, "slip must be a probability from 0 to 1, got nan"),
        ({"throw": 2.0}, "throw must be a probability from 0 to 1, got 2"),
        ({"frozen_std": -1.0}, "frozen_std must be a finite number that is not negative, got -1"),
        ({"frozen_std": float("inf")}, "frozen_std must be a finite number that is not negative, got inf"),
        ({"goal_reward": float("nan")}, "mean reward of state 0, action 3, next state 1 is nan"),
    ],
)
def test_rules_out_of_range(rules, message):
    with pytest.raises(UserError, match=message):
        grid_world("sg", **rules)


def test_from_map_is_grid_world():
    mdp = FiniteMDP.from_map("s.g", slip=0.5, goal_reward=7.0)
    assert mdp.transition.tolist() == grid_world("s.g", slip=0.5, goal_reward=7.0).transition.tolist()
    assert mdp.reward_mean[1, 3, 2] == 7.0
