"""How verbs speak: tables for people, JSON for programs. Whatever a name in a store holds, it is only ever text."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

__all__ = ["complain", "inert", "next_step", "refuse", "say", "show"]

CONTROLS = [*range(0x20), 0x7F, *range(0x80, 0xA0)]
HIDDEN = dict.fromkeys(CONTROLS) | dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
"""Control characters, with which a name could move the cursor or name the window, go; so do halves of characters."""
SILENT = {code: new for code, new in HIDDEN.items() if chr(code) not in "\n\t"}
ESCAPED = dict.fromkeys(HIDDEN) | {code: f"\\u{code:04x}" for code in HIDDEN if code >= 0x7F}
"""The same for JSON, which has escaped the first of them already."""
del ESCAPED[ord("\n")]


def inert(text: str) -> str:
    """Text that a terminal shows and does not obey."""
    return text.translate(SILENT)


def show(data: Any, *tables: Any) -> None:
    """Print data as JSON, or the tables if there is none."""
    if data is not None:
        print(json.dumps(data, indent=1, ensure_ascii=False).translate(ESCAPED))
        return
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    class Plain(Console):
        """Square brackets and colons in names are no markup, and nothing in them is obeyed."""

        def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(inert(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Plain(markup=False, emoji=False)
    for table in tables:
        console.print(table)


def say(text: str, quiet: bool) -> None:
    """A line for people; where standard output is for programs it goes to standard error."""
    print(inert(text), file=sys.stderr if quiet else sys.stdout)


def complain(message: object) -> None:
    """Say on standard error what went wrong."""
    print(inert(f"vpac: {message}"), file=sys.stderr)


def next_step(quiet: bool, *words: Any, env: str = "") -> None:
    """The command that is worth typing next; programs are not told.

    Args:
        quiet: whether standard output is for programs.
        words: of the command, without `vpac`.
        env: the environment of the run that it is about: an import path has to be named again.
    """
    if not quiet:
        again = ["--env", env] if ":" in env else []
        print(inert(f"next: {shlex.join(['vpac', *map(str, words), *again])}"))


def refuse(message: str) -> int:
    """Name a user's mistake; returns the exit code."""
    complain(message)
    return 2
