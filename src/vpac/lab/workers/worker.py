"""Carries out runs and stores them: what every executor calls, in this process or in another."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import subprocess
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from vpac._version import __version__
from vpac.errors import Diverged, UserError
from vpac.files import Unwritable
from vpac.interruption import stop_if_asked
from vpac.lab.kinds.task import perform
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result, Store

Status = Literal["finished", "found", "failed", "diverged", "elsewhere", "unwritable", "refused"]


@dataclass(frozen=True)
class Outcome:
    """How a run went; a small message between processes."""

    name: str
    """Of the run."""
    status: Status
    """finished and stored; found (another process has finished it meanwhile); failed; diverged (stopped at a number that is
    not finite); elsewhere (another process holds it); unwritable (it could not be stored); refused (the store has something
    else in its place)."""
    seconds: float = 0.0
    """How long it took."""
    error: str = ""
    """What went wrong."""
    damaged: tuple[str, ...] = ()
    """Checkpoints that were damaged and ignored."""

    @property
    def well(self) -> bool:
        """Whether the run is stored, by this process or another."""
        return self.status in ("finished", "found")

    @property
    def last_line(self) -> str:
        """The last line of the error."""
        return (self.error.strip().splitlines() or [self.status])[-1]


def carry_out(store: Store, run: Run) -> Outcome:
    """Carry out a run unless it is finished or another process holds it. Never raises errors of the run itself."""
    return carry_out_batch(store, [run])[0]


def carry_out_batch(store: Store, runs: Sequence[Run]) -> list[Outcome]:
    """Carry out runs and make them durable together: a tiny run would mostly wait for the disk.

    Locks are held until the runs are stored. If this is interrupted, what is done is stored.
    """
    outcomes: list[Outcome] = []
    files: dict[str, dict[str, bytes]] = {}
    done: list[tuple[Outcome, Scratch]] = []
    with ExitStack() as held:
        try:
            for run in runs:
                try:
                    if not held.enter_context(store.lock(run.name)):
                        outcomes.append(Outcome(run.name, "elsewhere"))
                    elif store.finished(run):
                        outcomes.append(Outcome(run.name, "found"))
                    else:
                        scratch = held.enter_context(store.scratch(run))
                        outcome, packed = _perform(store, run, scratch)
                        if packed is None:
                            outcomes.append(outcome)
                        else:
                            files[run.name] = packed
                            done.append((outcome, scratch))
                except (OSError, UserError) as error:  # of the store: those of the run are caught where it is performed
                    outcomes.append(_unwritable(store, run.name, error))
        finally:
            try:
                if files:
                    store.keep(files)
                for _, scratch in done:
                    scratch.clear()
                outcomes += [outcome for outcome, _ in done]
            except (OSError, UserError) as error:
                outcomes += [_unwritable(store, name, error) for name in files]
    return outcomes


def _unwritable(store: Store, name: str, error: Exception) -> Outcome:
    if isinstance(error, UserError):
        return Outcome(name, "refused", 0.0, str(error))
    words = getattr(error, "strerror", None) or str(error)
    text = words if words.startswith(("cannot write ", "cannot read ")) else f"cannot write to {store.address}: {words}"
    return Outcome(name, "unwritable", 0.0, text)


def _perform(store: Store, run: Run, scratch: Scratch) -> tuple[Outcome, dict[str, bytes] | None]:
    """How a run went, and its files if it went well."""
    begun = time.perf_counter()
    try:
        result = _finite(perform(run, scratch))
        files = store.pack(run, result, about(time.perf_counter() - begun))
    except Unwritable:  # a checkpoint: the machine's fault, which the next run will meet, too
        raise
    except Exception as error:
        stop_if_asked()  # native code turns a signal in one of its callbacks into an error
        seconds = time.perf_counter() - begun
        status: Status = "diverged" if isinstance(error, Diverged) else "failed"
        text = _with_seed(str(error), run) if status == "diverged" else traceback.format_exc(limit=-8)
        store.fail(run, text, about(seconds) | {"status": status})
        return Outcome(run.name, status, seconds, text), None
    return Outcome(run.name, "finished", time.perf_counter() - begun, damaged=result.damaged), files


def _finite(result: Result) -> Result:
    """The result, if it comes down to numbers; what is not known is None, and anything else that is none is no result."""
    for name, value in result.final.items():
        if value is not None and not math.isfinite(value):
            raise Diverged(f"{name} is {value}: not finite")
    return result


def _with_seed(text: str, run: Run) -> str:
    return text if "(seed " in text else f"{text} (seed {run.seed})"


def about(seconds: float) -> dict[str, Any]:
    """How long a run took, when it ended, where, and with which versions."""
    return {"seconds": seconds, "time": datetime.now(UTC).isoformat(timespec="seconds"), **provenance()}


NAMED = ("gymnasium", "numba", "numpy", "polars", "scipy")


@cache
def provenance() -> dict[str, Any]:
    """Versions, machine and commit of this process."""
    return {
        "versions": {
            "vpac": __version__, "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in NAMED},
        },
        "machine": {"system": platform.platform(terse=True), "processor": _processor(), "cores": os.cpu_count()},
        "commit": _commit(),
    }  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _commit() -> str | None:
    """Of the checkout that vpac runs from, `+` if it was changed since; None for an installed package."""
    source = Path(__file__).resolve().parents[4]
    if not (source / ".git").exists():
        return None
    try:
        commit = _git(source, "rev-parse", "HEAD")
        return commit + ("+" if _git(source, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(source: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(source), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
