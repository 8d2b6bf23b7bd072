"""A compiled program over a stream of Spark: each micro-batch is an epoch, and running verbs keep their state in between.

Structured Streaming decides what a micro-batch is. Its rows are a view, with the batch's number as their epoch, and the views
of the program are what this epoch adds. Running totals have one view more, of their state before the batch; the state after it
is computed, and held by Spark, before the next batch begins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from libraries.spark.engine.compiler import Compiled, Kept, Streamed
from libraries.spark.engine.run import SETTINGS, Writers, batches_of, explained
from libraries.spark.engine.types import EPOCH, quoted
from libraries.spark.engine.windows import BATCH
from libraries.spark.stream_source import Stream
from libraries.spark.tasks import check_types
from runtime.scratch import Scratch
from timely.data.batch import as_polars
from timely.dataflow.graph import Node
from timely.errors import FalkirkError
from timely.time import INF


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream with its columns."""

    of: Streamed
    frame: DataFrame
    source: Stream


def opened(node: Node, session: SparkSession) -> Opened:
    """The stream of a source, in a session. Raises FalkirkError for what is none."""
    source = node.source
    assert isinstance(source, Stream)
    try:
        frame = source.streaming(session)
        check_types(frame)
    except FalkirkError as error:
        raise type(error)(f"{node.kind} {node.name!r} ({node.site}): {error}") from error
    except Exception as error:
        raise explained(error) from error
    schema = as_polars(to_arrow_schema(frame.schema, timezone="UTC").empty_table()).schema
    return Opened(Streamed(node, schema), frame, source)


class MicroBatches:
    """Runs a program over one micro-batch after the other. Spark calls it with each, as a function."""

    def __init__(self, compiled: Compiled, writers: Writers) -> None:
        self._compiled = compiled
        self._writers = writers
        self._kept: dict[str, DataFrame] = {}
        """Of each running verb its state after the batches so far, by the name of its view."""
        self._none: DataFrame | None = None
        """A micro-batch without rows, in the session of the others; None before the first."""
        self._error: Exception | None = None

    def run(self, stream: Opened, session: SparkSession) -> None:
        """Run until the stream ends. Raises FalkirkError for what goes wrong."""
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it has to say is said by the exceptions
        with closing(Scratch("stream")) as scratch:
            writer = stream.source.triggered(stream.frame.writeStream)
            query = writer.option("checkpointLocation", str(scratch.path)).foreachBatch(self).start()
            try:
                query.awaitTermination()
            except Exception as error:
                if isinstance(self._error, FalkirkError):
                    raise self._error from None
                raise explained(self._error or error) from error
            finally:
                query.stop()
        if self._none is not None and self._kept:
            self._add(self._none, INF, True)  # windows that are open close

    def __call__(self, frame: DataFrame, number: int) -> None:
        try:
            if self._none is None:
                self._none = frame.sparkSession.createDataFrame([], frame.schema)
            self._add(frame, number, False)
        except Exception as error:
            self._error = error
            raise

    def _add(self, frame: DataFrame, number: int, ended: bool) -> None:
        with ExitStack() as resources:
            resources.enter_context(_settled(frame.sparkSession))
            self._go_through(frame, number, ended, resources)

    def _go_through(self, frame: DataFrame, number: int, ended: bool, resources: ExitStack) -> None:
        session = frame.sparkSession
        session.sql(f"select {number}L as number, {str(ended).lower()} as ended").createOrReplaceTempView(BATCH)
        rows = frame.selectExpr(f"{number}L as {quoted(EPOCH)}", "*").persist()
        resources.callback(rows.unpersist)
        assert self._compiled.streamed is not None
        rows.createOrReplaceTempView(self._compiled.streamed)
        for node, epoch, batch in batches_of(self._compiled, session, resources, self._kept):
            self._writers.write(node, epoch, batch)
        for view in self._compiled.views:
            if isinstance(view, Kept):
                self._kept[view.state] = session.sql(view.after).localCheckpoint()
        self._writers.commit()


@contextmanager
def _settled(session: SparkSession) -> Iterator[None]:
    """Inside, the session has the settings that queries rest on: its own are those under which the stream is read."""
    before: dict[str, Any] = {name: session.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
