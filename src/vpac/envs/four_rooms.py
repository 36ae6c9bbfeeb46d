"""Four rooms with a frozen patch (the paper's on-policy test bed)."""

from __future__ import annotations

from vpac.envs.gym_env import FiniteMDPEnv
from vpac.envs.maps import enlarge, grid_world

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


class FourRooms(FiniteMDPEnv):
    """Walk to the hallway between the right-hand rooms; the short way leads over ice that pays a random reward.

    104 cells, 4 actions. Leaving a frozen cell pays N(0, 8²), entering the goal from elsewhere pays 50, anything else
    0. With probability 0.2 a move goes to a uniformly chosen free neighbour instead. Starts uniformly over the other
    cells. Registered as `vpac/FourRooms-v0` with a limit of 500 steps (`gymnasium.make(…, max_episode_steps=300)`
    changes it).

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
        mdp = grid_world(enlarge(map, scale), slip=slip, goal=goal, goal_reward=goal_reward, frozen_std=frozen_std)
        super().__init__(mdp, render_mode, trajectory)
