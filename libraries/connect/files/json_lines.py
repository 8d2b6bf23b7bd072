"""JSON lines source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from libraries.connect.files.discovery import Paths
from libraries.connect.files.epochs import EpochSpec
from libraries.connect.files.partition import BlockStart
from libraries.connect.files.source import FileSource
from libraries.connect.files.text_blocks import BLOCK_BYTES, LONG_INTEGER, TextBlocks, beyond_64_bits
from timely.data.batch import Batch, length
from timely.errors import SourceError, shown
from timely.io.arguments import whole
from timely.io.column_types import Schema


class JsonLines(FileSource):
    """JSON lines files as tables or dicts, in blocks of about `block_bytes`.

    A block is what `epoch="batch"` calls a batch.

    As tables, the columns and their types are those found in the first block of the first file, and a field
    or type that turns up later is an error; `schema={"field": type}` says better. Text stays text, whatever it looks like;
    a field that `schema` makes a date, a time or a timestamp is read in ISO 8601, and has an offset only under a type with
    a time zone, and always there. As dicts
    (`as_records=True`), each line is what it is, unless `schema` gives fields a type; with `columns`, fields
    that a line lacks are None. Integers are exact: dicts hold them whatever their size, and a column in which one
    is beyond 64 bits needs a type from `schema`; in a column with fractions they are floats, as these are. Text is UTF-8.

    >>> from pathlib import Path
    >>> size = Path("events.jsonl").write_text('{"who": "ann", "n": 1}\\n{"who": "bob"}\\n')
    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("events", falkirk.JsonLines("events.jsonl", as_records=True)).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [{'who': 'ann', 'n': 1}, {'who': 'bob'}])]
    """

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json")

    def __init__(
        self,
        path: Paths,
        *,
        epoch: EpochSpec = "batch",
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        as_records: bool = False,
        block_bytes: int = BLOCK_BYTES,
        allow_unfinished_line: bool = False,
    ) -> None:
        super().__init__(path, epoch=epoch, columns=columns, schema=schema, as_records=as_records)
        self.block_bytes = whole(block_bytes, "block_bytes")
        self.allow_unfinished_line = allow_unfinished_line
        self._settled: pa.Schema | None = None

    def _learn(self, first: Path) -> None:
        self._settled = None
        if self.types or not self.as_records:
            reader = JsonBlocks(self._text(first), self.wanted, self.types, None)
            try:
                self._settled = reader.guess_schema()
            finally:
                reader.close()

    def _open(self, file: Path, share: int, shares: int) -> JsonBlocks:
        return JsonBlocks(self._text(file), self.wanted, self.types, self._settled)

    def _text(self, file: Path) -> TextBlocks:
        return TextBlocks(file, self.block_bytes, lambda data: data.rfind(b"\n") + 1, self.allow_unfinished_line)


class JsonBlocks:
    """Blocks of rows of one file: tables with a schema, dicts without."""

    def __init__(
        self, text: TextBlocks, wanted: list[str] | None, types: dict[str, Any], schema: pa.Schema | None
    ) -> None:
        self._text = text
        self._wanted = wanted
        self._types = types
        self._schema = schema

    def guess_schema(self) -> pa.Schema:
        """Schema guessed from the first block, with the user's types."""
        given = pa.schema(list(self._types.items()))
        if self._text.size == 0:
            guess = given
        else:
            block, _ = self._text.read(0)
            guess = self._table(block, 0, given, "infer").schema
            guess = pa.schema([given.field(f.name) if f.name in self._types else f for f in guess])
            self._refuse_rounding(block, guess)
        if self._wanted is not None:
            lacking = [name for name in self._wanted if name not in guess.names]
            if lacking and self._text.size:
                raise SourceError(
                    f"{self._text.path}: there is no field {', '.join(map(repr, lacking))} in the first "
                    "block. If it comes "
                    'later, give its type with schema={"field": type}.'
                )
            guess = pa.schema([guess.field(name) for name in self._wanted if name in guess.names])
        return pa.schema([f if f.name in self._types else f.with_type(_unguessed(f.type)) for f in guess])

    def ended(self, place: BlockStart) -> bool:
        return place.at >= self._text.size

    def read(self, place: BlockStart) -> tuple[Batch, int, BlockStart]:
        block, after = self._text.read(place.at)
        self._text.check_utf8(block, place.at)
        rows: Batch
        if self._schema is None:
            rows = self._records(block, place.at)
        else:
            others = "error" if self._wanted is None else "ignore"
            rows = self._table(block, place.at, self._schema, others).select(self._schema.names)
        return rows, place.row, BlockStart(place.index + 1, after, place.row + length(rows))

    def _records(self, block: bytes, at: int) -> list[Any]:
        try:
            records = _LINES.decode_lines(block)
        except _NOT_JSON:
            raise self._explain(block, at) from None
        if self._wanted is not None:
            names = self._wanted
            return [{name: record.get(name) for name in names} for record in records]
        return records

    def _refuse_rounding(self, block: bytes, guess: pa.Schema) -> None:
        """Raise SourceError if an integer field was read as floats for its size.

        One of its integers is beyond 64 bits.
        """
        fields = [name for name in guess.names if name not in self._types and _has_floats(guess.field(name).type)]
        if not fields or LONG_INTEGER.search(block) is None:
            return
        wide: dict[tuple[str, ...], int] = {}
        floats: set[tuple[str, ...]] = set()
        for record in _LINES.decode_lines(block):
            for name in fields:
                _sort_numbers((name,), record.get(name), wide, floats)
        for path, value in wide.items():
            if path not in floats:
                raise SourceError(f"{self._text.path}, field {'.'.join(path)!r}: {beyond_64_bits(value, path[0])}")

    def _table(self, block: bytes, at: int, schema: pa.Schema, others: str) -> pa.Table:
        if not block.strip():
            return pa.table({f.name: pa.array([], f.type) for f in schema})
        try:
            block.decode()  # Arrow does not look whether it is UTF-8
            _OBJECTS.decode_lines(block)  # Arrow takes null for an object, and crashes where the first row is one
        except _NOT_JSON:
            raise self._explain(block, at) from None
        try:
            return _read(block, schema, others)
        except pa.ArrowException as error:
            raise self._explain(block, at, schema, others, str(error)) from None

    def _explain(
        self, block: bytes, at: int, schema: pa.Schema | None = None, others: str = "", why: str = ""
    ) -> SourceError:
        """Error for an unreadable block, with the number of the first bad line."""
        first = self._text.line_at(at)
        for number, line in enumerate(block.splitlines(keepends=True), start=first):
            if not line.strip():
                continue
            where = f"{self._text.path}, line {number}"
            try:
                fields = _LINES.decode(line)
            except msgspec.ValidationError as error:
                if "range" in str(error):
                    return SourceError(f"{where}: a number in it is beyond floats ({error}). Correct the line.")
                return SourceError(f"{where}: this is not a JSON object. Each line must be one, like {{...}}.")
            except _NOT_JSON as error:
                return SourceError(f"{where}: this is not JSON: {error}. Correct the line, or copy the file again.")
            if schema is not None:
                try:
                    _read(line, schema, others)
                except pa.ArrowException as error:
                    if (misfit := _misfit(line, fields, schema)) is not None:
                        name = misfit.name
                        origin = "schema= gives it" if name in self._types else "the first block has"
                        what = f"{shown(fields[name], 80)} does not fit the type {misfit.type}, which {origin}"
                        if _is_of_time(misfit.type):
                            what += " (times are text in ISO 8601, with an offset if the type has a time zone, and only then)"
                        if fields[name] is None:
                            what = f"JSON has no values of the type {misfit.type}, which {origin}"
                        return SourceError(
                            f"{where}, field {name!r}: {what}. Give a type that fits with schema={{{name!r}: type}}, "
                            "correct the line, or read lines as they are with as_records=True and without schema."
                        )
                    new = ", ".join(repr(name) for name in fields if name not in schema.names)
                    what = f"a new field {new}" if new else str(error)
                    return SourceError(
                        f"{where}: {what}. The fields before this line were {_listed(schema)}. "
                        'Give types with schema={"field": type}, name those you need with columns=, '
                        "or read lines as they are with as_records=True."
                    )
        last = first + block.count(b"\n") - 1
        return SourceError(
            f"{self._text.path}, lines {first} to {last}: the lines do not fit together: {why}. "
            'Give types with schema={"field": type}, or read lines as they are with as_records=True.'
        )

    def close(self) -> None:
        self._text.close()


def _read(block: bytes, schema: pa.Schema, others: str) -> pa.Table:
    """Lines as a table with the types of `schema`; raises ArrowException.

    Arrow reads a time only where it has guessed it, and a date as a number of days: both are read as the text that they are,
    and made of that.
    """
    as_text = pa.schema([field.with_type(_with(field.type, _is_of_time, pa.string())) for field in schema])
    options = arrow_json.ParseOptions(explicit_schema=as_text, unexpected_field_behavior=others)
    # One block for Arrow too: its own cutting would take types from its first piece alone.
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    table = arrow_json.read_json(pa.BufferReader(block), read_options=reading, parse_options=options)
    for field in schema:
        at = table.schema.get_field_index(field.name)
        if at >= 0 and table.schema.field(at).type != field.type:
            table = table.set_column(at, field, _of_text(table.column(at).combine_chunks(), field.type))
    return table


def _misfit(line: bytes, fields: dict[str, Any], schema: pa.Schema) -> pa.Field | None:
    """First field of a line with a value not of its type."""
    for field in schema:
        try:
            if field.name in fields:
                _read(line, pa.schema([field]), "ignore")
        except pa.ArrowException:
            return field
    return None


def _is_of_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind))


def _unguessed(kind: pa.DataType) -> pa.DataType:
    """Column type from Arrow's guess: times and nulls become text.

    Text that looks like a time is text. And what was always null so far may become anything: text is the one type that is not
    a guess at numbers.
    """
    return _with(kind, lambda part: pa.types.is_timestamp(part) or pa.types.is_null(part), pa.string())


def _with(kind: pa.DataType, which: Callable[[pa.DataType], bool], other: pa.DataType) -> pa.DataType:
    """Replace nested types with `other`, chosen by a predicate."""
    if which(kind):
        return other
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with(field.type, which, other)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with(kind.value_type, which, other)))
    return kind


def _of_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert text to times within values of type `kind`.

    Raises ArrowInvalid.
    """
    if values.type == kind:
        return values
    if pa.types.is_struct(kind):
        parts = [_of_text(part, field.type) for part, field in zip(values.flatten(), kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if pa.types.is_list(kind):
        items = _of_text(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=values.is_null())
    if pa.types.is_time(kind):  # Arrow makes hours of text only where a day stands in front
        days = pc.binary_join_element_wise("1970-01-01", values, "T")
        return days.cast(pa.timestamp(kind.unit)).cast(kind)
    return values.cast(kind)


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))


def _sort_numbers(
    path: tuple[str, ...], value: Any, wide: dict[tuple[str, ...], int], floats: set[tuple[str, ...]]
) -> None:
    """Record the places of floats, and of integers beyond 64 bits."""
    if isinstance(value, dict):
        for name, item in value.items():
            _sort_numbers((*path, name), item, wide, floats)
    elif isinstance(value, list):
        for item in value:
            _sort_numbers((*path, "[]"), item, wide, floats)
    elif isinstance(value, float):
        floats.add(path)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        wide.setdefault(path, value)


class _Object(msgspec.Struct):
    """Any JSON object, validated but not kept.

    Takes a sixth of the time that Arrow needs to read it.
    """


_LINES = msgspec.json.Decoder(dict[str, Any])
_OBJECTS = msgspec.json.Decoder(_Object)
_NOT_JSON = (msgspec.MsgspecError, ValueError, RecursionError)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"
