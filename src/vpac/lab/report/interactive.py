"""Charts on the page: one Plotly figure a panel, as plain data.

Each panel is a figure of its own, so that a phone can stack them; the legend is the page's, with buttons that a keyboard
reaches. Colours are names of the page's own (`var(--ink)`, with an opacity after a space if need be), which the page's
script turns into the colours of the present theme.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np

from vpac.lab.report.chart import Chart, Grid, Line, Lines, Plane, Points, Spots
from vpac.lab.report.geometry import (
    BRIGHT,
    Stroke,
    arrow_strokes,
    broken,
    hatching,
    more_room_on_the_left,
    near_right_edge,
    outline,
    rectangle_hatching,
    sorted_arrows,
)
from vpac.lab.report.style import Look, look, plotly_scale

__all__ = [
    "Figure",
    "base_layout",
    "colour",
    "figures",
    "grid_figure",
    "legend",
    "numbers",
    "plane_figure",
    "safe",
    "strokes_trace",
]

Figure = dict[str, Any]
"""Plotly's data and layout, and the figure's height over its width."""


def safe(text: str) -> str:
    """Text that Plotly shows as it is: it would read tags, entities and templates."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("%{", "%\N{ZERO WIDTH SPACE}{").replace("$", "\N{FULLWIDTH DOLLAR SIGN}")


def numbers(values: Iterable[float]) -> list[float | None]:
    """Seven digits, which no screen can show, and null for what JSON has no word for."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def colour(style: Look, opacity: float | None = None) -> str:
    """The name of a series' colour on the page."""
    name = f"var(--series-{style.number})"
    return name if opacity is None else f"{name} {opacity:g}"


def base_layout() -> Figure:
    """Quiet axes on the page's own ground."""
    return {
        "autosize": True, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": False,
        "font": {"color": "var(--ink)", "family": "system-ui, sans-serif", "size": 13}, "hovermode": "closest",
        "hoverlabel": {"bgcolor": "var(--raised)", "bordercolor": "var(--rule)", "font": {"color": "var(--ink)"}},
        "margin": {"l": 56, "r": 12, "t": 10, "b": 48}, "shapes": [], "annotations": [],
    }  # fmt: skip


def strokes_trace(strokes: Iterable[Stroke], ink: str, width: float, dash: str = "solid") -> Figure:
    """Lines that are part of the drawing, not data."""
    x, y = broken(strokes)
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", "showlegend": False,
            "line": {"color": ink, "width": width, "dash": dash}}  # fmt: skip


def figures(chart: Chart) -> list[Figure]:
    """A figure for each panel: data, layout, and aspect and extra: its height is aspect · width + extra pixels."""
    found = []
    for panel in chart.panels:
        if isinstance(panel, Grid):
            found.append(grid_figure(panel, chart.limits(panel)))
        elif isinstance(panel, Plane):
            found.append(plane_figure(panel))
        else:
            found.append(_axes_figure(panel))
    return found


def legend(chart: Chart) -> list[tuple[str, Look, bool]]:
    """Label, look and whether a line is drawn, for each series of the chart once; empty if one series is all there is."""
    found: dict[str, tuple[str, Look, bool]] = {}
    for panel in chart.panels:
        series: Any = panel.trajectories if isinstance(panel, Grid | Plane) else panel.series
        for place, one in enumerate(series):
            if one.label:
                line = not isinstance(one, Spots) or one.joined
                found.setdefault(one.label, (one.label, look(one.style, place), line))
    several = len(found) > 1 or any(isinstance(panel, Grid | Plane) for panel in chart.panels)
    return list(found.values()) if several else []


def _axes_figure(panel: Lines | Points) -> Figure:
    layout = base_layout()
    turned = isinstance(panel, Points) and panel.sideways
    x = _axis(panel.x_label, panel.x_log, panel.x_range)
    y = _axis(panel.y_label, panel.y_log, panel.y_range)
    data: list[dict[str, Any]] = []
    if isinstance(panel, Lines):
        layout["hovermode"] = "x unified"
        for place, line in enumerate(panel.series):
            data += _line_traces(line, look(line.style, place))
    else:
        for place, spots in enumerate(panel.series):
            data.append(_spots_trace(panel, spots, place))
        _name_categories(panel, x)
    if turned:
        x, y = y, x
        x["title"]["text"] = _wrapped(panel.y_label, 24)
        layout["margin"]["l"] = 10
    layout["xaxis"], layout["yaxis"] = x, y
    _add_references(panel, layout, turned)
    if turned:
        height = 70 + 22 * max(1, len(panel.categories)) * (1 + len(panel.series))  # type: ignore[union-attr]
        return {"data": data, "layout": layout, "aspect": 0.0, "extra": height}
    return {"data": data, "layout": layout, "aspect": 0.62, "extra": 0}


def _wrapped(text: str, width: int) -> str:
    """Text in lines of at most about this many letters."""
    return "<br>".join(safe(part) for part in textwrap.wrap(text, width))


def _axis(label: str, log: bool, ends: tuple[float, float] | None) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "title": {"text": safe(label), "standoff": 8, "font": {"size": 13}}, "exponentformat": "power",
        "type": "log" if log else "linear", "gridcolor": "var(--grid)",
        "linecolor": "var(--rule)", "zeroline": False, "automargin": True, "ticks": "outside", "tickcolor": "var(--rule)",
        "ticklen": 4, "nticks": 7, "ticklabeloverflow": "allow",
    }  # fmt: skip
    if ends:
        axis["range"] = [math.log10(end) if log else end for end in ends]
    return axis


def _line_traces(line: Line, style: Look) -> list[dict[str, Any]]:
    """The curve above its band; the band's x are the curve's, which the page's script fills in."""
    shared = {"type": "scatter", "legendgroup": line.label, "showlegend": False}
    traces: list[dict[str, Any]] = []
    ends = ""
    if line.low:
        edge = {"mode": "lines", "line": {"width": 0, "color": colour(style)}, "hoverinfo": "skip"}
        traces.append({**shared, **edge, "y": numbers(line.low)})
        traces.append({**shared, **edge, "y": numbers(line.high), "fill": "tonexty", "fillcolor": colour(style, 0.16)})
        ends = " (%{customdata[0]:.5~g} … %{customdata[1]:.5~g})"  # the script takes these, too, from the band
    curve = {
        **shared, "x": numbers(line.x), "y": numbers(line.y), "mode": "lines+markers", "name": safe(line.label),
        "line": {"color": colour(style), "width": 2, "dash": style.dash},
        "marker": {"symbol": style.symbol, "size": 7, "maxdisplayed": 9, "color": colour(style)},
        "hovertemplate": f"{safe(line.label)}: %{{y:.5~g}}{ends}<extra></extra>",
    }  # fmt: skip
    if line.low:
        curve["meta"] = {"band": True}
    return [*traces, curve]


def _spots_trace(panel: Points, spots: Spots, place: int) -> dict[str, Any]:
    style = look(spots.style, place)
    x: Any = spots.x
    if panel.categories:
        shift = (place - (len(panel.series) - 1) / 2) * min(0.24, 0.7 / len(panel.series))
        x = [panel.categories.index(name) + shift for name in spots.x]
    across, up = ("y", "x") if panel.sideways else ("x", "y")
    mode = "lines+markers" if spots.joined else "markers"
    trace: dict[str, Any] = {
        "type": "scatter", "mode": f"{mode}+text" if any(spots.names) else mode, across: numbers(x), up: numbers(spots.y),
        "legendgroup": spots.label, "name": safe(spots.label), "showlegend": False, "cliponaxis": False,
        "marker": {"symbol": style.symbol, "size": 9, "color": colour(style)},
        "line": {"color": colour(style), "width": 1.6, "dash": style.dash},
        "customdata": [_words(spots, k) for k in range(len(spots.y))],
        "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip
    if any(spots.names):
        trace |= {
            "text": [safe(name) for name in spots.names],
            "textposition": _sides(panel, spots),
            "textfont": {"size": 11},
        }
    for axis, middle, low, high in ((up, spots.y, spots.low, spots.high), (across, x, spots.x_low, spots.x_high)):
        if low:
            trace[f"error_{axis}"] = {
                "type": "data", "symmetric": False, "color": colour(style), "thickness": 1.4, "width": 4,
                "array": numbers([max(h - m, 0.0) for h, m in zip(high, middle, strict=True)]),
                "arrayminus": numbers([max(m - b, 0.0) for b, m in zip(low, middle, strict=True)]),
            }  # fmt: skip
    return trace


def _sides(panel: Points, spots: Spots) -> list[str]:
    """Words stand to the right of their points, and to the left near the right edge."""
    return [f"top {'left' if near else 'right'}" for near in near_right_edge(panel, spots)]


def _words(spots: Spots, k: int) -> str:
    """What hovering over a point says."""
    x = spots.x[k] if spots.categorical else f"{spots.x[k]:.5g}"
    ends = f" ({spots.low[k]:.5g} … {spots.high[k]:.5g})" if spots.low else ""
    name = f", {safe(spots.names[k])}" if spots.names and spots.names[k] else ""
    return f"{safe(spots.label)}{name}<br>{safe(x)}: {spots.y[k]:.5g}{ends}"


def _name_categories(panel: Points, axis: dict[str, Any]) -> None:
    """Words at the places of the categories; on a logarithmic axis, the few values that were tried."""
    if panel.categories:
        count = len(panel.categories)
        ends = [count - 0.5, -0.5] if panel.sideways else [-0.5, count - 0.5]
        names = [_wrapped(name, 18 if panel.sideways else 10) for name in panel.categories]
        axis |= {"tickvals": list(range(count)), "ticktext": names, "range": ends, "showgrid": False, "type": "linear"}
        if count <= 5:
            axis["tickangle"] = 0
    elif panel.x_log:
        values = sorted({x for spots in panel.series for x in spots.x})
        if 1 < len(values) <= 8:
            axis |= {"tickvals": values, "ticktext": [f"{value:g}" for value in values]}


def _add_references(panel: Lines | Points, layout: Figure, turned: bool) -> None:
    """A dotted line each, named at its end."""
    for mark in panel.references:
        ink = "var(--muted)" if mark.style is None else colour(look(mark.style))
        horizontal = (mark.axis == "y") != turned
        log = panel.y_log if mark.axis == "y" else panel.x_log
        at = math.log10(mark.value) if log and mark.value > 0 else mark.value
        along, across = ("x", "y") if horizontal else ("y", "x")
        left = not horizontal or more_room_on_the_left(panel, mark.value)
        layout["shapes"].append(
            {"type": "line", f"{along}ref": "paper", f"{along}0": 0, f"{along}1": 1, f"{across}ref": across,
             f"{across}0": mark.value, f"{across}1": mark.value, "line": {"color": ink, "width": 1.5, "dash": "dot"}}
        )  # fmt: skip
        layout["annotations"].append(
            {"text": safe(mark.label), f"{along}ref": "paper", along: 0 if horizontal and left else 1, f"{across}ref": across,
             across: at, "showarrow": False, "font": {"color": ink, "size": 11}, "bgcolor": "var(--paper) 0.75",
             "xanchor": "left" if left else "right", "yanchor": "bottom" if horizontal else "top"}
        )  # fmt: skip


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
