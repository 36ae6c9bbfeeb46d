"""Worlds: finite processes, maps drawn as text, and the environments of the paper, registered with Gymnasium; noise; checks
and making of environments that users bring."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily

if TYPE_CHECKING:
    from vpac.envs.catch_up import CatchUp
    from vpac.envs.check import Findings, check_env, look_over
    from vpac.envs.continuous_puddle_world import ContinuousPuddleWorld
    from vpac.envs.finite_mdp import FiniteMDP
    from vpac.envs.four_rooms import FourRooms
    from vpac.envs.gym_env import FiniteMDPEnv
    from vpac.envs.make import make_env, spec_of
    from vpac.envs.maps import GridMap, enlarge, grid_world
    from vpac.envs.noise import ActionNoise, RandomFirstSteps, RandomStart, RegionalRewardNoise, RewardNoise
    from vpac.envs.observations import flattened
    from vpac.envs.puddle_world import PuddleWorld
    from vpac.envs.registration import register
    from vpac.envs.remember import RememberReturn, remembering
    from vpac.envs.risky_shortcut import RiskyShortcut

__all__ = [
    "ActionNoise",
    "CatchUp",
    "ContinuousPuddleWorld",
    "Findings",
    "FiniteMDP",
    "FiniteMDPEnv",
    "FourRooms",
    "GridMap",
    "PuddleWorld",
    "RandomFirstSteps",
    "RandomStart",
    "RegionalRewardNoise",
    "RememberReturn",
    "RewardNoise",
    "RiskyShortcut",
    "check_env",
    "enlarge",
    "flattened",
    "grid_world",
    "look_over",
    "make_env",
    "register",
    "remembering",
    "spec_of",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "ActionNoise": "vpac.envs.noise",
        "CatchUp": "vpac.envs.catch_up",
        "ContinuousPuddleWorld": "vpac.envs.continuous_puddle_world",
        "Findings": "vpac.envs.check",
        "FiniteMDP": "vpac.envs.finite_mdp",
        "FiniteMDPEnv": "vpac.envs.gym_env",
        "FourRooms": "vpac.envs.four_rooms",
        "GridMap": "vpac.envs.maps",
        "PuddleWorld": "vpac.envs.puddle_world",
        "RandomFirstSteps": "vpac.envs.noise",
        "RandomStart": "vpac.envs.noise",
        "RegionalRewardNoise": "vpac.envs.noise",
        "RememberReturn": "vpac.envs.remember",
        "RewardNoise": "vpac.envs.noise",
        "RiskyShortcut": "vpac.envs.risky_shortcut",
        "check_env": "vpac.envs.check",
        "enlarge": "vpac.envs.maps",
        "flattened": "vpac.envs.observations",
        "grid_world": "vpac.envs.maps",
        "look_over": "vpac.envs.check",
        "make_env": "vpac.envs.make",
        "register": "vpac.envs.registration",
        "remembering": "vpac.envs.remember",
        "spec_of": "vpac.envs.make",
    },
)
