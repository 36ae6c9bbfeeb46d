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
from vpac.lab.report.chart import Chart, Grid, Lines, Plane, Points, Reference, Spots, Trajectory
from vpac.lab.report.geometry import (
    BRIGHT,
    along,
    arrow_strokes,
    beneath,
    broken,
    hatching,
    more_room_on_the_left,
    nearest,
    outline,
    place_labels,
    rectangle_hatching,
    sorted_arrows,
)
from vpac.lab.report.style import INK, MUTED, Look, figure_style, look, plain, save_figure
from vpac.lab.report.words import thinned

__all__ = ["draw", "draw_grid", "draw_plane", "draw_points", "name_points", "ring", "static_svg", "write"]

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


SIZE = 5.0
"""Of a marker, in points."""
LEADER = 7.0
"""A word that is farther from its point than this, in points, is joined to it by a thin line."""
THIN = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.2}
"""Behind words, so that a line that runs through one does not make it hard to read."""
ARROWS = {"x": ("<", ">"), "y": ("v", "^")}


def draw_points(axis: Any, panel: Points) -> None:
    """Everything but the words beside points, which need to know where all the rest is."""
    under = beneath(panel)
    for number, spots in enumerate(panel.series):
        x, y = _places(panel, number)
        _draw_spots(axis, panel, spots, look(spots.style, number), x, y, np.array(under[number]))
    if panel.x_log and not panel.sideways:
        _tick_at_values(axis, sorted({x for spots in panel.series for x in spots.x}))
    if panel.categories:
        _name_categories(axis, panel)


def _places(panel: Points, number: int) -> tuple[Any, Any]:
    """Where the points of a series are; those of several series at one category stand side by side."""
    spots, categories = panel.series[number], panel.categories
    if not categories:
        return np.array(spots.x), np.array(spots.y)
    shift = (number - (len(panel.series) - 1) / 2) * min(0.24, 0.7 / len(panel.series))
    return np.array([categories.index(name) for name in spots.x]) + shift, np.array(spots.y)


def _name_categories(axis: Any, panel: Points) -> None:
    categories = panel.categories
    ticks = (range(len(categories)), [plain(name, 32 if panel.sideways else 16) for name in categories])
    if panel.sideways:
        axis.set_yticks(*ticks)
        axis.set_ylim(len(categories) - 0.5, -0.5)
        axis.grid(visible=False, axis="y")
        return
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


def ring(under: int) -> dict[str, Any]:
    """How a marker looks that lies on so many others: hollow and larger, so that all are seen."""
    return {"markersize": SIZE + 4.5 * under} | ({"markerfacecolor": "none", "markeredgewidth": 1.3} if under else {})


def _draw_spots(axis: Any, panel: Points, spots: Spots, style: Look, x: Any, y: Any, under: Any) -> None:
    y_ends, x_ends = _ends(y, spots.low, spots.high), _ends(x, spots.x_low, spots.x_high)
    y_cut, x_cut = _cut(y, y_ends, panel.y_range), _cut(x, x_ends, panel.x_range)
    (a, a_ends), (b, b_ends) = ((y, y_ends), (x, x_ends)) if panel.sideways else ((x, x_ends), (y, y_ends))
    axis.errorbar(
        a, b, xerr=a_ends, yerr=b_ends, color=style.colour, marker="", linestyle=style.line if spots.joined else "",
        linewidth=1.3, elinewidth=1.1, capsize=2.5, label=plain(spots.label),
    )  # fmt: skip
    for depth in sorted(set(under.tolist())):
        here = under == depth
        axis.plot(a[here], b[here], color=style.colour, marker=style.marker, linestyle="", zorder=2.6, **ring(depth))
    for name, cut, ends in (("x", x_cut, panel.x_range), ("y", y_cut, panel.y_range)):
        along_x = (name == "x") != panel.sideways
        for side, arrow in enumerate(ARROWS["x" if along_x else "y"]):
            for k in np.flatnonzero(cut[side]):
                edge = (ends or (0.0, 0.0))[side]
                at = (edge, b[k]) if along_x else (a[k], edge)
                axis.plot(*at, marker=arrow, markersize=6, color=style.colour, linestyle="", clip_on=False)


def _ends(middle: Any, low: Any, high: Any) -> Any:
    """Distances to the interval's ends, as matplotlib wants them; an estimate outside its interval gets none there."""
    if low is None:
        return None
    return np.nan_to_num(np.maximum([middle - np.array(low), np.array(high) - middle], 0.0))


def _cut(middle: Any, ends: Any, frame: tuple[float, float] | None) -> Any:
    """Shorten bars that would leave the panel; returns which, [below or above, points]."""
    if ends is None or frame is None:
        return np.zeros((2, len(middle)), bool)
    room = np.maximum([middle - frame[0], frame[1] - middle], 0.0)
    cut = ends > room * (1.0 + 1e-9)
    np.minimum(ends, room, out=ends)
    return cut


def name_points(figure: Any, axis: Any, panel: Points) -> None:
    """The words beside points, once the figure has its layout."""
    unit = 72.0 / figure.dpi
    found = []
    points: list[Any] = []
    lines: list[Any] = [np.empty((0, 2))]
    named = sum(any(spots.names) for spots in panel.series)
    for number, spots in enumerate(panel.series):
        x, y = _places(panel, number)
        seen = _seen(axis, panel, x, y) * unit
        points.append(seen)
        lines += [along(seen)] if spots.joined else []
        for low, high, is_x in ((spots.low, spots.high, False), (spots.x_low, spots.x_high, True)):
            for k in range(len(x)) if low else ():
                ends = [(v, y[k]) if is_x else (x[k], v) for v in (low[k], high[k])]
                bar = _seen(axis, panel, *np.array(ends).T) * unit
                lines.append(along(bar) if np.isfinite(bar).all() else bar[:0])
        style = {"fontsize": 7.5, "color": look(spots.style, number).colour if named > 1 else INK}
        found += [
            (name, at, style) for name, at in zip(spots.names, seen, strict=False) if name and np.isfinite(at).all()
        ]
    box = axis.get_window_extent()
    frame = (box.x0 * unit, box.y0 * unit, box.x1 * unit, box.y1 * unit)
    sizes = [_text_size(axis, name, style) for name, _, style in found]
    everything = np.concatenate([np.empty((0, 2)), *points])
    boxes = place_labels(
        [at for _, at, _ in found], [(w * unit, h * unit) for w, h in sizes], frame, everything, np.concatenate(lines)
    )
    for (name, at, style), word in zip(found, boxes, strict=True):
        tip = np.array(nearest(word, at)) - at
        spot = axis.transData.inverted().transform(at / unit)
        if np.hypot(*tip) > LEADER:
            axis.annotate("", spot, tip, textcoords="offset points", zorder=2.4, arrowprops=THIN).set_in_layout(False)
        where = {"textcoords": "offset points", "va": "bottom", "bbox": PAPER, "zorder": 2.5}
        axis.annotate(plain(name), spot, np.array(word[:2]) - at, **where, **style).set_in_layout(False)


def _seen(axis: Any, panel: Points, x: Any, y: Any) -> Any:
    """Where points are on the figure, in pixels."""
    return axis.transData.transform(np.stack((y, x) if panel.sideways else (x, y), axis=-1)).reshape(-1, 2)


def _text_size(axis: Any, name: str, style: dict[str, Any]) -> tuple[float, float]:
    """Width and height of a word, in pixels."""
    trial = axis.annotate(plain(name), (0.5, 0.5), xycoords="axes fraction", **style)
    box = trial.get_window_extent()
    trial.remove()
    return box.width, box.height


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
