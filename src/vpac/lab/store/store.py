"""Where runs are kept: one folder a run, written whole or not at all, checked whenever it is read.

    results/runs/NAME/run.json             what was run, where, when, with which versions; checksums of the other files
    results/runs/NAME/metrics.parquet      what was measured along the way
    results/runs/NAME/policy.safetensors   what was learned
    results/failed/NAME.json               a run that failed, with its traceback; it is tried again next time
    results/damaged/NAME…                  folders that did not pass their checks, set aside
    results/checkpoints/NAME/…             what a long run that is not finished goes on from

Instead of a folder `results` it may be a bucket: how bytes are kept is the business of a place (`places.py`). A run that the
place has is finished. There is no file that knows about all runs and could ruin them.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import io
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from vpac.errors import UserError
from vpac.files import LARGEST
from vpac.interruption import held
from vpac.lab.store.folder import Local
from vpac.lab.store.place import RECORD, Place, Scratch, Unreadable, place_at
from vpac.lab.store.readers import MANY, Ahead, by_processes, by_threads
from vpac.lab.store.records import FAILED, RUNS, Damaged, Newer, read_failure, read_record, where
from vpac.lab.store.run import Run, Runs
from vpac.sealing import sealed
from vpac.typing import FloatArray

__all__ = [
    "Damaged",
    "Newer",
    "Parts",
    "Record",
    "Result",
    "Store",
    "arrays_of",
    "as_parquet",
    "as_safetensors",
    "checked",
    "columns_of",
    "frame_of",
    "many",
]

MOST_NUMBERS = 50_000_000
"""Of a table that is read."""


@held()
def as_parquet(columns: dict[str, Any]) -> bytes:
    """Columns as Parquet."""
    import polars as pl

    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file, compression="zstd")
    return file.getvalue()


def as_safetensors(arrays: dict[str, FloatArray]) -> bytes:
    """Arrays as safetensors."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def arrays_of(content: bytes) -> dict[str, FloatArray]:
    """The arrays in safetensors."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return dict(load(content))
    except (SafetensorError, ValueError, TypeError, KeyError) as error:  # its checksum is good, yet it is not ours
        raise UserError(f"not arrays that can be read: {error!s:.100}") from None


@held()
def frame_of(content: bytes) -> Any:
    """Parquet as a data frame. A few bytes can claim to be any number of rows, so these are counted first."""
    return _read([content])


@held()
def columns_of(contents: Sequence[bytes]) -> dict[str, FloatArray]:
    """The columns of numbers [tables, rows] of tables that were measured at the same places: much quicker than one by one.

    Columns that not all of them have are left out: another version may have measured more.
    """
    frame = _read(contents)
    if len(frame) % len(contents):
        raise UserError("the tables have different lengths")
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric() and not frame[name].null_count()]
    found = {name: frame[name].to_numpy().reshape(len(contents), -1).astype(np.float64) for name in numbers}
    for places in list(found.values())[:1]:  # the first column says where
        if not np.array_equal(places, np.broadcast_to(places[0], places.shape), equal_nan=True):
            raise UserError("the tables were not measured at the same places")
    return found


def _read(contents: Sequence[bytes]) -> Any:
    """The rows of all tables, one after the other, with the columns of the first; what another does not have is null."""
    import polars as pl

    try:
        scan = pl.scan_parquet(list(contents), extra_columns="ignore", missing_columns="insert")
        width, rows = len(scan.collect_schema()), scan.select(pl.len()).collect().item()
        if width * rows > MOST_NUMBERS:
            raise UserError(f"a table of {rows:,} rows and {width:,} columns is none that vpac wrote")
        return scan.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise UserError(f"not a table that can be read: {str(error).splitlines()[0]:.100}") from None


METRICS, POLICY = "metrics.parquet", "policy.safetensors"
DAMAGED, CHECKPOINTS = "damaged", "checkpoints"
IDENTITY = ".identity"
Parts: TypeAlias = tuple[Run, dict[str, float | None], dict[str, Any], dict[str, Any]]
"""Of a record: the run, its final numbers, what is known about it, its files."""


@dataclass(frozen=True)
class Result:
    """What a run brings home."""

    metrics: dict[str, Any]
    """Columns of what was measured along the way."""
    policy: dict[str, FloatArray]
    """What was learned, as arrays."""
    final: dict[str, float | None]
    """The numbers that it comes down to."""
    damaged: tuple[str, ...] = ()
    """Checkpoints that could not be read, and why; an earlier one, or none, was used."""


@dataclass(frozen=True, slots=True)
class Record:
    """A stored run."""

    run: Run
    """What was run."""
    final: dict[str, float | None]
    """The numbers that it comes down to."""
    about: dict[str, Any]
    """Seconds, time, versions, machine, commit."""
    files: dict[str, Any]
    """Size and checksum of each of its files."""
    place: Place
    """Where it is kept."""

    def metrics(self) -> Any:
        """What was measured, as a Polars data frame."""
        return frame_of(self.file(METRICS))

    def policy(self) -> dict[str, FloatArray]:
        """What was learned."""
        return arrays_of(self.file(POLICY))

    def file(self, name: str) -> bytes:
        """The content of one of its files, checked."""
        return checked(self.place, self.run.name, name, self.files)


class Store:
    """Runs, in a folder or in a bucket; any number of processes may use it at once."""

    def __init__(self, address: Path | str) -> None:
        self.place = place_at(address)
        self._checked: dict[str, Record] = {}
        self._ahead: Ahead[Parts] = Ahead([], iter(()))
        self._shared: dict[str, Any] = {}
        self._runs = Runs()

    @property
    def address(self) -> str:
        """What names it, on this machine and on others."""
        return self.place.address

    @property
    def root(self) -> Path:
        """The folder that it is; a bucket has none."""
        if not isinstance(self.place, Local):
            raise UserError(f"{self.address} is not a folder")
        return self.place.root

    def identity(self) -> str:
        """A word that no other store has, so that a machine can tell whether it sees the same one."""
        self.place.create(IDENTITY, uuid.uuid4().hex.encode())
        try:
            found = self.place.read(IDENTITY, 32).decode("ascii")
        except Unreadable:
            raise
        except (OSError, ValueError):
            found = ""
        if re.fullmatch(r"[0-9a-f]{32}", found) is None:
            raise UserError(f"{self.address}/{IDENTITY} is not what was written: remove it, and a new one is made")
        return found

    def finished(self, run: Run) -> bool:
        """Whether it was run to its end."""
        return self.has(run.name)

    def has(self, name: str) -> bool:
        """Whether a run of this name is finished."""
        return name in self._checked or self._ahead.has(name) or self.place.has(f"{RUNS}/{name}")

    def names(self) -> list[str]:
        """Of all finished runs."""
        return list(self.stamps())

    def stamps(self) -> dict[str, int]:
        """The names of all finished runs, each with a number that changes when its record does."""
        return self.place.folders(RUNS)

    def write(self, run: Run, result: Result, about: dict[str, Any]) -> None:
        """Keep a run; the caller holds its lock."""
        self.keep({run.name: self.pack(run, result, about)})

    def pack(self, run: Run, result: Result, about: dict[str, Any]) -> dict[str, bytes]:
        """The files of a run, as bytes."""
        files = {METRICS: as_parquet(result.metrics), POLICY: as_safetensors(result.policy)}
        record = {**run.content, "name": run.name, "final": result.final, "about": about}
        record["files"] = {name: _fingerprint(content) for name, content in files.items()}
        return files | {RECORD: sealed(record, indent=1, allow_nan=False).encode()}

    def keep(self, packed: Mapping[str, dict[str, bytes]]) -> None:
        """Keep runs, by name, durable when it returns; the caller holds their locks."""
        self.place.commit({f"{RUNS}/{name}": files for name, files in packed.items()})
        for name in packed:
            self.place.remove(f"{FAILED}/{name}.json")

    def read(self, name: str) -> Record:
        """A finished run, every byte of it checked, once for each `Store`."""
        if name not in self._checked:
            run, final, about, files = self._ahead.take(name) or self.parts(name)
            self._checked[name] = Record(run, final, about, files, self.place)
        return self._checked[name]

    def read_ahead(self, names: Iterable[str]) -> None:
        """Have finished runs read and checked before they are asked for in this order, where that is quicker."""
        wanted = [name for name in names if name not in self._checked]
        if self.place.readers > 1:
            self._ahead = Ahead(wanted, by_threads(self.parts, wanted, self.place.readers))
        elif len(wanted) >= MANY:
            self._ahead = Ahead(wanted, by_processes(self.address, wanted))

    def parts(self, name: str) -> Parts:
        """What a record says, every byte of its run checked now."""
        record = read_record(self.place, name, self._runs.read)
        about = {key: self._share(value) for key, value in record["about"].items()}
        for file in (METRICS, POLICY):
            checked(self.place, name, file, record["files"])
        return record["run"], record["final"], about, record["files"]

    def _share(self, part: Any) -> Any:
        """The same object for the same content: runs differ in little, and a store may hold a hundred thousand."""
        return part if isinstance(part, float) else self._shared.setdefault(repr(part), part)

    def set_aside(self, name: str) -> str:
        """Move a damaged run out of the way; returns where to."""
        number = 1
        while self.place.has(target := f"{DAMAGED}/{name}.{number}"):
            number += 1
        self.place.move(f"{RUNS}/{name}", target)
        return where(self.place, target)

    def fail(self, run: Run, error: str, about: dict[str, Any]) -> None:
        """Remember that a run failed, and how."""
        record = {**run.content, "name": run.name, "error": error, "about": about}
        self.place.write(f"{FAILED}/{run.name}.json", sealed(record, indent=1).encode())

    def failure(self, name: str) -> dict[str, Any] | None:
        """How a run failed last time, if it did; `Damaged` if the note of it is."""
        return read_failure(self.place, name)

    def failures(self) -> list[str]:
        """Names of the runs that failed last time."""
        return [file.removesuffix(".json") for file in self.place.files(FAILED) if file.endswith(".json")]

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold a run, so that no other process runs it, too; yields whether that succeeded."""
        return self.place.lock(name)

    def scratch(self, run: Run) -> Scratch:
        """Where a run leaves its checkpoints."""
        return self.place.scratch(f"{CHECKPOINTS}/{run.name}")

    def tidy(self) -> None:
        """Remove what killed processes left."""
        self.place.tidy()


@contextmanager
def many() -> Iterator[None]:
    """While it lasts very many records are read: Python does not look for circles in them, which there are none of."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def checked(place: Place, run: str, name: str, files: dict[str, Any]) -> bytes:
    """The content of a file of a run, if it is what the run's record says of its files."""
    key = f"{RUNS}/{run}/{name}"
    try:
        content = place.read(key, _size(files.get(name)))
    except FileNotFoundError:
        raise Damaged(f"{where(place, key)} is missing") from None
    except Unreadable:  # it may be as good as ever
        raise
    except OSError as error:
        how = "is not what was written" if error.errno == errno.EFBIG else "cannot be read"
        raise Damaged(f"{where(place, key)} {how}: {error.strerror or error}") from None
    if _fingerprint(content) != files.get(name):
        raise Damaged(f"{where(place, key)} is not what was written: its checksum differs")
    return content


def _size(fingerprint: Any) -> int:
    """Bytes of a file, by its fingerprint, which anybody may have written: more need not be read."""
    size = fingerprint.get("bytes") if isinstance(fingerprint, dict) else None
    return size if type(size) is int and 0 <= size < LARGEST else LARGEST


def _fingerprint(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
