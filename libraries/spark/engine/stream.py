"""Compiled program over a Spark stream: an epoch per micro-batch, state kept.

Structured Streaming decides what a micro-batch is. Its rows are a view, with the batch's number as their epoch, and the views
of the program are what this epoch adds. A running verb has one view more, of its state before the batch; the state after it is
computed, and kept (`libraries.spark.engine.history`), before the next batch begins.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from libraries.spark.client.functions import check_types
from libraries.spark.client.streaming import has_read_all, reporting_end
from libraries.spark.dataflow.stream_source import Stream
from libraries.spark.engine.compiler import Compiled, StateView, Streamed, compile_for_spark
from libraries.spark.engine.history import InAStore, OfARun, StateHistory
from libraries.spark.engine.rows import SETTINGS, explained, rows_of
from libraries.spark.engine.types import EPOCH, quoted
from libraries.spark.engine.windows import BATCH
from libraries.spark.engine.writers import Writers
from libraries.spark.versions import arrow_schema
from recovery.store.address import StoreAddress, Where
from runtime.supervisor.store import JobStore
from timely.data.batch import as_polars
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.graph import Node
from timely.errors import FalkirkError
from timely.time import INF

_SETTINGS = SETTINGS | {
    # What a checkpoint knows of its rows may name columns that it does not have; over a union of it Spark then fails.
    "spark.sql.constraintPropagation.enabled": "false",
}
_LOOK_SECONDS = 1
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Opened:
    """Streaming DataFrame with its source and columns."""

    of: Streamed
    frame: DataFrame
    source: Stream


def opened(node: Node, session: SparkSession) -> Opened:
    """Open the stream of a source in a session.

    Raises FalkirkError if it is not streaming.
    """
    source = node.source
    assert isinstance(source, Stream)
    try:
        frame = source.streaming(session)
        check_types(frame)
    except FalkirkError as error:
        raise type(error)(f"{node.kind} {node.name!r} ({node.site}): {error}") from error
    except Exception as error:
        raise explained(error) from error
    schema = as_polars(arrow_schema(frame.schema).empty_table()).schema
    return Opened(Streamed(node, schema), frame, source)


def run_stream(
    flow: Dataflow,
    node: Node,
    session: Callable[[], SparkSession],
    resources: ExitStack,
    note: Callable[[str], None],
    store: Where | None,
) -> Writers:
    """Run a program over a stream to its end, resumed from a `store`; its writers.

    Raises FalkirkError for what goes wrong.
    """
    kept = None
    if store is not None:
        kept = InAStore(JobStore(resources, StoreAddress.of(store), note, spark_only=True), flow.graph)
        if kept.last == INF:
            note(
                f"the job in {store} has ended: all that was there has been read. For what has come since, name another store"
            )
            return _writers(flow, kept, resources)
    history: StateHistory = kept or OfARun(resources)
    made = session()
    stream = opened(node, made)
    compiled = compile_for_spark(flow, stream.of)
    if kept is not None:
        kept.begin(compiled, stream.of, made)
    writers = _writers(flow, kept, resources)
    MicroBatches(compiled, writers, history).run(stream)
    return writers


def _writers(flow: Dataflow, kept: InAStore | None, resources: ExitStack) -> Writers:
    """Sinks of a program; the last output is written again if perhaps unpublished."""
    writers = resources.enter_context(Writers(flow.graph, uuid.uuid4().hex if kept is None else kept.job))
    if kept is not None and (rows := kept.unwritten()) is not None:
        writers.take(rows, trusted=False)
        writers.commit()
        kept.written()
    return writers


class MicroBatches:
    """Runs a program micro-batch by micro-batch.

    Spark calls it with each, as a function.
    """

    def __init__(self, compiled: Compiled, writers: Writers, history: StateHistory) -> None:
        self._compiled = compiled
        self._writers = writers
        self._history = history
        self._none: DataFrame | None = None
        """Empty micro-batch in the session of the others; None before the first."""
        self._error: Exception | None = None
        self._busy = Lock()
        self._over = False

    def run(self, stream: Opened) -> None:
        """Run until the stream ends; FalkirkError on failure."""
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it has to say is said by the exceptions
        writer = stream.source.triggered(stream.frame.writeStream)
        writer = writer.option("checkpointLocation", self._history.checkpoint).foreachBatch(self)
        with reporting_end(stream.frame.sparkSession) if stream.source.ends else nullcontext():
            query = writer.start()
        try:
            while not query.awaitTermination(_LOOK_SECONDS):
                self._history.check()
        except FalkirkError:
            raise
        except Exception as error:
            if isinstance(self._error, FalkirkError):
                raise self._error from None
            raise explained(self._error or error) from error
        finally:
            self._over = True
            query.stop()
            if self._busy.acquire(
                timeout=_END_SECONDS
            ):  # a batch that is under way ends by that, in a thread of its own
                self._busy.release()
        if not (stream.source.ends and has_read_all(query, self._history.last)):
            node = stream.of.node
            raise FalkirkError(
                f"{node.kind} {node.name!r} ({node.site}): somebody else has stopped its query before its end. With a store "
                "the program goes on there when it is run again"
            )
        if self._history.last >= 0:
            if self._none is None:
                made = stream.frame.sparkSession.newSession()
                self._none = made.createDataFrame([], stream.frame.schema)
            self._add(self._none, INF, True)  # windows that are open close

    def __call__(self, frame: DataFrame, number: int) -> None:
        with self._busy:
            try:
                if self._none is None:
                    self._none = frame.sparkSession.createDataFrame([], frame.schema)
                if number > self._history.last and not self._over:
                    self._add(frame, number, False)
            except Exception as error:
                self._error = error
                raise

    def _add(self, frame: DataFrame, number: int, ended: bool) -> None:
        with ExitStack() as resources:
            resources.enter_context(_settled(frame.sparkSession))
            self._go_through(frame, number, ended, resources)

    def _go_through(self, frame: DataFrame, number: int, ended: bool, resources: ExitStack) -> None:
        session, views = frame.sparkSession, self._compiled.views
        session.sql(f"select {number}L as number, {str(ended).lower()} as ended").createOrReplaceTempView(BATCH)
        rows = frame.selectExpr(f"{number}L as {quoted(EPOCH)}", "*").persist()
        resources.callback(rows.unpersist)
        assert self._compiled.streamed is not None
        rows.createOrReplaceTempView(self._compiled.streamed)
        out = rows_of(self._compiled, session, resources, self._history.state)
        after = {view.name: session.sql(view.after) for view in views if isinstance(view, StateView)}
        self._history.keep(number, after, out)
        self._writers.take(out)
        self._writers.commit()
        self._history.written()


@contextmanager
def _settled(session: SparkSession) -> Iterator[None]:
    """Apply the settings required by the queries within the context.

    The session's own settings are those under which the stream is read.
    """
    before: dict[str, Any] = {name: session.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
