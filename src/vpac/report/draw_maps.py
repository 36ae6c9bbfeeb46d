"""Maps on paper: grid worlds and the unit square."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.report.chart import Grid, Plane, Trajectory
from vpac.report.geometry import BRIGHT, arrow_strokes, broken, hatching, outline, rectangle_hatching, sorted_arrows
from vpac.report.look import look
from vpac.report.style import INK, MUTED, plain

__all__ = ["draw_grid", "draw_plane"]

WALL, FLOOR, MARK = "#3b4252", "#f4f5f7", "#5d6675"


def draw_grid(plt: Any, figure: Any, axis: Any, grid: Grid, limits: tuple[float, float]) -> None:
    """Cells, walls, marked regions, the goal, the policy and the ways walked."""
    rows, columns = grid.walls.shape
    low, high = limits
    edges = (np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5)
    axis.set_facecolor(FLOOR)
    if len(grid.finite()):
        top = high if high > low else low + 1.0
        picture = axis.pcolormesh(
            *edges,
            np.ma.masked_invalid(grid.values),
            cmap=grid.colours,
            vmin=low,
            vmax=top,
            edgecolors="face",
            linewidth=0.2,
        )
        bar = figure.colorbar(picture, ax=axis, shrink=0.8, aspect=22, pad=0.02)
        bar.set_label(plain(grid.value_label))
        bar.outline.set_visible(False)
    dark = plt.matplotlib.colors.ListedColormap([WALL])  # above the cells, whose edges would nibble at the walls
    axis.pcolormesh(*edges, np.ma.masked_where(~grid.walls, np.ones(grid.walls.shape)), cmap=dark, edgecolors="face",
                    linewidth=0.3)  # fmt: skip
    for region in grid.regions:
        _draw_region(axis, grid, region.cells, limits)
    _draw_arrows(axis, grid, limits)
    for place, way in enumerate(grid.trajectories):
        _draw_way(axis, Trajectory(way.label, [(x, y) for y, x in way.points], way.style), place)
    for letter, cell in (("G", grid.goal), ("S", grid.start)):
        if cell is not None:
            _write_letter(axis, letter, (cell[1], cell[0]))
    axis.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), xticks=[], yticks=[], aspect="equal")
    axis.spines[:].set_visible(False)


def _draw_region(axis: Any, grid: Grid, cells: Any, limits: tuple[float, float]) -> None:
    """A dashed outline, light over dark so that it is seen on any ground, and hatching in every cell."""
    low, high = limits
    bright = ~np.isfinite(grid.values) | ((high > low) & (np.nan_to_num(grid.values) >= low + BRIGHT * (high - low)))
    for ground, colour in ((bright, INK), (~bright, "white")):
        axis.plot(*_gaps(hatching(cells & ground)), color=colour, linewidth=0.7, alpha=0.75)
    x, y = _gaps(outline(cells))
    axis.plot(x, y, color="white", linewidth=2.0)
    axis.plot(x, y, color=INK, linewidth=1.2, linestyle=(0, (3, 1.5)))


def _draw_arrows(axis: Any, grid: Grid, limits: tuple[float, float]) -> None:
    for ground, arrows in sorted_arrows(grid, *limits).items():
        if arrows:
            x, y = _gaps([stroke for arrow in arrows for stroke in arrow_strokes(arrow)])
            axis.plot(x, y, color="white" if ground == "deep" else INK, linewidth=1.1, solid_capstyle="round")


def _draw_way(axis: Any, way: Trajectory, place: int) -> None:
    """A line with a halo, a ring where it begins, its marker along it and filled where it ends."""
    if not way.points:
        return
    style = look(way.style, place)
    x, y = zip(*way.points, strict=True)
    axis.plot(x, y, color="white", linewidth=3.0, alpha=0.85, solid_joinstyle="round")
    axis.plot(x, y, color=style.colour, linewidth=1.5, linestyle=style.line, solid_joinstyle="round",
              marker=style.marker, markersize=3.5, markevery=max(1, len(x) // 6))  # fmt: skip
    ring = {"marker": "o", "markersize": 7, "markeredgecolor": style.colour, "markeredgewidth": 1.5, "zorder": 5}
    axis.plot(x[:1], y[:1], markerfacecolor="white", linestyle="", **ring)
    axis.plot(x[-1:], y[-1:], marker=style.marker, markersize=7, color=style.colour, markeredgecolor="white", zorder=5)


def _write_letter(axis: Any, letter: str, at: tuple[float, float]) -> None:
    axis.text(*at, letter, ha="center", va="center", color="white", fontweight="bold", fontsize=8, zorder=6,
              bbox={"boxstyle": "circle,pad=0.2", "facecolor": INK, "edgecolor": "white"})  # fmt: skip


def draw_plane(plt: Any, axis: Any, plane: Plane) -> None:
    """The square, its marked parts, the goal's corner and the ways walked."""
    axis.set_facecolor(FLOOR)
    for part in plane.regions:
        size = part.right - part.left, part.top - part.bottom
        axis.plot(
            *_gaps(rectangle_hatching(part.left, part.bottom, part.right, part.top)), color="#9fb4c9", linewidth=0.8
        )
        axis.add_patch(
            plt.Rectangle((part.left, part.bottom), *size, facecolor="none", edgecolor=MARK, linestyle=(0, (4, 2)))
        )
        axis.text(part.left + size[0] / 2, part.bottom + 0.02, plain(part.label, 20), ha="center", va="bottom", fontsize=8,
                  color=INK, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0})  # fmt: skip
    for place, way in enumerate(plane.trajectories):
        _draw_way(axis, way, place)
    if plane.goal is not None:
        x, y = plane.goal
        ends = [
            (plane.goal_distance, 0),
            (0, plane.goal_distance),
            (-plane.goal_distance, 0),
            (0, -plane.goal_distance),
        ]
        axis.add_patch(
            plt.Polygon([(x + a, y + b) for a, b in ends], facecolor="#cfe5c6", edgecolor=INK, linewidth=0.8)
        )
        inward = [plane.goal_distance / 3 * np.sign(0.5 - value) for value in (x, y)]
        _write_letter(axis, "G", (x + inward[0], y + inward[1]))
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axis.set(xlim=(0, 1), ylim=(0, 1), xticks=ticks, yticks=ticks, aspect="equal", xlabel="x", ylabel="y")
    axis.spines[:].set(visible=True, color=MUTED)


def _gaps(strokes: Any) -> tuple[Any, Any]:
    x, y = broken(strokes)
    return np.array(x, float), np.array(y, float)
