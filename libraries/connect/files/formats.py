"""Writers of batches to open files: JSON lines, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from math import isfinite
from typing import Any, BinaryIO, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from timely.data.batch import Batch, as_arrow
from timely.data.exact_casts import cast_exactly
from timely.data.from_records import table_of_records
from timely.errors import SinkError, shown

_ROWS = 1 << 14
"""Rows converted to Python objects at once."""


class Format(Protocol):
    """Writer of one file."""

    def write(self, batch: Batch) -> None:
        """Add a batch.

        Raises SinkError if it does not fit the format or what was written before.
        """

    def finish(self) -> None:
        """Write the file's footer; the file itself stays open."""


class JsonFormat:
    """JSON lines: rows as objects, records as any JSON value.

    NaN and infinities, which JSON lacks, are refused.
    """

    def __init__(self, file: BinaryIO, name: str, schema: pa.Schema | None) -> None:
        self._file = file
        self._name = name
        self._schema = schema
        self._encoder = msgspec.json.Encoder()

    def write(self, batch: Batch) -> None:
        """Write one line a record."""
        if isinstance(batch, list):
            self._lines(batch)
            return
        table = as_arrow(batch)
        if self._schema is not None:
            table = fit(table, self._schema, self._name)
        table = self._in_microseconds(table)
        odd = not all(_is_plain(field.type) for field in table.schema)
        self._refuse_odd(table)
        for start in range(0, len(table), _ROWS):
            try:
                rows = table.slice(start, _ROWS).to_pylist()
            except UnicodeDecodeError as error:
                raise SinkError(f"{self._name}: a column of text holds what is not UTF-8: {error}.") from error
            except (OverflowError, ValueError) as error:
                raise SinkError(f"{self._name}: {_beyond_python(table)}") from error
            self._lines(rows, odd=odd)

    def _in_microseconds(self, table: pa.Table) -> pa.Table:
        """Nanosecond times as microseconds, as in Python."""
        for place, field in enumerate(table.schema):
            if (kind := _coarser(field.type)) is None:
                continue
            try:
                table = table.set_column(place, field.name, cast_exactly(table[field.name], kind))
            except TypeError as error:
                raise SinkError(
                    f"{self._name}: column {field.name!r} has nanoseconds, and JSON lines have microseconds: {error}. Cast it "
                    "before the sink."
                ) from error
        return table

    def _refuse_odd(self, table: pa.Table) -> None:
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if pa.types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is False:
                odd = column.filter(pc.invert(pc.is_finite(column)))[0].as_py()
                raise SinkError(f"{self._name}: column {name!r} holds {odd}, {_NO_NUMBER}")

    def _lines(self, records: list[Any], odd: bool = True) -> None:
        """Write records; `odd` if a number in them may be NaN or infinite."""
        try:
            lines = self._encoder.encode_lines(records)
            if odd and b"null" in lines:  # as which NaN would go out
                for record in records:
                    if (number := _odd_number(record)) is not None:
                        raise SinkError(
                            f"{self._name}: a record holds {number}, {_NO_NUMBER}\n  the record: {shown(record)}"
                        )
        except (TypeError, ValueError, OverflowError) as error:
            raise SinkError(
                f"{self._name}: a record cannot be written as JSON: {error}. Map it to numbers, text, lists "
                "and dicts first."
            ) from error
        self._file.write(lines)

    def finish(self) -> None:
        """No-op: lines have no footer."""


def _beyond_python(table: pa.Table) -> str:
    """Message naming the first time outside Python's range."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        for value in column:
            try:
                value.as_py()
            except (OverflowError, ValueError):
                return (
                    f"column {name!r} holds {value.cast(pa.string()).as_py()}, and times of JSON lines are of the years 1 to "
                    '9999: filter such rows out before the sink, or write format="parquet".'
                )
    return "a value that is none of Python's. Convert it before the sink."


def _is_plain(kind: pa.DataType) -> bool:
    """True for types without hidden NaN or infinity.

    Of floats, whole columns are checked elsewhere.
    """
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal, pa.types.is_decimal)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(test(kind) for test in (*tests, *texts)) or (pa.types.is_dictionary(kind) and _is_plain(kind.value_type))


_NO_NUMBER = (
    "a number that JSON does not have: put None (null) or text in its place, for example with fill_nan(None), or write "
    'format="parquet".'
)


def _odd_number(value: Any) -> float | None:
    """First NaN or infinity within `value`."""
    if isinstance(value, float):
        return None if isfinite(value) else value
    if isinstance(value, dict):
        items: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        items = value
    elif value is None or isinstance(value, str | int | bytes):
        return None
    else:
        plain = msgspec.to_builtins(value)
        return None if type(plain) is type(value) else _odd_number(plain)
    return next((number for number in map(_odd_number, items) if number is not None), None)


class ColumnFormat:
    """CSV or Parquet: columns typed by the schema or the first batch."""

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        schema: pa.Schema | None,
        make_writer: Callable[[BinaryIO, pa.Schema], Any],
    ) -> None:
        self._file = file
        self._name = name
        self._schema = schema
        self._make_writer = make_writer
        self._writer: Any = None

    def write(self, batch: Batch) -> None:
        """Write rows; records must be dicts."""
        if isinstance(batch, list) and not batch:
            return
        table = self._table(batch)
        if self._schema is None:
            self._schema = table.schema.remove_metadata()
        table = fit(table, self._schema, self._name)
        try:
            if self._writer is None:
                self._writer = self._make_writer(self._file, self._schema)
            self._writer.write_table(table)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SinkError(
                f"{self._name}: {self._unfit(table)} cannot be written: {error}. Convert it to numbers, dates or text "
                "first, or use "
                'format="jsonl" or "parquet".'
            ) from error

    def _unfit(self, table: pa.Table) -> str:
        """Description of the column rejected by the format."""
        for name in table.column_names:
            one_column = table.select([name])
            try:
                writer = self._make_writer(BytesIO(), one_column.schema)
                writer.write_table(one_column)
                writer.close()
            except pa.ArrowException:
                return f"column {name!r}, of type {one_column.schema.field(0).type},"
        return "a column"

    def _table(self, batch: Batch) -> pa.Table:
        if not isinstance(batch, list):
            return as_arrow(batch)
        wrong = next((record for record in batch if not isinstance(record, dict)), None)
        if wrong is not None:
            raise SinkError(
                f"{self._name}: records must be dicts to become columns, this one is {type(wrong).__name__}: "
                f'{shown(wrong, 80)}. Map them to dicts, or use format="jsonl".'
            )
        try:
            return table_of_records(batch, self._schema)
        except TypeError as error:
            raise SinkError(f"{self._name}: {error}") from error

    def finish(self) -> None:
        """Write the footer; a file without rows gets the schema only."""
        if self._writer is None and self._schema is not None:
            self._writer = self._make_writer(self._file, self._schema)
        if self._writer is not None:
            self._writer.close()


def _coarser(kind: pa.DataType) -> pa.DataType | None:
    """Microsecond form of a nanosecond type."""
    if getattr(kind, "unit", None) != "ns":
        return None
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")


def fit(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """Cast `table` to `schema`.

    Raises SinkError if it has other columns, or a value does not fit.
    """
    if sorted(table.column_names) != sorted(schema.names):
        raise SinkError(
            f"{name}: the columns changed from {', '.join(schema.names)} to {', '.join(table.column_names)}. "
            "All batches of a file must have the same ones: select them before the sink."
        )
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        try:
            columns.append(cast_exactly(table[field.name], field.type))
        except TypeError as error:
            raise SinkError(
                f"{name}: the types changed and cannot be reconciled: column {field.name!r}: {error}. Cast it before the "
                "sink, or give schema=pa.schema([...])."
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


def _csv_writer(file: BinaryIO, schema: pa.Schema) -> Any:
    return _PlainColumns(arrow_csv.CSVWriter(file, _plain(schema)), _plain(schema))


class _PlainColumns:
    """CSV writer, decoding dictionary columns to plain text."""

    def __init__(self, writer: Any, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table.cast(self._schema))

    def close(self) -> None:
        self._writer.close()


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])


def _parquet_writer(file: BinaryIO, schema: pa.Schema) -> Any:
    return pq.ParquetWriter(file, schema, write_page_checksum=True)


def make_format(kind: str, file: BinaryIO, name: str, schema: pa.Schema | None) -> Format:
    """Writer for "jsonl", "csv" or "parquet"."""
    if kind == "jsonl":
        return JsonFormat(file, name, schema)
    return ColumnFormat(file, name, schema, _csv_writer if kind == "csv" else _parquet_writer)
