"""How verbs speak: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["refuse", "say", "show"]


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


def refuse(message: str) -> int:
    """Name a user's mistake; returns the exit code."""
    print(f"vpac: {message}", file=sys.stderr)
    return 2
