"""What a learner sees of an environment: compiled worlds where we can, Gymnasium everywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from vpac.envs.continuous_puddle_world import ContinuousPuddleWorld
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.gym_env import FiniteMDPEnv
from vpac.envs.tables import make_env
from vpac.errors import UserError
from vpac.learners.compiled import compiled
from vpac.learners.features import Tiles, fill_tiles, tile_coder
from vpac.learners.options import Options
from vpac.learners.worlds import World, compile_mdp, compile_puddle
from vpac.typing import FloatArray, IntArray

__all__ = ["Sight", "look_at"]

TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
"""Wrappers that do not change what an environment does."""
LONGEST = 1_000_000
"""An episode of more steps than this, in an environment without a limit, is taken for one that never ends."""


@dataclass(frozen=True)
class Sight:
    """An environment as a learner sees it."""

    name: str
    """The environment's id, or what it is."""
    n_features: int
    """How many features there are."""
    n_active: int
    """How many of them are active at a time."""
    n_actions: int
    """How many actions there are."""
    limit: int
    """Steps after which an episode is cut off."""
    limited: bool
    """Whether that limit is somebody's choice; otherwise reaching it is an error."""
    tiles: Tiles
    """The tile coder of point observations."""
    first: int
    """The smallest observation of a Discrete space."""
    mdp: FiniteMDP | None
    """The finite process behind it, if it is known: then policies are evaluated exactly."""
    world: World | None
    """The compiled world, if there is one."""
    env: gymnasium.Env[Any, Any] | None
    """The environment, if it is not compiled."""

    def features(self, observation: Any) -> IntArray:
        """The active features of an observation."""
        active = np.zeros(self.n_active, np.int64)
        if len(self.tiles.offset):
            point = np.asarray(observation, np.float64).ravel()
            if not np.isfinite(point).all():
                raise UserError(f"{self.name} gave an observation that is not finite: {observation!r}")
            _fill_tiles(self.tiles, point, active)
        else:
            active[0] = int(observation) - self.first
        return active


@compiled
def _fill_tiles(tiles: Tiles, point: FloatArray, active: IntArray) -> None:
    fill_tiles(tiles, point, active)


def look_at(env: Any, options: Options) -> Sight:
    """Understand an environment: an id, an environment object or a `FiniteMDP`."""
    if isinstance(env, str):
        env = make_env(env)
    if isinstance(env, FiniteMDP):
        return _see_finite(env, repr(env), options.max_episode_steps, options)
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"expected a Gymnasium environment, its id or a FiniteMDP, got {type(env).__name__}")
    limit, inner = options.max_episode_steps, env
    while isinstance(inner, TRANSPARENT):
        if isinstance(inner, TimeLimit):
            limit = limit or inner._max_episode_steps
        inner = inner.env
    name = env.spec.id if env.spec else type(inner).__name__
    if isinstance(inner, FiniteMDPEnv):
        return _see_finite(inner.mdp, name, limit, options)
    if not isinstance(env.action_space, spaces.Discrete):
        raise UserError(
            f"{name} has {env.action_space} actions: these learners need Discrete actions; the PPO family takes Box"
        )
    if env.action_space.start != 0:
        raise UserError(f"{name} numbers its actions from {env.action_space.start}: expected from 0")
    if isinstance(inner, ContinuousPuddleWorld):
        tiles = tile_coder(np.zeros(2), np.ones(2), options.tilings, options.tiles, options.hash_size)
        world = compile_puddle(inner, tiles)
        return Sight(name, tiles.size, len(tiles.offset), 4, *_limit(limit), tiles, 0, None, world, None)
    return _see_gymnasium(env, name, limit, options)


def _see_finite(mdp: FiniteMDP, name: str, limit: int | None, options: Options) -> Sight:
    world = compile_mdp(mdp)
    return Sight(name, mdp.n_states, 1, mdp.n_actions, *_limit(limit), Tiles.none(), 0, mdp, world, None)


def _see_gymnasium(env: gymnasium.Env[Any, Any], name: str, limit: int | None, options: Options) -> Sight:
    seen, n_actions = env.observation_space, int(env.action_space.n)  # type: ignore[attr-defined]
    if isinstance(seen, spaces.Discrete):
        return Sight(name, int(seen.n), 1, n_actions, *_limit(limit), Tiles.none(), int(seen.start), None, None, env)
    if isinstance(seen, spaces.Box):
        if len(seen.shape) > 1:
            raise UserError(f"{name} has observations of shape {list(seen.shape)}: tile coding needs a vector")
        tiles = tile_coder(seen.low, seen.high, options.tilings, options.tiles, options.hash_size)
        return Sight(name, tiles.size, len(tiles.offset), n_actions, *_limit(limit), tiles, 0, None, None, env)
    raise UserError(f"{name} has {type(seen).__name__} observations: these learners need Discrete or Box observations")


def _limit(limit: int | None) -> tuple[int, bool]:
    return (LONGEST, False) if limit is None else (limit, True)
