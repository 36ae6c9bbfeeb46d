"""Words beside points that keep out of each other's way, and out of the points' and the lines' as far as there is room.

One word after another takes the best place that is left: there is nothing random in it, so the same words find the
same places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from vpac.typing import FloatArray

__all__ = ["Box", "along", "overlap", "place"]

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


def place(
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
