"""Puddle world, continuous (the paper's linear off-policy test bed)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from vpac.checks import not_negative
from vpac.errors import UserError
from vpac.typing import FloatArray

DIRECTIONS = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
"""Unit steps of the four actions: −x, +x, −y, +y."""
METADATA: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 30}


class ContinuousPuddleWorld(gymnasium.Env[FloatArray, np.int64]):
    """Move through the unit square to its corner (1, 1), through or around a puddle that pays a random reward.

    Each action moves 0.05 along one axis; uniform noise from ±0.025 is added to both coordinates, and the position is
    clipped to the square. Leaving a point inside the puddle (0.3 ≤ x, y ≤ 0.7) adds N(0, 8²) to the reward. Ending up
    nearer than 0.1 to the corner (L1 distance) pays 50 and terminates. Starts uniformly in the square, or at
    `reset(options={"position": [x, y]})`. Registered as `vpac/ContinuousPuddleWorld-v0` with a limit of 5000 steps.

    Args:
        step: how far an action moves.
        noise: half the width of the uniform noise on each coordinate.
        puddle: lower and upper bound of the puddle on both axes.
        puddle_std: standard deviation of the reward for leaving a point in the puddle.
        goal: the goal's position.
        goal_distance: L1 distance below which the goal counts as reached.
        goal_reward: reward for reaching the goal.
        render_mode: "ansi" or "rgb_array".
        trajectory: also draw the path.
    """

    metadata = METADATA

    def __init__(
        self,
        step: float = 0.05,
        noise: float = 0.025,
        puddle: tuple[float, float] = (0.3, 0.7),
        puddle_std: float = 8.0,
        goal: tuple[float, float] = (1.0, 1.0),
        goal_distance: float = 0.1,
        goal_reward: float = 50.0,
        render_mode: str | None = None,
        trajectory: bool = False,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"unknown render_mode {render_mode!r}: expected None, 'ansi' or 'rgb_array'")
        named = {"step": step, "noise": noise, "puddle_std": puddle_std, "goal_distance": goal_distance}
        for name, value in named.items():
            not_negative(value, name)
        if len(puddle) != 2 or not puddle[0] <= puddle[1]:
            raise UserError(f"puddle must be a lower and an upper bound, got {puddle!r}")
        if np.shape(goal) != (2,) or not all(0.0 <= x <= 1.0 for x in goal):
            raise UserError(f"goal must be two numbers from 0 to 1, got {goal!r}")
        self.stride, self.noise, self.puddle, self.puddle_std = step, noise, puddle, puddle_std
        self.goal, self.goal_distance, self.goal_reward = np.array(goal, np.float64), goal_distance, goal_reward
        self.render_mode, self.trajectory = render_mode, trajectory
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float64)
        self.action_space = spaces.Discrete(4)
        self._walked: list[FloatArray] = []
        self._over = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Draw a first position, or take the one in `options["position"]`."""
        super().reset(seed=seed)
        position = self.np_random.random(2)
        if options and "position" in options:
            position = np.array(options["position"], np.float64)
            if position not in self.observation_space:
                raise UserError(f"cannot start at {options['position']!r}: expected two numbers from 0 to 1")
        self._walked, self._over = [position], False
        return position.copy(), {}

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Take an action: next position, reward, terminated, False, {}."""
        if not self._walked:
            raise UserError("step() before reset(): there is no current position")
        if self._over:
            raise UserError("step() after the goal was reached: the episode is over")
        if action not in self.action_space:
            raise UserError(f"unknown action {action!r}: expected a whole number from 0 to 3")
        here = self._walked[-1]
        jitter = self.np_random.uniform(-self.noise, self.noise, 2)
        there = np.clip(here + self.stride * DIRECTIONS[action] + jitter, 0.0, 1.0)
        self._over = bool(np.abs(there - self.goal).sum() < self.goal_distance)
        reward = self.goal_reward if self._over else 0.0
        if self.in_puddle(here):
            reward += self.puddle_std * self.np_random.standard_normal()
        if not self.trajectory:
            self._walked.clear()  # an episode without a step limit must not fill the memory
        self._walked.append(there)
        return there.copy(), float(reward), self._over, False, {}

    def in_puddle(self, position: FloatArray) -> bool:
        """Whether a position lies in the puddle."""
        low, high = self.puddle
        return bool(np.all((low <= position) & (position <= high)))

    def render(self) -> Any:
        """Draw the square, the puddle, the goal, the agent and, with `trajectory`, its path."""
        from vpac.envs import picture

        way = self._walked if self.trajectory else self._walked[-1:]
        if self.render_mode == "ansi":
            here = f"x = {way[-1][0]:.3f}, y = {way[-1][1]:.3f}" if way else "not started"
            return f"{here}{' (in the puddle)' if way and self.in_puddle(way[-1]) else ''}\n"
        if self.render_mode == "rgb_array":
            return picture.square_as_pixels(self.puddle, tuple(self.goal), self.goal_distance, way)
        return None
