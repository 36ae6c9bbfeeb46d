"""Where things are drawn, once for every renderer: outlines, hatching and arrows of maps, and words beside points.

A point is (x, y) with x the column and y the row; the cell in row r and column c reaches from c − ½ to c + ½.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from vpac.report.chart import Arrow, Grid, Lines, Points, Spots
from vpac.typing import BoolArray

__all__ = [
    "Stroke",
    "arrow_strokes",
    "beneath",
    "broken",
    "hatching",
    "more_room_on_the_left",
    "near_right_edge",
    "outline",
    "rectangle_hatching",
    "sorted_arrows",
]

Stroke = list[tuple[float, float]]
"""A line through points."""
BRIGHT = 0.6
"""Cells from here up on their colour scale are bright: what is drawn on them is dark."""
SAME = 0.012
"""Points that are nearer than this share of the panel cover one another."""


def outline(cells: BoolArray) -> list[Stroke]:
    """The edges between these cells and the others, straight ones joined."""
    rows, columns = cells.shape

    def inside(row: int, column: int) -> bool:
        return 0 <= row < rows and 0 <= column < columns and bool(cells[row, column])

    found = [
        [(start - 0.5, row - 0.5), (end - 0.5, row - 0.5)]
        for row in range(rows + 1)
        for start, end in _runs([inside(row, c) != inside(row - 1, c) for c in range(columns)])
    ]
    return found + [
        [(column - 0.5, start - 0.5), (column - 0.5, end - 0.5)]
        for column in range(columns + 1)
        for start, end in _runs([inside(r, column) != inside(r, column - 1) for r in range(rows)])
    ]


def _runs(flags: Sequence[bool]) -> Iterable[tuple[int, int]]:
    """Where flags are set, as half-open ranges."""
    start = None
    for place, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = place
        elif not flag and start is not None:
            yield start, place
            start = None


def hatching(cells: BoolArray) -> list[Stroke]:
    """Two short diagonals in the corners of each cell, which leave its middle to arrows."""
    strokes: list[Stroke] = []
    for row, column in zip(*cells.nonzero(), strict=True):
        x, y = float(column), float(row)
        strokes += [[(x - 0.44, y - 0.2), (x - 0.2, y - 0.44)], [(x + 0.2, y + 0.44), (x + 0.44, y + 0.2)]]
    return strokes


def rectangle_hatching(left: float, bottom: float, right: float, top: float, apart: float = 0.04) -> list[Stroke]:
    """Diagonals x + y = constant inside a rectangle."""
    strokes: list[Stroke] = []
    for k in range(1, math.ceil((right - left + top - bottom) / apart)):
        total = left + bottom + k * apart
        first, last = max(left, total - top), min(right, total - bottom)
        if last > first:
            strokes.append([(first, total - first), (last, total - last)])
    return strokes


def arrow_strokes(arrow: Arrow) -> list[Stroke]:
    """Shaft and head of an arrow; a likely move has a long one, and staying put is a small square."""
    length = math.hypot(arrow.down, arrow.right)
    x, y = float(arrow.column), float(arrow.row)
    if length == 0.0:
        return [
            [
                (x - 0.08, y - 0.08),
                (x + 0.08, y - 0.08),
                (x + 0.08, y + 0.08),
                (x - 0.08, y + 0.08),
                (x - 0.08, y - 0.08),
            ]
        ]
    right, down = arrow.right / length, arrow.down / length
    reach = 0.34 * math.sqrt(min(max(arrow.weight, 0.0), 1.0))
    head = 0.5 * reach
    tip, tail = (x + reach * right, y + reach * down), (x - reach * right, y - reach * down)
    sides = [
        (tip[0] - head * (right + turn * 0.7 * down), tip[1] - head * (down - turn * 0.7 * right)) for turn in (1, -1)
    ]
    return [[tail, tip], [sides[0], tip, sides[1]]]


def sorted_arrows(grid: Grid, low: float, high: float) -> dict[str, list[Arrow]]:
    """Arrows by the ground that they stand on: "bare" (no value), "bright" or "deep" colour."""
    found: dict[str, list[Arrow]] = {"bare": [], "bright": [], "deep": []}
    for arrow in grid.arrows:
        value = grid.values[arrow.row, arrow.column]
        if not math.isfinite(value):
            found["bare"].append(arrow)
        else:
            found["bright" if high > low and (value - low) / (high - low) >= BRIGHT else "deep"].append(arrow)
    return found


def broken(strokes: Iterable[Stroke]) -> tuple[list[float | None], list[float | None]]:
    """The strokes as one line with gaps: x and y, None between strokes."""
    x: list[float | None] = []
    y: list[float | None] = []
    for stroke in strokes:
        x += [*(round(point[0], 3) for point in stroke), None]
        y += [*(round(point[1], 3) for point in stroke), None]
    return x, y


def near_right_edge(panel: Points, spots: Spots) -> list[bool]:
    """Which points are so far to the right that a word beside them would leave the panel."""
    across: list[float] = [
        x for one in panel.series for x in (one.y if panel.sideways else one.x) if not isinstance(x, str)
    ]
    mine = spots.y if panel.sideways else spots.x
    if spots.categorical and not panel.sideways:
        return [panel.categories.index(x) == len(panel.categories) - 1 for x in mine]
    low, high = min(across), max(across)
    return [x > low + 0.8 * (high - low) for x in mine]


def beneath(panel: Points) -> list[list[int]]:
    """How many points of earlier series each point lies on; points of categories stand side by side."""
    if panel.categories:
        return [[0] * len(spots.y) for spots in panel.series]
    places = [list(zip(spots.x, spots.y, strict=True)) for spots in panel.series]
    sizes = [
        (max(known) - min(known) if known else 0.0) or 1.0
        for known in ([p[axis] for series in places for p in series if math.isfinite(p[axis])] for axis in (0, 1))
    ]
    return [
        [
            sum(
                all(abs(a - b) < SAME * size for a, b, size in zip(point, other, sizes, strict=True))
                for earlier in places[:number]
                for other in earlier
            )
            for point in series
        ]
        for number, series in enumerate(places)
    ]


def more_room_on_the_left(panel: Lines | Points, value: float) -> bool:
    """Whether the word beside a horizontal line had better stand at its left end, where no curve comes near."""
    return isinstance(panel, Lines) and _room(panel, value, 0) > _room(panel, value, 1)


def _room(panel: Lines, value: float, end: int) -> float:
    """How far the nearest curve is from a value in the first (0) or last (1) quarter of the panel."""
    known = [x for line in panel.series for x in line.x]
    if not known:
        return 0.0
    first, width = min(known), max(known) - min(known)
    near = [
        abs(y - value)
        for line in panel.series
        for x, y in zip(line.x, line.y, strict=True)
        if math.isfinite(y) and (x >= first + 0.75 * width if end else x <= first + 0.25 * width)
    ]
    return min(near, default=math.inf)
