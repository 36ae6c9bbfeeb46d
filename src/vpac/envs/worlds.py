"""Worlds: a finite process as a Gymnasium environment, the paper's test beds, and two in which only the dynamics are risky."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from vpac.checks import chance, not_negative
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import GridMap, enlarge, grid_world
from vpac.errors import UserError
from vpac.typing import FloatArray

METADATA: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}


class _World(gymnasium.Env[Any, np.int64]):
    """Common part of all worlds: Discrete actions, the current position, and pictures of it or of the path since the reset."""

    metadata = METADATA

    def __init__(self, n_actions: int, render_mode: str | None, trajectory: bool) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"unknown render_mode {render_mode!r}: expected None, 'ansi' or 'rgb_array'")
        self.render_mode, self.trajectory = render_mode, trajectory
        self.action_space = spaces.Discrete(n_actions)
        self._walked: list[Any] = []

    def _check(self, action: Any) -> None:
        if not self._walked:
            raise UserError("step() before reset(): there is no current state")
        if action not in self.action_space:
            last = int(self.action_space.n) - 1  # type: ignore[attr-defined]
            raise UserError(f"unknown action {action!r}: expected a whole number from 0 to {last}")

    def _move_to(self, position: Any) -> None:
        if not self.trajectory:
            self._walked.clear()  # an episode without a step limit must not fill the memory
        self._walked.append(position)


class FiniteMDPEnv(_World):
    """Samples a `FiniteMDP`; observations are its states.

    `reset(options={"state": s})` starts in state s. Episodes end only in terminal states: time limits are Gymnasium's
    `TimeLimit` wrapper, which truncates and does not terminate.

    Args:
        mdp: the process.
        render_mode: "ansi" (text) or "rgb_array" (a picture).
        trajectory: also draw the path since the last reset.
    """

    def __init__(self, mdp: FiniteMDP, render_mode: str | None = None, trajectory: bool = False) -> None:
        super().__init__(mdp.n_actions, render_mode, trajectory)
        self.mdp = mdp
        self.observation_space = spaces.Discrete(mdp.n_states)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Draw a first state, or take the one in `options["state"]`."""
        super().reset(seed=seed)
        chosen = (options or {}).get("state")
        if chosen is None:
            chosen = self.mdp.sample_start(self.np_random)
        elif chosen not in self.observation_space or self.mdp.terminal[chosen]:
            n = self.mdp.n_states
            raise UserError(f"cannot start in state {chosen!r}: expected a non-terminal state below {n}")
        self._walked = [int(chosen)]
        return np.int64(chosen), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Take an action: next state, reward, terminated, False, {}."""
        self._check(action)
        state, reward, terminated = self.mdp.sample(self._walked[-1], int(action), self.np_random)
        self._move_to(state)
        return np.int64(state), reward, terminated, False, {}

    def render(self) -> Any:
        """Draw the world, the agent in it and, with `trajectory`, its path."""
        from vpac.envs import picture

        layout = self.mdp.layout or GridMap.strip(self.mdp.n_states)
        draw = {"ansi": picture.as_text, "rgb_array": picture.as_pixels}.get(self.render_mode or "")
        return draw(layout, self._walked) if draw else None


FOUR_ROOMS = """
wwwwwwwwwwwww
w     w     w
w   ffwff   w
w  fffffff  w
w   ffwff   w
w     w     w
ww wwww     w
w     wwwgwww
w     w     w
w     w     w
w           w
w     w     w
wwwwwwwwwwwww
"""
"""The goal, free cell 62, is the hallway between the two right-hand rooms: row 7, column 9."""
PUDDLE_WORLD = """
wwwwwwwwwwww
w.........gw
w          w
w          w
w   ffff   w
w   ffff   w
w   ffff   w
w   ffff   w
w          w
w          w
w          w
wwwwwwwwwwww
"""
RISKY_SHORTCUT_MAP = """
wwwwwwwww
ws..x..gw
w.wwwww.w
w.......w
wwwwwwwww
"""
Goal = int | tuple[int, int] | None
"""A free cell's number or (row, column), instead of the map's `g`."""


class _MapWorld(FiniteMDPEnv):
    def __init__(self, map: str, scale: int, render_mode: str | None, trajectory: bool, **rules: Any) -> None:
        super().__init__(grid_world(enlarge(map, scale), **rules), render_mode, trajectory)


class FourRooms(_MapWorld):
    """Walk to the hallway between the right-hand rooms; the short way leads over ice that pays a random reward.

    The paper's on-policy test bed: 104 cells, 4 actions. Leaving a frozen cell pays N(0, 8²), entering the goal from elsewhere
    pays 50, anything else 0. With probability 0.2 a move goes to a uniformly chosen free neighbour instead. Starts uniformly
    over the other cells. Registered as `vpac/FourRooms-v0` with a limit of 500 steps (`gymnasium.make(…,
    max_episode_steps=300)` changes it).

    Args:
        map: the picture; see `vpac.envs.maps` for the letters.
        scale: draw every cell of the map as scale × scale cells.
        slip: probability that a move slips.
        goal: a free cell's number or (row, column), instead of the map's `g`.
        goal_reward: reward for entering the goal.
        frozen_std: standard deviation of the reward for leaving a frozen cell.
        render_mode: "ansi" or "rgb_array".
        trajectory: also draw the path.
    """

    def __init__(
        self, map: str = FOUR_ROOMS, scale: int = 1, slip: float = 0.2, goal: Goal = None, goal_reward: float = 50.0,
        frozen_std: float = 8.0, render_mode: str | None = None, trajectory: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            map, scale, render_mode, trajectory, slip=slip, goal=goal, goal_reward=goal_reward, frozen_std=frozen_std
        )


class PuddleWorld(_MapWorld):
    """Walk to the top right corner, through or around a puddle that pays a random reward.

    The paper's off-policy test bed: 100 cells, 8 actions (with the diagonals). Leaving a puddle cell pays N(0, 8²); everything
    else is as in `FourRooms`. Registered as `vpac/PuddleWorld-v0` with a limit of 500 steps.

    Args:
        map: as for `FourRooms`, like all arguments that are not listed here.
        moves: 4 or 8 actions.
        puddle_std: standard deviation of the reward for leaving a puddle cell.
    """

    def __init__(
        self, map: str = PUDDLE_WORLD, scale: int = 1, moves: Literal[4, 8] = 8, slip: float = 0.2, goal: Goal = None,
        goal_reward: float = 50.0, puddle_std: float = 8.0, render_mode: str | None = None, trajectory: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            map, scale, render_mode, trajectory, moves=moves, slip=slip, goal=goal, goal_reward=goal_reward,
            frozen_std=puddle_std,
        )  # fmt: skip


class RiskyShortcut(_MapWorld):
    """A short way that sometimes throws you back to the start, and a long way that is safe: the risk lies after the choice.

    Entering the goal pays 20, every other move costs 1. Leaving the treacherous cell (×) throws you back to the start
    with probability 0.3. The short way takes 6 moves if nothing happens, 7.7 on average; the long way 10, always. A
    risk-neutral policy takes the short way; σ(s, a) sees the risk that follows the first move, so both forms of VPAC
    leave the risky way when ψ is large. Registered as `vpac/RiskyShortcut-v0`, limit 200.

    Args:
        map: as for `FourRooms`, like all arguments that are not listed here.
        throw: probability that leaving the treacherous cell throws you back.
        step_reward: reward for any move that does not enter the goal.
    """

    def __init__(
        self, map: str = RISKY_SHORTCUT_MAP, scale: int = 1, slip: float = 0.0, throw: float = 0.3, goal: Goal = None,
        goal_reward: float = 20.0, step_reward: float = -1.0, render_mode: str | None = None, trajectory: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            map, scale, render_mode, trajectory, slip=slip, throw=throw, goal=goal, goal_reward=goal_reward,
            step_reward=step_reward,
        )  # fmt: skip


class CatchUp(FiniteMDPEnv):
    """Luck first, the choice of pace after: a lucky walker can slow down, an unlucky one can hurry.

    Cells 0 … 10 in a row. The first move, from cell 0, is luck: with probability 1/2 it carries you to cell 6, else to
    cell 1, at no cost. From then on you walk (one cell, costs 1), run (two cells, costs 2.5) or wait (costs 1) until
    you reach or pass cell 10, which pays 20 on top of the arriving move's cost. σ(s, a), the risk to come, is zero after
    the first move, so the published form of VPAC has nothing to penalise; the corrected form hedges. Registered as
    `vpac/CatchUp-v0` with a limit of 200 steps; the mathematics of the corrections uses γ = 0.95 and ψ = 0.5.

    Args:
        length: the number of the goal cell.
        lucky: the cell that luck carries you to.
        luck: probability of luck.
        goal_reward: what reaching the goal pays.
        walk_cost: cost of walking and of waiting.
        run_cost: cost of running.
        render_mode: "ansi" or "rgb_array".
        trajectory: also draw the path.
    """

    def __init__(
        self, length: int = 10, lucky: int = 6, luck: float = 0.5, goal_reward: float = 20.0, walk_cost: float = 1.0,
        run_cost: float = 2.5, render_mode: str | None = None, trajectory: bool = False,
    ) -> None:  # fmt: skip
        if not (length >= 2 and 1 <= lucky < length):
            raise UserError(f"expected 1 ≤ lucky < length and length ≥ 2, got lucky={lucky}, length={length}")
        luck = chance(luck, "luck")
        cells = np.arange(length)
        stride, cost = np.array([1, 2, 0]), np.array([walk_cost, run_cost, walk_cost])
        state, action = (x.ravel() for x in np.meshgrid(cells[1:], np.arange(3), indexing="ij"))
        arrival = np.minimum(state + stride[action], length)
        first = np.repeat([0, 1, 2], 2)
        mdp = FiniteMDP.from_transitions(
            length + 1, 3,
            np.concatenate([np.zeros(6), state]),
            np.concatenate([first, action]),
            np.concatenate([np.tile([lucky, 1], 3), arrival]),
            np.concatenate([np.tile([luck, 1.0 - luck], 3), np.ones(len(state))]),
            np.concatenate([np.zeros(6), goal_reward * (arrival == length) - cost[action]]),
            start=np.arange(length + 1) == 0,
            terminal=np.arange(length + 1) == length,
            layout=GridMap.parse("s" + "." * (length - 1) + "g"),
            action_names=("walk", "run", "wait"),
        )  # fmt: skip
        super().__init__(mdp, render_mode, trajectory)


DIRECTIONS = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
"""Unit steps of the four actions of the continuous puddle world: −x, +x, −y, +y."""


class ContinuousPuddleWorld(_World):
    """Move through the unit square to its corner (1, 1), through or around a puddle that pays a random reward.

    The paper's linear off-policy test bed. Each action moves 0.05 along one axis; uniform noise from ±0.025 is added to both
    coordinates, and the position is clipped to the square. Leaving a point inside the puddle (0.3 ≤ x, y ≤ 0.7) adds
    N(0, 8²) to the reward. Ending up nearer than 0.1 to the corner (L1 distance) pays 50 and terminates. Starts uniformly in
    the square, or at `reset(options={"position": [x, y]})`. Registered as `vpac/ContinuousPuddleWorld-v0` with a limit of
    5000 steps.

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

    metadata = METADATA | {"render_fps": 30}

    def __init__(
        self, step: float = 0.05, noise: float = 0.025, puddle: tuple[float, float] = (0.3, 0.7), puddle_std: float = 8.0,
        goal: tuple[float, float] = (1.0, 1.0), goal_distance: float = 0.1, goal_reward: float = 50.0,
        render_mode: str | None = None, trajectory: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(len(DIRECTIONS), render_mode, trajectory)
        named = {"step": step, "noise": noise, "puddle_std": puddle_std, "goal_distance": goal_distance}
        for name, value in named.items():
            not_negative(value, name)
        if len(puddle) != 2 or not puddle[0] <= puddle[1]:
            raise UserError(f"puddle must be a lower and an upper bound, got {puddle!r}")
        if np.shape(goal) != (2,) or not all(0.0 <= x <= 1.0 for x in goal):
            raise UserError(f"goal must be two numbers from 0 to 1, got {goal!r}")
        self.stride, self.noise, self.puddle, self.puddle_std = step, noise, puddle, puddle_std
        self.goal, self.goal_distance, self.goal_reward = np.array(goal, np.float64), goal_distance, goal_reward
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float64)
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
        self._check(action)
        if self._over:
            raise UserError("step() after the goal was reached: the episode is over")
        here = self._walked[-1]
        jitter = self.np_random.uniform(-self.noise, self.noise, 2)
        there = np.clip(here + self.stride * DIRECTIONS[action] + jitter, 0.0, 1.0)
        self._over = bool(np.abs(there - self.goal).sum() < self.goal_distance)
        reward = self.goal_reward if self._over else 0.0
        if self.in_puddle(here):
            reward += self.puddle_std * self.np_random.standard_normal()
        self._move_to(there)
        return there.copy(), float(reward), self._over, False, {}

    def in_puddle(self, position: FloatArray) -> bool:
        """Whether a position lies in the puddle."""
        low, high = self.puddle
        return bool(np.all((low <= position) & (position <= high)))

    def functional(self) -> Any:
        """The same world in JAX."""
        from vpac.envs.jax_worlds import PuddleSquare

        return PuddleSquare(self)

    def render(self) -> Any:
        """Draw the square, the puddle, the goal, the agent and, with `trajectory`, its path."""
        if self.render_mode == "ansi":
            here = self._walked[-1] if self._walked else None
            at = "not started" if here is None else f"x = {here[0]:.3f}, y = {here[1]:.3f}"
            return f"{at}{' (in the puddle)' if here is not None and self.in_puddle(here) else ''}\n"
        if self.render_mode == "rgb_array":
            from vpac.envs import picture

            return picture.square_as_pixels(self.puddle, tuple(self.goal), self.goal_distance, self._walked)
        return None
