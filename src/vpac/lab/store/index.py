"""All runs of a store at a glance. The index is a convenience: whatever happens to it, the folders rebuild it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from vpac.interruption import held
from vpac.lab.store.readers import CHUNK, MANY, crew
from vpac.lab.store.records import Damaged, Newer, read_record
from vpac.lab.store.store import Store, frame_of
from vpac.sealing import parse

__all__ = ["index"]

INDEX, DIGEST = "index.parquet", "index.sha256"
WORDS = ("name", "status", "algorithm", "env", "settings")
"""Columns of which no cell is empty."""
COLUMNS = ("name", "status", "algorithm", "env", "seed", "mean", "variance", "seconds", "time", "settings", "stamp")


def index(store: Store) -> list[dict[str, Any]]:
    """One row a run, sorted by name; only folders that are new since the last time are read."""
    known, stamps = _read(store), store.stamps()
    new = [(name, stamp) for name, stamp in stamps.items() if name not in known or known[name]["stamp"] != stamp]
    rows = known | {row["name"]: row for row in _rows(store, new)}
    found = [rows[name] for name in stamps]
    if new or len(found) != len(known):
        with contextlib.suppress(OSError, ValueError):  # a store that cannot be written to can still be listed
            _write(store, found)
    return found + [_failed(store, name) for name in store.failures()]


def _rows(store: Store, new: Sequence[tuple[str, int]]) -> Iterator[dict[str, Any]]:
    """The rows of runs, each with its stamp; read by other processes, too, if there are very many."""
    chunks = [new[begin : begin + CHUNK] for begin in range(0, len(new), CHUNK)]
    many = len(new) >= MANY and store.place.readers == 1
    there = crew().map(_there, [(store.address, chunk) for chunk in chunks]) if many else repeat(None)
    for chunk, rows in zip(chunks, there, strict=False):
        yield from rows or [_row(store, name, stamp) for name, stamp in chunk]


def _there(chunk: tuple[str, Sequence[tuple[str, int]]]) -> list[dict[str, Any]] | None:
    """In another process; what the machine cannot read is for whoever asked."""
    try:
        return [_row(Store(chunk[0]), name, stamp) for name, stamp in chunk[1]]
    except OSError:
        return None


def _row(store: Store, name: str, stamp: int) -> dict[str, Any]:
    try:
        record = read_record(store.place, name)
    except Damaged as damage:
        return _bare(name, f"damaged: {damage}", stamp)
    except Newer as newer:
        return _bare(name, f"newer: {newer}", stamp)
    final, about = record["final"], record["about"]
    return _of_task(record) | {
        "status": "finished", "mean": final.get("mean"), "variance": final.get("variance"),
        "seconds": about.get("seconds"), "time": about.get("time"), "stamp": stamp,
    }  # fmt: skip


def _failed(store: Store, name: str) -> dict[str, Any]:
    try:
        note = store.failure(name)
    except Damaged as damage:
        return _bare(name, f"damaged: {damage}", -1)
    if note is None:  # it has just been removed
        return _bare(name, "failed", -1)
    return dict.fromkeys(COLUMNS) | _of_task(note) | {"status": note["about"].get("status", "failed"), "stamp": -1}


def _bare(name: str, status: str, stamp: int) -> dict[str, Any]:
    """The row of a run of which nothing else is known."""
    words: dict[str, Any] = {"algorithm": "", "env": "", "settings": {}}
    return dict.fromkeys(COLUMNS) | words | {"name": name, "status": status, "stamp": stamp}


def _of_task(record: dict[str, Any]) -> dict[str, Any]:
    task = record["task"]
    return {
        "name": record["name"], "algorithm": task.get("algorithm") or task["kind"], "env": task.get("env", ""),
        "seed": record["seed"], "settings": task.get("settings", {}),
    }  # fmt: skip


def _read(store: Store) -> dict[str, dict[str, Any]]:
    """The rows that were written last; none if they cannot be read."""
    try:
        content = store.place.read(INDEX)
        if store.place.read(DIGEST) != _digest(content):
            return {}
        frame = frame_of(content)
        if dict(frame.schema) != _kinds() or any(frame[name].null_count() for name in WORDS):
            return {}
        rows = [row | {"settings": parse(row["settings"])} for row in frame.iter_rows(named=True)]
    except (OSError, ValueError):
        return {}
    return {row["name"]: row for row in rows} if all(isinstance(row["settings"], dict) for row in rows) else {}


def _kinds() -> dict[str, Any]:
    """The kind of each column."""
    import polars as pl

    floats, integers = (
        dict.fromkeys(("mean", "variance", "seconds"), pl.Float64),
        dict.fromkeys(("seed", "stamp"), pl.Int64),
    )
    return dict.fromkeys(COLUMNS, pl.String) | floats | integers


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _write(store: Store, rows: list[dict[str, Any]]) -> None:
    import polars as pl

    plain = [row | {"settings": json.dumps(row["settings"])} for row in rows]
    file = io.BytesIO()
    with held():
        pl.DataFrame(plain, schema=_kinds()).write_parquet(file)
    store.place.write(INDEX, file.getvalue())
    store.place.write(DIGEST, _digest(file.getvalue()))
