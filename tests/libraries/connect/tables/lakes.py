"""A Delta and an Iceberg table for tests, written and read by their own libraries as well as by ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from libraries.connect import Delta, DeltaSink, Iceberg, IcebergSink


class DeltaLake:
    """One Delta table, `numbers`, in a folder."""

    name = "delta"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "numbers"

    def sink(self, **options: Any) -> DeltaSink:
        return DeltaSink(self.path, **options)

    def source(self, **options: Any) -> Delta:
        return Delta(self.path, **options)

    def rows(self) -> Counter[tuple[Any, ...]]:
        return Counter(pl.read_delta(str(self.path)).rows()) if (self.path / "_delta_log").exists() else Counter()

    def commits(self) -> list[Counter[tuple[Any, ...]]]:
        """The rows that each commit has added, by the numbers of rows of the states before and after."""
        states = [Counter(pl.read_delta(str(self.path), version=v).rows()) for v in range(self.newest() + 1)]
        return [after - before for before, after in pairwise(states)]

    def newest(self) -> int:
        return int(deltalake.DeltaTable(self.path).version())

    def append(self, frame: pl.DataFrame) -> None:
        """As another program does."""
        deltalake.write_deltalake(self.path, frame.to_arrow(), mode="append")

    def delete(self, where: str) -> None:
        deltalake.DeltaTable(self.path).delete(where)

    @contextmanager
    def failing(self, landed: bool) -> Iterator[None]:
        """The answer of a commit is lost, behind it or in front of it, when its data files are there."""
        real = deltalake.write_deltalake

        def write(table: Any, rows: Any, **options: Any) -> None:
            if landed:
                real(table, rows, **options)
            else:  # as far as its data files
                pq.write_table(rows, self.path / "part-of-nobody.parquet")
            raise ConnectionError("the storage went away")

        with patch.object(deltalake, "write_deltalake", write):
            yield


class IcebergLake:
    """One Iceberg table, `lake.numbers`, of an SQLite catalog."""

    name = "iceberg"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lake" / "numbers"
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink("lake.numbers", self.catalog, **options)

    def source(self, **options: Any) -> Iceberg:
        return Iceberg("lake.numbers", self.catalog, **options)

    def table(self) -> Table:
        return load_catalog("default", **self.catalog).load_table("lake.numbers")

    def rows(self) -> Counter[tuple[Any, ...]]:
        catalog = load_catalog("default", **self.catalog)
        return Counter(_rows(self.table().scan().to_arrow())) if catalog.table_exists("lake.numbers") else Counter()

    def commits(self) -> list[Counter[tuple[Any, ...]]]:
        table = self.table()
        states = [Counter(_rows(table.scan(snapshot_id=each.snapshot_id).to_arrow())) for each in table.snapshots()]
        return [after - before for before, after in zip([Counter(), *states], states)]

    def newest(self) -> int:
        return len(self.table().snapshots())

    def append(self, frame: pl.DataFrame) -> None:
        """As another program does."""
        catalog = load_catalog("default", **self.catalog)
        catalog.create_namespace_if_not_exists("lake")
        catalog.create_table_if_not_exists("lake.numbers", frame.to_arrow().schema)
        self.table().append(frame.to_arrow())

    def delete(self, where: str) -> None:
        self.table().delete(where)

    @contextmanager
    def failing(self, landed: bool) -> Iterator[None]:
        """The answer of a commit is lost, behind it or in front of it, when its data files and manifests are there."""
        real = Table._do_commit

        def commit(table: Table, **options: Any) -> None:
            if landed:
                real(table, **options)
            raise ConnectionError("the catalog went away")

        with patch.object(Table, "_do_commit", commit):
            yield


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


Lake = DeltaLake | IcebergLake
LAKES = [DeltaLake, IcebergLake]
DELTA_FIRST = [DeltaLake, pytest.param(IcebergLake, marks=pytest.mark.soak)]
"""For tests that take seconds."""
