"""Probes as pure JAX functions: training is one compiled program, so that tests of learning are fast."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from probes import Probe
from vpac.envs.functional import FunctionalEnv


class FunctionalProbe(FunctionalEnv):
    """Shows the share of its steps that were taken; ends after them."""

    observation_space = Probe.observation_space
    action_space = Probe.action_space

    def __init__(self, steps: int = 1) -> None:
        self.steps = steps

    def draws(self, key, shape):
        return jax.random.normal(key, shape)

    def reset(self, noise):
        return jnp.float32(0.0), jnp.zeros(1, jnp.float32)

    def step(self, noise, taken, action):
        taken = taken + 1.0
        over = taken >= self.steps
        return taken, jnp.array([taken / self.steps]), self.pay(noise, over, jnp.ravel(action)[0] > 0), over, False

    def pay(self, noise, over, risky):
        """The last step pays 1, or 1.5 on average with variance 1."""
        return jnp.where(over, jnp.where(risky, 1.5 + noise, 1.0), 0.0)


class Steady(FunctionalProbe):
    """Every step pays 1."""

    def pay(self, noise, over, risky):
        return jnp.float32(1.0)


class Endless(FunctionalProbe):
    """Pays 1 with variance 1 for ever; episodes are cut off after 8 steps and never end."""

    limit = 8

    def step(self, noise, taken, action):
        return taken, jnp.zeros(1, jnp.float32), 1.0 + noise, False, False


class Pushed(FunctionalProbe):
    """The bandit with a Box action: positive is risky."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Staked(FunctionalProbe):
    """One step: the action a in [0, 1] is how much is put at stake, which pays a·(1 + 2·noise): mean a, variance 4a²."""

    action_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def step(self, noise, taken, action):
        return taken, jnp.ones(1, jnp.float32), action[0] * (1.0 + 2.0 * noise), True, False


BANDIT, LATE_CHOICE, CONSTANT, ONLY_CUT = FunctionalProbe(), FunctionalProbe(2), Steady(3), Endless()
PUSHER, EXPOSURE = Pushed(), Staked()
