"""The content of the page as data: claims, sections, failures and the explorer of four rooms."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from vpac.errors import UserError
from vpac.lab.report.chart import Cell, Chart, Table

if TYPE_CHECKING:
    from vpac.lab.report.explorer import Explorer

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
    """What was compared, and the reason of the verdict."""
    command: str
    """The command that reruns the experiment."""
    anchor: str = ""
    """The name of the section that shows the details."""
    group: str = "The claims"
    gain: ClaimEstimate | None = None
    """Of a claim that something varies less: what that adds to U = mean − ψ · variance; None for others."""


@dataclass(frozen=True)
class Section:
    """An experiment: its figures, its numbers and where they come from."""

    name: str
    """Its name in links: small letters, digits and hyphens."""
    title: str
    about: str
    """What was done and what came out; an empty line begins a new paragraph."""
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
    """Of this package and of its dependencies."""
