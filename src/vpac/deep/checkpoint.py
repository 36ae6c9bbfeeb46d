"""Checkpoints of a run: one folder each, whole or not there; the last two are kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vpac.errors import UserError
from vpac.files import make_folder, sync_folder

if TYPE_CHECKING:
    from vpac.deep.agent import PPO

T = TypeVar("T", bound="PPO")

__all__ = ["latest_checkpoint", "write_checkpoint"]

KEPT = 2
"""How many: should the last be damaged, there is one before it."""


def write_checkpoint(agent: PPO, folder: Path) -> Path:
    """Write a checkpoint, then drop old ones."""
    from vpac.deep.storage import save

    make_folder(folder)
    name = f"{agent.iteration:08d}"
    part, place = folder / f".{name}.part", folder / name
    shutil.rmtree(part, ignore_errors=True)
    save(agent, part)
    if place.exists():  # a run that was resumed from an older one, because this one was damaged
        shutil.rmtree(place)
    part.rename(place)
    sync_folder(folder)
    for old in _all(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def _all(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("[0-9]*") if path.name.isdecimal()) if folder.is_dir() else []


def latest_checkpoint(kind: type[T], folder: Path, env: Any = None) -> tuple[T, list[str]] | None:
    """The agent of the last whole checkpoint, and what was wrong with later ones; None if there is none."""
    damaged: list[str] = []
    for place in reversed(_all(folder)):
        try:
            return kind.load(place, env), damaged
        except UserError as error:
            damaged.append(str(error))
    if damaged:
        raise UserError(f"no checkpoint in {folder} can be read: {'; '.join(damaged)}")
    return None
