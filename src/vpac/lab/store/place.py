"""Reading that may fail once and not again: over a network, or while a server of files comes back.

`local.Local` is a folder, of this machine or of a file system that machines share; `objects.Objects` a bucket.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

from vpac.errors import UserError
from vpac.files import LARGEST, make_folder

__all__ = ["PART", "RECORD", "Place", "Scratch", "Unreadable", "patiently", "place_at"]

T = TypeVar("T")
NO_FILE = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENXIO,
    errno.ELOOP,
    errno.EINVAL,
    errno.EFBIG,
    errno.ENAMETOOLONG,
}
"""Errors that say what is there, or that nothing is; all others are the machine's, and may pass."""
PAUSES = (0.05, 0.2, 0.5)
"""Seconds to wait before it is tried once more."""


class Unreadable(OSError):
    """The machine could not read what is there, several times over; that says nothing about what it is. Exit code 1."""

    def __str__(self) -> str:
        return str(self.strerror)


def patiently(read: Callable[[], T], what: Path | str) -> T:
    """What `read` returns. An error of the machine's is waited for to pass; one that stays is `Unreadable`."""
    for pause in (*PAUSES, None):
        try:
            return read()
        except OSError as error:
            if error.errno in NO_FILE or isinstance(error, UserError | Unreadable):
                raise
            if pause is None:
                raise Unreadable(error.errno or errno.EIO, f"cannot read {what}: {error.strerror or error}") from None
            time.sleep(pause)
    raise AssertionError


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
        from vpac.lab.store.folder import Local

        return Local(Path(address))
    if scheme != "s3":
        raise UserError(f"cannot keep runs in {address}: expected a folder or s3://BUCKET/PREFIX")
    from vpac.lab.store.bucket import Objects

    return Objects(str(address))
