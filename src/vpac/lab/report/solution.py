"""What `vpac solve` shows: exact moments of a policy, and maps of value, variance and visitation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.envs.maps import GridMap
from vpac.lab.report.chart import Chart, Grid, Region, Table, finite
from vpac.lab.report.explorer import policy_arrows
from vpac.oracle import Moments

ROWS = {
    "mean": "mean return",
    "total_variance": "variance of the return",
    "state_variance": "… of which given the start state, E[Var(G|S0)]",
    "action_variance": "… of which given the first action, too, E[σ(S0,A0)]",
    "std": "standard deviation",
    "sharpe": "Sharpe ratio (mean / standard deviation)",
    "goal_probability": "probability of reaching the goal",
    "steps": "expected number of steps",
}
MAPS = (
    ("value", "value  V(s)", "viridis"),
    ("variance", "variance  Var(G|s)", "magma"),
    ("visitation", "visitation  Σ γᵏ P(Sₖ = s)", "cividis"),
)
REGIONS = {"f": "frozen", "x": "treacherous"}


@dataclass(frozen=True)
class Solution:
    """The exact moments of a policy in an environment."""

    moments: Moments
    env: str
    policy: str

    @property
    def _setting(self) -> str:
        limit = f", {self.moments.horizon} steps" if self.moments.horizon else ""
        return f"{self.policy} policy, γ = {self.moments.gamma:g}{limit}"

    def _numbers(self) -> dict[str, float]:
        moments = self.moments
        found = {
            name: getattr(moments, name) for name in ("mean", "total_variance", "std", "sharpe", "goal_probability")
        }
        found |= {f"{name}_variance": moments.variance_of(name) for name in ("state", "action")}
        found["steps"] = moments.visits[~moments.mdp.terminal].sum()
        return {name: float(found[name]) for name in ROWS}

    def as_dict(self) -> dict[str, Any]:
        """Plain data; unknown numbers are None."""
        moments = self.moments
        by_state = {name: getattr(moments, name).tolist() for name, _, _ in MAPS}
        return {
            "env": self.env, "policy": self.policy, "gamma": moments.gamma, "horizon": moments.horizon,
            "states": moments.mdp.n_states, "actions": moments.mdp.n_actions,
            **finite(self._numbers()), "by_state": finite(by_state),
        }  # fmt: skip

    def tables(self) -> list[Table]:
        """The moments."""
        rows = [(ROWS[name], f"{value:.6g}") for name, value in self._numbers().items()]
        return [Table.of(("", ""), rows, f"{self.env}, {self._setting}")]

    def charts(self) -> list[Chart]:
        """Maps of value, variance and visitation; arrows are the most likely actions."""
        moments, mdp = self.moments, self.moments.mdp
        layout = mdp.layout or GridMap.strip(mdp.n_states)
        goal, start = (_only(layout, letter) for letter in "gs")
        dark = np.nan_to_num(layout.fill(np.where(mdp.terminal, 1.0, 0.0)), nan=1.0) > 0.0
        if goal:
            dark[goal] = False
        marked = {name: layout.letters == letter for letter, name in REGIONS.items()}
        regions = [Region(name, cells) for name, cells in marked.items() if cells.any()]
        panels = []
        for name, title, colours in MAPS:
            values = getattr(moments, name)
            panels.append(
                Grid(
                    dark, layout.fill(np.where(mdp.terminal | ~np.isfinite(values), np.nan, values)), "", title, regions,
                    goal, start, policy_arrows(mdp, moments.policy) if name == "value" else [], colours=colours,
                )
            )  # fmt: skip
        rows, columns = layout.letters.shape
        foot = f"{self._setting}: mean {float(moments.mean):.4g}, variance {float(moments.total_variance):.4g}"
        caption = "Arrows are the most likely actions; walls and terminal states are dark."
        return [Chart("solution", self.env, caption, panels, columns=1 if columns > 2 * rows else 3, foot=foot)]


def _only(layout: GridMap, letter: str) -> tuple[int, int] | None:
    """The row and column of the only cell with this letter."""
    cells = np.argwhere(layout.letters == letter).tolist()
    return (cells[0][0], cells[0][1]) if len(cells) == 1 else None
