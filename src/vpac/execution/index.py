"""All runs of a store at a glance. The index is a convenience: whatever happens to it, the folders rebuild it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from typing import Any

from vpac.errors import UserError
from vpac.execution.store import Damaged, Store, read_record
from vpac.sealing import parse

__all__ = ["index"]

INDEX, DIGEST = "index.parquet", "index.sha256"
COLUMNS = ("name", "status", "algorithm", "env", "seed", "mean", "variance", "seconds", "time", "settings", "stamp")


def index(store: Store) -> list[dict[str, Any]]:
    """One row a run, sorted by name; only folders that are new since the last time are read."""
    known = _read(store)
    rows, changed = [], False
    for name, stamp in store.stamps().items():
        row = known.get(name)
        if row is None or row["stamp"] != stamp:
            row, changed = _row(store, name, stamp), True
        rows.append(row)
    if changed or len(rows) != len(known):
        with contextlib.suppress(UserError, OSError):  # a store that cannot be written to can still be listed
            _write(store, rows)
    failed = [_failed(store.failure(name)) for name in store.failures()]
    return rows + [row for row in failed if row is not None]


def _row(store: Store, name: str, stamp: int) -> dict[str, Any]:
    try:
        record = read_record(store.place, name)
    except Damaged as damage:
        blank: dict[str, Any] = dict.fromkeys(COLUMNS)
        return blank | {
            "name": name,
            "status": f"damaged: {damage}",
            "algorithm": "",
            "env": "",
            "settings": {},
            "stamp": stamp,
        }
    final, about = record["final"], record["about"]
    return _of_task(record) | {
        "status": "finished", "mean": final.get("mean"), "variance": final.get("variance"),
        "seconds": about.get("seconds"), "time": about.get("time"), "stamp": stamp,
    }  # fmt: skip


def _failed(record: Any) -> dict[str, Any] | None:
    try:
        blank: dict[str, Any] = dict.fromkeys(COLUMNS)
        return blank | _of_task(record) | {"status": str(record["about"].get("status", "failed")), "stamp": -1}
    except (KeyError, TypeError, AttributeError):
        return None


def _of_task(record: dict[str, Any]) -> dict[str, Any]:
    task = record["task"]
    return {
        "name": record["name"], "algorithm": task.get("algorithm") or task["kind"], "env": task.get("env", ""),
        "seed": record["seed"], "settings": task.get("settings", {}),
    }  # fmt: skip


def _read(store: Store) -> dict[str, dict[str, Any]]:
    """The rows that were written last; none if they cannot be read."""
    import polars as pl

    try:
        content = store.place.read(INDEX)
        if store.place.read(DIGEST) != _digest(content):
            return {}
        frame = pl.read_parquet(io.BytesIO(content), columns=list(COLUMNS))
        return {row["name"]: row | {"settings": parse(row["settings"])} for row in frame.iter_rows(named=True)}
    except (OSError, ValueError, TypeError, pl.exceptions.PolarsError):
        return {}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _write(store: Store, rows: list[dict[str, Any]]) -> None:
    import polars as pl

    kinds: Any = {
        name: pl.Float64
        if name in ("mean", "variance", "seconds")
        else pl.Int64
        if name in ("seed", "stamp")
        else pl.String
        for name in COLUMNS
    }
    plain = [row | {"settings": json.dumps(row["settings"])} for row in rows]
    file = io.BytesIO()
    pl.DataFrame(plain, schema=kinds).write_parquet(file)
    store.place.write(INDEX, file.getvalue())
    store.place.write(DIGEST, _digest(file.getvalue()))
