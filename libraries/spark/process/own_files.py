"""The files that Spark writes for a job, with options of their own: what a function of the user's writes is as Spark has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CODEC = "spark.sql.parquet.compression.codec"


def own_options(settings: Mapping[str, str]) -> dict[str, str]:
    """The options of our own files, on a Spark with these settings: a codec that the user has chosen holds for them, too.

    Each task moves its files to where they belong, as nobody sees the folder before all are there; and there is no `_SUCCESS`.
    """
    return {
        "compression": settings.get(_CODEC, "lz4_raw"),
        "mapreduce.fileoutputcommitter.algorithm.version": "2",
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }


def write_files(frame: DataFrame, output: str, rows: int, options: Mapping[str, str]) -> None:
    """Have Spark write a DataFrame into a new folder: in files of at most `rows` rows, or (0) of any number."""
    frame.write.options(**options).option("maxRecordsPerFile", rows).parquet(output)
