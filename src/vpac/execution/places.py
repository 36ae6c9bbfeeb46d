"""Places that can keep runs. A store thinks in keys like `runs/NAME/run.json`; a place knows how to keep bytes under them.

`local.Local` is a folder, of this machine or of a file system that machines share; `objects.Objects` a bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from vpac.errors import UserError
from vpac.execution.scratch import Scratch
from vpac.files import LARGEST

__all__ = ["PART", "RECORD", "Place", "place_at"]

RECORD, PART = "run.json", ".part"
"""The file that says what a folder of a run holds; how folders that are not whole yet end."""


class Place(Protocol):
    """Where a store keeps its bytes. What goes wrong is an `OSError`."""

    address: str
    """What names it, on this machine and on others."""
    readers: int
    """How many reads at a time pay."""

    def prepare(self, reading: bool = False) -> None:
        """Make sure that it can be used, or only read, or say why not with a `UserError`."""

    def read(self, key: str, most: int = LARGEST) -> bytes:
        """What is kept under a key; `FileNotFoundError` if nothing is, `Unreadable` if that cannot be known now, EFBIG if it
        has more bytes than that, found before they are read."""

    def write(self, key: str, content: bytes) -> None:
        """Keep it, whole or not at all."""

    def create(self, key: str, content: bytes) -> bool:
        """Keep it unless something is there; returns whether nothing was."""

    def remove(self, key: str) -> None:
        """What is kept under a key, if anything is."""

    def files(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted."""

    def folders(self, folder: str) -> dict[str, int]:
        """Names of the folders of runs that are whole, each with a number that changes when its record does."""

    def has(self, folder: str) -> bool:
        """Whether there is a folder of a run, and whole."""

    def commit(self, folders: Mapping[str, dict[str, bytes]]) -> None:
        """Keep all files of a folder or none, the record last; when it returns, all folders are durable.

        A folder that is there already stays as it is: the first one wins.
        """

    def move(self, folder: str, target: str) -> None:
        """Give a folder another name."""

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold a run, if the place can, so that nobody else runs it, too; yields whether nobody did."""

    def scratch(self, folder: str) -> Scratch:
        """A folder for checkpoints."""

    def tidy(self) -> None:
        """Remove what processes that were killed left."""


def place_at(address: Path | str) -> Place:
    """The place of that name: `s3://BUCKET/PREFIX`, else a folder."""
    scheme, slashes, _ = str(address).partition("://")
    if not slashes:
        from vpac.execution.local import Local

        return Local(Path(address))
    if scheme != "s3":
        raise UserError(f"cannot keep runs in {address}: expected a folder or s3://BUCKET/PREFIX")
    from vpac.execution.objects import Objects

    return Objects(str(address))
