"""Where things are drawn, once for every renderer: outlines, hatching and arrows of maps, and words beside points.

A point is (x, y) with x the column and y the row; the cell in row r and column c reaches from c − ½ to c + ½.

One word after another takes the best place that is left: there is nothing random in it, so the same words find the
same places.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from vpac.lab.report.chart import Arrow, Grid, Lines, Points, Spots
from vpac.typing import BoolArray, FloatArray

__all__ = [
    "Box",
    "Stroke",
    "along",
    "arrow_strokes",
    "beneath",
    "broken",
    "hatching",
    "more_room_on_the_left",
    "near_right_edge",
    "outline",
    "overlap",
    "place_labels",
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


Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""
DISTANCES = (4.5, 8.0, 13.0, 19.0, 26.0, 34.0, 43.0, 53.0, 64.0, 76.0, 90.0)
"""From a point to its word."""
DIRECTIONS = tuple(
    math.radians(45.0 + turn) for turn in (0, 90, 180, 270, 315, 45, 135, 225, 22, 68, 112, 158, 202, 248, 292, 338)
)
"""Where a word may stand, seen from its point; the first that is as good as any is taken."""
CLEAR = 3.0
"""What words keep from points."""
OUTSIDE, ON_WORD, ON_POINT, THROUGH, ON_LINE = 1e6, 1e4, 300.0, 100.0, 4.0
"""What is bad about a place: to leave the panel, to cover a word, a point, a line (each of its pieces), or that the thin line
from the point to its word would run through another word or point."""


def place_labels(
    at: Sequence[Sequence[float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    points: FloatArray,
    lines: FloatArray,
) -> list[Box]:
    """Where each word goes.

    Args:
        at: the points that the words belong to.
        sizes: width and height of each word.
        frame: the panel.
        points: every point of the panel, [points, 2].
        lines: places along its lines, [places, 2], as `along` gives them.
    """
    found: list[Box] = []
    for anchor, size in zip(at, sizes, strict=True):
        ways = [(far, angle) for far in DISTANCES for angle in DIRECTIONS]
        choices = [_box(anchor, size, angle, far) for far, angle in ways]
        costs = [
            far + _cost(box, anchor, frame, points, lines, found) for (far, _), box in zip(ways, choices, strict=True)
        ]
        found.append(choices[int(np.argmin(costs))])
    return found


def along(ends: Sequence[Sequence[float]], apart: float = 3.0) -> FloatArray:
    """Places along a line through points, closer together than `apart`."""
    pieces = [
        np.linspace(a, b, max(2, math.ceil(math.dist(a, b) / apart) + 1))
        for a, b in pairwise(np.asarray(ends, np.float64))
    ]
    return np.concatenate(pieces) if pieces else np.empty((0, 2))


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share a place."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def nearest(box: Box, point: Sequence[float]) -> tuple[float, float]:
    """The place of a box that is nearest to a point."""
    return min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])


def _box(anchor: Sequence[float], size: tuple[float, float], angle: float, far: float) -> Box:
    right, up = math.cos(angle), math.sin(angle)
    x, y = anchor[0] + right * far + _sign(right) * size[0] / 2, anchor[1] + up * far + _sign(up) * size[1] / 2
    return x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else math.copysign(1.0, value)


def _inside(box: Box, places: FloatArray, around: float = 0.0) -> int:
    """How many places are in the box or nearer than `around`."""
    x, y = places[:, 0], places[:, 1]
    return int(((x > box[0] - around) & (x < box[2] + around) & (y > box[1] - around) & (y < box[3] + around)).sum())


def _cost(
    box: Box, anchor: Sequence[float], frame: Box, points: FloatArray, lines: FloatArray, words: Sequence[Box]
) -> float:
    inside = frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]
    tip = nearest(box, anchor)
    way = along([anchor, tip])
    others = points[np.abs(points - np.asarray(anchor)).max(axis=1) > 1.0]
    near_way = np.abs(others[:, None] - way[None]).max(axis=2).min(axis=1, initial=math.inf) < CLEAR
    crossed = sum(_inside(word, way) > 0 for word in words) + int(near_way.sum())
    near = [(b[0] - 1.0, b[1] - 1.0, b[2] + 1.0, b[3] + 1.0) for b in words]
    return (
        OUTSIDE * (not inside) + ON_WORD * sum(overlap(box, word) for word in near) + THROUGH * crossed
        + ON_POINT * _inside(box, points, CLEAR) + ON_LINE * _inside(box, lines)
    )  # fmt: skip
