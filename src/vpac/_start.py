"""Handle signals from the first moment of the command `vpac`: imports take a second, and Ctrl-C would print a traceback.

A program that imports vpac keeps its own handlers.
"""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any


def is_command(words: list[str]) -> bool:
    """Whether a process that was started with these words is `vpac` or `python -m vpac`."""
    words = words[1:]
    while words and words[0].startswith("-") and words[0] not in ("-c", "-m"):
        words = words[2 if words[0] in ("-X", "-W") else 1 :]
    return words[:2] == ["-m", "vpac"] or (bool(words) and os.path.splitext(os.path.basename(words[0]))[0] == "vpac")


def _leave(number: int, frame: Any) -> None:
    """Exit at once: there is nothing to clean up yet."""
    os.write(2, b"vpac: stopped\n")
    os._exit(128 + number)


_codes: list[int] = []


def end_with(code: int, within: float | None = None) -> int:
    """End the process with this exit code, whatever happens while Python shuts down; returns the code.

    Python restores the default handlers before that, and kills itself with SIGINT if one arrived while it compiled text. It
    also waits for threads, which may compute for hours: `within` is the most seconds that it may wait.
    """
    _codes.append(code)
    if within is not None and is_command(sys.orig_argv):
        timer = threading.Timer(within, _end)
        timer.daemon = True
        timer.start()
    return code


def _end() -> None:
    """Exit after all other exit handlers: this one was registered first."""
    if _codes:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(_codes[-1])


if is_command(sys.orig_argv):
    atexit.register(_end)
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, _leave)
