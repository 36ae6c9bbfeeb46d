"""A bar for what takes more than two seconds, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["shown"]

PATIENCE = 2.0
"""Seconds without a bar."""


@contextmanager
def shown(progress: bool | Callable[[int, int], object], total: int, what: str) -> Iterator[Callable[[int], object]]:
    """What to call with the number done; a bar comes up after two seconds, if one is wanted."""
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    begun, bar, task = time.monotonic(), None, None

    def tell(done: int) -> None:
        nonlocal bar, task
        if bar is None and progress and time.monotonic() - begun > PATIENCE:
            bar = _bar()
            task = bar.add_task(f"episodes of {what}", total=total)
            bar.start()
        if bar is not None:
            bar.update(task, completed=done)

    try:
        yield tell
    finally:
        if bar is not None:
            bar.stop()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
