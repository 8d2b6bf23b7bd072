"""Memory of a worker's events, for rollback: implements the engine's `Recorder`.

Of messages it keeps the greatest times delivered and sent, which is what M̄(d, ⊤) and D̄(e, ⊤) come down to for frontiers
that are totally ordered; of logged edges the messages themselves; of full histories the events. What is saved, and when
it is forgotten, is `recovery.checkpoint.checkpoints`' affair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from recovery.kept import KeptMessages
from recovery.layout import Layout
from recovery.metadata import (
    MORE,
    Bound,
    after,
    cut_within,
    everything,
    for_each,
    holds,
    inverse,
    meet,
    nothing,
    project,
    steps,
    union,
    within,
)
from timely.data.batch import Batch, nbytes
from timely.data.codec import check_columns, decode_batch
from timely.data.messages import Message
from timely.errors import OperatorError
from timely.time import INF, Summary, Time, visible

NOTIFICATION = -1
RESULT = -2

Shipment: TypeAlias = tuple[Time, Time, int, bytes | None, Any]
"""Kept message: its event's time, its own, its number, header and payload.

Header and payload are None and the batch where it stays on this worker. A plain tuple: one is made for each message
of a job that nothing ever happens to.
"""

_LOOKED_AT = 32
"""Number of local batches for each one measured for the size of records."""

_MESSAGE_BYTES = 400
"""Bytes of a message beside its payload.

Many are small, and the budget is for all of it.
"""

KEPT_BYTES = 128 << 20
"""Default budget of bytes for kept messages to other workers."""


@dataclass(slots=True)
class LogEntry:
    """Message of a log, to `receiver`.

    `batch` is set where it never left this worker.
    """

    edge: int
    receiver: int
    number: int
    event: Time
    time: Time
    header: bytes = b""
    payload: Any = b""
    batch: Batch | None = None
    durable: bool = False

    @classmethod
    def of(cls, message: Message, receiver: int) -> LogEntry:
        """Log entry of a message to another worker."""
        payload = message.payload[0] if len(message.payload) == 1 else b"".join(message.payload)
        return cls(message.edge, receiver, message.number, message.event, message.time, message.header, payload)

    def message(self) -> Message:
        """Message to send again, after a check of its columns.

        Whoever gets it trusts this process, and this process does not trust the store.

        Raises CodecError if the store has damaged it.
        """
        check_columns(self.header, self.payload)
        return Message(self.edge, self.number, self.event, self.time, self.header, [self.payload])

    def content(self) -> Batch:
        """Batch of the message, decoded if necessary."""
        return self.batch if self.batch is not None else decode_batch(self.header, self.payload)


@dataclass(slots=True)
class HistoryEvent:
    """Event of a history.

    `port` may be NOTIFICATION or RESULT; `what` is the batch, or the job's result.
    """

    order: int
    port: int
    time: Time
    what: Any = None
    durable: bool = False
    beside: bool = False
    """True if the operator kept anything beside its `state` after this event.

    It is True if that is unknown.
    """


@dataclass(slots=True)
class _Memory:
    """Recorded times of one processor."""

    delivered: list[Time]
    """Greatest time delivered on each input port, as tuples; () for none."""
    sent: list[Time]
    """Greatest time sent on each output port, () for none.

    It leaves out messages with times that follow from the events that are kept.
    """
    requests: list[tuple[Time, Time]] = field(default_factory=list)
    """Notifications requested for later times than their event's.

    (event, time), delivered ones too.
    """
    holds: list[tuple[Time, Time, int]] = field(default_factory=list)
    """Capabilities for later times than their event's, kept (+1) or returned (-1).

    (event, time, difference).
    """


class WorkerRecorder:
    """Recorder of worker `index`; see `timely.worker.recorder.Recorder`."""

    def __init__(self, layout: Layout, index: int) -> None:
        self._layout = layout
        self._index = index
        self._outgoing = layout.outgoing()
        self._incoming = layout.incoming()
        self._edges = {edge.edge: edge for edge in layout.edges}
        self.logged = frozenset(edge.edge for edge in layout.edges if edge.resends)
        self.shipping = frozenset(edge.edge for edge in layout.edges if edge.resends or edge.kept)
        self.keeping = frozenset(edge.edge for edge in layout.edges if edge.kept and not edge.resends)
        depths = {edge.edge: edge.summary.result_depth for edge in layout.edges if edge.kept}
        self.shipments: KeptMessages[Shipment] = KeptMessages(depths, KEPT_BYTES, self._bytes_of)
        """Unlogged messages, on edges to all workers, this one too."""
        self._never_logged = {
            (edge.edge, worker): self.shipments.way((edge.edge, worker))
            for edge in layout.edges
            if edge.edge in self.keeping
            for worker in range(layout.workers)
        }
        self._stays = {edge: keep for (edge, worker), keep in self._never_logged.items() if worker == index}
        self._reach: dict[tuple[int, int], bool] = {}
        """True for outputs with later times logged, by processor and port.

        Outputs where all is logged, and those that change times unlogged, are left out.
        """
        self.logs: dict[tuple[int, int], list[LogEntry]] = {}
        """Logs by (edge of the graph, receiving worker), in the order of sending."""
        self.histories: dict[int, list[HistoryEvent]] = {
            p: [] for p, info in enumerate(layout.processors) if info.history
        }
        self.beside: dict[int, Callable[[], bool]] = {}
        """Tests for memory beside `state`, by processor with a history.

        Only operators with a history that may end in their `state` have one.
        """
        self.handled: list[dict[Time, int]] = [{} for _ in layout.processors]
        """Records handled by each processor, by time as far as cuts distinguish it.

        Only those that may have to be done again.
        """
        self._whole = [min(layout.groups[info.group].depth, info.depth) for info in layout.processors]
        self.records = 0
        """Records handled by all processors, ever."""
        self.order = 0
        self._taken: dict[tuple[int, int], dict[int, Time]] = {}
        self.since: list[Bound] = [info.nothing for info in layout.processors]
        """Restored bound by processor: below it memory has only state and events.

        Positions, requests and D̄ of what lies before are in the store, because that is where they came from.
        """
        self._looked_at: dict[int, tuple[int, float]] = {}
        """Number of the batch measured last, and bytes of its records, by edge."""
        self._received: list[Bound] = [info.nothing for info in layout.processors]
        """Bound of received messages, by processor: resends before it are unwanted."""
        self._local_number = 0
        """Number of the newest logged or kept message within this worker.

        In any of its processes.
        """
        self._notified: list[Time] = [()] * len(layout.processors)
        """Greatest time notified, by processor, as tuples; () for none."""
        self._acted: list[Bound] = [info.nothing for info in layout.processors]
        """Greatest bound acted on as complete other than by notification, by processor."""
        self._of: list[_Memory] = []
        self._local: dict[tuple[int, int], list[int]] = {}
        """Logged edges within the worker, by (processor, port)."""
        for p in range(len(layout.processors)):
            ports_in = [layout.edges[e].target_port for e in self._incoming[p]]
            ports_out = [layout.edges[e].port for e in self._outgoing[p]]
            self._of.append(_Memory([()] * (max(ports_in, default=0) + 1), [()] * (max(ports_out, default=-1) + 1)))
            for e in self._outgoing[p]:
                edge = layout.edges[e]
                if not edge.logged and edge.discarding == Summary.identity(edge.depth):
                    self._reach[p, edge.port] = edge.ahead
                if edge.resends and (layout.workers == 1 or not edge.spread):
                    self._local.setdefault((p, edge.port), []).append(edge.edge)

    # What the engine tells

    def delivered(self, processor: int, port: int, time: Time, batch: Batch) -> None:
        """Record a batch about to be handled."""
        greatest = self._of[processor].delivered
        if time > greatest[port]:
            greatest[port] = time
        records, handled, at = len(batch), self.handled[processor], time[: self._whole[processor]]
        handled[at] = handled.get(at, 0) + records
        self.records += records
        if processor in self.histories:
            self._happened(processor, port, time, batch)

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
        """Record a batch sent."""
        memory = self._of[processor]
        if port >= len(memory.sent):  # nobody is there
            return
        ahead = self._reach.get((processor, port)) if time != event else None
        if ahead is None:
            if time > memory.sent[port]:
                memory.sent[port] = time
        elif not ahead:
            raise self._too_far(processor, event, time, "sent a message")
        if self._local:
            for edge in self._local.get((processor, port), ()):
                self.kept(edge, event, time, batch)

    def requested(self, processor: int, event: Time, time: Time) -> None:
        """Record a request in an event at `event` for a notification at `time`."""
        if time != event:
            whole = self._whole[processor]
            if time[:whole] != event[:whole] and not self._layout.processors[processor].chain:
                raise self._too_far(processor, event, time, "asked for a notification")
            self._of[processor].requests.append((event, time))

    def notified(self, processor: int, time: Time) -> None:
        """Record a notification about to be handled."""
        if time > self._notified[processor]:
            self._notified[processor] = time
        if processor in self.histories:
            self._happened(processor, NOTIFICATION, time, None)

    def resulted(self, processor: int, time: Time, result: Any) -> None:
        """Record the result of a job about to be handled."""
        if processor in self.histories:
            self._happened(processor, RESULT, time, result)

    def held(self, processor: int, event: Time, time: Time, diff: int) -> None:
        """Record a capability kept or returned.

        Of those for the event's own time nothing outlives a checkpoint.
        """
        if time > event:
            info = self._layout.processors[processor]
            if not info.chain:
                raise self._too_far(processor, event, time, "kept a capability")
            if not info.finds_capabilities:
                raise OperatorError(
                    f"{info.kind} {info.name!r} ({info.site}) keeps a capability for {visible(time)} in an event at "
                    f"{visible(event)}, and could "
                    "not find it again after a failure: let it have on_restore(ctx, capabilities), which gives it back"
                )
            self._of[processor].holds.append((event, time, diff))

    def started(self, processor: int, event: Time, time: Time) -> None:
        """Record the start of a job, at its event's own time only.

        A job cannot be saved, so it must be one that is started again when its time is done again.
        """
        if time != event:
            info = self._layout.processors[processor]
            raise OperatorError(
                f"{info.kind} {info.name!r} ({info.site}) starts a job for {visible(time)} in an event at "
                f"{visible(event)}, which nobody would "
                "start again after a failure: ask for a notification then, and start it there, or by a capability that was "
                "kept then"
            )

    def kept_state(self, processor: int, event: Time, time: Time) -> None:
        """Check state kept under another time than its event's.

        A checkpoint has it, where there are any.
        """
        if not self._layout.processors[processor].chain:
            raise self._too_far(processor, event, time, "keeps state")

    def completed(self, processor: int) -> None:
        """Record the end of an event in an operator with state.

        What is new its state knows itself.
        """
        if (keeps := self.beside.get(processor)) is not None:
            self.histories[processor][-1].beside = keeps()

    def shipped(self, receiver: int, message: Message) -> None:
        """Log or keep a message to another worker."""
        edge, event, time, payload = message.edge, message.event, message.time, message.payload
        keep = self._never_logged.get((edge, receiver))
        if keep is None:
            if self._edges[edge].logs(event, time):
                self.logs.setdefault((edge, receiver), []).append(LogEntry.of(message, receiver))
                return
            keep = self.shipments.way((edge, receiver))
        whole = payload[0] if len(payload) == 1 else b"".join(payload)
        keep((event, time, message.number, message.header, whole))

    def kept(self, edge: int, event: Time, time: Time, batch: Batch) -> None:
        """Log or keep a batch within this worker."""
        keep = self._stays.get(edge)
        if keep is None:
            info, channel = self._edges[edge], (edge, self._index)
            if info.logs(event, time):
                self._local_number += 1
                entry = LogEntry(edge, self._index, self._local_number, event, time, batch=batch)
                self.logs.setdefault(channel, []).append(entry)
                return
            if not info.kept:
                return
            keep = self.shipments.way(channel)
        self._local_number = number = self._local_number + 1
        keep((event, time, number, None, batch))

    def _bytes_of(self, edge: int, messages: Sequence[Shipment]) -> int:
        """Approximate bytes of messages on an edge to one worker.

        Of batches that stay here one is looked at now and then: that takes long.
        """
        records = sum([len(message[4]) for message in messages])
        _, _, number, header, content = messages[-1]
        if header is not None:
            return _MESSAGE_BYTES * len(messages) + records
        looked_at, each = self._looked_at.get(edge, (-_LOOKED_AT, 0.0))
        if number >= looked_at + _LOOKED_AT:
            each = nbytes(content) / max(len(content), 1)
            self._looked_at[edge] = number, each
        return _MESSAGE_BYTES * len(messages) + int(records * each)

    def recall(self, entry: LogEntry) -> None:
        """Restore a log entry of an earlier process of this worker.

        Numbers tell the order of sending, so they go on.
        """
        self.logs.setdefault((entry.edge, entry.receiver), []).append(entry)
        if entry.receiver == self._index:
            self._local_number = max(self._local_number, entry.number)

    def taken(self, sender: int, message: Message) -> bool:
        """True if a logged message arrives for the first time.

        A sender that has failed sends again to a living receiver what its log holds, also what the receiver has in state
        that came back from the store, or is so old that its number was forgotten.
        """
        edge = self._edges[message.edge]
        if not edge.logs(message.event, message.time):
            return True
        if holds(self._received[edge.target], message.time):
            return False
        known = self._taken.setdefault((message.edge, sender), {})
        if message.number in known:
            return False
        known[message.number] = message.time
        return True

    def _happened(self, processor: int, port: int, time: Time, what: Any) -> None:
        self.order += 1
        self.histories[processor].append(HistoryEvent(self.order, port, time, what))

    def _too_far(self, processor: int, event: Time, time: Time, what: str) -> OperatorError:
        info = self._layout.processors[processor]
        mend = "leave out stateful=False"
        if info.bare:
            mend = "give it Lazy() or Batch() by .policy(...)"
        return OperatorError(
            f"{info.kind} {info.name!r} ({info.site}), in an event at {visible(event)}, {what} for {visible(time)}, which "
            f"nobody would remember after a failure: {mend}"
        )

    # What recovery asks

    def acted(self, processor: int, bound: Bound) -> None:
        """Record an action on completeness up to `bound`, such as a checkpoint."""
        self._acted[processor] = union(bound, self._acted[processor])

    def notified_bound(self, processor: int) -> Bound:
        """N̄(p, ⊤): all times acted on as complete."""
        notified, acted = self._notified[processor], self._acted[processor]
        return union(after(notified), acted) if notified else acted

    def only_state(self, processor: int, bound: Bound) -> bool:
        """True if events before `bound` left nothing but `state` in an operator.

        So it is if nothing else was there after the last of them. If events of later times came in between, which may have
        taken away what was there, nothing may have been there from then on.
        """
        events = self.histories[processor]
        inside = [holds(bound, event.time) for event in events]
        if True not in inside:
            return True
        last = len(inside) - 1 - inside[::-1].index(True)
        pure = inside.index(False) if False in inside else len(inside)
        return not any(event.beside for event in events[max(pure - 1, 0) : last + 1])

    def delivered_bounds(self, processor: int) -> tuple[Bound, ...]:
        """M̄(d, ⊤) of each in-edge."""
        info, memory = self._layout.processors[processor], self._of[processor]
        ports = [self._layout.edges[e].target_port for e in self._incoming[processor]]
        return tuple(after(memory.delivered[port]) if memory.delivered[port] else info.nothing for port in ports)

    def sent_bounds(self, processor: int) -> tuple[Bound, ...]:
        """D̄(e, ⊤) of each out-edge; ∅ for logged ones."""
        return tuple(
            after(greatest) if not edge.logged and greatest else nothing(edge.summary.result_depth)
            for edge, greatest in self._sent(processor)
        )

    def kept_bounds(self, processor: int) -> tuple[tuple[Bound, ...], ...]:
        """Start of the sent messages in memory or in logs, as bounds.

        By kept out-edge, and worker.
        """
        edges = [self._layout.edges[e] for e in self._outgoing[processor]]
        workers = range(self._layout.workers)
        return tuple(tuple(self.shipments.coverage((e.edge, w)) for w in workers) for e in edges if e.kept)

    def discards(self, processor: int, bound: Bound) -> tuple[Bound, ...]:
        """D̄(e, f) of each out-edge for f = `bound`."""
        result = []
        for edge, greatest in self._sent(processor):
            least = nothing(edge.summary.result_depth)
            if not edge.logged and greatest:
                least = meet(image(edge.discarding, bound), after(greatest))
            result.append(least)
        return tuple(result)

    def requests(self, processor: int, bound: Bound) -> tuple[tuple[Time, Time], ...]:
        """Requests in S(p, f): asked for within f = `bound`, due outside it."""
        return tuple(
            (event, time)
            for event, time in self._of[processor].requests
            if holds(bound, event) and not holds(bound, time)
        )

    def held_at(self, processor: int, bound: Bound) -> tuple[tuple[Time, int], ...]:
        """Capabilities in S(p, f): kept within f = `bound`, for times outside it.

        Those given back within f are left out.
        """
        counts: Counter[Time] = Counter()
        for event, time, diff in self._of[processor].holds:
            if (not event or holds(bound, event)) and not holds(bound, time):
                counts[time] += diff
        return tuple(sorted((time, count) for time, count in counts.items() if count > 0))

    def restored(
        self,
        processor: int,
        bound: Bound,
        requests: tuple[tuple[Time, Time], ...] | None,
        held: tuple[tuple[Time, int], ...] = (),
    ) -> None:
        """Record a rollback of a processor to `bound`.

        `requests` and `held` came from storage; None: they are known here.
        """
        memory = self._of[processor]
        whole = cut_within(bound, self._whole[processor])
        self.handled[processor] = {at: n for at, n in self.handled[processor].items() if holds(whole, at)}
        self.since[processor] = bound if requests is not None else meet(bound, self.since[processor])
        self._received[processor] = bound if requests is not None else meet(bound, self._received[processor])
        self._notified[processor], self._acted[processor] = (), bound  # its frontier is complete, and no more than that
        last = _last(bound) or ()
        memory.delivered = [min(time, last) if requests is None else last for time in memory.delivered]
        if requests is not None:
            memory.requests = list(requests)
            memory.holds = [((), time, count) for time, count in held]
            # What was sent before is not known here: what a checkpoint says of it is at most what it may have been.
            memory.sent = [last_of(edge, bound) for edge in self._ports(processor)]
        else:
            memory.requests = [each for each in memory.requests if holds(bound, each[0])]
            memory.holds = [each for each in memory.holds if not each[0] or holds(bound, each[0])]
            memory.sent = [min(time, last_of(edge, bound)) for time, edge in zip(memory.sent, self._ports(processor))]
        for e in self._outgoing[processor]:
            edge = self._layout.edges[e]
            for (index, receiver), entries in self.logs.items():
                if index == edge.edge:
                    self.logs[index, receiver] = [entry for entry in entries if holds(bound, entry.event)]
            if edge.kept:
                self.shipments.undo(edge.edge, bound)
                for receiver in range(self._layout.workers) if requests is not None else ():
                    self.shipments.forget((edge.edge, receiver), image(edge.discarding, bound))
        for e in self._incoming[processor]:
            edge = self._layout.edges[e]
            for (index, _), known in self._taken.items():
                if index == edge.edge:
                    for number in [number for number, time in known.items() if not holds(bound, time)]:
                        del known[number]
        if processor in self.histories:
            self.histories[processor] = [event for event in self.histories[processor] if holds(bound, event.time)]

    def collect(self, processor: int, bound: Bound) -> None:
        """Drop records needed only for rollbacks below `bound`, the processor's W."""
        memory = self._of[processor]
        whole = cut_within(bound, self._whole[processor])
        self.handled[processor] = {at: n for at, n in self.handled[processor].items() if not holds(whole, at)}
        self._received[processor] = union(bound, self._received[processor])
        if memory.requests:
            memory.requests = [each for each in memory.requests if not holds(bound, each[1])]
        if memory.holds:
            memory.holds = [each for each in memory.holds if not holds(bound, each[1])]
        for e in self._incoming[processor]:
            edge = self._layout.edges[e]
            if edge.edge in self.logged:
                for (index, _), known in self._taken.items():
                    if index == edge.edge:
                        for number in [number for number, time in known.items() if holds(bound, time)]:
                            del known[number]

    def _ports(self, processor: int) -> list[Summary]:
        summaries = {self._layout.edges[e].port: self._layout.edges[e].discarding for e in self._outgoing[processor]}
        return [summaries.get(port, Summary.identity(1)) for port in range(len(self._of[processor].sent))]

    def _sent(self, processor: int) -> list[tuple[Any, Time]]:
        memory = self._of[processor]
        edges = [self._layout.edges[e] for e in self._outgoing[processor]]
        return [(edge, memory.sent[edge.port]) for edge in edges]


def image(summary: Summary, bound: Bound) -> Bound:
    """↓σ(f) as a bound: the least with all messages of events before `bound`.

    None of them into the future.

    >>> image(Summary.egress(2), (3, 1)), image(Summary.egress(2), (3, 0)), image(Summary.identity(1), (3,))
    ((4,), (3,), (3,))
    >>> image(Summary.feedback(3), (3, 7, 0)), image(Summary.feedback(3), (3, 7, 1))
    ((3, 7, 0), (3, 7, 2))
    """
    if MORE in bound:
        return for_each(lambda step: image(summary, step), bound)
    if not any(bound):
        return nothing(summary.result_depth)
    if bound[0] > INF:
        return everything(summary.result_depth)
    whole = _whole(summary, bound)
    if whole is not None and within(bound, inverse(summary, whole)):
        return whole
    least = project(summary, bound)
    return least if within(bound, inverse(summary, least)) else after(least)


def _whole(summary: Summary, bound: Bound) -> Bound | None:
    """Bound padded or cut to the depth behind an edge; None if coordinates get lost."""
    ends = next(at for at in range(len(bound), 0, -1) if bound[at - 1])
    return (*bound[:ends], *(0,) * (summary.result_depth - ends)) if ends <= summary.result_depth else None


def last_of(summary: Summary, bound: Bound) -> Time:
    """Upper limit of the times sent by events before `bound`; () if there is none."""
    return _last(image(summary, bound)) or ()


def _last(bound: Bound) -> Time | None:
    """Last time, as tuples, in `bound`; None if there is none."""
    bound = steps(bound)[-1]
    for last in range(len(bound) - 1, -1, -1):
        if bound[last] > 0:
            return (*bound[:last], bound[last] - 1, *(INF,) * (len(bound) - last - 1))
    return None
