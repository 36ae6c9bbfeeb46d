"""Charts on the page: one Plotly figure for each panel, as plain data.

Each panel is a figure of its own, so that a phone can stack them; the legend belongs to the page, with buttons that work
by keyboard. Colours are the page's CSS variables (`var(--ink)`, optionally with an opacity after a space), which its script
replaces by the colours of the current theme.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import Any

from vpac.lab.report import geometry as shapes
from vpac.lab.report.chart import Chart, Grid, Line, Lines, Points, Spots, Style
from vpac.lab.report.geometry import Look, colour_scale, look

PlotlyFigure = dict[str, Any]
"""Plotly's data and layout; the figure is `aspect` · width + `extra` pixels high."""


def safe(text: str) -> str:
    """Escape tags, entities and templates, which Plotly would interpret."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("%{", "%\N{ZERO WIDTH SPACE}{").replace("$", "\N{FULLWIDTH DOLLAR SIGN}")


def numbers(values: Iterable[float]) -> list[float | None]:
    """Seven digits, more than a screen shows; null for numbers that JSON does not have."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def _colour(style: Look, opacity: float | None = None) -> str:
    """The CSS variable of a series' colour."""
    name = f"var(--series-{style.number})"
    return name if opacity is None else f"{name} {opacity:g}"


def _base_layout() -> PlotlyFigure:
    """A transparent figure without a legend."""
    return {
        "autosize": True, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": False,
        "font": {"color": "var(--ink)", "family": "system-ui, sans-serif", "size": 13}, "hovermode": "closest",
        "hoverlabel": {"bgcolor": "var(--raised)", "bordercolor": "var(--rule)", "font": {"color": "var(--ink)"}},
        "margin": {"l": 56, "r": 12, "t": 10, "b": 48}, "shapes": [], "annotations": [],
    }  # fmt: skip


def figures(chart: Chart) -> list[PlotlyFigure]:
    """A figure for each panel."""
    return [
        _grid_figure(panel, chart.limits(panel)) if isinstance(panel, Grid) else _axes_figure(panel)
        for panel in chart.panels
    ]


def _axes_figure(panel: Lines | Points) -> PlotlyFigure:
    layout = _base_layout()
    x = _axis(panel.x_label, panel.x_log, panel.x_range)
    y = _axis(panel.y_label, panel.y_log, panel.y_range)
    data: list[dict[str, Any]] = []
    if isinstance(panel, Lines):
        layout["hovermode"] = "x unified"
        for position, line in enumerate(panel.series):
            data += _line_traces(line, look(line.style, position))
    else:
        data += [_spots_trace(panel, number) for number in range(len(panel.series))]
        _name_categories(panel, x)
    if panel.sideways:
        x, y = y, x
        x["title"]["text"] = _wrapped(panel.y_label, 24)
        layout["margin"]["l"] = 10
    layout["xaxis"], layout["yaxis"] = x, y
    _add_references(panel, layout)
    if panel.sideways:
        height = 70 + 22 * max(1, len(panel.categories)) * (1 + len(panel.series))
        return {"data": data, "layout": layout, "aspect": 0.0, "extra": height}
    return {"data": data, "layout": layout, "aspect": 0.62, "extra": 0}


def _wrapped(text: str, width: int) -> str:
    """Text in lines of at most `width` letters."""
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
    """The curve above its band; the page's script fills in the band's x, which are the curve's."""
    shared = {"type": "scatter", "legendgroup": line.label, "showlegend": False}
    traces: list[dict[str, Any]] = []
    ends = ""
    if line.low:
        edge = {"mode": "lines", "line": {"width": 0, "color": _colour(style)}, "hoverinfo": "skip"}
        traces.append({**shared, **edge, "y": numbers(line.low)})
        traces.append({**shared, **edge, "y": numbers(line.high), "fill": "tonexty", "fillcolor": _colour(style, 0.16)})
        ends = " (%{customdata[0]:.5~g} … %{customdata[1]:.5~g})"  # the script fills these in from the band
    curve = {
        **shared, "x": numbers(line.x), "y": numbers(line.y), "mode": "lines+markers", "name": safe(line.label),
        "line": {"color": _colour(style), "width": 2, "dash": style.dash},
        "marker": {"symbol": style.symbol, "size": 7, "maxdisplayed": 9, "color": _colour(style)},
        "hovertemplate": f"{safe(line.label)}: %{{y:.5~g}}{ends}<extra></extra>",
    }  # fmt: skip
    if line.low:
        curve["meta"] = {"band": True}
    return [*traces, curve]


def _spots_trace(panel: Points, number: int) -> dict[str, Any]:
    spots = panel.series[number]
    style, x = look(spots.style, number), shapes.positions(panel, number)
    across, up = ("y", "x") if panel.sideways else ("x", "y")
    mode = "lines+markers" if spots.joined else "markers"
    trace: dict[str, Any] = {
        "type": "scatter", "mode": f"{mode}+text" if any(spots.names) else mode, across: numbers(x), up: numbers(spots.y),
        "legendgroup": spots.label, "name": safe(spots.label), "showlegend": False, "cliponaxis": False,
        "marker": {"symbol": style.symbol, "size": 9, "color": _colour(style)},
        "line": {"color": _colour(style), "width": 1.6, "dash": style.dash},
        "customdata": [_hover_text(spots, k) for k in range(len(spots.y))],
        "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip
    if any(spots.names):
        positions = spots.y if panel.sideways else x
        sides = ["left" if x_at > _far_right(panel) else "right" for x_at in positions]  # labels stay inside the panel
        words = {"text": [safe(name) for name in spots.names], "textposition": [f"top {side}" for side in sides]}
        trace |= words | {"textfont": {"size": 11}}
    for axis, middle, low, high in ((up, spots.y, spots.low, spots.high), (across, x, spots.x_low, spots.x_high)):
        if low:
            trace[f"error_{axis}"] = {
                "type": "data", "symmetric": False, "color": _colour(style), "thickness": 1.4, "width": 4,
                "array": numbers([max(h - m, 0.0) for h, m in zip(high, middle, strict=True)]),
                "arrayminus": numbers([max(m - b, 0.0) for b, m in zip(low, middle, strict=True)]),
            }  # fmt: skip
    return trace


def _far_right(panel: Points) -> float:
    """The last fifth of the panel begins here."""
    every = [
        place
        for number, spots in enumerate(panel.series)
        for place in (spots.y if panel.sideways else shapes.positions(panel, number))
    ]
    return min(every) + 0.8 * (max(every) - min(every))


def _hover_text(spots: Spots, k: int) -> str:
    """Text that is shown when the pointer is over a point."""
    x = spots.x[k] if spots.categorical else f"{spots.x[k]:.5g}"
    ends = f" ({spots.low[k]:.5g} … {spots.high[k]:.5g})" if spots.low else ""
    name = f", {safe(spots.names[k])}" if spots.names and spots.names[k] else ""
    return f"{safe(spots.label)}{name}<br>{safe(x)}: {spots.y[k]:.5g}{ends}"


def _name_categories(panel: Points, axis: dict[str, Any]) -> None:
    """Label the categories or, on a logarithmic axis, the few values that were tried."""
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


def _add_references(panel: Lines | Points, layout: PlotlyFigure) -> None:
    """A dotted line each, labelled at its end."""
    for mark in panel.references:
        ink = "var(--muted)" if mark.style is None else _colour(look(mark.style))
        horizontal = (mark.axis == "y") != panel.sideways
        log = panel.y_log if mark.axis == "y" else panel.x_log
        at = math.log10(mark.value) if log and mark.value > 0 else mark.value
        along, across = ("x", "y") if horizontal else ("y", "x")
        left = not horizontal or shapes.more_room_on_the_left(panel, mark.value)
        layout["shapes"].append(
            {"type": "line", f"{along}ref": "paper", f"{along}0": 0, f"{along}1": 1, f"{across}ref": across,
             f"{across}0": mark.value, f"{across}1": mark.value, "line": {"color": ink, "width": 1.5, "dash": "dot"}}
        )  # fmt: skip
        layout["annotations"].append(
            {"text": safe(mark.label), f"{along}ref": "paper", along: 0 if horizontal and left else 1, f"{across}ref": across,
             across: at, "showarrow": False, "font": {"color": ink, "size": 11}, "bgcolor": "var(--paper) 0.75",
             "xanchor": "left" if left else "right", "yanchor": "bottom" if horizontal else "top"}
        )  # fmt: skip


INK_ON = {"bare": "var(--ink)", "bright": "#1c2230", "deep": "#ffffff", "dark": "#ffffff"}
"""The colour to draw with on each kind of background."""
STROKES = {"hatching": (1, "solid"), "border": (3.5, "solid"), "outline": (1.8, "5px,3px"), "arrows": (1.6, "solid")}
"""Width and dashes of marks upon a map."""


def _grid_figure(grid: Grid, limits: tuple[float, float]) -> PlotlyFigure:
    """Cells, walls, marked regions, the goal, the policy and trajectories."""
    rows, columns = grid.walls.shape
    valued = bool(len(grid.finite()))
    data = [_cells(grid, limits)] if valued else []
    data.append({
        "type": "heatmap", "z": [[1 if wall else None for wall in row] for row in grid.walls], "showscale": False,
        "colorscale": [[0, "var(--wall)"], [1, "var(--wall)"]], "hoverinfo": "skip", "hoverongaps": False,
    })  # fmt: skip
    for kind, ground, x, y in shapes.strokes(grid, *limits):
        width, dash = STROKES[kind]
        data.append({"type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(y), "hoverinfo": "skip",
                     "showlegend": False, "line": {"color": INK_ON[ground], "width": width, "dash": dash}})  # fmt: skip
    for position, path in enumerate(grid.trajectories):
        data += _path(path.label, [(x, y) for y, x in path.points], path.style, position)
    layout = _base_layout()
    hidden: PlotlyFigure = {"visible": False, "fixedrange": True, "constrain": "domain"}
    layout |= {
        "margin": {"l": 2, "r": 2, "t": 2, "b": 2}, "plot_bgcolor": "var(--floor)",
        "xaxis": {**hidden, "range": [-0.5, columns - 0.5]},
        "yaxis": {**hidden, "range": [rows - 0.5, -0.5], "scaleanchor": "x"},
        "annotations": [{"text": f"<b>{letter}</b>", "x": cell[1], "y": cell[0], "showarrow": False, "bgcolor": "#1c2230",
                         "borderpad": 2, "bordercolor": "#ffffff", "font": {"color": "#ffffff", "size": 12}}
                        for letter, cell in (("G", grid.goal), ("S", grid.start)) if cell is not None],
    }  # fmt: skip
    return {"data": data, "layout": layout, "aspect": round(rows / columns, 3), "extra": 62 if valued else 0}


def _cells(grid: Grid, limits: tuple[float, float]) -> PlotlyFigure:
    low, high = limits
    label = safe(grid.value_label)
    scale = [[k / 10, shade] for k, shade in enumerate(colour_scale(grid.colours))]
    return {
        "type": "heatmap", "z": [numbers(row) for row in grid.values], "zmin": low, "zmax": high if high > low else low + 1.0,
        "colorscale": scale, "hoverongaps": False, "xgap": 0.5, "ygap": 0.5,
        "hovertemplate": f"row %{{y}}, column %{{x}}<br>{label}: %{{z:.5~g}}<extra></extra>",
        "colorbar": {"orientation": "h", "title": {"text": label, "side": "bottom", "font": {"size": 12}}, "thickness": 10,
                     "outlinewidth": 0, "len": 1.0, "y": 0, "yanchor": "top", "ypad": 8, "tickfont": {"size": 11}},
    }  # fmt: skip


def _path(label: str, points: list[tuple[float, float]], style: Style, position: int) -> list[PlotlyFigure]:
    """A line with a border, a ring at its start and its marker at its end."""
    if not points:
        return []
    seen = look(style, position)
    x, y = (numbers(values) for values in zip(*points, strict=True))
    shared = {"type": "scatter", "legendgroup": label, "showlegend": False}
    words = f"{safe(label)}<br>%{{x:.3~g}}, %{{y:.3~g}}<extra></extra>"
    return [
        {**shared, "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", "line": {"color": "var(--paper)", "width": 6}},
        {**shared, "mode": "lines+markers", "x": x, "y": y, "hovertemplate": words,
         "line": {"color": _colour(seen), "width": 2.4, "dash": seen.dash},
         "marker": {"symbol": seen.symbol, "size": 7, "maxdisplayed": 7, "color": _colour(seen)}},
        {**shared, "mode": "markers", "x": [x[0], x[-1]], "y": [y[0], y[-1]], "hovertemplate": words,
         "marker": {"symbol": ["circle", seen.symbol], "size": 12, "color": ["var(--paper)", _colour(seen)],
                    "line": {"width": 2.5, "color": _colour(seen)}}},
    ]  # fmt: skip
