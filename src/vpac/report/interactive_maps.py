"""Maps on the page: grid worlds and the unit square as Plotly figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.report.chart import Grid, Plane
from vpac.report.geometry import BRIGHT, arrow_strokes, hatching, outline, rectangle_hatching, sorted_arrows
from vpac.report.interactive_parts import Figure, base_layout, colour, numbers, safe, strokes_trace
from vpac.report.look import look
from vpac.report.scales import plotly_scale

__all__ = ["grid_figure", "plane_figure"]

INK = {"bare": "var(--ink)", "bright": "#1c2230", "deep": "#ffffff"}
"""What is drawn with on each kind of ground."""


def grid_figure(grid: Grid, limits: tuple[float, float]) -> Figure:
    """Cells, walls, marked regions, the goal, the policy and the ways walked."""
    rows, columns = grid.walls.shape
    valued = bool(len(grid.finite()))
    data = [_cells(grid, limits)] if valued else []
    data.append(_walls(grid))
    for region in grid.regions:
        for ground, cells in _grounds(grid, region.cells, limits).items():
            data.append(strokes_trace(hatching(cells), INK[ground], 1))
        data += [
            strokes_trace(outline(region.cells), "#ffffff", 3.5),
            strokes_trace(outline(region.cells), "#1c2230", 1.8, "5px,3px"),
        ]
    for ground, arrows in sorted_arrows(grid, *limits).items():
        data.append(strokes_trace([s for arrow in arrows for s in arrow_strokes(arrow)], INK[ground], 1.6))
    for place, way in enumerate(grid.trajectories):
        data += _way(way.label, [(x, y) for y, x in way.points], way.style, place)
    layout = base_layout()
    hidden: Figure = {"visible": False, "fixedrange": True, "constrain": "domain"}
    layout |= {
        "margin": {"l": 2, "r": 2, "t": 2, "b": 2}, "plot_bgcolor": "var(--floor)",
        "xaxis": {**hidden, "range": [-0.5, columns - 0.5]},
        "yaxis": {**hidden, "range": [rows - 0.5, -0.5], "scaleanchor": "x"},
        "annotations": [_letter(letter, cell[1], cell[0])
                        for letter, cell in (("G", grid.goal), ("S", grid.start)) if cell is not None],
    }  # fmt: skip
    return {"data": data, "layout": layout, "aspect": round(rows / columns, 3), "extra": 62 if valued else 0}


def _cells(grid: Grid, limits: tuple[float, float]) -> Figure:
    low, high = limits
    label = safe(grid.value_label)
    return {
        "type": "heatmap", "z": [numbers(row) for row in grid.values], "zmin": low, "zmax": high if high > low else low + 1.0,
        "colorscale": plotly_scale(grid.colours), "hoverongaps": False, "xgap": 0.5, "ygap": 0.5,
        "hovertemplate": f"row %{{y}}, column %{{x}}<br>{label}: %{{z:.5~g}}<extra></extra>",
        "colorbar": {"orientation": "h", "title": {"text": label, "side": "bottom", "font": {"size": 12}}, "thickness": 10,
                     "outlinewidth": 0, "len": 1.0, "y": 0, "yanchor": "top", "ypad": 8, "tickfont": {"size": 11}},
    }  # fmt: skip


def _walls(grid: Grid) -> Figure:
    return {
        "type": "heatmap", "z": [[1 if wall else None for wall in row] for row in grid.walls], "showscale": False,
        "colorscale": [[0, "var(--wall)"], [1, "var(--wall)"]], "hoverinfo": "skip", "hoverongaps": False,
    }  # fmt: skip


def _grounds(grid: Grid, cells: Any, limits: tuple[float, float]) -> dict[str, Any]:
    """The cells by what they are drawn on."""
    bare = ~np.isfinite(grid.values)
    bright = (
        ~bare & (limits[1] > limits[0]) & (np.nan_to_num(grid.values) >= limits[0] + BRIGHT * (limits[1] - limits[0]))
    )
    found = {"bare": cells & bare, "bright": cells & bright, "deep": cells & ~bare & ~bright}
    return {ground: chosen for ground, chosen in found.items() if chosen.any()}


def _way(label: str, points: list[tuple[float, float]], style: int | str | None, place: int) -> list[Figure]:
    """A line with a halo, a ring where it begins and its marker where it ends."""
    if not points:
        return []
    seen = look(style, place)
    x, y = (numbers(values) for values in zip(*points, strict=True))
    shared = {"type": "scatter", "legendgroup": label, "showlegend": False}
    words = f"{safe(label)}<br>%{{x:.3~g}}, %{{y:.3~g}}<extra></extra>"
    return [
        {**shared, "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", "line": {"color": "var(--paper)", "width": 6}},
        {**shared, "mode": "lines+markers", "x": x, "y": y, "hovertemplate": words,
         "line": {"color": colour(seen), "width": 2.4, "dash": seen.dash},
         "marker": {"symbol": seen.symbol, "size": 7, "maxdisplayed": 7, "color": colour(seen)}},
        {**shared, "mode": "markers", "x": [x[0], x[-1]], "y": [y[0], y[-1]], "hovertemplate": words,
         "marker": {"symbol": ["circle", seen.symbol], "size": 12, "color": ["var(--paper)", colour(seen)],
                    "line": {"width": 2.5, "color": colour(seen)}}},
    ]  # fmt: skip


def _letter(letter: str, x: float, y: float) -> Figure:
    return {"text": f"<b>{letter}</b>", "x": x, "y": y, "showarrow": False, "bgcolor": "#1c2230", "borderpad": 2,
            "bordercolor": "#ffffff", "font": {"color": "#ffffff", "size": 12}}  # fmt: skip


def plane_figure(plane: Plane) -> Figure:
    """The square, its marked parts, the goal's corner and the ways walked."""
    data, layout = [], base_layout()
    for part in plane.regions:
        data.append(
            strokes_trace(rectangle_hatching(part.left, part.bottom, part.right, part.top), "var(--muted) 0.6", 1)
        )
        layout["shapes"].append(
            {"type": "rect", "x0": part.left, "x1": part.right, "y0": part.bottom, "y1": part.top, "fillcolor": "rgba(0,0,0,0)",
             "line": {"color": "var(--muted)", "dash": "dash", "width": 1.5}}
        )  # fmt: skip
        layout["annotations"].append(
            {"text": safe(part.label), "x": (part.left + part.right) / 2, "y": part.bottom, "yanchor": "bottom",
             "showarrow": False, "bgcolor": "var(--paper) 0.85", "font": {"size": 12}}
        )  # fmt: skip
    for place, way in enumerate(plane.trajectories):
        data += _way(way.label, list(way.points), way.style, place)
    if plane.goal is not None:
        (x, y), d = plane.goal, plane.goal_distance
        path = f"M{x + d:g},{y:g}L{x:g},{y + d:g}L{x - d:g},{y:g}L{x:g},{y - d:g}Z"
        layout["shapes"].append(
            {"type": "path", "path": path, "fillcolor": "var(--goal)", "line": {"color": "var(--ink)", "width": 1}}
        )
        inward = [d / 3 * float(np.sign(0.5 - value)) for value in (x, y)]
        layout["annotations"].append(_letter("G", x + inward[0], y + inward[1]))
    axis: Figure = {"range": [0, 1], "dtick": 0.25, "gridcolor": "var(--grid)", "zeroline": False, "mirror": True,
                    "showline": True, "linecolor": "var(--rule)", "constrain": "domain"}  # fmt: skip
    layout["xaxis"] = {**axis, "title": {"text": "x"}}
    layout["yaxis"] = {**axis, "title": {"text": "y"}, "scaleanchor": "x"}
    return {"data": data, "layout": layout, "aspect": 1.0, "extra": 0}
