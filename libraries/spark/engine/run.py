"""Execution of a compiled program on Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from libraries.spark.cluster.session import On, driver
from libraries.spark.dataflow.stream_source import Stream
from libraries.spark.engine.compiler import compile_for_spark
from libraries.spark.engine.rows import private, rows_of
from libraries.spark.engine.writers import Writers
from recovery.store.address import Where
from runtime.control import Stats
from runtime.program import Program
from runtime.session.job import Result
from timely.errors import FalkirkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
