"""Spark: batch regions that run on it, its streams as sources, tables for it; and what finds, starts and watches it.

>>> from libraries import spark
>>> from timely.dataflow.dataflow import Dataflow
>>> from timely.io import Parquet
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
    from libraries.spark.ends import sink, source
    from libraries.spark.errors import SparkError
    from libraries.spark.host import stop
    from libraries.spark.region import batch
    from libraries.spark.session import SparkOptions
    from libraries.spark.stream_source import Stream
    from libraries.spark.table import write
    from libraries.spark.views import view

__all__ = ["SparkError", "SparkOptions", "Stream", "batch", "register", "sink", "source", "stop", "view", "write"]

_HOMES = {
    "SparkError": "errors",
    "SparkOptions": "session",
    "Stream": "stream_source",
    "batch": "region",
    "register": "data_source",
    "sink": "ends",
    "source": "ends",
    "stop": "host",
    "view": "views",
    "write": "table",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
