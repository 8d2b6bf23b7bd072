"""Detection of a standstill: a turn without end, or times without completion.

While epochs are completed this costs a comparison. Where none is for long, workers are asked what holds back the output that is
furthest behind (`monitor.explain.why`). A source at which nothing arrives is no standstill, nor is work that others do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.coordination.supervision import Busy
from monitor.coordination.topology import Topology
from monitor.explain.why import time_text, why_progress
from recovery.layout import Layout
from recovery.protocol import END, ROWS, Observe, Observed

_EPOCH = ROWS.index("epoch")

_LONG_TURNS = 2.0
"""Age limit of observations, as a multiple of the limit.

One that is older says nothing of now.
"""

_WAITS = {
    "message": "a message on its way to it, of {time}",
    "capability": "it to give up its capability at {time}",
    "notification": "its notification of {time}",
    "batch": "a batch that is queued there, of {time}",
    "commit": "{time} to be durable",
}
_KNOWN = frozenset(_WAITS) | {"position"}


@dataclass(frozen=True, slots=True)
class Halt:
    """Place of a standstill, lasting since `since`; `processor` -1 if unknown.

    `name` is the operator's: the processor of a fused chain has the name of its last one.
    """

    processor: int
    worker: int
    name: str
    what: str
    since: float


class Standstill:
    """Detector of a standstill after `limit` seconds without progress.

    An endless limit disables it.

    Attributes:
        halt: where the job stands still; None: nowhere.
        closely: the processors under close observation.
    """

    def __init__(self, layout: Layout, topology: Topology, limit: float, now: float) -> None:
        self.layout = layout
        self.halt: Halt | None = None
        self.closely: tuple[int, ...] = ()
        self._topology = topology
        self._limit = limit
        self._moved = now
        self._upto: dict[int, object] = {}
        self._busy: dict[int, Halt] = {}
        self._seen: dict[int, tuple[float, Observed]] = {}
        self._ask_at = now
        sending = {edge.source for edge in layout.edges}
        self._ends = [p for p in range(len(layout.processors)) if p not in sending]

    def begin(self, now: float) -> None:
        """Reset, as the job runs after a start or a rollback."""
        self._moved = now
        self._upto.clear()
        self._seen.clear()
        self._busy.clear()
        self.halt, self.closely = None, ()

    def completed(self, worker: int, upto: object, now: float) -> None:
        """Record the completed times of a worker."""
        if self._upto.get(worker) != upto:
            self._upto[worker] = upto
            self._moved = now

    def busy(self, turn: Busy, now: float) -> None:
        """Record a long turn of a worker so far, or its end."""
        worker = turn.place.worker
        if turn.seconds:
            what = f"{turn.where or 'its turn'} to return"
            self._busy[worker] = Halt(turn.processor, worker, turn.name, what, now - turn.seconds)
        else:
            self._busy.pop(worker, None)

    def observed(self, message: Observed, now: float) -> None:
        """Record a worker's observation."""
        there = range(len(self.layout.processors))
        holds = [hold for each in message.closely for hold in each.holds]
        known = all(hold.processor in there and hold.what in _KNOWN for hold in holds)
        if known and message.fits(len(there)):  # else it says nothing that could be read
            self._seen[message.place.worker] = now, message

    def look(self, now: float) -> tuple[Halt | None, Observe | None]:
        """Standstill at `now`, and an observation to request from all workers.

        Each may be None.
        """
        idle = now - self._moved
        if idle < self._limit:
            return None, None
        longest = min(self._busy.values(), key=lambda halt: halt.since, default=None)
        if longest is not None:
            return (longest if now - longest.since >= self._limit else None), None
        question = None
        if now >= self._ask_at:
            self._ask_at = now + self._limit
            question = Observe(self._limit / 2, 2 * self._limit, self.closely)
        fresh = {w: seen for w, (at, seen) in self._seen.items() if now - at < _LONG_TURNS * self._limit}
        if len(fresh) < self.layout.workers:
            return self.halt, question
        return self._holder(fresh, now), question

    def _holder(self, seen: dict[int, Observed], now: float) -> Halt | None:
        """Cause of the most delayed output, unless it is a source without input."""
        least, at, worker = END, -1, -1
        for w, report in sorted(seen.items()):
            epochs = np.frombuffer(report.numbers, dtype=np.int64).reshape(len(ROWS), -1)[_EPOCH]
            for p in self._ends:
                if epochs[p] < least:
                    least, at, worker = int(epochs[p]), p, w
        if at < 0:
            return None
        if self.closely != (at,):
            self.closely, self._ask_at = (at,), now
            return self.halt
        found = why_progress(self._topology, seen, self._topology.flat(at, worker))
        if not found["holds"]:
            return self.halt if found["frontier"] is None else None
        first = found["holds"][0]
        if first["what"] == "position" or self._works(seen, first["operator"]):
            return None
        place = (first["workers"] or [worker])[0]
        what = _WAITS[first["what"]].format(time=time_text(tuple(first["time"])))
        return Halt(first["operator"], place, first["name"], what, self._moved)

    def _works(self, seen: dict[int, Observed], processor: int) -> bool:
        """True if outside work for a processor is under way, with its progress reported."""
        return any(each.processor == processor for report in seen.values() for each in report.working)


def stuck_event(layout: Layout, halt: Halt, now: float) -> dict[str, Any]:
    """Event data of a halt."""
    known = halt.processor if 0 <= halt.processor < len(layout.processors) else -1
    name = halt.name or (layout.processors[known].name if known >= 0 else "")
    facts = {"processor": known, "worker": halt.worker, "name": name, "what": halt.what}
    return {**facts, "seconds": round(now - halt.since, 1)}
