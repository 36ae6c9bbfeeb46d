"""Environments that fail: they hang, use all memory, or return a reward that is not a number."""

from __future__ import annotations

import resource
import time

import gymnasium
import numpy as np


class World(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    reward = 1.0

    def __init__(self):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        self.t += 1
        if self.t > 12:  # after the check of the environment
            self.go_wrong()
        return 1, self.reward, True, False, {}

    def go_wrong(self):
        raise NotImplementedError


class Sound(World):
    def go_wrong(self):
        pass


class Hangs(World):
    def go_wrong(self):
        time.sleep(3600)


class Hungry(World):
    """Asks for more memory than its process may have."""

    def go_wrong(self):
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        most = pages * resource.getpagesize() + 2**27
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        try:
            np.ones(2**26)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class NotANumber(World):
    def go_wrong(self):
        self.reward = float("nan")


for kind in (Sound, Hangs, Hungry, NotANumber):
    gymnasium.register(f"{kind.__name__}-v0", kind, max_episode_steps=10)
