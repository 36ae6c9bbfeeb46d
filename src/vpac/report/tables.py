"""Tables of words and numbers, for pages and for CSV files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Cell", "Table", "shown"]

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
