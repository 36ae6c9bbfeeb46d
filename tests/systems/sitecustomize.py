"""Removes from every Python process what Windows does not have, and applies its rules for paths; read at start-up.

`VPAC_WINDOWS_RULES` is the folder in which names are checked.
"""

import builtins
import ctypes
import io
import os
import re
import signal
import sys
import types

HERE = os.environ.get("VPAC_WINDOWS_RULES")
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def check(path):
    """Raise as Windows does for a name that it does not allow."""
    if not isinstance(path, str | bytes | os.PathLike):
        return
    whole = os.path.abspath(os.fsdecode(path))
    if not whole.startswith(HERE):
        return
    for name in whole[len(HERE) :].split("/"):
        if re.search(r'[<>:"\\|?*\x00-\x1f]', name) or name.endswith((" ", ".")) or RESERVED.fullmatch(name):
            raise OSError(22, f"The filename, directory name, or volume label syntax is incorrect: {name!r}", whole)


def checking(function, several=False):
    def checked(path, *rest, **named):
        check(path)
        if several and rest:
            check(rest[0])
        return function(path, *rest, **named)

    return checked


def opening(function):
    """`os.open` that opens no folder."""

    def opened(path, *rest, **named):
        check(path)
        if isinstance(path, str | os.PathLike) and os.path.isdir(path) and os.path.abspath(path).startswith(HERE):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return function(path, *rest, **named)

    return opened


if HERE:
    # the standard library itself is this system's, and stays so
    import asyncio  # noqa: F401
    import fcntl as _real
    import multiprocessing.connection
    import multiprocessing.popen_spawn_posix
    import multiprocessing.resource_tracker
    import multiprocessing.shared_memory
    import multiprocessing.synchronize
    import shutil  # noqa: F401
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401

    multiprocessing.resource_tracker._HAVE_SIGMASK = False

    def locking(handle, mode, count):
        """`msvcrt.locking`, from the present position on."""
        offset = os.lseek(handle, 0, os.SEEK_CUR)
        how = {0: _real.LOCK_UN, 1: _real.LOCK_EX, 2: _real.LOCK_EX | _real.LOCK_NB}[mode]
        try:
            _real.lockf(handle, how, count, offset)
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error

    sys.modules["msvcrt"] = types.ModuleType("msvcrt")
    vars(sys.modules["msvcrt"]).update(locking=locking, LK_UNLCK=0, LK_LOCK=1, LK_NBLCK=2)
    for module in ("fcntl", "resource", "pwd", "grp", "termios", "syslog"):
        sys.modules[module] = None
    gone = (
        "sched_getaffinity",
        "statvfs",
        "sysconf",
        "getuid",
        "geteuid",
        "killpg",
        "setsid",
        "fork",
        "nice",
        "getloadavg",
    )
    for attribute in (*gone, "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "sync", "fchmod", "chown"):
        if hasattr(os, attribute):
            delattr(os, attribute)
    os.process_cpu_count = os.cpu_count  # Python 3.13's own calls `sched_getaffinity`; without it, it is this
    for attribute in ("pthread_sigmask", "SIGHUP", "SIGALRM", "SIGUSR1", "setitimer", "alarm", "sigwait"):
        delattr(signal, attribute)
    loaded = ctypes.CDLL.__init__

    def load(self, name=None, *rest, **named):
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        loaded(self, name, *rest, **named)

    ctypes.CDLL.__init__ = load
    builtins.open = io.open = checking(io.open)
    os.open, os.mkdir = opening(os.open), checking(os.mkdir)
    os.rename, os.replace = checking(os.rename, True), checking(os.replace, True)
