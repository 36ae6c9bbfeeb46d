"""What `vpac solve` shows: a table of moments and maps of value, variance and visitation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vpac.envs.maps import EIGHT_MOVES, GridMap
from vpac.lab.report.style import INK, figure_style, save_figure
from vpac.oracle import Moments

__all__ = ["as_dict", "plot", "table"]

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


def numbers(moments: Moments) -> dict[str, float]:
    """The numbers of a solution."""
    return {
        "mean": float(moments.mean),
        "total_variance": float(moments.total_variance),
        "state_variance": float(moments.variance_of("state")),
        "action_variance": float(moments.variance_of("action")),
        "std": float(moments.std),
        "sharpe": float(moments.sharpe),
        "goal_probability": float(moments.goal_probability),
        "steps": float(moments.visits[~moments.mdp.terminal].sum()),
    }


def as_dict(moments: Moments, env: str, policy: str) -> dict[str, Any]:
    """A solution as plain data; numbers that are not finite become null, because JSON has no word for them."""
    plain = {name: value if np.isfinite(value) else None for name, value in numbers(moments).items()}
    return {
        "env": env, "policy": policy, "gamma": moments.gamma, "horizon": moments.horizon,
        "states": moments.mdp.n_states, "actions": moments.mdp.n_actions, **plain,
        "by_state": {
            name: [None if not np.isfinite(x) else float(x) for x in getattr(moments, name)]
            for name in ("value", "variance", "visitation")
        },
    }  # fmt: skip


def table(moments: Moments, env: str, policy: str) -> Any:
    """A solution for the terminal."""
    from rich.table import Table

    limit = f", {moments.horizon} steps" if moments.horizon else ""
    shown = Table(
        title=f"{env}, {policy} policy, γ = {moments.gamma:g}{limit}", title_justify="left", show_header=False
    )
    shown.add_column()
    shown.add_column(justify="right")
    found = numbers(moments)
    for key, name in ROWS.items():
        shown.add_row(name, f"{found[key]:.6g}")
    return shown


def plot(moments: Moments, env: str, policy: str, path: Path) -> Path:
    """Maps of value, variance and visitation, with the policy's most likely action drawn as an arrow."""
    layout = moments.mdp.layout or GridMap.strip(moments.mdp.n_states)
    rows, columns = layout.letters.shape
    wide = columns > 2 * rows
    with figure_style() as plt:
        size = (9.0, 0.8 + 3 * max(0.9, 0.5 + 8.0 * rows / columns)) if wide else (13.0, 0.6 + 4.0 * rows / columns)
        figure, panels = plt.subplots(*((3, 1) if wide else (1, 3)), figsize=size, layout="constrained")
        maps = (
            ("value  V(s)", moments.value, "viridis"),
            ("variance  Var(G|s)", moments.variance, "magma"),
            ("visitation  Σ γᵏ P(Sₖ = s)", moments.visitation, "cividis"),
        )
        for panel, (title, values, colours) in zip(panels, maps, strict=True):
            alive = np.where(moments.mdp.terminal | ~np.isfinite(values), np.nan, values)
            _draw_map(figure, panel, layout, alive, title, colours)
        _draw_arrows(panels[0], layout, moments)
        limit = f", {moments.horizon} steps" if moments.horizon else ""
        figure.suptitle(
            f"{env}: {policy} policy, γ = {moments.gamma:g}{limit}, mean {float(moments.mean):.4g}, "
            f"variance {float(moments.total_variance):.4g}",
            x=0.01, ha="left", fontweight="bold",
        )  # fmt: skip
        return save_figure(figure, path)


def _draw_map(figure: Any, panel: Any, layout: GridMap, values: Any, title: str, colours: str) -> None:
    """A heat map over the cells; walls and terminal states are left dark, special cells carry their letter or mark."""
    picture = panel.imshow(np.ma.masked_invalid(layout.fill(values)), cmap=colours)
    panel.set_facecolor("#3b4252")
    for row, column in layout.position:
        letter = str(layout.letters[row, column])
        if letter == "f":
            panel.plot(column, row, marker="+", color="white", markersize=4, alpha=0.8)
        elif letter == "x":
            panel.plot(column, row, marker="x", color="white", markersize=5)
        elif letter in "gs":
            panel.text(column, row, letter.upper(), ha="center", va="center", color="white", fontweight="bold",
                       bbox={"boxstyle": "circle,pad=0.15", "facecolor": INK, "edgecolor": "none"})  # fmt: skip
    panel.set_title(title)
    panel.set_xticks([])
    panel.set_yticks([])
    figure.colorbar(picture, ax=panel, shrink=0.85)


def _draw_arrows(panel: Any, layout: GridMap, moments: Moments) -> None:
    """The most likely action of each state, where there is one and it is a direction."""
    names = moments.mdp.action_names
    if not set(names) <= set(EIGHT_MOVES):
        return
    direction = np.array([EIGHT_MOVES[name] for name in names])
    for state in np.flatnonzero(~moments.mdp.terminal):
        likely = moments.policy[state]
        if likely.max() > likely.min() + 1e-9:
            down, right = direction[int(np.argmax(likely))]
            row, column = layout.position[state]
            panel.annotate("", (column + 0.35 * right, row + 0.35 * down), (column - 0.3 * right, row - 0.3 * down),
                           arrowprops={"arrowstyle": "->", "color": "white", "linewidth": 0.8})  # fmt: skip
