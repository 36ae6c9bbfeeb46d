"""Risky shortcut and catch-up, by hand."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from vpac.envs import CatchUp, RiskyShortcut
from vpac.errors import UserError

UP, DOWN, LEFT, RIGHT = range(4)
WALK, RUN, WAIT = range(3)


def follow(mdp, state, actions):
    """The most likely way: its probability, the rewards on it, and where it ends."""
    probability, rewards = 1.0, []
    for action in actions:
        successor = int(np.argmax(mdp.transition[state, action]))
        probability *= mdp.transition[state, action, successor]
        rewards.append(float(mdp.reward_mean[state, action, successor]))
        state = successor
    return probability, rewards, state


def steps_to_the_goal(mdp):
    """The least number of moves from the start, whatever luck it takes."""
    edges = mdp.transition.max(axis=1) > 0.0
    at, moves = mdp.start > 0.0, 0
    while not (at & mdp.goal).any():
        at, moves = at | edges[at].any(axis=0), moves + 1
    return moves


def test_two_ways_to_the_goal():
    mdp = RiskyShortcut().mdp
    assert (mdp.n_states, mdp.n_actions) == (16, 4)
    start, goal = int(np.argmax(mdp.start)), int(np.argmax(mdp.goal))
    assert mdp.start[start] == 1.0
    assert mdp.layout.position[[start, goal]].tolist() == [[1, 1], [1, 7]]
    short = follow(mdp, start, 6 * [RIGHT])
    assert short == (pytest.approx(0.7), 5 * [-1.0] + [20.0], goal)
    long = follow(mdp, start, 2 * [DOWN] + 6 * [RIGHT] + 2 * [UP])
    assert long == (1.0, 9 * [-1.0] + [20.0], goal)
    assert steps_to_the_goal(mdp) == 6
    assert steps_to_the_goal(RiskyShortcut(throw=1.0).mdp) == 10
    assert not mdp.noise.any()


def test_the_treacherous_cell_throws_back():
    mdp = RiskyShortcut().mdp
    trap, beyond = mdp.layout.state[1, 4], mdp.layout.state[1, 5]
    assert mdp.transition[trap, RIGHT, [0, beyond]] == pytest.approx([0.3, 0.7])
    assert mdp.reward_mean[trap, RIGHT, 0] == -1.0
    thrown_from = np.flatnonzero((mdp.transition[:, :, 0] > 0.0).all(axis=1))
    assert thrown_from.tolist() == [trap]


def test_the_short_way_takes_seven_point_seven_moves_on_average():
    mdp = RiskyShortcut().mdp
    right = mdp.transition[:7, RIGHT, :7]  # states 0 … 6 are the upper row, 6 the goal
    moves = np.linalg.solve(np.eye(6) - right[:6, :6], np.ones(6))
    assert moves[0] == pytest.approx(6 + 4 * 0.3 / 0.7)


def test_arguments_of_the_risky_shortcut():
    env = gymnasium.make("vpac/RiskyShortcut-v0", throw=0.5, slip=0.1, goal_reward=3.0, step_reward=-2.0, goal=(3, 1))
    mdp = env.unwrapped.mdp
    assert mdp.layout.position[np.flatnonzero(mdp.goal)].tolist() == [[3, 1]]
    assert set(mdp.reward.tolist()) == {-2.0, 3.0}
    trap, beside = mdp.layout.state[1, 4], mdp.layout.state[1, 5]
    assert mdp.transition[trap, RIGHT, beside] == pytest.approx(0.5 * (0.9 + 0.05))
    assert RiskyShortcut(scale=2).mdp.n_states == 64


def test_catch_up_by_hand():
    mdp = CatchUp().mdp
    assert (mdp.n_states, mdp.n_actions, mdp.action_names) == (11, 3, ("walk", "run", "wait"))
    assert mdp.start.tolist() == [1.0] + 10 * [0.0]
    assert mdp.terminal.tolist() == 10 * [False] + [True]
    expected = np.zeros((11, 3, 11))
    reward = np.zeros((11, 3, 11))
    expected[0, :, [1, 6]] = 0.5
    for cell in range(1, 10):
        for action, arrival, cost in ((WALK, cell + 1, 1.0), (RUN, min(cell + 2, 10), 2.5), (WAIT, cell, 1.0)):
            expected[cell, action, arrival] = 1.0
            reward[cell, action, arrival] = 20.0 * (arrival == 10) - cost
    assert np.array_equal(mdp.transition, expected)
    assert np.array_equal(mdp.reward_mean, reward)
    assert not mdp.noise.any()
    assert [reward[9, WALK, 10], reward[9, RUN, 10], reward[8, RUN, 10], reward[8, WALK, 9]] == [19.0, 17.5, 17.5, -1.0]


def test_catch_up_has_the_risk_neutral_mean_and_variance_of_the_mathematics():
    mdp, gamma = CatchUp().mdp, 0.95
    value = np.zeros(11)
    for _ in range(200):
        value = np.max(np.sum(mdp.transition * (mdp.reward_mean + gamma * value), axis=2), axis=1)
    lucky, unlucky = gamma * value[6], gamma * value[1]  # all that follows the first move is certain
    assert round((lucky + unlucky) / 2, 2) == 9.80
    assert round((lucky - unlucky) ** 2 / 4, 2) == 13.09


def test_arguments_of_catch_up():
    env = gymnasium.make(
        "vpac/CatchUp-v0", length=4, lucky=2, luck=0.25, goal_reward=9.0, walk_cost=0.5, run_cost=1.5
    )  # fmt: skip
    mdp = env.unwrapped.mdp
    assert mdp.n_states == 5
    assert mdp.transition[0, WAIT].tolist() == [0.0, 0.75, 0.25, 0.0, 0.0]
    assert mdp.reward_mean[3, WALK, 4] == 8.5
    assert mdp.reward_mean[2, RUN, 4] == mdp.reward_mean[3, RUN, 4] == 7.5
    assert mdp.reward_mean[2, WAIT, 2] == -0.5
    certain = CatchUp(length=2, lucky=1, luck=0.3).mdp
    assert certain.transition[0, WALK].tolist() == [0.0, 1.0, 0.0]
    assert CatchUp(luck=1.0).mdp.transition[0, WALK, 6] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 1}, "expected 1 ≤ lucky < length and length ≥ 2, got lucky=6, length=1"),
        ({"lucky": 0}, "expected 1 ≤ lucky < length and length ≥ 2, got lucky=0, length=10"),
        ({"lucky": 10}, "got lucky=10, length=10"),
        ({"luck": 1.5}, "luck must be a probability from 0 to 1, got 1.5"),
        ({"run_cost": float("nan")}, "mean reward of state 1, action 1, next state 3 is nan"),
    ],
)
def test_mistakes_with_catch_up(arguments, message):
    with pytest.raises(UserError, match=message):
        CatchUp(**arguments)
