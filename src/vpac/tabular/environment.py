"""Environments that are sampled in compiled code: any `FiniteMDP`, and the continuous puddle world.

A position is two numbers: a state's index (as the bits of an integer) and zero, or a point of the unit square. Learners see
its active features: the state's index, or the tiles that contain the point.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import index
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from vpac.checks import LONGEST_EPISODE
from vpac.envs.check import check_before_use
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import EnvRecipe, make_env, spec_of
from vpac.envs.remember import RememberReturn, memory_of, return_range
from vpac.envs.worlds import ContinuousPuddleWorld, FiniteMDPEnv
from vpac.errors import UserError
from vpac.tabular.features import Tiles, fill_tiles, squash, tile_coder, unbounded
from vpac.tabular.kernel.generator import RngState, normal, uniform
from vpac.tabular.kernel.jit import compiled, inlined, shared
from vpac.tabular.options import Options
from vpac.typing import BoolArray, FloatArray, IntArray

ONE = np.uint64(1)
"""Unsigned indices need no test for negative ones."""


class World(NamedTuple):
    """An environment as arrays; those of a finite MDP, or `square` and `tiles`, are empty.

    Successors of a state and action are sorted by falling probability, so that the search for one ends soon.
    """

    finite: bool
    n_actions: int
    n_features: int
    n_active: int
    indptr: IntArray
    successor: IntArray
    probability: FloatArray
    reward: FloatArray
    deviation: FloatArray
    terminal: BoolArray
    starts: IntArray
    start_probability: FloatArray
    square: FloatArray
    tiles: Tiles


def compile_mdp(mdp: FiniteMDP) -> World:
    """A finite MDP as a compiled world."""
    order = np.lexsort((-mdp.probability, mdp.row))
    starts = np.flatnonzero(mdp.start > 0.0)
    return World(
        True, mdp.n_actions, mdp.n_states, 1, np.asarray(mdp.indptr, np.int64),
        np.asarray(mdp.successor[order], np.int64), mdp.probability[order], mdp.reward[order],
        np.sqrt(mdp.noise[order]), mdp.terminal, starts, mdp.start[starts], np.zeros(9), Tiles.none(),
    )  # fmt: skip


def compile_puddle(env: ContinuousPuddleWorld, tiles: Tiles) -> World:
    """The continuous puddle world as a compiled world, with tile features."""
    square = [env.stride, env.noise, *env.puddle, env.puddle_std, *env.goal, env.goal_distance, env.goal_reward]
    none, nowhere = np.zeros(0), np.zeros(0, np.int64)
    return World(
        False, 4, tiles.size, len(tiles.offset), nowhere, nowhere, none, none, none, np.zeros(0, bool), nowhere, none,
        np.array(square, np.float64), tiles,
    )  # fmt: skip


@inlined
def as_table(world: World, n_actions: int) -> World:
    """A finite MDP with `n_actions` actions, for a specialised compilation."""
    return World(
        True, n_actions, world.n_features, 1, world.indptr, world.successor, world.probability, world.reward,
        world.deviation, world.terminal, world.starts, world.start_probability, world.square, world.tiles,
    )  # fmt: skip


@inlined
def reset(world: World, position: FloatArray, rng: RngState) -> None:
    """Draw the start of an episode."""
    if world.finite:
        drawn, index, last = uniform(rng), 0, len(world.starts) - 1
        up_to = world.start_probability[0]
        while drawn >= up_to and index < last:
            index += 1
            up_to += world.start_probability[index]
        position.view(np.int64)[0] = world.starts[index]
    else:
        position[0] = uniform(rng)
        position[1] = uniform(rng)


@inlined
def observe(world: World, position: FloatArray, active: IntArray) -> None:
    """The active features of a position."""
    if world.finite:
        active[0] = position.view(np.int64)[0]
    else:
        fill_tiles(world.tiles, position, active)


@inlined
def move(world: World, position: FloatArray, action: int, rng: RngState) -> tuple[float, bool]:
    """Take an action and change the position; returns the reward and whether the episode terminated."""
    if world.finite:
        return _move_among_states(world, position, action, rng)
    return _move_in_square(world.square, position, action, rng)


@inlined
def _move_among_states(world: World, position: FloatArray, action: int, rng: RngState) -> tuple[float, bool]:
    state = position.view(np.int64)
    row = np.uint64(state[0] * world.n_actions + action)
    entry, last = np.uint64(world.indptr[row]), np.uint64(world.indptr[row + ONE]) - ONE
    left = uniform(rng) - world.probability[entry]
    while left >= 0.0 and entry < last:
        entry += ONE
        left -= world.probability[entry]
    paid = world.reward[entry]
    if world.deviation[entry] > 0.0:
        paid += world.deviation[entry] * normal(rng)
    state[0] = world.successor[entry]
    return paid, world.terminal[np.uint64(state[0])]


@shared
def _move_in_square(square: FloatArray, position: FloatArray, action: int, rng: RngState) -> tuple[float, bool]:
    stride, noise, low, high = square[0], square[1], square[2], square[3]
    paid = 0.0
    if low <= position[0] <= high and low <= position[1] <= high:
        paid = square[4] * normal(rng)
    position[action // 2] += stride if action % 2 == 1 else -stride
    for axis in range(2):
        position[axis] = min(1.0, max(0.0, position[axis] + noise * (2.0 * uniform(rng) - 1.0)))
    terminated = abs(position[0] - square[5]) + abs(position[1] - square[6]) < square[7]
    if terminated:
        paid += square[8]
    return paid, terminated


TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
"""Wrappers that do not change an environment's behaviour."""
REMEMBERED, MEMORY_POINTS = 30, 31
"""Most steps with memory of the return, and points of the grid of returns."""


@dataclass(frozen=True)
class Environment:
    """An environment for learners: features, actions, and a compiled world if there is one."""

    name: str
    """The environment's id or description."""
    n_features: int
    """Number of features."""
    n_actions: int
    """Number of actions."""
    limit: int
    """Steps after which an episode is truncated."""
    limited: bool
    """Whether the user or the environment set that limit; otherwise reaching it is an error."""
    n_active: int = 1
    """Number of features that are active at a time."""
    tiles: Tiles = field(default_factory=Tiles.none)
    """The tile coder of point observations."""
    squashed: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    """Whether each coordinate of point observations has no bounds."""
    first: int = 0
    """The smallest observation of a Discrete space."""
    first_action: int = 0
    """The smallest action."""
    mdp: FiniteMDP | None = None
    """The finite MDP, if it is known: then policies are evaluated exactly."""
    world: World | None = None
    """The compiled world, if there is one."""
    env: gymnasium.Env[Any, Any] | None = None
    """The environment, if it is not compiled."""
    recipe: EnvRecipe | None = None
    """Recipe to make it again; None: it cannot be expressed as plain data."""
    memory: dict[str, Any] | None = None
    """Arguments of the `RememberReturn` around it; None: no memory."""

    def features(self, observation: Any) -> IntArray:
        """The active features of an observation, checked because compiled code does not check them."""
        if len(self.tiles.offset):
            return self._tiles_of(observation)
        try:
            feature = index(observation) - self.first
        except TypeError:
            feature = -1
        if not 0 <= feature < self.n_features:
            expected = f"a whole number from {self.first} to {self.first + self.n_features - 1}"
            raise UserError(f"{observation!r} is not an observation of {self.name}: expected {expected}")
        return np.array([feature], np.int64)

    def _tiles_of(self, observation: Any) -> IntArray:
        size = len(self.tiles.low)
        try:
            point = np.asarray(observation, np.float64)
        except (TypeError, ValueError):
            point = np.zeros(0)
        if point.size != size or point.ndim > 1:
            flat = "; vpac.envs.flattened(env) gives them" if isinstance(observation, dict | tuple) else ""
            raise UserError(f"{observation!r} is not an observation of {self.name}: expected {size} numbers{flat}")
        if not np.isfinite(point).all():
            raise UserError(f"{observation!r} is not an observation of {self.name}: it is not finite")
        active = np.zeros(self.n_active, np.int64)
        _fill_tiles(self.tiles, squash(point.ravel(), self.squashed), active)
        return active


@compiled
def _fill_tiles(tiles: Tiles, point: FloatArray, active: IntArray) -> None:
    fill_tiles(tiles, point, active)


def open_environment(env: Any, options: Options) -> Environment:
    """Open a `FiniteMDP`, or what `make_env` takes (an id, a class, a specification, an object, …)."""
    if options.remember == "return":
        env = _remembering(env, options)
    if isinstance(env, FiniteMDP):
        return _finite(env, repr(env), options.max_episode_steps)
    made = make_env(env)
    check_before_use(env, lambda: make_env(env))
    return replace(_opened(made, options), recipe=EnvRecipe.of(env), memory=memory_of(made))


def _remembering(env: Any, options: Options) -> Any:
    """The environment with memory of the return, for `remember="return"`."""
    if isinstance(env, FiniteMDP):
        env = env.to_gymnasium(max_episode_steps=options.max_episode_steps)
    made = make_env(env)
    if memory_of(made) is not None:
        return env
    given: dict[str, Any] = {"gamma": float(options.gamma)}
    if isinstance(made.observation_space, spaces.Discrete):
        limits = (options.max_episode_steps, getattr(made.spec, "max_episode_steps", None), REMEMBERED)
        horizon = min(limit for limit in limits if limit)
        inner = made
        while isinstance(inner, TRANSPARENT):
            inner = inner.env
        try:
            if isinstance(inner, gymnasium.Wrapper):
                raise UserError("it may change rewards")
            low, high = return_range(FiniteMDP.from_gymnasium(inner), options.gamma, horizon)
        except UserError:
            raise UserError(
                f"{made} does not say which returns are possible, so that no grid can be laid: wrap it by hand, "
                "RememberReturn with gamma=… bins=… low=… high=… horizon=…"
            ) from None
        bins, high = (MEMORY_POINTS, high) if high > low else (2, low + 1.0)  # no reward before the end
        given |= {"bins": bins, "low": low, "high": high, "horizon": horizon}
    if isinstance(env, gymnasium.Env):
        return RememberReturn(made, **given)
    return spec_of(env, [("RememberReturn", given)])


def _opened(env: gymnasium.Env[Any, Any], options: Options) -> Environment:
    limit, inner = options.max_episode_steps, env
    memory: RememberReturn | None = None
    while isinstance(inner, TRANSPARENT) or (memory is None and isinstance(inner, RememberReturn)):
        if isinstance(inner, RememberReturn):
            memory = inner
        if isinstance(inner, TimeLimit):
            limit = limit or inner._max_episode_steps
        inner = inner.env
    name = env.spec.id if env.spec else type(inner).__name__
    mdp = inner.mdp if isinstance(inner, FiniteMDPEnv) else None
    if mdp is not None and memory is not None:
        mdp = memory.process(mdp)
    if mdp is not None:
        return _finite(mdp, name, limit)
    acts, seen = env.action_space, env.observation_space
    if not isinstance(acts, spaces.Discrete):
        raise UserError(f"{name} has {acts} actions: these learners need Discrete actions; the PPO family takes Box")
    common = {"name": name, "n_actions": int(acts.n), "first_action": int(acts.start), **_limits(limit)}
    if isinstance(seen, spaces.Discrete):
        return Environment(n_features=int(seen.n), first=int(seen.start), env=env, **common)
    assert isinstance(seen, spaces.Box)  # make_env has flattened or rejected everything else
    low, high = seen.low.astype(np.float64).ravel(), seen.high.astype(np.float64).ravel()
    which = unbounded(low, high)
    tiles = tile_coder(squash(low, which), squash(high, which), options.tilings, options.tiles, options.hash_size)
    world = compile_puddle(inner, tiles) if isinstance(inner, ContinuousPuddleWorld) and memory is None else None
    common |= {"world": world, "env": env if world is None else None}
    return Environment(n_features=tiles.size, n_active=len(tiles.offset), tiles=tiles, squashed=which, **common)


def _finite(mdp: FiniteMDP, name: str, limit: int | None) -> Environment:
    return Environment(name, mdp.n_states, mdp.n_actions, mdp=mdp, world=compile_mdp(mdp), **_limits(limit))


def _limits(limit: int | None) -> dict[str, Any]:
    return {"limit": limit or LONGEST_EPISODE, "limited": limit is not None}
