"""Memory of messages between processors: logs, kept messages, numbers of arrivals."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.layout import Layout
from recovery.memory.kept_messages import KeptMessages
from recovery.memory.records import LogEntry, Shipment
from recovery.metadata import Bound, holds, image, meet, union
from timely.data.batch import Batch, nbytes
from timely.data.messages import Message
from timely.time import Time

_LOOKED_AT = 32
"""Number of local batches for each one measured for the size of records."""

_MESSAGE_BYTES = 400
"""Bytes of a message beside its payload.

Many are small, and the budget is for all of it.
"""

KEPT_BYTES = 128 << 20
"""Default budget of bytes for kept messages to other workers."""


class Channels:
    """Messages of one worker, retained for resending after a failure.

    Logged ones are made durable; others are kept in memory, within a budget, to spare their sender a rollback.
    """

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
        self.logs: dict[tuple[int, int], list[LogEntry]] = {}
        """Logs by (edge of the graph, receiving worker), in the order of sending."""
        self._taken: dict[tuple[int, int], dict[int, Time]] = {}
        self._looked_at: dict[int, tuple[int, float]] = {}
        """Number of the batch measured last, and bytes of its records, by edge."""
        self._received: list[Bound] = [info.nothing for info in layout.processors]
        """Bound of received messages, by processor: resends before it are unwanted."""
        self._local_number = 0
        """Number of the newest logged or kept message within this worker.

        In any of its processes.
        """

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

    def kept_bounds(self, processor: int) -> tuple[tuple[Bound, ...], ...]:
        """Start of the sent messages in memory or in logs, as bounds.

        By kept out-edge, and worker.
        """
        edges = [self._layout.edges[e] for e in self._outgoing[processor]]
        workers = range(self._layout.workers)
        return tuple(tuple(self.shipments.coverage((e.edge, w)) for w in workers) for e in edges if e.kept)

    def _undo(self, processor: int, bound: Bound, fresh: bool) -> None:
        """Forget messages beyond a restored bound; `fresh`: in a new process."""
        self._received[processor] = bound if fresh else meet(bound, self._received[processor])
        for e in self._outgoing[processor]:
            edge = self._layout.edges[e]
            for (index, receiver), entries in self.logs.items():
                if index == edge.edge:
                    self.logs[index, receiver] = [entry for entry in entries if holds(bound, entry.event)]
            if edge.kept:
                self.shipments.undo(edge.edge, bound)
                for receiver in range(self._layout.workers) if fresh else ():
                    self.shipments.forget((edge.edge, receiver), image(edge.discarding, bound))
        for e in self._incoming[processor]:
            edge = self._layout.edges[e]
            for (index, _), known in self._taken.items():
                if index == edge.edge:
                    for number in [number for number, time in known.items() if not holds(bound, time)]:
                        del known[number]

    def _settle(self, processor: int, bound: Bound) -> None:
        """Forget arrivals before `bound`, the processor's low-watermark."""
        self._received[processor] = union(bound, self._received[processor])
        for e in self._incoming[processor]:
            edge = self._layout.edges[e]
            if edge.edge in self.logged:
                for (index, _), known in self._taken.items():
                    if index == edge.edge:
                        for number in [number for number, time in known.items() if holds(bound, time)]:
                            del known[number]
