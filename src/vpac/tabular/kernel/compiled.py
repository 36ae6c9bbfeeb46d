"""How functions of the learners are compiled.

`compiled` functions are called from Python and kept on disk; `inlined` ones become part of their callers, `shared` ones are
called. LLVM does the inlining: Numba's own would repeat its analysis for every call. None of them may make arrays: they get
all they need as arguments. So nobody counts references to arrays, which would take most of the time of a loop whose steps
take less than 100 ns.

Numba looks only at a function's own file to see whether a stored compilation is still good. Ours are made of many files,
so the folder they are stored in carries a digest of all of them. What is in it is checked when it is read (`caching.py`).

Numba stores an index and a file for each compilation, without checksums. Here each ends with the SHA-256 of what is before it,
which Numba does not look at. A file that does not pass is as good as none: the function is compiled anew and stored over it.
Files are named after what they hold, so that two processes that compile different things at once never write under one name.
Of processes that need the same function one compiles it, half a minute for the largest; the others wait for what it stores.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile

from vpac.risk import volatility

SEAL = hashlib.sha256().digest_size
PATIENCE, LOOK = 300.0, 0.05
"""Seconds for which a process waits for another that compiles the same function, and between looks; then it does it itself."""


class _Files(IndexDataCacheFile):
    """The index and the compilations of one function."""

    def save(self, key: Any, data: Any) -> None:
        """The compilation first: what the index names is there."""
        name = self._data_name(int(hashlib.sha256(repr(key).encode()).hexdigest()[:15], 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})

    def _load_index(self) -> Any:
        return super()._load_index() if _is_sound(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        if not _is_sound(self._data_path(name)):
            raise OSError(f"{name} is not what was written")  # which Numba takes for a file that is not there
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


class CheckedCache(FunctionCache):
    """What is stored of one function. A disk on which nothing can be stored costs time and nothing else."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        impl = self._impl
        self._cache_file = _Files(self.cache_path, impl.filename_base, impl.locator.get_source_stamp())
        self._lock = f"{self._cache_file._index_path}.lock"
        self._held: list[int] = []

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is stored, perhaps by a process that has just compiled it; None: it is ours to compile, until `let_go`."""
        found = super().load_overload(sig, target_context)
        if found is None:
            self._wait()
            found = super().load_overload(sig, target_context)
        return found

    def let_go(self) -> None:
        """It is stored, or there was an error: whoever waits may look."""
        while self._held:
            os.close(self._held.pop())

    def _wait(self) -> None:
        """Until nobody else compiles this function."""
        end = time.monotonic() + PATIENCE
        with suppress(OSError):
            handle = os.open(self._lock, os.O_CREAT | os.O_RDWR, 0o600)
            self._held.append(handle)
            while time.monotonic() < end:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(LOOK)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compilation."""
        with suppress(OSError):
            super().save_overload(sig, data)


def _is_sound(path: str) -> bool:
    """Whether a file can be read and ends with the checksum of the rest."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return False
    return len(content) > SEAL and hashlib.sha256(content[:-SEAL]).digest() == content[-SEAL:]


Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "arcp", "nsz"},
    "_nrt": False,
}
"""Products and sums may be fused and reciprocals shared; numbers that are not finite keep their meaning."""


def cache_folder() -> Path:
    """Where compilations are stored: in NUMBA_CACHE_DIR, or in the user's cache folder."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in [*sorted(Path(__file__).parent.parent.rglob("*.py")), Path(volatility.__file__)]:
        digest.update(path.read_bytes())
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vpac" / digest.hexdigest()[:16]


FOLDER = cache_folder()


def inlined(function: Function) -> Function:
    """Compile as a part of whatever calls it."""
    result: Function = njit(forceinline=True, **OPTIONS)(function)
    return result


def shared(function: Function) -> Function:
    """Compile once, for all that call it: for long functions whose calls are rare."""
    result: Function = njit(**OPTIONS)(function)
    return result


def compiled(function: Function) -> Function:
    """Compile when it is first called, and store the result; calls release the GIL."""
    config: Any = numba.config
    result: Any = njit(**OPTIONS)(function)
    elsewhere = config.CACHE_DIR
    config.CACHE_DIR = str(FOLDER)
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        result._cache = CheckedCache(function)
        result.compile = _letting_go(result.compile, result._cache)
    except OSError:  # nowhere to store it: compile anew in each process
        pass
    finally:
        config.CACHE_DIR = elsewhere
    return cast(Function, result)


def _letting_go(build: Callable[[Any], Any], cache: CheckedCache) -> Callable[[Any], Any]:
    @wraps(build)
    def whatever_happens(signature: Any) -> Any:
        try:
            return build(signature)
        finally:
            cache.let_go()

    return whatever_happens
