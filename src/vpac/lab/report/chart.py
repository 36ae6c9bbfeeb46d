"""A figure said in data, without saying who draws it: `draw.py` does so on paper, `interactive.py` on the page.

Arrays, lists and tuples are taken as they come and kept as tuples of floats; what does not fit together is an error here,
not a strange picture later.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from vpac.typing import FloatArray

__all__ = [
    "Arrow",
    "Cell",
    "Chart",
    "Grid",
    "Line",
    "Lines",
    "Panel",
    "Plane",
    "Points",
    "Rectangle",
    "Reference",
    "Region",
    "Spots",
    "Table",
    "Trajectory",
    "shown",
]

Cell = str | float | int | bool | None
"""What may stand in a table; None leaves the cell empty."""


@dataclass(frozen=True)
class Table:
    """Columns with names and rows of cells."""

    columns: tuple[str, ...]
    """The names of the columns."""
    rows: tuple[tuple[Cell, ...], ...]
    """The cells, row by row."""
    title: str = ""
    """What the table shows."""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} of table {self.title!r} has {len(row)} cells, expected {len(self.columns)}"
                )

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[Cell]], title: str = "") -> Table:
        """A table from any sequences."""
        return cls(tuple(columns), tuple(tuple(row) for row in rows), title)

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Cell]], title: str = "") -> Table:
        """A table whose columns are the records' keys in order of appearance; columns without a single value go."""
        records = list(records)
        known = {key: None for record in records for key, value in record.items() if value not in (None, "")}
        columns = [key for key in dict.fromkeys(key for record in records for key in record) if key in known]
        return cls.of(columns, ([record.get(key) for key in columns] for record in records), title)

    def thinned(self, most: int) -> Table:
        """At most about `most` rows, evenly chosen, the first and the last among them."""
        if len(self.rows) <= most:
            return self
        chosen = sorted({round(k * (len(self.rows) - 1) / (most - 1)) for k in range(most)})
        return Table(self.columns, tuple(self.rows[k] for k in chosen), self.title)

    def as_csv(self) -> str:
        """Comma-separated values; numbers with every digit that they have, unknown ones empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if _unknown(cell) else cell for cell in row] for row in self.rows])
        return text.getvalue()


def shown(cell: Cell) -> str:
    """A cell for readers: six digits are enough for a number, and what is not known is a dash."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        if math.isinf(cell):
            return "∞" if cell > 0 else "−∞"
        return f"{cell:.6g}".replace("-", "−")
    return str(cell)


def _unknown(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


@dataclass(frozen=True)
class Reference:
    """A dashed line across a panel, such as the number that the paper reports."""

    value: float
    """Where it is."""
    label: str
    """What it means."""
    axis: Literal["x", "y"] = "y"
    """The axis that `value` is on: "y" draws a horizontal line."""
    style: int | str | None = None
    """The look of the series that it belongs to; None is grey."""


@dataclass(frozen=True)
class Line:
    """A curve, with a band around it if `low` and `high` are given."""

    label: str
    """Its name in the legend; the same name in several panels is one entry."""
    x: Any
    """Where it was measured."""
    y: Any
    """What was measured; NaN leaves a gap."""
    low: Any = None
    """The band's lower edge."""
    high: Any = None
    """The band's upper edge."""
    style: int | str | None = None
    """Its look: a number, or a name in `look.NAMES` such as "VPAC"; None takes its place in the panel."""

    def __post_init__(self) -> None:
        _keep_numbers(self, self.label, "x", ("y", "low", "high"))
        _check_pair(self, "low", "high")


@dataclass(frozen=True)
class Lines:
    """Curves over a numeric axis."""

    series: Sequence[Line]
    """The curves."""
    x_label: str = ""
    """The name of the horizontal axis."""
    y_label: str = ""
    """The name of the vertical axis."""
    title: str = ""
    """What tells this panel from its neighbours."""
    x_log: bool = False
    """Whether the horizontal axis is logarithmic."""
    y_log: bool = False
    """Whether the vertical axis is logarithmic."""
    references: Sequence[Reference] = ()
    """Values to compare with."""
    x_range: tuple[float, float] | None = None
    """The ends of the horizontal axis; None fits the data."""
    y_range: tuple[float, float] | None = None
    """The ends of the vertical axis; None fits the data."""

    def __post_init__(self) -> None:
        _keep_tuples(self, "series", "references")

    def records(self) -> Iterator[dict[str, Cell]]:
        """The data, a point at a time."""
        for line in self.series:
            for k, x in enumerate(line.x):
                yield {"series": line.label, "x": x, "y": line.y[k],
                       "low": line.low[k] if line.low else None, "high": line.high[k] if line.high else None}  # fmt: skip
        yield from _reference_records(self)


@dataclass(frozen=True)
class Spots:
    """Points with intervals, such as one setting's outcome each."""

    label: str
    """Its name in the legend."""
    x: Any
    """Numbers, or the names of categories."""
    y: Any
    """What was measured."""
    low: Any = None
    """The lower ends of the intervals of y."""
    high: Any = None
    """The upper ends of the intervals of y."""
    x_low: Any = None
    """The lower ends of the intervals of x, if x is numeric."""
    x_high: Any = None
    """The upper ends of the intervals of x, if x is numeric."""
    names: Sequence[str] = ()
    """A word beside each point, such as "ψ = 0.01"; empty words are not written."""
    joined: bool = False
    """Whether a line joins the points in the order given."""
    style: int | str | None = None
    """Its look, as for `Line`."""

    def __post_init__(self) -> None:
        if self.categorical:
            object.__setattr__(self, "x", tuple(self.x))
            if self.x_low is not None or self.x_high is not None:
                raise ValueError(f"series {self.label!r}: categories have no x_low and x_high")
        _keep_numbers(self, self.label, "x", ("y", "low", "high", "x_low", "x_high"))
        _check_pair(self, "low", "high")
        _check_pair(self, "x_low", "x_high")
        object.__setattr__(self, "names", tuple(self.names))
        if self.names and len(self.names) != len(self.y):
            raise ValueError(f"series {self.label!r} has {len(self.names)} names for {len(self.y)} points")

    @property
    def categorical(self) -> bool:
        """Whether x holds words."""
        return any(isinstance(value, str) for value in self.x)


@dataclass(frozen=True)
class Points:
    """Points with intervals over categories or over numbers; series that share a category stand side by side."""

    series: Sequence[Spots]
    """The points; all categorical or all numeric."""
    x_label: str = ""
    """The name of the x axis."""
    y_label: str = ""
    """The name of the y axis."""
    title: str = ""
    """What tells this panel from its neighbours."""
    x_log: bool = False
    """Whether the x axis is logarithmic."""
    y_log: bool = False
    """Whether the y axis is logarithmic."""
    references: Sequence[Reference] = ()
    """Values to compare with."""
    sideways: bool = False
    """Categories from top to bottom and y to the right: for long names."""
    x_range: tuple[float, float] | None = None
    """The ends of the x axis; None fits the data."""
    y_range: tuple[float, float] | None = None
    """The ends of the y axis; None fits the data."""

    def __post_init__(self) -> None:
        _keep_tuples(self, "series", "references")
        if len({spots.categorical for spots in self.series if len(spots.x)}) > 1:
            raise ValueError(f"panel {self.title!r} mixes categories and numbers on its x axis")

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories in order of appearance; empty if x is numeric."""
        return tuple(dict.fromkeys(x for spots in self.series if spots.categorical for x in spots.x))

    def records(self) -> Iterator[dict[str, Cell]]:
        """The data, a point at a time."""
        for spots in self.series:
            for k, x in enumerate(spots.x):
                ends = {end: values[k] if (values := getattr(spots, end)) else None for end in ("low", "high")}
                wide = {f"x {end}": values[k] if (values := getattr(spots, f"x_{end}")) else None for end in ends}
                yield {"series": spots.label, "point": spots.names[k] if spots.names else None,
                       "x": x, "y": spots.y[k], **ends, **wide}  # fmt: skip
        yield from _reference_records(self)


Panel: TypeAlias = "Lines | Points | Grid | Plane"


@dataclass(frozen=True)
class Chart:
    """One figure: its panels and the words around them."""

    name: str
    """A file name without ending: small letters, digits and hyphens."""
    title: str
    """What the figure shows, in a few words."""
    caption: str
    """How to read it, and what is to be seen."""
    panels: Sequence[Panel]
    """What is drawn, from left to right and from top to bottom."""
    notes: Sequence[str] = ()
    """Remarks below the caption, such as what was left out."""
    columns: int | None = None
    """Panels in a row; None chooses."""
    shared_scale: bool = False
    """Whether maps with the same meaning of colour share its scale."""
    alternative: str = ""
    """What a reader who cannot see the figure should know; empty is made from the axes and the series' names."""
    foot: str = ""
    """What must not be lost when the file travels alone, such as what the bars are; drawn in the figure."""

    def __post_init__(self) -> None:
        _keep_tuples(self, "panels", "notes")
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            raise ValueError(f"chart name {self.name!r}: expected small letters, digits and single hyphens")
        if not self.panels:
            raise ValueError(f"chart {self.name!r} has no panels")

    @property
    def width(self) -> int:
        """Panels in a row."""
        count = len(self.panels)
        return min(count, self.columns or (2 if count == 4 else min(count, 3)))

    def table(self) -> Table:
        """Everything that is drawn as rows; the first column names the panel, if there are several."""
        several = len(self.panels) > 1
        called = {"x": self._label("x"), "y": self._label("y")}
        return Table.from_records(
            (
                {"panel": (panel.title or f"panel {number}") if several else None}
                | {called.get(key, key): value for key, value in record.items()}
                for number, panel in enumerate(self.panels, 1)
                for record in panel.records()
            ),
            self.title,
        )

    def _label(self, axis: str) -> str:
        """What every panel calls the axis, if they agree."""
        names = {getattr(panel, f"{axis}_label", "") for panel in self.panels if not isinstance(panel, Grid)}
        name = names.pop() if len(names) == 1 else ""
        return name if name and name not in ("panel", "series", "point", "low", "high") else axis

    def limits(self, grid: Grid) -> tuple[float, float]:
        """The ends of the colour scale of one of the maps."""
        if grid.low is not None and grid.high is not None:
            return grid.low, grid.high
        same = [p for p in self.panels if isinstance(p, Grid) and p.value_label == grid.value_label]
        found = [p.finite() for p in same if p.low is None or p.high is None] if self.shared_scale else [grid.finite()]
        values = np.concatenate(found)
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        return low if grid.low is None else grid.low, high if grid.high is None else grid.high


def _keep_numbers(series: Any, label: str, first: str, others: Sequence[str]) -> None:
    """Turn the fields into tuples of floats of one length."""
    for name in (first, *others):
        value = getattr(series, name)
        if value is not None and not (name == first and any(isinstance(x, str) for x in value)):
            object.__setattr__(series, name, tuple(float(x) for x in value))
        if value is not None and len(value) != len(getattr(series, first)):
            raise ValueError(
                f"series {label!r}: {name} has {len(value)} values, {first} has {len(getattr(series, first))}"
            )


def _check_pair(series: Any, low: str, high: str) -> None:
    """Both ends or none, and in order where they are known."""
    below, above = getattr(series, low), getattr(series, high)
    if (below is None) != (above is None):
        raise ValueError(f"series {series.label!r} needs {low} and {high}, or neither")
    if below and any(b > a for b, a in zip(below, above, strict=True) if math.isfinite(a) and math.isfinite(b)):
        raise ValueError(f"series {series.label!r} has an interval whose {low} is above its {high}")


def _keep_tuples(thing: Any, *names: str) -> None:
    for name in names:
        object.__setattr__(thing, name, tuple(getattr(thing, name)))


def _reference_records(panel: Lines | Points) -> Iterator[dict[str, Cell]]:
    for mark in panel.references:
        yield {"series": f"{mark.label} (reference)", mark.axis: mark.value}


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
