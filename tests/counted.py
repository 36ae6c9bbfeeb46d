"""An environment that logs how many steps each process takes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import gymnasium
import numpy as np


class Counted(gymnasium.Env):
    """Episodes of two steps of 5 ms each; a byte a step in the file LOG/PID."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, log: str):
        self.log, self.t = Path(log), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        time.sleep(0.005)
        with (self.log / str(os.getpid())).open("ab") as file:
            file.write(b".")
        return np.ones(1, np.float32), float(action), self.t >= 2, False, {}


gymnasium.register("Counted-v0", Counted, max_episode_steps=10)
