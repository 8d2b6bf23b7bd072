"""Fate of a message in a rollback: kept in its queue, sent again, or void.

This is Q'(e) of *Falkirk Wheel*, end of section 3.6, with messages in flight taken into account. All of it follows from the
edge, from f(src) and f(dst) (None: ⊤), from whether the sender `lives`, with its memory, and from the message's two
times: its own, and that of the event that sent it.

A queue holds the messages of an edge in the order of sending. So what is logged comes from one place only, queue or log: if
earlier messages have to be sent again, later ones that wait in the queue are dropped and sent again as well, behind them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import merge

from msgspec.structs import replace

from recovery.layout import EdgeInfo, Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import LogEntry, Shipment
from recovery.metadata import Bound, cut_within, holds
from recovery.place import Place
from recovery.protocol import AskCost, Cost, Redone, Resent
from timely.data.batch import nbytes
from timely.time import Time


def as_sent(edge: EdgeInfo, lives: bool) -> EdgeInfo:
    """Physical edge as a rollback sees it: a living sender's kept messages are logged."""
    return replace(edge, logged=True) if edge.kept and lives else edge


def owed(source: Bound | None, target: Bound | None, event: Time, time: Time) -> bool:
    """True if the sender keeps a message's event, and its receiver needs the message.

    The receiver must have it, unless it had it and stays as it is.
    """
    return (source is None or holds(source, event)) and (target is None or not holds(target, time))


def from_log(edge: EdgeInfo, target: Bound | None, lives: bool, event: Time, time: Time) -> bool:
    """True if the receiver must take a message from the log, not from its queue.

    Either it goes back itself, or what was under way is lost.
    """
    return edge.logs(event, time) and (target is not None or not lives)


def stays(edge: EdgeInfo, source: Bound | None, target: Bound | None, lives: bool, event: Time, time: Time) -> bool:
    """True if a message in the queue of a living receiver stays there."""
    return lives and owed(source, target, event, time) and not from_log(edge, target, lives, event, time)


def goes_again(
    edge: EdgeInfo, source: Bound | None, target: Bound | None, lives: bool, event: Time, time: Time
) -> bool:
    """True if a message in its sender's log is sent again.

    A receiver that stays as it is refuses what it had.
    """
    if not edge.logged and source is not None and holds(source, time):
        return False  # nothing else at such times was logged: a receiver that needed any of it could not be where it is
    return from_log(edge, target, lives, event, time) and owed(source, target, event, time)


def _entry(edge: int, receiver: int, kept: Shipment) -> LogEntry:
    event, time, number, header, content = kept
    if header is None:
        return LogEntry(edge, receiver, number, event, time, batch=content)
    return LogEntry(edge, receiver, number, event, time, header, content)


def wanted(
    layout: Layout,
    recorder: WorkerRecorder,
    index: int,
    bounds: Sequence[Sequence[Bound | None]],
    remembers: Callable[[int], bool],
) -> Iterator[LogEntry]:
    """Messages logged or kept by worker `index` and needed again by receivers.

    They follow from the decision `bounds[worker][processor]`.

    `remembers(processor)`: it has its memory, so all that it has sent has arrived, or waits there.
    """
    ends = {edge.edge: edge for edge in layout.edges}
    kept = [(edge.edge, receiver) for edge in layout.edges if edge.kept for receiver in range(layout.workers)]
    for number, receiver in dict.fromkeys([*recorder.logs, *kept]):
        source, target = bounds[index][ends[number].source], bounds[receiver][ends[number].target]
        lives = remembers(ends[number].source)
        edge = as_sent(ends[number], lives)
        entries = recorder.logs.get((number, receiver), [])
        if lives and target is not None:
            shipments = recorder.shipments.wanted((number, receiver), target)
            unlogged = [_entry(number, receiver, each) for each in shipments]
            entries = list(merge(entries, unlogged, key=lambda entry: entry.number))
        for entry in entries:
            if goes_again(edge, source, target, lives, entry.event, entry.time):
                yield entry


def cost(
    question: AskCost, layout: Layout, recorder: WorkerRecorder, place: Place, generation: int, seconds: float
) -> Cost:
    """Cost of a supposed decision for the process at `place`: resends, records redone.

    `seconds`: what this worker has worked so far. A record is taken to cost what it costs on average here.
    """
    index = place.worker
    failed = question.failed[index]
    again = ResentCount(layout)
    for entry in wanted(layout, recorder, index, question.bounds, lambda processor: processor not in failed):
        again.add(entry)
    redone = undone(recorder, question.bounds[index], seconds)
    return Cost(place, generation, question.question, again.result(), redone)


class ResentCount:
    """Count of messages sent again, by edge and receiver."""

    def __init__(self, layout: Layout) -> None:
        self._numbers = {edge.edge: number for number, edge in enumerate(layout.edges)}
        self._messages: Counter[tuple[int, int]] = Counter()
        self._size: Counter[tuple[int, int]] = Counter()

    def add(self, entry: LogEntry) -> None:
        """Add a message."""
        key = self._numbers[entry.edge], entry.receiver
        self._messages[key] += 1
        self._size[key] += len(entry.payload) if entry.batch is None else nbytes(entry.batch)

    def result(self) -> tuple[Resent, ...]:
        """Messages and bytes of each edge and receiver."""
        return tuple(Resent(*key, self._messages[key], self._size[key]) for key in sorted(self._messages))


def undone(recorder: WorkerRecorder, bounds: Sequence[Bound | None], seconds: float) -> tuple[Redone, ...]:
    """Work in memory undone by these bounds; `seconds` as in `cost`."""
    each = seconds / recorder.records if recorder.records else 0.0
    redone = []
    for processor, bound in enumerate(bounds):
        if bound is None:
            continue
        done = recorder.handled[processor].items()
        handled = {at: count for at, count in done if not holds(cut_within(bound, len(at)), at)}
        if handled:
            records, epochs = sum(handled.values()), len({at[0] for at in handled})
            redone.append(Redone(processor, records, epochs, records * each))
    return tuple(redone)
