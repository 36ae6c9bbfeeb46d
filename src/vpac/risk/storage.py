"""Samples of returns on disk, as Parquet or JSON, and as text. None of these can hold code."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from vpac.errors import UserError, one_of
from vpac.files import read_bytes, write_bytes, write_text
from vpac.interruption import held
from vpac.risk.sample import ReturnSample
from vpac.sealing import parse

__all__ = ["as_text", "load", "save"]

FORMAT, OLDER = 2, (1,)
"""Since the second, the numbers are checked when they are read."""
COLUMNS = {
    "return": "discounted_returns", "undiscounted": "undiscounted_returns", "length": "lengths", "terminated": "terminated",
}  # fmt: skip
ENDINGS = (".parquet", ".json")
KEY = "vpac.sample"


@held()
def save(sample: ReturnSample, path: Path) -> Path:
    """Write a sample; the file's ending says how."""
    columns = {name: getattr(sample, field) for name, field in COLUMNS.items()}
    head: dict[str, Any] = {"format": FORMAT, "gamma": sample.gamma, "kind": sample.kind, "about": dict(sample.about)}
    head["sha256"] = _digest(sample)
    if one_of(path.suffix, ENDINGS, "ending of a file of returns") == ".json":
        data = head | {name: column.tolist() for name, column in columns.items()}
        return write_text(path, json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")
    import polars as pl

    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file, metadata={KEY: json.dumps(head, ensure_ascii=False, allow_nan=False)})
    return write_bytes(path, file.getvalue())


def _digest(sample: ReturnSample) -> str:
    """Of everything in a sample."""
    head = json.dumps([sample.gamma, sample.kind, dict(sample.about)], sort_keys=True)
    found = hashlib.sha256(head.encode())
    for field in COLUMNS.values():
        found.update(np.ascontiguousarray(getattr(sample, field)).tobytes())
    return found.hexdigest()


def load(path: Path) -> ReturnSample:
    """Read a sample."""
    one_of(path.suffix, ENDINGS, "ending of a file of returns")
    try:
        content = read_bytes(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        head, columns = _from_json(content) if path.suffix == ".json" else _from_parquet(content)
        if head["format"] not in (FORMAT, *OLDER):
            raise UserError(f"it is in format {head['format']!r:.40}: this version reads formats up to {FORMAT}")
        fields = {field: columns[name] for name, field in COLUMNS.items()}
        found = ReturnSample(**fields, gamma=float(head["gamma"]), about=dict(head["about"]), kind=head["kind"])
        if ("sha256" in head or head["format"] == FORMAT) and head.get("sha256") != _digest(found):
            raise UserError("it is not what was written: its checksum differs")
        return found
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # Polars has errors of its own for every kind of damage
        raise UserError(f"{path} does not hold a sample of returns: {type(error).__name__}: {error!s:.80}") from None


def _from_json(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    data = parse(content)
    return data, data


@held()
def _from_parquet(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    import polars as pl

    try:
        head = parse(pl.read_parquet_metadata(io.BytesIO(content))[KEY])
        frame = pl.read_parquet(io.BytesIO(content))
    except pl.exceptions.PanicException as error:  # which is no Exception
        raise ValueError(error) from None
    return head, {name: frame[name].to_numpy() for name in COLUMNS}


def as_text(sample: ReturnSample, level: float) -> str:
    """A table of every metric, with its interval, in plain text."""

    def number(value: float) -> str:
        return "?" if np.isnan(value) else f"{value:.5g}"

    lines = [f"{len(sample)} episodes, {sample.kind} returns (gamma {sample.gamma:g}), {100 * level:g} % intervals"]
    lines += [
        f"{row.name:<30}{number(row.interval.estimate):>12}   {number(row.interval.low)} … {number(row.interval.high)}"
        for row in sample.rows(level)
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in sample.notes())])
