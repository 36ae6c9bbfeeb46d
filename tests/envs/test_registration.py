from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import vpac.envs
from vpac.envs.registration import WORLDS, register

NAMES = {world.id: world.max_episode_steps for world in WORLDS}
SHIPPED = {
    "vpac/FourRooms-v0": 500,
    "vpac/PuddleWorld-v0": 500,
    "vpac/ContinuousPuddleWorld-v0": 5000,
    "vpac/RiskyShortcut-v0": 200,
    "vpac/CatchUp-v0": 200,
    "vpac/GuardedMaze-v0": 100,
    "vpac/CarFollowing-v0": 200,
    "vpac/ServerAllocation-v0": 200,
}
"""Ids and limits that stored runs and the documentation rely on; a new world need not be added."""
worlds = pytest.mark.parametrize("name", NAMES)


def test_the_registered_worlds_and_their_limits():
    assert SHIPPED.items() <= NAMES.items()
    assert len(NAMES) == len(WORLDS)
    for name, limit in NAMES.items():
        assert gymnasium.spec(name).max_episode_steps == limit
    before = dict(gymnasium.registry)
    register()  # once more does no harm
    assert dict(gymnasium.registry) == before


def test_every_public_name_can_be_imported():
    assert {world.class_name for world in WORLDS} <= {*vpac.envs.__all__}, "add it to __all__ and to the imports above"
    for name in vpac.envs.__all__:
        assert getattr(vpac.envs, name).__name__ == name
        assert name in dir(vpac.envs)
    with pytest.raises(AttributeError, match="did you mean 'FourRooms'"):
        _ = vpac.envs.FourRoom


@worlds
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_gymnasium_has_nothing_to_complain_about(name, render_mode):
    check_env(gymnasium.make(name, render_mode=render_mode).unwrapped)


STANDING_STILL = {
    "vpac/FourRooms-v0": ({"slip": 0.0}, {"state": 0}, 0),
    "vpac/PuddleWorld-v0": ({"slip": 0.0}, {"state": 0}, 0),
    "vpac/ContinuousPuddleWorld-v0": ({"noise": 0.0}, {"position": [0.0, 0.0]}, 0),
    "vpac/CatchUp-v0": ({}, {"state": 3}, 2),
    "vpac/CarFollowing-v0": ({"brakes": 0.0, "steps": 300}, {}, 1),
    "vpac/ServerAllocation-v0": ({"steps": 300}, {}, 1),
}
"""Arguments, options of `reset` and an action that never ends an episode."""
IN_A_CORNER = ({}, {"state": 0}, 0)
"""For worlds that are not listed: there is a wall above the first cell of a map."""


@worlds
def test_the_limit_truncates_and_does_not_terminate(name):
    arguments, options, action = STANDING_STILL.get(name, IN_A_CORNER)
    env = gymnasium.make(name, **arguments)
    env.reset(seed=0, options=options)
    ends = [env.step(action)[2:4] for _ in range(NAMES[name])]
    assert ends[:-1] == [(False, False)] * (NAMES[name] - 1)
    assert ends[-1] == (False, True)


@worlds
def test_another_limit(name):
    arguments, options, action = STANDING_STILL.get(name, IN_A_CORNER)
    env = gymnasium.make(name, max_episode_steps=3, **arguments)
    env.reset(seed=0, options=options)
    assert [env.step(action)[3] for _ in range(3)] == [False, False, True]


def episode(name, seed):
    env = gymnasium.make(name)
    observation, _ = env.reset(seed=seed)
    env.action_space.seed(0)
    seen = [(np.asarray(observation).tolist(), 0.0, False)]
    while len(seen) < 60 and not seen[-1][2]:
        observation, reward, terminated, *_ = env.step(env.action_space.sample())
        seen.append((np.asarray(observation).tolist(), reward, terminated))
    return seen


@worlds
def test_the_seed_decides_the_episode(name):
    first, again = episode(name, 1), episode(name, 1)
    assert first == again
    assert len({str(episode(name, seed)) for seed in range(8)}) > 1


def test_worlds_draw_from_their_own_generator():
    np.random.seed(0)  # noqa: NPY002 (the global stream is what must not matter)
    one = episode("vpac/FourRooms-v0", 3)
    np.random.seed(1)  # noqa: NPY002
    assert episode("vpac/FourRooms-v0", 3) == one
