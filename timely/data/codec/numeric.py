"""Encoding of NumPy values, and of whole tables inside records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from timely.data.codec.records import Column, ColumnWriter, carries, read, set_packer, understands
from timely.data.codec.tables import read_frame, read_table, write_frame, write_table
from timely.errors import CodecError

SCALAR, NUMPY_TEXT, NUMPY_BYTES, ARRAY, TABLE, FRAME, SERIES = 56, 57, 58, 59, 60, 61, 62


def _pack_scalars(_: ColumnWriter, values: Sequence[np.generic]) -> Column:
    kinds = [value.dtype.str for value in values]
    return [SCALAR, kinds[:1] if len(set(kinds)) == 1 else kinds, [value.tobytes() for value in values]]


def _read_scalars(column: Column) -> list[Any]:
    _, kinds, data = column
    if len(kinds) == 1:
        dtype = _dtype(kinds[0])
        return list(_checked(np.frombuffer(b"".join(data), dtype)))
    return [_checked(np.frombuffer(item, _dtype(kind)))[0] for kind, item in zip(kinds, data, strict=True)]


def _dtype(description: Any) -> np.dtype[Any]:
    _check_dtype(description)
    dtype = np.lib.format.descr_to_dtype(description)
    if dtype.hasobject:
        raise CodecError("damaged value: an array of Python objects")
    return dtype


_PLAIN_DTYPE = re.compile(r"[<>|][biufcmMSUV]\d{1,9}(\[\d{0,9}[a-zA-Z]{1,2}\])?")


def _check_dtype(description: Any) -> None:
    """Validate a NumPy type description.

    Only the forms of `dtype_to_descr` pass: NumPy understands far more in place of a type.
    """
    if isinstance(description, str):
        if not _PLAIN_DTYPE.fullmatch(description):
            raise CodecError(f"damaged value: {description[:50]!r} is no type of an array")
    else:
        for field in description:
            _check_dtype(field[1])


def _checked(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Check the values of a decoded array for printability.

    Of dates without a unit NumPy can print only NaT.
    """
    if values.dtype.names is not None:
        for name in values.dtype.names:
            _checked(values[name])
    elif values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] == "generic" and not np.isnat(values).all():
        raise CodecError("damaged value: a date without a unit")
    return values


def _pack_arrays(writer: ColumnWriter, values: Sequence[np.ndarray[Any, Any]]) -> Column:
    for value in values:
        if value.dtype.hasobject:
            raise CodecError("an array of Python objects is not carried; give it a dtype, or use a list")
    orders: list[Literal["F", "C"]] = ["F" if value.flags.fnc else "C" for value in values]
    return [
        ARRAY,
        writer.column([np.lib.format.dtype_to_descr(value.dtype) for value in values]),
        [list(value.shape) for value in values],
        orders,
        [value.tobytes(order) for value, order in zip(values, orders)],
    ]


def _read_arrays(column: Column) -> list[Any]:
    _, kinds, shapes, orders, data = column
    return [
        # A copy: bytes are read-only, and whoever sent an array could write to it.
        _checked(np.frombuffer(item, _dtype(kind))).reshape(shape, order=order).copy(order=order)
        for kind, shape, order, item in zip(read(kinds), shapes, orders, data, strict=True)
    ]


understands(SCALAR, _read_scalars)
for _name in [
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "intc",
    "uintc",
    "longlong",
    "ulonglong",
]:
    set_packer(getattr(np, _name), _pack_scalars)
for _name in [
    "float16",
    "float32",
    "float64",
    "longdouble",
    "complex64",
    "complex128",
    "clongdouble",
    "datetime64",
    "timedelta64",
]:
    set_packer(getattr(np, _name), _pack_scalars)
carries(
    np.str_,
    NUMPY_TEXT,
    lambda writer, values: [NUMPY_TEXT, writer.column(list(map(str, values)))],
    lambda column: list(map(np.str_, read(column[1]))),
)
carries(
    np.bytes_,
    NUMPY_BYTES,
    lambda _, values: [NUMPY_BYTES, list(map(bytes, values))],
    lambda column: [np.bytes_(memoryview(data)) for data in column[1]],
)
carries(np.ndarray, ARRAY, _pack_arrays, _read_arrays)
carries(
    pa.Table,
    TABLE,
    lambda _, values: [TABLE, [memoryview(write_table(value)) for value in values]],
    lambda column: list(map(read_table, column[1])),
)
carries(
    pl.DataFrame,
    FRAME,
    lambda _, values: [FRAME, [memoryview(write_frame(value)) for value in values]],
    lambda column: list(map(read_frame, column[1])),
)
carries(
    pl.Series,
    SERIES,
    lambda _, values: [SERIES, [memoryview(write_frame(value.to_frame())) for value in values]],
    lambda column: [read_frame(item).to_series() for item in column[1]],
)
