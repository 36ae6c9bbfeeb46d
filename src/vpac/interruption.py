"""Signals that stop a process: Ctrl-C (SIGINT), and SIGTERM, which schedulers send before they kill it.

Both raise in the main thread, so that everything is cleaned up. Within `until_checkpoint` the first one only sets a flag: work
with checkpoints continues to the next one and stops there, in `stop_if_asked`. A second one stops at once.

Python calls no handler while the main thread computes in native code, and an environment may swallow the exception: a thread
also receives the signals, prints what happens, and ends the process if nothing else does.
"""

from __future__ import annotations

import os
import signal
import socket
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
    """The first signal that arrived."""
    message: str | None = None
    """Text that is printed for the first signal instead of raising it; None: raise."""
    printed: bool = False
    """Whether it has been printed."""
    when: float = 0.0
    """The time of the signal."""
    checkpoint: float = 0.0
    """The time of the last checkpoint, or of the start of the work."""
    longest: float = 0.0
    """Longest time between two checkpoints so far, in seconds."""
    timer: threading.Timer | None = None
    """Ends the wait for a checkpoint."""


INTERRUPTION = _State()
LOCK = threading.Lock()
EXIT = os._exit
MAX_WAIT = 300.0
"""Seconds that the work may take to its next checkpoint after SIGTERM, or twice its longest time so far if that is more."""
LAST = 10.0
"""Seconds after which a process that neither reaches a checkpoint nor can be interrupted is ended."""
TWICE = 1.0
"""Seconds within which a second SIGTERM counts as the first: a scheduler may send it to the group and to its leader."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # the child's signals are not ours


@contextmanager
def handled(signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[None]:
    """Raise signals as `KeyboardInterrupt` and `Terminated` within this context; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    INTERRUPTION.asked, INTERRUPTION.message, INTERRUPTION.printed = None, None, False
    before = {number: signal.getsignal(number) for number in signals}
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    threading.Thread(target=_listen, args=(reader, signals), daemon=True).start()
    listener = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    hook, sys.unraisablehook = sys.unraisablehook, partial(_unraisable, sys.unraisablehook)
    try:
        for number in signals:
            signal.signal(number, _handle)  # last: a signal before this has its earlier effect
        yield
    finally:
        sys.unraisablehook = hook
        signal.set_wakeup_fd(listener)
        writer.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        INTERRUPTION.asked = None


@contextmanager
def until_checkpoint(message: str = "") -> Iterator[None]:
    """Let the first signal only print `message`: the work calls `stop_if_asked` after each checkpoint.

    Only the main thread receives signals; the flag also applies to work in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    INTERRUPTION.message, INTERRUPTION.checkpoint, INTERRUPTION.longest = message, time.monotonic(), 0.0
    try:
        yield
    finally:
        if INTERRUPTION.asked is not None:
            _print_once(message)  # the checkpoint may come before the listening thread has printed it
        with LOCK:  # no timer starts after this
            INTERRUPTION.message = None
            if INTERRUPTION.timer is not None:
                INTERRUPTION.timer.cancel()


def stop_if_asked() -> None:
    """Raise the signal that has arrived, if any; called after each checkpoint."""
    now = time.monotonic()
    INTERRUPTION.longest, INTERRUPTION.checkpoint = max(INTERRUPTION.longest, now - INTERRUPTION.checkpoint), now
    if INTERRUPTION.asked is not None:
        raise Terminated if INTERRUPTION.asked == signal.SIGTERM else KeyboardInterrupt


def is_asked() -> bool:
    """Whether a signal has arrived."""
    return INTERRUPTION.asked is not None


def stopped_by(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that caused an error: Python turns what is raised in `__set_name__`, within an import, into RuntimeError."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    return cause


def _handle(number: int, frame: FrameType | None) -> None:
    first, now = INTERRUPTION.asked is None, time.monotonic()
    if first:
        INTERRUPTION.asked, INTERRUPTION.when = number, now
    if first and INTERRUPTION.message is not None:
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if first or now - INTERRUPTION.when > TWICE:
        raise Terminated


def _listen(reader: socket.socket, signals: Sequence[int]) -> None:
    """Print what happens after a signal, and bound its duration, whatever the main thread does."""
    first = None
    with reader:
        while byte := reader.recv(1):
            number, now, message = byte[0], time.monotonic(), INTERRUPTION.message
            if number not in signals or message is None:
                continue
            if first is None:
                first = now
                _print_once(message)
                if number == signal.SIGTERM:
                    _after(max(MAX_WAIT, 2.0 * INTERRUPTION.longest), _hurry)
            elif number == signal.SIGINT or now - first > TWICE:
                _after(LAST, partial(EXIT, 128 + number))


def _after(seconds: float, what: Callable[[], None]) -> None:
    with LOCK:
        if INTERRUPTION.timer is not None:
            INTERRUPTION.timer.cancel()
        if INTERRUPTION.message is not None:
            INTERRUPTION.timer = threading.Timer(seconds, what)
            INTERRUPTION.timer.daemon = True
            INTERRUPTION.timer.start()


def _hurry() -> None:
    """Interrupt the main thread if no checkpoint comes, perhaps because an environment hangs."""
    if INTERRUPTION.message is not None:
        _write("vpac: no checkpoint was reached in time: stopping at once" if INTERRUPTION.message else "")
        _after(LAST, partial(EXIT, 128 + signal.SIGTERM))
        os.kill(os.getpid(), signal.SIGTERM)


def _print_once(message: str) -> None:
    if not INTERRUPTION.printed:
        INTERRUPTION.printed = True
        _write(message)


def _write(text: str) -> None:
    """Print a line on standard error, above a progress bar if there is one."""
    with suppress(OSError, ValueError):
        print(text, end="\n" if text else "", file=sys.stderr, flush=True)


@contextmanager
def no_silent_exit(print_error: Callable[[str], object]) -> Iterator[None]:
    """Turn `os._exit`, `sys.exit` and C's `exit` in other code into failures of the command, whose work is not finished."""
    mine = os.getpid()

    def leave(status: int, called: str = "os._exit({})") -> NoReturn:
        if os.getpid() == mine:
            show_stderr()
            print_error(f"something in this process, perhaps the environment, has called {called.format(repr(status))}")
            status = status or 1
        EXIT(status)

    os._exit = leave
    try:
        with at_native_exit(lambda: leave(1, "exit of the C library")):
            yield
    except SystemExit as error:
        print_error(f"something in this process, perhaps the environment, has called sys.exit({error.code!r})")
        raise SystemExit(error.code if isinstance(error.code, int) and error.code else 1) from None
    finally:
        os._exit = EXIT


def _unraisable(hook: Callable[[Any], object], what: Any) -> None:
    """Exit if a signal was raised in a callback from native code, where exceptions are dropped."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        EXIT(128 + (INTERRUPTION.asked or signal.SIGINT))
    hook(what)
