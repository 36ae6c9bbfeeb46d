from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from PIL import ImageColor

from vpac.envs import ContinuousPuddleWorld, FiniteMDP, FiniteMDPEnv, FourRooms, GridMap, grid_world
from vpac.envs.picture import AGENT_COLOUR, DANGER, FLOOR, FROZEN, GOAL, INK, SNOW, WALL, as_pixels, as_text
from vpac.envs.registration import WORLDS
from vpac.errors import UserError

UP, DOWN, LEFT, RIGHT = range(4)
TINY = "#s \nf.x\n..g"
CELL = 40
"""Pixels of a cell in pictures of small maps."""


def colour(name):
    return list(ImageColor.getrgb(name))


def tiny(mode, trajectory=False, actions=()):
    env = FiniteMDPEnv(grid_world(TINY, throw=0.0), render_mode=mode, trajectory=trajectory)
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    return env.render()


def inside(pixels, row, column):
    """The pixels of a cell without its outline."""
    return pixels[row * CELL + 3 : (row + 1) * CELL - 3, column * CELL + 3 : (column + 1) * CELL - 3]


def test_text_with_the_agent():
    assert tiny("ansi") == "#@.\nf.x\n..g\n"
    assert tiny("ansi", actions=[DOWN]) == "#s.\nf@x\n..g\n"


def test_text_with_the_way():
    assert tiny("ansi", trajectory=True) == "#@.\nf.x\n..g\n"
    assert tiny("ansi", trajectory=True, actions=[RIGHT, DOWN, DOWN]) == "#**\nf.*\n..@\n"
    assert tiny("ansi", trajectory=True, actions=[DOWN, UP]) == "#@.\nf*x\n..g\n"


def test_the_way_begins_anew_with_each_episode():
    env = FiniteMDPEnv(grid_world(TINY), render_mode="ansi", trajectory=True)
    env.reset()
    env.step(DOWN)
    env.reset()
    assert env.render() == "#@.\nf.x\n..g\n"


def test_before_the_first_episode_there_is_no_agent():
    mdp = grid_world(TINY)
    assert FiniteMDPEnv(mdp, render_mode="ansi").render() == "#s.\nf.x\n..g\n"
    bare = FiniteMDPEnv(mdp, render_mode="rgb_array").render()
    assert not (bare == colour(AGENT_COLOUR)).all(axis=2).any()
    assert ContinuousPuddleWorld(render_mode="ansi").render() == "not started\n"
    assert ContinuousPuddleWorld(render_mode="rgb_array").render().dtype == np.uint8


def test_no_mode_draws_nothing():
    assert tiny(None) is None


def test_a_picture_is_red_green_and_blue():
    pixels = tiny("rgb_array")
    assert pixels.dtype == np.uint8
    assert pixels.shape == (3 * CELL, 3 * CELL, 3)
    wide = as_pixels(GridMap.parse("s" + "." * 30 + "g"), [])
    assert wide.shape == (20, 32 * 20, 3)


@pytest.mark.parametrize(
    ("actions", "cell"),
    [([], (0, 1)), ([DOWN], (1, 1)), ([RIGHT], (0, 2)), ([DOWN, LEFT], (1, 0)), ([DOWN, DOWN], (2, 1))],
)
@pytest.mark.parametrize("trajectory", [False, True])
def test_the_agent_is_where_it_is(actions, cell, trajectory):
    pixels = tiny("rgb_array", trajectory, actions)
    for down, right in ((0, 0), (-6, -6), (-6, 6), (6, -6), (6, 6)):  # all over its disc, which is wider than the way
        row, column = int((cell[0] + 0.5) * CELL) + down, int((cell[1] + 0.5) * CELL) + right
        assert pixels[row, column].tolist() == colour(AGENT_COLOUR)
    rows, columns = np.nonzero((pixels == colour(AGENT_COLOUR)).all(axis=2))
    if not trajectory:
        assert rows.mean() == pytest.approx((cell[0] + 0.5) * CELL, abs=1.0)
        assert columns.mean() == pytest.approx((cell[1] + 0.5) * CELL, abs=1.0)


def test_the_way_is_drawn_from_cell_to_cell():
    without, with_way = (tiny("rgb_array", trajectory, [DOWN, DOWN]) for trajectory in (False, True))
    changed = (without != with_way).any(axis=2)
    for row in (1.0, 1.25, 1.5, 1.75):  # along the line down column 1
        assert changed[int(row * CELL), int(1.5 * CELL)], row
    assert not changed[:, : CELL + 5].any()
    assert not changed[:, 2 * CELL - 5 :].any()
    assert np.array_equal(tiny("rgb_array", True), tiny("rgb_array", False))  # nothing walked yet


def test_the_way_darkens_towards_the_agent():
    pixels = as_pixels(GridMap.parse("s......g"), [0, 1, 2, 3, 4, 5])
    brightness = [int(pixels[20, column * CELL].sum()) for column in (1, 2, 3, 4, 5)]
    assert brightness == sorted(brightness, reverse=True)
    assert brightness[0] > brightness[-1]


def test_each_kind_of_cell_has_its_look():
    pixels = as_pixels(GridMap.parse(TINY), [])
    grounds = {(0, 0): WALL, (0, 2): FLOOR, (1, 0): FROZEN, (1, 1): FLOOR, (1, 2): DANGER, (2, 2): GOAL}
    for (row, column), ground in grounds.items():
        assert pixels[row * CELL + 4, column * CELL + 4].tolist() == colour(ground), (row, column)
    assert len({WALL, FLOOR, FROZEN, DANGER, GOAL}) == 5
    marks = {(1, 0): SNOW, (1, 2): INK, (2, 2): INK, (0, 1): INK}  # snow, a cross, G and S
    for (row, column), mark in marks.items():
        drawn = (inside(pixels, row, column) == colour(mark)).all(axis=2).sum()
        assert 20 < drawn < 300, (row, column)
    for row, column in ((0, 0), (0, 2), (1, 1), (2, 0)):
        assert len(np.unique(inside(pixels, row, column).reshape(-1, 3), axis=0)) == 1


def test_walls_are_walls_however_they_are_written():
    assert np.array_equal(as_pixels(GridMap.parse("w.g"), []), as_pixels(GridMap.parse("# g"), []))


def test_large_maps_stay_small_pictures():
    pixels = FourRooms(scale=10, render_mode="rgb_array").render()
    assert pixels.shape == (520, 520, 3)
    assert pixels[90, 230].tolist() == colour(FROZEN)  # no marks where cells are a few pixels wide
    env = FourRooms(scale=10, render_mode="rgb_array")
    env.reset(seed=0)
    assert (env.render() == colour(AGENT_COLOUR)).all(axis=2).sum() > 20  # the agent can still be seen


def test_a_process_without_a_map_is_drawn_as_a_strip():
    n = 40
    mdp = FiniteMDP.from_transitions(
        n, 1, np.arange(n - 1), np.zeros(n - 1), np.arange(1, n), 1.0,
        start=np.arange(n) == 33, terminal=np.arange(n) == n - 1,
    )  # fmt: skip
    env = FiniteMDPEnv(mdp, render_mode="ansi")
    env.reset()
    assert env.render() == "." * 32 + "\n" + ".@......" + "w" * 24 + "\n"
    env = FiniteMDPEnv(mdp, render_mode="rgb_array")
    env.reset()
    pixels = env.render()
    assert pixels.shape == (40, 640, 3)
    assert pixels[30, 30].tolist() == colour(AGENT_COLOUR)


def test_text_of_the_continuous_world():
    env = ContinuousPuddleWorld(render_mode="ansi", noise=0.0)
    env.reset(options={"position": [0.25, 0.5]})
    assert env.render() == "x = 0.250, y = 0.500\n"
    env.step(1)
    env.step(1)
    assert env.render() == "x = 0.350, y = 0.500 (in the puddle)\n"


def continuous_pixel(x, y):
    """Row and column of a point: the square is 480 pixels wide and has a margin of 20; y points up."""
    return int(20 + 480 * (1 - y)), int(20 + 480 * x)


@pytest.mark.parametrize("position", [(0.1, 0.2), (0.8, 0.2), (0.2, 0.9), (0.5, 0.5)])
def test_picture_of_the_continuous_world(position):
    env = ContinuousPuddleWorld(render_mode="rgb_array")
    env.reset(options={"position": position})
    pixels = env.render()
    assert pixels.shape == (520, 520, 3)
    assert pixels[continuous_pixel(*position)].tolist() == colour(AGENT_COLOUR)
    assert pixels[continuous_pixel(0.34, 0.34)].tolist() != colour(FLOOR)
    assert pixels[continuous_pixel(0.61, 0.31)].tolist() == colour(FROZEN)
    assert pixels[continuous_pixel(0.29, 0.31)].tolist() == colour(FLOOR)
    assert pixels[continuous_pixel(0.93, 0.99)].tolist() == colour(GOAL)
    assert pixels[continuous_pixel(0.89, 0.99)].tolist() == colour(FLOOR)
    assert pixels[5, 5].tolist() == pixels[515, 260].tolist() == colour(WALL)


def test_way_in_the_continuous_world():
    pictures = []
    for trajectory in (False, True):
        env = ContinuousPuddleWorld(render_mode="rgb_array", trajectory=trajectory, noise=0.0)
        env.reset(options={"position": (0.1, 0.8)})
        for _ in range(6):
            env.step(1)
        pictures.append(env.render())
    changed = (pictures[0] != pictures[1]).any(axis=2)
    assert changed[continuous_pixel(0.2, 0.8)]
    assert changed[continuous_pixel(0.3, 0.8)]
    assert not changed[continuous_pixel(0.5, 0.8)]
    assert pictures[1][continuous_pixel(0.4, 0.8)].tolist() == colour(AGENT_COLOUR)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.id)
@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_every_world_can_be_drawn_through_gymnasium(world, mode):
    env = gymnasium.make(world.id, render_mode=mode, trajectory=True)
    env.reset(seed=0)
    before = env.render()
    for _ in range(4):
        env.step(1)
    after = env.render()
    assert np.asarray(before != after).any()
    assert env.metadata["render_modes"] == ["ansi", "rgb_array"]


@pytest.mark.parametrize("mode", ["human", "rgb", ""])
def test_an_unknown_render_mode(mode):
    with pytest.raises(UserError, match=f"unknown render_mode '{mode}': expected None, 'ansi' or 'rgb_array'"):
        FourRooms(render_mode=mode)


def test_text_does_not_change_the_map():
    layout = GridMap.parse(TINY)
    as_text(layout, [0, 1, 2])
    assert as_text(layout, []) == "#s.\nf.x\n..g\n"
