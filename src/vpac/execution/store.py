"""Where runs are kept: one folder a run, written whole or not at all, checked whenever it is read.

    results/runs/NAME/run.json             what was run, where, when, with which versions; checksums of the other files
    results/runs/NAME/metrics.parquet      what was measured along the way
    results/runs/NAME/policy.safetensors   what was learned
    results/failed/NAME.json               a run that failed, with its traceback; it is tried again next time
    results/damaged/NAME…                  folders that did not pass their checks, set aside

A folder with its final name is a finished run. There is no file that knows about all runs and could ruin them.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vpac.execution.run import FORMAT, HASH, Run
from vpac.files import make_folder, sync_file, sync_folder, write_text
from vpac.typing import FloatArray

__all__ = ["Damaged", "Record", "Result", "Store"]

METRICS, POLICY, RECORD, PART = "metrics.parquet", "policy.safetensors", "run.json", ".part"
BLANK = b"." * 64


class Damaged(Exception):
    """A stored run that is not what was written."""


@dataclass(frozen=True)
class Result:
    """What a run brings home."""

    metrics: dict[str, Any]
    """Columns of what was measured along the way."""
    policy: dict[str, FloatArray]
    """What was learned, as arrays."""
    final: dict[str, float | None]
    """The numbers that it comes down to."""


@dataclass(frozen=True)
class Record:
    """A stored run."""

    run: Run
    """What was run."""
    final: dict[str, float | None]
    """The numbers that it comes down to."""
    about: dict[str, Any]
    """Seconds, time, versions, machine, commit."""
    folder: Path
    """Where it is."""

    def metrics(self) -> Any:
        """What was measured, as a Polars data frame."""
        import polars as pl

        return pl.read_parquet(self.folder / METRICS)

    def policy(self) -> dict[str, FloatArray]:
        """What was learned."""
        from safetensors.numpy import load_file

        return dict(load_file(self.folder / POLICY))


class Store:
    """A folder of runs; any number of processes may use it at once."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.runs, self.failed, self.damaged = self.root / "runs", self.root / "failed", self.root / "damaged"
        self._locks: int | None = None
        self._checked: dict[str, Record] = {}

    def folder(self, run: Run) -> Path:
        """Where a run is kept."""
        return self.runs / run.name

    def finished(self, run: Run) -> bool:
        """Whether it was run to its end: folders get their names only when they are whole."""
        return self.folder(run).is_dir()

    def names(self) -> list[str]:
        """Of all finished runs."""
        if not self.runs.is_dir():
            return []
        return sorted(e.name for e in os.scandir(self.runs) if not e.name.startswith(".") and e.is_dir())

    def write(self, run: Run, result: Result, about: dict[str, Any]) -> Path:
        """Keep a run; the caller holds its lock."""
        make_folder(self.runs)
        folder, temporary = self.folder(run), self._temporary(run)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        files = {METRICS: _as_parquet(result.metrics), POLICY: _as_safetensors(result.policy)}
        record = {**run.content, "name": run.name, "final": result.final, "about": about}
        record["files"] = {name: _fingerprint(content) for name, content in files.items()}
        files[RECORD] = _signed(record).encode()
        try:
            for name, content in files.items():
                (temporary / name).write_bytes(content)
                sync_file(temporary / name)
            sync_folder(temporary)
            temporary.rename(folder)
            sync_folder(self.runs)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        (self.failed / f"{run.name}.json").unlink(missing_ok=True)
        return folder

    def read(self, name: str) -> Record:
        """A finished run, every byte of it checked, once for each `Store`."""
        if name not in self._checked:
            self._checked[name] = self._read(name)
        return self._checked[name]

    def _read(self, name: str) -> Record:
        folder = self.runs / name
        record = read_record(folder)
        run = Run.read(record)
        if run.name != name or record["name"] != name:
            raise Damaged(f"{folder}: the folder's name is not that of the run in it")
        for file, expected in record["files"].items():
            if not (folder / file).is_file():
                raise Damaged(f"{folder / file} is missing")
            if _fingerprint((folder / file).read_bytes()) != expected:
                raise Damaged(f"{folder / file} is not what was written: its checksum differs")
        return Record(run, record["final"], record["about"], folder)

    def set_aside(self, name: str) -> Path:
        """Move a damaged run out of the way; returns where to."""
        make_folder(self.damaged)
        number = 1
        while (target := self.damaged / f"{name}.{number}").exists():
            number += 1
        (self.runs / name).rename(target)
        return target

    def fail(self, run: Run, error: str, about: dict[str, Any]) -> None:
        """Remember that a run failed, and how."""
        record = {**run.content, "name": run.name, "error": error, "about": about}
        write_text(self.failed / f"{run.name}.json", json.dumps(record, indent=1, ensure_ascii=False))

    def failure(self, name: str) -> dict[str, Any] | None:
        """How a run failed last time, if it did; a note that cannot be read is no obstacle."""
        try:
            found = json.loads((self.failed / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    @contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Hold a run, so that no other process runs it, too; yields whether that succeeded.

        One byte of one file is locked, at a place that the hash in the name decides: nothing has to be tidied up, and
        the system releases it when the process ends, however it ends.
        """
        if self._locks is None:
            make_folder(self.root)
            self._locks = os.open(self.root / ".locks", os.O_RDWR | os.O_CREAT, 0o666)
        place = int(name[-HASH:][:15], 16)
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, place)

    def tidy(self) -> None:
        """Remove what killed processes left half written."""
        if not self.runs.is_dir():
            return
        for part in self.runs.glob(f".*{PART}"):
            with self.lock(part.name.removesuffix(PART)) as free:
                if free:
                    shutil.rmtree(part, ignore_errors=True)

    def _temporary(self, run: Run) -> Path:
        return self.runs / f".{run.name}{PART}"


def read_record(folder: Path) -> dict[str, Any]:
    """`run.json`, checked; an older format is named."""
    path = folder / RECORD
    try:
        text = path.read_bytes()
        record = json.loads(text)
        format_ = record["format"]
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Damaged(f"{path} is not what was written: it is not a record of a run") from None
    if format_ != FORMAT:
        raise Damaged(f"{path} has format {format_!r:.40}; this version of vpac reads format {FORMAT}")
    checksum = str(record.get("checksum", "")).encode()
    if len(checksum) != len(BLANK) or hashlib.sha256(text.replace(checksum, BLANK)).hexdigest().encode() != checksum:
        raise Damaged(f"{path} is not what was written: its checksum differs")
    return dict(record)


def _signed(record: dict[str, Any]) -> str:
    """A record as the text that is stored; its checksum is that of the text with a blank in its place."""
    blank = json.dumps({**record, "checksum": BLANK.decode()}, indent=1, ensure_ascii=False, allow_nan=False)
    return blank.replace(BLANK.decode(), hashlib.sha256(blank.encode()).hexdigest())


def _fingerprint(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _as_parquet(columns: dict[str, Any]) -> bytes:
    """In memory, so that writing can fail in one place and in one way only."""
    import polars as pl

    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file, compression="zstd")
    return file.getvalue()


def _as_safetensors(arrays: dict[str, FloatArray]) -> bytes:
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
