"""Facts of a job, never superseded, and its counters. Pure."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from monitor.coordination.records import KeptDecision, KeptEvent
from recovery.layout import Layout
from timely.data.codec.typed import Typed


class Plan(msgspec.Struct, tag="plan", frozen=True):
    """Plan of the job, with the versions behind it.

    It is valid from `at` on, in seconds since 1970. Frames and options name it by `number`.
    """

    number: int
    at: float
    layout: Layout
    versions: dict[str, str] = {}


class Happening(msgspec.Struct, tag="event", frozen=True):
    """Non-routine event of the timeline."""

    event: KeptEvent


class Decided(msgspec.Struct, tag="decision", frozen=True):
    """Decision of a round, binding from time `at` on, in seconds since 1970."""

    at: float
    plan: int
    decision: KeptDecision


Fact: TypeAlias = Plan | Happening | Decided

FACT_OF: Typed[Fact] = Typed("a fact of the history", Fact)


class OfWorker(msgspec.Struct, frozen=True, array_like=True):
    """Counters of one worker: records read and written by all its processes.

    `last_read` and `last_written` are of its process `incarnation` alone.
    """

    incarnation: int = -1
    read: int = 0
    written: int = 0
    last_read: int = 0
    last_written: int = 0

    def after(self, incarnation: int, read: int, written: int) -> OfWorker:
        """Counters after a report of a process; they never go back.

        >>> first = OfWorker().after(1, 10, 2)
        >>> first.after(1, 15, 2).read, first.after(2, 3, 1).read, first.after(1, 4, 0).read
        (15, 13, 14)
        """
        goes_on = incarnation == self.incarnation and read >= self.last_read and written >= self.last_written
        before = (self.last_read, self.last_written) if goes_on else (0, 0)
        return OfWorker(incarnation, self.read + read - before[0], self.written + written - before[1], read, written)


class Histogram(msgspec.Struct, frozen=True, array_like=True):
    """Histogram of durations of cuts of one group."""

    field: str
    group: int
    counts: tuple[int, ...]
    sum: float


class Counters(msgspec.Struct, frozen=True, array_like=True):
    """Counters of a job since its first run with this store."""

    workers: tuple[OfWorker, ...] = ()
    events: dict[str, int] = {}
    cuts: tuple[Histogram, ...] = ()

    @property
    def read(self) -> int:
        """Records read by all sources, again after a failure included."""
        return sum(worker.read for worker in self.workers)

    @property
    def written(self) -> int:
        """Records written by all sinks."""
        return sum(worker.written for worker in self.workers)


COUNTERS_OF: Typed[Counters] = Typed("the counters of the history", Counters)
encode = msgspec.msgpack.Encoder().encode
