"""Table of `spark.write` as a log of versions: an epoch's folder is a version."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from libraries.connect.tables.source import DataFile, Log
from libraries.spark.errors import SparkError
from libraries.spark.files.schemas import read_schema
from timely.errors import SourceError

HIDDEN = ".falkirk"
"""Hidden folder of a table, invisible to its readers, with the file `SCHEMA`."""

SCHEMA = "schema"

BY = b"falkirk.partition_by"
"""Metadata key in a table's schema for the list of partition columns."""

_EPOCH = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(\d{10})")


def partitioned_by(schema: pa.Schema) -> list[str]:
    """Partition columns of a table, in their order."""
    text = (schema.metadata or {}).get(BY, b"").decode()
    return text.split("\0") if text else []


class EpochTable(Log):
    """The table in folder `path`; its epochs appear in order.

    None comes later that is before one that is there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.where = f"table {self._path}"
        self._known: pa.Schema | None = None

    def newest(self) -> int:
        return max(self._epochs(), default=-1)

    def columns(self) -> pa.Schema:
        """Columns in Spark's order: those in the files, the epoch, then partition columns."""
        if self._known is None:
            try:
                written = read_schema((self._path / HIDDEN / SCHEMA).read_bytes())
            except (OSError, SparkError) as error:
                raise SourceError(
                    f"{self.where}: its columns are not known: spark.write has shown no epoch there yet, or it has not made it."
                ) from error
            by = partitioned_by(written)
            column = next((_EPOCH.fullmatch(folder.name) for folder in self._epochs().values()), None)
            inside = [field for field in written.remove_metadata() if field.name not in by]
            epoch = pa.field(column[1] if column is not None else "epoch", pa.int32())
            self._known = pa.schema([*inside, epoch, *(written.field(name) for name in by)])
        return self._known

    def first(self, start: int | None) -> int | None:
        return self.following((start or 0) - 1)

    def following(self, number: int) -> int | None:
        return min((epoch for epoch in self._epochs() if epoch > number), default=None)

    def state(self, number: int) -> Sequence[DataFile]:
        there = self._epochs()
        return [file for epoch in sorted(there) if epoch <= number for file in self._files(there[epoch])]

    def added(self, number: int) -> Sequence[DataFile]:
        folder = self._epochs().get(number)
        if folder is None:
            raise SourceError(f"{self.where}: epoch {number} is not there.")
        return self._files(folder)

    def _files(self, folder: Path) -> list[DataFile]:
        schema = self.columns()
        return [_EpochFile(self._path, path, schema) for path in sorted(folder.rglob("*.parquet"))]

    def _epochs(self) -> dict[int, Path]:
        """Folders of published epochs, each complete."""
        try:
            names = os.listdir(self._path)
        except OSError as error:
            raise SourceError(f"{self.where}: there is none that can be read ({error.strerror}).") from error
        found = [(name, match) for name in names if (match := _EPOCH.fullmatch(name)) is not None]
        return {int(match[2]): self._path / name for name, match in found}


class _EpochFile:
    """Parquet file of an epoch, read as a whole.

    The job that writes it divides large epochs.
    """

    def __init__(self, table: Path, path: Path, schema: pa.Schema) -> None:
        self.name = str(path.relative_to(table))
        self._table = table
        self._path = path
        self._schema = schema

    def pieces(self) -> int:
        return 1

    def read(self, piece: int) -> pa.Table:
        folders = [part.partition("=")[0] for part in self.name.split(os.sep)[:-1]]
        try:
            names = ds.partitioning(pa.schema([self._schema.field(name) for name in folders]), flavor="hive")
            return ds.dataset(
                str(self._path),
                schema=self._schema,
                format="parquet",
                partitioning=names,
                partition_base_dir=str(self._table),
            ).to_table()
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise SourceError(f"table {self._table}: {self.name} cannot be read: {error}.") from error
