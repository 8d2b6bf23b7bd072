"""Output of a compiled program, computed by Spark in one query."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from libraries.spark.engine.compiler import BatchView, Compiled, StateView
from libraries.spark.engine.piped import HANDED
from libraries.spark.engine.totals import ERROR_BEGIN, ERROR_END
from libraries.spark.engine.types import EPOCH, declared, listed, quoted
from libraries.spark.errors import SparkError
from timely.errors import FalkirkError, OperatorError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    # What is too large wraps around, as in Polars; where that is an error here, queries say so.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # What is kept comes back as it was.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}


def rows_of(
    compiled: Compiled,
    made: SparkSession,
    resources: ExitStack,
    state: Callable[[str, DataFrame], DataFrame] = lambda name, first: first,
) -> pa.Table:
    """All output of a program, computed in one query to share parts.

    `state` gives what was kept under a name, where `first` is for what was not.
    """
    try:
        for view in compiled.views:
            if isinstance(view, StateView):
                frame = state(view.name, made.sql(view.first))
            else:
                frame = _read(view, made) if isinstance(view, BatchView) else made.sql(view.sql)
            if view.name in compiled.shared:
                resources.callback(frame.persist().unpersist)
            frame.createOrReplaceTempView(view.name)
        parts = [
            _given(made, each.of).mapInArrow(each.piped.handed, HANDED).selectExpr(f"{number} as number", "*")
            for number, each in enumerate(compiled.handed)
        ]
        return reduce(type(parts[0]).unionAll, parts).toArrow() if parts else pa.table({})
    except Exception as error:
        raise explained(error) from error


def private(session: SparkSession) -> SparkSession:
    """New session with the settings required by the queries; the user's is unchanged."""
    made = session.newSession()
    for name, value in SETTINGS.items():
        made.conf.set(name, value)
    return made


def _read(view: BatchView, session: SparkSession) -> DataFrame:
    """Rows made by Python functions in Spark's tasks."""
    piped, schema = view.piped, view.schema
    columns = listed(f"{quoted(EPOCH)} bigint", declared(schema))
    return _given(session, view.of).mapInArrow(lambda given: piped.rows(given, schema), columns)


def _given(session: SparkSession, view: str | None) -> DataFrame:
    """Rows of a view, or one row per task with its number."""
    if view is not None:
        return session.table(view)
    tasks = session.sparkContext.defaultParallelism
    return session.range(0, tasks, 1, tasks).selectExpr("id as task", f"{tasks}L as tasks")


def explained(error: Exception) -> FalkirkError:
    """Error of the user's program, extracted from Spark's message."""
    text = str(error)
    if ERROR_BEGIN in text:
        return OperatorError(text.partition(ERROR_BEGIN)[2].partition(ERROR_END)[0])
    return SparkError(text)
