"""Environments: finite MDPs, maps drawn as text, the worlds of the paper, noise wrappers, and making and checking
environments of users."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily
from vpac.envs.registration import WORLDS

if TYPE_CHECKING:
    from vpac.envs.check import Findings, check_env, look_over
    from vpac.envs.finite_mdp import FiniteMDP
    from vpac.envs.functional import FiniteEnv, FunctionalEnv, GymnaxEnv
    from vpac.envs.make import make_env, spec_of
    from vpac.envs.maps import GridMap, enlarge, grid_world
    from vpac.envs.noise import (
        ActionNoise,
        RandomFirstSteps,
        RandomStart,
        RegionalRewardNoise,
        RewardNoise,
        SeedGlobals,
    )
    from vpac.envs.observations import arranged, flattened
    from vpac.envs.registration import register
    from vpac.envs.remember import RememberReturn, remembering
    from vpac.envs.risk_tasks import BothDirections, CarFollowing, GuardedMaze, NoisyLanding, ServerAllocation
    from vpac.envs.worlds import CatchUp, ContinuousPuddleWorld, FiniteMDPEnv, FourRooms, PuddleWorld, RiskyShortcut

MODULES = {
    "check": ("Findings", "check_env", "look_over"), "finite_mdp": ("FiniteMDP",),
    "functional": ("FiniteEnv", "FunctionalEnv", "GymnaxEnv"), "make": ("make_env", "spec_of"),
    "maps": ("GridMap", "enlarge", "grid_world"),
    "noise": ("ActionNoise", "RandomFirstSteps", "RandomStart", "RegionalRewardNoise", "RewardNoise", "SeedGlobals"),
    "observations": ("arranged", "flattened"), "registration": ("register",), "remember": ("RememberReturn", "remembering"),
    "risk_tasks": ("BothDirections", "NoisyLanding"), "worlds": ("FiniteMDPEnv",),
}  # fmt: skip

__all__ = [
    "ActionNoise", "BothDirections", "CarFollowing", "CatchUp", "ContinuousPuddleWorld", "Findings", "FiniteEnv",
    "FiniteMDP", "FiniteMDPEnv", "FourRooms", "FunctionalEnv", "GridMap", "GuardedMaze", "GymnaxEnv", "NoisyLanding",
    "PuddleWorld", "RandomFirstSteps", "RandomStart", "RegionalRewardNoise", "RememberReturn", "RewardNoise",
    "RiskyShortcut", "SeedGlobals", "ServerAllocation", "arranged", "check_env", "enlarge", "flattened", "grid_world",
    "look_over", "make_env", "register", "remembering", "spec_of",
]  # fmt: skip

__getattr__, __dir__ = lazily(
    __name__,
    {name: f"{__name__}.{module}" for module, names in MODULES.items() for name in names}
    | {world.class_name: f"{__name__}.{world.module}" for world in WORLDS},
)
