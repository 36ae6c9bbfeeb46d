"""Whether a run gets anywhere. A process can be alive and stand still: an environment may wait for ever within one step.

Loops that step an environment are `watched` and call `advance` at every step. A worker process that is under `guard` ends
itself when nothing has advanced for long; whoever gave it the run sees it die, and tries again or reports it. Work that is not
watched, computing for example, may take as long as it likes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["HUNG", "STALL", "advance", "guard", "watched"]

STALL = 900.0
"""Seconds that one step of an environment may take before its run counts as hung."""
HUNG = 75
"""Exit code of a process that ended itself."""
LOOK = 1.0
"""Seconds between two looks."""


@dataclass
class _State:
    steps: int = 0
    """How often something has advanced."""
    loops: int = 0
    """How many loops are being watched."""
    lock: threading.Lock = field(default_factory=threading.Lock)


STATE = _State()


@contextmanager
def watched() -> Iterator[None]:
    """A loop that calls `advance`; also a decorator of a function that is one."""
    with STATE.lock:
        STATE.loops, STATE.steps = STATE.loops + 1, STATE.steps + 1
    try:
        yield
    finally:
        with STATE.lock:
            STATE.loops -= 1


def advance() -> None:
    """A step has been taken."""
    STATE.steps += 1


def guard(seconds: float = STALL) -> None:
    """From now on, end this process if a watched loop has not advanced for so long, but for time in which it was stopped."""

    def look() -> None:
        seen, stuck, last = -1, 0.0, time.monotonic()
        while stuck <= seconds:
            time.sleep(min(LOOK, seconds))
            now = time.monotonic()
            passed, last = min(now - last, 2.0 * LOOK), now
            stuck = stuck + passed if STATE.loops and STATE.steps == seen else 0.0
            seen = STATE.steps
        os._exit(HUNG)

    threading.Thread(target=look, daemon=True).start()
