"""Environments whose mean and variance are known in closed form."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Probe(gymnasium.Env):
    """Something to see, and two actions."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    limit = 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.see(), {}

    def see(self):
        return np.array([self.t / max(self.limit, 1)], np.float32)

    def step(self, action):
        self.t += 1
        reward = self.pay(int(np.ravel(action)[0] > 0 if isinstance(self.action_space, spaces.Box) else action))
        return self.see(), reward, self.t >= self.limit, False, {}

    def pay(self, action: int) -> float:
        raise NotImplementedError


class Constant(Probe):
    """Three steps that pay 1 each: V = 1 + γ + γ² at the start, variance 0."""

    limit = 3

    def pay(self, action):
        return 1.0


class Bandit(Probe):
    """One step: a safe arm that pays 1, a risky one that pays 1.5 on average, with variance 1. It is worth it if ψ < 0.5."""

    def pay(self, action):
        return 1.0 if action == 0 else 1.5 + self.np_random.standard_normal()


class LateChoice(Probe):
    """A step that does nothing, then the bandit, whose worth is discounted: it is worth it if γ/2 > ψ γ², ψ < 1 / (2γ)."""

    limit = 2

    def pay(self, action):
        if self.t == 1:
            return 0.0
        return 1.0 if action == 0 else 1.5 + self.np_random.standard_normal()


class OnlyCut(Probe):
    """Pays 1 with variance 1 for ever; episodes are cut off after 8 steps and never end."""

    def see(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        self.t += 1
        return self.see(), 1.0 + self.np_random.standard_normal(), False, self.t >= 8, {}


class Pusher(Bandit):
    """The bandit with a Box action: positive is risky."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Countdown(Probe):
    """Discrete observations from 3 on, seven steps; pays the number it shows."""

    observation_space = spaces.Discrete(8, start=3)
    limit = 7

    def see(self):
        return np.int64(3 + self.t)

    def pay(self, action):
        return float(self.t)


class Breaks(Probe):
    """Pays, or shows, what is not a number in its step number `when`, episodes apart."""

    limit = 10_000

    def __init__(self, what: str = "reward", when: int = 40) -> None:
        self.what, self.when, self.total = what, when, 0

    def see(self):
        return np.array([np.nan if self.what == "observation" and self.total == self.when else 0.0], np.float32)

    def pay(self, action):
        self.total += 1
        return np.inf if self.what == "reward" and self.total == self.when else 1.0


class Exposure(Probe):
    """One step: the action a in [0, 1] is how much is put at stake, which pays a·(1 + 2·noise): mean a, variance 4a²."""

    action_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def step(self, action):
        stake = float(np.ravel(action)[0])
        return np.ones(1, np.float32), stake * (1.0 + 2.0 * self.np_random.standard_normal()), True, False, {}


class Lottery(Probe):
    """One step from one state: 0, or on average 1 with variance 4."""

    observation_space = spaces.Discrete(1)

    def see(self):
        return np.int64(0)

    def pay(self, action):
        return 0.0 if action == 0 else 1.0 + 2.0 * self.np_random.standard_normal()
