"""Batches: lists of *records*, or *columns* (an Arrow table or Polars frame).

Batches are immutable by agreement: whoever receives one must not change it, so that it can be shared with a
log, a checkpoint and several consumers. Nothing here copies data where a view will do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias, TypeVar, cast

import polars as pl
import pyarrow as pa

from timely.data.common_types import common_type, widened
from timely.data.exact_casts import cast_exactly, is_text

Batch: TypeAlias = list[Any] | pa.Table | pl.DataFrame
Columns: TypeAlias = pa.Table | pl.DataFrame
AnyBatch = TypeVar("AnyBatch", bound=Batch)

FAILURES = (Exception, pl.exceptions.PanicException, SystemExit)
"""Exceptions raised by user functions and by Polars.

Polars panics are no subclass of Exception.
"""

SAMPLE = 4  # Records looked at by `nbytes`.


def is_columns(batch: Batch) -> bool:
    """True if `batch` is columns rather than records."""
    return not isinstance(batch, list)


def length(batch: Batch) -> int:
    """Number of records or rows. O(1)."""
    return len(batch)


def nbytes(batch: Batch) -> int:
    """Estimate of a batch's memory in bytes, cheap enough for every queued message.

    Records: a few evenly spaced ones are measured, two levels deep. Columns: the part of the buffers that is
    in view.
    """
    if isinstance(batch, list):
        rows = len(batch)
        if rows <= SAMPLE:
            return 8 * rows + sum(map(_size, batch))
        sample = batch[:: rows // SAMPLE]
        return 8 * rows + sum(map(_size, sample)) * rows // len(sample)
    if isinstance(batch, pl.DataFrame):
        return int(batch.estimated_size())
    # What is in view takes twenty times as long to find out as what there is in all, which will do where that is little.
    held = int(batch.get_total_buffer_size())
    return held if held <= _CELL * batch.num_rows * batch.num_columns else int(batch.nbytes)


_CELL = 32
_CONTAINERS = (tuple, list, set, frozenset)
_getsizeof = sys.getsizeof


def _size(record: object) -> int:
    if isinstance(record, _CONTAINERS):
        size = _getsizeof(record)
        if len(record) <= 8:
            for item in record:
                size += _getsizeof(item)
            return size
        few = list(record)[:: len(record) // 8]
        return size + sum(map(_getsizeof, few)) * len(record) // len(few)
    if isinstance(record, dict):
        return _getsizeof(record) + _size(tuple(record)) + _size(tuple(record.values()))
    if isinstance(record, pa.Table | pl.DataFrame):
        return nbytes(record)
    own = getattr(record, "__dict__", None)
    if own:
        return _getsizeof(record) + _size(own)
    # NumPy arrays that own their data report it here; views say what they look at.
    return max(_getsizeof(record), getattr(record, "nbytes", 0))


def head(batch: Batch, n: int) -> Batch:
    """The first `n` records or rows: a sample for an error message or a page."""
    return slice_(batch, 0, n)


def slice_(batch: Batch, start: int, count: int) -> Batch:
    """`count` records or rows from `start`, fewer at the end of the batch.

    Columns are viewed, not copied.
    """
    if isinstance(batch, list):
        return batch[start : start + count]
    return batch.slice(start, count)


def take(batch: Batch, indices: Any) -> Batch:
    """The records or rows at `indices` (a sequence or integer array), in that order."""
    if isinstance(batch, list):
        return [batch[index] for index in indices]
    if isinstance(batch, pl.DataFrame):
        return batch[indices]
    return batch.take(pa.array(indices))


def divide(columns: Batch, mask: pl.Series) -> tuple[Batch, Batch]:
    """Split rows by `mask` (booleans without nulls): the true ones, then the others.

    If all rows fall on one side, that side is the batch itself.
    """
    held = int(mask.sum())
    if held in (0, len(mask)):
        none = slice_(columns, 0, 0)
        return (columns, none) if held else (none, columns)
    if isinstance(columns, pa.Table):
        return columns.filter(mask.to_arrow()), columns.filter((~mask).to_arrow())
    # Series by series: a filter of the frame would make a plan of it, which costs more than a few rows do.
    held_columns, others = as_polars(columns).get_columns(), ~mask
    return (
        pl.DataFrame([column.filter(mask) for column in held_columns]),
        pl.DataFrame([column.filter(others) for column in held_columns]),
    )


def as_arrow(batch: Batch) -> pa.Table:
    """Columns as an Arrow table.

    Polars numbers are shared; its strings become `large_string`, a copy.

    Raises:
        TypeError: for records, which have no column names, and for columns that have no Arrow form.
    """
    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, pl.DataFrame):
        try:
            table = batch.to_arrow()
        except pa.ArrowException as error:
            raise without_arrow_form(batch.get_columns(), error) from error
        if _POINTERS in table.schema.types:
            raise TypeError(
                f"column {table.schema.names[table.schema.types.index(_POINTERS)]!r} holds Python objects, which no column "
                "format carries; use records for them"
            )
        return table
    raise TypeError(_NO_COLUMNS)


_POINTERS = pa.binary(8)
"""Arrow type exported by Polars for a column of Python objects (their addresses).

No other column has it.
"""


def as_array(column: pl.Series) -> pa.Array:
    """A series as an Arrow array.

    Raises:
        TypeError: if it has no Arrow form.
    """
    try:
        return column.to_arrow()
    except pa.ArrowException as error:
        raise without_arrow_form([column], error) from error


def without_arrow_form(columns: Sequence[pl.Series], error: Exception) -> TypeError:
    """TypeError for columns without an Arrow form, naming a column and the remedy."""
    names = [f"column {each.name!r} of type {each.dtype}" for each in columns if each.dtype in (pl.Int128, pl.UInt128)]
    return TypeError(f"{[*names, 'a column type'][0]} has no Arrow form; cast it first (Int128 to Int64, say): {error}")


def as_polars(batch: Batch) -> pl.DataFrame:
    """Columns as a Polars frame, sharing buffers where the layouts agree.

    Raises:
        TypeError: for records, which have no column names, and for a column of a type that Polars does not have.
    """
    if isinstance(batch, pl.DataFrame):
        return batch
    if isinstance(batch, pa.Table):
        check_for_polars(batch.schema)
        return cast(pl.DataFrame, pl.from_arrow(batch, rechunk=False))
    raise TypeError(_NO_COLUMNS)


def polars_column(name: str, column: pa.ChunkedArray) -> pl.Series:
    """One Arrow table column as a Polars series.

    Raises TypeError if Polars lacks its type.
    """
    _check_for_polars(name, column.type)
    return pl.Series(name, column)


def check_for_polars(schema: pa.Schema) -> None:
    """Raise TypeError for a column type unknown to Polars.

    Polars itself would panic, or not name the column.
    """
    for name, kind in zip(schema.names, schema.types, strict=True):
        _check_for_polars(name, kind)


def _check_for_polars(name: str, kind: pa.DataType) -> None:
    if _is_strange(kind):
        raise TypeError(
            f"column {name!r} is of type {kind}, which Polars does not have, and so no verb of columns that needs it; leave "
            "the column out, or cast it in Arrow before"
        )


def _is_strange(kind: pa.DataType) -> bool:
    """True for a type unknown to Polars, or nested around one."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_nested(kind):
        return kind.id in _STRANGE or any(_is_strange(kind.field(i).type) for i in range(kind.num_fields))
    return kind.id in _STRANGE


_STRANGE = frozenset(
    kind.id
    for kind in (
        pa.run_end_encoded(pa.int16(), pa.int8()),
        pa.list_view(pa.int8()),
        pa.large_list_view(pa.int8()),
        pa.sparse_union([]),
        pa.dense_union([]),
        pa.month_day_nano_interval(),
        pa.decimal256(1),
    )
)


def columns_of(batch: Batch) -> Columns:
    """Check for a batch of columns, returned as it is.

    Raises:
        TypeError: for records.
    """
    return as_polars(batch) if isinstance(batch, list) else batch


_NO_COLUMNS = "this batch holds records, not columns; turn the stream into columns first: stream.to_columns(schema)"


def concat(batches: Sequence[Batch]) -> Batch:
    """All records or rows in order.

    One batch (or the only non-empty one, of records) is returned as it is.

    Arrow and Polars may mix: the result is then Polars, in whichever order they come. Columns are matched by
    name, in the order of the first batch; types that differ are widened (int32 to int64, string to
    large_string, a column of nulls to anything, dictionary to plain where not all are dictionaries).
    Dictionaries may differ: each chunk keeps its own.

    Raises:
        ValueError: for no batches at all (nobody could say of which kind the result is). TypeError: if
            records are mixed with columns, if columns are missing, or their types cannot be reconciled.
    """
    if not batches:
        raise ValueError("concat needs at least one batch")
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, list):
        return _concat_records(batches)
    if any(isinstance(batch, list) for batch in batches):
        raise TypeError(_MIXED)
    if all(isinstance(batch, pa.Table) for batch in batches):
        return _concat_tables(cast(Sequence[pa.Table], batches))
    return _concat_frames([as_polars(batch) for batch in batches])


def joined(batches: Sequence[Batch]) -> list[Batch]:
    """Concatenate neighbouring batches of equal kind, columns and types.

    So no type depends on which batches happen to wait together.
    """
    return [concat(run) for run in runs_of(batches, alike)]


def runs_of(batches: Sequence[AnyBatch], together: Callable[[AnyBatch, AnyBatch], bool]) -> list[list[AnyBatch]]:
    """Runs of neighbouring batches accepted by the predicate `together`."""
    runs: list[list[AnyBatch]] = []
    for batch in batches:
        if runs and together(runs[-1][-1], batch):
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return runs


def alike(one: Batch, other: Batch) -> bool:
    """True for batches of the same kind, columns and types."""
    if isinstance(one, pl.DataFrame):
        return isinstance(other, pl.DataFrame) and one.columns == other.columns and same_types(one.dtypes, other.dtypes)
    if isinstance(one, pa.Table):
        return isinstance(other, pa.Table) and bool(one.schema.equals(other.schema, check_metadata=True))
    return isinstance(other, list)


_PLAIN = frozenset(
    (
        *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
        *(pl.Float32, pl.Float64, pl.Boolean, pl.String, pl.Binary, pl.Date, pl.Time),
    )
)
"""Polars types without parameters."""


def same_types(ones: list[pl.DataType], others: list[pl.DataType]) -> bool:
    """True for equal types, by class only if that is enough.

    Polars compares types in Python, which is slow.
    """
    kinds = list(map(type, ones))
    return kinds == list(map(type, others)) and (_PLAIN.issuperset(kinds) or ones == others)


_MIXED = "records and columns arrived on one stream; convert one side with to_columns(schema) or to_records()"


def _concat_records(batches: Sequence[Batch]) -> list[Any]:
    if not all(isinstance(batch, list) for batch in batches):
        raise TypeError(_MIXED)
    filled = [batch for batch in batches if len(batch)]
    if len(filled) == 1:
        return cast(list[Any], filled[0])
    records: list[Any] = []
    for batch in filled:
        records.extend(cast(list[Any], batch))
    return records


def _same_columns(batches: Sequence[Any], names: Callable[[Any], list[str]]) -> list[Any]:
    """The batches, each with its columns in the order of the first one."""
    wanted = names(batches[0])
    result = []
    for batch in batches:
        found = names(batch)
        if found != wanted:
            if sorted(found) != sorted(wanted):
                differ = sorted(set(found) ^ set(wanted))
                raise TypeError(
                    f"batches of one stream have different columns: {differ} are not in all of them; "
                    "select the same columns on every branch before concat"
                )
            batch = batch.select(wanted)
        result.append(batch)
    return result


def _concat_frames(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    frames = cast(list[pl.DataFrame], _same_columns(frames, lambda frame: frame.columns))
    types = [frame.dtypes for frame in frames]
    if any(each != types[0] for each in types[1:]):
        columns = zip(*(frame.get_columns() for frame in frames), strict=True)
        frames = [pl.DataFrame(list(each)) for each in zip(*map(_of_one_type, columns), strict=True)]
    return pl.concat(list(frames), how="vertical")


def _of_one_type(columns: Sequence[pl.Series]) -> list[pl.Series]:
    try:
        kind = common_type([column.dtype for column in columns])
        return [widened(column, kind) for column in columns]
    except TypeError as error:
        name = columns[0].name
        raise TypeError(f"in batches of one stream column {name!r} is of {error}; cast it to one type") from error


def _concat_tables(tables: Sequence[pa.Table]) -> pa.Table:
    schema = tables[0].schema
    # Polars notes in a field's metadata that a column is an Enum, and of which texts.
    if not all(table.schema.equals(schema, check_metadata=True) for table in tables):
        tables = _same_columns(tables, lambda table: list(table.column_names))
        names = tables[0].column_names
        columns = [_of_one_arrow_type(name, [table[name] for table in tables]) for name in names]
        tables = [pa.Table.from_arrays(list(each), names) for each in zip(*columns, strict=True)]
    return pa.concat_tables(tables)


def _of_one_arrow_type(name: str, columns: Sequence[pa.ChunkedArray]) -> list[pa.ChunkedArray]:
    try:
        kind = reduce(_wider, (column.type for column in columns))
        if _is_strange(kind) and not any(_is_strange(column.type) for column in columns):
            raise TypeError("more digits than Polars has")
        return [cast_exactly(column, kind) for column in columns]
    except (pa.ArrowException, TypeError, ValueError) as error:  # ValueError: more digits than decimals have
        kinds = " and ".join(dict.fromkeys(str(column.type) for column in columns))
        raise TypeError(
            f"in batches of one stream column {name!r} is of {kinds}, which do not go together; cast it to one type"
        ) from error


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The narrowest common type of two."""
    if a.equals(b):
        return a
    if pa.types.is_dictionary(a) and pa.types.is_dictionary(b):
        return pa.dictionary(pa.int32(), _wider(a.value_type, b.value_type))
    if pa.types.is_dictionary(a) or pa.types.is_dictionary(b):
        coded, other = (a, b) if pa.types.is_dictionary(a) else (b, a)
        return coded if pa.types.is_null(other) else _wider(coded.value_type, other)
    for is_kind, large in ((is_text, pa.large_string()), (_is_binary, pa.large_binary())):
        if is_kind(a) and is_kind(b):
            return large
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        after = max(a.scale, b.scale)
        return pa.decimal128(max(a.precision - a.scale, b.precision - b.scale) + after, after)
    merged = pa.unify_schemas([pa.schema([("column", a)]), pa.schema([("column", b)])], promote_options="permissive")
    return merged.field(0).type


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_))
