"""Spark data source for `spark.write`, Delta and Iceberg tables, read in Python.

It needs no packages for Java.

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
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from libraries.connect.tables.delta_source import Delta
from libraries.connect.tables.iceberg_source import Iceberg
from libraries.connect.tables.source import Log, TablePartition
from libraries.spark.errors import SparkError
from libraries.spark.files.epoch_table import EpochTable
from libraries.spark.versions import arrow_schema
from timely.io.interface import Chunk

_MOST = 16
"""Most tasks to read one version."""


class FalkirkTables(DataSource):
    """Spark data source of the format "falkirk"."""

    @classmethod
    def name(cls) -> str:
        return "falkirk"

    def schema(self) -> StructType:
        made: StructType = from_arrow_schema(_log(self.options).columns())
        return made

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Versions(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _NewVersions(dict(self.options), schema)


def _log(options: Mapping[str, str]) -> Log:
    """Version log of the table named by the options."""
    match [name for name in ("table", "delta", "iceberg") if name in options]:
        case ["table"]:
            return EpochTable(options["table"])
        case ["delta"]:
            return Delta(options["delta"]).log()
        case ["iceberg"]:
            catalog = {key.partition(".")[2]: value for key, value in options.items() if key.startswith("catalog.")}
            return Iceberg(options["iceberg"], catalog or "default").log()
    raise SparkError(
        'format "falkirk" needs one of the options "table" (the path of a table of spark.write), "delta" (a path) and '
        '"iceberg" (the name of a table)'
    )


def _number(options: Mapping[str, str], name: str, otherwise: int) -> int:
    text = options.get(name)
    if text is not None and not text.isdecimal():
        raise SparkError(f'format "falkirk": the option {name}={text!r} must be the number of a version')
    return otherwise if text is None else int(text)


@dataclass
class _Share(InputPartition):
    """Part of a version's files, for one task."""

    version: int
    whole: bool
    share: int
    shares: int


class _Reading:
    """Common base of both readers."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._columns: pa.Schema = arrow_schema(schema)

    def _shares(self, log: Log, version: int, whole: bool) -> list[InputPartition]:
        shares = min(_MOST, len(log.state(version) if whole else log.added(version)))
        return [_Share(version, whole, share, shares) for share in range(shares)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Rows of a share."""
        reading = TablePartition(_log(self._options), partition.share, partition.shares, None, None, None, False, 1.0)
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
    """Reader of a table as of a version."""

    def partitions(self) -> list[InputPartition]:
        log = _log(self._options)
        return self._shares(log, _number(self._options, "version", log.newest()), True)


class _NewVersions(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new versions of a table, `per_batch` of them in a micro-batch."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._upto: int | None = None
        """Last version to read for a query over available data."""

    def initialOffset(self) -> dict[str, int]:
        return {"after": _number(self._options, "after", -1)}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = _number(self._options, "per_batch", 0)
        return ReadMaxFiles(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._upto = _log(self._options).newest()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        log, number = _log(self._options), start["after"]
        upto = log.newest() if self._upto is None else self._upto
        if not isinstance(limit, ReadMaxFiles):
            return {"after": max(number, upto)}
        for _ in range(limit.max_files):
            following = log.following(number)
            if following is None or following > upto:
                break
            number = following
        return {"after": number}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        log, number = _log(self._options), start["after"]
        found: list[InputPartition] = []
        while (version := log.following(number)) is not None and version <= end["after"]:
            found += self._shares(log, version, False)
            number = version
        return found
