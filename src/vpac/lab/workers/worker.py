"""Execute runs and store them: called by every executor, in this process or in another."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import os
import platform
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from vpac._version import __version__
from vpac.errors import Diverged, UserError
from vpac.files import Unwritable
from vpac.interruption import is_asked, stop_if_asked, until_checkpoint
from vpac.lab.kinds.task import perform
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result, Store, packed

Status = Literal["finished", "found", "failed", "diverged", "elsewhere", "unwritable", "refused"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run; a small message between processes."""

    name: str
    status: Status
    """finished and stored; found (finished by another process meanwhile); failed; diverged (stopped at a number that is not
    finite); elsewhere (another process holds it); unwritable (it could not be stored); refused (the store has something else
    under its name)."""
    seconds: float = 0.0
    error: str = ""
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
    """Execute a run unless it is finished or another process holds it. Never raises errors of the run itself."""
    return carry_out_batch(store, [run])[0]


def carry_out_batch(store: Store, runs: Sequence[Run], cores: int = 0) -> list[Outcome]:
    """Execute runs and make them durable together: a short run would mostly wait for the disk.

    Locks are held until the runs are stored. On an interruption finished runs are stored. With `cores` above 0 the runs are of
    one program (`task.program_of`): see `_carry_out_program`.
    """
    if cores:
        return _carry_out_program(store, runs, cores)
    outcomes: list[Outcome] = []
    files: dict[str, dict[str, bytes]] = {}
    done: list[tuple[Outcome, Scratch]] = []
    with ExitStack() as held:
        try:
            for run in runs:
                scratch = _taken(store, run, held, outcomes)
                if scratch is None:
                    continue
                try:
                    outcome, packed = _perform(store, run, scratch)
                except (OSError, UserError) as error:  # of the store; `_perform` catches those of the run
                    outcomes.append(_unwritable(store, run.name, error))
                    continue
                if packed is None:
                    outcomes.append(outcome)
                else:
                    files[run.name] = packed
                    done.append((outcome, scratch))
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


def _taken(store: Store, run: Run, held: ExitStack, outcomes: list[Outcome]) -> Scratch | None:
    """The checkpoint folder of a run, which is locked until `held` ends; or None, and an outcome that says why."""
    try:
        if not held.enter_context(store.lock(run.name)):
            outcomes.append(Outcome(run.name, "elsewhere"))
        elif store.finished(run):
            outcomes.append(Outcome(run.name, "found"))
        else:
            return held.enter_context(store.scratch(run))
    except (OSError, UserError) as error:
        outcomes.append(_unwritable(store, run.name, error))
    return None


def _carry_out_program(store: Store, runs: Sequence[Run], cores: int) -> list[Outcome]:
    """Execute runs that one compiled program trains, and store each as soon as it has finished.

    On a CPU `cores` threads take one run after the other, each with the same bytes as alone; on other devices all learn in one
    batch, and differ by rounding. After a signal started runs continue to their next checkpoint.
    """
    from vpac.deep.compiled import Layout

    outcomes: list[Outcome] = []
    with ExitStack() as held:
        work = [(run, scratch) for run in runs if (scratch := _taken(store, run, held, outcomes)) is not None]
        batched = Layout.of().most > 1
        for run, scratch, made in _side_by_side(store, work) if batched else _in_threads(store, work, cores):
            try:
                outcome, files = made()
                if files is not None:
                    store.keep({run.name: files})
                    scratch.clear()
                outcomes.append(outcome)
            except (OSError, UserError) as error:
                outcomes.append(_unwritable(store, run.name, error))
    return outcomes


Made = Callable[[], "tuple[Outcome, dict[str, bytes] | None]"]


def _in_threads(store: Store, work: list[tuple[Run, Scratch]], cores: int) -> Iterator[tuple[Run, Scratch, Made]]:
    """Runs in `cores` threads, as they finish; after a signal no further ones begin."""
    with until_checkpoint(), ThreadPoolExecutor(cores, "run") as pool:
        tasks = {pool.submit(_perform, store, run, scratch): (run, scratch) for run, scratch in work}
        try:
            pending = set(tasks)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for task in done:
                    if not isinstance(task.exception(), KeyboardInterrupt):
                        yield *tasks[task], task.result
                if is_asked():
                    pending = {task for task in pending if not task.cancel()}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    stop_if_asked()


def _side_by_side(store: Store, work: list[tuple[Run, Scratch]]) -> Iterator[tuple[Run, Scratch, Made]]:
    """Runs that a program trains in a batch on devices; each gets its share of the time."""
    from vpac.lab.kinds.deep import perform_side_by_side

    begun, runs = time.perf_counter(), [run for run, _ in work]
    for (run, scratch), result in zip(work, perform_side_by_side(runs, [scratch for _, scratch in work]), strict=True):
        share = (time.perf_counter() - begun) / len(work)
        yield run, scratch, partial(_perform, store, run, scratch, result, share)


def _unwritable(store: Store, name: str, error: Exception) -> Outcome:
    if isinstance(error, UserError):
        return Outcome(name, "refused", 0.0, str(error))
    words = getattr(error, "strerror", None) or str(error)
    text = words if words.startswith(("cannot write ", "cannot read ")) else f"cannot write to {store.address}: {words}"
    return Outcome(name, "unwritable", 0.0, text)


def _perform(
    store: Store, run: Run, scratch: Scratch, made: Callable[[], Result] | None = None, before: float = 0.0
) -> tuple[Outcome, dict[str, bytes] | None]:
    """The outcome of a run, and its files if it succeeded; `made` gives the result of one that took `before` seconds so far."""
    begun = time.perf_counter() - before
    try:
        result = _finite(perform(run, scratch) if made is None else made())
        files = packed(run, result, about(run, time.perf_counter() - begun))
    except Unwritable:  # of a checkpoint: the machine's fault, which would affect the next run, too
        raise
    except Exception as error:
        stop_if_asked()  # native code turns a signal in one of its callbacks into an error
        seconds = time.perf_counter() - begun
        status: Status = "diverged" if isinstance(error, Diverged) else "failed"
        text = traceback.format_exc(limit=-8)
        if status == "diverged":
            text = str(error) if "(seed " in str(error) else f"{error} (seed {run.seed})"
        store.fail(run, text, about(run, seconds) | {"status": status})
        return Outcome(run.name, status, seconds, text), None
    return Outcome(run.name, "finished", time.perf_counter() - begun, damaged=result.damaged), files


def _finite(result: Result) -> Result:
    """The result, validated: unknown numbers are None, and anything that is not a number is an error."""
    for name, value in result.final.items():
        if value is not None and not math.isfinite(value):
            raise Diverged(f"{name} is {value}: not finite")
    return result


def about(run: Run, seconds: float) -> dict[str, Any]:
    """Duration, end time, machine and versions of a run."""
    made_with = provenance(run.task["kind"] == "deep")
    return {"seconds": seconds, "time": datetime.now(UTC).isoformat(timespec="seconds"), **made_with}


NAMED_PACKAGES = ("gymnasium", "numba", "numpy", "polars", "scipy")


@cache
def provenance(deep: bool = False) -> dict[str, Any]:
    """Versions, machine and commit of this process; for the PPO family also those of JAX, which is not imported."""
    named = (*NAMED_PACKAGES, "jax", "jaxlib") if deep and importlib.util.find_spec("jax") else NAMED_PACKAGES
    return {
        "versions": {
            "vpac": __version__, "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in named},
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
    """Commit of the checkout that vpac runs from, with `+` if it was changed since; None for an installed package."""
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
