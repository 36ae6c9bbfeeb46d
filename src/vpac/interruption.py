"""Signals that ask a process to stop: Ctrl-C (SIGINT), and SIGTERM, which schedulers send before they take a machine away.

Both raise in the main thread, so that everything is cleaned up on the way out. Within `until_checkpoint` the first one only
sets a flag: work that leaves checkpoints continues to the next one and stops there, at `stop_if_asked`. A second Ctrl-C stops
at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C; the exit code is 143."""


@dataclass
class _State:
    asked: int | None = None
    """The first signal that has arrived."""
    message: str | None = None
    """Printed for the first signal instead of raising it; None: raise."""


STATE = _State()


@contextmanager
def handled(signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[None]:
    """Raise signals as `KeyboardInterrupt` and `Terminated` within this context; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    STATE.asked = STATE.message = None
    before = {number: signal.signal(number, _handle) for number in signals}
    hook, sys.unraisablehook = sys.unraisablehook, partial(_unraisable, sys.unraisablehook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def until_checkpoint(message: str = "") -> Iterator[None]:
    """Let the first signal only print `message`: the work calls `stop_if_asked` after each checkpoint."""
    STATE.message = message
    try:
        yield
    finally:
        STATE.message = None


def stop_if_asked() -> None:
    """Raise the signal that has arrived, if any."""
    if STATE.asked is not None:
        raise Terminated if STATE.asked == signal.SIGTERM else KeyboardInterrupt


def stopped_by(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that caused an error: Python turns what is raised in `__set_name__`, within an import, into RuntimeError."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    return cause


def _handle(number: int, frame: FrameType | None) -> None:
    first, STATE.asked = STATE.asked is None, STATE.asked or number
    if first and STATE.message is not None:
        with suppress(OSError):
            os.write(2, f"{STATE.message}\n".encode() if STATE.message else b"")
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    elif first:  # schedulers send SIGTERM to every process of a group, and the group's leader may pass it on
        raise Terminated


def _unraisable(hook: Callable[[Any], object], what: Any) -> None:
    """Exit if a signal was raised in a callback from native code, where exceptions are dropped."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        os._exit(128 + (STATE.asked or signal.SIGINT))
    hook(what)
