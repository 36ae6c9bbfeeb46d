"""Other processes of this machine that call a function for this one: for very many small files, or figures, one core is slow.

Unlike those of the standard library they do not import the program that asks, which may do anything, and they end by
themselves: when they have had nothing to do for a moment, and when whoever asked is gone. One that dies takes nothing with it:
its part is done here.
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
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from vpac.interruption import deaf, held

__all__ = ["Crew", "crew"]

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
    command = [sys.executable, "-c", f"from vpac.execution.crew import _serve; _serve({theirs.fileno()})"]
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
