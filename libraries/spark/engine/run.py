"""Running a compiled program on Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING, Any

from libraries.spark.cluster_session import On, driver
from libraries.spark.engine.compiler import Compiled, Query, Read, compile_for_spark
from libraries.spark.engine.piped import HANDED
from libraries.spark.engine.totals import ERROR_BEGIN, ERROR_END
from libraries.spark.engine.types import EPOCH, declared, listed, quoted
from libraries.spark.errors import SparkError
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

_SETTINGS = {
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
    compiled = compile_for_spark(program.build())
    with ExitStack() as resources:
        session = driver(on, resources)
        if (page := session.sparkContext.uiWebUrl) is not None:
            note(f"Spark's own page is at {page}")
        writers = _Writers(compiled)
        resources.callback(writers.abort)
        for number, epoch, batch in _batches(compiled, session, resources):
            writers.write(compiled.handed[number].node, epoch, batch)
        writers.commit()
    stats = Stats(records=0, written=writers.written, epoch=None, read_epoch=None, queued_bytes=0, done=True)
    return Result(time.perf_counter() - began, {0: stats}, {}, writers.captured)


def _batches(compiled: Compiled, session: SparkSession, resources: ExitStack) -> Iterator[tuple[int, int, Batch]]:
    """All that goes out: its number in `compiled.handed`, the epoch, the batch. It is one query, so that parts are shared."""
    made = private(session)
    try:
        for view in compiled.views:
            frame = made.sql(view.sql) if isinstance(view, Query) else _read(view, made)
            if view.name in compiled.shared:
                resources.callback(frame.persist().unpersist)
            frame.createOrReplaceTempView(view.name)
        parts = [
            _given(made, each.of).mapInArrow(each.piped.handed, HANDED).selectExpr(f"{number} as number", "*")
            for number, each in enumerate(compiled.handed)
        ]
        rows = reduce(type(parts[0]).unionAll, parts).toArrow().to_pylist() if parts else []
    except Exception as error:
        raise _explained(error) from error
    for row in rows:
        yield row["number"], row[EPOCH], decode_batch(row["header"], memoryview(row["payload"]), trusted=True)


def private(session: SparkSession) -> SparkSession:
    """A session with the settings that queries rest on; those of the user's own stay as they are."""
    made = session.newSession()
    for name, value in _SETTINGS.items():
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


def _explained(error: Exception) -> FalkirkError:
    """The error of a program among the words of Spark."""
    text = str(error)
    if ERROR_BEGIN in text:
        return OperatorError(text.partition(ERROR_BEGIN)[2].partition(ERROR_END)[0])
    return SparkError(text)


class _Writers:
    """The sinks and captures of a program. Nothing is visible before all is there."""

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
        for index, writer in self._writers.items():
            self._do(self._nodes[index], writer.close)
        self._writers.clear()

    def abort(self) -> None:
        """Drop what is not visible."""
        for writer in self._writers.values():
            writer.abort()

    @staticmethod
    def _do(node: Node, action: Any) -> Any:
        try:
            return action()
        except Exception as error:
            text = error if isinstance(error, FalkirkError | OSError) else told(error)
            raise SinkError(f"sink {node.name!r} ({node.site}): {text}") from error
