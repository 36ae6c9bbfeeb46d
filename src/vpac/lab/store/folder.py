"""A store in a folder, which other processes and machines may use at the same time."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from vpac import files
from vpac.errors import UserError
from vpac.lab.store.backend import PART, Scratch, Unreadable, retry
from vpac.lab.store.run import HASH, is_run_name
from vpac.portable import BINARY, CLOEXEC, FOLDERS_OPEN, NOFOLLOW, lock_byte, unlock_byte

FOLDERS = ("runs", "failed", "damaged", "checkpoints", "studies", "report", "figures")
LOCKS = ".locks"


class Refused(OSError, UserError):
    """A path that leads out of a store, or something in a store that does not belong there."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class FolderBackend:
    """A folder. A run is written under a temporary name and then renamed: a folder with its final name is complete.

    On a file system that machines share, locks must be shared too (NFS 4; Lustre mounted with `flock`).
    """

    parallel_reads = 1

    def __init__(self, root: Path) -> None:
        self.root, self.address = root, os.fspath(root.absolute())
        self._locks: int | None = None
        self._check_layout()

    def _check_layout(self) -> None:
        """Refuse a store whose folders are links or files."""
        if self.root.exists() and not self.root.is_dir():
            raise Refused(errno.ENOTDIR, "a store is a folder, which this is not", os.fspath(self.root))
        for name in (*FOLDERS, LOCKS):
            path = os.fspath(self.root / name)
            try:
                mode = os.lstat(path).st_mode
            except (OSError, ValueError):  # it does not exist
                continue
            if stat.S_ISLNK(mode):
                raise Refused(errno.ELOOP, "it is a symbolic link, which a store does not follow", path)
            if not (stat.S_ISREG(mode) if name == LOCKS else stat.S_ISDIR(mode)):
                raise Refused(errno.EEXIST, f"a store has a {'file' if name == LOCKS else 'folder'} of that name", path)

    def prepare(self, reading: bool = False) -> None:
        """Create the folder; reading needs none."""
        if not reading:
            files.make_folder(self.root)

    def read(self, key: str, most: int = files.LARGEST_READ) -> bytes:
        """A file's content, with retries: network file systems fail now and then."""
        return retry(lambda: files.read_bytes(self._path(key), most, links=False), f"{self.address}/{key}")

    def write(self, key: str, content: bytes) -> None:
        """Write atomically."""
        files.write_bytes(self._path(key), content)

    def create(self, key: str, content: bytes) -> bool:
        """Write a temporary file and link it, which fails if the target exists."""
        target = self._path(key)
        files.make_folder(target.parent, target, len(content))
        try:
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=PART)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                files.sync_file(name)
                os.link(name, target)
            finally:
                os.unlink(name)
        except FileExistsError:
            return False
        except OSError as error:
            raise files.cannot_write(target, error, len(content)) from None
        return True

    def remove(self, key: str) -> None:
        """Unlink."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise files.cannot_write(path, error) from None

    def files(self, folder: str) -> list[str]:
        """The folder's files, except for hidden ones."""
        return [entry.name for entry in self._entries(folder) if entry.is_file(follow_symlinks=False)]

    def folders(self, folder: str) -> dict[str, int]:
        """The folder's folders, except for hidden ones, with the time of their record; -1 if it is missing."""
        found = {}
        for entry in self._entries(folder):
            if entry.is_dir(follow_symlinks=False):
                try:
                    found[entry.name] = os.stat(f"{entry.path}/{files.RECORD}").st_mtime_ns
                except OSError:
                    found[entry.name] = -1
        return found

    def has(self, folder: str) -> bool:
        """Whether the folder exists: it gets its name when it is complete."""
        try:
            found = retry(lambda: os.stat(self._path(folder)), f"{self.address}/{folder}")
        except Unreadable:
            raise
        except OSError:  # it does not exist, or is not a valid key
            return False
        return stat.S_ISDIR(found.st_mode)

    def commit(self, folders: Mapping[str, dict[str, bytes]]) -> None:
        """Write all folders, of one parent, under temporary names; sync them; rename them.

        The caller holds the locks, so that no other process writes under the same temporary names.
        """
        parts: dict[str, Path] = {}
        needed = sum(len(content) for contents in folders.values() for content in contents.values())
        target = self._path(next(iter(folders)))
        parent = target.parent
        try:
            files.make_folder(parent, target, needed)
            with ExitStack() as stack:
                handle = os.open(parent, os.O_RDONLY | CLOEXEC) if FOLDERS_OPEN else None
                if handle is not None:
                    stack.callback(os.close, handle)
                for folder, contents in folders.items():
                    target = self._path(folder)
                    temporary = f"{parent}/.{target.name}{PART}"
                    parts[temporary] = target
                    if os.path.lexists(temporary):
                        _discard(temporary)
                    os.mkdir(temporary)
                    for file, content in contents.items():
                        files.write_new(f"{temporary}/{file}", content)
                files.sync_folders(parts, handle)
            for temporary, target in parts.items():
                try:
                    os.rename(temporary, target)
                except OSError as error:
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # an existing run stays
                        raise
            files.sync_folder(parent)
        except OSError as error:
            raise files.cannot_write(target, error, needed) from None
        finally:
            for temporary in parts:
                _discard(temporary)

    def move(self, folder: str, target: str) -> None:
        """Rename."""
        source, goal = self._path(folder), self._path(target)
        files.make_folder(goal.parent, goal)
        try:
            source.rename(goal)
        except OSError as error:
            raise files.cannot_write(goal, error) from None

    @contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Lock one byte of one file, at the offset that the run's hash gives.

        The system releases the lock when the process ends, for whatever reason.
        """
        if self._locks is None:
            files.make_folder(self.root)
            try:
                self._locks = os.open(self.root / LOCKS, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC | BINARY, 0o666)
            except OSError as error:
                raise files.cannot_write(self.root / LOCKS, error) from None
        offset = int(name[-HASH:][:15], 16)
        try:
            lock_byte(self._locks, offset)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            unlock_byte(self._locks, offset)

    def scratch(self, folder: str) -> Scratch:
        """A folder of the store itself."""
        return Scratch(self._path(folder))

    def tidy(self) -> None:
        """Remove incomplete folders that no process holds, and checkpoints of stored runs. Other names are left alone."""
        for part in self._entries("runs", hidden=True):
            name = part.name.removeprefix(".").removesuffix(PART)
            if part.name == f".{name}{PART}" and is_run_name(name):
                with self.lock(name) as free:
                    if free:
                        _discard(part.path)
        for left in self._entries("checkpoints"):
            if is_run_name(left.name) and self.has(f"runs/{left.name}"):
                _discard(left.path)

    def _entries(self, folder: str, hidden: bool = False) -> list[os.DirEntry[str]]:
        """The visible or the hidden entries of a folder, sorted by name; none if it does not exist."""
        try:
            entries = retry(lambda: list(os.scandir(self._path(folder))), f"{self.address}/{folder}")
        except FileNotFoundError:
            return []
        chosen = [entry for entry in entries if entry.name.startswith(".") == hidden]
        return sorted(chosen, key=lambda entry: entry.name)

    def _path(self, key: str) -> Path:
        """The path of a key; one that leads out of the store, by its parts or by a symbolic link, is `Refused`."""
        path = os.fspath(self.root)
        for part in key.split("/"):
            path = f"{path}/{part}"
            if part in ("", ".", "..") or "\0" in part:
                raise Refused(errno.EINVAL, "no name of something in a store", key)
            if os.path.islink(path):
                raise Refused(errno.ELOOP, "it is a symbolic link, which a store does not follow", path)
        return Path(path)


def _discard(path: Path | str) -> None:
    """Remove a folder with its content, if it exists; of a link only the link."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
