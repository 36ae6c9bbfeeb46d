"""Differences between Linux, macOS and Windows: locks, cores, file flags, durability, signal masks, native output.

No other module asks for the system, and this one tests for features only. Processes are spawned everywhere.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    fcntl: Any = importlib.import_module("fcntl")
except ModuleNotFoundError:  # Windows
    fcntl = None
msvcrt: Any = None if fcntl else importlib.import_module("msvcrt")

BINARY, CLOEXEC, NOFOLLOW, NONBLOCK = (
    getattr(os, name, 0) for name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK")
)
"""Flags of `os.open`, 0 where the system does not have them."""
FOLDERS_OPEN = hasattr(os, "O_DIRECTORY")
"""Whether a folder can be opened, to lock it or to sync it."""
_syncfs: Any = None
with suppress(TypeError, OSError, AttributeError):
    _syncfs = ctypes.CDLL(None, use_errno=True).syncfs
LOCK_OFFSET = 2**31 - 1
"""Largest offset of a locked byte: some file systems support no larger ones."""
HELD = ".held"
"""The file that is locked in place of its folder where folders cannot be opened."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_held(folder: Path) -> int:
    """A descriptor of a folder, for `lock`."""
    return (
        os.open(folder, os.O_RDONLY) if FOLDERS_OPEN else os.open(folder / HELD, os.O_RDWR | os.O_CREAT | BINARY, 0o666)
    )


def lock(handle: int, *, wait: bool = False) -> None:
    """Lock a whole file or folder against other processes; without waiting, `BlockingIOError` if another holds it."""
    if fcntl is None:
        lock_byte(handle, 0, wait=wait)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def lock_byte(handle: int, offset: int, *, wait: bool = False) -> None:
    """Lock one byte of a file, which need not exist; the system releases the lock when this process ends."""
    if fcntl is None:
        os.lseek(handle, offset % LOCK_OFFSET, os.SEEK_SET)
        while True:
            try:
                return msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[no-any-return]
            except OSError as error:
                if not wait:  # otherwise it has tried for ten seconds, and tries again
                    raise BlockingIOError(error.errno, error.strerror) from None
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, offset)
    except PermissionError as error:  # the error of some systems
        raise BlockingIOError(error.errno, error.strerror) from None
    return None


def unlock_byte(handle: int, offset: int) -> None:
    """Undo `lock_byte`."""
    if fcntl is None:
        os.lseek(handle, offset % LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.lockf(handle, fcntl.LOCK_UN, 1, offset)


def sync_file_system(witness: int) -> bool:
    """Sync the file system of a descriptor; False if this system cannot."""
    if _syncfs is None:
        return False
    if _syncfs(witness):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True


def is_read_only(folder: Path) -> bool:
    """Whether the file system of a folder is mounted read-only, if known."""
    return hasattr(os, "statvfs") and bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C for threads and processes started within this context, where signals have masks."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def at_native_exit(call: Callable[[], object]) -> Iterator[None]:
    """Call a function if native code ends this process within this context with C's `exit`, which Python does not see.

    Only with glibc: other C libraries may not unregister the function, and call it after Python has gone.
    """
    try:
        library = ctypes.CDLL(None)
        register, take_back, _ = (library[name] for name in ("__cxa_atexit", "__cxa_finalize", "gnu_get_libc_version"))
    except (TypeError, OSError, AttributeError):
        yield
        return
    within, mine = True, os.getpid()

    def at_exit(_: object) -> None:
        if within and os.getpid() == mine:
            call()

    owner, function = ctypes.c_char(), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(at_exit)
    register(function, None, ctypes.byref(owner))
    try:
        yield
    finally:
        within = False
        take_back(ctypes.byref(owner))  # which also calls it


class _Capture:
    """Captures standard error, also of native code, in a file."""

    def __init__(self) -> None:
        self.real = os.dup(2)  # fails if standard error is closed: there is no file to close yet
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        os.dup2(self.file.fileno(), 2)

    def show(self, printed: set[bytes]) -> None:
        """Print the captured lines that are not in `printed`, and stop capturing."""
        with self.file:  # closed even if a signal interrupts this
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os.dup2(self.real, 2)
            os.close(self.real)
            self.file.seek(0)
            for line in self.file:
                if line not in printed:
                    printed.add(line)
                    os.write(2, line)


_printed: set[bytes] | None = None
_capture: _Capture | None = None
_capture_lock = threading.Lock()


def deduplicate_stderr() -> None:
    """Enable `deduplicated_stderr`: in commands and their workers. A library leaves streams alone."""
    global _printed
    _printed = set()


def show_stderr() -> None:
    """Print what `deduplicated_stderr` has captured; outside of one, do nothing."""
    global _capture
    capture, _capture = _capture, None
    if capture is not None:
        capture.show(set() if _printed is None else _printed)


@contextmanager
def deduplicated_stderr() -> Iterator[None]:
    """Print each line of standard error once, also of native code, at the end of this context.

    Nested in another one, in this thread or another, it does nothing.
    """
    global _capture
    if _printed is None or not _capture_lock.acquire(blocking=False):
        yield
        return
    try:
        with suppress(OSError):  # standard error is closed
            _capture = _Capture()
        yield
    finally:
        show_stderr()
        _capture_lock.release()
