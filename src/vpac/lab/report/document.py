"""What the page of the reproduction says, as data: claims, sections, failures and the explorer of four rooms."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from vpac.errors import UserError
from vpac.lab.report.chart import Cell, Chart, Table

__all__ = ["ClaimRow", "Document", "Estimate", "Explorer", "ExplorerPoint", "Failure", "Section", "Verdict", "why"]

Verdict = Literal["holds", "does not hold", "undecided"]
TAKEN = ("main", "claims", "contents", "explorer", "failures", "colophon", "psi")
"""Names that the page itself uses."""


@dataclass(frozen=True)
class Estimate:
    """A number of ours with its 95 % interval."""

    value: float
    """The estimate."""
    low: float = math.nan
    """The interval's lower end; NaN if there is none, because the number is exact or there is one run."""
    high: float = math.nan
    """The interval's upper end."""
    unit: str = ""
    """What it is measured in, such as "%"; written after the number."""
    form: str = ".3g"
    """How it is written: a format specification of Python."""

    def text(self) -> str:
        """The number, for readers."""
        return self._written(self.value) + self._unit()

    def interval(self) -> str:
        """The interval, for readers; empty if there is none."""
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return ""
        return f"{self._written(self.low)} … {self._written(self.high)}{self._unit()}"

    def _written(self, number: float) -> str:
        return "–" if math.isnan(number) else format(number, self.form).replace("-", "−")

    def _unit(self) -> str:
        return f"\N{NO-BREAK SPACE}{self.unit}" if self.unit else ""


@dataclass(frozen=True)
class ClaimRow:
    """A claim and what we found."""

    experiment: str
    """The experiment that tests it, for readers."""
    sentence: str
    """The claim in words."""
    paper_number: str
    """The paper's number; empty if it gives none."""
    ours: Estimate | None
    """Our number; None if there is none yet."""
    verdict: Verdict
    """Whether the sentence holds."""
    explanation: str
    """What was compared with what, and why the verdict is what it is."""
    command: str
    """What to type to rerun just this."""
    anchor: str = ""
    """The name of the section that shows the details."""
    group: str = "The claims"
    """The heading that it stands under."""


@dataclass(frozen=True)
class Section:
    """An experiment: its figures, its numbers and where they come from."""

    name: str
    """Its name in links: small letters, digits and hyphens."""
    title: str
    """Its heading."""
    about: str
    """What was done and what came out; an empty line begins a new paragraph."""
    charts: Sequence[Chart] = ()
    """Its figures."""
    tables: Sequence[Table] = ()
    """Tables that are shown at once, such as final numbers."""
    settings: Table | None = None
    """What each arm was run with: one row an arm."""
    provenance: Mapping[str, Cell] = field(default_factory=dict)
    """Runs, seeds, versions, machine, commit."""
    wall_seconds: float | None = None
    """How long it took."""
    command: str = ""
    """What to type to rerun it."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name) or self.name in TAKEN:
            raise ValueError(
                f"section name {self.name!r}: expected small letters, digits and single hyphens, not {TAKEN}"
            )


@dataclass(frozen=True)
class Failure:
    """A run that did not end well."""

    run: str
    """Its name."""
    message: str
    """What went wrong, in a line."""
    trace: str = ""
    """Where, as Python prints it."""
    command: str = ""
    """What to type to try again."""


def why(error: Exception) -> str:
    """What went wrong, in a line."""
    words = (str(error).strip().splitlines() or [""])[0][:300]
    return words if isinstance(error, UserError) else f"{type(error).__name__}: {words}"


@dataclass(frozen=True)
class ExplorerPoint:
    """The best policy at one price of variance, exactly."""

    psi: float
    """The price of variance."""
    mean: float
    """Mean of the return."""
    variance: float
    """Variance of the return."""
    sharpe: float
    """Mean over standard deviation."""
    actions: Sequence[int]
    """The most likely action of each cell, row by row; −1 where there is none."""
    cell_variance: Sequence[float]
    """Variance of the return from each cell, row by row; NaN at walls."""
    visitation: Sequence[float]
    """How often each cell is visited, row by row; NaN at walls."""


@dataclass(frozen=True)
class Explorer:
    """A world whose best policies a slider over prices shows."""

    rows: int
    """Rows of the map."""
    columns: int
    """Columns of the map."""
    walls: Sequence[bool]
    """Whether each cell is a wall, row by row."""
    frozen: Sequence[bool]
    """Whether each cell is frozen, row by row."""
    goal: tuple[int, int]
    """The row and column of the goal."""
    points: Sequence[ExplorerPoint]
    """The policies, prices ascending."""
    moves: Sequence[tuple[int, int]] = ((-1, 0), (1, 0), (0, -1), (0, 1))
    """Rows down and columns right of each action: up, down, left, right in our worlds."""
    title: str = "Four rooms: what a price on variance does"
    """Its heading."""
    about: str = ""
    """What is shown; an empty line begins a new paragraph."""

    def __post_init__(self) -> None:
        cells = self.rows * self.columns
        lists = {"walls": self.walls, "frozen": self.frozen}
        for point in self.points:
            for name in ("actions", "cell_variance", "visitation"):
                lists[f"{name} at ψ = {point.psi:g}"] = getattr(point, name)
        for name, values in lists.items():
            if len(values) != cells:
                raise ValueError(f"explorer: {name} has {len(values)} cells, expected {cells}")
        if not self.points:
            raise ValueError("explorer: no points")

    def table(self) -> Table:
        """The points without their maps."""
        rows = [(p.psi, p.mean, p.variance, math.sqrt(max(p.variance, 0.0)), p.sharpe) for p in self.points]
        return Table.of(("ψ", "mean", "variance", "standard deviation", "Sharpe ratio"), rows, self.title)


@dataclass(frozen=True)
class Document:
    """The whole page."""

    title: str
    """Its heading."""
    subtitle: str
    """A sentence below it."""
    made: str
    """When it was made, as text."""
    claims: Sequence[ClaimRow] = ()
    """The paper's claims, judged."""
    sections: Sequence[Section] = ()
    """The experiments."""
    failures: Sequence[Failure] = ()
    """Runs that failed."""
    explorer: Explorer | None = None
    """The slider over prices, if there is one."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of this package and of those that it stands on."""
