"""Sinks and captures of a program, with rows from Spark."""

from __future__ import annotations

from typing import Any, Self

import pyarrow as pa

from libraries.spark.engine.compiler import OUT
from libraries.spark.engine.types import EPOCH
from timely.data.batch import Batch
from timely.data.codec import decode_batch
from timely.dataflow.graph import Graph, Node
from timely.errors import FalkirkError, SinkError, error_text
from timely.time import Time, visible


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
            text = error if isinstance(error, FalkirkError | OSError) else error_text(error)
            raise SinkError(f"sink {node.name!r} ({node.site}): {text}") from error


def _opened(node: Node, job: str) -> Any:
    sink: Any = node.sink
    if hasattr(sink, "for_job"):
        sink = sink.for_job(job, node.name)
    return sink.open(0, 1)
