"""A progress bar for what takes more than two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["steps"]


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
