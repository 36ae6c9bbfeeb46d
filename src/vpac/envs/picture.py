"""Pictures of worlds: dark walls, blue frozen cells with crosses, orange treacherous cells with a ×, a green G."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vpac.envs.maps import WALLS, GridMap

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

WALL, FLOOR, LINE, INK = "#3b4252", "#fbfbf8", "#dfe2e6", "#1c2230"
FROZEN, SNOW, DANGER, GOAL, AGENT_COLOUR = "#b9d7ee", "#6d9dc5", "#f3c08b", "#7cb56b", "#b3362d"
PATH_START, PATH_END = (236, 184, 168), (179, 54, 45)
"""The path is painted in colours from the first, at its start, to the second, at the agent."""
SMOOTH = 2
"""Pictures are painted this many times larger and shrunk, for smooth edges."""
LEGIBLE = 12
"""Smaller cells have no marks and no letters."""

Point = tuple[float, float]
"""A row and a column."""


def as_text(layout: GridMap, way: Sequence[int]) -> str:
    """The map as text: `@` the agent, `*` the path."""
    letters = np.where(layout.letters == " ", ".", layout.letters)
    for state in way[:-1]:
        letters[tuple(layout.position[state])] = "*"
    if way:
        letters[tuple(layout.position[way[-1]])] = "@"
    return "\n".join("".join(row) for row in letters) + "\n"


class Canvas:
    """A picture whose coordinates are cells: (0, 0) is the top left corner, one unit per cell."""

    def __init__(self, rows: float, columns: float, most_pixels: int = 640) -> None:
        from PIL import Image
        from PIL.ImageDraw import Draw

        self.cell = int(np.clip(most_pixels // max(rows, columns), 4, 40)) * SMOOTH
        self.image = Image.new("RGB", (int(columns * self.cell), int(rows * self.cell)), FLOOR)
        self.draw: ImageDraw = Draw(self.image)

    @property
    def legible(self) -> bool:
        """Whether cells are large enough for marks and letters."""
        return self.cell >= LEGIBLE * SMOOTH

    def box(self, row: float, column: float, height: float, width: float, fill: str, outline: str) -> None:
        """A filled rectangle."""
        corners = [column, row, column + width, row + height]
        self.draw.rectangle([x * self.cell for x in corners], fill=fill, outline=outline, width=SMOOTH)

    def polygon(self, corners: Sequence[Point], fill: str, outline: str) -> None:
        """A filled polygon with (row, column) corners."""
        self.draw.polygon(self._flat(corners), fill=fill, outline=outline, width=SMOOTH)

    def disc(self, at: Point, radius: float, fill: str, outline: str, width: float = 0.05) -> None:
        """A filled circle, at least large enough to be visible."""
        reach, edge = max(radius * self.cell, 4.0 * SMOOTH), max(SMOOTH, round(width * self.cell))
        ((x, y),) = self._flat([at])
        self.draw.ellipse([x - reach, y - reach, x + reach, y + reach], fill=fill, outline=outline, width=edge)

    def line(self, points: Sequence[Point], fill: str | tuple[int, ...], width: float = 0.1) -> None:
        """A line with round ends through (row, column) points."""
        flat, thickness = self._flat(points), max(SMOOTH, round(width * self.cell))
        self.draw.line(flat, fill=fill, width=thickness)
        for x, y in flat:
            reach = max(thickness / 2 - 1, 0)  # a disc this wide covers as many pixels as the line
            self.draw.ellipse([x - reach, y - reach, x + reach, y + reach], fill=fill)

    def cross(self, at: Point, arm: float, fill: str, upright: bool) -> None:
        """A small + (`upright`) or ×."""
        (row, column) = at
        for down, right in ((1.0, 0.0), (0.0, 1.0)) if upright else ((1.0, 1.0), (1.0, -1.0)):
            ends = [(row - arm * down, column - arm * right), (row + arm * down, column + arm * right)]
            self.line(ends, fill, width=0.06)

    def write(self, at: Point, text: str, size: float, fill: str) -> None:
        """Text centred on a point; left out if cells are too small to read it."""
        from PIL import ImageFont

        if self.legible:
            font = ImageFont.load_default(size * self.cell)
            self.draw.text(self._flat([at])[0], text, fill=fill, font=font, anchor="mm")

    def pixels(self) -> NDArray[np.uint8]:
        """The finished picture, [height, width, 3]."""
        small = self.image.reduce(SMOOTH)
        return np.asarray(small, np.uint8).copy()

    def _flat(self, points: Sequence[Point]) -> list[tuple[float, float]]:
        return [(column * self.cell, row * self.cell) for row, column in points]


def as_pixels(layout: GridMap, way: Sequence[int]) -> NDArray[np.uint8]:
    """The map as a picture, with the agent at the end of its path."""
    canvas = Canvas(*layout.letters.shape)
    for (row, column), letter in np.ndenumerate(layout.letters):
        _paint_cell(canvas, row, column, str(letter))
    centres = [(float(row) + 0.5, float(column) + 0.5) for row, column in layout.position[list(way)]]
    _paint_way(canvas, centres)
    for row, column in np.argwhere(np.isin(layout.letters, ["g", "s"])):  # above the path, which must not hide them
        canvas.write((row + 0.5, column + 0.5), str(layout.letters[row, column]).upper(), 0.55, INK)
    _paint_agent(canvas, centres)
    return canvas.pixels()


def _paint_cell(canvas: Canvas, row: int, column: int, letter: str) -> None:
    wall = letter in WALLS
    fill = WALL if wall else {"f": FROZEN, "x": DANGER, "g": GOAL}.get(letter, FLOOR)
    canvas.box(row, column, 1, 1, fill, outline=WALL if wall else LINE if canvas.legible else fill)
    if letter == "f" and canvas.legible:
        for down, right in ((0.28, 0.3), (0.5, 0.7), (0.76, 0.36)):
            canvas.cross((row + down, column + right), 0.09, SNOW, upright=True)
    elif letter == "x" and canvas.legible:
        canvas.cross((row + 0.5, column + 0.5), 0.2, INK, upright=False)


def _paint_way(canvas: Canvas, centres: Sequence[Point]) -> None:
    """The path, which darkens towards its end, and a ring at its start."""
    if len(centres) < 2:
        return
    for number in range(1, len(centres)):
        share = number / (len(centres) - 1)
        shade = tuple(round(old + share * (new - old)) for old, new in zip(PATH_START, PATH_END, strict=True))
        canvas.line(centres[number - 1 : number + 1], shade, width=0.12)
    canvas.disc(centres[0], 0.34, FLOOR, outline=AGENT_COLOUR, width=0.08)


def _paint_agent(canvas: Canvas, centres: Sequence[Point]) -> None:
    if centres:
        canvas.disc(centres[-1], 0.3, AGENT_COLOUR, outline=FLOOR)


def square_as_pixels(puddle: Point, goal: Point, goal_distance: float, way: Sequence[Any]) -> NDArray[np.uint8]:
    """The continuous puddle world, the origin at the bottom left, with the agent at the end of its path."""
    side, margin = 12.0, 0.5
    canvas = Canvas(side + 2 * margin, side + 2 * margin, most_pixels=520)

    def at(x: float, y: float) -> Point:
        return margin + side * (1.0 - y), margin + side * x

    canvas.box(margin, margin, side, side, FLOOR, outline=FLOOR)
    low, high = puddle
    canvas.box(*at(low, high), side * (high - low), side * (high - low), FROZEN, outline=SNOW)
    marks = np.linspace(low, high, 2 * max(1, round((high - low) * side)) + 1)[1::2]  # one a cell, in its middle
    for x in marks:
        for y in marks:
            canvas.cross(at(x, y), 0.1, SNOW, upright=True)
    ends = ((goal_distance, 0.0), (0.0, goal_distance), (-goal_distance, 0.0), (0.0, -goal_distance))
    canvas.polygon([at(goal[0] + right, goal[1] + up) for right, up in ends], GOAL, outline=GOAL)
    for row, column, height, width in (
        (0.0, 0.0, margin, side + 2 * margin),
        (margin + side, 0.0, margin, side + 2 * margin),
        (0.0, 0.0, side + 2 * margin, margin),
        (0.0, margin + side, side + 2 * margin, margin),
    ):
        canvas.box(row, column, height, width, WALL, outline=WALL)  # after the goal, whose outer half it covers
    inwards = goal_distance / 3.0 * np.sign(0.5 - np.array(goal))
    canvas.write(at(goal[0] + inwards[0], goal[1] + inwards[1]), "G", 0.55, INK)
    points = [at(x, y) for x, y in way]
    _paint_way(canvas, points)
    _paint_agent(canvas, points)
    return canvas.pixels()
