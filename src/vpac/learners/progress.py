"""A progress bar of learning, on standard error."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from vpac.learners.learner import Learner

__all__ = ["Bar"]


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
