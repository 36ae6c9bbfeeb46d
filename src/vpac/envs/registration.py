"""Our worlds in Gymnasium's registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RegisteredWorld:
    """A world of ours, of the class `vpac.envs.NAME`: its Gymnasium id, its step limit and a line about it."""

    id: str
    max_episode_steps: int
    about: str


WORLDS = (
    RegisteredWorld("vpac/FourRooms-v0", 500, "104 cells, noisy ice on the short way"),
    RegisteredWorld("vpac/PuddleWorld-v0", 500, "100 cells, 8 moves, a noisy puddle"),
    RegisteredWorld("vpac/ContinuousPuddleWorld-v0", 5000, "the unit square, 4 moves, a noisy puddle"),
    RegisteredWorld("vpac/RiskyShortcut-v0", 200, "a short way may throw you back"),
    RegisteredWorld("vpac/CatchUp-v0", 200, "luck first, then the choice of pace"),
)


@dataclass(frozen=True)
class NoisyTask:
    """A MuJoCo task of Gymnasium whose rewards are noisy where x > `low`: its id, the task without noise, the noise.

    It shows the position along x, has at most 1000 steps, and everything else is as in Gymnasium.
    """

    id: str
    base: str
    std: float
    low: float

    @property
    def about(self) -> str:
        """A line about it."""
        return f"{self.base}, reward noise N(0, {self.std:g}²) where x > {self.low:g}"

    @property
    def noise(self) -> dict[str, Any]:
        """Arguments of `RegionalRewardNoise`."""
        return {"high": None, "std": self.std, "where": "x_position", "low": self.low}


NOISY_TASKS = (
    NoisyTask("vpac/NoisyHalfCheetah-v0", "HalfCheetah-v5", 10.0, 5.0),
    NoisyTask("vpac/NoisyHopper-v0", "Hopper-v5", 3.0, 2.0),
    NoisyTask("vpac/NoisyWalker2d-v0", "Walker2d-v5", 3.0, 2.0),
)


def register() -> None:
    """Make our worlds and noisy tasks known to `gymnasium.make`; doing it twice does no harm. MuJoCo is not imported."""
    import gymnasium
    from gymnasium.envs.registration import WrapperSpec

    for world in WORLDS:
        if world.id not in gymnasium.registry:
            name = world.id.removeprefix("vpac/").removesuffix("-v0")
            gymnasium.register(world.id, f"vpac.envs.worlds:{name}", max_episode_steps=world.max_episode_steps)
    for task in NOISY_TASKS:
        if task.id not in gymnasium.registry:
            gymnasium.register(
                task.id, gymnasium.spec(task.base).entry_point, max_episode_steps=1000,
                kwargs={"exclude_current_positions_from_observation": False},
                additional_wrappers=(WrapperSpec("RegionalRewardNoise", "vpac.envs.noise:RegionalRewardNoise", task.noise),),
            )  # fmt: skip
