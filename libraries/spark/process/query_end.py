"""The end of a streaming query that reads what is there. Spark ends it without an error where somebody stops it before, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_IDLE_MS = "spark.sql.streaming.noDataProgressEventInterval"
"""The setting for how often Spark notes as progress that it has found no input."""


@contextmanager
def noting_the_end(session: SparkSession) -> Iterator[None]:
    """Inside, queries that are started in a session will note at their end that there was no more input."""
    before = str(session.conf.get(_IDLE_MS))
    session.conf.set(_IDLE_MS, "0")
    try:
        yield
    finally:
        session.conf.set(_IDLE_MS, before)


def has_read_all(query: StreamingQuery, last: int) -> bool:
    """True if a query that has ended, with `last` as its last micro-batch, has found no input for one more."""
    progress = query.lastProgress
    return progress is not None and progress.batchId > last
