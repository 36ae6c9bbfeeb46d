"""Memory for compiled functions: allocated when they begin, freed when they end.

Compiled functions cannot create arrays, because references are not counted (`compiled.py`). Large temporary arrays are
allocated with the C library instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import alloca_once
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from vpac.tabular.kernel.jit import inlined

_calloc: Any = types.ExternalFunction("calloc", types.voidptr(types.uint64, types.uint64))
_free: Any = types.ExternalFunction("free", types.void(types.voidptr))
TABLE_TYPE = types.Array(types.float64, 2, "C")
BYTES = 8


@inlined
def borrow(rows: int, columns: int) -> Any:
    """Allocate a table of zeros. A large one costs nothing until it is written to."""
    return _calloc(np.uint64(rows * columns), np.uint64(BYTES))


@inlined
def give_back(memory: Any) -> None:
    """Free borrowed memory."""
    _free(memory)


def _table_in(context: Any, memory: Any, rows: Any, columns: Any) -> Any:
    """Borrowed memory as an array."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer, rows, columns = arguments
        array = context.make_array(TABLE_TYPE)(context, builder)
        item = context.get_constant(types.intp, BYTES)
        strides = (builder.mul(columns, item), item)
        data = builder.bitcast(pointer, array.data.type)
        layout = {"shape": (rows, columns), "strides": strides, "itemsize": item}
        populate_array(array, data=data, meminfo=None, **layout)  # type: ignore[no-untyped-call]
        return array._getvalue()

    return TABLE_TYPE(memory, types.intp, types.intp), code


table_in: Any = intrinsic(_table_in)


def _on_stack(context: Any, array: Any, size: Any) -> Any:
    """Copy the first numbers of an array to the stack."""
    if not isinstance(size, types.IntegerLiteral):
        return None
    length = size.literal_value
    kind = types.Array(array.dtype, 1, "C")

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        source = context.make_array(array)(context, builder, arguments[0]).data
        item = context.get_value_type(array.dtype)
        room: Any = alloca_once(builder, ir.ArrayType(item, length))  # type: ignore[no-untyped-call]
        data = builder.bitcast(room, item.as_pointer())
        for index in range(length):
            at = ir.Constant(ir.IntType(64), index)
            builder.store(builder.load(builder.gep(source, [at])), builder.gep(data, [at]))
        result = context.make_array(kind)(context, builder)
        one = context.get_constant(types.intp, BYTES)
        layout = {"shape": (context.get_constant(types.intp, length),), "strides": (one,), "itemsize": one}
        populate_array(result, data=data, meminfo=None, **layout)  # type: ignore[no-untyped-call]
        return result._getvalue()

    return kind(array, size), code


on_stack: Any = intrinsic(prefer_literal=True)(_on_stack)
"""A private copy of an array's first numbers, which LLVM keeps in registers."""
