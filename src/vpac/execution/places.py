"""Places that can keep runs. A store thinks in keys like `runs/NAME/run.json`; a place knows how to keep bytes under them.

`Local` is a folder, of this machine or of a file system that machines share; `objects.Objects` a bucket.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from vpac.errors import UserError
from vpac.execution.run import HASH
from vpac.execution.scratch import Scratch
from vpac.files import make_folder, read_bytes, start_writing, sync_file, sync_folder, unwritable, write_bytes

__all__ = ["RECORD", "Local", "Place", "place_at"]

RECORD, PART = "run.json", ".part"
"""The file that says what a folder of a run holds; how folders that are not whole yet end."""


class Place(Protocol):
    """Where a store keeps its bytes. What goes wrong is an `OSError`."""

    address: str
    """What names it, on this machine and on others."""
    readers: int
    """How many reads at a time pay."""

    def prepare(self) -> None:
        """Make sure that it can be used, or say why not with a `UserError`."""

    def read(self, key: str) -> bytes:
        """What is kept under a key; `FileNotFoundError` if nothing is."""

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


class Local:
    """A folder. A run is written under a temporary name and renamed: with its final name it is whole.

    On a file system that machines share, its locks must be shared, too (NFS 4; Lustre mounted with `flock`).
    """

    readers = 1

    def __init__(self, root: Path) -> None:
        self.root, self.address = root, os.fspath(root.absolute())
        self._root = os.fspath(root)
        self._locks: int | None = None

    def prepare(self) -> None:
        """Make the folder."""
        make_folder(self.root)

    def read(self, key: str) -> bytes:
        """A file's content."""
        return read_bytes(self._named(key))

    def write(self, key: str, content: bytes) -> None:
        """Beside it first, then renamed."""
        write_bytes(self._at(key), content)

    def create(self, key: str, content: bytes) -> bool:
        """Beside it first, then linked, which fails if there is one."""
        target = self._at(key)
        make_folder(target.parent)
        try:
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=PART)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                sync_file(Path(name))
                os.link(name, target)
            finally:
                os.unlink(name)
        except FileExistsError:
            return False
        except OSError as error:
            raise unwritable(target, error, len(content)) from None
        return True

    def remove(self, key: str) -> None:
        """Unlink."""
        self._at(key).unlink(missing_ok=True)

    def files(self, folder: str) -> list[str]:
        """As the folder lists them; hidden ones are not ours."""
        try:
            entries = list(os.scandir(self._at(folder)))
        except FileNotFoundError:
            return []
        return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_file(follow_symlinks=False))

    def folders(self, folder: str) -> dict[str, int]:
        """With the time of the record, -1 if it is missing."""
        try:
            entries = list(os.scandir(self._at(folder)))
        except FileNotFoundError:
            return {}
        names = [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
        return {name: self._stamp(f"{self._root}/{folder}/{name}/{RECORD}") for name in sorted(names)}

    def has(self, folder: str) -> bool:
        """Folders get their names only when they are whole."""
        try:
            return os.path.isdir(self._named(folder))
        except OSError:  # no name of ours
            return False

    def commit(self, folders: Mapping[str, dict[str, bytes]]) -> None:
        """The caller holds the locks, so nobody else writes under the same temporary names.

        Nothing gets its name before it is durable. The disk is told of all files before any of them is waited for.
        """
        parts: dict[Path, Path] = {}
        target = self.root
        try:
            for folder, files in folders.items():
                target = self._at(folder)
                temporary = target.parent / f".{target.name}{PART}"
                make_folder(target.parent)
                shutil.rmtree(temporary, ignore_errors=True)
                parts[temporary] = target
                temporary.mkdir()
                for name, content in files.items():
                    (temporary / name).write_bytes(content)
                if len(folders) > 1:
                    start_writing(temporary / name for name in files)
            for temporary, files in zip(parts, folders.values(), strict=True):
                target = parts[temporary]
                for name in files:
                    sync_file(temporary / name)
                sync_folder(temporary)
            for temporary, target in parts.items():
                with _the_first_one_wins():
                    temporary.rename(target)
            for parent in {target.parent for target in parts.values()}:
                sync_folder(parent)
        except OSError as error:
            needed = sum(len(content) for files in folders.values() for content in files.values())
            raise unwritable(target, error, needed) from None
        finally:
            for temporary in parts:
                if temporary.exists():
                    shutil.rmtree(temporary, ignore_errors=True)

    def move(self, folder: str, target: str) -> None:
        """Rename."""
        make_folder(self._at(target).parent)
        self._at(folder).rename(self._at(target))

    @contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """One byte of one file is locked, at a place that the hash in the name decides.

        Nothing has to be tidied up: the system releases it when the process ends, however it ends.
        """
        if self._locks is None:
            make_folder(self.root)
            self._locks = os.open(self.root / ".locks", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        place = int(name[-HASH:][:15], 16)
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, place)

    def scratch(self, folder: str) -> Scratch:
        """A folder of the store itself."""
        return Scratch(self._at(folder))

    def tidy(self) -> None:
        """Folders that are not whole, unless somebody is at them."""
        for part in (self.root / "runs").glob(f".*{PART}"):
            with self.lock(part.name.removeprefix(".").removesuffix(PART)) as free:
                if free:
                    shutil.rmtree(part, ignore_errors=True)
        for left in (self.root / "checkpoints").glob("*"):
            if self.has(f"runs/{left.name}"):
                shutil.rmtree(left, ignore_errors=True)

    def _at(self, key: str) -> Path:
        """Where a key is; one that leads out of the folder, by its words or by a symbolic link, is an `OSError`."""
        return Path(self._named(key))

    def _named(self, key: str) -> str:
        """The same as text: a store of many runs asks often."""
        path = self._root
        for part in key.split("/"):
            path = f"{path}/{part}"
            if part in ("", ".", "..") or "\0" in part:
                raise OSError(errno.EINVAL, "no name of something in a store", key)
            if os.path.islink(path):
                raise OSError(errno.ELOOP, "it is a symbolic link, which a store does not follow", path)
        return path

    @staticmethod
    def _stamp(path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns
        except OSError:
            return -1


@contextmanager
def _the_first_one_wins() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def place_at(address: Path | str) -> Place:
    """The place of that name: `s3://BUCKET/PREFIX`, else a folder."""
    scheme, slashes, _ = str(address).partition("://")
    if not slashes:
        return Local(Path(address))
    if scheme != "s3":
        raise UserError(f"cannot keep runs in {address}: expected a folder or s3://BUCKET/PREFIX")
    from vpac.execution.objects import Objects

    return Objects(str(address))
