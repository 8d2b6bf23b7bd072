"""Bridges between structured times and sequences of messages.

A processor that counts messages knows no times: it may not ask for notifications or read frontiers, so the completeness of
an epoch must reach it as a message like any other. `sequence` turns a stream into such a sequence: epoch t wholly before
epoch t + 1, then a mark that says "t is over", on every physical edge. `epochs` reads the marks and turns the sequence into
epochs again. (Isard and Abadi, *Falkirk Wheel*, sections 2.1 and 3.1, on the two kinds of time domains.)

In between, `past_marks` lets functions of batches ignore the marks, and `exchange` re-partitions a sequence. All of it works
on records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from timely.data.batch import Batch
from timely.errors import OperatorError
from timely.operators.base import Context, Operator
from timely.operators.channels import Broadcast, Exchange
from timely.state import Parts, TimedBatches, TimedValues
from timely.time import Time

if TYPE_CHECKING:
    from timely.dataflow.wire import Wire

W = TypeVar("W", bound="Wire")


@dataclass(frozen=True, slots=True)
class EpochOver:
    """A mark: worker `sender` has sent all of `epoch`, and of all epochs before it."""

    epoch: int
    sender: int


def sequence(stream: W, name: str) -> W:
    """The records of `stream` as a sequence, epoch by epoch, with a mark behind each epoch that any worker has records of.

    Raises OperatorError, as everything here does, when columns arrive.
    """
    announced = stream.unary(f"{name}-epochs", Announce, outputs=2)
    return announced.binary(announced.output(1), name, Sequence, other_channel=Broadcast())


def exchange(stream: W, by: Callable[[Any], Any], name: str) -> W:
    """Bring the records of a sequence that have equal `by(record)` to one worker; what comes out is a sequence again."""
    return stream.unary(name, lambda: Align(every_worker=True, mark=True), MarkedExchange(key=by), notifies=False)


def epochs(stream: W, name: str) -> W:
    """The records of a sequence as epochs again, each released whole when its mark has come."""
    return stream.unary(name, lambda: Align(every_worker=False, mark=False), notifies=False)


def past_marks(function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """`function` of a batch, made to see the records of a sequence only. Marks keep their places."""

    @wraps(function)
    def apply(batch: list[Any]) -> list[Any]:
        out: list[Any] = []
        for records, mark in _runs(batch):
            if records:
                out += function(records)
            if mark is not None:
                out.append(mark)
        return out

    return apply


def _runs(batch: Batch) -> Iterator[tuple[list[Any], EpochOver | None]]:
    """The records up to each mark, with the mark; what follows the last mark comes with None."""
    if not isinstance(batch, list):
        raise OperatorError("a sequence is made of records, but columns arrived; use to_records() first")
    begin = 0
    for at, record in enumerate(batch):
        if isinstance(record, EpochOver):
            yield batch[begin:at], record
            begin = at + 1
    yield batch[begin:], None


class Announce(Operator):
    """Passes on what comes, and says on port 1, once for each epoch, that this worker has records of it."""

    def __init__(self) -> None:
        self._seen = TimedValues()
        self.state = self._seen

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if not self._seen.at(time):
            self._seen.at(time)["seen"] = True
            ctx.send([time[0]], 1)
            ctx.notify_at()
        ctx.send(batch)

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._seen.pop(time)


class Sequence(Operator):
    """Holds the batches of an epoch until it is complete, then sends them, and a mark.

    Port 1 hears from every worker which epochs have records, so that all workers mark the same epochs.
    """

    def __init__(self) -> None:
        self._held = TimedBatches()
        self.state = self._held

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if len(time) != 1:
            raise OperatorError(
                f"{ctx.name!r} ({ctx.site}): a sequence is made of whole epochs; leave() the scope first"
            )
        if port == 0:
            for records, mark in _runs(batch):
                if mark is not None:
                    raise OperatorError(f"{ctx.name!r} ({ctx.site}): this stream is a sequence already")
                self._held.add(time, records)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        for batch in self._held.pop(time):
            ctx.send(batch)
        ctx.send([EpochOver(time[0], ctx.worker)])


class Align(Operator):
    """Holds an epoch until its marks have come, of one sender or of every worker; asks for no notification.

    Marks of one sender come in the order of epochs, and all senders mark the same ones, so epochs are released in order.
    """

    def __init__(self, every_worker: bool, mark: bool) -> None:
        self._every_worker = every_worker
        self._mark = mark
        self._held = TimedBatches()
        self._marks = TimedValues()
        self.state = Parts(self._held, self._marks)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        for records, mark in _runs(batch):
            if records:
                self._held.add(time, records)
            if mark is not None:
                self._take_mark(ctx, time, mark)

    def _take_mark(self, ctx: Context, time: Time, mark: EpochOver) -> None:
        if mark.epoch != time[0]:
            raise OperatorError(f"{ctx.name!r} ({ctx.site}): a mark of epoch {mark.epoch} was moved to epoch {time[0]}")
        came = self._marks.at(time)
        if mark.sender in came or not (self._every_worker or mark.sender == ctx.worker):
            raise OperatorError(
                f"{ctx.name!r} ({ctx.site}): worker {ctx.worker} was not to have this mark of worker {mark.sender} for epoch "
                f"{mark.epoch}; re-partition a sequence with timely.operators.bridges.exchange, and with nothing else"
            )
        came[mark.sender] = True
        if len(came) < (ctx.workers if self._every_worker else 1):
            return
        self._marks.pop(time)
        for batch in self._held.pop(time):
            ctx.send(batch)
        if self._mark:
            ctx.send([EpochOver(mark.epoch, ctx.worker)])


@dataclass(frozen=True, slots=True)
class MarkedExchange(Exchange):
    """An exchange that sends every mark to every worker, behind the records that came before it."""

    def describe(self) -> str:
        """Its text in the graph's fingerprint and drawings."""
        return "exchange of a sequence"

    def split(self, batch: Batch, workers: int) -> list[Batch | None]:
        """The part of `batch` for each worker."""
        parts: list[list[Any]] = [[] for _ in range(workers)]
        for records, mark in _runs(batch):
            for part, own in zip(parts, Exchange.split(self, records, workers)):
                part += own or []
                if mark is not None:
                    part.append(mark)
        return list(parts)
