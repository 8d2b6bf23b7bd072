"""End of a streaming query over available data, distinguished from a stop.

Spark ends it without an error where somebody stops it before, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_IDLE_MS = "spark.sql.streaming.noDataProgressEventInterval"
"""Setting for the interval of Spark's progress reports without input."""


@contextmanager
def noting_the_end(session: SparkSession) -> Iterator[None]:
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
