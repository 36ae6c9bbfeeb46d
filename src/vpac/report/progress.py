"""A progress bar for what takes more than two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["steps"]


@contextmanager
def steps(title: str, total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar of so many steps; call what is yielded at the beginning of each with what it is about."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task(title, total=total)

        def step(what: str) -> None:
            bar.update(task, advance=1, description=f"{title}: {what}")

        yield step
