"""Everything that is shown, as data: tables, figures, and the page with its claims, sections and failures.

`draw.py` renders a chart with matplotlib, `interactive.py` with Plotly. Arrays, lists and tuples are kept as tuples of
floats; lengths and intervals that do not match raise an error here instead of giving a wrong picture later.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from vpac.errors import UserError
from vpac.risk.intervals import Interval
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.lab.report.explorer import Explorer

Cell = str | float | int | bool | None
"""The content of a table cell; None leaves it empty."""
Style = int | str | None
"""The style of a series: a number, or one of `geometry.SERIES_STYLES` such as "VPAC"; None: its position in the panel."""


class Shown(Protocol):
    """A result that the page can show."""

    def tables(self) -> list[Table]:
        """The numbers."""

    def charts(self) -> list[Chart]:
        """The figures."""


class Summary(Shown, Protocol):
    """A result that a command can show as well: tables on the terminal, charts in files, plain data with `--json`."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data; unknown numbers are None."""


@dataclass(frozen=True)
class Table:
    """Columns with names and rows of cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} of {self.title!r} has {len(row)} cells, expected {len(self.columns)}")

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[Cell]], title: str = "") -> Table:
        """Make a table from any sequences."""
        return cls(tuple(columns), tuple(tuple(row) for row in rows), title)

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Cell]], title: str = "") -> Table:
        """Make a table from records; columns are their keys in order of appearance, without those that have no value."""
        records = list(records)
        known = {key: None for record in records for key, value in record.items() if value not in (None, "")}
        columns = [key for key in dict.fromkeys(key for record in records for key in record) if key in known]
        return cls.of(columns, ([record.get(key) for key in columns] for record in records), title)

    def thinned(self, most: int) -> Table:
        """Keep at most `most` rows, evenly spaced, including the first and the last."""
        if len(self.rows) <= most:
            return self
        return replace(self, rows=tuple(self.rows[k] for k in dict.fromkeys(spaced(len(self.rows), most))))

    def as_csv(self) -> str:
        """Comma-separated values with all digits; unknown numbers are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if _unknown(cell) else cell for cell in row] for row in self.rows])
        return text.getvalue()

    def as_markdown(self) -> str:
        """The table without its title as Markdown."""
        rows = [self.columns, ["---"] * len(self.columns), *self.rows]
        cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
        return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def shown(cell: Cell, digits: int = 6) -> str:
    """Format a cell for readers: numbers rounded to at most six digits, unknown ones as a dash."""
    if _unknown(cell):
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        if math.isinf(cell):
            return "∞" if cell > 0 else "−∞"
        return f"{float(f'{cell:.{digits}g}'):.6g}".replace("-", "−")
    return str(cell)


def _unknown(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def spaced(count: int, most: int) -> list[int]:
    """Evenly spaced indices, including the first and the last."""
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


@dataclass(frozen=True)
class Reference:
    """A dashed line across a panel, such as a number from the paper."""

    value: float
    label: str
    axis: Literal["x", "y"] = "y"
    """The axis of `value`: "y" draws a horizontal line."""
    style: Style = None
    """The style of the series that it belongs to; None is grey."""


@dataclass(frozen=True)
class Line:
    """A curve, with a band around it if `low` and `high` are given."""

    label: str
    """Its entry in the legend, which is shared by panels."""
    x: Any
    y: Any
    """Measured values; NaN leaves a gap."""
    low: Any = None
    high: Any = None
    style: Style = None

    def __post_init__(self) -> None:
        _keep_numbers(self, "x", "y", "low", "high")

    def thinned(self, most: int) -> Line:
        """Keep at most `most` points, evenly spaced, including the first and the last."""
        if len(self.x) <= most:
            return self
        kept = spaced(len(self.x), most)
        x, y, low, high = (v and [v[k] for k in kept] for v in (self.x, self.y, self.low, self.high))
        return replace(self, x=x, y=y, low=low, high=high)


@dataclass(frozen=True)
class Spots:
    """A series of points, with intervals from `low` to `high` and, where x is numeric, from `x_low` to `x_high`."""

    label: str
    x: Any
    """Numbers, or the names of categories."""
    y: Any
    low: Any = None
    high: Any = None
    x_low: Any = None
    x_high: Any = None
    names: Sequence[str] = ()
    """A label beside each point, such as "ψ = 0.01"; empty ones are left out."""
    joined: bool = False
    """Whether a line joins the points in the order given."""
    style: Style = None

    def __post_init__(self) -> None:
        if self.categorical and (self.x_low is not None or self.x_high is not None):
            raise ValueError(f"series {self.label!r}: categories have no x_low and x_high")
        _keep_numbers(self, "x", "y", "low", "high", "x_low", "x_high")
        _keep_tuples(self, "names")
        if self.names and len(self.names) != len(self.y):
            raise ValueError(f"series {self.label!r} has {len(self.names)} names for {len(self.y)} points")

    @classmethod
    def of(cls, label: str, x: Sequence[Any], y: Sequence[Interval], **more: Any) -> Spots:
        """Estimates with their intervals; without any, if one of them is unknown. x may be intervals as well."""
        ends: dict[str, Any] = {}
        for axis, values in (("", y), ("x_", [i for i in x if isinstance(i, Interval)])):
            found = {f"{axis}{end}": [getattr(i, end) for i in values] for end in ("low", "high")}
            ends |= found if values and not np.isnan([*found.values()]).any() else {}
        across = [i.estimate if isinstance(i, Interval) else i for i in x]
        return cls(label, across, [i.estimate for i in y], **ends, **more)

    @property
    def categorical(self) -> bool:
        """Whether x holds names of categories."""
        return any(isinstance(value, str) for value in self.x)


@dataclass(frozen=True)
class Axes:
    """Series over a pair of axes."""

    series: Sequence[Any]
    x_label: str = ""
    y_label: str = ""
    title: str = ""
    x_log: bool = False
    y_log: bool = False
    references: Sequence[Reference] = ()
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    """The ends of the axes; None fits the data."""
    sideways: bool = False
    """Categories from top to bottom and y to the right: for long names."""

    def __post_init__(self) -> None:
        _keep_tuples(self, "series", "references")
        if len({spots.categorical for spots in self.series if isinstance(spots, Spots) and len(spots.x)}) > 1:
            raise ValueError(f"panel {self.title!r} mixes categories and numbers on its x axis")

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories in order of appearance; empty if x is numeric."""
        return tuple(dict.fromkeys(x for one in self.series for x in one.x if isinstance(x, str)))

    def records(self) -> Iterator[dict[str, Cell]]:
        """The data, one point at a time."""
        for one in self.series:
            names = getattr(one, "names", ())
            columns = {"low": one.low, "high": one.high}
            columns |= {f"x {end}": getattr(one, f"x_{end}", None) for end in ("low", "high")}
            for k, x in enumerate(one.x):
                ends = {name: values[k] if values else None for name, values in columns.items()}
                yield {"series": one.label, "point": names[k] if names else None, "x": x, "y": one.y[k], **ends}
        for mark in self.references:
            yield {"series": f"{mark.label} (reference)", mark.axis: mark.value}


class Lines(Axes):
    """Curves (`Line`) over a numeric axis."""

    series: Sequence[Line]


class Points(Axes):
    """Points (`Spots`) over categories or numbers; series that share a category are drawn side by side."""

    series: Sequence[Spots]


@dataclass(frozen=True)
class Arrow:
    """An action of the policy in a cell: (0, 0) is at the top left, and down = −1 goes up."""

    row: int
    column: int
    down: float
    right: float
    weight: float = 1.0
    """Its probability: the arrow's length."""


@dataclass(frozen=True)
class Region:
    """Special cells, such as "frozen" ones, drawn with an outline and hatching."""

    label: str
    cells: Any
    """bool[rows, columns]."""


@dataclass(frozen=True)
class Trajectory:
    """The path of an episode."""

    label: str
    points: Any
    """(row, column) pairs; fractions are allowed."""
    style: Style = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple((float(a), float(b)) for a, b in self.points))


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid world from above, row 0 at the top."""

    walls: Any
    values: Any = None
    """A number per cell, [rows, columns]; NaN where there is none."""
    value_label: str = ""
    """Meaning of the colour."""
    title: str = ""
    regions: Sequence[Region] = ()
    goal: tuple[int, int] | None = None
    start: tuple[int, int] | None = None
    arrows: Sequence[Arrow] = ()
    trajectories: Sequence[Trajectory] = ()
    colours: str = "viridis"
    """The colour scale, as matplotlib calls it."""

    def __post_init__(self) -> None:
        walls = np.array(self.walls, bool)
        values = np.full(walls.shape, np.nan) if self.values is None else np.array(self.values, float)
        if walls.ndim != 2 or values.shape != walls.shape:
            raise ValueError(f"map {self.title!r}: values are {values.shape}, walls {walls.shape}")
        values[walls] = np.nan
        object.__setattr__(self, "walls", walls)
        object.__setattr__(self, "values", values)
        _keep_tuples(self, "regions", "arrows", "trajectories")

    def finite(self) -> FloatArray:
        """The known values, in one row."""
        return np.asarray(self.values[np.isfinite(self.values)], np.float64)

    def records(self) -> Iterator[dict[str, Cell]]:
        """The data, one cell at a time, then one step of each trajectory at a time."""
        moves: dict[tuple[int, int], list[str]] = {}
        for arrow in self.arrows:
            moves.setdefault((arrow.row, arrow.column), []).append(_move(arrow))
        for row, column in np.argwhere(~self.walls).tolist():
            marks = [region.label for region in self.regions if region.cells[row, column]]
            marks += ["goal"] * ((row, column) == self.goal) + ["start"] * ((row, column) == self.start)
            value = float(self.values[row, column])
            yield {"row": row, "column": column, "cell": ", ".join(marks) or "free",
                   self.value_label or "value": None if np.isnan(value) else value,
                   "policy": " ".join(moves.get((row, column), []))}  # fmt: skip
        for path in self.trajectories:
            for step, (down, right) in enumerate(path.points):
                yield {"row": down, "column": right, "trajectory": path.label, "step": step}


ARROWS = {(-1, 0): "↑", (1, 0): "↓", (0, -1): "←", (0, 1): "→",
         (-1, 1): "↗", (1, 1): "↘", (1, -1): "↙", (-1, -1): "↖", (0, 0): "·"}  # fmt: skip


def _move(arrow: Arrow) -> str:
    sign = ARROWS[int(np.sign(arrow.down)), int(np.sign(arrow.right))]
    return sign if arrow.weight >= 1.0 else f"{sign} {arrow.weight:.2g}"


Panel: TypeAlias = Lines | Points | Grid


@dataclass(frozen=True)
class Chart:
    """A figure: its panels and the text around them."""

    name: str
    """A file name without suffix: small letters, digits and hyphens."""
    title: str
    caption: str
    panels: Sequence[Panel]
    notes: Sequence[str] = ()
    """Remarks below the caption, such as what was left out."""
    columns: int | None = None
    """Panels in a row; None chooses."""
    shared_scale: bool = False
    """Whether maps with the same meaning of colour share its scale."""
    foot: str = ""
    """A line that is part of the drawing, such as what the bars are, so that the file can be read without the page."""

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

    def thinned(self, most: int) -> Chart:
        """Keep at most `most` points of each curve."""
        panels = [
            replace(panel, series=[line.thinned(most) for line in panel.series]) if isinstance(panel, Lines) else panel
            for panel in self.panels
        ]
        return replace(self, panels=panels)

    def table(self) -> Table:
        """Everything that is drawn; the first column names the panel, if there are several."""
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
        """The name of the axis, if all panels agree."""
        names = {getattr(panel, f"{axis}_label", "") for panel in self.panels if not isinstance(panel, Grid)}
        name = names.pop() if len(names) == 1 else ""
        return name if name and name not in ("panel", "series", "point", "low", "high") else axis

    def limits(self, grid: Grid) -> tuple[float, float]:
        """The ends of the colour scale of one of the maps."""
        same = [p for p in self.panels if isinstance(p, Grid) and p.value_label == grid.value_label]
        values = np.concatenate([p.finite() for p in (same if self.shared_scale else [grid])])
        return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _keep_numbers(series: Any, *names: str) -> None:
    """Turn fields into tuples of floats of one length, or of words; require both ends of intervals or none, in order."""
    for name in names:
        value = getattr(series, name)
        if value is not None:
            kept = tuple(x if isinstance(x, str) and name == "x" else float(x) for x in value)
            object.__setattr__(series, name, kept)
            if len(kept) != len(series.x):
                raise ValueError(f"series {series.label!r}: {name} has {len(kept)} values, x has {len(series.x)}")
    for low, high in zip(names[2::2], names[3::2], strict=True):
        below, above = getattr(series, low), getattr(series, high)
        if (below is None) != (above is None):
            raise ValueError(f"series {series.label!r} needs {low} and {high}, or neither")
        if below and any(b > a for b, a in zip(below, above, strict=True) if math.isfinite(a) and math.isfinite(b)):
            raise ValueError(f"series {series.label!r} has an interval whose {low} is above its {high}")


def _keep_tuples(thing: Any, *names: str) -> None:
    for name in names:
        object.__setattr__(thing, name, tuple(getattr(thing, name)))


Verdict = Literal["holds", "does not hold", "undecided"]
TAKEN = ("main", "claims", "contents", "explorer", "failures", "colophon", "psi")
"""Names that the page uses itself."""


@dataclass(frozen=True)
class ClaimEstimate:
    """A measured number with its 95 % interval."""

    value: float
    low: float = math.nan
    """The interval's lower end; NaN if there is none, because the number is exact or there is one run."""
    high: float = math.nan
    unit: str = ""
    """Its unit, such as "%"; written after the number."""
    form: str = ".3g"

    def text(self) -> str:
        """The number, for readers."""
        return self._written(self.value)

    def interval(self) -> str:
        """The interval, for readers; empty if there is none."""
        return self._written(self.low, self.high) if math.isfinite(self.low) and math.isfinite(self.high) else ""

    def _written(self, *numbers: float) -> str:
        words = ["–" if math.isnan(number) else format(number, self.form).replace("-", "−") for number in numbers]
        return " … ".join(words) + (f"\N{NO-BREAK SPACE}{self.unit}" if self.unit else "")


@dataclass(frozen=True)
class ClaimRow:
    """A claim and its verdict."""

    experiment: str
    sentence: str
    paper_number: str
    """The paper's number; empty if it gives none."""
    ours: ClaimEstimate | None
    """Our number; None if there is none yet."""
    verdict: Verdict
    explanation: str
    """The comparison, and the reason of the verdict."""
    command: str
    """The command that reruns the experiment."""
    anchor: str = ""
    """The name of the section that shows the details."""
    group: str = "The claims"
    gain: ClaimEstimate | None = None
    """Gain in U = mean − ψ · variance if a claim says that something varies less; None for others."""


@dataclass(frozen=True)
class Section:
    """An experiment: its figures, its numbers and where they come from."""

    name: str
    """Its name in links: small letters, digits and hyphens."""
    title: str
    about: str
    """Account of what was done and what came out; an empty line begins a new paragraph."""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    settings: Table | None = None
    """One row for each arm."""
    provenance: Mapping[str, Cell] = field(default_factory=dict)
    """Runs, seeds, versions, machine, commit."""
    wall_seconds: float | None = None
    command: str = ""
    """The command that reruns it."""
    commands: Sequence[tuple[str, str]] = ()
    """Further commands, by what they do."""
    drawing: str = ""
    """A figure as SVG beside the charts; empty: none."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name) or self.name in TAKEN:
            raise ValueError(f"section name {self.name!r}: expected small letters, digits, single hyphens, not {TAKEN}")


@dataclass(frozen=True)
class Failure:
    """A run that failed, or something else that cannot be shown."""

    run: str
    message: str
    trace: str = ""
    command: str = ""
    """The command that tries it again."""


def why(error: Exception) -> str:
    """The error, in one line."""
    words = (str(error).strip().splitlines() or [""])[0][:300]
    return words if isinstance(error, UserError) else f"{type(error).__name__}: {words}"


@dataclass(frozen=True)
class Document:
    """The whole page."""

    title: str
    subtitle: str
    made: str
    claims: Sequence[ClaimRow] = ()
    sections: Sequence[Section] = ()
    failures: Sequence[Failure] = ()
    explorer: Explorer | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of this package and of its dependencies."""
