"""Atomic files, untrusted files, and JSON with its own checksum."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vpac import portable
from vpac.errors import Newer, UserError

LARGEST_READ = 0x7FFFF000
"""Largest size of a file that is read; vpac writes much smaller ones."""
RECORD = "run.json"
"""File in the folder of a run or a training: what was run, where and when, with checksums of the other files."""
BLOCK_BYTES = 4096
"""Bytes that a new folder, or a file name in one, takes."""
MISTAKES = {
    errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP,
}  # fmt: skip
"""Errors that another path would avoid; all others are the machine's."""


class Unwritable(OSError):
    """The machine could not write a file: the disk is full, broken or read-only. The command line exits with code 1."""

    def __str__(self) -> str:
        return str(self.strerror)


def unwritable(path: Path | str, error: OSError, needed: int | None = None) -> OSError:
    """The error in words: the path, the reason, the space needed and the space available."""
    if isinstance(error, Unwritable):
        return error
    words = f"cannot write {path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        words += f"; it needs {BLOCK_BYTES if needed is None else needed:,} bytes{_free(Path(path))}"
    return Unwritable(error.errno or errno.EIO, words)


def _free(path: Path) -> str:
    """The free space for a file, if known."""
    for folder in path.absolute().parents:
        try:
            return f", {shutil.disk_usage(folder).free:,} are free"
        except FileNotFoundError:
            continue
        except OSError:
            break
    return ""


def write_atomically(path: Path, write: Callable[[Path], object], needed: int | None = None) -> Path:
    """Let `write` fill a temporary file beside `path`, make it durable, and rename it.

    A reader sees the old file or the new one. If anything fails the old file stays and the temporary one is removed. `needed`
    is the number of bytes, for messages.
    """
    path = Path(path)
    make_folder(path.parent, path, needed)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:80]}.", suffix=path.suffix)
    except OSError as error:
        raise cannot_write(path, error, needed) from None
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        sync_file(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error, needed) from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def cannot_write(path: Path, error: OSError, needed: int | None = None) -> Exception:
    """The error in words: the user's mistake if another path would work, else the machine's."""
    if isinstance(error, UserError):
        return error
    if error.errno in MISTAKES:
        return UserError(f"cannot write {path}: {error.strerror or error}")
    return unwritable(path, error, needed)


def make_folder(folder: Path, for_file: Path | None = None, needed: int | None = None) -> None:
    """Make a folder if needed; the error says that it, or the file for it, cannot be written, and the bytes needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            code = errno.EROFS if portable.is_read_only(folder) else errno.EACCES
            raise OSError(code, os.strerror(code))
    except OSError as error:
        raise cannot_write(for_file or folder, error, needed) from None


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file atomically."""
    return write_atomically(path, lambda temporary: temporary.write_bytes(content), len(content))


def as_parquet(frame: Any, **how: Any) -> bytes:
    """A Polars data frame, or its columns, as Parquet bytes, so that the size is known before writing."""
    import polars as pl

    file = io.BytesIO()
    (frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)).write_parquet(file, **how)
    return file.getvalue()


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically."""
    return write_bytes(path, text.encode(errors="replace"))  # "?" for parts of a file name that are not UTF-8


def write_pair(path: Path, content: bytes, note: Path, text: str) -> None:
    """Write a file and a note that has its digest, so that one consistent pair can be read at every moment.

    The rename of the note is the commit. The content is written before it, under a temporary name, and renamed after it.
    """
    digest = hashlib.sha256(content).hexdigest()
    make_folder(path.parent, path, len(content))
    waiting = _waiting(path, digest)
    try:
        write_bytes(waiting, content)
        write_text(note, text)
    except BaseException:
        if not _holds(note, text.encode()):  # otherwise the new note is in place already
            waiting.unlink(missing_ok=True)
        raise
    try:
        waiting.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error, len(content)) from None
    for left in path.parent.glob(f".{path.name}.*.new"):
        left.unlink(missing_ok=True)


def read_pair(path: Path, digest: str) -> bytes:
    """The content with this digest; a `UserError` if it is damaged."""
    for place in (path, _waiting(path, digest)):
        try:
            content = read_bytes(place)
        except FileNotFoundError:
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            return content
    words = "its checksum differs" if path.exists() else "it is missing"
    raise UserError(f"{path} is not what was written: {words}")


def _holds(path: Path, content: bytes) -> bool:
    try:
        return read_bytes(path) == content
    except OSError:
        return False


def _waiting(path: Path, digest: str) -> Path:
    return path.parent / f".{path.name}.{hashlib.sha256(digest.encode()).hexdigest()[:16]}.new"


def read_bytes(path: Path | str, most: int = LARGEST_READ, links: bool = True) -> bytes:
    """A file's content. An `OSError` before anything is read if it is not a file or larger than `most` bytes, or if it is a
    symbolic link and `links` is False (ELOOP)."""
    how = os.O_RDONLY | portable.NONBLOCK | portable.CLOEXEC | portable.BINARY  # opening a pipe could block for ever
    handle = os.open(path, how if links else how | portable.NOFOLLOW)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a file", os.fspath(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, more than {most:,}", os.fspath(path))
        parts, left = [], found.st_size
        while left and (part := os.read(handle, left)):
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(handle)


def read_input(path: Path, most: int = LARGEST_READ) -> bytes:
    """The content of a file that a user named."""
    try:
        return read_bytes(path, most)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that do the same; the system releases the lock when this process ends."""
    make_folder(folder)
    try:
        handle = portable.open_held(folder)
    except OSError as error:
        raise cannot_write(folder, error) from None
    try:
        portable.lock(handle)
    except BlockingIOError:
        os.close(handle)
        raise UserError(f"another process is writing into {folder}: choose another --out, or wait for it") from None
    except OSError as error:
        os.close(handle)
        raise unwritable(folder, error) from None
    try:
        yield
    finally:
        os.close(handle)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_new(path: str, content: bytes) -> None:
    """Write a file that does not exist yet; it is not durable before it is synced."""
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | portable.CLOEXEC | portable.BINARY
    with os.fdopen(os.open(path, how, 0o666), "wb") as file:
        file.write(content)


def sync_folders(folders: Iterable[str], witness: int | None) -> None:
    """Make folders durable, with the files directly in them.

    For many folders the whole file system is synced, where possible, instead of each file. `witness` is a descriptor of the
    file system, opened before anything was written, so that it reports every error.
    """
    folders = list(folders)
    if len(folders) > 1 and witness is not None and portable.sync_file_system(witness):
        return
    for folder in folders:
        for name in sorted(os.listdir(folder)):
            sync_file(f"{folder}/{name}")
        sync_folder(folder)


def sync_file(path: Path | str, how: int = os.O_RDWR | portable.CLOEXEC | portable.BINARY) -> None:
    """Make a file's content durable; `how` it is opened."""
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path | str) -> None:
    """Make the names in a folder durable, after a rename for example, where folders can be opened."""
    if portable.FOLDERS_OPEN:
        sync_file(folder, os.O_RDONLY)


CHECKSUM = "checksum"
BLANK = "." * 64
"""Placeholder of the checksum in a sealed text while the checksum is computed."""
LARGEST_TEXT = 2**26
"""Most characters of a text that is parsed; parsed data takes some ten times as much memory."""


def parse(content: bytes | str) -> Any:
    """Parse JSON; any error is a `ValueError`."""
    if len(content) > LARGEST_TEXT:
        raise ValueError(f"it has {len(content):,} bytes, more than {LARGEST_TEXT:,}")
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def jsonable(data: Any) -> Any:
    """Plain data for JSON: NumPy numbers become Python's, numbers that are not finite None."""
    if isinstance(data, Mapping):
        return {str(key): jsonable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [jsonable(value) for value in data]
    data = data.item() if hasattr(data, "item") else data
    return None if isinstance(data, float) and not math.isfinite(data) else data


def sealed(data: dict[str, Any], **how: Any) -> str:
    """Data as JSON with a checksum of itself; `how` are arguments of `json.dumps`."""
    blank = json.dumps({**data, CHECKSUM: BLANK}, ensure_ascii=False, **how)
    if not blank.isascii() and any("\ud800" <= c <= "\udfff" for c in blank):  # of a file's name that is not UTF-8
        blank = json.dumps({**data, CHECKSUM: BLANK}, **how)
    return blank.replace(BLANK, hashlib.sha256(blank.encode()).hexdigest())


def check_seal(content: bytes, data: Any, required: bool = True) -> None:
    """Raise a `ValueError` unless sealed content, parsed to `data`, has its checksum. Old formats have none."""
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    if CHECKSUM not in data and not required:
        return
    checksum = str(data.get(CHECKSUM, "")).encode(errors="replace")
    blank = BLANK.encode()
    if len(checksum) != len(blank) or hashlib.sha256(content.replace(checksum, blank)).hexdigest().encode() != checksum:
        raise ValueError("its checksum differs")


def check_format(content: bytes, data: Any, path: Path, newest: int, older: tuple[int, ...]) -> None:
    """Raise a `UserError` unless the file of an agent has a format that this version reads and, in the newest, a valid
    checksum; raise `Newer` if a later version wrote it."""
    found = data.get("format") if isinstance(data, dict) else None
    words = f"{path.parent} is in format {found!r:.40}: this version reads formats up to {newest}"
    later = isinstance(found, int) and found > newest
    if found not in (newest, *older) and not later:
        raise UserError(words)
    try:
        check_seal(content, data, required=found != 1)
    except ValueError as error:
        raise UserError(f"{path} is not what was written: {error}") from None
    if later:
        raise Newer(f"{words}, use a newer version")
