"""Memory for a compiled function to work in: taken when it begins, given back when it ends.

Compiled functions cannot make arrays, because nobody counts references to them (`compiled.py`). What is as large as the
world and of no interest to the caller they get from the C library instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from vpac.learners.compiled import inlined

__all__ = ["borrow", "give_back", "table_in"]

_calloc: Any = types.ExternalFunction("calloc", types.voidptr(types.uint64, types.uint64))
_free: Any = types.ExternalFunction("free", types.void(types.voidptr))
TABLE = types.Array(types.float64, 2, "C")
BYTES = 8


@inlined
def borrow(rows: int, columns: int) -> Any:
    """Memory for a table of zeros. Large ones cost nothing until they are written to."""
    return _calloc(np.uint64(rows * columns), np.uint64(BYTES))


@inlined
def give_back(memory: Any) -> None:
    """The end of borrowed memory."""
    _free(memory)


def _table_in(context: Any, memory: Any, rows: Any, columns: Any) -> Any:
    """Borrowed memory as an array."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer, rows, columns = arguments
        array = context.make_array(TABLE)(context, builder)
        item = context.get_constant(types.intp, BYTES)
        strides = (builder.mul(columns, item), item)
        data = builder.bitcast(pointer, array.data.type)
        layout = {"shape": (rows, columns), "strides": strides, "itemsize": item}
        populate_array(array, data=data, meminfo=None, **layout)  # type: ignore[no-untyped-call]
        return array._getvalue()

    return TABLE(memory, types.intp, types.intp), code


table_in: Any = intrinsic(_table_in)
