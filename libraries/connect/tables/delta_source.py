"""Delta Lake source, version by version."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from libraries.connect.tables.errors import error_line, need
from libraries.connect.tables.source import DataFile, Log, TableSource, choose
from libraries.connect.validation import check_sound
from timely.errors import FalkirkError, SourceError
from timely.io import arguments


class Delta(TableSource):
    """Delta table at `path`: version v is epoch v, with the rows it adds.

    `path` is a folder or an address (s3://...).

    The first epoch is version `start`, with the whole table as it was then; with `after=v` it is what follows version v. The
    source ends with the version that is the newest when the job begins, or, with `follow=True`, goes on with each new one, for
    which it looks every `poll_seconds`. Each worker reads a share of the files. `columns` picks and orders columns; by
    default they are those of the version. Compaction adds nothing. A version that deletes or changes rows is an error, as is
    one whose files were vacuumed. Rows come as Arrow tables, or as dicts with `as_records=True`. `storage_options` go to the
    storage, as in `deltalake`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        start: int | None = None,
        after: int | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        as_records: bool = False,
        poll_seconds: float = 1.0,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        need("deltalake", "delta", "Delta", SourceError)
        super().__init__(
            start=start, after=after, follow=follow, columns=columns, as_records=as_records, poll_seconds=poll_seconds
        )
        self._path = os.fspath(arguments.path(path, "Delta", SourceError))
        self._options = dict(storage_options or {})

    def log(self) -> Log:
        return _DeltaLog(self._path, self._options, self._columns)


class _Add(msgspec.Struct, rename="camel"):
    path: str
    partition_values: dict[str, str | None] = {}
    data_change: bool = True
    deletion_vector: msgspec.Raw = msgspec.Raw(b"null")


class _Remove(msgspec.Struct, rename="camel"):
    path: str
    data_change: bool = True


class _MetaData(msgspec.Struct, rename="camel"):
    schema_string: str
    configuration: dict[str, str | None] = {}


class _Action(msgspec.Struct, rename="camel"):
    add: _Add | None = None
    remove: _Remove | None = None
    meta_data: _MetaData | None = None


class _Checkpoint(msgspec.Struct):
    version: int


_ACTION = msgspec.json.Decoder(_Action)
_CHECKPOINT = msgspec.json.Decoder(_Checkpoint)


class _DeltaLog(Log):
    """Commits of a Delta table, from its `_delta_log` folder.

    `added` reads one of them itself; `deltalake` reads what many make together.
    """

    def __init__(self, path: str, options: dict[str, str], columns: list[str] | None) -> None:
        self.where = f"Delta table {path}"
        self._path = path
        self._options = options
        self._columns = columns
        self._system: pafs.FileSystem | None = None
        self._schema: tuple[int, pa.Schema] | None = None
        """Last version read, and the table's columns as of it."""

    def _table(self, version: int | None = None) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._path, version=version, storage_options=self._options or None)
        except Exception as error:
            if version is not None:
                raise SourceError(
                    f"{self.where}: version {version} cannot be opened: {error_line(error)}. If the table's log was cleaned, "
                    "begin with a later version, start=..."
                ) from error
            if isinstance(error, TableNotFoundError):
                raise SourceError(f"{self.where}: there is none. Check the path, or write to it first.") from error
            raise SourceError(
                f"{self.where}: cannot be opened: {error_line(error)}. Check the path and storage_options."
            ) from error

    def _files(self) -> pafs.FileSystem:
        if self._system is None:
            from deltalake.fs import DeltaStorageHandler

            self._system = pafs.PyFileSystem(DeltaStorageHandler.from_table(self._table()._table))
        return self._system

    def newest(self) -> int:
        number: int = self._table().version()
        return number

    def columns(self) -> pa.Schema:
        return self._chosen(pa.schema(self._table().schema().to_arrow()))

    def first(self, start: int | None) -> int | None:
        number = start or 0
        return number if number == 0 else self.following(number - 1)

    def following(self, number: int) -> int | None:
        after = number + 1
        if self._read(_commit(after)) is not None:
            return after
        last = self._read("_delta_log/_last_checkpoint")
        try:
            cleaned = last is not None and _CHECKPOINT.decode(last).version >= after
        except msgspec.MsgspecError as error:
            raise SourceError(f"{self.where}: its file _last_checkpoint is damaged: {error}.") from error
        if cleaned:
            raise self._gone(after)
        return None

    def _gone(self, number: int) -> SourceError:
        return SourceError(
            f"{self.where}: version {number} is gone: the table's log was cleaned. Start anew with an empty store and a later "
            f"start=, and keep the log for as long as a job may stand still (delta.logRetentionDuration)."
        )

    def _read(self, name: str) -> bytes | None:
        try:
            with self._files().open_input_file(name) as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SourceError(f"{self.where}: {name} cannot be read: {error_line(error)}.") from error

    def state(self, number: int) -> Sequence[DataFile]:
        table = self._table(number)
        schema = self._columns_of(number, pa.schema(table.schema().to_arrow()))
        self._only_plain(number, table.metadata().configuration)
        if any(name == "deletionVectors" for name in table.protocol().reader_features or ()) and len(
            pa.table(table.deletion_vectors())
        ):
            raise self._deletes(number)
        found = []
        for add in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            values = {
                key.removeprefix("partition."): value for key, value in add.items() if key.startswith("partition.")
            }
            found.append(self._file(add["path"], values, schema))
        return found

    def added(self, number: int) -> Sequence[DataFile]:
        data = self._read(_commit(number))
        if data is None:
            raise self._gone(number)
        try:
            actions = [_ACTION.decode(line) for line in data.splitlines() if line.strip()]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SourceError(f"{self.where}: {_commit(number)} is no commit of a Delta table: {error}.") from error
        schema = self._schema_of(number, [action.meta_data for action in actions if action.meta_data is not None])
        found = []
        for action in actions:
            if action.remove is not None and action.remove.data_change:
                raise self._deletes(number)
            add = action.add
            if add is not None and add.data_change:
                if bytes(add.deletion_vector) != b"null":
                    raise self._deletes(number)
                found.append(self._file(add.path, add.partition_values, schema))
        return found

    def _deletes(self, number: int) -> SourceError:
        return SourceError(
            f"{self.where}: version {number} deletes or changes rows, and this source gives only what is added. Begin "
            f"after it, with after={number} or start={number} and an empty store, or write changes as new rows."
        )

    def _schema_of(self, number: int, changes: Sequence[_MetaData]) -> pa.Schema:
        """Columns as of a version.

        Between versions that are read in order only a commit with `metaData` changes them.
        """
        from deltalake import Schema

        if changes:
            self._only_plain(number, changes[-1].configuration)
            try:
                return self._columns_of(number, pa.schema(Schema.from_json(changes[-1].schema_string).to_arrow()))
            except FalkirkError:
                raise
            except Exception as error:
                raise SourceError(
                    f"{self.where}: version {number} has a schema that cannot be read: {error}."
                ) from error
        if self._schema is None or self._schema[0] != number - 1:
            table = self._table(number)
            self._only_plain(number, table.metadata().configuration)
            return self._columns_of(number, pa.schema(table.schema().to_arrow()))
        self._schema = number, self._schema[1]
        return self._chosen(self._schema[1])

    def _columns_of(self, number: int, schema: pa.Schema) -> pa.Schema:
        self._schema = number, schema
        return self._chosen(schema)

    def _chosen(self, schema: pa.Schema) -> pa.Schema:
        return choose(schema, self._columns, self.where)

    def _only_plain(self, number: int, configuration: Mapping[str, str | None]) -> None:
        if configuration.get("delta.columnMapping.mode") not in (None, "none"):
            raise SourceError(
                f"{self.where}: version {number} maps names of columns (delta.columnMapping.mode), which this source cannot "
                "follow. Copy the table into one without."
            )

    def _file(self, path: str, values: Mapping[str, Any], schema: pa.Schema) -> DataFile:
        return _DeltaFile(self._files(), self.where, unquote(path), values, schema)


def _commit(number: int) -> str:
    return f"_delta_log/{number:020}.json"


class _DeltaFile:
    """Parquet file of a Delta table; partition values come from the log."""

    def __init__(
        self, system: pafs.FileSystem, where: str, name: str, values: Mapping[str, Any], schema: pa.Schema
    ) -> None:
        self.name = name
        self._system = system
        self._where = where
        self._values = values
        self._schema = schema
        self._opened: pq.ParquetFile | None = None

    def pieces(self) -> int:
        return int(self._open().num_row_groups)

    def _open(self) -> pq.ParquetFile:
        if self._opened is None:
            if "://" in self.name:
                raise SourceError(
                    f"{self._where}: {self.name} lies outside of it (a shallow clone): read the original."
                )
            try:
                self._opened = pq.ParquetFile(
                    self._system.open_input_file(self.name), coerce_int96_timestamp_unit="us", pre_buffer=False
                )
            except FileNotFoundError as error:
                raise SourceError(
                    f"{self._where}: its file {self.name} is gone: the table was vacuumed. Start anew with an empty store and "
                    "a later start=, and keep files for as long as a job may stand still (delta.deletedFileRetentionDuration)."
                ) from error
            except (pa.ArrowException, OSError, ValueError) as error:
                raise SourceError(f"{self._where}: {self.name} is no whole Parquet file: {error}.") from error
        return self._opened

    def read(self, piece: int) -> pa.Table:
        file = self._open()
        there = [name for name in self._schema.names if name in file.schema_arrow.names and name not in self._values]
        try:
            rows = file.read_row_group(piece, columns=there)
            check_sound(rows)
            columns = []
            for field in self._schema:
                if field.name in there:
                    columns.append(rows[field.name].cast(field.type))
                else:  # a column that was added later is null
                    columns.append(_constant(self._values.get(field.name), field.type, rows.num_rows))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # KeyError: two columns have the same name
            raise SourceError(f"{self._where}: {self.name} cannot be read: {error}.") from error
        if piece + 1 >= file.num_row_groups:
            file.close()
            self._opened = None
        return pa.table(columns, schema=self._schema)


def _constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """Column of one value, given as text by the table's log."""
    if value == "" and not pa.types.is_string(kind):
        value = None
    if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is not None:
        value = value.removesuffix("Z")
        return pa.repeat(pa.scalar(value).cast(pa.timestamp("us")).cast(pa.int64()).cast(kind), rows)
    scalar = pa.scalar(value) if value is not None else pa.scalar(None, kind)
    return pa.repeat(scalar.cast(kind), rows)
