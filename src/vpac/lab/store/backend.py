"""Storage backends: what a store asks of a folder (`folder.py`) or a bucket (`bucket.py`), and retries of reads."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self, TypeVar

from vpac.errors import UserError
from vpac.files import LARGEST_READ, make_folder

T = TypeVar("T")
PART = ".part"
"""The suffix of folders that are not complete yet."""
PERMANENT = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.ENAMETOOLONG,
}  # fmt: skip
"""Errors that describe what is there, or that nothing is; all others may be temporary."""
DELAYS = (0.05, 0.2, 0.5)
"""Seconds before each retry of a read."""


class Unreadable(OSError):
    """A read failed after all retries, which says nothing about the data. The command line exits with code 1."""

    def __str__(self) -> str:
        return str(self.strerror)


def retry(read: Callable[[], T], what: str) -> T:
    """Return what `read` returns; retry on errors that may be temporary, then raise `Unreadable`."""
    for delay in (*DELAYS, None):
        try:
            return read()
        except OSError as error:
            if error.errno in PERMANENT or isinstance(error, UserError | Unreadable):
                raise
            if delay is None:
                raise Unreadable(error.errno or errno.EIO, f"cannot read {what}: {error.strerror or error}") from None
            time.sleep(delay)
    raise AssertionError


class Scratch:
    """A run's folder for checkpoints, which outlives the process. It is created on first use.

    A run writes checkpoints into `folder`, each file atomically (`vpac.files`), and calls `keep` after each. On start it
    looks there for checkpoints of earlier attempts. The folder is removed once the run is stored.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder

    @cached_property
    def folder(self) -> Path:
        """The folder, with checkpoints of earlier attempts."""
        make_folder(self._path)
        return self._path

    def keep(self) -> None:
        """Make the folder's content outlast this machine; a folder of the store itself already does."""

    def clear(self) -> None:
        """Remove the folder: the run is stored."""
        shutil.rmtree(self._path, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        """End the attempt; its checkpoints stay."""


class Backend(Protocol):
    """Place where a store keeps its bytes, by key (`runs/NAME/run.json`). Failures are `OSError`s."""

    address: str
    """Its name, the same on all machines."""
    parallel_reads: int
    """Useful number of reads at a time."""

    def prepare(self, reading: bool = False) -> None:
        """Raise a `UserError` if it cannot be used, or only read."""

    def read(self, key: str, most: int = LARGEST_READ) -> bytes:
        """The content under a key. Raises `FileNotFoundError`, `Unreadable` after retries, or EFBIG if it has more than
        `most` bytes, before they are read."""

    def write(self, key: str, content: bytes) -> None:
        """Store atomically."""

    def create(self, key: str, content: bytes) -> bool:
        """Store atomically unless the key exists; return True if it did not."""

    def remove(self, key: str) -> None:
        """Delete a key, if it exists."""

    def files(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted."""

    def folders(self, folder: str) -> dict[str, int]:
        """Names of the complete folders of runs, sorted, each with a number that changes when its record does."""

    def has(self, folder: str) -> bool:
        """Whether a complete folder of a run exists."""

    def commit(self, folders: Mapping[str, dict[str, bytes]]) -> None:
        """Store each folder's files completely or not at all; all are durable when this returns. Existing folders stay."""

    def move(self, folder: str, target: str) -> None:
        """Rename a folder."""

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Lock a run, where the backend has locks; yields False if another process holds it."""

    def scratch(self, folder: str) -> Scratch:
        """A folder for checkpoints."""

    def tidy(self) -> None:
        """Remove what killed processes left."""


def backend_at(address: Path | str) -> Backend:
    """The backend of an address: `s3://BUCKET/PREFIX`, else a folder."""
    scheme, slashes, _ = str(address).partition("://")
    if not slashes:
        from vpac.lab.store.folder import FolderBackend

        return FolderBackend(Path(address))
    if scheme != "s3":
        raise UserError(f"cannot keep runs in {address}: expected a folder or s3://BUCKET/PREFIX")
    from vpac.lab.store.bucket import BucketBackend

    return BucketBackend(str(address))
