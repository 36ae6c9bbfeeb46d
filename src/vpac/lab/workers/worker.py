"""One run, carried out and kept: what every executor calls, here, in another process or on another machine."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import subprocess
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from vpac._version import __version__
from vpac.errors import Diverged, UserError
from vpac.files import Unwritable
from vpac.lab.kinds.perform import perform
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result, Store

__all__ = ["MOMENT", "MOST", "Group", "Outcome", "carry_out", "provenance"]

MOST, MOST_BYTES, MOMENT = 64, 2**24, 0.25
"""Runs of a group, bytes of them, and seconds from the start of the first: whatever comes first settles it."""

Status = Literal["finished", "found", "failed", "diverged", "elsewhere", "unwritable", "refused"]


@dataclass(frozen=True)
class Outcome:
    """How a run went; small enough to send around."""

    name: str
    """Of the run."""
    status: Status
    """finished and kept; found (another process has finished it meanwhile); failed; diverged (stopped at a number that is
    not finite); elsewhere (another process is at it); unwritable (it could not be kept); refused (the store has something
    in its place that is not the store's)."""
    seconds: float = 0.0
    """How long it took."""
    error: str = ""
    """What went wrong."""
    damaged: tuple[str, ...] = ()
    """Checkpoints that were damaged and passed over."""

    @property
    def well(self) -> bool:
        """Whether the run is there, whoever has done it."""
        return self.status in ("finished", "found")

    @property
    def last_line(self) -> str:
        """What went wrong, in short."""
        return (self.error.strip().splitlines() or [self.status])[-1]


def carry_out(store: Store, run: Run) -> Outcome:
    """Carry out a run unless it is finished or another process is at it. Never raises for what the run itself does."""
    group = Group(store)
    outcome = group.carry_out(run)
    return group.settle()[0] if outcome is None else outcome


@dataclass(frozen=True)
class _Done:
    """A run that is through and not kept yet."""

    outcome: Outcome
    files: dict[str, bytes]
    scratch: Scratch
    held: ExitStack
    """Its lock, among others."""


class Group:
    """Runs that are made durable together: of a tiny run most of the time would go by waiting for the disk.

    A run of the group is finished when `settle` says so, not before. Until then it is only in memory, and its lock is held.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._done: list[_Done] = []
        self._begun = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._done)

    @property
    def full(self) -> bool:
        """Whether it is time to settle: it has many runs, many bytes, or its first one was begun a moment ago."""
        size = sum(len(content) for done in self._done for content in done.files.values())
        late = bool(self._done) and time.monotonic() - self._begun >= MOMENT
        return late or len(self._done) >= MOST or size >= MOST_BYTES

    def carry_out(self, run: Run) -> Outcome | None:
        """Carry out a run; None: it is through and waits for the others."""
        begun = time.monotonic()
        try:
            with ExitStack() as held:
                if not held.enter_context(self.store.lock(run.name)):
                    return Outcome(run.name, "elsewhere")
                if self.store.finished(run):
                    return Outcome(run.name, "found")
                scratch = held.enter_context(self.store.scratch(run))
                outcome, files = _perform(self.store, run, scratch)
                if files is not None:
                    self._begun = self._begun if self._done else begun
                    self._done.append(_Done(outcome, files, scratch, held.pop_all()))
                    return None
                return outcome
        except (OSError, UserError) as error:  # not the run's own: those are caught where it is performed
            return _unwritable(self.store, run.name, error)

    def settle(self) -> list[Outcome]:
        """Keep what waits; returns how each run went."""
        settled, self._done = self._done, []
        try:
            if settled:
                self.store.keep({done.outcome.name: done.files for done in settled})
            for done in settled:
                done.scratch.clear()
        except (OSError, UserError) as error:
            return [_unwritable(self.store, done.outcome.name, error) for done in settled]
        finally:
            for done in settled:
                done.held.close()
        return [done.outcome for done in settled]


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
        files = store.pack(run, result, _about(time.perf_counter() - begun))
    except Unwritable:  # a checkpoint: the machine's fault, which the next run will meet, too
        raise
    except Exception as error:
        seconds = time.perf_counter() - begun
        status: Status = "diverged" if isinstance(error, Diverged) else "failed"
        text = _with_seed(str(error), run) if status == "diverged" else traceback.format_exc(limit=-8)
        store.fail(run, text, _about(seconds) | {"status": status})
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


def _about(seconds: float) -> dict[str, Any]:
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
