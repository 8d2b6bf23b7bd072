"""Spark: batch regions that run on it, its streams as sources, tables for it; and what finds, starts and watches it.

>>> from libraries import spark
>>> from timely.dataflow.dataflow import Dataflow
>>> from timely.io import Parquet
>>> flow = Dataflow("orders")
>>> orders = flow.columns("orders", Parquet("orders/*.parquet"))
>>> totals = spark.batch(orders, "select customer, sum(price) as total from input group by customer", over="all")
"""

from __future__ import annotations

from libraries.spark.data_source import register
from libraries.spark.ends import sink, source
from libraries.spark.errors import SparkError
from libraries.spark.host import stop
from libraries.spark.region import batch
from libraries.spark.session import SparkOptions
from libraries.spark.stream_source import Stream
from libraries.spark.table import write
from libraries.spark.view import view

__all__ = ["SparkError", "SparkOptions", "Stream", "batch", "register", "sink", "source", "stop", "view", "write"]
