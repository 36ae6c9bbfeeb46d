"""Charts as files: drawn with matplotlib in one style, the same bytes every time."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pebble import ProcessPool

from vpac.envs.picture import INK, WALL
from vpac.errors import one_of
from vpac.files import LARGEST_TEXT, parse, read_bytes, write_bytes, write_text
from vpac.lab.report import geometry as shapes
from vpac.lab.report.chart import Axes, Chart, Grid, Lines, Points, Reference, Trajectory
from vpac.lab.report.geometry import MUTED, Look, look
from vpac.lab.workers.pool import start_workers, stop_workers

FILE_KINDS = ("pdf", "png", "csv")
STATIC_POINTS = 200
"""Points of a curve in the page's static figure: no screen shows more."""
MILLIONS = 1e5
"""Numbers along a horizontal axis from here on are written in millions: in full they would overlap."""
MARKERS_PER_CURVE = 9
FEW = 10
"""Figures that are drawn sooner than processes for them start."""


@contextmanager
def figure_style() -> Iterator[Any]:
    """matplotlib.pyplot, without a screen, in our style."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    settings: Any = {
        "axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.spines.right": False, "axes.spines.top": False,
        "axes.titlelocation": "left", "axes.titlesize": 11, "axes.titleweight": "bold", "figure.dpi": 120,
        "font.family": "DejaVu Sans", "font.size": 9, "legend.frameon": False, "pdf.fonttype": 42, "savefig.bbox": "tight",
        "savefig.dpi": 160, "svg.fonttype": "none", "svg.hashsalt": "vpac", "text.color": INK, "xtick.color": INK,
        "ytick.color": INK,
    }  # fmt: skip
    with plt.rc_context(settings):
        try:
            yield plt
        finally:
            plt.close("all")


def figure_kind(path: Path) -> str:
    """png, svg or pdf, by the file's suffix."""
    return one_of(Path(path).suffix.lstrip("."), ("png", "svg", "pdf"), "kind of figure")


def save(chart: Chart, *paths: Path) -> list[Path]:
    """Draw the chart into files; their suffixes give the formats. The CSV file has every number that is drawn."""
    undated = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with figure_style() as plt:
        figure = draw(plt, chart, alone=True)
        for path in paths:
            if path.suffix == ".csv":
                write_text(path, chart.table().as_csv())
            else:
                content, kind = io.BytesIO(), figure_kind(path)
                figure.savefig(content, format=kind, metadata=undated[kind])
                write_bytes(path, content.getvalue())
    return list(paths)


def write(chart: Chart, folder: Path, kinds: tuple[str, ...] = FILE_KINDS) -> list[Path]:
    """Draw the chart into files named after it."""
    return save(chart, *(Path(folder) / f"{chart.name}.{kind}" for kind in kinds))


def static_svg(chart: Chart) -> str:
    """The chart as SVG with text as text, its paths to a hundredth of a point: small enough for many on a page."""
    with figure_style() as plt, plt.rc_context({"svg.hashsalt": f"vpac {chart.name}"}):
        text = io.StringIO()
        figure = draw(plt, chart.thinned(STATIC_POINTS))
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(?:d|x|y|width|height|points)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), svg)
    svg = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"\s*([A-Za-z])\s+", r"\1", path[0]), svg)
    return re.sub(r"\s*\n\s*", " ", svg)


class Drawings:
    """A folder of figures (PDF, PNG, CSV, and SVG for the page), drawn again only when chart, code or files changed.

    With more than `FEW` to draw, `jobs` processes draw them.
    """

    def __init__(self, folder: Path, jobs: int = 1) -> None:
        self.folder, self._note = folder, folder / ".drawn.json"
        self._jobs, self._begun = jobs, 0
        self._pool: ProcessPool | None = None
        try:
            found = parse(read_bytes(self._note, LARGEST_TEXT))
        except (OSError, ValueError):
            found = {}
        self._drawn: dict[str, Any] = found if isinstance(found, dict) else {}

    def update(self, charts: Iterable[Chart]) -> None:
        """Draw those that are out of date."""
        stale = [chart for chart in charts if self._drawn.get(chart.name) != self._state(chart)]
        self._begun += len(stale)
        if self._pool is None and self._jobs > 1 and self._begun > FEW:
            self._pool = start_workers(self._jobs)
        if self._pool is None:
            for chart in stale:
                _draw_files(chart, self.folder)
        else:
            for task in [self._pool.schedule(_draw_files, (chart, self.folder)) for chart in stale]:
                task.result()
        self._drawn |= {chart.name: self._state(chart) for chart in stale}
        write_text(self._note, json.dumps(self._drawn, indent=1))

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            stop_workers(self._pool)

    def svg(self, chart: Chart) -> str:
        """The chart as SVG, drawn if it is out of date."""
        if self._drawn.get(chart.name) != self._state(chart):
            self.update([chart])
        return read_bytes(self.folder / f"{chart.name}.svg").decode("utf-8")

    def _state(self, chart: Chart) -> list[str]:
        """Digests of the chart together with the code that draws it, and of its files."""
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            content = repr(chart).encode() + _code()
        files = [self.folder / f"{chart.name}.{kind}" for kind in (*FILE_KINDS, "svg")]
        return [hashlib.sha256(content).hexdigest(), *map(_digest, files)]


def _draw_files(chart: Chart, folder: Path) -> None:
    write_text(folder / f"{chart.name}.svg", static_svg(chart))
    write(chart, folder)


def _digest(path: Path) -> str:
    """Digest of a file's content; empty if there is none that can be read."""
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except OSError:
        return ""


@cache
def _code() -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))


def plain(text: str, width: int = 48) -> str:
    """Literal text in at most three lines: matplotlib reads dollars as mathematics and hides what begins with _."""
    text = "\n".join(textwrap.wrap(text, width, max_lines=3, placeholder=" …")).replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


def draw(plt: Any, chart: Chart, alone: bool = False) -> Any:
    """The chart as a matplotlib figure; call it inside `figure_style`.

    If the figure stands alone, without a page that shows its title, the title is drawn as well, if the chart has a
    `foot`.
    """
    columns = chart.width
    rows = math.ceil(len(chart.panels) / columns)
    sizes = [_size(panel) for panel in chart.panels]
    width, height = columns * max(w for w, _ in sizes), rows * max(h for _, h in sizes)
    entries = list(_legend(plt, chart))
    longest = max((len(line) for entry in entries for line in entry.get_label().splitlines()), default=0)
    across = min(len(entries), max(1, int(width // max(1.9, 0.6 + 0.068 * longest))))  # entries that fit in a row
    height += 0.24 * math.ceil(len(entries) / max(1, across)) + ((0.5 if alone else 0.25) if chart.foot else 0.0)
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
    for axis, panel in zip(axes.flat, chart.panels, strict=False):
        if isinstance(panel, Grid):
            _draw_grid(plt, figure, axis, panel, chart.limits(panel))
        else:
            _draw_axes(axis, panel)
        if panel.title:
            axis.set_title(plain(panel.title))
    for axis in list(axes.flat)[len(chart.panels) :]:
        axis.set_visible(False)
    if entries:
        figure.legend(handles=entries, loc="outside lower center", ncols=across, handlelength=3.4, columnspacing=1.6)
    around = _write_around(figure, chart, width, alone) if chart.foot else None
    labelled = [(a, p) for a, p in zip(axes.flat, chart.panels, strict=False) if isinstance(p, Points) and _labels(p)]
    if labelled or around:
        figure.draw_without_rendering()  # the layout decides where things are
    if around:
        title, foot = around
        foot.set_y(title.get_window_extent().y0 / figure.bbox.height)
    for axis, panel in labelled:
        _label_points(figure, axis, panel)
    return figure


def _write_around(figure: Any, chart: Chart, width: float, alone: bool) -> tuple[Any, Any]:
    """The title, with empty lines below it that make room for the foot until the layout is known."""
    title, foot = plain(chart.title, int(9.5 * width)) if alone else "", plain(chart.foot, int(13.5 * width))
    lines = (title or " ") + "\n" * (foot.count("\n") + bool(title))
    above = figure.suptitle(lines, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return above, figure.text(0.01, 1.0, foot, ha="left", va="bottom", fontsize=8)


def _labels(panel: Points) -> int:
    """Number of points that have a label."""
    return sum(bool(name) for spots in panel.series for name in spots.names)


def _size(panel: Any) -> tuple[float, float]:
    """Width and height in inches."""
    if isinstance(panel, Grid):
        rows, columns = panel.walls.shape
        return (4.3, 0.5 + 3.6 * rows / columns) if columns < 3 * rows else (7.0, 1.0 + 6.0 * rows / columns)
    if panel.sideways:
        return 6.4, 1.0 + 0.15 * max(1, len(panel.categories)) * (1.2 + len(panel.series))
    return (5.4, 4.0) if isinstance(panel, Points) and _labels(panel) > 8 else (4.3, 3.1)


def _legend(plt: Any, chart: Chart) -> Iterator[Any]:
    """One handle for each entry."""
    for label, style, lined, depth in shapes.legend(chart):
        line = style.line if lined else ""
        yield plt.Line2D(
            [], [], color=style.colour, marker=style.marker, label=plain(label), linestyle=line, **_ring(min(depth, 1))
        )


def _draw_axes(axis: Any, panel: Lines | Points) -> None:
    labels = (panel.x_label, panel.y_label)
    across, up = reversed(labels) if panel.sideways else labels
    axis.set(xlabel=plain(across), ylabel=plain(up))
    axis.grid(color="#e6e8ec", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.margins(x=0.02 if isinstance(panel, Lines) else 0.06)
    for along_x, log, ends in ((True, panel.x_log, panel.x_range), (False, panel.y_log, panel.y_range)):
        name = "x" if along_x != panel.sideways else "y"
        if log:
            axis.set(**{f"{name}scale": "log"})
        elif name == "x" and isinstance(panel, Lines) and any(x >= MILLIONS for line in panel.series for x in line.x):
            axis.xaxis.set_major_formatter(lambda x, place: f"{x / 1e6:g} M" if x else "0")
        if ends:
            axis.set(**{f"{name}lim": ends})
            if not log:
                axis.locator_params(axis=name, nbins=6)
    if isinstance(panel, Lines):
        _draw_lines(axis, panel)
    else:
        _draw_points(axis, panel)
    for mark in panel.references:
        _draw_reference(axis, panel, mark)


def _draw_lines(axis: Any, panel: Lines) -> None:
    for position, line in enumerate(panel.series):
        style = look(line.style, position)
        every = max(1, len(line.x) // MARKERS_PER_CURVE)
        axis.plot(
            line.x, line.y, color=style.colour, linestyle=style.line, linewidth=1.5, marker=style.marker, markersize=4,
            markevery=(min(position, every - 1) if every > 1 else 0, every), label=plain(line.label),
        )  # fmt: skip
        if line.low:
            axis.fill_between(line.x, line.low, line.high, color=style.colour, alpha=0.16, linewidth=0)


def _draw_reference(axis: Any, panel: Axes, mark: Reference) -> None:
    """A line, and its label inside the panel, at the end where fewer curves come near."""
    horizontal = (mark.axis == "y") != panel.sideways
    colour = MUTED if mark.style is None else look(mark.style).colour
    draw_line = axis.axhline if horizontal else axis.axvline
    draw_line(mark.value, color=colour, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1.5)
    left = not horizontal or shapes.more_room_on_the_left(panel, mark.value)
    at = (0.005 if left else 0.995, mark.value) if horizontal else (mark.value, 0.99)
    axis.annotate(
        plain(mark.label), at, (0, 2) if horizontal else (3, 0), textcoords="offset points", fontsize=7.5,
        xycoords=axis.get_yaxis_transform() if horizontal else axis.get_xaxis_transform(),
        color=INK if mark.style is None else colour, ha="left" if left else "right", va="bottom" if horizontal else "top",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
    )  # fmt: skip


def _draw_points(axis: Any, panel: Points) -> None:
    """Everything but the labels, whose positions depend on all the rest."""
    depths = shapes.covered(panel)
    for number, spots in enumerate(panel.series):
        _draw_spots(axis, panel, number, look(spots.style, number), np.array(depths[number]))
    if panel.x_log and not panel.sideways:
        _tick_at_values(axis, sorted({x for spots in panel.series for x in spots.x}))
    if panel.categories:
        _name_categories(axis, panel)


def _name_categories(axis: Any, panel: Points) -> None:
    categories, side = panel.categories, "y" if panel.sideways else "x"
    ends = (-0.5, len(categories) - 0.5)
    axis.set(**{f"{side}lim": ends[::-1] if panel.sideways else ends, f"{side}ticks": range(len(categories))})
    axis.set(**{f"{side}ticklabels": [plain(name, 32 if panel.sideways else 16) for name in categories]})
    axis.grid(visible=False, axis=side)
    if not panel.sideways and len(categories) * max(min(len(name), 16) for name in categories) > 45:
        axis.tick_params(axis="x", rotation=30)
        for label in axis.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def _tick_at_values(axis: Any, values: list[float]) -> None:
    """Label a logarithmic axis at the few values that were tried, if there is room."""
    if 1 < len(values) <= 8 and values[0] > 0.0:
        at = np.log(values)
        if np.diff(at).min() / (at[-1] - at[0]) > 0.12:
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.set_xticks([], minor=True)


def _ring(depth: int) -> dict[str, Any]:
    """A marker that covers `depth` others is hollow and larger, so that all are seen."""
    return {"markersize": 5.0 + 4.5 * depth} | ({"markerfacecolor": "none", "markeredgewidth": 1.3} if depth else {})


def _draw_spots(axis: Any, panel: Points, number: int, style: Look, depths: Any) -> None:
    spots = panel.series[number]
    x, y = np.array(shapes.positions(panel, number)), np.array(spots.y)
    x_ends, y_ends = _distances(x, spots.x_low, spots.x_high), _distances(y, spots.low, spots.high)
    cuts = (("x", panel.x_range, _cut(x, x_ends, panel.x_range)), ("y", panel.y_range, _cut(y, y_ends, panel.y_range)))
    (a, a_ends), (b, b_ends) = ((y, y_ends), (x, x_ends)) if panel.sideways else ((x, x_ends), (y, y_ends))
    axis.errorbar(
        a, b, xerr=a_ends, yerr=b_ends, color=style.colour, marker="", linestyle=style.line if spots.joined else "",
        linewidth=1.3, elinewidth=1.1, capsize=2.5, label=plain(spots.label),
    )  # fmt: skip
    for depth in sorted(set(depths.tolist())):
        here = depths == depth
        axis.plot(a[here], b[here], color=style.colour, marker=style.marker, linestyle="", zorder=2.6, **_ring(depth))
    for name, ends, cut in cuts:
        along_x = (name == "x") != panel.sideways
        for side, arrow in enumerate("<>" if along_x else "v^"):
            for k in np.flatnonzero(cut[side]):
                at = (ends[side], b[k]) if along_x else (a[k], ends[side])  # type: ignore[index]
                axis.plot(*at, marker=arrow, markersize=6, color=style.colour, linestyle="", clip_on=False)


def _distances(middle: Any, low: Any, high: Any) -> Any:
    """Distances to the interval's ends, as matplotlib wants them; 0 where the estimate is outside its interval."""
    if low is None:
        return None
    return np.nan_to_num(np.maximum([middle - np.array(low), np.array(high) - middle], 0.0))


def _cut(middle: Any, distances: Any, frame: tuple[float, float] | None) -> Any:
    """Shorten bars that would leave the panel; returns which, [below or above, points]."""
    if distances is None or frame is None:
        return np.zeros((2, len(middle)), bool)
    room = np.maximum([middle - frame[0], frame[1] - middle], 0.0)
    cut = distances > room * (1.0 + 1e-9)
    np.minimum(distances, room, out=distances)
    return cut


def _label_points(figure: Any, axis: Any, panel: Points) -> None:
    """Write labels beside points, once the layout is known; a thin line leads to those that are farther away."""
    unit = 72.0 / figure.dpi
    found, points, lines = [], [np.empty((0, 2))], [np.empty((0, 2))]

    def on_page(x: Any, y: Any) -> Any:
        return axis.transData.transform(np.stack((y, x) if panel.sideways else (x, y), axis=-1)).reshape(-1, 2) * unit

    several = sum(any(spots.names) for spots in panel.series) > 1
    for number, spots in enumerate(panel.series):
        x, y = np.array(shapes.positions(panel, number)), np.array(spots.y)
        seen = on_page(x, y)
        points.append(seen)
        bars = [on_page([x[k]] * 2, [spots.low[k], spots.high[k]]) for k in range(len(x)) if spots.low]
        bars += [on_page([spots.x_low[k], spots.x_high[k]], [y[k]] * 2) for k in range(len(x)) if spots.x_low]
        lines += [shapes.along(bar) for bar in bars + [seen] * spots.joined if np.isfinite(bar).all()]
        style = {"fontsize": 7.5, "color": look(spots.style, number).colour if several else INK}
        named = zip(spots.names, seen, strict=False)
        found += [(name, at, style) for name, at in named if name and np.isfinite(at).all()]
    left, bottom, right, top = (end * unit for end in axis.get_window_extent().extents)
    sizes = [tuple(side * unit for side in _text_size(axis, name, style)) for name, _, style in found]
    panel_points, panel_lines = np.concatenate(points), np.concatenate(lines)
    boxes = shapes.place_labels(
        [at for _, at, _ in found], sizes, (left, bottom, right, top), panel_points, panel_lines
    )
    for (name, at, style), box in zip(found, boxes, strict=True):
        tip = np.clip(at, box[:2], box[2:]) - at
        spot = axis.transData.inverted().transform(at / unit)
        if np.hypot(*tip) > 7.0:
            thin = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
            axis.annotate("", spot, tip, textcoords="offset points", zorder=2.4, arrowprops=thin).set_in_layout(False)
        axis.annotate(
            plain(name), spot, np.array(box[:2]) - at, textcoords="offset points", va="bottom", zorder=2.5, **style,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.2},
        ).set_in_layout(False)  # fmt: skip


def _text_size(axis: Any, name: str, style: dict[str, Any]) -> tuple[float, float]:
    """Width and height of a label, in pixels."""
    trial = axis.annotate(plain(name), (0.5, 0.5), xycoords="axes fraction", **style)
    box = trial.get_window_extent()
    trial.remove()
    return box.width, box.height


FLOOR_OF_MAPS = "#f4f5f7"
STROKES: dict[str, Any] = {
    "hatching": {"linewidth": 0.7, "alpha": 0.75}, "border": {"linewidth": 2.0},
    "outline": {"linewidth": 1.2, "linestyle": (0, (3, 1.5))}, "arrows": {"linewidth": 1.1, "solid_capstyle": "round"},
}  # fmt: skip
"""Styles of the marks upon a map."""


def _draw_grid(plt: Any, figure: Any, axis: Any, grid: Grid, limits: tuple[float, float]) -> None:
    """Cells, walls, marked regions, the goal, the policy and trajectories."""
    rows, columns = grid.walls.shape
    low, high = limits
    edges = (np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5)
    axis.set_facecolor(FLOOR_OF_MAPS)
    if len(grid.finite()):
        top = high if high > low else low + 1.0
        values = np.ma.masked_invalid(grid.values)
        cells = {"cmap": grid.colours, "vmin": low, "vmax": top, "edgecolors": "face", "linewidth": 0.2}
        bar = figure.colorbar(axis.pcolormesh(*edges, values, **cells), ax=axis, shrink=0.8, aspect=22, pad=0.02)
        bar.set_label(plain(grid.value_label))
        bar.outline.set_visible(False)
    dark = plt.matplotlib.colors.ListedColormap([WALL])  # above the cells, whose edges would overlap the walls
    axis.pcolormesh(*edges, np.ma.masked_where(~grid.walls, np.ones(grid.walls.shape)), cmap=dark, edgecolors="face",
                    linewidth=0.3)  # fmt: skip
    for kind, ground, x, y in shapes.strokes(grid, low, high):
        axis.plot(x, y, color="white" if ground in ("deep", "dark") else INK, **STROKES[kind])
    for position, path in enumerate(grid.trajectories):
        _draw_path(axis, Trajectory(path.label, [(x, y) for y, x in path.points], path.style), position)
    for letter, cell in (("G", grid.goal), ("S", grid.start)):
        if cell is not None:
            axis.text(cell[1], cell[0], letter, ha="center", va="center", color="white", fontweight="bold", fontsize=8,
                      zorder=6, bbox={"boxstyle": "circle,pad=0.2", "facecolor": INK, "edgecolor": "white"})  # fmt: skip
    axis.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), xticks=[], yticks=[], aspect="equal")
    axis.spines[:].set_visible(False)


def _draw_path(axis: Any, path: Trajectory, position: int) -> None:
    """A line with a white border, a ring at its start, markers along it and a filled one at its end."""
    if not path.points:
        return
    style = look(path.style, position)
    x, y = zip(*path.points, strict=True)
    axis.plot(x, y, color="white", linewidth=3.0, alpha=0.85, solid_joinstyle="round")
    axis.plot(x, y, color=style.colour, linewidth=1.5, linestyle=style.line, solid_joinstyle="round",
              marker=style.marker, markersize=3.5, markevery=max(1, len(x) // 6))  # fmt: skip
    ring = {"marker": "o", "markersize": 7, "markeredgecolor": style.colour, "markeredgewidth": 1.5, "zorder": 5}
    axis.plot(x[:1], y[:1], markerfacecolor="white", linestyle="", **ring)
    axis.plot(x[-1:], y[-1:], marker=style.marker, markersize=7, color=style.colour, markeredgecolor="white", zorder=5)
