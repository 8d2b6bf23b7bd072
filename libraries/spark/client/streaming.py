"""Streaming DataFrames: creation, trigger, and end over available data.

Spark ends a query over available data without an error where somebody stops it before, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from libraries.spark.client.functions import call, described
from libraries.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_IDLE_MS = "spark.sql.streaming.noDataProgressEventInterval"
"""Setting for the interval of Spark's progress reports without input."""


def streaming(session: SparkSession, function: Callable[[SparkSession], DataFrame], query: str | None) -> DataFrame:
    """Streaming DataFrame of a user's function, or of SQL over it.

    Raises SparkError if it is no stream.
    """
    frame = call(function, session)
    if not frame.isStreaming:
        raise SparkError(
            f"{described(function)} returned a DataFrame that is not a stream: make it with session.readStream, or use "
            "Parquet(...) for files that are all there"
        )
    if query is None:
        return frame
    frame.createOrReplaceTempView("input")
    return session.sql(query)


def triggered(writer: DataStreamWriter, mode: str, now: bool, every: float | None) -> DataStreamWriter:
    """Writer of a streaming DataFrame with output mode and trigger set.

    See `libraries.spark.protocol.Follow`.
    """
    writer = writer.outputMode(mode)
    if now:
        return writer.trigger(availableNow=True)
    return writer if every is None else writer.trigger(processingTime=f"{round(every * 1000)} milliseconds")


@contextmanager
def reporting_end(session: SparkSession) -> Iterator[None]:
    """Make queries started in the session report their lack of more input."""
    before = str(session.conf.get(_IDLE_MS))
    session.conf.set(_IDLE_MS, "0")
    try:
        yield
    finally:
        session.conf.set(_IDLE_MS, before)


def has_read_all(query: StreamingQuery, last: int) -> bool:
    """True if a query found no more input after `last`, its last micro-batch."""
    progress = query.lastProgress
    return progress is not None and progress.batchId > last
