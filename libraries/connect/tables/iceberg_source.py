"""Apache Iceberg source, snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from libraries.connect.tables.errors import error_line, need
from libraries.connect.tables.iceberg_sink import CatalogProperties, catalog_properties, load_catalog, table_name
from libraries.connect.tables.source import DataFile, Log, TableSource, choose
from libraries.connect.validation import check_sound
from timely.errors import SourceError


class Iceberg(TableSource):
    """Iceberg table `table` ("namespace.name") of `catalog` as a source.

    The snapshot with sequence number n is epoch n, with the rows that it adds.

    The first epoch is snapshot `start`, with the whole table as it was then; with `after=n` it is what follows snapshot n. The
    source ends with the snapshot that is the newest when the job begins, or, with `follow=True`, goes on with each new one, for
    which it looks every `poll_seconds`. Each worker reads a share of the files. `columns` picks and orders columns; by
    default they are those of the snapshot. Compaction adds nothing. A snapshot that deletes or changes rows is an error, as is
    one that has expired. Rows come as Arrow tables, or as dicts with `as_records=True`. `catalog` is as for `IcebergSink`.
    """

    def __init__(
        self,
        table: str,
        catalog: CatalogProperties = "default",
        *,
        start: int | None = None,
        after: int | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        as_records: bool = False,
        poll_seconds: float = 1.0,
    ) -> None:
        need("pyiceberg", "iceberg", "Iceberg", SourceError)
        super().__init__(
            start=start, after=after, follow=follow, columns=columns, as_records=as_records, poll_seconds=poll_seconds
        )
        self._name = table_name(table, "Iceberg", SourceError)
        self._catalog = catalog_properties(catalog, SourceError)

    def log(self) -> Log:
        where = f"Iceberg table {self._name}"
        return _IcebergLog(where, load_catalog(self._catalog, where, SourceError), self._name, self._columns)


class _IcebergLog(Log):
    """Snapshots from the oldest available one to the current one."""

    def __init__(self, where: str, catalog: Any, name: str, columns: list[str] | None) -> None:
        self.where = where
        self._catalog = catalog
        self._name = name
        self._columns = columns
        self._table: Any = None
        self._chain: list[Any] = []

    def _load(self) -> None:
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table.snapshots import ancestors_of

        try:
            self._table = self._catalog.load_table(self._name)
            self._chain = list(ancestors_of(self._table.current_snapshot(), self._table.metadata))[::-1]
        except NoSuchTableError as error:
            raise SourceError(f"{self.where}: there is none. Check the name, or write to it first.") from error
        except Exception as error:
            raise SourceError(f"{self.where}: cannot be opened: {error_line(error)}.") from error
        if any(snapshot.sequence_number is None or snapshot.sequence_number < 1 for snapshot in self._chain):
            raise SourceError(f"{self.where}: its snapshots have no sequence numbers: upgrade it to format version 2.")

    def newest(self) -> int:
        self._load()
        return self._last()

    def columns(self) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._load()
        return choose(schema_to_pyarrow(self._table.schema(), include_field_ids=False), self._columns, self.where)

    def first(self, start: int | None) -> int | None:
        self._load()
        if start is not None:
            return None if start > self._last() else self._number(self._snapshot(start))
        if self._chain and self._number(self._chain[0]) > 1:
            oldest = self._number(self._chain[0])
            raise SourceError(
                f"{self.where}: its first snapshots have expired. Begin with a later one, start={oldest} or more, which has "
                "the whole table as it was then."
            )
        return self._number(self._chain[0]) if self._chain else None

    def _number(self, snapshot: Any) -> int:
        number: int = snapshot.sequence_number
        return number

    def _last(self) -> int:
        return self._number(self._chain[-1]) if self._chain else 0

    def following(self, number: int) -> int | None:
        if not self._chain or number >= self._last():
            self._load()
        if not self._chain or number >= self._last():
            if self._last() < number and self._table.metadata.last_sequence_number >= number:
                raise self._gone(number)  # the table was rolled back
            return None
        later = next(snapshot for snapshot in self._chain if self._number(snapshot) > number)
        known = any(self._number(snapshot) == number for snapshot in self._chain)
        if not known and (number > 0 or self._number(later) > 1):
            raise self._gone(number)
        return self._number(later)

    def _snapshot(self, number: int) -> Any:
        for snapshot in self._chain:
            if snapshot.sequence_number == number:
                return snapshot
        raise self._gone(number)

    def _gone(self, number: int) -> SourceError:
        there = f"{self._chain[0].sequence_number} to {self._last()}" if self._chain else "none"
        return SourceError(
            f"{self.where}: snapshot {number} is not there (there are {there}): it has expired, or the table was rolled back. "
            "Start anew with an empty store and another start=, and keep snapshots for as long as a job may stand still."
        )

    def state(self, number: int) -> Sequence[DataFile]:
        snapshot = self._known(number)
        scan = self._table.scan(snapshot_id=snapshot.snapshot_id)
        return self._files(snapshot, scan)

    def added(self, number: int) -> Sequence[DataFile]:
        from pyiceberg.table.snapshots import Operation

        snapshot = self._known(number)
        operation = snapshot.summary.operation if snapshot.summary is not None else Operation.APPEND
        if operation == Operation.REPLACE:
            return []
        if operation != Operation.APPEND:
            raise SourceError(
                f"{self.where}: snapshot {number} deletes or changes rows ({operation.value}), and this source gives only what "
                f"is added. Begin after it, with after={number} or start={number} and an empty store, or write changes as new "
                "rows."
            )
        scan = self._table.incremental_append_scan().to_snapshot_id_inclusive(snapshot.snapshot_id)
        if snapshot.parent_snapshot_id is not None:
            scan = scan.from_snapshot_id_exclusive(snapshot.parent_snapshot_id)
        return self._files(snapshot, scan)

    def _known(self, number: int) -> Any:
        if not any(snapshot.sequence_number == number for snapshot in self._chain):
            self._load()
        return self._snapshot(number)

    def _files(self, snapshot: Any, scan: Any) -> Sequence[DataFile]:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        schema = self._table.schema()
        if snapshot.schema_id is not None:
            schema = self._table.schemas().get(snapshot.schema_id, schema)
        chosen = choose(schema_to_pyarrow(schema, include_field_ids=False), self._columns, self.where)
        try:
            tasks = list(scan.plan_files())
        except Exception as error:
            raise SourceError(
                f"{self.where}: snapshot {snapshot.sequence_number} cannot be read: {error_line(error)}."
            ) from error
        return [_IcebergFile(self._table, schema.select(*chosen.names), chosen, task, self.where) for task in tasks]


class _IcebergFile:
    """Data file of an Iceberg table, read in one piece."""

    def __init__(self, table: Any, schema: Any, columns: pa.Schema, task: Any, where: str) -> None:
        self.name: str = task.file.file_path
        self._table = table
        self._schema = schema
        self._columns = columns
        self._task = task
        self._where = where

    def pieces(self) -> int:
        return 1

    def read(self, piece: int) -> pa.Table:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        try:
            rows = ArrowScan(self._table.metadata, self._table.io, self._schema, AlwaysTrue()).to_table([self._task])
            check_sound(rows)
        except FileNotFoundError as error:
            raise SourceError(
                f"{self._where}: its file {self.name} is gone: the snapshot has expired. Start anew with an empty store and a "
                "later start=, and keep snapshots for as long as a job may stand still."
            ) from error
        except Exception as error:
            raise SourceError(f"{self._where}: {self.name} cannot be read: {error_line(error)}.") from error
        return rows.select(self._columns.names).cast(self._columns)
