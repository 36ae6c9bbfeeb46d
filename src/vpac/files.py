"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from vpac.errors import UserError

__all__ = ["make_folder", "sync_file", "sync_folder", "write_atomically", "write_text"]


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file beside `path`, make it durable, and rename it into place.

    A reader sees the old file or the new one. If anything fails the old file stays and no temporary one is left.
    """
    path = Path(path)
    make_folder(path.parent, path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        sync_file(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def make_folder(folder: Path, for_file: Path | None = None) -> None:
    """Make a folder, if need be, or say that it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise UserError(f"cannot write {for_file or folder}: {error.strerror or error}") from None


def write_text(path: Path, text: str) -> Path:
    """Write a text file whole or not at all."""
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _umask() -> int:
    """The process's file mode mask; there is no way to read it but to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, after a rename for example."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
