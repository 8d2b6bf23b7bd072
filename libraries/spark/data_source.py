"""Data source "falkirk" for a user's own Spark session; imports PySpark lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(session: SparkSession) -> None:
    """Register the format "falkirk" with a session, for reads in batch and streaming.

    These are `spark.read` and `spark.readStream`.

    Options: `table`, the path of a table of `spark.write`; `delta`, the path of a table, or `iceberg`, its name, with the
    properties of its catalog as `catalog.type`, `catalog.uri` and so on. `version` for `spark.read` (the newest by default).
    For `spark.readStream`, `after` (from the first version by default), and `per_batch`, the most versions of a micro-batch
    (all that are there by default). Versions of a table of `spark.write` are its epochs. Spark's Python processes must be
    able to import falkirk.
    """
    from libraries.spark.table_reader import FalkirkTables

    session.dataSource.register(FalkirkTables)
