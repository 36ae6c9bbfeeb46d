"""Other processes of this machine that call a function for this one: for very many small files, or figures, one core is slow.

Unlike those of the standard library they do not import the program that asks, which may do anything, and they end by
themselves: when they have had nothing to do for a moment, and when whoever asked is gone. One that dies takes nothing with it:
its part is done here.

folder, if they are very many.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vpac.interruption import deaf, held
from vpac.lab.store.place import Unreadable
from vpac.lab.store.records import Damaged, Newer

if TYPE_CHECKING:
    from vpac.lab.store.store import Parts, Store

__all__ = ["MANY", "Ahead", "Crew", "by_processes", "by_threads", "crew"]

T = TypeVar("T")
S = TypeVar("S")
IDLE = 5.0
"""Seconds without anything to do after which a member leaves."""
MOST = 16
"""Members: whoever asked has to take in what they find."""


class Crew:
    """Processes that are started when there is something to do.

    Args:
        size: how many.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._members: list[tuple[subprocess.Popen[bytes], Connection]] = []

    def map(self, function: Callable[[T], S], parts: Sequence[T]) -> Iterator[S]:
        """What a function of a module of ours makes of each part, in order; where it raises, the part is done here and raises.

        A member has one part at a time, and gets the next when its answer is taken: neither ever waits for the other to read.
        """
        members: list[Connection | None] = [pipe for _, pipe in self._here()] or [None]
        waiting, flying = deque(parts), deque[tuple[T, Connection | None]]()

        def give(pipe: Connection | None) -> None:
            if waiting:
                part = waiting.popleft()
                flying.append((part, pipe if pipe and _send(pipe, (function, part)) else None))

        try:
            for member in members:
                give(member)
            while flying:
                part, pipe = flying.popleft()
                try:
                    found = function(part) if pipe is None else pipe.recv()
                except (EOFError, OSError):  # it has died
                    found, pipe = function(part), None
                give(pipe)
                yield found
        finally:
            if flying:  # nobody wants the rest; the members do not know that
                self.close()

    def close(self) -> None:
        """Send the members home."""
        for process, pipe in self._members:
            pipe.close()
            process.kill()
            process.wait()
        self._members.clear()

    def _here(self) -> list[tuple[subprocess.Popen[bytes], Connection]]:
        """All members, those that had left called anew."""
        if any(process.poll() is not None for process, _ in self._members):
            self.close()
        while len(self._members) < self.size:
            self._members.append(_start())
        return self._members


@cache
def crew() -> Crew:
    """One member for each core that this process may use; none on a single one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    made = Crew(min(cores, MOST) if cores > 1 else 0)
    atexit.register(made.close)
    return made


def _start() -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = Pipe()
    command = [sys.executable, "-c", f"from vpac.lab.store.readers import _serve; _serve({theirs.fileno()})"]
    with held(), deaf(), theirs:
        process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    return process, ours


def _send(pipe: Connection, message: Any) -> bool:
    try:
        pipe.send(message)
        return True
    except OSError:
        return False


def _serve(handle: int) -> None:
    """The life of a member."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    pipe = Connection(handle)
    with contextlib.suppress(EOFError, OSError):
        while pipe.poll(IDLE):
            function, part = pipe.recv()
            pipe.send(function(part))


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
    from vpac.lab.store.store import many

    address, names = chunk
    read = _store(address).parts
    with many():
        return [_tried(read, name) for name in names]


@cache
def _store(address: str) -> Store:
    from vpac.lab.store.store import Store

    return Store(address)


def _tried(read: Callable[[str], T], name: str) -> T | None:
    try:
        return read(name)
    except (Damaged, Newer, Unreadable):
        return None
