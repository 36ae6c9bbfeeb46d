"""One live display for a whole study: runs done, failed and left, speed, time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vpac.execution.study import Plan
    from vpac.execution.worker import Outcome

__all__ = ["Display"]


class Display:
    """A progress bar over all runs of all plans. Experiments share runs: those count where they are met first."""

    def __init__(self, plans: Sequence[Plan], quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.of = {run.name: plan.experiment.name for plan in reversed(plans) for run in plan.all()}
        """The experiment that a run is shown under."""
        self.total = len(self.of)
        self.seen: set[str] = set()
        self.failed, self.fresh, self.begun = 0, 0, time.monotonic()
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[how]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )  # fmt: skip
        self._bar = Progress(*columns, console=Console(stderr=True), disable=quiet)
        self._task = self._bar.add_task("studies", total=self.total, how="")

    def __enter__(self) -> Display:
        self._bar.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._bar.__exit__(*reason)

    def tell(self, outcome: Outcome) -> None:
        """A run is through."""
        self.seen.add(outcome.name)
        if outcome.seconds:
            self.fresh += 1
        self.failed += not outcome.well
        speed = self.fresh / max(time.monotonic() - self.begun, 1e-9)
        failed = f"[red]{self.failed} failed[/red] · " if self.failed else ""
        how = f"{failed}{self.total - len(self.seen)} left · {speed:.1f} runs/s"
        self._bar.update(self._task, completed=len(self.seen), how=how, description=self.of[outcome.name])
