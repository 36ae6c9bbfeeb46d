"""Compilation of the learners' functions.

`compiled` functions are called from Python and cached on disk; `inlined` ones become part of their callers, `shared` ones are
called. LLVM does the inlining: Numba's own would repeat its analysis for every call. None of them may create arrays: they get
all they need as arguments. So no references to arrays are counted, which would take most of the time of a loop whose steps
take less than 100 ns.

Numba checks only a function's own file to see whether a cached compilation is valid. Ours depend on many files, so the name
of the cache folder contains a digest of all of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

from vpac import portable
from vpac.risk.measures import volatility

Function = TypeVar("Function", bound=Callable[..., Any])

JIT_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "arcp", "nsz"}, "_nrt": False}
"""Products and sums may be fused and reciprocals shared; NaN and infinity keep their meaning."""


def cache_folder() -> Path:
    """The cache folder of compilations: in NUMBA_CACHE_DIR, or in the user's cache folder."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in [*sorted(Path(__file__).parent.parent.rglob("*.py")), Path(volatility.__file__)]:
        digest.update(path.read_bytes())
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vpac" / digest.hexdigest()[:16]


FOLDER = cache_folder()


def inlined(function: Function) -> Function:
    """Compile as part of its callers."""
    result: Function = njit(forceinline=True, **JIT_OPTIONS)(function)
    return result


def shared(function: Function) -> Function:
    """Compile once for all callers: for long functions that are rarely called."""
    result: Function = njit(**JIT_OPTIONS)(function)
    return result


def compiled(function: Function) -> Function:
    """Compile at the first call, and cache the result on disk; calls release the GIL."""
    config: Any = numba.config
    result: Any = njit(**JIT_OPTIONS)(function)
    elsewhere, config.CACHE_DIR = config.CACHE_DIR, str(FOLDER)
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        result.enable_caching()
        result.compile = _one_process_at_a_time(
            result.compile, FOLDER / f"{function.__module__}.{function.__name__}.lock"
        )
    except (OSError, RuntimeError, AttributeError):  # the cache cannot be written, or Numba is disabled
        pass
    finally:
        config.CACHE_DIR = elsewhere
    return cast(Function, result)


def _one_process_at_a_time(build: Callable[[Any], Any], lock: Path) -> Callable[[Any], Any]:
    """Compile once: one process compiles a function (half a minute for the largest), the others load the result.

    The lock also keeps them from writing different compilations under one name, as Numba's cache would.
    """

    def locked(signature: Any) -> Any:
        with global_compiler_lock, ExitStack() as stack:
            with suppress(OSError):
                portable.lock(stack.enter_context(open(lock, "w")).fileno(), wait=True)
            try:
                return build(signature)
            except OSError:  # the result could not be cached, but can be used
                return build(signature)

    return locked
