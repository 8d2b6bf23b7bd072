"""Apache Iceberg sink, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from libraries.connect.claim import OwnedSink, Owner
from libraries.connect.tables.errors import error_line, need
from libraries.connect.tables.writer import CommitConflict, TableWriter, partition_columns, same_partitions
from timely.errors import FalkirkError, SinkError, at_line
from timely.io import arguments
from timely.io.column_types import Schema, arrow_types

_KEEP = "falkirk.keep-snapshots"

_OPENINGS = 20
"""Tries to open a catalog under creation by another process.

Each of its tables may be made between a look and a try to make it.
"""

CatalogProperties = str | Mapping[str, str]
"""Name of a catalog in `.pyiceberg.yaml`, or its properties.

Such as type, uri, warehouse, and `name` ("default").
"""


class IcebergSink(OwnedSink):
    """Appends to the Iceberg table `table` ("namespace.name") of `catalog`.

    Rows are columns, or records that are dicts.

    Each epoch is one snapshot of the table, whatever the number of workers: readers see all of it or nothing. All rows go to
    one worker, which writes them. The table and its namespace are made if they are not there, with the columns of the first
    epoch or of `schema`, and partitioned by `partition_by`. Several jobs and sinks may append to one table.

    Exactly once: a property of the table, which is part of the same commit, says which epoch of which job it is, and an epoch
    that is there is not appended again; the snapshot says it, too. A job is known by its store. That holds for any program,
    deterministic or not, and after compaction and when snapshots expire.

    A commit takes time in proportion to the snapshots that a table has. In a table that the sink makes, old ones expire, so
    that the newest `keep_snapshots` stay, or up to twice as many; None keeps all.

    Raises:
        SinkError: pyiceberg is not installed; `table`, `catalog` or `partition_by` is none.
        GraphError: `schema` names a type that columns do not have.
    """

    exactly_once: ClassVar[bool] = True
    one_writer: ClassVar[bool] = True

    def __init__(
        self,
        table: str,
        catalog: CatalogProperties = "default",
        *,
        schema: Schema | None = None,
        partition_by: Sequence[str] = (),
        keep_snapshots: int | None = 200,
    ) -> None:
        super().__init__()
        need("pyiceberg", "iceberg", "IcebergSink", SinkError)
        self._name = table_name(table, "IcebergSink", SinkError)
        self._catalog = catalog_properties(catalog, SinkError)
        self._schema = None if schema is None else pa.schema(arrow_types(schema))
        self._partition_by = partition_columns(partition_by, self._schema)
        self._keep = None if keep_snapshots is None else arguments.whole(keep_snapshots, "keep_snapshots")

    def open(self, worker: int, workers: int) -> TableWriter:
        """Writer of this worker; only one worker's gets any rows.

        Raises SinkError if the table cannot be written like this.
        """
        where = f"Iceberg table {self._name}"
        catalog = load_catalog(self._catalog, where, SinkError)
        target = _IcebergTarget(where, catalog, self._name, self._schema, self._partition_by, self._keep, self._owner)
        target.look()
        return TableWriter(target)


def table_name(given: Any, what: str, kind: type[FalkirkError]) -> str:
    """Check for the name of a table in its namespace.

    Raises `kind` at the user's line.
    """
    if isinstance(given, str) and "." in given and all(given.split(".")):
        return given
    raise kind(at_line(f'{what} takes the name of a table in its namespace, as in "sales.orders", not {given!r}.'))


def catalog_properties(given: Any, kind: type[FalkirkError]) -> dict[str, str]:
    """Catalog properties, its name among them.

    Raises `kind` at the user's line.
    """
    if isinstance(given, str) and given:
        return {"name": given}
    if isinstance(given, Mapping) and all(isinstance(each, str) for pair in given.items() for each in pair):
        return {"name": "default", **given}
    raise kind(
        at_line(
            f'catalog={given!r}: must be the name of a catalog, or its properties as texts: {{"type": "sql", "uri": '
            '"sqlite:////data/catalog.db", "warehouse": "file:///data/warehouse"}.'
        )
    )


def load_catalog(properties: Mapping[str, str], where: str, kind: type[FalkirkError]) -> Any:
    """Load the catalog; raises `kind` if it cannot be reached."""
    from pyiceberg.catalog import load_catalog as load

    rest = dict(properties)
    name = rest.pop("name")
    tried = 0
    while True:
        tried += 1
        try:
            return load(name, **rest)
        except Exception as error:
            if tried < _OPENINGS and "already exists" in str(error):
                continue
            raise kind(
                f"{where}: the catalog {name!r} cannot be opened: {error_line(error)}. Check its properties, or "
                ".pyiceberg.yaml."
            ) from error


class _IcebergTarget:
    """An Iceberg table as last loaded."""

    def __init__(
        self,
        where: str,
        catalog: Any,
        name: str,
        schema: pa.Schema | None,
        partition_by: list[str],
        keep: int | None,
        owner: Owner,
    ) -> None:
        self.where = where
        self._catalog = catalog
        self._name = name
        self._declared = schema
        self._partition_by = partition_by
        self._keep = keep
        self._owner = owner
        self._mark = f"falkirk.epoch.{owner.job}.{owner.sink}"
        self._table: Any = None
        self._files: tuple[int, list[Any]] | None = None
        """Data files written for an epoch but in no snapshot yet."""

    def look(self) -> int | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            self._table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            self._table = None
            return None
        except Exception as error:
            raise SinkError(
                f"{self.where}: cannot be opened: {error_line(error)}. Check the catalog and its warehouse."
            ) from error
        names = [self._table.schema().find_column_name(field.source_id) for field in self._table.spec().fields]
        same_partitions(names, self._partition_by, self.where)
        done = self._table.properties.get(self._mark)
        if done is not None and not done.isdecimal():
            raise SinkError(
                f"{self.where}: its property {self._mark!r} is {done!r}, and should be the number of an epoch."
            )
        return None if done is None else int(done)

    def schema(self) -> pa.Schema | None:
        if self._table is None:
            return self._declared
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        schema: pa.Schema = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        return schema

    def append(self, rows: pa.Table, epoch: int) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        try:
            if self._table is None:
                self._table = self._make(rows.schema)
            self._commit(rows, epoch)
            self._files = None
        except TableAlreadyExistsError as error:
            raise CommitConflict("it was made at the same time") from error
        except CommitFailedException as error:
            raise CommitConflict(str(error)) from error
        except SinkError:
            raise
        except Exception as error:
            if "database is locked" in str(error):
                raise CommitConflict("the catalog's database is locked") from error
            raise SinkError(
                f"{self.where}: epoch {epoch} cannot be written: {error_line(error)}. Check the warehouse, your permissions "
                "and the table's schema."
            ) from error

    def _make(self, schema: pa.Schema) -> Any:
        self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        properties = {
            "commit.manifest-merge.enabled": "true",
            "commit.manifest.min-count-to-merge": "20",
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "20",
        }
        if self._keep is not None:
            properties[_KEEP] = str(self._keep)
        with self._catalog.create_table_transaction(self._name, schema=schema, properties=properties) as transaction:
            partition_by = partition_columns(self._partition_by, schema)
            if partition_by:
                with transaction.update_spec() as spec:
                    for name in partition_by:
                        spec.add_identity(name)
        return self._catalog.load_table(self._name)

    def _commit(self, rows: pa.Table, epoch: int) -> None:
        from pyiceberg.io.pyarrow import _dataframe_to_data_files
        from pyiceberg.table.update.snapshot import ExpireSnapshots

        table = self._table
        if self._files is None or self._files[0] != epoch:
            self._files = epoch, list(_dataframe_to_data_files(table_metadata=table.metadata, df=rows, io=table.io))
        properties = table.metadata.properties
        # A retry of the library's own would go on top of a state in which nobody has looked for the mark.
        table.metadata = table.metadata.model_copy(
            update={"properties": {**properties, "commit.retry.num-retries": "0"}}
        )
        transaction = table.transaction()
        transaction.set_properties({self._mark: str(int(epoch))})
        snapshots = table.snapshots()
        keep = properties.get(_KEEP, "")
        if keep.isdecimal() and len(snapshots) >= 2 * max(1, int(keep)):
            kept = {ref.snapshot_id for ref in table.refs().values()}
            old = [each.snapshot_id for each in snapshots[: -int(keep)] if each.snapshot_id not in kept]
            ExpireSnapshots(transaction).by_ids(old).commit()
        properties = {"falkirk.job": self._owner.job, "falkirk.sink": self._owner.sink, "falkirk.epoch": f"{epoch}"}
        update = transaction.update_snapshot(snapshot_properties=properties)
        merges = properties.get("commit.manifest-merge.enabled", "false").lower() == "true"
        with update.merge_append() if merges else update.fast_append() as snapshot:
            for file in self._files[1]:
                snapshot.append_data_file(file)
        transaction.commit_transaction()
