"""Charts on paper: matplotlib, one style, the same bytes every time."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vpac.files import write_text
from vpac.report.chart import Chart, Grid, Lines, Plane, Points, Reference, Spots
from vpac.report.draw_maps import draw_grid, draw_plane
from vpac.report.geometry import more_room_on_the_left, near_right_edge
from vpac.report.look import Look, look
from vpac.report.style import INK, MUTED, figure_style, plain, save_figure
from vpac.report.thinning import thinned

__all__ = ["draw", "static_svg", "write"]

KINDS = ("pdf", "png", "csv")
STATIC_POINTS = 200
"""Points of a curve in the static figure of the page: no screen shows more."""
MANY = 1e5
"""Numbers along a horizontal axis that are written in millions: in full they would run into each other."""
MARKS = 9
"""A curve carries about this many markers."""


def write(chart: Chart, folder: Path, kinds: tuple[str, ...] = KINDS) -> list[Path]:
    """The chart as files named after it; the CSV file has every number that is drawn."""
    with figure_style() as plt:
        figure = draw(plt, chart)
        paths = {kind: Path(folder) / f"{chart.name}.{kind}" for kind in kinds}
        return [
            write_text(path, chart.table().as_csv()) if kind == "csv" else save_figure(figure, path)
            for kind, path in paths.items()
        ]


def static_svg(chart: Chart) -> str:
    """The chart as SVG with text as text, its paths to a hundredth of a point: small enough for many on a page."""
    with figure_style() as plt, plt.rc_context({"svg.hashsalt": f"vpac {chart.name}"}):
        text = io.StringIO()
        draw(plt, thinned(chart, STATIC_POINTS)).savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        named = text.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
        return _small(named)


def _small(svg: str) -> str:
    """The same picture in fewer bytes: no metadata, no indentation, paths without spaces that nobody needs."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(?:d|x|y|width|height|points)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), svg)
    svg = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"\s*([A-Za-z])\s+", r"\1", path[0]), svg)
    return re.sub(r"\s*\n\s*", " ", svg)


def draw(plt: Any, chart: Chart) -> Any:
    """The chart as a matplotlib figure; call it inside `figure_style`."""
    columns = chart.width
    rows = math.ceil(len(chart.panels) / columns)
    sizes = [_size(panel) for panel in chart.panels]
    width, height = columns * max(w for w, _ in sizes), rows * max(h for _, h in sizes)
    names = list(_legend(plt, chart))
    legend_rows = math.ceil(len(names) / max(1, int(width // 1.9)))
    figure, axes = plt.subplots(
        rows, columns, figsize=(width, height + 0.24 * legend_rows), layout="constrained", squeeze=False
    )
    for axis, panel in zip(axes.flat, chart.panels, strict=False):
        if isinstance(panel, Grid):
            draw_grid(plt, figure, axis, panel, chart.limits(panel))
        elif isinstance(panel, Plane):
            draw_plane(plt, axis, panel)
        else:
            _draw_axes(axis, panel)
            if isinstance(panel, Lines):
                _draw_lines(axis, panel)
            else:
                _draw_points(axis, panel)
            _draw_references(axis, panel)
        if panel.title:
            axis.set_title(plain(panel.title))
    for axis in list(axes.flat)[len(chart.panels) :]:
        axis.set_visible(False)
    if names:
        across = min(len(names), max(1, int(width // 1.9)))
        figure.legend(handles=names, loc="outside lower center", ncols=across, handlelength=3.4, columnspacing=1.6)
    return figure


def _size(panel: Any) -> tuple[float, float]:
    """Inches."""
    if isinstance(panel, Grid):
        rows, columns = panel.walls.shape
        return (4.3, 0.5 + 3.6 * rows / columns) if columns < 3 * rows else (7.0, 1.0 + 6.0 * rows / columns)
    if isinstance(panel, Plane):
        return 3.8, 3.9
    if isinstance(panel, Points) and panel.sideways:
        return 6.4, 1.0 + 0.15 * max(1, len(panel.categories)) * (1.2 + len(panel.series))
    return 4.3, 3.1


def _legend(plt: Any, chart: Chart) -> Iterator[Any]:
    """One handle for each name, whatever the number of panels; none if there is but one curve."""
    found: dict[str, Any] = {}
    for panel in chart.panels:
        series: Any = panel.trajectories if isinstance(panel, Grid | Plane) else panel.series
        for place, one in enumerate(series):
            if one.label and one.label not in found:
                style = look(one.style, place)
                spots = isinstance(one, Spots)
                found[one.label] = plt.Line2D(
                    [], [], color=style.colour, marker=style.marker, markersize=5, label=plain(one.label),
                    linestyle=style.line if not spots or one.joined else "",
                )  # fmt: skip
    if len(found) > 1 or any(isinstance(panel, Grid | Plane) for panel in chart.panels):
        yield from found.values()


def _draw_axes(axis: Any, panel: Lines | Points) -> None:
    across, up = (panel.y_label, panel.x_label) if _sideways(panel) else (panel.x_label, panel.y_label)
    axis.set_xlabel(plain(across))
    axis.set_ylabel(plain(up))
    axis.grid(color="#e6e8ec", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.margins(x=0.02 if isinstance(panel, Lines) else 0.06)
    turned = _sideways(panel)
    for name, log, ends in (("x", panel.x_log, panel.x_range), ("y", panel.y_log, panel.y_range)):
        name = {"x": "y", "y": "x"}[name] if turned else name
        if log:
            getattr(axis, f"set_{name}scale")("log")
        elif (
            name == "x"
            and isinstance(panel, Lines)
            and max((x for s in panel.series for x in s.x), default=0.0) >= MANY
        ):
            axis.xaxis.set_major_formatter(lambda x, place: f"{x / 1e6:g} M" if x else "0")
        if ends:
            getattr(axis, f"set_{name}lim")(ends)
            if not log:
                axis.locator_params(axis=name, nbins=6)


def _sideways(panel: Lines | Points) -> bool:
    return isinstance(panel, Points) and panel.sideways


def _draw_lines(axis: Any, panel: Lines) -> None:
    for place, line in enumerate(panel.series):
        style = look(line.style, place)
        every = max(1, len(line.x) // MARKS)
        axis.plot(
            line.x, line.y, color=style.colour, linestyle=style.line, linewidth=1.5, marker=style.marker, markersize=4,
            markevery=(min(place, every - 1) if every > 1 else 0, every), label=plain(line.label),
        )  # fmt: skip
        if line.low:
            axis.fill_between(line.x, line.low, line.high, color=style.colour, alpha=0.16, linewidth=0)


def _draw_points(axis: Any, panel: Points) -> None:
    categories = panel.categories
    for place, spots in enumerate(panel.series):
        style = look(spots.style, place)
        if categories:
            shift = (place - (len(panel.series) - 1) / 2) * min(0.24, 0.7 / len(panel.series))
            x: Any = np.array([categories.index(name) for name in spots.x]) + shift
        else:
            x = np.array(spots.x)
        y = np.array(spots.y)
        _draw_spots(axis, panel, spots, style, x, y)
        for name, right, up, edge in zip(spots.names, x, y, near_right_edge(panel, spots), strict=False):
            if name:
                at = (up, right) if panel.sideways else (right, up)
                axis.annotate(plain(name), at, (-5 if edge else 5, 4), textcoords="offset points", fontsize=7.5, color=INK,
                              ha="right" if edge else "left")  # fmt: skip
    if panel.x_log and not panel.sideways:
        _tick_at_values(axis, sorted({x for spots in panel.series for x in spots.x}))
    if categories:
        ticks = (range(len(categories)), [plain(name, 32 if panel.sideways else 16) for name in categories])
        if panel.sideways:
            axis.set_yticks(*ticks)
            axis.set_ylim(len(categories) - 0.5, -0.5)
            axis.grid(visible=False, axis="y")
        else:
            axis.set_xticks(*ticks)
            axis.set_xlim(-0.5, len(categories) - 0.5)
            axis.grid(visible=False, axis="x")
            if len(categories) * max(min(len(name), 16) for name in categories) > 45:
                axis.tick_params(axis="x", rotation=30)
                for label in axis.get_xticklabels():
                    label.set(ha="right", rotation_mode="anchor")


def _tick_at_values(axis: Any, values: list[float]) -> None:
    """A logarithmic axis names the few values that were tried, if their names have room beside each other."""
    if 1 < len(values) <= 8 and values[0] > 0.0:
        places = np.log(values)
        if np.diff(places).min() / (places[-1] - places[0]) > 0.12:
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.set_xticks([], minor=True)


def _draw_spots(axis: Any, panel: Points, spots: Spots, style: Look, x: Any, y: Any) -> None:
    y_ends = _ends(y, spots.low, spots.high)
    x_ends = _ends(x, spots.x_low, spots.x_high)
    (a, a_ends), (b, b_ends) = ((y, y_ends), (x, x_ends)) if panel.sideways else ((x, x_ends), (y, y_ends))
    axis.errorbar(
        a, b, xerr=a_ends, yerr=b_ends, color=style.colour, marker=style.marker, markersize=5,
        linestyle=style.line if spots.joined else "", linewidth=1.3, elinewidth=1.1, capsize=2.5, label=plain(spots.label),
    )  # fmt: skip


def _ends(middle: Any, low: Any, high: Any) -> Any:
    """Distances to the interval's ends, as matplotlib wants them; an estimate outside its interval gets none there."""
    if low is None:
        return None
    return np.nan_to_num(np.maximum([middle - np.array(low), np.array(high) - middle], 0.0))


def _draw_references(axis: Any, panel: Lines | Points) -> None:
    turned = _sideways(panel)
    for mark in panel.references:
        style = MUTED if mark.style is None else look(mark.style).colour
        horizontal = (mark.axis == "y") != turned
        draw_line = axis.axhline if horizontal else axis.axvline
        draw_line(mark.value, color=style, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1.5)
        _write_reference(axis, panel, mark, horizontal, INK if mark.style is None else style)


def _write_reference(axis: Any, panel: Lines | Points, mark: Reference, horizontal: bool, colour: str) -> None:
    """The label at the line's end, inside the panel; at the end where fewer curves come near."""
    left = horizontal and more_room_on_the_left(panel, mark.value)
    if horizontal:
        at, where, side = (
            (0.005 if left else 0.995, mark.value),
            axis.get_yaxis_transform(),
            "left" if left else "right",
        )
    else:
        at, where, side = (mark.value, 0.99), axis.get_xaxis_transform(), "left"
    axis.annotate(
        plain(mark.label), at, (0, 2) if horizontal else (3, 0), xycoords=where, textcoords="offset points", fontsize=7.5,
        color=colour, ha=side, va="bottom" if horizontal else "top",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
    )  # fmt: skip
