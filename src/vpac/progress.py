"""Progress on standard error: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import itertools
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
"""Seconds before the bar of an evaluation appears."""
FIRST_LINE, LINE_EVERY = 10.0, 30.0
"""Seconds before the first line without a terminal, and between lines."""


class ProgressLines:
    """Lines on standard error instead of a bar, without a terminal: time, share, time left, and further information."""

    def __init__(self, total: int, unit: str, already: int = 0, quiet: bool = False) -> None:
        self._total, self._unit, self._already = total, unit, already
        self._begun = time.monotonic()
        self._due = float("inf") if quiet or sys.stderr.isatty() else self._begun + FIRST_LINE

    def tell(self, done: int, words: str = "") -> None:
        """Set the progress; prints a line if it is time for one."""
        now = time.monotonic()
        if now < self._due or done <= self._already:
            return
        self._due = now + LINE_EVERY
        left = timedelta(seconds=round((self._total - done) * (now - self._begun) / (done - self._already)))
        share = f"{done / self._total:.0%} ({done:,} of {self._total:,} {self._unit})"
        parts = filter(None, (time.strftime("%H:%M:%S"), share, f"{left} left", words))
        print("  ".join(parts), file=sys.stderr, flush=True)


class ProgressBar(ProgressLines):
    """A bar on standard error if it is a terminal, otherwise lines.

    `delay`: seconds before the bar appears; such a bar is removed at the end.
    """

    def __init__(self, total: int, unit: str, already: int = 0, quiet: bool = False, delay: float = 0.0) -> None:
        super().__init__(total, unit, already, quiet)
        self._bar: Any = None
        self._delay = delay if sys.stderr.isatty() and not quiet else float("inf")

    def __enter__(self) -> Self:
        self._show()
        return self

    def __exit__(self, *reason: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        if self._bar is not None or time.monotonic() - self._begun < self._delay:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        title, words = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[words]"))
        columns = (title, BarColumn(bar_width=24), MofNCompleteColumn(), words, TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=self._delay > 0.0)
        self._bar.add_task(self._unit, total=self._total, completed=self._already, words="")
        self._bar.start()

    def tell(self, done: int, words: str = "", title: str = "") -> None:
        """Set the progress."""
        super().tell(done, "  ".join(filter(None, (words, title))))
        self._show()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, words=words, description=title or self._unit)


@contextmanager
def shown(progress: bool | Callable[[int, int], object], total: int, what: str) -> Iterator[Callable[[int], object]]:
    """A function to call with the number of finished episodes. A bar appears after two seconds, if wanted."""
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    with ProgressBar(total, f"episodes of {what}", quiet=not progress, delay=DELAY) as bar:
        yield bar.tell


@contextmanager
def steps(title: str, total: int, quiet: bool) -> Iterator[Callable[..., None]]:
    """A function to call at the beginning of each of `count` steps, with a new description if that changes."""
    count = itertools.count()
    with ProgressBar(total, title, quiet=quiet, delay=1e-9) as bar:
        yield lambda what="": bar.tell(next(count), title=f"{title}: {what}" if what else "")


class Bar(ProgressBar):
    """The bar of a training, updated from any thread: episodes per second, mean and variance of recent returns.

    `total` are the episodes of all runs, `already` those before this training.
    """

    def __init__(self, total: int, already: int = 0, quiet: bool = False) -> None:
        super().__init__(total, "episodes", already, quiet)
        self._lock, self._timed = threading.Lock(), False
        self._seen: dict[int, int] = {}
        self._recent: deque[float] = deque(maxlen=500)

    def update(self, learner: Learner) -> None:
        """Show the progress of a learner."""
        with self._lock:
            self._recent.extend(learner.returns[self._seen.get(learner.seed, 0) :].tolist())
            self._seen[learner.seed] = learner.episodes
            done, recent, now = sum(self._seen.values()), np.array(self._recent), time.monotonic()
            if not self._timed:  # the first episodes have waited for compilation
                self._timed, self._already, self._begun = True, done, now
            speed = f"{(done - self._already) / (now - self._begun):,.0f} episodes/s" if done > self._already else ""
            self.tell(done, speed, f"mean {recent.mean():.4g}, variance {recent.var():.4g}" if len(recent) else "")
