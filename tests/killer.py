"""An environment that kills its process, as a run that uses all memory does to its worker."""

from __future__ import annotations

import os
import signal

import gymnasium


class Killer(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        os.kill(os.getpid(), signal.SIGKILL)


gymnasium.register("Killer-v0", Killer, max_episode_steps=10)
