"""Samples of the cost of persistence: sizes of batches in the form of logs.

A few records of a batch of each port are encoded now and then, as a log would. What a change of policy would write is
predicted from that (`monitor.explain.policy`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from recovery.agent.agent import Agent
from recovery.protocol import Persisting, Sent
from timely.data.batch import Batch, slice_
from timely.data.codec import encode_batch

_ROWS = 256
"""Most encoded rows of a batch."""
_AT_ONCE = 4
"""Most batches encoded at a time."""
_NEW = 0.2
"""Weight of a new sample."""


class PortCounts:
    """Counts of one sample.

    Batches taken by processor; records and batches sent by port.

    `seen` has one batch of each port.
    """

    def __init__(self, processors: int) -> None:
        self.taken = [0] * processors
        self.sent: dict[tuple[int, int], list[float]] = {}
        self.seen: dict[tuple[int, int], Batch] = {}

    def add(self, processor: int, port: int, batch: Batch) -> None:
        """Count a batch sent."""
        counts = self.sent.get((processor, port))
        if counts is None:
            self.sent[processor, port] = [len(batch), 1]
        else:
            counts[0] += len(batch)
            counts[1] += 1
        if len(batch):
            self.seen[processor, port] = batch


class PersistenceSamples:
    """Estimates for one worker.

    `saving`: processor seconds for pieces of cuts, and for writes.
    """

    def __init__(self, agent: Agent, saving: Callable[[], tuple[float, float]]) -> None:
        self._agent = agent
        self._saving = saving
        self._taken = np.zeros(len(agent.layout.processors))
        self._sent: dict[tuple[int, int], list[float]] = {}
        self._sizes: dict[tuple[int, int], float] = {}
        """Bytes of a record by port; -1: it cannot be encoded.

        The one measured longest ago is first."""
        self._encoding: float | None = None

    def take(self, counts: PortCounts, stands_for: float) -> None:
        """Add the counts of a sample, each of which `stands_for` more."""
        self._taken += np.array(counts.taken) * stands_for
        for port, numbers in counts.sent.items():
            known = self._sent.setdefault(port, [0.0, 0.0])
            known[0] += numbers[0] * stands_for
            known[1] += numbers[1] * stands_for
        self._measure(counts)

    def report(self, present: PortCounts | None) -> Persisting:
        """Estimates so far; `present`: counts of a sample that goes on."""
        taken, sent = self._taken, {port: (records, batches) for port, (records, batches) in self._sent.items()}
        if present is not None:
            taken = taken + np.array(present.taken)
            for port, (records, batches) in present.sent.items():
                known = sent.get(port, (0.0, 0.0))
                sent[port] = known[0] + records, known[1] + batches
            self._measure(present)
        rows = np.array([*self._agent.checkpoints.persisted, np.rint(taken)]).astype(np.int64)
        reports = self._agent.reports
        saving, storing = self._saving()
        size = self._sizes.get
        return Persisting(
            rows.tobytes(),
            reports.segments,
            reports.bytes,
            round(reports.durable, 6),
            round(saving, 6),
            round(storing, 6),
            round(time.process_time(), 3),
            self._encoding,
            tuple(Sent(*port, round(records), round(batches), size(port)) for port, (records, batches) in sent.items()),
        )

    def _measure(self, counts: PortCounts) -> None:
        """Encode a few of the batches seen, those of ports not measured for longest."""
        known = list(self._sizes)
        rank = {port: at for at, port in enumerate(known)}
        for port in sorted(counts.seen, key=lambda port: rank.get(port, -1))[:_AT_ONCE]:
            batch = counts.seen[port]
            rows = min(len(batch), _ROWS)
            began = time.thread_time()
            before = self._sizes.pop(port, None)
            try:
                header, buffers = encode_batch(batch if rows == len(batch) else slice_(batch, 0, rows))
                size = len(header) + sum(memoryview(each).nbytes for each in buffers)
            except Exception:  # no log of it could be written: who asks for one is told so
                self._sizes[port] = -1.0
                continue
            each = size / rows
            self._sizes[port] = each if before is None or before < 0 else before + _NEW * (each - before)
            if size:
                spent = (time.thread_time() - began) / size
                self._encoding = spent if self._encoding is None else self._encoding + _NEW * (spent - self._encoding)
        counts.seen.clear()
