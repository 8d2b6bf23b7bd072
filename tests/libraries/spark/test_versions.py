"""Versions of PySpark: which are refused, where they are read, and one call that differs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pyspark
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark import versions
from libraries.spark.errors import SparkError
from libraries.spark.versions import arrow_schema, check_version, installed
from runtime.run import run
from timely.errors import FalkirkError
from timely.io import Batches


def test_version_is_that_of_the_pyspark_that_is_imported() -> None:
    assert installed() == tuple(map(int, pyspark.__version__.split(".")[:2]))


@pytest.mark.parametrize(
    ("version", "good"), [((3, 5), False), ((4, 0), True), ((4, 3), True), ((4, 4), False), (None, True)]
)
def test_other_versions_are_refused_with_what_to_do(version: tuple[int, int] | None, good: bool) -> None:
    if good:
        check_version(version)
    else:
        with pytest.raises(
            SparkError, match=r"Spark 4.0 to 4.3 is needed, and .* \d\.\d: pip install 'pyspark>=4.0,<4.4'"
        ):
            check_version(version)


def test_old_pyspark_is_refused_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "version.py").write_text('__version__: str = "3.5.8"\n')
    monkeypatch.setattr(versions, "find_spec", lambda _: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    flow = Dataflow("old")
    rows = flow.columns("in", Batches([pl.DataFrame({"k": [1]})]))
    spark.batch(rows, "select k from input", options=spark.SparkOptions(memory="701m"), name="r").capture("out")
    with pytest.raises(FalkirkError, match=r"test_versions.py.*this Python has 3.5: pip install"):
        run(flow)


def test_times_are_in_utc_whatever_the_argument_is_called() -> None:
    from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

    schema = StructType([StructField("at", TimestampType()), StructField("local", TimestampNTZType())])
    assert [field.type for field in arrow_schema(schema)] == [pa.timestamp("us", "UTC"), pa.timestamp("us")]
