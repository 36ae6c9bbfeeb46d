"""Folders that are made, opened, renamed and removed while other processes do the same."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["discard", "new_folder", "opened", "the_first_one_wins"]


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
