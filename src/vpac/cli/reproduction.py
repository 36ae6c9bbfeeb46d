"""What `vpac reproduce` does: run, show, write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["reproduce_theorems"]


def reproduce_theorems(folder: Path, quiet: bool = False) -> tuple[Any, Any, list[Path]]:
    """Try the theorems in every world; returns the verdicts as data, their table, and the files that were written."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from vpac.execution.theorems import try_theorems
    from vpac.experiments.theorems import WORLDS
    from vpac.report import theorems

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task("theorems on trial", total=len(WORLDS) + 1)

        def tell(world: str) -> None:
            bar.update(task, advance=1, description=f"theorems on trial: {world}")

        verdicts = try_theorems(tell)
        bar.update(task, advance=1, description="theorems on trial")
    return [v.as_dict() for v in verdicts], theorems.table(verdicts), theorems.write(verdicts, folder)
