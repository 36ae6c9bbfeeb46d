"""Registration of the built-in environments with Gymnasium."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RegisteredWorld:
    """A built-in environment `vpac/NAME-v0` of the class `vpac.envs.NAME`: id, step limit, description and module."""

    id: str
    max_episode_steps: int
    about: str
    module: str = "worlds"

    @property
    def class_name(self) -> str:
        """The NAME of its id."""
        return self.id.removeprefix("vpac/").removesuffix("-v0")


WORLDS = (
    RegisteredWorld("vpac/FourRooms-v0", 500, "104 cells, noisy ice on the short way"),
    RegisteredWorld("vpac/PuddleWorld-v0", 500, "100 cells, 8 moves, a noisy puddle"),
    RegisteredWorld("vpac/ContinuousPuddleWorld-v0", 5000, "the unit square, 4 moves, a noisy puddle"),
    RegisteredWorld("vpac/RiskyShortcut-v0", 200, "a short way may throw you back"),
    RegisteredWorld("vpac/CatchUp-v0", 200, "luck first, then the choice of pace"),
    RegisteredWorld("vpac/GuardedMaze-v0", 100, "a guard takes a toll on the short way", "risk_tasks"),
    RegisteredWorld("vpac/CarFollowing-v0", 200, "close up to a car that may brake", "risk_tasks"),
    RegisteredWorld("vpac/ServerAllocation-v0", 200, "rent servers for rare rushes", "risk_tasks"),
)


Wrapper = tuple[str, str, dict[str, Any]]
"""Name, import path and arguments."""


@dataclass(frozen=True)
class SidedTask:
    """A task of Gymnasium with noise on one side: its id, the task, arguments, step limit, wrappers and a description."""

    id: str
    base: str
    arguments: dict[str, Any]
    max_episode_steps: int
    wrappers: tuple[Wrapper, ...]
    about: str

    @property
    def noise(self) -> dict[str, Any]:
        """Arguments of the wrapper that adds the noise."""
        return self.wrappers[-1][2]


def _noise_right_of(low: float, std: float, where: str | int = "x_position") -> Wrapper:
    arguments = {"std": std, "where": where, "low": low, "high": None}
    return "RegionalRewardNoise", "vpac.envs.noise:RegionalRewardNoise", arguments


def _noisy(task: str, version: str, std: float, low: float) -> SidedTask:
    """A MuJoCo task whose rewards are noisy where x > `low`; observations include x."""
    base, wrapper = f"{task}-{version}", _noise_right_of(low, std)
    about = f"{base}, reward noise N(0, {std:g}²) where x > {low:g}"
    return SidedTask(f"vpac/Noisy{task}-v0", base, SEES_X, 1000, (wrapper,), about)


BOTH_WAYS: Wrapper = ("BothDirections", "vpac.envs.risk_tasks:BothDirections", {})
SEES_X = {"exclude_current_positions_from_observation": False}
NOISY_TASKS = (
    _noisy("HalfCheetah", "v5", 10.0, 5.0), _noisy("Hopper", "v5", 3.0, 2.0), _noisy("Walker2d", "v5", 3.0, 2.0),
)  # fmt: skip
SIDED_TASKS = (
    SidedTask(
        "vpac/TwoSidedPendulum-v0", "InvertedPendulum-v5", {}, 500, (_noise_right_of(0.01, 10.0, 0),),
        "InvertedPendulum-v5, reward noise N(0, 10²) where x > 0.01",
    ),
    SidedTask(
        "vpac/TwoSidedHalfCheetah-v0", "HalfCheetah-v5", SEES_X, 500, (BOTH_WAYS, _noise_right_of(0.0, 10.0)),
        "HalfCheetah-v5 paid for either direction, noise N(0, 10²) where x > 0",
    ),
    SidedTask(
        "vpac/TwoSidedSwimmer-v0", "Swimmer-v5", SEES_X, 500, (BOTH_WAYS, _noise_right_of(0.5, 10.0)),
        "Swimmer-v5 paid for either direction, noise N(0, 10²) where x > 0.5",
    ),
    SidedTask(
        "vpac/NoisyLunarLander-v0", "LunarLander-v3", {}, 500,
        (("NoisyLanding", "vpac.envs.risk_tasks:NoisyLanding", {"std": 100.0, "low": 0.0}),),
        "LunarLander-v3 (needs Box2D), noise N(0, 100²) for ending right of the middle",
    ),
)  # fmt: skip


def register() -> None:
    """Register the built-in environments with Gymnasium; may be called twice. MuJoCo is not imported."""
    import gymnasium
    from gymnasium.envs.registration import WrapperSpec

    for world in WORLDS:
        if world.id not in gymnasium.registry:
            entry = f"vpac.envs.{world.module}:{world.class_name}"
            gymnasium.register(world.id, entry, max_episode_steps=world.max_episode_steps)
    for task in (*SIDED_TASKS, *NOISY_TASKS):
        if task.id not in gymnasium.registry:
            gymnasium.register(
                task.id, gymnasium.spec(task.base).entry_point, max_episode_steps=task.max_episode_steps,
                kwargs=dict(task.arguments), additional_wrappers=tuple(WrapperSpec(*wrapper) for wrapper in task.wrappers),
            )  # fmt: skip
