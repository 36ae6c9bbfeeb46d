"""Runs that are read before they are asked for: by threads from a bucket, which takes long to answer; by other processes from a
folder, if they are very many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Generic, TypeVar

from vpac.execution.crew import crew
from vpac.execution.patience import Unreadable
from vpac.execution.records import Damaged, Newer

if TYPE_CHECKING:
    from vpac.execution.store import Parts, Store

__all__ = ["MANY", "Ahead", "by_processes", "by_threads"]

MANY = 4000
"""Runs of a folder from which on it is worth to start processes; one core reads as many in less than a second."""
CHUNK = 250
"""Runs that a process is given at a time."""


class Ahead(Generic[T]):
    """What is on its way, by name.

    Args:
        names: in the order in which they come.
        found: what was found of each; None of one that could not be read, which whoever asks will find out.
    """

    def __init__(self, names: Sequence[str], found: Iterator[T | None]) -> None:
        self._coming, self._found = iter(names), found
        self._left = set(names)
        self._here: dict[str, T | None] = {}

    def has(self, name: str) -> bool:
        """Whether it was read and found good, once it has come; not of what was taken."""
        if name not in self._left:
            return False
        while name not in self._here:
            self._here[next(self._coming)] = next(self._found)
        return self._here[name] is not None

    def take(self, name: str) -> T | None:
        """What was found of it, once; None also if it was not to come."""
        if not self.has(name):
            return None
        self._left.discard(name)
        return self._here.pop(name)


def by_threads(read: Callable[[str], T], names: Sequence[str], count: int) -> Iterator[T | None]:
    """From a place that takes long to answer."""
    with ThreadPoolExecutor(count) as readers:
        yield from readers.map(partial(_tried, read), names)


def by_processes(address: str, names: Sequence[str]) -> Iterator[Parts | None]:
    """From a folder: what they read has been checked."""
    chunks = [(address, names[begin : begin + CHUNK]) for begin in range(0, len(names), CHUNK)]
    for found in crew().map(_there, chunks):
        yield from found


def _there(chunk: tuple[str, Sequence[str]]) -> list[Parts | None]:
    from vpac.execution.store import many

    address, names = chunk
    read = _store(address).parts
    with many():
        return [_tried(read, name) for name in names]


@cache
def _store(address: str) -> Store:
    from vpac.execution.store import Store

    return Store(address)


def _tried(read: Callable[[str], T], name: str) -> T | None:
    try:
        return read(name)
    except (Damaged, Newer, Unreadable):
        return None
