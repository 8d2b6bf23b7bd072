"""The questions of Spark to the format "falkirk", asked here: offsets, shares, and rows in exactly Spark's types."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.table_reader import FalkirkTables
from runtime.run import run
from tests.libraries.connect.tables.lakes import LAKES, IcebergLake, Lake
from timely.errors import SourceError
from timely.io import Batches


def frame(number: int) -> pl.DataFrame:
    at = pl.Series([dt.datetime(2024, 1, 1)] * 3, dtype=pl.Datetime("us", "UTC"))
    return pl.DataFrame({"version": [number] * 3, "i": [0, 1, 2], "name": ["a", None, "ü"], "at": at})


def written(folder: Path, epochs: list[pl.DataFrame], **more: Any) -> dict[str, str]:
    """The options of a table that a job has written."""
    flow = Dataflow("writes")
    spark.write(flow.columns("in", Batches(epochs)), folder / "table", **more)
    run(flow)
    return {"table": str(folder / "table")}


def read(source: FalkirkTables, reader: Any, *offsets: Any) -> pl.DataFrame:
    schema = to_arrow_schema(source.schema(), timezone="UTC")
    batches = [batch for share in reader.partitions(*offsets) for batch in reader.read(share)]
    assert all(batch.schema.equals(schema) for batch in batches)
    return pl.DataFrame(pa.Table.from_batches(batches, schema))


@pytest.mark.parametrize("by", [[], ["name", "version"]], ids=["plain", "in folders"])
def test_a_table_of_spark_write_is_read_by_epochs_with_the_columns_that_spark_finds(
    by: list[str], tmp_path: Path
) -> None:
    options = written(tmp_path, [frame(number) for number in range(4)], partition_by=by)
    source = FalkirkTables(options)
    found = read(source, source.reader(source.schema()))
    names = [name for name in frame(0).columns if name not in by] + ["epoch", *by]
    right = pl.concat(frame(n).with_columns(epoch=pl.lit(n, pl.Int32)) for n in range(4)).select(names)
    assert Counter(found.rows()) == Counter(right.rows())
    assert found.schema == right.schema
    stream = source.streamReader(source.schema())
    first = stream.initialOffset()
    assert stream.latestOffset(first, ReadAllAvailable()) == {"after": 3}
    two = stream.latestOffset(first, ReadMaxFiles(2))
    assert two == {"after": 1}
    assert Counter(read(source, stream, first, two).rows()) == Counter(right.filter(pl.col("epoch") < 2).rows())
    assert stream.latestOffset({"after": 3}, ReadMaxFiles(2)) == {"after": 3}
    old = FalkirkTables({**options, "version": "1"})
    assert Counter(read(old, old.reader(old.schema())).rows()) == Counter(right.filter(pl.col("epoch") < 2).rows())


def test_epochs_without_rows_are_no_versions_and_the_column_has_the_name_that_was_given(tmp_path: Path) -> None:
    options = written(tmp_path, [frame(0), frame(1).head(0), frame(2)], column="day")
    source = FalkirkTables({**options, "per_batch": "1", "after": "0"})
    assert source.schema().names[-1] == "day"
    stream = source.streamReader(source.schema())
    assert stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit()) == {"after": 2}


def test_a_query_that_ends_reads_what_there_was_when_it_began(tmp_path: Path) -> None:
    source = FalkirkTables(written(tmp_path, [frame(0), frame(1)]))
    stream: Any = source.streamReader(source.schema())
    stream.prepareForTriggerAvailableNow()
    later = tmp_path / "table" / "epoch=0000000002"
    later.mkdir()
    assert stream.latestOffset({"after": -1}, ReadAllAvailable()) == {"after": 1}
    assert stream.latestOffset({"after": 0}, ReadMaxFiles(9)) == {"after": 1}


def test_a_folder_without_such_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere: its columns are not known"):
        FalkirkTables({"table": str(tmp_path / "nowhere")}).schema()
    with pytest.raises(SourceError, match=r"spark\.write has shown no epoch there yet"):
        FalkirkTables({"table": str(tmp_path)}).schema()
    options = written(tmp_path, [frame(0)])
    (file,) = (tmp_path / "table").rglob("epoch=*/*.parquet")
    file.write_bytes(b"damaged")
    source = FalkirkTables(options)
    with pytest.raises(SourceError, match=r"epoch=0000000000/.*\.parquet cannot be read"):
        read(source, source.reader(source.schema()))


@pytest.mark.parametrize("kind", LAKES, ids=lambda kind: kind.name)
def test_offsets_are_versions_and_rows_have_sparks_types(kind: type[Lake], tmp_path: Path) -> None:
    lake = kind(tmp_path)
    options = {"delta": str(lake.path)}
    if isinstance(lake, IcebergLake):
        options = {"iceberg": "lake.numbers", **{f"catalog.{key}": value for key, value in lake.catalog.items()}}
    for number in range(3):
        lake.append(frame(number))
    source = FalkirkTables(options)
    schema = source.schema()

    def rows(reader: Any, *offsets: Any) -> Counter[Any]:
        batches = [batch for share in reader.partitions(*offsets) for batch in reader.read(share)]
        assert all(batch.schema.equals(to_arrow_schema(schema, timezone="UTC")) for batch in batches)
        return Counter(row for batch in batches for row in pl.DataFrame(pa.table(batch)).rows())

    stream = source.streamReader(schema)
    first = stream.initialOffset()
    second = stream.latestOffset(first, ReadAllAvailable())
    assert second == {"after": lake.newest()}
    assert rows(stream, first, second) == Counter(pl.concat(map(frame, range(3))).rows())
    lake.append(frame(3))
    fresh = FalkirkTables(options).streamReader(schema)
    third = fresh.latestOffset(second, ReadAllAvailable())
    assert rows(fresh, second, third) == Counter(frame(3).rows())
    assert rows(fresh, third, fresh.latestOffset(third, ReadAllAvailable())) == Counter()
    assert rows(source.reader(schema)) == Counter(pl.concat(map(frame, range(4))).rows())
    old = FalkirkTables({**options, "version": str(lake.newest() - 1)})
    assert rows(old.reader(schema)) == Counter(pl.concat(map(frame, range(3))).rows())
