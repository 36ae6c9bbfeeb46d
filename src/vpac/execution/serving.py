"""The life of a worker process: runs come in by a pipe; what was done, what is kept, and signs of life go out."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from vpac.execution.store import Store
from vpac.execution.worker import MOMENT, Group, Outcome
from vpac.interruption import handled, stop_if_asked
from vpac.liveness import STALL, guard

__all__ = ["serve"]

BEAT = 1.0
"""Seconds between two signs of life."""


class _Mouth:
    """What the process says: names of runs that are through, outcomes of those that are settled; neither is a sign of life."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def say(self, through: Sequence[str] = (), outcomes: Sequence[Outcome] = ()) -> None:
        with self._lock:
            self._pipe.send((through, outcomes))

    def beat(self) -> None:
        """Say every second that the process is alive."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                self.say()
                time.sleep(BEAT)


def serve(pipe: Connection, stall: float = STALL) -> None:
    """Until the other end closes. Ctrl-C is the parent's business.

    Runs are kept in groups, which end when they are large, when a moment has passed, before a run that is not known to be tiny,
    or when there is nothing else to do.
    """
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # who started us had blocked it
    mouth = _Mouth(pipe)
    threading.Thread(target=mouth.beat, daemon=True).start()
    guard(stall)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    groups: dict[str, Group] = {}

    def settle() -> None:
        for group in groups.values():
            if len(group):
                mouth.say(outcomes=group.settle())

    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt), handled([signal.SIGTERM]), threadpool_limits(1):
        try:
            while True:
                if not pipe.poll():
                    settle()
                address, run, expected = pipe.recv()
                if expected >= MOMENT:
                    settle()
                group = groups.setdefault(address, Group(Store(address)))
                outcome = group.carry_out(run)
                if outcome is not None:
                    mouth.say(outcomes=[outcome])
                if group.full:
                    settle()
                elif outcome is None:
                    mouth.say(through=[run.name])
                stop_if_asked()
        finally:  # what is done need not be lost
            for group in groups.values():
                group.settle()


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on for as long as its run takes."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
