"""Folders that are made, opened, renamed and removed while other processes do the same."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from vpac.errors import UserError
from vpac.files import (
    LARGEST,
    cannot_write,
    make_folder,
    read_bytes,
    sync_file,
    sync_folder,
    sync_folders,
    write_bytes,
    write_new,
)
from vpac.lab.store.place import PART, RECORD, Scratch, Unreadable, patiently
from vpac.lab.store.run import HASH, is_name

__all__ = ["Local", "discard", "new_folder", "opened", "the_first_one_wins"]


def new_folder(path: str) -> None:
    """A folder with nothing in it; what somebody left there is removed."""
    try:
        os.mkdir(path)
    except FileExistsError:
        discard(path)
        os.mkdir(path)


def discard(path: Path | str) -> None:
    """Remove a folder with all that is in it; of a link the link alone."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


@contextmanager
def opened(folder: str) -> Iterator[int]:
    """A descriptor of a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def the_first_one_wins() -> Iterator[None]:
    """A folder of that name may be there already: then it stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


FOLDERS = ("runs", "failed", "damaged", "checkpoints", "studies", "report", "figures")
LOCKS = ".locks"


class Refused(OSError, UserError):
    """Something in a store that would lead out of it, or is not what a store has there."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class Local:
    """A folder. A run is written under a temporary name and renamed: with its final name it is whole.

    On a file system that machines share, its locks must be shared, too (NFS 4; Lustre mounted with `flock`).
    """

    readers = 1

    def __init__(self, root: Path) -> None:
        self.root, self.address = root, os.fspath(root.absolute())
        self._root = os.fspath(root)
        self._locks: int | None = None
        self._last = ""
        self._look()

    def prepare(self, reading: bool = False) -> None:
        """Make the folder; who only reads finds nothing in one that is not there."""
        if not reading:
            make_folder(self.root)

    def read(self, key: str, most: int = LARGEST) -> bytes:
        """A file's content; on a file system that machines share a read may fail once and not again."""
        return patiently(lambda: self._read(key, most), f"{self.address}/{key}")

    def write(self, key: str, content: bytes) -> None:
        """Beside it first, then renamed."""
        write_bytes(self._at(key), content)

    def create(self, key: str, content: bytes) -> bool:
        """Beside it first, then linked, which fails if there is one."""
        target = self._at(key)
        make_folder(target.parent, target, len(content))
        try:
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=PART)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                sync_file(name)
                os.link(name, target)
            finally:
                os.unlink(name)
        except FileExistsError:
            return False
        except OSError as error:
            raise cannot_write(target, error, len(content)) from None
        return True

    def remove(self, key: str) -> None:
        """Unlink."""
        path = self._named(key)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise cannot_write(Path(path), error) from None

    def files(self, folder: str) -> list[str]:
        """As the folder lists them; hidden ones are not ours."""
        return sorted(
            e.name for e in self._entries(folder) if not e.name.startswith(".") and e.is_file(follow_symlinks=False)
        )

    def folders(self, folder: str) -> dict[str, int]:
        """With the time of the record, -1 if it is missing."""
        names = [
            e.name for e in self._entries(folder) if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)
        ]
        return {name: self._stamp(f"{self._root}/{folder}/{name}/{RECORD}") for name in sorted(names)}

    def has(self, folder: str) -> bool:
        """Folders get their names only when they are whole."""
        try:
            found = patiently(lambda: os.stat(self._named(folder)), f"{self.address}/{folder}")
        except Unreadable:
            raise
        except OSError:  # it is not there, or no name of ours
            return False
        return stat.S_ISDIR(found.st_mode)

    def commit(self, folders: Mapping[str, dict[str, bytes]]) -> None:
        """The caller holds the locks, so nobody else writes under the same temporary names.

        All are in one folder of the store. Nothing gets its name before it is durable.
        """
        parts: dict[str, str] = {}
        needed = sum(len(content) for files in folders.values() for content in files.values())
        target = self._named(next(iter(folders)))
        parent = target.rpartition("/")[0]
        try:
            make_folder(Path(parent), Path(target), needed)
            with opened(parent) as witness:
                for folder, files in folders.items():
                    target = self._named(folder)
                    parts[temporary := f"{parent}/.{target.rpartition('/')[2]}{PART}"] = target
                    new_folder(temporary)
                    for file, content in files.items():
                        write_new(f"{temporary}/{file}", content)
                sync_folders(parts, witness)
            for temporary, target in parts.items():
                with the_first_one_wins():
                    os.rename(temporary, target)
            sync_folder(parent)
        except OSError as error:
            raise cannot_write(Path(target), error, needed) from None
        finally:
            for temporary in parts:
                discard(temporary)

    def move(self, folder: str, target: str) -> None:
        """Rename."""
        source, place = self._at(folder), self._at(target)
        make_folder(place.parent, place)
        try:
            source.rename(place)
        except OSError as error:
            raise cannot_write(place, error) from None

    @contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """One byte of one file is locked, at a place that the hash in the name decides.

        Nothing has to be tidied up: the system releases it when the process ends, however it ends.
        """
        if self._locks is None:
            make_folder(self.root)
            try:
                self._locks = os.open(self.root / LOCKS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise cannot_write(self.root / LOCKS, error) from None
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
        """Folders that are not whole, unless somebody is at them, and checkpoints of runs that are; what is not called like
        a run is not ours to remove."""
        for part in self._listed("runs"):
            name = part.removeprefix(".").removesuffix(PART)
            if part == f".{name}{PART}" and is_name(name):
                with self.lock(name) as free:
                    if free:
                        discard(self._at("runs") / part)
        for left in self._listed("checkpoints"):
            if is_name(left) and self.has(f"runs/{left}"):
                discard(self._at("checkpoints") / left)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        """None of a folder that is not there."""
        try:
            return patiently(lambda: list(os.scandir(self._named(folder))), f"{self.address}/{folder}")
        except FileNotFoundError:
            return []

    def _listed(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._at(folder))
        except FileNotFoundError:
            return []

    def _look(self) -> None:
        """What a store has at its top is a folder or a file of its own; anything else there is refused at once."""
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            raise Refused(errno.ENOTDIR, "a store is a folder, which this is not", self._root)
        for name in (*FOLDERS, LOCKS):
            path = f"{self._root}/{name}"
            try:
                mode = os.lstat(path).st_mode
            except (OSError, ValueError):  # it is not there
                continue
            if stat.S_ISLNK(mode):
                raise Refused(errno.ELOOP, "it is a symbolic link, which a store does not follow", path)
            if not (stat.S_ISREG(mode) if name == LOCKS else stat.S_ISDIR(mode)):
                raise Refused(errno.EEXIST, f"a store has a {'file' if name == LOCKS else 'folder'} of that name", path)

    def _at(self, key: str) -> Path:
        """Where a key is; one that leads out of the folder, by its words or by a symbolic link, is an `OSError`."""
        return Path(self._named(key))

    def _named(self, key: str) -> str:
        """The same as text: a store of many runs asks often."""
        path = self._root
        for part in key.split("/"):
            path = f"{path}/{part}"
            if part in ("", ".", "..") or "\0" in part:
                raise Refused(errno.EINVAL, "no name of something in a store", key)
            if os.path.islink(path):
                raise Refused(errno.ELOOP, "it is a symbolic link, which a store does not follow", path)
        return path

    def _read(self, key: str, most: int) -> bytes:
        """A file's content; the folder of the file that was read before need not be looked at once more."""
        folder, _, file = key.rpartition("/")
        if folder != self._last or file in ("", ".", "..") or "\0" in file:
            self._named(key)
            self._last = folder
        try:
            return read_bytes(f"{self._root}/{key}", most, links=False)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._named(key)  # which says what is wrong
            raise

    @staticmethod
    def _stamp(path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns
        except OSError:
            return -1
