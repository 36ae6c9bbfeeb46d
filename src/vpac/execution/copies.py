"""Checkpoints of a run whose store is a bucket: a folder of this machine, filled from the bucket and copied to it.

A checkpoint may be a folder of files. The one that says what the others are, `agent.json`, is copied last and deleted first: a
folder that has none was not copied whole, or was about to go, and is not looked at.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from vpac.deep.saved import AGENT
from vpac.execution.scratch import Scratch

if TYPE_CHECKING:
    from vpac.execution.objects import Objects

__all__ = ["Copied"]

NOT_HERE = (-1, -1)
"""The state of a copy that this machine has no file of."""


class Copied(Scratch):
    """A folder of this machine with a copy in a bucket."""

    def __init__(self, place: Objects, key: str) -> None:
        super().__init__(Path())
        self._place, self._key = place, key
        self._known: dict[str, tuple[int, int]] = {}

    @cached_property
    def folder(self) -> Path:
        """A temporary one, with what the bucket has and is whole."""
        folder = Path(tempfile.mkdtemp(prefix="vpac-"))
        names = [key.removeprefix(f"{self._key}/") for key in self._place.keys(self._key)]
        whole = {name.rpartition("/")[0] for name in names if name.endswith(f"/{AGENT}")} | {""}
        for name in names:
            self._known[name] = NOT_HERE
            if name.rpartition("/")[0] in whole and _is_ours(name):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._place.read(f"{self._key}/{name}"))
                self._known[name] = _state(path)
        return folder

    def keep(self) -> None:
        """Copy what is new, the oldest first, then delete what is gone."""
        paths = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}
        there = {name: path for name, path in paths.items() if _is_ours(name)}
        for name in sorted(there, key=lambda name: (_is_last(name), there[name].stat().st_mtime_ns)):
            if self._known.get(name) != _state(there[name]):
                self._known[name] = _state(there[name])
                self._place.write(f"{self._key}/{name}", there[name].read_bytes())
        for name in sorted(self._known.keys() - there.keys(), key=lambda name: not _is_last(name)):
            self._place.remove(f"{self._key}/{name}")
            del self._known[name]

    def clear(self) -> None:
        """Delete the copies."""
        for key in self._place.keys(self._key):
            self._place.remove(key)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The temporary folder goes, the copies stay."""
        if "folder" in vars(self):
            shutil.rmtree(self.folder, ignore_errors=True)


def _is_last(name: str) -> bool:
    """Whether it is the file of a folder that says what the others are."""
    return name.endswith(f"/{AGENT}")


def _is_ours(name: str) -> bool:
    """Whether it leads to a file below the folder, and none that is still being written."""
    return not any(part.startswith(".") or part == "" or "\0" in part for part in name.split("/"))


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
