"""Mean and spread of curves over any number of runs, of which only a few are in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vpac.execution.encoding import columns_of
from vpac.execution.store import METRICS
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

    def add(self, columns: dict[str, FloatArray]) -> None:
        """Runs more, as columns [runs, points] (Chan, Golub and LeVeque 1983); columns that not all runs have are left out."""
        for name in [name for name in self.mean if name not in columns]:
            del self.mean[name], self.squares[name]
        for name, values in columns.items():
            if self.count and name not in self.mean:
                continue
            new, mean = len(values), values.mean(axis=0)
            squares = ((values - mean) ** 2).sum(axis=0)
            if self.count:
                gap, total = mean - self.mean[name], self.count + new
                squares = squares + self.squares[name] + gap**2 * (self.count * new / total)
                mean = self.mean[name] + gap * (new / total)
            self.mean[name], self.squares[name] = mean, squares
        self.count += len(next(iter(columns.values())))

    def deviation(self, name: str) -> FloatArray:
        """Standard deviation over runs; of a single run NaN."""
        return np.sqrt(self.squares[name] / (self.count - 1 if self.count > 1 else np.nan))


def spread_of(files: Sequence[Callable[[str], bytes]], numbers: int) -> Spread:
    """Of the metrics of runs.

    Args:
        files: what reads a file of each run.
        numbers: how many there are in the table of one.
    """
    found, step = Spread(), max(1, min(TABLES, NUMBERS // max(numbers, 1)))
    for begin in range(0, len(files), step):
        found.add(columns_of([read(METRICS) for read in files[begin : begin + step]]))
    return found
