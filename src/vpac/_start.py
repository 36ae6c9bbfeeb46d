"""The first thing that the command `vpac` does, and nobody else: take over the signals.

Imports take a second. Who stops the command before they are through ought not to see where Python was just then. What Python
itself does before, some 30 ms, nobody can change from here. A program that imports vpac keeps its own handlers.
"""

import os
import signal
import sys
from typing import Any

__all__ = ["is_command"]


def is_command(words: list[str]) -> bool:
    """Whether a process that was started with these words is `vpac` or `python -m vpac`."""
    words = words[1:]
    while words and words[0].startswith("-") and words[0] not in ("-c", "-m"):
        words = words[2 if words[0] in ("-X", "-W") else 1 :]
    return words[:2] == ["-m", "vpac"] or [os.path.basename(word) for word in words[:1]] == ["vpac"]


def _leave(number: int, frame: Any) -> None:
    """Nothing has been done yet, or everything has: there is nothing to tidy up."""
    os.write(2, b"vpac: stopped\n")
    os._exit(128 + number)


if is_command(sys.orig_argv):
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, _leave)
