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

from libraries.spark.table_reader import FalkirkTables
from tests.timely.io.tables.lakes import LAKES, IcebergLake, Lake


def frame(number: int) -> pl.DataFrame:
    at = pl.Series([dt.datetime(2024, 1, 1)] * 3, dtype=pl.Datetime("us", "UTC"))
    return pl.DataFrame({"version": [number] * 3, "i": [0, 1, 2], "name": ["a", None, "ü"], "at": at})


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
    second = stream.latestOffset(first, None)
    assert second == {"after": lake.newest()}
    assert rows(stream, first, second) == Counter(pl.concat(map(frame, range(3))).rows())
    lake.append(frame(3))
    fresh = FalkirkTables(options).streamReader(schema)
    third = fresh.latestOffset(second, None)
    assert rows(fresh, second, third) == Counter(frame(3).rows())
    assert rows(fresh, third, fresh.latestOffset(third, None)) == Counter()
    assert rows(source.reader(schema)) == Counter(pl.concat(map(frame, range(4))).rows())
    old = FalkirkTables({**options, "version": str(lake.newest() - 1)})
    assert rows(old.reader(schema)) == Counter(pl.concat(map(frame, range(3))).rows())
