"""Moves in a grid world, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from vpac.envs.maps import grid_world

UP, DOWN, LEFT, RIGHT, UP_RIGHT, DOWN_RIGHT, DOWN_LEFT, UP_LEFT = range(8)


def near(expected):
    return pytest.approx(np.array(expected), rel=1e-15, abs=1e-15)


def test_moves_without_slipping():
    # 0 1
    # 2 g
    P = grid_world("..\n.g").transition
    landing = {0: [0, 2, 0, 1], 1: [1, 3, 0, 1], 2: [0, 2, 2, 3]}
    for state, cells in landing.items():
        assert P[state].tolist() == np.eye(4)[cells].tolist()
    assert not P[3].any()


def test_slipping_in_a_square():
    # From 0 one slips to 1 or 2, from 1 to 0 or 3, from 2 to 0 or 3: a tenth each.
    P = grid_world("..\n.g", slip=0.2).transition
    assert P[0] == near([[0.8, 0.1, 0.1, 0.0], [0.0, 0.1, 0.9, 0.0], [0.8, 0.1, 0.1, 0.0], [0.0, 0.9, 0.1, 0.0]])
    assert P[1] == near([[0.1, 0.8, 0.0, 0.1], [0.1, 0.0, 0.0, 0.9], [0.9, 0.0, 0.0, 0.1], [0.1, 0.8, 0.0, 0.1]])
    assert P[2] == near([[0.9, 0.0, 0.0, 0.1], [0.1, 0.0, 0.8, 0.1], [0.1, 0.0, 0.8, 0.1], [0.1, 0.0, 0.0, 0.9]])


def test_slipping_with_eight_moves():
    # From 0 one slips to 1, 2 or the goal 3.
    P = grid_world("..\n.g", slip=0.3, moves=8).transition
    stay, right, down, across = [0.7, 0.1, 0.1, 0.1], [0, 0.8, 0.1, 0.1], [0, 0.1, 0.8, 0.1], [0, 0.1, 0.1, 0.8]
    assert P[0] == near([stay, down, stay, right, stay, across, stay, stay])
    assert P[1][DOWN_LEFT] == near([0.1, 0.0, 0.8, 0.1])
    assert P[2][UP_RIGHT] == near([0.1, 0.8, 0.0, 0.1])


def test_every_diagonal_from_the_middle():
    P = grid_world("...\n...\n..g", moves=8).transition
    assert [int(np.argmax(P[4, action])) for action in range(8)] == [1, 7, 3, 5, 2, 8, 6, 0]


def test_slipping_in_a_corridor_always():
    # # . . g: with slip 1 the chosen move does not matter.
    P = grid_world("#..g", slip=1.0).transition
    for action in range(4):
        assert P[0, action].tolist() == [0.0, 1.0, 0.0]
        assert P[1, action].tolist() == [0.5, 0.0, 0.5]


def test_a_cell_without_neighbours_cannot_slip():
    P = grid_world("sg#.", slip=0.2).transition
    assert P[2].tolist() == [[0.0, 0.0, 1.0]] * 4


def test_the_edge_of_the_map_is_a_wall_on_all_sides():
    P = grid_world("s.g").transition
    assert [int(np.argmax(P[0, action])) for action in range(4)] == [0, 0, 0, 1]


def test_frozen_cells_pay_noise_whatever_comes_next():
    # The frozen cell 1 lies between the start 0 and the goal 2.
    mdp = grid_world("sfg", slip=0.5, goal_reward=50.0, step_reward=-1.0, frozen_std=3.0)
    mean, variance = mdp.reward_mean, mdp.reward_variance
    assert np.all(variance[1][mdp.transition[1] > 0] == 9.0)
    assert not mean[1].any()  # neither the goal's reward nor the cost of a step
    assert mean[0, RIGHT].tolist() == [0.0, -1.0, 0.0]  # entering the frozen cell is a step like any other
    assert mean[0, LEFT].tolist() == [-1.0, -1.0, 0.0]
    assert not variance[0].any()
    direct = grid_world("s.g", goal_reward=50.0, step_reward=-1.0)
    assert direct.reward_mean[1, RIGHT].tolist() == [0.0, 0.0, 50.0]
    assert direct.reward_mean[1, UP].tolist() == [0.0, -1.0, 0.0]
    assert not direct.reward_variance.any()


def test_a_frozen_start_next_to_the_goal():
    mdp = grid_world("fg", goal_reward=50.0)
    assert mdp.reward.tolist() == [0.0] * 4
    assert mdp.noise.tolist() == [64.0] * 4


def test_leaving_a_treacherous_cell_throws_back():
    # 0 (start) 1 (treacherous) 2 3 (goal)
    mdp = grid_world("sx.g", throw=0.3, step_reward=-1.0, goal_reward=20.0)
    assert mdp.transition[1, RIGHT] == near([0.3, 0.0, 0.7, 0.0])
    assert mdp.transition[1, LEFT] == near([1.0, 0.0, 0.0, 0.0])
    assert mdp.transition[1, UP] == near([0.3, 0.7, 0.0, 0.0])
    assert mdp.transition[0, RIGHT].tolist() == [0.0, 1.0, 0.0, 0.0]  # entering it does nothing
    assert mdp.reward_mean[1, RIGHT].tolist() == [-1.0, 0.0, -1.0, 0.0]
    assert mdp.reward_mean[1, LEFT, 0] == -1.0
    assert not mdp.reward_variance.any()


def test_throwing_comes_before_moving_and_slipping():
    # Two starts, 0 and 4; from 2 one is thrown with 0.4, else moves with 0.75 and slips to 1 or 3.
    P = grid_world("s.x.s\n####g", throw=0.4, slip=0.25).transition
    assert P[2, RIGHT] == near([0.2, 0.075, 0.0, 0.525, 0.2, 0.0])
    assert P[2, UP] == near([0.2, 0.075, 0.45, 0.075, 0.2, 0.0])


def test_throwing_without_a_start_cell_goes_anywhere_but_the_goal():
    mdp = grid_world(".x.g", throw=0.3)
    assert mdp.transition[1, RIGHT] == near([0.1, 0.1, 0.8, 0.0])
