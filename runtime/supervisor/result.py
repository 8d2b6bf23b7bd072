"""The outcome of a job, from what its processes say: captured batches, statistics, errors."""

from __future__ import annotations

import time

from runtime.control import CapturedBatch, Stats
from runtime.job import Result
from runtime.job_control import Unable
from timely import errors
from timely.data.batch import Batch
from timely.data.codec import decode_batch
from timely.dataflow.dataflow import Dataflow
from timely.errors import FalkirkError
from timely.time import Time


class Gathered:
    """The outcome of one run so far; `stats` is by worker."""

    def __init__(self, flow: Dataflow) -> None:
        self.stats: dict[int, Stats] = {}
        self._began = time.perf_counter()
        self._captures = {node.index: node.name for node in flow.graph.of_kind("capture")}
        self._captured: dict[tuple[int, int, Time], Batch] = {}

    def capture(self, worker: int, message: CapturedBatch) -> None:
        """It is whole, and may come again from a process that took over: then it is one and the same."""
        batch = decode_batch(message.header, memoryview(message.payload))
        self._captured[message.node, worker, message.time] = batch

    def result(self) -> Result:
        """The job's result."""
        captured: dict[str, list[tuple[Time, Batch]]] = {name: [] for name in self._captures.values()}
        for (node, _, at), batch in self._captured.items():
            captured[self._captures[node]].append((at, batch))
        return Result(time.perf_counter() - self._began, dict(self.stats), {}, captured)


def error_of(failure: Unable, who: str) -> FalkirkError:
    """The error that ended a process, to be raised here."""
    if not failure.known:
        return FalkirkError(f"{who} failed:\n{failure.trace}")
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, FalkirkError):
        return kind(failure.text)
    return FalkirkError(failure.text)
