"""Worlds that are sampled in compiled code: any `FiniteMDP`, and the continuous puddle world.

A place is two numbers: the state's number, as the bits of an integer, and nothing; or a point of the unit square.
What a learner sees of it is its active features: the state's number, or the tiles that the point lies in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpac.envs.continuous_puddle_world import ContinuousPuddleWorld
from vpac.envs.finite_mdp import FiniteMDP
from vpac.learners.compiled import inlined, shared
from vpac.learners.features import Tiles, fill_tiles
from vpac.learners.generator import Words, normal, uniform
from vpac.typing import BoolArray, FloatArray, IntArray

__all__ = ["World", "as_table", "compile_mdp", "compile_puddle", "first_place", "move", "see"]


ONE = np.uint64(1)
"""Indices without a sign need no test for negative ones, which count from an array's end."""


class World(NamedTuple):
    """A world as arrays; those of a finite process, or `square` and `tiles`, are empty.

    Successors of a state and action are sorted from likely to unlikely, so that the search for one ends soon.
    """

    finite: bool
    n_actions: int
    n_features: int
    n_active: int
    indptr: IntArray
    successor: IntArray
    probability: FloatArray
    reward: FloatArray
    deviation: FloatArray
    terminal: BoolArray
    starts: IntArray
    start_probability: FloatArray
    square: FloatArray
    tiles: Tiles


def compile_mdp(mdp: FiniteMDP) -> World:
    """A finite process as a compiled world."""
    order = np.lexsort((-mdp.probability, mdp.row))
    starts = np.flatnonzero(mdp.start > 0.0)
    return World(
        True, mdp.n_actions, mdp.n_states, 1, np.asarray(mdp.indptr, np.int64),
        np.asarray(mdp.successor[order], np.int64), mdp.probability[order], mdp.reward[order],
        np.sqrt(mdp.noise[order]), mdp.terminal, starts, mdp.start[starts], np.zeros(9), Tiles.none(),
    )  # fmt: skip


def compile_puddle(env: ContinuousPuddleWorld, tiles: Tiles) -> World:
    """The continuous puddle world as a compiled world, seen through tiles."""
    square = [env.stride, env.noise, *env.puddle, env.puddle_std, *env.goal, env.goal_distance, env.goal_reward]
    none, nowhere = np.zeros(0), np.zeros(0, np.int64)
    return World(
        False, 4, tiles.size, len(tiles.offset), nowhere, nowhere, none, none, none, np.zeros(0, bool), nowhere, none,
        np.array(square, np.float64), tiles,
    )  # fmt: skip


@inlined
def as_table(world: World, n_actions: int) -> World:
    """A finite process with so many actions, in code that is compiled for nothing else."""
    return World(
        True, n_actions, world.n_features, 1, world.indptr, world.successor, world.probability, world.reward,
        world.deviation, world.terminal, world.starts, world.start_probability, world.square, world.tiles,
    )  # fmt: skip


@inlined
def first_place(world: World, place: FloatArray, words: Words) -> None:
    """Draw where an episode starts."""
    if world.finite:
        drawn, index, last = uniform(words), 0, len(world.starts) - 1
        up_to = world.start_probability[0]
        while drawn >= up_to and index < last:
            index += 1
            up_to += world.start_probability[index]
        place.view(np.int64)[0] = world.starts[index]
    else:
        place[0] = uniform(words)
        place[1] = uniform(words)


@inlined
def see(world: World, place: FloatArray, active: IntArray) -> None:
    """The active features of a place."""
    if world.finite:
        active[0] = place.view(np.int64)[0]
    else:
        fill_tiles(world.tiles, place, active)


@inlined
def move(world: World, place: FloatArray, action: int, words: Words) -> tuple[float, bool]:
    """Take an action: changes the place; returns the reward and whether the episode terminated."""
    if world.finite:
        return _move_among_states(world, place, action, words)
    return _move_in_square(world.square, place, action, words)


@inlined
def _move_among_states(world: World, place: FloatArray, action: int, words: Words) -> tuple[float, bool]:
    state = place.view(np.int64)
    row = np.uint64(state[0] * world.n_actions + action)
    entry, last = np.uint64(world.indptr[row]), np.uint64(world.indptr[row + ONE]) - ONE
    left = uniform(words) - world.probability[entry]
    while left >= 0.0 and entry < last:
        entry += ONE
        left -= world.probability[entry]
    paid = world.reward[entry]
    if world.deviation[entry] > 0.0:
        paid += world.deviation[entry] * normal(words)
    state[0] = world.successor[entry]
    return paid, world.terminal[np.uint64(state[0])]


@shared
def _move_in_square(square: FloatArray, place: FloatArray, action: int, words: Words) -> tuple[float, bool]:
    stride, noise, low, high = square[0], square[1], square[2], square[3]
    paid = 0.0
    if low <= place[0] <= high and low <= place[1] <= high:
        paid = square[4] * normal(words)
    place[action // 2] += stride if action % 2 == 1 else -stride
    for axis in range(2):
        place[axis] = min(1.0, max(0.0, place[axis] + noise * (2.0 * uniform(words) - 1.0)))
    terminated = abs(place[0] - square[5]) + abs(place[1] - square[6]) < square[7]
    if terminated:
        paid += square[8]
    return paid, terminated
