"""Finite MDPs read from the transition tables of Gymnasium's toy-text environments."""

from __future__ import annotations

from collections import defaultdict

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import make_env
from vpac.envs.registration import WORLDS
from vpac.errors import UserError

TABLES = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake8x8-v1", {}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"is_rainy": True}),
]


def alive_states(env):
    """States in which one can be asked to act, found by walking through the table."""
    found = list(np.flatnonzero(env.initial_state_distrib))
    for state in found:
        for outcomes in env.P[state].values():
            for probability, successor, _, terminated in outcomes:
                if probability > 0 and not terminated and successor not in found:
                    found.append(successor)
    return found


@pytest.mark.parametrize(("name", "arguments"), TABLES)
def test_every_probability_and_reward_agrees_with_the_table(name, arguments):
    env = gymnasium.make(name, **arguments).unwrapped
    mdp = FiniteMDP.from_gymnasium(env)
    assert (mdp.n_states, mdp.n_actions) == (env.observation_space.n, env.action_space.n)
    assert mdp.start.tolist() == np.asarray(env.initial_state_distrib).tolist()
    P, mean, variance = mdp.transition, mdp.reward_mean, mdp.reward_variance
    alive = alive_states(env)
    assert not mdp.terminal[alive].any()
    for state in alive:
        for action, outcomes in env.P[state].items():
            ways = defaultdict(list)
            for probability, successor, reward, terminated in outcomes:
                assert bool(mdp.terminal[successor]) == terminated
                ways[successor].append((probability, reward))
            assert set(np.flatnonzero(P[state, action])) == set(ways)
            for successor, entries in ways.items():
                share, paid = np.array(entries).T
                expected = np.average(paid, weights=share)
                assert P[state, action, successor] == pytest.approx(share.sum(), rel=1e-14)
                assert mean[state, action, successor] == pytest.approx(expected, rel=1e-14)
                spread = np.average((paid - expected) ** 2, weights=share)
                assert variance[state, action, successor] == pytest.approx(spread, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "terminal", "goal"),
    [
        ("FrozenLake-v1", [5, 7, 11, 12, 15], [15]),
        ("FrozenLake8x8-v1", [19, 29, 35, 41, 42, 46, 49, 52, 54, 59, 63], [63]),
        ("CliffWalking-v1", [47], [47]),
        ("CliffWalkingSlippery-v1", [47], [47]),
        ("Taxi-v4", [0, 85, 410, 475], [0, 85, 410, 475]),
    ],
)
def test_terminal_states_and_goals(name, terminal, goal):
    mdp = FiniteMDP.from_gymnasium(name)
    assert np.flatnonzero(mdp.terminal).tolist() == terminal
    assert np.flatnonzero(mdp.goal).tolist() == goal


def test_numbers_of_the_slippery_lake_and_cliff_by_hand():
    lake = FiniteMDP.from_gymnasium("FrozenLake-v1")
    # right (2) from cell 14, beside the goal 15: a third each right, down (stays) and up (cell 10)
    assert lake.transition[14, 2, [10, 14, 15]] == pytest.approx([1 / 3] * 3)
    assert lake.reward_mean[14, 2, [10, 14, 15]].tolist() == [0.0, 0.0, 1.0]
    cliff = FiniteMDP.from_gymnasium("CliffWalkingSlippery-v1")
    # down (2) from cell 25, above the cliff: a third each into the cliff (back to 36), left and right
    assert cliff.transition[25, 2, [24, 26, 36]] == pytest.approx([1 / 3] * 3)
    assert cliff.reward_mean[25, 2, [24, 26, 36]].tolist() == [-1.0, -1.0, -100.0]


def test_a_cliff_that_throws_to_where_a_safe_move_leads_too():
    # down (2) from the start 36 of the slippery cliff: stays by going down or left, falls to the right
    mdp = FiniteMDP.from_gymnasium("CliffWalkingSlippery-v1")
    assert mdp.transition[36, 2, 36] == pytest.approx(1.0)
    assert mdp.reward_mean[36, 2, 36] == pytest.approx((-1 - 1 - 100) / 3)
    assert mdp.reward_variance[36, 2, 36] == pytest.approx(2 / 9 * 99**2)


def test_maps_of_the_lake_and_the_cliff():
    lake = FiniteMDP.from_gymnasium("FrozenLake-v1").layout
    assert ["".join(row) for row in lake.letters] == ["s...", ".x.x", "...x", "x..g"]
    cliff = FiniteMDP.from_gymnasium("CliffWalking-v1").layout
    assert ["".join(row) for row in cliff.letters] == ["." * 12] * 3 + ["s" + "x" * 10 + "g"]
    assert FiniteMDP.from_gymnasium("Taxi-v4").layout is None


def test_an_unreachable_hole_is_terminal():
    env = FrozenLakeEnv(desc=["SFFG", "FFHH", "FFHH"], is_slippery=False)
    mdp = FiniteMDP.from_gymnasium(env)
    assert np.flatnonzero(mdp.terminal).tolist() == [3, 6, 7, 10, 11]
    assert np.flatnonzero(mdp.goal).tolist() == [3]


def test_another_start():
    uniform = np.where(np.isin(np.arange(16), [5, 7, 11, 12, 15]), 0.0, 1 / 11)
    mdp = FiniteMDP.from_gymnasium("FrozenLake-v1", start=uniform)
    assert mdp.start.tolist() == uniform.tolist()
    assert mdp.n_states == 16
    with pytest.raises(UserError, match=r"start must have shape \[16\], got \[3\]"):
        FiniteMDP.from_gymnasium("FrozenLake-v1", start=[1.0, 0.0, 0.0])


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.id)
def test_our_own_worlds_know_their_process(world):
    env = gymnasium.make(world.id)
    if world.id == "vpac/ContinuousPuddleWorld-v0":
        with pytest.raises(UserError, match="ContinuousPuddleWorld has no transition table"):
            FiniteMDP.from_gymnasium(env)
        return
    mdp = FiniteMDP.from_gymnasium(env)
    assert mdp is env.unwrapped.mdp
    assert repr(FiniteMDP.from_gymnasium(world.id)) == repr(mdp)
    start = np.eye(mdp.n_states)[0]
    other = FiniteMDP.from_gymnasium(env, start=start)
    assert other.start.tolist() == start.tolist()
    assert other.probability is mdp.probability


class Tabled(gymnasium.Env):
    """An environment that is nothing but its table."""

    def __init__(self, P, start=(1.0, 0.0)):
        self.P = P
        if start is not None:
            self.initial_state_distrib = np.array(start)


def test_a_state_entered_both_ways_gets_an_extra_end():
    P = {
        0: {0: [(0.25, 1, 1.0, False), (0.5, 1, 3.0, True), (0.25, 0, 0.0, False)]},
        1: {0: [(0.5, 0, -2.0, True), (0.5, 1, 7.0, False)]},
    }
    mdp = FiniteMDP.from_gymnasium(Tabled(P))
    assert mdp.terminal.tolist() == mdp.goal.tolist() == [False, False, True]
    assert mdp.start.tolist() == [1.0, 0.0, 0.0]
    assert mdp.transition[:, 0].tolist() == [[0.25, 0.25, 0.5], [0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]
    assert mdp.reward_mean[:, 0].tolist() == [[0.0, 1.0, 3.0], [0.0, 7.0, -2.0], [0.0, 0.0, 0.0]]


def test_a_start_state_that_is_also_an_end_gets_an_extra_end():
    mdp = FiniteMDP.from_gymnasium(Tabled({0: {0: [(1.0, 0, 5.0, True)]}}, start=[1.0]))
    assert mdp.n_states == 2
    assert mdp.transition[0, 0].tolist() == [0.0, 1.0]
    assert mdp.reward_mean[0, 0, 1] == 5.0


def test_the_goal_is_what_pays_best_of_what_can_be_reached():
    end = {0: [(1.0, 1, 0.0, True)]}
    P = {0: {0: [(0.5, 1, 2.0, True), (0.5, 2, 1.0, True)]}, 1: end, 2: end, 3: {0: [(1.0, 2, 100.0, True)]}}
    mdp = FiniteMDP.from_gymnasium(Tabled(P, [1.0, 0.0, 0.0, 0.0]))
    assert mdp.terminal.tolist() == [False, True, True, False]
    assert mdp.goal.tolist() == [False, True, False, False]


def test_outcomes_with_the_same_successor_are_merged():
    P = {0: {0: [(0.75, 1, 2.0, True), (0.25, 1, 10.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    mdp = FiniteMDP.from_gymnasium(Tabled(P))
    assert mdp.n_states == 2
    assert (mdp.probability.tolist(), mdp.reward.tolist(), mdp.noise.tolist()) == ([1.0], [4.0], [12.0])


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Tabled({}), "Tabled has no transition table: expected an attribute P with P"),
        (Tabled(None), "Tabled has no transition table: expected an attribute P with P"),
        (Tabled({0: {0: [(1.0, 0, 0.0, False)]}}, None), "Tabled has no initial_state_distrib: pass start="),
        (
            Tabled({0: {0: [(1.0, 2, 0.0, True)]}}, [1.0]),
            "next state 2 is out of range: expected a whole number from 0 to 0",
        ),
        (
            Tabled({1: {0: [(1.0, 1, 0.0, True)]}}, [1.0]),
            "state 1 is out of range: expected a whole number from 0 to 0",
        ),
        (Tabled({0: {0: [(0.5, 0, 0.0, True)]}}, [1.0]), "state 0, action 0 sum to 0.5, expected 1"),
        (Tabled({0: {0: [(1.0, 0, 0.0, True)]}}, [0.5]), "start probabilities sum to 0.5, expected 1"),
    ],
)
def test_tables_that_are_wrong(env, message):
    with pytest.raises(UserError, match=message):
        FiniteMDP.from_gymnasium(env)


def test_an_environment_without_a_table():
    with pytest.raises(UserError, match="CartPoleEnv has no transition table: expected an attribute P"):
        FiniteMDP.from_gymnasium("CartPole-v1")


def test_a_table_that_does_not_tell_the_whole_story():
    with pytest.raises(UserError, match="a fickle passenger changes the destination"):
        FiniteMDP.from_gymnasium(gymnasium.make("Taxi-v4", fickle_passenger=True))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("FrozenLake-v7", "FrozenLake-v1"),
        ("CliffWalkingSlipery-v1", "CliffWalkingSlippery-v1"),
        ("FourRooms", "vpac/FourRooms-v0"),
        ("four rooms", "vpac/FourRooms-v0"),
        ("vpac/PuddleWorld-v3", "vpac/PuddleWorld-v0"),
        ("taxi", "Taxi-v4"),
        ("puddle", "vpac/PuddleWorld-v0"),
        ("catchup", "vpac/CatchUp-v0"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name, nearest):
    with pytest.raises(UserError, match=rf"unknown environment '{name}'; did you mean '{nearest}'\?$"):
        FiniteMDP.from_gymnasium(name)


def test_a_name_like_no_other():
    with pytest.raises(UserError, match="unknown environment 'zzz'; `vpac list` shows those that can be solved"):
        make_env("zzz")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("FrozenLake-v1", {"slippery": True}, "FrozenLake-v1 has no argument 'slippery'; did you mean 'is_slippery'"),
        ("FrozenLake-v1", {"map_name": "7x7"}, "FrozenLake-v1 does not take these arguments .KeyError: '7x7'"),
        ("vpac/FourRooms-v0", {"slipp": 0.1}, "vpac/FourRooms-v0 has no argument 'slipp'; did you mean 'slip'"),
        ("vpac/FourRooms-v0", {"slip": 2.0}, "slip must be a probability from 0 to 1, got 2"),
    ],
)
def test_arguments_that_are_not_taken(name, arguments, message):
    with pytest.raises(UserError, match=message):
        make_env(name, **arguments)
