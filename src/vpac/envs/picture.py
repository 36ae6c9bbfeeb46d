"""Pictures of worlds: walls dark, frozen cells blue with snow crosses, treacherous cells orange with a ×, G the goal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vpac.envs.maps import WALLS, GridMap

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["Canvas", "as_pixels", "as_text"]

WALL, FLOOR, LINE, INK = "#3b4252", "#fbfbf8", "#d8dbe0", "#1c2230"
FROZEN, SNOW, DANGER, GOAL, AGENT, WAY = "#b9d7ee", "#6d9dc5", "#f3c08b", "#7cb56b", "#b3362d", "#b3362d"
SMOOTH = 2
"""Pictures are painted this many times larger and shrunk, which smooths their edges."""


def as_text(layout: GridMap, way: Sequence[int]) -> str:
    """The map as text: `@` the agent, `*` where it has been."""
    letters = np.where(layout.letters == " ", ".", layout.letters)
    for state in way[:-1]:
        letters[tuple(layout.position[state])] = "*"
    if way:
        letters[tuple(layout.position[way[-1]])] = "@"
    return "\n".join("".join(row) for row in letters) + "\n"


class Canvas:
    """A picture whose coordinates are cells: (0, 0) the top left corner, one unit a cell."""

    def __init__(self, rows: float, columns: float, most_pixels: int = 640) -> None:
        from PIL import Image, ImageDraw

        self.cell = int(np.clip(most_pixels // max(rows, columns), 4, 40)) * SMOOTH
        self.image = Image.new("RGB", (int(columns * self.cell), int(rows * self.cell)), FLOOR)
        self.draw: ImageDraw = ImageDraw.Draw(self.image)

    def box(
        self, row: float, column: float, height: float, width: float, fill: str, outline: str | None = None
    ) -> None:
        """A filled rectangle."""
        corners = [column, row, column + width, row + height]
        self.draw.rectangle([x * self.cell for x in corners], fill=fill, outline=outline, width=SMOOTH)

    def disc(self, row: float, column: float, radius: float, fill: str) -> None:
        """A filled circle."""
        corners = [column - radius, row - radius, column + radius, row + radius]
        self.draw.ellipse([x * self.cell for x in corners], fill=fill, outline=FLOOR, width=SMOOTH)

    def line(self, points: Sequence[tuple[float, float]], fill: str, width: float = 0.1) -> None:
        """A line through (row, column) points."""
        flat = [(column * self.cell, row * self.cell) for row, column in points]
        self.draw.line(flat, fill=fill, width=max(1, round(width * self.cell)), joint="curve")

    def cross(self, row: float, column: float, arm: float, fill: str, upright: bool) -> None:
        """A small + (`upright`) or ×."""
        for down, right in ((1.0, 0.0), (0.0, 1.0)) if upright else ((1.0, 1.0), (1.0, -1.0)):
            ends = [(row - arm * down, column - arm * right), (row + arm * down, column + arm * right)]
            self.line(ends, fill, width=0.06)

    def write(self, row: float, column: float, text: str, size: float, fill: str) -> None:
        """Text centred on a point; left out where cells are too small to read it."""
        from PIL import ImageFont

        if self.cell >= 12 * SMOOTH:
            font = ImageFont.load_default(size * self.cell)
            self.draw.text((column * self.cell, row * self.cell), text, fill=fill, font=font, anchor="mm")

    def pixels(self) -> NDArray[np.uint8]:
        """The finished picture, [height, width, 3]."""
        small = self.image.reduce(SMOOTH)
        return np.asarray(small, np.uint8).copy()


def as_pixels(layout: GridMap, way: Sequence[int]) -> NDArray[np.uint8]:
    """The map as a picture, with the agent at the end of its way."""
    canvas = Canvas(*layout.letters.shape)
    for (row, column), letter in np.ndenumerate(layout.letters):
        _paint_cell(canvas, row, column, str(letter))
    centres = [tuple(layout.position[state] + 0.5) for state in way]
    _paint_way(canvas, centres)
    return canvas.pixels()


def _paint_cell(canvas: Canvas, row: int, column: int, letter: str) -> None:
    fill = WALL if letter in WALLS else {"f": FROZEN, "x": DANGER, "g": GOAL}.get(letter, FLOOR)
    canvas.box(row, column, 1, 1, fill, outline=WALL if letter in WALLS else LINE)
    if letter == "f":
        for down, right in ((0.28, 0.3), (0.5, 0.7), (0.76, 0.36)):
            canvas.cross(row + down, column + right, 0.09, SNOW, upright=True)
    elif letter == "x":
        canvas.cross(row + 0.5, column + 0.5, 0.2, INK, upright=False)
    elif letter in "gs":
        canvas.write(row + 0.5, column + 0.5, letter.upper(), 0.55, INK)


def _paint_way(canvas: Canvas, centres: Sequence[Any]) -> None:
    if len(centres) > 1:
        canvas.line(centres, WAY)
        canvas.disc(*centres[0], 0.14, WAY)
    if centres:
        canvas.disc(*centres[-1], 0.3, AGENT)


def square_as_pixels(
    puddle: tuple[float, float], goal: tuple[float, float], goal_distance: float, way: Sequence[Any]
) -> NDArray[np.uint8]:
    """The continuous puddle world, the origin at the bottom left, with the agent at the end of its way."""
    cells = 12.0
    canvas = Canvas(int(cells), int(cells), most_pixels=480)

    def at(point: Any) -> tuple[float, float]:
        return cells * (1.0 - point[1]), cells * point[0]

    low, high = puddle
    canvas.box(*at((low, high)), cells * (high - low), cells * (high - low), FROZEN, outline=SNOW)
    for x in np.arange(low + 0.05, high, 0.08):
        for y in np.arange(low + 0.05, high, 0.08):
            canvas.cross(*at((x, y)), 0.12, SNOW, upright=True)
    ends = ((goal_distance, 0), (0, goal_distance), (-goal_distance, 0), (0, -goal_distance))
    corners = [at((goal[0] + right, goal[1] + up))[::-1] for right, up in ends]
    canvas.draw.polygon([(x * canvas.cell, y * canvas.cell) for x, y in corners], fill=GOAL, outline=INK)
    _paint_way(canvas, [at(point) for point in way])
    return canvas.pixels()
