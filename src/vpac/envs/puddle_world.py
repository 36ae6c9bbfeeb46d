"""Puddle world, discrete (the paper's off-policy test bed)."""

from __future__ import annotations

from typing import Literal

from vpac.envs.gym_env import FiniteMDPEnv
from vpac.envs.maps import enlarge, grid_world

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


class PuddleWorld(FiniteMDPEnv):
    """Walk to the top right corner, through or around a puddle that pays a random reward.

    100 cells, 8 actions (with the diagonals). Leaving a puddle cell pays N(0, 8²), entering the goal from elsewhere
    pays 50, anything else 0. With probability 0.2 a move goes to a uniformly chosen free neighbour instead. Starts
    uniformly over the other cells. Registered as `vpac/PuddleWorld-v0` with a limit of 500 steps.

    Args:
        map: the picture; see `vpac.envs.maps` for the letters.
        scale: draw every cell of the map as scale × scale cells.
        moves: 4 or 8 actions.
        slip: probability that a move slips.
        goal: a free cell's number or (row, column), instead of the map's `g`.
        goal_reward: reward for entering the goal.
        puddle_std: standard deviation of the reward for leaving a puddle cell.
        render_mode: "ansi" or "rgb_array".
        trajectory: also draw the path.
    """

    def __init__(
        self,
        map: str = PUDDLE_WORLD,
        scale: int = 1,
        moves: Literal[4, 8] = 8,
        slip: float = 0.2,
        goal: int | tuple[int, int] | None = None,
        goal_reward: float = 50.0,
        puddle_std: float = 8.0,
        render_mode: str | None = None,
        trajectory: bool = False,
    ) -> None:
        mdp = grid_world(
            enlarge(map, scale), moves=moves, slip=slip, goal=goal, goal_reward=goal_reward, frozen_std=puddle_std
        )
        super().__init__(mdp, render_mode, trajectory)
