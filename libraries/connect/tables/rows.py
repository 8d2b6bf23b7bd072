"""Rows of an epoch as one Arrow table with the target's columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from timely.data.batch import Batch, as_arrow, concat
from timely.data.exact_casts import cast_exactly, is_bytes, is_list, is_text, may_become
from timely.data.from_records import table_of_records
from timely.errors import SinkError


def rows_of_epoch(batches: Sequence[Batch], schema: pa.Schema | None, where: str) -> pa.Table:
    """Concatenate batches in the columns and types of `schema`.

    None: in those that they have.

    Nothing is guessed: a column too many or too few, and a type that is not the same but for its width, is an error.

    Raises:
        SinkError: for rows that do not fit, with what to do about it.
    """
    parts = [_table_of(batch, schema, where) for batch in batches]
    if schema is None:
        try:
            whole = as_arrow(concat(parts))
        except TypeError as error:
            raise SinkError(f"{where}: {error}") from error
        schema = new_schema(whole.schema, where)
        parts = [whole]
    return pa.concat_tables([_fit(part, schema, where) for part in parts])


def new_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """Schema of a new table: plain types, signed integers, times in microseconds."""
    empty = [field.name for field in schema if pa.types.is_null(field.type)]
    if empty:
        raise SinkError(
            f"{where}: the table is not there yet, and column {empty[0]!r} has only nulls so far: give its type with schema=."
        )
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if is_text(kind):
        return pa.string()
    if is_bytes(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32()}.get(kind.bit_width, pa.int64())
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    return kind


def _table_of(batch: Batch, schema: pa.Schema | None, where: str) -> pa.Table:
    if not isinstance(batch, list):
        return as_arrow(batch)
    names = list(batch[0]) if schema is None and isinstance(batch[0], dict) else [] if schema is None else schema.names
    wanted = set(names)
    for record in batch:
        if not isinstance(record, dict):
            raise SinkError(
                f"{where}: records must be dicts, and this one is {type(record).__name__}: {str(record)[:80]}. "
                "Make columns of them before the sink: to_columns(schema)."
            )
        if record.keys() != wanted:
            _same_columns(list(record), names, where)
    try:
        return table_of_records(batch, schema)
    except TypeError as error:
        raise SinkError(f"{where}: {error}") from error


def _same_columns(there: Sequence[str], wanted: Sequence[str], where: str) -> None:
    lacking = [name for name in wanted if name not in there]
    extra = [name for name in there if name not in wanted]
    if lacking:
        text = f"the output has no column {', '.join(map(repr, lacking))}, which the table has"
    elif extra:
        text = f"the table has no column {', '.join(map(repr, extra))}"
    else:
        return
    raise SinkError(
        f"{where}: {text}. The table's columns are {', '.join(map(repr, wanted))}, those of the output "
        f"{', '.join(map(repr, there))}: select them before the sink, or alter the table."
    )


def _fit(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    _same_columns(table.column_names, schema.names, where)
    columns = []
    for field in schema:
        column = table[field.name]
        if not may_become(column.type, field.type):
            raise SinkError(
                f"{where}: column {field.name!r} is {column.type}, and {field.type} in the table. Cast it before the sink."
            )
        try:
            column = cast_exactly(column, field.type)
        except TypeError as error:
            raise SinkError(
                f"{where}: column {field.name!r} is {column.type}, and {field.type} in the table: {error}. Cast it before the "
                "sink."
            ) from error
        if not field.nullable and column.null_count:
            raise SinkError(f"{where}: column {field.name!r} has nulls, and the table takes none in it.")
        columns.append(column)
    return pa.table(columns, schema=schema)
