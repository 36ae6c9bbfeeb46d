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

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpac.errors import UserError
from vpac.execution.encoding import arrays_of, as_parquet, as_safetensors, frame_of
from vpac.execution.local import Local
from vpac.execution.places import RECORD, Place, place_at
from vpac.execution.records import FAILED, RUNS, Damaged, Newer, read_failure, read_record, where
from vpac.execution.run import Run
from vpac.execution.scratch import Scratch
from vpac.sealing import sealed
from vpac.typing import FloatArray

__all__ = ["Damaged", "Newer", "Record", "Result", "Store"]

METRICS, POLICY = "metrics.parquet", "policy.safetensors"
DAMAGED, CHECKPOINTS = "damaged", "checkpoints"
IDENTITY = ".identity"


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
        key = f"{RUNS}/{self.run.name}/{name}"
        try:
            content = self.place.read(key)
        except FileNotFoundError:
            raise Damaged(f"{where(self.place, key)} is missing") from None
        except OSError as error:
            raise Damaged(f"{where(self.place, key)} cannot be read: {error.strerror or error}") from None
        if _fingerprint(content) != self.files.get(name):
            raise Damaged(f"{where(self.place, key)} is not what was written: its checksum differs")
        return content


class Store:
    """Runs, in a folder or in a bucket; any number of processes may use it at once."""

    def __init__(self, address: Path | str) -> None:
        self.place = place_at(address)
        self._checked: dict[str, Record] = {}
        self._shared: dict[str, Any] = {}

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
        return self.place.read(IDENTITY).decode()

    def finished(self, run: Run) -> bool:
        """Whether it was run to its end."""
        return self.has(run.name)

    def has(self, name: str) -> bool:
        """Whether a run of this name is finished."""
        return self.place.has(f"{RUNS}/{name}")

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
            self._checked[name] = self._read(name)
        return self._checked[name]

    def read_ahead(self, names: Iterable[str]) -> None:
        """Read and check finished runs, many at a time where that is quicker; damaged ones are found when they are read."""
        if self.place.readers > 1:
            with ThreadPoolExecutor(self.place.readers) as readers:
                list(readers.map(self._try, names))

    def _try(self, name: str) -> None:
        with suppress(Damaged, Newer):
            self.read(name)

    def _read(self, name: str) -> Record:
        record = read_record(self.place, name)
        run = Run(self._share(record["task"]), record["number"], record["seed"])
        about = {key: self._share(value) for key, value in record["about"].items()}
        found = Record(run, record["final"], about, record["files"], self.place)
        for file in (METRICS, POLICY):
            found.file(file)
        return found

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


def _fingerprint(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
