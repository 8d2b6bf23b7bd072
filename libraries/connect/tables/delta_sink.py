"""Delta Lake sink, exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from libraries.connect.claim import OwnedSink, Owner
from libraries.connect.tables.errors import error_line, need
from libraries.connect.tables.writer import CommitConflict, TableWriter, partition_columns, same_partitions
from timely.errors import SinkError
from timely.io import arguments
from timely.io.column_types import Schema, arrow_types


class DeltaSink(OwnedSink):
    """Appends to the Delta table at `path`, a folder or an address (s3://...).

    Rows are columns, or records that are dicts.

    Each epoch is one version of the table, whatever the number of workers: readers see all of it or nothing. All rows go to one
    worker, which writes them. The table is made if it is not there, with the columns of the first epoch or of `schema`, and
    partitioned by `partition_by`. Several jobs and sinks may append to one table: the rows of all of them are there.

    Exactly once: Delta's own transaction identifier says in the commit which epoch of which job it is, and an epoch that is
    there is not appended again. A job is known by its store. That holds for any program, deterministic or not, and
    after compaction, checkpoints and cleaning of the table's log. `storage_options` go to the storage, as in `deltalake`.

    Raises:
        SinkError: deltalake is not installed; `path` or `partition_by` is none.
        GraphError: `schema` names a type that columns do not have.
    """

    exactly_once: ClassVar[bool] = True
    one_writer: ClassVar[bool] = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        schema: Schema | None = None,
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        need("deltalake", "delta", "DeltaSink", SinkError)
        self._path = os.fspath(arguments.path(path, "DeltaSink", SinkError))
        self._schema = None if schema is None else pa.schema(arrow_types(schema))
        self._partition_by = partition_columns(partition_by, self._schema)
        self._options = dict(storage_options or {})

    def open(self, worker: int, workers: int) -> TableWriter:
        """Writer of this worker; only one worker's gets any rows.

        Raises SinkError if the table cannot be written like this.
        """
        target = _DeltaTarget(self._path, self._schema, self._partition_by, self._options, self._owner)
        target.look()
        return TableWriter(target)


class _DeltaTarget:
    """A Delta table as last loaded."""

    def __init__(
        self, path: str, schema: pa.Schema | None, partition_by: list[str], options: dict[str, str], owner: Owner
    ) -> None:
        self.where = f"Delta table {path}"
        self._path = path
        self._declared = schema
        self._partition_by = partition_by
        self._options = options
        self._owner = owner
        self._mark = f"falkirk/{owner.job}/{owner.sink}"
        self._table: Any = None

    def look(self) -> int | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        # Opened anew each time: a table object that is kept reads on from where it began, past all checkpoints.
        folder = Path(self._path)
        there = "://" not in self._path and folder.exists()
        if there and not folder.is_dir():
            raise self._no_table()
        try:
            self._table = DeltaTable(self._path, storage_options=self._options or None)
        except TableNotFoundError:
            self._table = None
            if there and any(folder.iterdir()):
                raise self._no_table() from None
            return None
        except Exception as error:
            raise SinkError(
                f"{self.where}: cannot be opened: {error_line(error)}. Check the path and storage_options."
            ) from error
        same_partitions(self._table.metadata().partition_columns, self._partition_by, self.where)
        done: int | None = self._table.transaction_version(self._mark)
        return done

    def _no_table(self) -> SinkError:
        return SinkError(
            f"{self.where}: there is something else, which is no Delta table. Name another folder, or an empty one."
        )

    def schema(self) -> pa.Schema | None:
        return self._declared if self._table is None else pa.schema(self._table.schema().to_arrow())

    def append(self, rows: pa.Table, epoch: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        properties = {"falkirk.job": self._owner.job, "falkirk.sink": self._owner.sink, "falkirk.epoch": f"{epoch}"}
        try:
            if self._table is None:
                self._table = DeltaTable.create(
                    self._path,
                    rows.schema,
                    partition_by=partition_columns(self._partition_by, rows.schema) or None,
                    storage_options=self._options or None,
                )
            write_deltalake(
                self._table,
                rows,
                mode="append",
                commit_properties=CommitProperties(
                    custom_metadata=properties, app_transactions=[Transaction(self._mark, int(epoch))]
                ),
            )
        except CommitFailedError as error:
            raise CommitConflict(str(error)) from error
        except SinkError:
            raise
        except DeltaError as error:
            if self._table is None and "already exists" in str(error):
                raise CommitConflict("it was made at the same time") from error
            raise self._refused(epoch, error) from error
        except Exception as error:
            raise self._refused(epoch, error) from error

    def _refused(self, epoch: int, error: Exception) -> SinkError:
        return SinkError(
            f"{self.where}: epoch {epoch} cannot be written: {error_line(error)}. Nothing of it is there; check the disk, your "
            "permissions, and the table's own rules."
        )
