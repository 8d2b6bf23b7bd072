"""Running a compiled program on Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from libraries.spark.cluster_session import On, driver
from libraries.spark.engine.compiler import Compiled, Kept, Read, compile_for_spark
from libraries.spark.engine.piped import HANDED
from libraries.spark.engine.totals import ERROR_BEGIN, ERROR_END
from libraries.spark.engine.types import EPOCH, declared, listed, quoted
from libraries.spark.errors import SparkError
from libraries.spark.stream_source import Stream
from runtime.control import Stats
from runtime.job import Result
from runtime.program import Program
from timely.data.batch import Batch
from timely.data.codec import decode_batch
from timely.dataflow.graph import Node
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
}


def run_on_spark(program: Program, on: On | None, note: Callable[[str], None]) -> Result:
    """Run a program to its end, on Spark alone.

    Args:
        on: a session, a master, or options; None: the session that this process has, or one for this machine.
        note: told where Spark's page is, if there is one.

    Raises:
        GraphError: for what Spark cannot do, before it starts.
        FalkirkError: for what goes wrong; sinks then hold whole epochs only.
    """
    began = time.perf_counter()
    flow = program.build()
    streams = [node for node in flow.graph.of_kind("source") if isinstance(node.source, Stream)]
    compiled = None if streams else compile_for_spark(flow)
    with ExitStack() as resources:
        session = driver(on, resources)
        if (page := session.sparkContext.uiWebUrl) is not None:
            note(f"Spark's own page is at {page}")
        if compiled is None:
            from libraries.spark.engine.stream import MicroBatches, opened

            stream = opened(streams[0], session)
            compiled = compile_for_spark(flow, stream.of)
            writers = resources.enter_context(Writers(compiled))
            MicroBatches(compiled, writers).run(stream, session)
        else:
            writers = resources.enter_context(Writers(compiled))
            for handed in batches_of(compiled, private(session), resources):
                writers.write(*handed)
            writers.commit()
        writers.close()
    stats = Stats(records=0, written=writers.written, epoch=None, read_epoch=None, queued_bytes=0, done=True)
    return Result(time.perf_counter() - began, {0: stats}, {}, writers.captured)


def batches_of(
    compiled: Compiled, made: SparkSession, resources: ExitStack, kept: Mapping[str, DataFrame] = MappingProxyType({})
) -> Iterator[tuple[Node, int, Batch]]:
    """All that goes out: where it goes, the epoch, the batch. It is one query, so that parts are shared.

    `kept` are the states of running verbs after the micro-batches before, by the names of their views; at first there are none.
    """
    try:
        for view in compiled.views:
            if isinstance(view, Kept):
                state = kept[view.state] if view.state in kept else made.sql(view.first)
                state.createOrReplaceTempView(view.state)
            frame = _read(view, made) if isinstance(view, Read) else made.sql(view.sql)
            if view.name in compiled.shared:
                resources.callback(frame.persist().unpersist)
            frame.createOrReplaceTempView(view.name)
        parts = [
            _given(made, each.of).mapInArrow(each.piped.handed, HANDED).selectExpr(f"{number} as number", "*")
            for number, each in enumerate(compiled.handed)
        ]
        rows = reduce(type(parts[0]).unionAll, parts).toArrow().to_pylist() if parts else []
    except Exception as error:
        raise explained(error) from error
    for row in rows:
        yield (
            compiled.handed[row["number"]].node,
            row[EPOCH],
            decode_batch(row["header"], memoryview(row["payload"]), trusted=True),
        )


def private(session: SparkSession) -> SparkSession:
    """A session with the settings that queries rest on; those of the user's own stay as they are."""
    made = session.newSession()
    for name, value in SETTINGS.items():
        made.conf.set(name, value)
    return made


def _read(view: Read, session: SparkSession) -> DataFrame:
    """The rows that functions in tasks make."""
    piped, schema = view.piped, view.schema
    columns = listed(f"{quoted(EPOCH)} bigint", declared(schema))
    return _given(session, view.of).mapInArrow(lambda given: piped.rows(given, schema), columns)


def _given(session: SparkSession, view: str | None) -> DataFrame:
    """The rows of a view, or the numbers of tasks, one in each."""
    if view is not None:
        return session.table(view)
    tasks = session.sparkContext.defaultParallelism
    return session.range(0, tasks, 1, tasks).selectExpr("id as task", f"{tasks}L as tasks")


def explained(error: Exception) -> FalkirkError:
    """The error of a program among the words of Spark."""
    text = str(error)
    if ERROR_BEGIN in text:
        return OperatorError(text.partition(ERROR_BEGIN)[2].partition(ERROR_END)[0])
    return SparkError(text)


class Writers:
    """The sinks and captures of a program. What was not committed when it is left is dropped."""

    def __init__(self, compiled: Compiled) -> None:
        self.captured: dict[str, list[tuple[Time, Batch]]] = {}
        self.written = 0
        self._epochs: dict[int, set[int]] = {}
        self._writers: dict[int, Any] = {}
        self._nodes: dict[int, Node] = {}
        for handed in compiled.handed:
            node = self._nodes[handed.node.index] = handed.node
            if node.sink is None:
                self.captured[node.name] = []
            else:
                self._writers[node.index] = self._do(node, lambda sink=node.sink: sink.open(0, 1))

    def write(self, node: Node, epoch: int, batch: Batch) -> None:
        """Take a batch."""
        if node.sink is None:
            self.captured[node.name].append(((epoch,), batch))
            return
        self.written += len(batch)
        self._epochs.setdefault(node.index, set()).add(epoch)
        self._do(node, lambda: self._writers[node.index].write(visible((epoch,))[0], batch))

    def commit(self) -> None:
        """Make all epochs visible, in order, in one sink after the other."""
        for index, epochs in self._epochs.items():
            for epoch in sorted(epochs):
                self._do(self._nodes[index], lambda i=index, e=epoch: self._writers[i].commit(visible((e,))[0]))
        self._epochs.clear()

    def close(self) -> None:
        """All is visible."""
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
