"""The built-in environments in JAX, which `jax:ID` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.functional import FiniteEnv, FunctionalEnv
from vpac.envs.make import make_env
from vpac.errors import UserError

if TYPE_CHECKING:
    from vpac.envs.worlds import ContinuousPuddleWorld


def jax_version(env: Any, **arguments: Any) -> FunctionalEnv:
    """The JAX version of an environment with known transitions, or with a method `functional` that returns it.

    `env` and `arguments` are those of `make_env`; `max_episode_steps` is its limit.
    """
    made = make_env(env, **arguments)
    inner = made.unwrapped
    if hasattr(inner, "functional"):
        found: FunctionalEnv = inner.functional()
    else:
        try:
            found = FiniteEnv(FiniteMDP.from_gymnasium(made))
        except UserError as error:
            raise UserError(f"{env} has no version in JAX: it has no method `functional`, and {error}") from None
    if made.spec is not None:
        found.limit = made.spec.max_episode_steps
    return found


class PuddleSquare(FunctionalEnv):
    """`ContinuousPuddleWorld` in JAX."""

    action_space = spaces.Discrete(4)
    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)

    def __init__(self, world: ContinuousPuddleWorld) -> None:
        self.world = world

    def draws(self, key: Any, shape: tuple[int, ...]) -> Any:
        """Two uniform numbers for the position and a normal one for the reward."""
        import jax

        one, two = jax.random.split(key)
        return jax.random.uniform(one, (*shape, 2)), jax.random.normal(two, shape)

    def reset(self, key: Any) -> tuple[Any, Any]:
        """A first position, anywhere."""
        return key[0], key[0]

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Move; pay for leaving a point in the puddle, and for arriving."""
        import jax.numpy as jnp

        from vpac.envs.worlds import DIRECTIONS

        w = self.world
        jitter = w.noise * (2.0 * key[0] - 1.0)
        there = jnp.clip(state + w.stride * jnp.asarray(DIRECTIONS, jnp.float32)[action] + jitter, 0.0, 1.0)
        over = jnp.abs(there - jnp.asarray(w.goal, jnp.float32)).sum() < w.goal_distance
        wet = ((w.puddle[0] <= state) & (state <= w.puddle[1])).all()
        reward = jnp.where(over, w.goal_reward, 0.0) + jnp.where(wet, w.puddle_std * key[1], 0.0)
        return there, there, reward, over, False
