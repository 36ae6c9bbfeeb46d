"""The first thing that the command `vpac` does, and nobody else: take over the signals.

Imports take a second. Who stops the command before they are through ought not to see where Python was just then. What Python
itself does before, some 30 ms, nobody can change from here. A program that imports vpac keeps its own handlers.
"""

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import Any


def is_command(words: list[str]) -> bool:
    """Whether a process that was started with these words is `vpac` or `python -m vpac`."""
    words = words[1:]
    while words and words[0].startswith("-") and words[0] not in ("-c", "-m"):
        words = words[2 if words[0] in ("-X", "-W") else 1 :]
    return words[:2] == ["-m", "vpac"] or [os.path.splitext(os.path.basename(word))[0] for word in words[:1]] == [
        "vpac"
    ]


def _leave(number: int, frame: Any) -> None:
    """Nothing has been done yet, or everything has: there is nothing to tidy up."""
    os.write(2, b"vpac: stopped\n")
    os._exit(128 + number)


_codes: list[int] = []


def end_with(code: int) -> int:
    """The process of the command ends with this exit code, whatever Python thinks; returns the code.

    While Python ends, signals have their usual effects again: SIGTERM in these milliseconds would make a failure of what went
    well. And Python remembers a Ctrl-C that came while it compiled and ran text (as dataclasses have it do), also when it was
    dealt with, and kills itself with SIGINT at the end. So nothing is left for Python to do.
    """
    _codes.append(code)
    return code


def _end() -> None:
    """After everything else that is done at the end, because it was registered first."""
    if _codes:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(_codes[-1])


if is_command(sys.orig_argv):
    atexit.register(_end)
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, _leave)
