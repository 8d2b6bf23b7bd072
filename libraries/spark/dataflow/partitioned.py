"""Tables with Hive-style partition folders by column values, divided on writing.

    PATH/epoch=0000000012/shop=north/day=2024-05-06/<file>.parquet

The columns are in the names of the folders only, where Spark finds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from libraries.connect.files.value_folders import folder_of
from libraries.spark.dataflow.operators import Spill
from libraries.spark.errors import SparkError
from libraries.spark.files import parquet as files
from libraries.spark.files.deliveries import Consumer
from libraries.spark.files.epoch_table import BY
from libraries.spark.files.manifest import ManifestEntry
from libraries.spark.files.schemas import write_schema
from timely.operators.base import JobContext


class PartitionedSpill(Spill):
    """Writes a file per combination of values of columns `by`; entries name folders."""

    def __init__(self, consumers: Sequence[Consumer], by: Sequence[str]) -> None:
        super().__init__(consumers)
        self._by = list(by)

    def _written(
        self, context: JobContext, epoch: int, worker: int, piece: int, tables: Sequence[pa.Table]
    ) -> list[list[ManifestEntry]]:
        (consumer,) = self._consumers
        _check(self._by, tables[0].schema)
        schema = write_schema(tables[0].schema.with_metadata({BY: "\0".join(self._by)}))
        folder, durable = consumer.place(context), consumer.durable(context)
        entries = []
        for place, rows in divided(pa.concat_tables(tables), self._by):
            digest = files.digest_of([rows])  # of all columns: rows with other values have other names
            stem = files.input_stem(consumer.input, epoch, worker, f"{piece}-{digest:016x}")
            path = files.write_input(folder, stem, [rows.drop_columns(self._by)], durable)
            size = os.stat(path).st_size
            entries.append(ManifestEntry(consumer.input, path, len(rows), size, schema, digest=digest, place=place))
        return [entries]


def divided(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Rows grouped by values of the columns `by`, each with its partition folder.

    Raises:
        SparkError: for a value that cannot be the name of a folder.
    """
    table = table.take(pc.sort_indices(table, [(name, "ascending") for name in by]))
    counted = table.group_by(by, use_threads=False).aggregate([([], "count_all")])
    texts = [counted.column(name).cast(pa.string()).to_pylist() for name in by]
    start = 0
    for count, *values in zip(counted.column("count_all").to_pylist(), *texts, strict=True):
        folders = [_folder(name, value) for name, value in zip(by, values, strict=True)]
        yield os.path.join(*folders), table.slice(start, count)
        start += count


def _folder(name: str, value: str | None) -> str:
    try:
        return folder_of(name, value)
    except ValueError as error:
        raise SparkError(
            f"column {name!r} is in partition_by, and {error}: Spark would read null. Give it another value before"
        ) from None


def _check(by: Sequence[str], schema: pa.Schema) -> None:
    for name in by:
        if name not in schema.names:
            raise SparkError(f"there is no column {name!r}, which is in partition_by; there are {schema.names}")
        type_ = schema.field(name).type
        kinds = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32)
        if not any(is_kind(type_) for is_kind in kinds):
            raise SparkError(
                f"column {name!r}, which is in partition_by, is of type {type_}: text, integers, booleans and dates can be "
                "names of folders"
            )
    if len(by) == len(schema.names):
        raise SparkError("all columns are in partition_by: at least one must be left for the files")
