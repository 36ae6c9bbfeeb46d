"""Tables and arrays as bytes, in formats that cannot hold code; made in memory, so that writing fails in one place only."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from vpac.errors import UserError
from vpac.interruption import held
from vpac.typing import FloatArray

__all__ = ["arrays_of", "as_parquet", "as_safetensors", "columns_of", "frame_of"]

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
