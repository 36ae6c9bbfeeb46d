"""How verbs speak: tables for people, JSON for programs."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

__all__ = ["next_step", "refuse", "say", "show"]


def show(data: Any, *tables: Any) -> None:
    """Print data as JSON, or the tables if there is none."""
    if data is not None:
        print(json.dumps(data, indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Plain()
    for table in tables:
        console.print(table)


def say(text: str, quiet: bool) -> None:
    """A line for people; where standard output is for programs it goes to standard error."""
    print(text, file=sys.stderr if quiet else sys.stdout)


def next_step(quiet: bool, *words: Any, env: str = "") -> None:
    """The command that is worth typing next; programs are not told.

    Args:
        quiet: whether standard output is for programs.
        words: of the command, without `vpac`.
        env: the environment of the run that it is about: an import path has to be named again.
    """
    if not quiet:
        again = ["--env", env] if ":" in env else []
        print(f"next: {shlex.join(['vpac', *map(str, words), *again])}")


def refuse(message: str) -> int:
    """Name a user's mistake; returns the exit code."""
    print(f"vpac: {message}", file=sys.stderr)
    return 2
