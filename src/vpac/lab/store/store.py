"""Stored runs: one folder each, written atomically and checked on every read.

    results/runs/NAME/run.json             what was run, where, when, with which versions; checksums of the other files
    results/runs/NAME/metrics.parquet      what was measured along the way
    results/runs/NAME/policy.safetensors   what was learned
    results/failed/NAME.json               a run that failed, with its traceback; it is tried again next time
    results/damaged/NAME…                  folders that did not pass their checks
    results/checkpoints/NAME/…             checkpoints of an unfinished run
    results/studies/NAME.json              which runs belong to a study (`records.py`)

A bucket may take the place of the folder `results` (`backend.py`). A run that has its folder is finished; no other file says
so, and none can be out of date.
"""

from __future__ import annotations

import errno
import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from vpac.errors import Newer, UserError
from vpac.files import LARGEST_READ, RECORD, as_parquet, sealed
from vpac.interruption import stop_if_asked
from vpac.lab.store.backend import Backend, Scratch, Unreadable, backend_at
from vpac.lab.store.folder import FolderBackend
from vpac.lab.store.records import FAILED, RUNS, Damaged, RunFolder, key_of, read_failure, read_record
from vpac.lab.store.run import Run
from vpac.typing import FloatArray

METRICS_FILE, POLICY = "metrics.parquet", "policy.safetensors"
DAMAGED, STORE_CHECKPOINTS = "damaged", "checkpoints"
IDENTITY = ".identity"
MOST_NUMBERS = 50_000_000
"""Most numbers of a table that is read."""


def arrays_of(content: bytes) -> dict[str, FloatArray]:
    """The arrays in safetensors."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return dict(load(content))
    except (SafetensorError, ValueError, TypeError, KeyError) as error:  # forged, with a good checksum
        raise UserError(f"not arrays that can be read: {error!s:.100}") from None


def columns_of(contents: Sequence[bytes]) -> dict[str, FloatArray]:
    """The numeric columns [tables, rows] of tables that were measured at the same points, read in one call.

    Columns that not all tables have are left out: another version may have measured more.
    """
    frame = frame_of(*contents)
    if len(frame) % len(contents):
        raise UserError("the tables have different lengths")
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric() and not frame[name].null_count()]
    found = {name: frame[name].to_numpy().reshape(len(contents), -1).astype(np.float64) for name in numbers}
    for points in list(found.values())[:1]:  # the first column
        if not np.array_equal(points, np.broadcast_to(points[0], points.shape), equal_nan=True):
            raise UserError("the tables were not measured at the same points")
    return found


def frame_of(*contents: bytes) -> Any:
    """Parquet files as one data frame, with the columns of the first; missing ones are null.

    A few bytes can claim any number of rows, so these are counted first.
    """
    import polars as pl

    try:
        scan = pl.scan_parquet(list(contents), extra_columns="ignore", missing_columns="insert")
        width, rows = len(scan.collect_schema()), scan.select(pl.len()).collect().item()
        if width * rows > MOST_NUMBERS:
            raise UserError(f"a table of {rows:,} rows and {width:,} columns is none that vpac wrote")
        return scan.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        stop_if_asked()  # Polars turns a signal in one of its callbacks into an error
        raise UserError(f"not a table that can be read: {str(error).splitlines()[0]:.100}") from None


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    metrics: dict[str, Any]
    """Columns of what was measured along the way."""
    policy: dict[str, FloatArray]
    """Everything that was learned, as arrays."""
    final: dict[str, float | None]
    """Final numbers."""
    damaged: tuple[str, ...] = ()
    """Checkpoints that could not be read, and why; an earlier one, or none, was used."""


def packed(
    run: Run, result: Result, about: Mapping[str, Any], agent: dict[str, bytes] | None = None
) -> dict[str, bytes]:
    """The files of a run, as bytes: what was measured, the policy or a whole agent, and the record of them."""
    from safetensors.numpy import save

    policy = {name: np.ascontiguousarray(array) for name, array in result.policy.items()}
    learned = {POLICY: save(policy)} if agent is None else agent
    files = {METRICS_FILE: as_parquet(result.metrics, compression="zstd"), **learned}
    record = {**run.content, "name": run.name, "final": result.final, "about": dict(about)}
    record["files"] = {name: fingerprint(content) for name, content in files.items()}
    return files | {RECORD: sealed(record, indent=1, allow_nan=False).encode()}


@dataclass(frozen=True, slots=True)
class Record:
    """A stored run."""

    run: Run
    final: dict[str, float | None]
    """Final numbers."""
    about: dict[str, Any]
    """Seconds, time, versions, machine, commit."""
    files: dict[str, Any]
    """Size and checksum of each file."""
    backend: Backend | RunFolder
    name: str
    """Name in the store; none: a training anywhere."""

    @classmethod
    def read(cls, backend: Backend | RunFolder, name: str = "") -> Self:
        """A finished run; all its bytes are checked."""
        record, run = read_record(backend, name)
        found = cls(run, record["final"], record["about"], record["files"], backend, name)
        for file in dict.fromkeys(((METRICS_FILE, POLICY) if name == run.name else ()) + tuple(found.files)):
            found.file(file)
        return found

    def metrics(self) -> Any:
        """Measured quantities, as a Polars data frame."""
        return frame_of(self.file(METRICS_FILE))

    def policy(self) -> dict[str, FloatArray]:
        """Everything that was learned."""
        return arrays_of(self.file(POLICY))

    def file(self, name: str) -> bytes:
        """The content of one of its files; `Damaged` if it is not what the record says."""
        key = key_of(self.name, Path(name).name)
        path, expected = f"{self.backend.address}/{key}", self.files.get(name)
        try:
            content = self.backend.read(key, _size(expected))
        except FileNotFoundError:
            raise Damaged(f"{path} is missing") from None
        except Unreadable:  # the file itself may be good
            raise
        except OSError as error:
            how = "is not what was written" if error.errno == errno.EFBIG else "cannot be read"
            raise Damaged(f"{path} {how}: {error.strerror or error}") from None
        if fingerprint(content) != expected:
            raise Damaged(f"{path} is not what was written: its checksum differs")
        return content


class Store:
    """Runs in a folder or in a bucket; any number of processes may use it at once."""

    def __init__(self, address: Path | str) -> None:
        self.backend = backend_at(address)
        self._checked: dict[str, Record] = {}

    @property
    def address(self) -> str:
        """Its name, the same on all machines."""
        return self.backend.address

    @property
    def root(self) -> Path:
        """Its folder; a bucket has none."""
        if not isinstance(self.backend, FolderBackend):
            raise UserError(f"{self.address} is not a folder")
        return self.backend.root

    def identity(self) -> str:
        """A unique word, by which a machine can tell whether it sees the same store."""
        self.backend.create(IDENTITY, uuid.uuid4().hex.encode())
        try:
            found = self.backend.read(IDENTITY, 32).decode("ascii")
        except Unreadable:
            raise
        except (OSError, ValueError):
            found = ""
        if re.fullmatch(r"[0-9a-f]{32}", found) is None:
            raise UserError(f"{self.address}/{IDENTITY} is not what was written: remove it, and a new one is made")
        return found

    def finished(self, run: Run) -> bool:
        """Whether a run is finished."""
        return self.has(run.name)

    def has(self, name: str) -> bool:
        """Whether a run of this name is finished."""
        return name in self._checked or self.backend.has(f"{RUNS}/{name}")

    def names(self) -> list[str]:
        """Names of all finished runs."""
        return list(self.backend.folders(RUNS))

    def write(self, run: Run, result: Result, about: dict[str, Any]) -> None:
        """Store a run; the caller holds its lock."""
        self.keep({run.name: packed(run, result, about)})

    def keep(self, packed: Mapping[str, dict[str, bytes]]) -> None:
        """Store runs, by name; they are durable when this returns. The caller holds their locks."""
        self.backend.commit({f"{RUNS}/{name}": files for name, files in packed.items()})
        for name in packed:
            self.backend.remove(f"{FAILED}/{name}.json")

    def read(self, name: str) -> Record:
        """A finished run; all its bytes are checked, once for each `Store`."""
        if name not in self._checked:
            self._checked[name] = Record.read(self.backend, name)
        return self._checked[name]

    def prefetch(self, names: Iterable[str]) -> None:
        """Read finished runs in parallel, where that is faster. Errors are raised by later reads."""
        if self.backend.parallel_reads > 1:
            with ThreadPoolExecutor(self.backend.parallel_reads) as threads:
                for read in [threads.submit(self.read, name) for name in names]:
                    with suppress(Damaged, Newer, Unreadable):
                        read.result()

    def set_aside(self, name: str) -> str:
        """Move a damaged run out of the way; returns its new address."""
        number = 1
        while self.backend.has(target := f"{DAMAGED}/{name}.{number}"):
            number += 1
        self.backend.move(f"{RUNS}/{name}", target)
        return f"{self.address}/{target}"

    def fail(self, run: Run, error: str, about: dict[str, Any]) -> None:
        """Note that a run failed, and how."""
        record = {**run.content, "name": run.name, "error": error, "about": about}
        self.backend.write(f"{FAILED}/{run.name}.json", sealed(record, indent=1).encode())

    def failure(self, name: str) -> dict[str, Any] | None:
        """Record of a run's failure last time; None if it did not fail."""
        return read_failure(self.backend, name)

    def failures(self) -> list[str]:
        """Names of the runs that failed last time."""
        return [file.removesuffix(".json") for file in self.backend.files(FAILED) if file.endswith(".json")]

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Lock a run against other processes; yields False if one of them holds it."""
        return self.backend.lock(name)

    def scratch(self, run: Run) -> Scratch:
        """A run's folder for checkpoints."""
        return self.backend.scratch(f"{STORE_CHECKPOINTS}/{run.name}")

    def tidy(self) -> None:
        """Remove what killed processes left."""
        self.backend.tidy()


def _size(expected: Any) -> int:
    """Bytes of a file by its fingerprint, which may be forged; more need not be read."""
    size = expected.get("bytes") if isinstance(expected, dict) else None
    return size if type(size) is int and 0 <= size < LARGEST_READ else LARGEST_READ


def fingerprint(content: bytes) -> dict[str, Any]:
    """Size and checksum of a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
