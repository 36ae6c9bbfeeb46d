"""Common parts of both renderers: styles of series, shapes of maps, and the positions of labels.

Colour-blind readers can tell the colours apart, and a series never differs by colour alone.

A point is (x, y) with x the column and y the row; the cell in row r and column c reaches from c − ½ to c + ½.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from vpac.errors import one_of
from vpac.lab.report.chart import Arrow, Axes, Chart, Grid, Lines, Points, Spots
from vpac.typing import BoolArray, FloatArray

MUTED = "#7a8290"
LIGHT = ("#1f5f99", "#c1440e", "#1b7f5c", "#7b4fa3", "#8f6a00", "#b03a7a", "#4a5160", "#117a9a")
"""Colours of series on white."""
DARK = ("#6fb1f0", "#ff9466", "#4fc79a", "#c09bea", "#e3bd4b", "#f08cc0", "#b9c0cc", "#63cbe8")
"""The same series on a dark background."""
SERIES_STYLES = {
    "AC": 6, "VPAC": 0, "VAAC": 1, "VAAC_TD": 3, "corrected": 0, "published": 1, "oracle": 2, "exact": 2, "paper": 4,
}  # fmt: skip
"""Series that have the same style in every figure."""
MARKERS = (("o", "circle"), ("s", "square"), ("^", "triangle-up"), ("D", "diamond"),
           ("v", "triangle-down"), ("P", "cross"), ("X", "x"), ("*", "star"))  # fmt: skip
DASHES = (
    ("-", "solid"), ((0, (5, 2)), "10px,4px"), ((0, (1, 1.5)), "2px,3px"), ((0, (6, 2, 1, 2)), "12px,4px,2px,4px"),
    ((0, (9, 3)), "18px,6px"), ((0, (3, 1.5)), "6px,3px"), ((0, (4, 2, 1, 2, 1, 2)), "8px,4px,2px,4px,2px,4px"),
    ((0, (2, 1)), "4px,2px"),
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """A series' index in the palettes, its `marker` and `line` for matplotlib, its `symbol` and `dash` for Plotly."""

    number: int
    marker: str
    symbol: str
    line: str | tuple[float, tuple[float, ...]]
    dash: str

    @property
    def colour(self) -> str:
        """Its colour on white."""
        return LIGHT[self.number]


def look(style: int | str | None, position: int = 0) -> Look:
    """The style with a number or a name; without either, that of the series' position in its panel."""
    if isinstance(style, str):
        style = SERIES_STYLES[one_of(style, SERIES_STYLES, "style of a series")]
    number = (position if style is None else style) % len(LIGHT)
    (marker, symbol), (line, dash) = MARKERS[number], DASHES[number]
    return Look(number, marker, symbol, line, dash)


def colour_scale(name: str) -> list[str]:
    """Eleven evenly spaced colours of one of matplotlib's colour maps."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return [to_hex(mpl.colormaps[name](k / 10)) for k in range(11)]


Stroke = list[tuple[float, float]]
"""A line through points."""
BRIGHT = 0.6
"""Cells from here up on their colour scale are bright: what is drawn on them is dark."""
SAME_SPOT = 0.012
"""Points that are closer than this share of the panel cover one another."""


def outline(cells: BoolArray) -> list[Stroke]:
    """The edges between these cells and the others; straight ones are joined."""
    framed = np.pad(cells, 1).astype(int)
    across, down = np.diff(framed, axis=0)[:, 1:-1] != 0, np.diff(framed, axis=1)[1:-1] != 0
    found = [
        [(start - 0.5, row - 0.5), (end - 0.5, row - 0.5)]
        for row, flags in enumerate(across)
        for start, end in _runs(flags)
    ]
    return found + [
        [(column - 0.5, start - 0.5), (column - 0.5, end - 0.5)]
        for column, flags in enumerate(down.T)
        for start, end in _runs(flags)
    ]


def _runs(flags: BoolArray) -> Iterable[tuple[int, int]]:
    """Half-open ranges where flags are set."""
    changes = np.flatnonzero(np.diff(np.pad(flags, 1).astype(int)))
    return zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True)


def hatching(cells: BoolArray) -> list[Stroke]:
    """Two short diagonals in the corners of each cell, which leave its centre to arrows."""
    strokes: list[Stroke] = []
    for y, x in np.argwhere(cells).astype(float).tolist():
        strokes += [[(x - 0.44, y - 0.2), (x - 0.2, y - 0.44)], [(x + 0.2, y + 0.44), (x + 0.44, y + 0.2)]]
    return strokes


def arrow_strokes(arrow: Arrow) -> list[Stroke]:
    """Shaft and head of an arrow, longer for a likelier move; staying in place is a small square."""
    length = math.hypot(arrow.down, arrow.right)
    x, y = float(arrow.column), float(arrow.row)
    if length == 0.0:
        corners = ((-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1))
        return [[(x + 0.08 * a, y + 0.08 * b) for a, b in corners]]
    right, down = arrow.right / length, arrow.down / length
    reach = 0.34 * math.sqrt(min(max(arrow.weight, 0.0), 1.0))
    head = 0.5 * reach
    tip, tail = (x + reach * right, y + reach * down), (x - reach * right, y - reach * down)
    sides = [
        (tip[0] - head * (right + turn * 0.7 * down), tip[1] - head * (down - turn * 0.7 * right)) for turn in (1, -1)
    ]
    return [[tail, tip], [sides[0], tip, sides[1]]]


def backgrounds(grid: Grid, low: float, high: float) -> dict[str, BoolArray]:
    """The cells by what is drawn beneath: "bare" (no value), a "bright" or a "deep" colour."""
    bare = ~np.isfinite(grid.values)
    bright = ~bare & (high > low) & (np.nan_to_num(grid.values) >= low + BRIGHT * (high - low))
    return {"bare": bare, "bright": bright, "deep": ~bare & ~bright}


def strokes(grid: Grid, low: float, high: float) -> Iterable[tuple[str, str, FloatArray, FloatArray]]:
    """Marks upon the cells: kind, background, and x and y of a line with gaps. A border is a lighter line below an outline."""
    grounds = backgrounds(grid, low, high)
    found: list[tuple[str, str, list[Stroke]]] = []
    for region in grid.regions:
        found += [("hatching", ground, hatching(region.cells & cells)) for ground, cells in grounds.items()]
        found += [("border", "dark", outline(region.cells)), ("outline", "bright", outline(region.cells))]
    for ground, cells in grounds.items():
        here = [arrow for arrow in grid.arrows if cells[arrow.row, arrow.column]]
        found.append(("arrows", ground, [stroke for arrow in here for stroke in arrow_strokes(arrow)]))
    for kind, ground, lines in found:
        points = [(round(x, 3), round(y, 3)) for stroke in lines for x, y in (*stroke, (math.nan, math.nan))]
        x, y = np.array(points, np.float64).reshape(-1, 2).T
        yield kind, ground, x, y


def legend(chart: Chart) -> list[tuple[str, Look, bool, int]]:
    """Each named series once: label, style, whether a line is drawn, and how many others all its points cover; none of a
    single curve."""
    found: dict[str, tuple[str, Look, bool, int]] = {}
    for panel in chart.panels:
        series: Sequence[Any] = panel.series if isinstance(panel, Axes) else panel.trajectories
        for position, one in enumerate(series):
            lined = not isinstance(one, Spots) or one.joined
            depth = min(covered(panel)[position], default=0) if isinstance(panel, Points) else 0
            if one.label:
                found.setdefault(one.label, (one.label, look(one.style, position), lined, depth))
    several = len(found) > 1 or any(isinstance(panel, Grid) for panel in chart.panels)
    return list(found.values()) if several else []


def styles(labels: Iterable[str]) -> dict[str, int | str]:
    """A style for each label: algorithms have the same one in every figure, the others take free ones in order."""
    names = list(dict.fromkeys(labels))
    taken = {SERIES_STYLES[name] for name in names if name in SERIES_STYLES}
    free = iter([place for place in range(len(LIGHT)) if place not in taken] + list(range(len(LIGHT), 99)))
    return {name: name if name in SERIES_STYLES else next(free) for name in names}


def positions(panel: Points, number: int) -> list[float]:
    """The x of a series' points; several series at one category are shifted to stand side by side."""
    spots, categories, count = panel.series[number], panel.categories, len(panel.series)
    if not categories:
        return list(spots.x)
    shift = (number - (count - 1) / 2) * min(0.24, 0.7 / count)
    return [categories.index(name) + shift for name in spots.x]


def covered(panel: Points) -> list[list[int]]:
    """Number of points of earlier series that each point covers; points at categories stand side by side."""
    if panel.categories:
        return [[0] * len(spots.y) for spots in panel.series]
    points = [np.array([spots.x, spots.y]).T.reshape(-1, 2) for spots in panel.series]
    every = np.concatenate([np.empty((0, 2)), *points])
    known = [column[np.isfinite(column)] for column in every.T]
    size = np.array([(float(np.ptp(column)) if len(column) else 0.0) or 1.0 for column in known])
    earlier = np.empty((0, 2))
    found = []
    for series in points:
        found.append((np.abs(series[:, None] - earlier) < SAME_SPOT * size).all(axis=2).sum(axis=1).tolist())
        earlier = np.concatenate([earlier, series])
    return found


def more_room_on_the_left(panel: Axes, value: float) -> bool:
    """Whether curves leave more room at the left end of a horizontal line than at its right end."""
    if not isinstance(panel, Lines) or not any(line.x for line in panel.series):
        return False
    x, y = (np.concatenate([getattr(line, axis) for line in panel.series]) for axis in "xy")
    gap, place = np.abs(y - value)[np.isfinite(y)], ((x - x.min()) / (np.ptp(x) or 1.0))[np.isfinite(y)]
    left, right = (gap[near].min(initial=math.inf) for near in (place <= 0.25, place >= 0.75))
    return bool(left > right)


Box = tuple[float, float, float, float]
"""Sides of a box: left, bottom, right, top."""
DISTANCES = (4.5, 8.0, 13.0, 19.0, 26.0, 34.0, 43.0, 53.0, 64.0, 76.0, 90.0)
"""Distances from a point to its label, in points of the page."""
ANGLES = np.radians([45, 135, 225, 315, 0, 90, 180, 270, 67, 113, 157, 203, 247, 293, 337, 23])
"""Directions in which a label may stand, seen from its point; the first of equal cost is taken."""
OUTSIDE, ON_LABEL, ON_POINT, ON_LINE = 1e6, 1e4, 300.0, 4.0
"""Costs of a position: outside the panel; per label, per point and per piece of a line that it covers."""


def place_labels(
    at: Sequence[Sequence[float]], sizes: Sequence[tuple[float, float]], frame: Box, points: FloatArray,
    lines: FloatArray,
) -> list[Box]:  # fmt: skip
    """Choose a box for each label, one after another, each at the position of least cost.

    `at` are the points that the labels belong to, `sizes` their widths and heights; `points` are all points of the panel,
    `lines` points along its lines (`along`), [n, 2].
    """
    far = np.repeat(DISTANCES, len(ANGLES))
    turn = np.tile(np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1), (len(DISTANCES), 1)).round(9)
    found = np.empty((0, 4))
    for anchor, size in zip(at, sizes, strict=True):
        half = np.array(size) / 2.0
        middle = np.array(anchor) + turn * far[:, None] + np.sign(turn) * half
        low, high = middle - half, middle + half
        outside = (low < frame[:2]).any(axis=1) | (high > frame[2:]).any(axis=1)
        labels = (low[:, None] < found[:, 2:] + 1.0).all(axis=2) & (high[:, None] > found[:, :2] - 1.0).all(axis=2)
        cost = far + OUTSIDE * outside + ON_LABEL * labels.sum(axis=1)
        cost += ON_POINT * _inside(low - 3.0, high + 3.0, points) + ON_LINE * _inside(low, high, lines)
        best = int(np.argmin(cost))
        found = np.concatenate([found, [[*low[best], *high[best]]]])
    return [(left, bottom, right, top) for left, bottom, right, top in found.tolist()]


def _inside(low: FloatArray, high: FloatArray, points: FloatArray) -> FloatArray:
    """Number of points in each box."""
    return np.asarray(((points > low[:, None]) & (points < high[:, None])).all(axis=2).sum(axis=1), float)


def along(ends: Sequence[Sequence[float]], apart: float = 3.0) -> FloatArray:
    """Points along a line through `ends`, closer together than `apart`."""
    pieces = [
        np.linspace(a, b, max(2, math.ceil(math.dist(a, b) / apart) + 1))
        for a, b in pairwise(np.asarray(ends, np.float64))
    ]
    return np.concatenate(pieces) if pieces else np.empty((0, 2))
