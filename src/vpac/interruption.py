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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from vpac.portable import at_native_exit, show_stderr


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C; the exit code is 143."""


@dataclass
class _State:
    asked: int | None = None
    """The first signal that has arrived."""
    message: str | None = None
    """Printed for the first signal instead of raising it; None: raise."""
    when: float = 0.0
    """When it arrived."""
    checkpoint: float = 0.0
    """When the last checkpoint was written, or the work began."""
    longest: float = 0.0
    """Seconds that work has taken from one checkpoint to the next, at most."""
    timer: threading.Timer | None = None
    """Ends the wait for a checkpoint."""


STATE = _State()
EXIT = os._exit
MAX_WAIT = 300.0
"""Seconds that the work may take to its next checkpoint after SIGTERM, or twice its longest time so far if that is more."""
LAST = 10.0
"""Seconds after which a process that neither comes to a checkpoint nor can be interrupted is ended."""


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
        STATE.asked = None


@contextmanager
def until_checkpoint(message: str = "") -> Iterator[None]:
    """Let the first signal only print `message`: the work calls `stop_if_asked` after each checkpoint.

    Signals are the main thread's: what it has said holds for work in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    STATE.message, STATE.checkpoint, STATE.longest = message, time.monotonic(), 0.0
    try:
        yield
    finally:
        STATE.message = None
        if STATE.timer is not None:
            STATE.timer.cancel()


def stop_if_asked() -> None:
    """Raise the signal that has arrived, if any; called after each checkpoint."""
    now = time.monotonic()
    STATE.longest, STATE.checkpoint = max(STATE.longest, now - STATE.checkpoint), now
    if STATE.asked is not None:
        raise Terminated if STATE.asked == signal.SIGTERM else KeyboardInterrupt


def is_asked() -> bool:
    """Whether a signal has arrived."""
    return STATE.asked is not None


def stopped_by(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that caused an error: Python turns what is raised in `__set_name__`, within an import, into RuntimeError."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    return cause


def _handle(number: int, frame: FrameType | None) -> None:
    first, now = STATE.asked is None, time.monotonic()
    if first:
        STATE.asked, STATE.when = number, now
    if first and STATE.message is not None:
        threading.Thread(target=_write, args=(STATE.message,), daemon=True).start()  # who draws a bar may hold its lock
        if number == signal.SIGTERM:
            _after(max(MAX_WAIT, 2.0 * STATE.longest), _hurry)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    elif first or now - STATE.when > 1.0:  # a scheduler's SIGTERM may arrive twice, to the group and from its leader
        if STATE.message is not None:
            _after(LAST, lambda: EXIT(128 + signal.SIGTERM))  # an environment may swallow what is raised
        raise Terminated


def _after(seconds: float, what: Callable[[], None]) -> None:
    if STATE.timer is not None:
        STATE.timer.cancel()
    STATE.timer = threading.Timer(seconds, what)
    STATE.timer.daemon = True
    STATE.timer.start()


def _hurry() -> None:
    """The next checkpoint does not come, perhaps because an environment hangs: interrupt the main thread."""
    if STATE.message is not None:
        _write("vpac: no checkpoint was reached in time: stopping at once" if STATE.message else "")
        _after(LAST, lambda: EXIT(128 + signal.SIGTERM))
        os.kill(os.getpid(), signal.SIGTERM)


def _write(text: str) -> None:
    """A line on standard error, above a progress bar if there is one."""
    with suppress(OSError, ValueError):
        print(text, end="\n" if text else "", file=sys.stderr, flush=True)


@contextmanager
def no_silent_exit(complain: Callable[[str], object]) -> Iterator[None]:
    """Let `os._exit`, `sys.exit` and C's `exit` in other people's code be failures of the command: its work is not done."""
    mine = os.getpid()

    def leave(status: int, called: str = "os._exit({})") -> NoReturn:
        if os.getpid() == mine:
            show_stderr()
            complain(f"something in this process, perhaps the environment, has called {called.format(repr(status))}")
            status = status or 1
        EXIT(status)

    os._exit = leave
    try:
        with at_native_exit(lambda: leave(1, "exit of the C library")):
            yield
    except SystemExit as error:
        complain(f"something in this process, perhaps the environment, has called sys.exit({error.code!r})")
        raise SystemExit(error.code if isinstance(error.code, int) and error.code else 1) from None
    finally:
        os._exit = EXIT


def _unraisable(hook: Callable[[Any], object], what: Any) -> None:
    """Exit if a signal was raised in a callback from native code, where exceptions are dropped."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        EXIT(128 + (STATE.asked or signal.SIGINT))
    hook(what)
