"""Progress bars on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from vpac.tabular.agents import Learner

DELAY = 2.0
"""Seconds after which the bar of an evaluation comes up."""


FIRST, EVERY = 10.0, 30.0
"""Seconds before the first line where there is no terminal, and between lines."""


class ProgressLines:
    """Lines on standard error instead of a bar, where nothing can move: time, share, time left, and what else is known.

    Args:
        total: how much there is to do.
        unit: of what.
        already: how much of it was done before.
        quiet: show nothing.
    """

    def __init__(self, total: int, unit: str, already: int = 0, quiet: bool = False) -> None:
        self._total, self._unit, self._already = total, unit, already
        self._begun = time.monotonic()
        self._due = float("inf") if quiet or sys.stderr.isatty() else self._begun + FIRST

    def tell(self, done: int, words: str = "") -> None:
        """So much is done; prints a line if it is time for one."""
        now = time.monotonic()
        if now < self._due or done <= self._already:
            return
        self._due = now + EVERY
        left = timedelta(seconds=round((self._total - done) * (now - self._begun) / (done - self._already)))
        share = f"{done / self._total:.0%} ({done:,} of {self._total:,} {self._unit})"
        print(
            "  ".join(filter(None, (time.strftime("%H:%M:%S"), share, f"{left} left", words))),
            file=sys.stderr,
            flush=True,
        )


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
    lines = ProgressLines(total, f"episodes of {what}", quiet=not progress)

    def update(done: int) -> None:
        nonlocal bar, task
        lines.tell(done)
        if bar is None and progress and sys.stderr.isatty() and time.monotonic() - begun > DELAY:
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
        self._lines = ProgressLines(total, "episodes", already, quiet)
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
            self._lines.tell(done, text)
