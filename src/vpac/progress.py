"""A bar for what takes more than two seconds, on standard error."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from vpac.tabular.agents import Learner

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


class Bar:
    """A bar that any thread may tell: episodes per second, time left, mean and variance of recent returns.

    Args:
        total: episodes of all runs.
        already: how many of them were learned before it began.
        quiet: show nothing.
    """

    def __init__(self, total: int, already: int = 0, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), disable=quiet)
        self._task = self._bar.add_task("training", total=total, completed=already, speed="")
        self._lock, self._already, self._start = threading.Lock(), already, time.monotonic()
        self._seen: dict[int, int] = {}
        self._recent: deque[float] = deque(maxlen=500)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._bar.__exit__(*reason)

    def tell(self, learner: Learner) -> None:
        """A learner has come further."""
        with self._lock:
            new = learner.returns[self._seen.get(learner.seed, 0) :]
            self._seen[learner.seed] = learner.episodes
            self._recent.extend(new.tolist())
            done = sum(self._seen.values())
            speed = f"{(done - self._already) / max(time.monotonic() - self._start, 1e-9):,.0f} episodes/s"
            recent = np.array(self._recent)
            text = f"mean {recent.mean():.4g}, variance {recent.var():.4g}" if len(recent) else ""
            self._bar.update(self._task, completed=done, speed=speed, description=text)


@contextmanager
def steps(title: str, total: int, quiet: bool) -> Iterator[Callable[..., None]]:
    """A bar of so many steps; call what is yielded at the beginning of each with what it is about, if that changes."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    quiet = quiet or not console.is_terminal  # where nothing can be taken back an empty line would be left of it
    with Progress(*columns, console=console, disable=quiet, transient=True) as bar:
        task = bar.add_task(title, total=total)

        def step(what: str = "") -> None:
            bar.update(task, advance=1, description=f"{title}: {what}" if what else None)

        yield step
