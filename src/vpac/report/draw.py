"""Charts on paper: matplotlib, one style, the same bytes every time."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vpac.files import write_text
from vpac.report.chart import Chart, Grid, Lines, Plane, Points, Reference, Spots
from vpac.report.draw_maps import draw_grid, draw_plane
from vpac.report.draw_points import draw_points, name_points, ring
from vpac.report.geometry import beneath, more_room_on_the_left
from vpac.report.look import look
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
        figure = draw(plt, chart, alone=True)
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


def draw(plt: Any, chart: Chart, alone: bool = False) -> Any:
    """The chart as a matplotlib figure; call it inside `figure_style`.

    Args:
        plt: what `figure_style` gave.
        chart: what is drawn.
        alone: nothing is written around the figure: if the chart has a `foot`, its title is drawn above it.
    """
    columns = chart.width
    rows = math.ceil(len(chart.panels) / columns)
    sizes = [_size(panel) for panel in chart.panels]
    width, height = columns * max(w for w, _ in sizes), rows * max(h for _, h in sizes)
    names = list(_legend(plt, chart))
    across = min(len(names), _across(names, width))
    legend_rows = math.ceil(len(names) / max(1, across))
    height += 0.24 * legend_rows + ((0.5 if alone else 0.25) if chart.foot else 0.0)
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
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
                draw_points(axis, panel)
            _draw_references(axis, panel)
        if panel.title:
            axis.set_title(plain(panel.title))
    for axis in list(axes.flat)[len(chart.panels) :]:
        axis.set_visible(False)
    if names:
        figure.legend(handles=names, loc="outside lower center", ncols=across, handlelength=3.4, columnspacing=1.6)
    around = _write_around(figure, chart, width, alone) if chart.foot else None
    named = [(a, p) for a, p in zip(axes.flat, chart.panels, strict=False) if isinstance(p, Points) and _names(p)]
    if named or around:
        figure.draw_without_rendering()  # the layout says where things are
    if around:
        title, foot = around
        foot.set_y(title.get_window_extent().y0 / figure.bbox.height)
    for axis, panel in named:
        name_points(figure, axis, panel)
    return figure


def _write_around(figure: Any, chart: Chart, width: float, alone: bool) -> tuple[Any, Any]:
    """The title above everything, with empty lines where the foot goes once the layout says where that is."""
    title, foot = plain(chart.title, int(9.5 * width)) if alone else "", plain(chart.foot, int(13.5 * width))
    lines = (title or " ") + "\n" * (foot.count("\n") + bool(title))
    above = figure.suptitle(lines, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return above, figure.text(0.01, 1.0, foot, ha="left", va="bottom", fontsize=8)


def _names(panel: Points) -> int:
    """How many points have a word beside them."""
    return sum(bool(name) for spots in panel.series for name in spots.names)


def _size(panel: Any) -> tuple[float, float]:
    """Inches."""
    if isinstance(panel, Grid):
        rows, columns = panel.walls.shape
        return (4.3, 0.5 + 3.6 * rows / columns) if columns < 3 * rows else (7.0, 1.0 + 6.0 * rows / columns)
    if isinstance(panel, Plane):
        return 3.8, 3.9
    if isinstance(panel, Points) and panel.sideways:
        return 6.4, 1.0 + 0.15 * max(1, len(panel.categories)) * (1.2 + len(panel.series))
    return (5.4, 4.0) if isinstance(panel, Points) and _names(panel) > 8 else (4.3, 3.1)


def _legend(plt: Any, chart: Chart) -> Iterator[Any]:
    """One handle for each name, whatever the number of panels; none if there is but one curve."""
    found: dict[str, Any] = {}
    for panel in chart.panels:
        series: Any = panel.trajectories if isinstance(panel, Grid | Plane) else panel.series
        for place, one in enumerate(series):
            if one.label and one.label not in found:
                style = look(one.style, place)
                spots = isinstance(one, Spots)
                under = min(beneath(panel)[place], default=0) if isinstance(panel, Points) else 0
                found[one.label] = plt.Line2D(
                    [], [], color=style.colour, marker=style.marker, label=plain(one.label),
                    linestyle=style.line if not spots or one.joined else "", **ring(min(under, 1)),
                )  # fmt: skip
    if len(found) > 1 or any(isinstance(panel, Grid | Plane) for panel in chart.panels):
        yield from found.values()


def _across(handles: list[Any], width: float) -> int:
    """How many names of a legend stand beside each other within so many inches."""
    longest = max((len(line) for handle in handles for line in handle.get_label().splitlines()), default=0)
    return max(1, int(width // max(1.9, 0.6 + 0.068 * longest)))


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
