"""Environments whose returns are known, for tests."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec


class Walk(gymnasium.Env):
    """An episode of random length; every step pays 1, the last one 10, and the observation is the number of steps left.

    So the return of an episode of length L is L + 9, which is wrong if a reset counts as a step or a last reward is lost.
    """

    observation_space = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    lengths = (1, 2, 30)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.choice(self.lengths))
        return self._seen(), {}

    def step(self, action):
        self.left -= 1
        return self._seen(), 10.0 if self.left == 0 else 1.0, self.left == 0, False, {}

    def _seen(self):
        return np.array([self.left], np.float32)


class Target(gymnasium.Env):
    """One step; pays the first number of the action, and notes what it was given."""

    observation_space = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (2,), np.float32), "n": spaces.Discrete(3)})
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"x": np.zeros(2, np.float32), "n": 1}, {}

    def step(self, action):
        assert action in self.action_space
        return {"x": np.zeros(2, np.float32), "n": 2}, float(action[0]), True, False, {}


class Dice(gymnasium.Env):
    """Two steps. reset draws x = ±3; a step pays x, plus the action (0 or 1) times 2, plus a normal number if `noise`.

    With a fair coin as policy and γ = 1: start Var(2x) = 36, policy 2 · 4 · ¼ = 2, environment 2 · noise².
    """

    observation_space = spaces.Box(-3.0, 3.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, noise=0.0, loose=False):
        self.noise, self.loose = noise, loose
        self.spec = EnvSpec("Dice-v0", nondeterministic=loose)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.choice([-3.0, 3.0])), 0
        return np.array([self.x]), {}

    def step(self, action):
        self.steps += 1
        noise = self.noise * self.np_random.standard_normal() if self.noise else 0.0
        if self.loose:
            noise += np.random.default_rng().standard_normal()
        return np.array([self.x]), self.x + 2.0 * int(action) + noise, self.steps == 2, False, {}
