"""Our worlds in Gymnasium's registry."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WORLDS", "World", "register"]


@dataclass(frozen=True)
class World:
    """A world of ours: its Gymnasium id, where its class lives, its step limit and a line about it."""

    id: str
    entry_point: str
    max_episode_steps: int
    about: str


WORLDS = (
    World("vpac/FourRooms-v0", "vpac.envs.four_rooms:FourRooms", 500, "104 cells, noisy ice on the short way"),
    World("vpac/PuddleWorld-v0", "vpac.envs.puddle_world:PuddleWorld", 500, "100 cells, 8 moves, a noisy puddle"),
    World(
        "vpac/ContinuousPuddleWorld-v0", "vpac.envs.continuous_puddle_world:ContinuousPuddleWorld", 5000,
        "the unit square, 4 moves, a noisy puddle",
    ),
    World("vpac/RiskyShortcut-v0", "vpac.envs.risky_shortcut:RiskyShortcut", 200, "a short way may throw you back"),
    World("vpac/CatchUp-v0", "vpac.envs.catch_up:CatchUp", 200, "luck first, then the choice of pace"),
)  # fmt: skip


def register() -> None:
    """Make our worlds known to `gymnasium.make`; doing it twice does no harm."""
    import gymnasium

    for world in WORLDS:
        if world.id not in gymnasium.registry:
            gymnasium.register(world.id, world.entry_point, max_episode_steps=world.max_episode_steps)
