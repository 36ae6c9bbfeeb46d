"""Four rooms and the discrete puddle world, transition by transition, against a plain reading of their rules."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from vpac.envs import FourRooms, PuddleWorld
from vpac.errors import UserError

FOUR_ROOMS = [
    "wwwwwwwwwwwww",
    "w     w     w",
    "w   ffwff   w",
    "w  fffffff  w",
    "w   ffwff   w",
    "w     w     w",
    "ww wwww     w",
    "w     www www",
    "w     w     w",
    "w     w     w",
    "w           w",
    "w     w     w",
    "wwwwwwwwwwwww",
]
PUDDLE_WORLD = ["w" * 12] + 3 * ["w" + 10 * " " + "w"] + 4 * ["w   ffff   w"] + 3 * ["w" + 10 * " " + "w"] + ["w" * 12]
FOUR = [(-1, 0), (1, 0), (0, -1), (0, 1)]
EIGHT = [*FOUR, (-1, 1), (1, 1), (1, -1), (-1, -1)]  # U D L R UR DR DL UL


def by_the_rules(rows, directions, goal):
    """Transition, mean and variance tables: one cell, one action, one outcome at a time."""
    cells = [(r, c) for r, row in enumerate(rows) for c, letter in enumerate(row) if letter != "w"]
    number = {cell: n for n, cell in enumerate(cells)}
    shape = (len(cells), len(directions), len(cells))
    transition, mean, variance = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for (row, column), here in number.items():
        if here == goal:
            continue
        neighbours = [number[row + d, column + r] for d, r in directions if (row + d, column + r) in number]
        for action, (down, right) in enumerate(directions):
            transition[here, action, number.get((row + down, column + right), here)] += 0.8
            for neighbour in neighbours:
                transition[here, action, neighbour] += 0.2 / len(neighbours)
            if rows[row][column] == "f":
                variance[here, action] = 64.0
            else:
                mean[here, action, goal] = 50.0
    possible = transition > 0.0
    return cells, transition, np.where(possible, mean, 0.0), np.where(possible, variance, 0.0)


@pytest.mark.parametrize(
    ("name", "rows", "directions", "goal", "cell", "frozen"),
    [
        ("vpac/FourRooms-v0", FOUR_ROOMS, FOUR, 62, (7, 9), 15),
        ("vpac/PuddleWorld-v0", PUDDLE_WORLD, EIGHT, 9, (1, 10), 16),
    ],
)
def test_the_worlds_are_what_the_rules_say(name, rows, directions, goal, cell, frozen):
    mdp = gymnasium.make(name).unwrapped.mdp
    cells, transition, mean, variance = by_the_rules(rows, directions, goal)
    assert mdp.n_states == len(cells)
    assert mdp.layout.position.tolist() == [list(cell) for cell in cells]
    assert cells[goal] == cell
    assert np.flatnonzero(mdp.terminal).tolist() == np.flatnonzero(mdp.goal).tolist() == [goal]
    assert mdp.transition == pytest.approx(transition, rel=1e-14, abs=1e-15)
    assert np.array_equal(mdp.reward_mean, mean)  # exactly: merging a move with a slip must leave no rounding behind
    assert np.array_equal(mdp.reward_variance, variance)
    assert mdp.start == pytest.approx(np.where(np.arange(len(cells)) == goal, 0.0, 1 / (len(cells) - 1)), rel=1e-15)
    assert int(mdp.layout.has("f").sum()) == frozen


def test_four_rooms_by_hand():
    mdp = FourRooms().mdp
    at = mdp.layout.state
    assert (mdp.n_states, mdp.n_actions) == (104, 4)
    assert mdp.action_names == ("up", "down", "left", "right")
    assert at[7, 9] == 62
    assert np.count_nonzero(mdp.start) == 103
    above = at[6, 9]  # four free neighbours, the goal one of them
    assert mdp.transition[above, 1, 62] == pytest.approx(0.8 + 0.05)
    assert mdp.transition[above, 0, 62] == pytest.approx(0.05)
    assert mdp.reward_mean[above, 1, 62] == 50.0
    corner = at[1, 1]  # two free neighbours; up runs into the wall
    assert mdp.transition[corner, 0, [corner, at[1, 2], at[2, 1]]] == pytest.approx([0.8, 0.1, 0.1])
    ice = at[3, 6]  # the frozen hallway between the upper rooms: neighbours on its left and right only
    assert mdp.transition[ice, 3, [at[3, 7], at[3, 5]]] == pytest.approx([0.9, 0.1])
    assert mdp.reward_variance[ice, 3, at[3, 7]] == 64.0


def test_puddle_world_by_hand():
    mdp = PuddleWorld().mdp
    assert (mdp.n_states, mdp.n_actions) == (100, 8)
    assert mdp.action_names == ("up", "down", "left", "right", "up-right", "down-right", "down-left", "up-left")
    beside, below, diagonal = 8, 19, 18
    assert mdp.transition[beside, 3, 9] == pytest.approx(0.8 + 0.2 / 5)
    assert mdp.transition[below, 0, 9] == pytest.approx(0.8 + 0.2 / 5)
    assert mdp.transition[diagonal, 4, 9] == pytest.approx(0.8 + 0.2 / 8)
    assert mdp.transition[diagonal, 7, 7] == pytest.approx(0.8 + 0.2 / 8)
    puddle = [10 * row + column for row in range(3, 7) for column in range(3, 7)]
    assert np.flatnonzero(mdp.layout.has("f")).tolist() == puddle


def test_a_frozen_cell_beside_the_goal_pays_noise_only():
    mdp = FourRooms(goal=(3, 10)).mdp
    ice, goal = mdp.layout.state[3, 9], mdp.layout.state[3, 10]
    assert mdp.transition[ice, 3, goal] == pytest.approx(0.8 + 0.05)
    assert mdp.reward_mean[ice, 3, goal] == 0.0
    assert mdp.reward_variance[ice, 3, goal] == 64.0


@pytest.mark.parametrize(
    ("name", "noise"), [("vpac/FourRooms-v0", "frozen_std"), ("vpac/PuddleWorld-v0", "puddle_std")]
)
def test_arguments_reach_the_world(name, noise):
    env = gymnasium.make(name, slip=0.0, goal=(1, 1), goal_reward=7.0, max_episode_steps=3, **{noise: 2.0})
    mdp = env.unwrapped.mdp
    assert env.spec.max_episode_steps == 3
    assert np.flatnonzero(mdp.terminal).tolist() == [0]
    assert set(mdp.probability.tolist()) == {1.0}
    assert set(mdp.reward.tolist()) == {0.0, 7.0}
    assert set(mdp.noise.tolist()) == {0.0, 4.0}
    assert np.flatnonzero(gymnasium.make(name, goal=5).unwrapped.mdp.terminal).tolist() == [5]


def test_moves_of_the_puddle_world():
    mdp = gymnasium.make("vpac/PuddleWorld-v0", moves=4, slip=0.0).unwrapped.mdp
    assert mdp.n_actions == 4
    assert mdp.transition[50, 3, 51] == 1.0


@pytest.mark.parametrize(("world", "cells", "frozen"), [(FourRooms, 104, 15), (PuddleWorld, 100, 16)])
def test_scale_draws_every_cell_larger(world, cells, frozen):
    small, large = world().mdp.layout, world(scale=3).mdp.layout
    assert len(large.position) == 9 * cells
    assert large.has("f").sum() == 9 * frozen
    assert large.has("g").sum() == 9
    assert np.array_equal(large.letters, small.letters.repeat(3, axis=0).repeat(3, axis=1))


def test_scale_one_goal_cell_by_choice():
    mdp = FourRooms(scale=3, goal=(22, 28)).mdp
    assert mdp.terminal.sum() == 1


@pytest.mark.parametrize("world", [FourRooms, PuddleWorld])
def test_another_map(world):
    mdp = world(map="sfg", slip=0.0).mdp
    assert mdp.n_states == 3
    assert mdp.start.tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(UserError, match="the map has no goal"):
        world(map="s..")
    with pytest.raises(UserError, match="enlarged by a whole number from 1 up, got 0"):
        world(scale=0)
