"""Four rooms with a frozen patch (the paper's on-policy test bed)."""

from __future__ import annotations

from vpac.envs.gym_env import FiniteMDPEnv
from vpac.envs.maps import enlarge, grid_world

__all__ = ["FOUR_ROOMS", "FourRooms"]

FOUR_ROOMS = """
wwwwwwwwwwwww
w     w     w
w   ffwff   w
w  fffffff  w
w   ffwff   w
w     w     w
ww wwww     w
w     www www
w     w     w
w     w     w
w           w
w     w     w
wwwwwwwwwwwww
"""
GOAL = 62
"""The hallway between the two right-hand rooms: row 7, column 9."""


class FourRooms(FiniteMDPEnv):
    """Walk to the hallway between the right-hand rooms; the short way leads over ice that pays a random reward.

    104 cells, 4 actions. Leaving a frozen cell pays N(0, 8²), entering the goal from elsewhere pays 50, anything else 0.
    With probability 0.2 a move goes to a uniformly chosen free neighbour instead. Starts uniformly over the other cells.
    Registered as `vpac/FourRooms-v0` with a limit of 500 steps (`gymnasium.make(…, max_episode_steps=300)` changes it).

    Args:
        map: the picture; see `vpac.envs.maps` for the letters.
        scale: draw every cell of the map as scale × scale cells.
        slip: probability that a move slips.
        goal: a free cell's number or (row, column); default: cell 62 of the map above, or the map's own `g`.
        goal_reward: reward for entering the goal.
        frozen_std: standard deviation of the reward for leaving a frozen cell.
        render_mode: "ansi" or "rgb_array".
        trajectory: draw the way walked, too.
    """

    def __init__(
        self,
        map: str = FOUR_ROOMS,
        scale: int = 1,
        slip: float = 0.2,
        goal: int | tuple[int, int] | None = None,
        goal_reward: float = 50.0,
        frozen_std: float = 8.0,
        render_mode: str | None = None,
        trajectory: bool = False,
    ) -> None:
        if map == FOUR_ROOMS and goal is None:
            goal = GOAL if scale == 1 else (7 * scale + scale // 2, 9 * scale + scale // 2)
        mdp = grid_world(enlarge(map, scale), slip=slip, goal=goal, goal_reward=goal_reward, frozen_std=frozen_std)
        super().__init__(mdp, render_mode, trajectory)
