"""What an agent remembers of its iterations: everything of a short run, fewer and fewer of a long one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

__all__ = ["MOST", "History"]

MOST = 4096
"""Rows that are kept; there are at least half as many once there were so many iterations."""


class History(list[dict[str, float]]):
    """A row of numbers for each iteration, at most `MOST`: whenever there are more, every second one goes.

    So memory and checkpoints stay small however long a run is. Which rows are left depends on nothing but the number of
    iterations. The last row is always that of the last iteration.
    """

    every: int = 1
    """Iterations from one row to the next, but for the last."""
    last: int = 0
    """Number of the iteration that the last row is of."""

    @classmethod
    def read(cls, rows: Iterable[dict[str, float]], every: int, last: int) -> Self:
        """As it was stored."""
        if every < 1:
            raise ValueError(f"rows of every {every} iterations")
        found = cls(rows)
        found.every, found.last = every, last
        return found

    def add(self, iteration: int, row: dict[str, float]) -> None:
        """The numbers of the next iteration; the first one is number 1."""
        if self and self.last % self.every:
            self.pop()
        self.append(row)
        self.last = iteration
        if len(self) > MOST:
            self[:-1] = self[1:-1:2]
            self.every *= 2
