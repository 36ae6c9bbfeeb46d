"""Risky shortcut: deterministic rewards, the risk is in the dynamics and lies ahead of a choice."""

from __future__ import annotations

from vpac.envs.gym_env import FiniteMDPEnv
from vpac.envs.maps import enlarge, grid_world

RISKY_SHORTCUT = """
wwwwwwwww
ws..x..gw
w.wwwww.w
w.......w
wwwwwwwww
"""


class RiskyShortcut(FiniteMDPEnv):
    """A short way that sometimes throws you back to the start, and a long way that is safe.

    Entering the goal pays 20, every other move costs 1. Leaving the treacherous cell (×) throws you back to the start
    with probability 0.3. The short way takes 6 moves if nothing happens, 7.7 on average; the long way 10, always. A
    risk-neutral policy takes the short way; σ(s, a) sees the risk ahead of the first move, so both forms of VPAC
    leave the risky way when ψ is large. Registered as `vpac/RiskyShortcut-v0`, limit 200.

    Args:
        map: the picture; see `vpac.envs.maps` for the letters.
        scale: draw every cell of the map as scale × scale cells.
        slip: probability that a move slips.
        throw: probability that leaving the treacherous cell throws you back.
        goal: a free cell's number or (row, column), instead of the map's `g`.
        goal_reward: reward for entering the goal.
        step_reward: reward for any other move.
        render_mode: "ansi" or "rgb_array".
        trajectory: also draw the path.
    """

    def __init__(
        self,
        map: str = RISKY_SHORTCUT,
        scale: int = 1,
        slip: float = 0.0,
        throw: float = 0.3,
        goal: int | tuple[int, int] | None = None,
        goal_reward: float = 20.0,
        step_reward: float = -1.0,
        render_mode: str | None = None,
        trajectory: bool = False,
    ) -> None:
        mdp = grid_world(
            enlarge(map, scale), slip=slip, throw=throw, goal=goal, goal_reward=goal_reward, step_reward=step_reward
        )
        super().__init__(mdp, render_mode, trajectory)
