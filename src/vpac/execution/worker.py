"""One run, carried out and kept: what every executor calls, here, in another process or on another machine."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from vpac.errors import Diverged, UserError
from vpac.execution.perform import perform
from vpac.execution.provenance import provenance
from vpac.execution.run import Run
from vpac.execution.scratch import Scratch
from vpac.execution.store import Store
from vpac.files import Unwritable

__all__ = ["Outcome", "carry_out"]

Status = Literal["finished", "failed", "diverged", "elsewhere", "unwritable"]


@dataclass(frozen=True)
class Outcome:
    """How a run went; small enough to send around."""

    name: str
    """Of the run."""
    status: Status
    """finished and kept; failed; diverged (stopped at a number that is not finite); elsewhere (another process is at
    it); unwritable (it could not be kept)."""
    seconds: float = 0.0
    """How long it took."""
    error: str = ""
    """What went wrong."""
    damaged: tuple[str, ...] = ()
    """Checkpoints that were damaged and passed over."""

    @property
    def last_line(self) -> str:
        """What went wrong, in short."""
        return (self.error.strip().splitlines() or [self.status])[-1]


def carry_out(store: Store, run: Run) -> Outcome:
    """Carry out a run unless it is finished or another process is at it. Never raises for what the run itself does."""
    try:
        with store.lock(run.name) as free:
            if not free:
                return Outcome(run.name, "elsewhere")
            if store.finished(run):
                return Outcome(run.name, "finished")
            with store.scratch(run) as scratch:
                return _carry_out(store, run, scratch)
    except (OSError, UserError) as unwritable:  # not the run's own: those are caught where it is performed
        words = getattr(unwritable, "strerror", None) or str(unwritable)
        text = words if words.startswith("cannot write ") else f"cannot write to {store.address}: {words}"
        return Outcome(run.name, "unwritable", 0.0, text)


def _carry_out(store: Store, run: Run, scratch: Scratch) -> Outcome:
    begun = time.perf_counter()
    try:
        result = perform(run, scratch)
    except Unwritable:  # a checkpoint: the machine's fault, which the next run will meet, too
        raise
    except Exception as error:
        seconds = time.perf_counter() - begun
        status: Status = "diverged" if isinstance(error, Diverged) else "failed"
        text = str(error) if status == "diverged" else traceback.format_exc(limit=-8)
        store.fail(run, text, _about(seconds) | {"status": status})
        return Outcome(run.name, status, seconds, text)
    seconds = time.perf_counter() - begun
    store.write(run, result, _about(seconds))
    scratch.clear()
    return Outcome(run.name, "finished", seconds, damaged=result.damaged)


def _about(seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "time": datetime.now(UTC).isoformat(timespec="seconds"), **provenance()}
