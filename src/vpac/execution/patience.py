"""Reading that may fail once and not again: over a network, or while a server of files comes back."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from vpac.errors import UserError

__all__ = ["Unreadable", "patiently"]

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
