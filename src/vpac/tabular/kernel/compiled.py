"""How functions of the learners are compiled.

`compiled` functions are called from Python and kept on disk; `inlined` ones become part of their callers, `shared` ones are
called. LLVM does the inlining: Numba's own would repeat its analysis for every call. None of them may make arrays: they get
all they need as arguments. So no references to arrays are counted, which would take most of the time of a loop whose steps
take less than 100 ns.

Numba looks only at a function's own file to see whether a stored compilation is still good. Ours are made of many files,
so the folder they are stored in carries a digest of all of them.
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
from vpac.risk import measures

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
    for path in [*sorted(Path(__file__).parent.parent.rglob("*.py")), Path(measures.__file__)]:
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
    elsewhere, config.CACHE_DIR = config.CACHE_DIR, str(FOLDER)
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        result.enable_caching()
        result.compile = _one_process_at_a_time(
            result.compile, FOLDER / f"{function.__module__}.{function.__name__}.lock"
        )
    except (OSError, RuntimeError, AttributeError):  # nowhere to store it, or Numba is switched off
        pass
    finally:
        config.CACHE_DIR = elsewhere
    return cast(Function, result)


def _one_process_at_a_time(build: Callable[[Any], Any], lock: Path) -> Callable[[Any], Any]:
    """Of processes that need the same function one compiles it, half a minute for the largest; the others load the result.

    The lock also keeps them from writing different compilations under one name, as Numba's cache would.
    """

    def locked(signature: Any) -> Any:
        with global_compiler_lock, ExitStack() as stack:
            with suppress(OSError):
                portable.lock(stack.enter_context(open(lock, "w")).fileno(), wait=True)
            try:
                return build(signature)
            except OSError:  # the result could not be stored, but it is there
                return build(signature)

    return locked
