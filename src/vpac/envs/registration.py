"""Our worlds in Gymnasium's registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RegisteredWorld:
    """A world of ours: its Gymnasium id, where its class lives, its step limit and a line about it."""

    id: str
    entry_point: str
    max_episode_steps: int
    about: str


WORLDS = (
    RegisteredWorld("vpac/FourRooms-v0", "vpac.envs.four_rooms:FourRooms", 500, "104 cells, noisy ice on the short way"),
    RegisteredWorld("vpac/PuddleWorld-v0", "vpac.envs.puddle_world:PuddleWorld", 500, "100 cells, 8 moves, a noisy puddle"),
    RegisteredWorld(
        "vpac/ContinuousPuddleWorld-v0", "vpac.envs.continuous_puddle_world:ContinuousPuddleWorld", 5000,
        "the unit square, 4 moves, a noisy puddle",
    ),
    RegisteredWorld("vpac/RiskyShortcut-v0", "vpac.envs.risky_shortcut:RiskyShortcut", 200, "a short way may throw you back"),
    RegisteredWorld("vpac/CatchUp-v0", "vpac.envs.catch_up:CatchUp", 200, "luck first, then the choice of pace"),
)  # fmt: skip


@dataclass(frozen=True)
class NoisyTask:
    """A MuJoCo task of Gymnasium whose rewards are noisy in a region: its id, where its class lives, the noise."""

    id: str
    base: str
    """The task without noise."""
    entry_point: str
    noise: dict[str, Any]
    """Arguments of `RegionalRewardNoise`."""
    about: str


NOISY_TASKS = (
    NoisyTask(
        "vpac/NoisyHalfCheetah-v0", "HalfCheetah-v5", "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv",
        {"std": 10.0, "where": "x_position", "low": 5.0}, "HalfCheetah-v5, reward noise N(0, 10²) where x > 5",
    ),
    NoisyTask(
        "vpac/NoisyHopper-v0", "Hopper-v5", "gymnasium.envs.mujoco.hopper_v5:HopperEnv",
        {"std": 3.0, "where": "x_position", "low": 2.0}, "Hopper-v5, reward noise N(0, 3²) where x > 2",
    ),
    NoisyTask(
        "vpac/NoisyWalker2d-v0", "Walker2d-v5", "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv",
        {"std": 3.0, "where": "x_position", "low": 2.0}, "Walker2d-v5, reward noise N(0, 3²) where x > 2",
    ),
)  # fmt: skip
"""They show the position along x, 1000 steps at most, everything else as in Gymnasium. Nothing of MuJoCo is imported before
one of them is made."""


def register() -> None:
    """Make our worlds and noisy tasks known to `gymnasium.make`; doing it twice does no harm."""
    import gymnasium
    from gymnasium.envs.registration import WrapperSpec

    for world in WORLDS:
        if world.id not in gymnasium.registry:
            gymnasium.register(world.id, world.entry_point, max_episode_steps=world.max_episode_steps)
    for task in NOISY_TASKS:
        if task.id not in gymnasium.registry:
            noise = {"high": None, **task.noise}
            gymnasium.register(
                task.id, task.entry_point, max_episode_steps=1000,
                kwargs={"exclude_current_positions_from_observation": False},
                additional_wrappers=(WrapperSpec("RegionalRewardNoise", "vpac.envs.noise:RegionalRewardNoise", noise),),
            )  # fmt: skip
