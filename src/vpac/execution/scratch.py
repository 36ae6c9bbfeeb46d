"""Where a long run leaves its checkpoints, so that whoever carries it out next goes on from the last one."""

from __future__ import annotations

import shutil
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from vpac.files import make_folder

__all__ = ["Scratch"]


class Scratch:
    """A folder of one run's own, which outlives the process that carries the run out. Runs that do not ask leave none.

    A run writes its checkpoints into `folder`, each file whole or not at all (`vpac.files`), and calls `keep` after each;
    when it begins it looks into `folder` for what an earlier attempt left. Once the run is kept, the folder is removed.
    """

    def __init__(self, folder: Path) -> None:
        self._where = folder

    @cached_property
    def folder(self) -> Path:
        """Where checkpoints are written; holds those of earlier attempts."""
        make_folder(self._where)
        return self._where

    def keep(self) -> None:
        """Make what is in the folder outlast this machine; nothing is to be done where the folder is the store's own."""

    def clear(self) -> None:
        """Remove the folder: the run is kept."""
        shutil.rmtree(self._where, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The run has ended, well or not; what it left stays."""
