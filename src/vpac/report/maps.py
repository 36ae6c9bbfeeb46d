"""Places as panels of a chart: grid worlds cell by cell, and the continuous unit square."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.report.tables import Cell
from vpac.typing import FloatArray

__all__ = ["Arrow", "Grid", "Plane", "Rectangle", "Region", "Trajectory"]

SIGNS = {(-1, 0): "↑", (1, 0): "↓", (0, -1): "←", (0, 1): "→",
         (-1, 1): "↗", (1, 1): "↘", (1, -1): "↙", (-1, -1): "↖", (0, 0): "·"}  # fmt: skip


@dataclass(frozen=True)
class Arrow:
    """A move that the policy makes in a cell."""

    row: int
    """The cell's row, 0 at the top."""
    column: int
    """The cell's column, 0 at the left."""
    down: float
    """Rows that the move goes down; −1 is up."""
    right: float
    """Columns that it goes to the right; −1 is left."""
    weight: float = 1.0
    """Its probability: the arrow's length."""


@dataclass(frozen=True)
class Region:
    """Cells that are special, drawn with an outline and hatching."""

    label: str
    """What they are, such as "frozen"."""
    cells: Any
    """bool[rows, columns], or (row, column) pairs."""


@dataclass(frozen=True)
class Trajectory:
    """A way that was walked."""

    label: str
    """Whose way it is."""
    points: Any
    """(row, column) pairs on a grid, (x, y) pairs on the plane; fractions are fine."""
    style: int | str | None = None
    """Its look, as for a line."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple((float(a), float(b)) for a, b in self.points))


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid world seen from above, row 0 at the top."""

    walls: Any
    """bool[rows, columns]."""
    values: Any = None
    """A number a cell, [rows, columns]; NaN where there is none."""
    value_label: str = ""
    """What the colour means."""
    title: str = ""
    """What tells this panel from its neighbours."""
    regions: Sequence[Region] = ()
    """Cells to mark."""
    goal: tuple[int, int] | None = None
    """The row and column of the goal."""
    start: tuple[int, int] | None = None
    """The row and column of the start, if there is one."""
    arrows: Sequence[Arrow] = ()
    """The policy."""
    trajectories: Sequence[Trajectory] = ()
    """Ways to draw over the map."""
    low: float | None = None
    """The value that the colour scale begins with; None takes the smallest."""
    high: float | None = None
    """The value that the colour scale ends with; None takes the largest."""
    colours: str = "viridis"
    """The colour scale: viridis, magma or cividis."""

    def __post_init__(self) -> None:
        walls = np.array(self.walls, bool)
        values = np.full(walls.shape, np.nan) if self.values is None else np.array(self.values, float)
        if walls.ndim != 2 or values.shape != walls.shape:
            raise ValueError(f"map {self.title!r}: values are {values.shape}, walls {walls.shape}")
        values[walls] = np.nan
        object.__setattr__(self, "walls", walls)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "regions", tuple(Region(r.label, self._mask(r)) for r in self.regions))
        for name in ("arrows", "trajectories"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.colours not in ("viridis", "magma", "cividis"):
            raise ValueError(f"unknown colour scale {self.colours!r}: expected viridis, magma or cividis")

    def _mask(self, region: Region) -> Any:
        if np.shape(region.cells) == self.walls.shape and np.asarray(region.cells).dtype == bool:
            return np.array(region.cells)
        mask = np.zeros(self.walls.shape, bool)
        for row, column in region.cells:
            mask[row, column] = True
        return mask

    def finite(self) -> FloatArray:
        """The values that are known, in one row."""
        return np.asarray(self.values[np.isfinite(self.values)], np.float64)

    def records(self) -> Iterator[dict[str, Cell]]:
        """The data, a cell at a time and then a step of each trajectory at a time."""
        moves: dict[tuple[int, int], list[Arrow]] = {}
        for arrow in self.arrows:
            moves.setdefault((arrow.row, arrow.column), []).append(arrow)
        for row, column in np.argwhere(~self.walls).tolist():
            marks = [region.label for region in self.regions if region.cells[row, column]]
            marks += ["goal"] * ((row, column) == self.goal) + ["start"] * ((row, column) == self.start)
            value = float(self.values[row, column])
            yield {"row": row, "column": column, "cell": ", ".join(marks) or "free",
                   self.value_label or "value": None if np.isnan(value) else value,
                   "policy": " ".join(_move(arrow) for arrow in moves.get((row, column), []))}  # fmt: skip
        for way in self.trajectories:
            for step, (down, right) in enumerate(way.points):
                yield {"row": down, "column": right, "trajectory": way.label, "step": step}


def _move(arrow: Arrow) -> str:
    sign = SIGNS[int(np.sign(arrow.down)), int(np.sign(arrow.right))]
    return sign if arrow.weight >= 1.0 else f"{sign} {arrow.weight:.2g}"


@dataclass(frozen=True)
class Rectangle:
    """A special part of the plane, drawn with an outline and hatching."""

    label: str
    """What it is, such as "puddle"."""
    left: float
    """Its smallest x."""
    bottom: float
    """Its smallest y."""
    right: float
    """Its largest x."""
    top: float
    """Its largest y."""


@dataclass(frozen=True)
class Plane:
    """The unit square, the origin at the bottom left, with the ways that were walked in it."""

    trajectories: Sequence[Trajectory]
    """The ways, as (x, y) points."""
    title: str = ""
    """What tells this panel from its neighbours."""
    regions: Sequence[Rectangle] = ()
    """Parts to mark."""
    goal: tuple[float, float] | None = None
    """Where the goal is."""
    goal_distance: float = 0.1
    """Points within this distance of the goal, |Δx| + |Δy|, are the goal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "trajectories", tuple(self.trajectories))
        object.__setattr__(self, "regions", tuple(self.regions))

    def records(self) -> Iterator[dict[str, Cell]]:
        """The data, a step at a time."""
        for way in self.trajectories:
            for step, (x, y) in enumerate(way.points):
                yield {"trajectory": way.label, "step": step, "x": x, "y": y}
