"""Outcome of a job, from messages of its processes: batches, statistics, errors."""

from __future__ import annotations

import time
from typing import Any

from msgspec.structs import replace

from runtime.control import CapturedBatch, Stats, Unable
from runtime.session.job import Result
from timely import errors
from timely.data.batch import Batch
from timely.data.codec import decode, decode_batch
from timely.dataflow.dataflow import Dataflow
from timely.errors import FalkirkError
from timely.time import END, Time


class Gathered:
    """Outcome of one run so far; `stats` is by worker, over its processes at work.

    `whole`: all batches of a time reach a capture as one; it may come again from a replacement process, and then
    counts once.
    """

    def __init__(self, flow: Dataflow, whole: bool = True) -> None:
        self.stats: dict[int, Stats] = {}
        self._before: dict[int, tuple[int, Stats | None]] = {}
        """Incarnation of each worker, and the statistics of earlier incarnations."""
        self._whole = whole
        self._returned: dict[int, Any] = {}
        self._began = time.perf_counter()
        self._captures = {node.index: node.name for node in flow.graph.of_kind("capture")}
        self._captured: dict[tuple[int, Time, int], Batch] = {}
        self._incomplete: dict[str, list[tuple[int, int | None]]] = {}

    def hear(self, worker: int, incarnation: int, latest: Stats) -> None:
        """Add the statistics of a worker's process, which counts from 0."""
        known, before = self._before.get(worker, (None, None))
        if known != incarnation:
            before = self.stats.get(worker)
            self._before[worker] = incarnation, before
        if before is not None:
            latest = replace(latest, records=before.records + latest.records, written=before.written + latest.written)
        self.stats[worker] = latest

    def capture(self, worker: int, message: CapturedBatch) -> None:
        """Add a batch of a capture of `worker`."""
        batch = decode_batch(message.header, memoryview(message.payload))
        self._captured[message.node, message.time, worker if self._whole else len(self._captured)] = batch

    def take(self, earlier: Gathered) -> None:
        """Add the captured batches of an earlier run, of another number of workers."""
        for (node, at, worker), batch in earlier._captured.items():
            self._captured[node, at, -1 - worker] = batch

    def gap(self, output: str, first: int | None, last: int | None) -> None:
        """Add incomplete epochs of an output, as the timeline has them."""
        self._incomplete.setdefault(output, []).append((END if first is None else first, last))

    def returns(self, worker: int, value: bytes) -> None:
        """Set the value returned by the `drive` function of `worker`."""
        self._returned[worker] = decode(value)

    def result(self) -> Result:
        """Result of the job."""
        captured: dict[str, list[tuple[Time, Batch]]] = {name: [] for name in self._captures.values()}
        for (node, at, _), batch in self._captured.items():
            captured[self._captures[node]].append((at, batch))
        return Result(time.perf_counter() - self._began, dict(self.stats), self._returned, captured, self._incomplete)


def error_of(failure: Unable, who: str) -> FalkirkError:
    """Fatal error of another process, as an exception for this one."""
    if not failure.known:
        return FalkirkError(f"{who} failed:\n{failure.trace}")
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, FalkirkError):
        return kind(failure.text)
    return FalkirkError(failure.text)
