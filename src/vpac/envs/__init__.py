"""Worlds: finite processes, maps drawn as text, and the environments of the paper, registered with Gymnasium."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily

if TYPE_CHECKING:
    from vpac.envs.catch_up import CatchUp
    from vpac.envs.continuous_puddle_world import ContinuousPuddleWorld
    from vpac.envs.finite_mdp import FiniteMDP
    from vpac.envs.four_rooms import FourRooms
    from vpac.envs.gym_env import FiniteMDPEnv
    from vpac.envs.maps import GridMap, enlarge, grid_world
    from vpac.envs.puddle_world import PuddleWorld
    from vpac.envs.registration import register
    from vpac.envs.risky_shortcut import RiskyShortcut

__all__ = [
    "CatchUp",
    "ContinuousPuddleWorld",
    "FiniteMDP",
    "FiniteMDPEnv",
    "FourRooms",
    "GridMap",
    "PuddleWorld",
    "RiskyShortcut",
    "enlarge",
    "grid_world",
    "register",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "CatchUp": "vpac.envs.catch_up",
        "ContinuousPuddleWorld": "vpac.envs.continuous_puddle_world",
        "FiniteMDP": "vpac.envs.finite_mdp",
        "FiniteMDPEnv": "vpac.envs.gym_env",
        "FourRooms": "vpac.envs.four_rooms",
        "GridMap": "vpac.envs.maps",
        "PuddleWorld": "vpac.envs.puddle_world",
        "RiskyShortcut": "vpac.envs.risky_shortcut",
        "enlarge": "vpac.envs.maps",
        "grid_world": "vpac.envs.maps",
        "register": "vpac.envs.registration",
    },
)
