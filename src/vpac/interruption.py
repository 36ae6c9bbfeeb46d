"""Signals that ask a process to stop: Ctrl-C (SIGINT), and SIGTERM, with which schedulers take a machine away.

Both raise where the process is, so that everything is tidied up on the way out; in the middle of an import, when that is
through: modules that are half made turn what is raised into other errors, and native ones may crash. Within `patient` the first
of them only asks: work that leaves checkpoints goes on to the next one and stops there, at `stop_if_asked`. A second Ctrl-C
stops at once. Within `held` they wait: while a process is started, because one that is half started complains of whoever left
it so, and while Polars works, whose native code calls Python now and then and takes what is raised there for its own fault.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

__all__ = ["Terminated", "deaf", "handled", "held", "patient", "stop_if_asked", "stopped_by"]

SOON = 0.02
"""Seconds after which a signal that came in the middle of an import is sent once more."""
LONGEST = 3.0
"""Seconds that it waits for the end of the import: a user's module may do anything."""


class Terminated(KeyboardInterrupt):
    """SIGTERM. What is done for Ctrl-C is done for it, too; the exit code is 143."""


@dataclass
class _State:
    asked: int | None = None
    """The first signal that has come."""
    words: str | None = None
    """What to say to the first that comes; None: it is raised."""
    again: float = float("-inf")
    """When the first came that was to be sent once more."""
    holding: int = 0
    """How many ask for signals to wait."""
    held: list[int] = field(default_factory=list)
    """Those that do."""


STATE = _State()


@contextmanager
def handled(signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[None]:
    """While it lasts, signals are raised as `KeyboardInterrupt` and `Terminated`, or asked for; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    STATE.asked = STATE.words = None
    STATE.held.clear()
    before = {number: signal.signal(number, _heed) for number in signals}
    hook, sys.unraisablehook = sys.unraisablehook, partial(_lost, sys.unraisablehook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def patient(words: str = "") -> Iterator[None]:
    """Work that calls `stop_if_asked` wherever it can stop without loss; `words` are said when it is asked to."""
    STATE.words = words
    try:
        yield
    finally:
        STATE.words = None


@contextmanager
def held() -> Iterator[None]:
    """Signals wait for the end of this, which takes a moment; they are raised in the main thread, and only there. Also a
    decorator."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    STATE.holding += 1
    try:
        yield
    finally:
        STATE.holding -= 1
        if not STATE.holding:
            waiting, STATE.held = STATE.held, []
            for number in waiting[1:]:  # the first one may raise
                _send_soon(number)
            for number in waiting[:1]:
                signal.raise_signal(number)


@contextmanager
def deaf() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C, which is for us, until they can ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_if_asked() -> None:
    """Stop if a signal has asked for it."""
    if STATE.asked is not None:
        raise Terminated if STATE.asked == signal.SIGTERM else KeyboardInterrupt


def _lost(otherwise: Callable[[Any], object], what: Any) -> None:
    """A compiler called back into Python just then, and what is raised there gets lost. It holds no file of ours open."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        os._exit(128 + (STATE.asked or signal.SIGINT))
    otherwise(what)


def stopped_by(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that an error was made of, if it was: Python makes a RuntimeError of what is raised in `__set_name__`."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__cause__
    if (
        seen is None and STATE.asked is not None and type(error).__name__ == "PanicException"
    ):  # of native code, see above
        return Terminated() if STATE.asked == signal.SIGTERM else KeyboardInterrupt()
    return seen


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _is_soon() -> bool:
    """Whether the first signal that came in the middle of this import came only just now."""
    now = time.monotonic()
    if now - STATE.again > 2.0 * LONGEST:
        STATE.again = now
    return now - STATE.again < LONGEST


def _send_soon(number: int) -> None:
    """Without the locks of `threading`, which whoever was interrupted may hold."""

    def send() -> None:
        time.sleep(SOON)
        os.kill(os.getpid(), number)

    _thread.start_new_thread(send, ())


def _heed(number: int, frame: FrameType | None) -> None:
    if STATE.holding:
        STATE.held.append(number)
        return
    if (STATE.words is None or STATE.asked is not None) and _is_importing(frame) and _is_soon():
        _send_soon(number)
        return
    first, STATE.asked = STATE.asked is None, STATE.asked or number
    if first and STATE.words is not None:
        with suppress(OSError):
            os.write(2, f"{STATE.words}\n".encode() if STATE.words else b"")
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    elif first:  # later ones say what is known: schedulers send SIGTERM to every process of a group
        raise Terminated
