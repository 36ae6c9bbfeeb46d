"""Checkpoints of a run: one folder each, whole or not there; the last two are kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vpac.errors import Newer, UserError
from vpac.files import make_folder, sync_folder, unwritable

if TYPE_CHECKING:
    from vpac.deep.agent import PPO


__all__ = ["has_checkpoint", "latest_checkpoint", "write_checkpoint"]

KEPT = 2
"""How many: should the last be damaged, there is one before it."""


def write_checkpoint(agent: PPO, folder: Path) -> Path:
    """Write a checkpoint, then drop old ones."""
    from vpac.deep.storage import save

    make_folder(folder)
    name = f"{agent.iteration:08d}"
    part, place = folder / f".{name}.part", folder / name
    for left in folder.glob(".*.part"):  # of a process that was killed
        if left.is_symlink():
            left.unlink()
        shutil.rmtree(left, ignore_errors=True)
    try:
        save(agent, part)
        if place.exists():  # a run that was resumed from an older one, because this one was damaged
            shutil.rmtree(place)
        part.rename(place)
        sync_folder(folder)
    except OSError as error:
        needed = sum(path.stat().st_size for path in part.glob("*"))
        raise unwritable(place, error, needed) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for old in _all(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def _all(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("[0-9]*") if path.name.isdecimal()) if folder.is_dir() else []


def has_checkpoint(folder: Path) -> bool:
    """Whether there is one, good or not."""
    return bool(_all(folder))


def latest_checkpoint(kind: type[T], folder: Path, env: Any = None) -> tuple[T | None, list[str]] | None:
    """The agent of the last good checkpoint, or None, and what was wrong with later ones; None if there is none at all.

    One that a later version of vpac wrote is a `Newer`.
    """
    damaged: list[str] = []
    for place in reversed(_all(folder)):
        try:
            return kind.load(place, env), damaged
        except Newer:  # not damaged: to go on from the one before it would throw away what was learned
            raise
        except UserError as error:
            damaged.append(str(error))
    return (None, damaged) if damaged else None
