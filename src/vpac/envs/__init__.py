"""Environments: finite processes, maps drawn as text, the worlds of the paper, noise, and the making and checking of
environments that users bring."""

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

MODULES = {
    "catch_up": ("CatchUp",),
    "check": ("Findings", "check_env", "look_over"),
    "continuous_puddle_world": ("ContinuousPuddleWorld",),
    "finite_mdp": ("FiniteMDP",),
    "four_rooms": ("FourRooms",),
    "gym_env": ("FiniteMDPEnv",),
    "make": ("make_env", "spec_of"),
    "maps": ("GridMap", "enlarge", "grid_world"),
    "noise": ("ActionNoise", "RandomFirstSteps", "RandomStart", "RegionalRewardNoise", "RewardNoise"),
    "observations": ("flattened",),
    "puddle_world": ("PuddleWorld",),
    "registration": ("register",),
    "remember": ("RememberReturn", "remembering"),
    "risky_shortcut": ("RiskyShortcut",),
}

__all__ = [
    "ActionNoise", "CatchUp", "ContinuousPuddleWorld", "Findings", "FiniteMDP", "FiniteMDPEnv", "FourRooms", "GridMap",
    "PuddleWorld", "RandomFirstSteps", "RandomStart", "RegionalRewardNoise", "RememberReturn", "RewardNoise", "RiskyShortcut",
    "check_env", "enlarge", "flattened", "grid_world", "look_over", "make_env", "register", "remembering", "spec_of",
]  # fmt: skip

__getattr__, __dir__ = lazily(
    __name__, {name: f"{__name__}.{module}" for module, names in MODULES.items() for name in names}
)
