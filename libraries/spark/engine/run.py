"""Execution of a compiled program on Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from libraries.spark.cluster.session import On, driver
from libraries.spark.dataflow.stream_source import Stream
from libraries.spark.engine.compiler import OUT, Compiled, Kept, Read, compile_for_spark
from libraries.spark.engine.piped import HANDED
from libraries.spark.engine.totals import ERROR_BEGIN, ERROR_END
from libraries.spark.engine.types import EPOCH, declared, listed, quoted
from libraries.spark.errors import SparkError
from recovery.store.address import Where
from runtime.control import Stats
from runtime.job import Result
from runtime.program import Program
from timely.data.batch import Batch
from timely.data.codec import decode_batch
from timely.dataflow.graph import Graph, Node
from timely.errors import FalkirkError, OperatorError, SinkError, told
from timely.time import Time, visible

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


def run_on_spark(program: Program, on: On | None, note: Callable[[str], None], store: Where | None = None) -> Result:
    """Run a program to its end on Spark, without Falkirk's workers.

    Args:
        on: a session, a master, or options; None: the session that this process has, or one for this machine.
        note: told where Spark's page is, if there is one, and what the user should know of the store.
        store: address of a store in which a program over a stream keeps how far it is: it goes on from there when it is run
            again.

    Raises:
        GraphError: for what Spark cannot do, before it starts.
        FalkirkError: for what goes wrong; sinks then hold whole epochs only.
    """
    began = time.perf_counter()
    flow = program.build()
    streams = [node for node in flow.graph.of_kind("source") if isinstance(node.source, Stream)]
    if store is not None and not streams:
        raise FalkirkError(
            'a store is for a program over a stream (spark.Stream): any other is one query with engine="spark", which keeps '
            "nothing between runs. Leave the store away, or let Falkirk's workers run it"
        )
    compiled = None if streams else compile_for_spark(flow)
    with ExitStack() as resources:
        if compiled is None:
            from libraries.spark.engine.stream import run_stream

            writers = run_stream(flow, streams[0], lambda: _session(on, resources, note), resources, note, store)
        else:
            session = _session(on, resources, note)
            writers = resources.enter_context(Writers(flow.graph, uuid.uuid4().hex))
            writers.take(rows_of(compiled, private(session), resources))
            writers.commit()
        writers.close()
    stats = Stats(records=0, written=writers.written, epoch=None, read_epoch=None, queued_bytes=0, done=True)
    return Result(time.perf_counter() - began, {0: stats}, {}, writers.captured)


def _session(on: On | None, resources: ExitStack, note: Callable[[str], None]) -> SparkSession:
    session = driver(on, resources)
    if (page := session.sparkContext.uiWebUrl) is not None:
        note(f"Spark's own page is at {page}")
    return session


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
            if isinstance(view, Kept):
                frame = state(view.name, made.sql(view.first))
            else:
                frame = _read(view, made) if isinstance(view, Read) else made.sql(view.sql)
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


def _read(view: Read, session: SparkSession) -> DataFrame:
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


class Writers:
    """Sinks and captures of a program.

    What was not committed when it is left is dropped.
    """

    def __init__(self, graph: Graph, job: str) -> None:
        """`job` is the identity of this job, by which sinks recognize its earlier output."""
        self.captured: dict[str, list[tuple[Time, Batch]]] = {}
        self.written = 0
        self._epochs: dict[int, set[int]] = {}
        self._writers: dict[int, Any] = {}
        self._ends = [node for node in graph.nodes if node.kind in OUT]
        self._nodes = {node.index: node for node in self._ends}
        for node in self._ends:
            if node.sink is None:
                self.captured[node.name] = []
            else:
                self._writers[node.index] = self._do(node, lambda node=node: _opened(node, job))

    def take(self, rows: pa.Table, trusted: bool = True) -> None:
        """Add rows from Spark; `trusted`: received directly, not read from a store."""
        for row in rows.to_pylist():
            batch = decode_batch(row["header"], memoryview(row["payload"]), trusted=trusted)
            self._write(self._ends[row["number"]], row[EPOCH], batch)

    def _write(self, node: Node, epoch: int, batch: Batch) -> None:
        if node.sink is None:
            self.captured[node.name].append(((epoch,), batch))
            return
        self.written += len(batch)
        self._epochs.setdefault(node.index, set()).add(epoch)
        self._do(node, lambda: self._writers[node.index].write(visible((epoch,))[0], batch))

    def commit(self) -> None:
        """Commit all epochs in order, sink by sink."""
        for index, epochs in self._epochs.items():
            for epoch in sorted(epochs):
                self._do(self._nodes[index], lambda i=index, e=epoch: self._writers[i].commit(visible((e,))[0]))
        self._epochs.clear()

    def close(self) -> None:
        """Close all sinks, after their commits."""
        for index, writer in self._writers.items():
            self._do(self._nodes[index], writer.close)
        self._writers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.abort()

    @staticmethod
    def _do(node: Node, action: Any) -> Any:
        try:
            return action()
        except Exception as error:
            text = error if isinstance(error, FalkirkError | OSError) else told(error)
            raise SinkError(f"sink {node.name!r} ({node.site}): {text}") from error


def _opened(node: Node, job: str) -> Any:
    sink: Any = node.sink
    if hasattr(sink, "for_job"):
        sink = sink.for_job(job, node.name)
    return sink.open(0, 1)
