"""Spark: batch regions, sources, sinks and tables, and its process management.

>>> from libraries import spark
>>> from libraries.columns.verbs.dataflow import Dataflow
>>> from libraries.connect import Parquet
>>> flow = Dataflow("orders")
>>> orders = flow.columns("orders", Parquet("orders/*.parquet"))
>>> totals = spark.batch(orders, "select customer, sum(price) as total from input group by customer", over="all")

Each name is imported when it is first used: the processes that speak to Spark have no need of dataflows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from libraries.spark.data_source import register
    from libraries.spark.dataflow.ends import sink, source
    from libraries.spark.dataflow.region import batch
    from libraries.spark.dataflow.stream_source import Stream
    from libraries.spark.dataflow.table import write
    from libraries.spark.dataflow.views import view
    from libraries.spark.errors import SparkError
    from libraries.spark.host.host import stop
    from libraries.spark.setup.options import SparkOptions

__all__ = ["SparkError", "SparkOptions", "Stream", "batch", "register", "sink", "source", "stop", "view", "write"]

_HOMES = {
    "SparkError": "errors",
    "SparkOptions": "setup.options",
    "Stream": "dataflow.stream_source",
    "batch": "dataflow.region",
    "register": "data_source",
    "sink": "dataflow.ends",
    "source": "dataflow.ends",
    "stop": "host.host",
    "view": "dataflow.views",
    "write": "dataflow.table",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
