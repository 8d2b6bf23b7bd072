"""Writing of a job's own Parquet files by Spark, with options of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
