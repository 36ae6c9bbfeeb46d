"""Mean and spread of curves over any number of runs, of which only a few are in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from vpac.errors import UserError
from vpac.execution.ahead import MANY
from vpac.execution.crew import crew
from vpac.execution.encoding import columns_of
from vpac.execution.places import place_at
from vpac.execution.store import METRICS, Damaged, Record, checked
from vpac.typing import FloatArray

__all__ = ["Spread", "spread_of"]

TABLES, NUMBERS = 1000, 2_000_000
"""How many tables, and numbers in them, are read at a time."""


@dataclass
class Spread:
    """Moments of columns over runs, point by point."""

    count: int = 0
    """Runs so far."""
    mean: dict[str, FloatArray] = field(default_factory=dict)
    """Of each column."""
    squares: dict[str, FloatArray] = field(default_factory=dict)
    """Sums of squared distances from the mean."""

    @classmethod
    def of(cls, columns: dict[str, FloatArray]) -> Spread:
        """Of columns [runs, points]."""
        mean = {name: values.mean(axis=0) for name, values in columns.items()}
        squares = {name: ((values - mean[name]) ** 2).sum(axis=0) for name, values in columns.items()}
        return cls(len(next(iter(columns.values()))), mean, squares)

    def add(self, more: Spread) -> None:
        """Of other runs, too (Chan, Golub and LeVeque 1983); columns that not all runs have are left out."""
        total = self.count + more.count
        if not self.count:
            self.mean, self.squares = more.mean, more.squares
        for name in [name for name in self.mean if name not in more.mean]:
            del self.mean[name], self.squares[name]
        if self.count:
            for name in self.mean:
                gap = more.mean[name] - self.mean[name]
                self.squares[name] = (
                    more.squares[name] + self.squares[name] + gap**2 * (self.count * more.count / total)
                )
                self.mean[name] = self.mean[name] + gap * (more.count / total)
        self.count = total

    def deviation(self, name: str) -> FloatArray:
        """Standard deviation over runs; of a single run NaN."""
        return np.sqrt(self.squares[name] / (self.count - 1 if self.count > 1 else np.nan))


def spread_of(records: Sequence[Record], numbers: int, count: int = 0) -> Spread:
    """Of the metrics of runs.

    Args:
        records: of the runs.
        numbers: how many there are in the table of one.
        count: runs in all, if those of others will be asked for, too.
    """
    found, step = Spread(), max(1, min(TABLES, NUMBERS // max(numbers, 1)))
    parts = [records[begin : begin + step] for begin in range(0, len(records), step)]
    for part, moments in zip(parts, _moments(parts, max(count, len(records))), strict=True):
        found.add(moments or _moments_of(part))
    return found


def _moments(parts: Sequence[Sequence[Record]], count: int) -> Iterator[Spread | None]:
    """Of the runs of each part; by other processes, if there are very many. None: it is still to be done here."""
    if count < MANY or parts[0][0].place.readers > 1:
        return repeat(None, len(parts))
    given = [(part[0].place.address, [(record.run.name, record.files) for record in part]) for part in parts]
    return crew().map(_there, given)


def _moments_of(records: Sequence[Record]) -> Spread:
    return Spread.of(columns_of([record.file(METRICS) for record in records]))


def _there(part: tuple[str, Sequence[tuple[str, dict[str, Any]]]]) -> Spread | None:
    """In another process; what is wrong is found out again by whoever asked."""
    address, runs = part
    try:
        place = place_at(address)
        return Spread.of(columns_of([checked(place, name, METRICS, files) for name, files in runs]))
    except (Damaged, UserError, OSError):
        return None
