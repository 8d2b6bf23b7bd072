"""Spark reads Delta and Iceberg tables by the format "falkirk": whole versions, each once, over restarts of a query."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark import register, table_reader, write
from libraries.spark.errors import SparkError
from runtime.run import run
from tests.libraries.connect.tables.lakes import DeltaLake, IcebergLake, Lake
from timely.io import Batches

pytestmark = [pytest.mark.spark, pytest.mark.soak]


def frame(number: int) -> pl.DataFrame:
    return pl.DataFrame({"version": [number] * 3, "i": [0, 1, 2], "name": ["a", None, "ü"]})


def expected(*numbers: int) -> Counter[Any]:
    return sum((Counter(frame(number).rows()) for number in numbers), Counter())


@pytest.fixture(scope="module")
def spark() -> Any:
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        # A busy machine takes long to start a Python process.
        session = builder.config("spark.python.authenticate.socketTimeout", "120s").getOrCreate()
    register(session)
    yield session
    session.stop()


@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake], ids=lambda kind: kind.name)
def test_each_version_comes_once_over_restarts_of_a_query(kind: type[Lake], spark: Any, tmp_path: Path) -> None:
    lake = kind(tmp_path)
    options = {"delta": str(lake.path)}
    if isinstance(lake, IcebergLake):
        options = {"iceberg": "lake.numbers", **{f"catalog.{key}": value for key, value in lake.catalog.items()}}
    batches: dict[int, Counter[Any]] = {}

    def keep(rows: Any, number: int) -> None:
        batches[number] = Counter(tuple(row) for row in rows.collect())

    def stream(**more: str) -> None:
        reading = spark.readStream.format("falkirk").options(**options, **more).load()
        writing = reading.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / f"c{len(more)}"))
        writing.trigger(availableNow=True).start().awaitTermination()

    for number in range(3):
        lake.append(frame(number))
    stream()
    assert sum(batches.values(), Counter()) == expected(0, 1, 2)
    lake.append(frame(3))
    batches.clear()
    stream()
    assert sum(batches.values(), Counter()) == expected(3)
    batches.clear()
    stream(after=str(lake.newest() - 2))
    assert sum(batches.values(), Counter()) == expected(2, 3)
    whole = spark.read.format("falkirk").options(**options).load()
    assert Counter(tuple(row) for row in whole.collect()) == expected(0, 1, 2, 3)
    assert whole.filter("i = 1").count() == 4
    lake.delete("i = 1")
    with pytest.raises(Exception, match="deletes or changes rows"):
        stream()
    assert spark.read.format("falkirk").options(**options).load().count() == 8


def test_a_table_of_spark_write_comes_an_epoch_a_batch(spark: Any, tmp_path: Path) -> None:
    flow = Dataflow("writes")
    write(flow.columns("in", Batches([frame(number) for number in range(3)])), tmp_path / "table", partition_by="name")
    run(flow)
    batches: dict[int, Counter[Any]] = {}

    def keep(rows: Any, number: int) -> None:
        batches[number] = Counter(tuple(row) for row in rows.select("version", "i", "name").collect())
        assert {row.epoch for row in rows.select("epoch").collect()} == {number}

    options = {"table": str(tmp_path / "table"), "per_batch": "1"}
    reading = spark.readStream.format("falkirk").options(**options).load()
    writing = reading.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writing.trigger(availableNow=True).start().awaitTermination()
    assert batches == {number: expected(number) for number in range(3)}
    whole = spark.read.format("falkirk").option("table", str(tmp_path / "table")).load()
    other = spark.read.parquet(str(tmp_path / "table"))
    assert whole.columns == other.columns
    assert sorted(map(str, whole.collect())) == sorted(map(str, other.collect()))


def test_options_that_cannot_be_are_named(spark: Any) -> None:
    for options in ({}, {"delta": "a", "iceberg": "b.c"}):
        with pytest.raises(SparkError, match="needs one of the options"):
            table_reader._log(options)
    with pytest.raises(SparkError, match="after='x' must be the number of a version"):
        table_reader._number({"after": "x"}, "after", 0)
    with pytest.raises(Exception, match="Delta table no-such: there is none"):
        spark.read.format("falkirk").option("delta", "no-such").load()
