"""Catch-up: deterministic rewards, and the risk has already happened when there is something to choose."""

from __future__ import annotations

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.gym_env import FiniteMDPEnv
from vpac.envs.maps import GridMap
from vpac.errors import UserError


class CatchUp(FiniteMDPEnv):
    """Luck first, the choice of pace after: a lucky walker can slow down, an unlucky one can hurry.

    Cells 0 … 10 in a row. The first move, from cell 0, is luck: with probability 1/2 it carries you to cell 6, else to
    cell 1, at no cost. From then on you walk (one cell, costs 1), run (two cells, costs 2.5) or wait (costs 1) until
    you reach or pass cell 10, which pays 20 on top of the arriving move's cost. σ(s, a), the risk ahead, is zero after
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
        self,
        length: int = 10,
        lucky: int = 6,
        luck: float = 0.5,
        goal_reward: float = 20.0,
        walk_cost: float = 1.0,
        run_cost: float = 2.5,
        render_mode: str | None = None,
        trajectory: bool = False,
    ) -> None:
        if not (length >= 2 and 1 <= lucky < length):
            raise UserError(f"expected 1 ≤ lucky < length and length ≥ 2, got lucky={lucky}, length={length}")
        if not 0.0 <= luck <= 1.0:
            raise UserError(f"luck must be a probability from 0 to 1, got {luck:g}")
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
