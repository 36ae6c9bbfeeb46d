"""Samples of returns on disk, as Parquet or JSON, and as text. None of these can hold code."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from vpac.errors import UserError, one_of
from vpac.files import write_atomically, write_text
from vpac.risk.sample import ReturnSample

__all__ = ["as_text", "load", "save"]

FORMAT = 1
COLUMNS = {
    "return": "discounted_returns", "undiscounted": "undiscounted_returns", "length": "lengths", "terminated": "terminated",
}  # fmt: skip
ENDINGS = (".parquet", ".json")
KEY = "vpac.sample"


def save(sample: ReturnSample, path: Path) -> Path:
    """Write a sample; the file's ending says how."""
    columns = {name: getattr(sample, field) for name, field in COLUMNS.items()}
    head = {"format": FORMAT, "gamma": sample.gamma, "kind": sample.kind, "about": dict(sample.about)}
    if one_of(path.suffix, ENDINGS, "ending of a file of returns") == ".json":
        data = head | {name: column.tolist() for name, column in columns.items()}
        return write_text(path, json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")
    import polars as pl

    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file, metadata={KEY: json.dumps(head, ensure_ascii=False, allow_nan=False)})
    return write_atomically(path, lambda temporary: temporary.write_bytes(file.getvalue()))


def load(path: Path) -> ReturnSample:
    """Read a sample."""
    one_of(path.suffix, ENDINGS, "ending of a file of returns")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        head, columns = _from_json(content) if path.suffix == ".json" else _from_parquet(content)
        if head["format"] != FORMAT:
            raise UserError(f"{path} is in format {head['format']!r:.40}: this version reads format {FORMAT}")
        fields = {field: columns[name] for name, field in COLUMNS.items()}
        return ReturnSample(**fields, gamma=float(head["gamma"]), about=dict(head["about"]), kind=head["kind"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # Polars has errors of its own for every kind of damage
        raise UserError(f"{path} does not hold a sample of returns: {type(error).__name__}: {error!s:.80}") from None


def _from_json(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    data = json.loads(content)
    return data, data


def _from_parquet(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    import polars as pl

    head = json.loads(pl.read_parquet_metadata(io.BytesIO(content))[KEY])
    frame = pl.read_parquet(io.BytesIO(content))
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
    return "\n".join(lines)
