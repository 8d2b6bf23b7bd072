"""Conversion between columns and the 64-bit NumPy arrays used by the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from timely.data.batch import Batch, as_array, as_arrow
from timely.data.kernels.series import frame_of
from timely.data.sums.terms import column_of_terms, is_terms

TINY = 512
"""Row count up to about here: plain Python beats compiled loops and Polars plans."""

Numbers = npt.NDArray[Any]
"""An int64, float64 or object array.

Objects are Python integers, or values that are compared but never added. Sums of floats have two dimensions
(`timely.data.sums.terms`).
"""


def select(batch: Batch, names: list[str]) -> pa.Table:
    """The named columns of a batch as an Arrow table; only they are converted.

    Raises:
        KeyError: if a column is missing; the message lists those that exist.
        TypeError: for records, which have no column names.
    """
    if not isinstance(batch, pl.DataFrame | pa.Table):
        return as_arrow(batch)
    have = batch.columns if isinstance(batch, pl.DataFrame) else batch.column_names
    check_there(have, names)
    if isinstance(batch, pl.DataFrame) and len(batch) < TINY:
        return pa.Table.from_arrays([as_array(batch.get_column(name)) for name in names], names)
    if isinstance(batch, pl.DataFrame) and have != names:
        # To select from the frame makes a plan of it, which costs more than some thousand rows do.
        return as_arrow(frame_of([batch.get_column(name) for name in names]))
    return as_arrow(batch if have == names else batch.select(names))


def check_there(have: Sequence[str], names: Sequence[str]) -> None:
    """Raise KeyError if a column of `names` is missing from `have`."""
    for name in names:
        if name not in have:
            raise KeyError(
                f"no column {name!r}; this batch has {', '.join(repr(each) for each in have if not each.endswith('()'))}"
            )


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine the chunks of a column into one array.

    Dictionaries are unified. Views, which Arrow cannot filter, become text and bytes.
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column.cast(whole_type(column.type)) if column.type.id in _OF_VIEWS else column


def whole_type(kind: pa.DataType) -> pa.DataType:
    """Result type of `whole` for a column of type `kind`."""
    return _OF_VIEWS.get(kind.id, kind)


_OF_VIEWS = {pa.string_view().id: pa.large_string(), pa.binary_view().id: pa.large_binary()}


def is_text(kind: pa.DataType) -> bool:
    """True if `kind` is one of Arrow's string types, or a dictionary of one."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """True if `numbers` accepts columns of this type."""
    return kind.id in _NUMBERS


_INTEGERS = [make() for make in (pa.int8, pa.int16, pa.int32, pa.int64, pa.uint8, pa.uint16, pa.uint32, pa.uint64)]
_TEMPORAL = [pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us")]
_FLOATS = [pa.float16(), pa.float32(), pa.float64()]
_NUMBERS = frozenset(kind.id for kind in (*_INTEGERS, *_TEMPORAL, *_FLOATS, pa.bool_()))
_TIMES = frozenset(kind.id for kind in _TEMPORAL)
PLAIN = {pa.int64().id: np.dtype(np.int64), pa.float64().id: np.dtype(np.float64)}
"""Types passed through by `numbers` unchanged."""


def numbers(column: pa.Array) -> Numbers:
    """Integers, booleans and temporal values as int64, floats as float64.

    The column must have no nulls.

    Raises:
        TypeError: for any other type.
    """
    kind = column.type
    types = pa.types
    if kind.id in PLAIN:
        plain: Numbers = column.to_numpy(zero_copy_only=False)
        return plain
    if not is_number(kind):
        raise TypeError(f"a column of type {kind} is not numeric")
    if types.is_floating(kind):
        floats: Numbers = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        return floats
    if types.is_boolean(kind):
        column = column.cast(pa.int8())
    integers: Numbers = as_integers(column).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if types.is_uint64(kind):
        check_signed(integers)
    return integers


class BeyondSigned(OverflowError):
    """Unsigned integer beyond the signed 64-bit range."""

    def __init__(self, row: int, value: int, column: str | None = None, key: str = "") -> None:
        of, place = ("an unsigned column", "...") if column is None else (f"column {column!r}", repr(column))
        super().__init__(
            f"{of} holds {value}{key}, and totals are of 64-bit integers with a sign; cast it before: "
            f"with_columns(pl.col({place}).cast(pl.Decimal(38, 0))) is exact, pl.Float64 rounds"
        )
        self.row, self.value = row, value

    def of(self, column: str, key: str = "") -> BeyondSigned:
        """Copy of this error, naming the column and the row's key."""
        return BeyondSigned(self.row, self.value, column, key)


def check_signed(integers: Numbers) -> None:
    """Raise BeyondSigned for unsigned values beyond int64, as viewed by `as_integers`.

    Raises:
        BeyondSigned: if there is one.
    """
    if len(integers) and int(integers.min()) < 0:
        row = int(np.argmax(integers < 0))
        raise BeyondSigned(row, int(integers.view(np.uint64)[row]))


def in_their_order(column: pa.Array) -> Numbers:
    """Order-preserving `numbers`, also for uint64 beyond the signed range."""
    return _shifted(as_integers(column).to_numpy()) if pa.types.is_uint64(column.type) else numbers(column)


def to_add(ordered: Numbers) -> Numbers:
    """Undo the order-preserving shift of uint64 values, for addition.

    Raises:
        BeyondSigned: if one has no place among integers with a sign.
    """
    integers = _shifted(ordered)
    check_signed(integers)
    return integers


def _shifted(integers: Numbers) -> Numbers:
    shifted: Numbers = integers ^ np.iinfo(np.int64).min
    return shifted


def integers_type(kind: pa.DataType) -> pa.DataType:
    """Result type of `as_integers` for a column of type `kind`."""
    if kind.id in _TIMES:
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.int64() if pa.types.is_uint64(kind) else kind


def as_integers(column: pa.Array) -> pa.Array:
    """View times and uint64 as signed integers; other columns as they are.

    Equal values stay equal.

    Python's own times would not do: of two instants that a clock shows alike they make one, and they have no nanoseconds.
    """
    return _viewed(column, integers_type(_of_dictionary(column.type)))


def of_integers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Inverse of `as_integers`: a column of type `kind`."""
    of = _of_dictionary(kind)
    return column if integers_type(of) is of else _viewed(column, of)


def _viewed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    of = column.type
    if pa.types.is_null(of) or _of_dictionary(of) is kind or _of_dictionary(of).equals(kind):
        return column
    if pa.types.is_dictionary(of):
        return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.view(kind), safe=False)
    return column.view(kind)


def _of_dictionary(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def column_of(values: Numbers, kind: pa.DataType, empty: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The inverse of `in_their_order`: a column of type `kind`, null where `empty`."""
    types = pa.types
    if empty is not None and not np.count_nonzero(empty):
        empty = None
    if is_terms(kind):
        return column_of_terms(values, empty)
    if empty is None and kind.id in PLAIN and values.dtype == PLAIN[kind.id] and values.flags.c_contiguous:
        # The same as `pa.array(values)`, twice as fast.
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
    if types.is_null(kind):
        return pa.nulls(len(values))
    if types.is_struct(kind):
        return _pairs_of(values, kind, empty)
    if values.dtype.kind == "O":
        plain = values.tolist()
        if empty is not None:
            plain = [None if left else value for left, value in zip(empty.tolist(), plain, strict=True)]
        if types.is_decimal(kind) and any(type(value) is int for value in plain):
            plain = [value if value is None else Decimal(value).scaleb(-kind.scale, _EXACT) for value in plain]
        try:
            return pa.array(plain, kind)
        except pa.ArrowInvalid:
            if not types.is_decimal128(kind):
                raise
            return pa.array(plain, pa.decimal256(76, kind.scale))  # a sum of more than 38 digits, which results refuse
    if empty is not None:
        values = np.where(empty, 0, values)
    if types.is_floating(kind):
        return pa.array(values, mask=empty).cast(kind) if kind.bit_width != 64 else pa.array(values, mask=empty)
    plain = pa.array(values.astype(np.int64, copy=False), mask=empty)
    if types.is_int64(kind):
        return plain
    if types.is_uint64(kind):
        return pa.array(_shifted(values.astype(np.int64, copy=False)), mask=empty).view(kind)
    if types.is_temporal(kind):
        return plain.view(kind) if kind.bit_width == 64 else plain.cast(pa.int32()).view(kind)
    return plain.cast(kind)


_EXACT = Context(prec=80)


def objects(column: pa.Array) -> Numbers:
    """Non-numeric column without nulls as Python values; decimals as scaled integers.

    Decimals of one type are equal, less or more as these integers are, which add up exactly. `pairs` are tuples.
    """
    if pa.types.is_struct(column.type):
        return np.fromiter(
            zip(*(_places(part).tolist() for part in column.flatten()), strict=True), object, len(column)
        )
    result = np.empty(len(column), object)
    values = column.to_pylist()
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        values = [int(value.scaleb(scale, _EXACT)) for value in values]
    result[:] = values
    return result


def comparable_type(kind: pa.DataType) -> pa.DataType | None:
    """Type used to compare non-numeric values: text, bytes, decimals and `pairs`."""
    if is_text(kind):
        return pa.string()
    types = pa.types
    if types.is_struct(kind):
        return kind
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.binary()
    return kind if types.is_decimal(kind) else None


def comparable(column: pa.Array) -> tuple[Numbers, pa.Array]:
    """Rank of each value in a sorted array, and that array.

    The column must have no nulls, and a `comparable_type`.
    """
    if pa.types.is_struct(column.type):
        parts = [_places(part) if is_number(part.type) else comparable(part)[0] for part in column.flatten()]
        order = np.lexsort(parts[::-1])
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return places, column.take(pa.array(order))
    if not pa.types.is_dictionary(column.type):
        column = column.cast(comparable_type(column.type)).dictionary_encode()
    elif len(column.dictionary) > 2 * len(column):
        column = column.dictionary_decode().dictionary_encode()
    order = pc.sort_indices(column.dictionary)
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    codes = column.indices.to_numpy()
    return ranks[codes], column.dictionary.take(order).cast(comparable_type(column.type.value_type))


def in_order(column: pa.Array) -> Numbers:
    """Order-preserving integers for a column without nulls; NaN sorts last.

    Raises:
        TypeError: if they have no order.
    """
    kind = column.type
    if is_number(kind):
        values = in_their_order(column)
        return _as_integers(values) if values.dtype.kind == "f" else values
    of = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(of):
        return np.zeros(0, np.int64)
    if pa.types.is_struct(of) or comparable_type(of) is None:
        raise TypeError(f"values of type {kind} have no order; leave the column out before, or make text of it")
    return comparable(column)[0]


def pairs(by: pa.Array, of: pa.Array) -> pa.Array:
    """Two columns as one of pairs in lexicographic order; null if either is null.

    Both are numbers, or of a `comparable_type`. NaN is greater than all numbers.
    """
    if pa.types.is_null(by.type) or pa.types.is_null(of.type):
        return pa.nulls(len(by))
    parts = [part if is_number(part.type) else part.cast(comparable_type(part.type)) for part in (by, of)]
    mask = None
    if by.null_count or of.null_count:
        mask = pc.or_(by.is_null(), of.is_null())
    return pa.StructArray.from_arrays(parts, ["by", "of"], mask=mask)


def second(column: pa.Array) -> pa.Array:
    """Second parts of `pairs`."""
    return column if pa.types.is_null(column.type) else pc.struct_field(column, [1])


def _places(column: pa.Array) -> Numbers:
    """Order-preserving integers or objects for one part of a pair."""
    if not is_number(column.type):
        return objects(column)
    values = in_their_order(column)
    return _as_integers(values) if values.dtype.kind == "f" else values


def _as_integers(floats: Numbers) -> Numbers:
    """Order-preserving integers for floats; NaN sorts last."""
    found = floats + 0.0  # -0.0 is 0.0
    found[np.isnan(found)] = np.nan
    return _mirrored(found.view(np.int64))


def _mirrored(bits: Numbers) -> Numbers:
    """Map float bits to order-preserving integers, and back."""
    mirrored: Numbers = bits ^ ((bits >> 63) & np.iinfo(np.int64).max)
    return mirrored


def _pairs_of(values: Numbers, kind: pa.DataType, empty: npt.NDArray[np.bool_] | None) -> pa.Array:
    """The inverse of `objects` for pairs of type `kind`."""
    left_out = np.zeros(len(values), np.bool_) if empty is None else empty
    given = values[~left_out].tolist()
    at = np.zeros(len(values), np.int64)
    at[~left_out] = np.arange(len(given))
    parts = []
    for number, field in enumerate(kind):
        part = np.empty(len(given), object)
        part[:] = [pair[number] for pair in given]
        if is_number(field.type):
            part = part.astype(np.int64)
            part = _mirrored(part).view(np.float64) if pa.types.is_floating(field.type) else part
        parts.append(column_of(part, field.type).take(pa.array(at, mask=left_out)))
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(left_out))


def pooled_empty(count: int, dtype: npt.DTypeLike) -> Numbers:
    """Uninitialised array in Arrow's memory pool, to reuse freed memory.

    Fresh memory from the system costs a page fault every 4 KiB: for 100,000 groups that is more than adding them up.
    """
    dtype = np.dtype(dtype)
    return np.frombuffer(pa.allocate_buffer(count * dtype.itemsize), dtype)


def pooled_full(count: int, value: Any, dtype: npt.DTypeLike) -> Numbers:
    """Array in Arrow's memory pool, filled with `value`."""
    array = pooled_empty(count, dtype)
    array.fill(value)
    return array


def pooled_take(array: Numbers, ids: npt.NDArray[np.intp]) -> Numbers:
    """`array[ids]` in Arrow's memory pool; ids must be valid."""
    return np.take(array, ids, out=pooled_empty(len(ids), array.dtype), mode="clip")


class Scratch:
    """Reusable scratch arrays: their memory is cached and already touched."""

    MOST = 8 << 20
    """Most bytes of a kept array; larger ones are allocated anew."""

    def __init__(self) -> None:
        self._arrays: dict[str, Numbers] = {}

    def room(self, name: str, count: int, dtype: npt.DTypeLike) -> Numbers:
        """Uninitialised array, valid until the next one of that name.

        A name goes with one type.
        """
        array = self._arrays.get(name)
        if array is None or len(array) < count:
            array = np.empty(count, dtype)
            if array.nbytes <= self.MOST:
                self._arrays[name] = array
        return array[:count]


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Exclusive use of a `Scratch`, from any thread."""
    try:
        mine = _spare.pop()
    except IndexError:
        mine = Scratch()
    try:
        yield mine
    finally:
        _spare.append(mine)


_spare: list[Scratch] = []


def take_rows(table: pa.Table, rows: npt.NDArray[np.intp]) -> pa.Table:
    """Rows by valid indices, in the order given.

    Plain columns are taken in Arrow's memory pool.
    """
    columns = [_taken(whole(column), rows) for column in table.columns]
    return pa.Table.from_arrays(columns, table.column_names)


def _taken(column: pa.Array, rows: npt.NDArray[np.intp]) -> pa.Array:
    if column.type.id not in PLAIN or column.null_count:
        return column.take(pa.array(rows))
    return column_of(pooled_take(numbers(column), rows), column.type)
