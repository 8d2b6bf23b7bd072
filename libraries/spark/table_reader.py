"""A data source for Spark: Delta and Iceberg tables, read by Python, without their packages for Java.

    spark.readStream.format("falkirk").option("delta", "out").load()

The offset of a stream is the version up to which it has read, so a micro-batch has whole versions: whole epochs of the job that
wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from libraries.spark.errors import SparkError
from timely.io.interface import Chunk
from timely.io.tables.delta_source import Delta
from timely.io.tables.iceberg_source import Iceberg
from timely.io.tables.source import Log, TablePartition, TableSource

_MOST = 16
"""Tasks that read one version, at most."""


class FalkirkTables(DataSource):
    """The format "falkirk"."""

    @classmethod
    def name(cls) -> str:
        return "falkirk"

    def schema(self) -> StructType:
        made: StructType = from_arrow_schema(_table(self.options).log().columns())
        return made

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Versions(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _NewVersions(dict(self.options), schema)


def _table(options: Mapping[str, str]) -> TableSource:
    """The table that the options name."""
    if "delta" in options and "iceberg" not in options:
        return Delta(options["delta"])
    if "iceberg" in options and "delta" not in options:
        catalog = {key.partition(".")[2]: value for key, value in options.items() if key.startswith("catalog.")}
        return Iceberg(options["iceberg"], catalog or "default")
    raise SparkError('format "falkirk" needs one of the options "delta" (a path) and "iceberg" (the name of a table)')


def _number(options: Mapping[str, str], name: str, otherwise: int) -> int:
    text = options.get(name)
    if text is not None and not text.isdecimal():
        raise SparkError(f'format "falkirk": the option {name}={text!r} must be the number of a version')
    return otherwise if text is None else int(text)


@dataclass
class _Share(InputPartition):
    """Some files of a version."""

    version: int
    whole: bool
    share: int
    shares: int


class _Reading:
    """The common part of both readers."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._columns: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def _log(self) -> Log:
        return _table(self._options).log()

    def _shares(self, log: Log, version: int, whole: bool) -> list[InputPartition]:
        shares = min(_MOST, len(log.state(version) if whole else log.added(version)))
        return [_Share(version, whole, share, shares) for share in range(shares)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a share."""
        reading = TablePartition(self._log(), partition.share, partition.shares, None, None, None, False, 1.0)
        reading.seek([partition.version, int(partition.whole), 0, 0])
        while isinstance(chunk := reading.read(), Chunk):
            if isinstance(chunk.data, pa.Table):
                rows = chunk.data
                for field in self._columns:
                    if field.name not in rows.column_names:  # it was added to the table later
                        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
                yield from rows.select(self._columns.names).cast(self._columns).to_batches()
            if chunk.closes:
                return


class _Versions(_Reading, DataSourceReader):
    """Reads a table as of a version."""

    def partitions(self) -> list[InputPartition]:
        log = self._log()
        return self._shares(log, _number(self._options, "version", log.newest()), True)


class _NewVersions(_Reading, DataSourceStreamReader):
    """Reads what versions add."""

    def initialOffset(self) -> dict[str, int]:
        return {"after": _number(self._options, "after", -1)}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"after": max(start["after"], self._log().newest())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        log, number = self._log(), start["after"]
        found: list[InputPartition] = []
        while (version := log.following(number)) is not None and version <= end["after"]:
            found += self._shares(log, version, False)
            number = version
        return found
