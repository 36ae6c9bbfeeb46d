"""A finite process as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import GridMap
from vpac.errors import UserError

METADATA: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}


class FiniteMDPEnv(gymnasium.Env[np.int64, np.int64]):
    """Samples a `FiniteMDP`; observations are its states.

    `reset(options={"state": s})` starts in state s. Episodes end only in terminal states: time limits are Gymnasium's
    `TimeLimit` wrapper, which truncates and does not terminate.

    Args:
        mdp: the process.
        render_mode: "ansi" (text) or "rgb_array" (a picture).
        trajectory: also draw the path since the last reset.
    """

    metadata = METADATA

    def __init__(self, mdp: FiniteMDP, render_mode: str | None = None, trajectory: bool = False) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"unknown render_mode {render_mode!r}: expected None, 'ansi' or 'rgb_array'")
        self.mdp = mdp
        self.render_mode = render_mode
        self.trajectory = trajectory
        self.observation_space = spaces.Discrete(mdp.n_states)
        self.action_space = spaces.Discrete(mdp.n_actions)
        self._walked: list[int] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Draw a first state, or take the one in `options["state"]`."""
        super().reset(seed=seed)
        chosen = (options or {}).get("state")
        if chosen is None:
            chosen = self.mdp.sample_start(self.np_random)
        elif chosen not in self.observation_space or self.mdp.terminal[chosen]:
            raise UserError(
                f"cannot start in state {chosen!r}: expected a non-terminal state below {self.mdp.n_states}"
            )
        self._walked = [int(chosen)]
        return np.int64(chosen), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Take an action: next state, reward, terminated, False, {}."""
        if not self._walked:
            raise UserError("step() before reset(): there is no current state")
        if action not in self.action_space:
            raise UserError(f"unknown action {action!r}: expected a whole number from 0 to {self.mdp.n_actions - 1}")
        state, reward, terminated = self.mdp.sample(self._walked[-1], int(action), self.np_random)
        if not self.trajectory:
            self._walked.clear()  # an episode without a step limit must not fill the memory
        self._walked.append(state)
        return np.int64(state), reward, terminated, False, {}

    def render(self) -> Any:
        """Draw the world, the agent in it and, with `trajectory`, its path."""
        from vpac.envs import picture

        layout = self.mdp.layout or GridMap.strip(self.mdp.n_states)
        way = self._walked if self.trajectory else self._walked[-1:]
        if self.render_mode == "ansi":
            return picture.as_text(layout, way)
        if self.render_mode == "rgb_array":
            return picture.as_pixels(layout, way)
        return None
