"""Progress bars on standard error."""

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

DELAY = 2.0
"""Seconds after which the bar of an evaluation comes up."""


def _bar(*columns: Any, **options: Any) -> Any:
    """A bar of the given columns; default: what is done, how much of it, and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = columns or (BarColumn(bar_width=24), MofNCompleteColumn())
    return Progress(
        TextColumn("{task.description}"), *shown, TimeRemainingColumn(), console=Console(stderr=True), **options
    )


@contextmanager
def shown(progress: bool | Callable[[int, int], object], total: int, what: str) -> Iterator[Callable[[int], object]]:
    """A function to call with the number of episodes done. A bar comes up after two seconds, if one is wanted."""
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    begun, bar, task = time.monotonic(), None, None

    def update(done: int) -> None:
        nonlocal bar, task
        if bar is None and progress and time.monotonic() - begun > DELAY:
            bar = _bar(transient=True)
            task = bar.add_task(f"episodes of {what}", total=total)
            bar.start()
        if bar is not None:
            bar.update(task, completed=done)

    try:
        yield update
    finally:
        if bar is not None:
            bar.stop()


@contextmanager
def steps(title: str, total: int, quiet: bool) -> Iterator[Callable[..., None]]:
    """A function to call at the beginning of each of so many steps, with what the step is about if that changes."""
    bar = _bar(transient=True)
    bar.disable = quiet or not bar.console.is_terminal  # elsewhere an empty line would be left of it
    with bar:
        task = bar.add_task(title, total=total)
        yield lambda what="": bar.update(task, advance=1, description=f"{title}: {what}" if what else None)


class Bar:
    """The bar of a training, updated from any thread: episodes per second, time left, mean and variance of recent returns.

    Args:
        total: episodes of all runs.
        already: how many of them were learned before it began.
        quiet: show nothing.
    """

    def __init__(self, total: int, already: int = 0, quiet: bool = False) -> None:
        from rich.progress import BarColumn, TextColumn

        self._bar = _bar(BarColumn(), TextColumn("{task.fields[speed]}"), disable=quiet)
        self._task = self._bar.add_task("training", total=total, completed=already, speed="")
        self._lock, self._already, self._start = threading.Lock(), already, time.monotonic()
        self._seen: dict[int, int] = {}
        self._recent: deque[float] = deque(maxlen=500)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._bar.__exit__(*reason)

    def update(self, learner: Learner) -> None:
        """Show how far a learner has come."""
        with self._lock:
            new = learner.returns[self._seen.get(learner.seed, 0) :]
            self._seen[learner.seed] = learner.episodes
            self._recent.extend(new.tolist())
            done = sum(self._seen.values())
            speed = f"{(done - self._already) / max(time.monotonic() - self._start, 1e-9):,.0f} episodes/s"
            recent = np.array(self._recent)
            text = f"mean {recent.mean():.4g}, variance {recent.var():.4g}" if len(recent) else ""
            self._bar.update(self._task, completed=done, speed=speed, description=text)
