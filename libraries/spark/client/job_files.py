"""Parquet files of a job, read and written by Spark."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from libraries.spark.files.pinned_file import PinnedFile
from libraries.spark.files.schemas import read_schema
from libraries.spark.protocol import Frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CODEC = "spark.sql.parquet.compression.codec"


def own_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Write options for a job's own files; a codec chosen by the user applies to them.

    Each task moves its files to where they belong, as nobody sees the folder before all are there; and there is no `_SUCCESS`.
    """
    return {
        "compression": settings.get(_CODEC, "lz4_raw"),
        "mapreduce.fileoutputcommitter.algorithm.version": "2",
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }


def write_files(frame: DataFrame, output: str, rows: int, options: Mapping[str, str]) -> None:
    """Write a DataFrame by Spark into a new folder, at most `rows` rows a file.

    0 stands for any number of rows.
    """
    frame.write.options(**options).option("maxRecordsPerFile", rows).parquet(output)


def read_files(session: SparkSession, frames: Frames) -> DataFrame:
    """The files of an input, read by Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(read_schema(frames.schema), prefer_timestamp_ntz=True)
    if not frames.files:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).parquet(*frames.files)


def read_table_files(session: SparkSession, files: Sequence[PinnedFile]) -> DataFrame:
    """The files of a table, read by Spark."""
    from pyspark.sql import DataFrame

    parts = []
    for base in dict.fromkeys(file.base for file in files):
        paths = [file.path for file in files if file.base == base]
        parts.append(session.read.option("basePath", base).parquet(*paths))
    return functools.reduce(DataFrame.unionByName, parts)
