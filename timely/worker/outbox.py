"""Outbox of a worker: merges batches into messages and encodes them in frames.

Batches are gathered by receiver, edge, event time and time, and encoded when a frame is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timely.data.batch import Batch, alike, concat
from timely.data.codec import decode_batch, encode_batch
from timely.data.messages import Frame, Message, Update
from timely.data.pool import Pool
from timely.dataflow.plan import Plan, Route
from timely.errors import CodecError, FalkirkError
from timely.operators.channels import Broadcast, Exchange
from timely.operators.stateless import exchange_error
from timely.time import Time
from timely.worker.recorder import Recorder

GENERATION_BITS = 40
"""Bits of a message number below its generation.

Numbers of logged messages must never be reused, so each generation counts from its own start.
"""

Slot = tuple[int, Time, Time]
"""Key for merging batches into one message: (edge, event time, message time)."""

Encoded = tuple[bytes, list[Any]]
"""Header and payload of an encoded message."""

Has = Callable[[int, int, Time], bool]
"""Predicate of (worker, edge, time): True if the worker already has the messages."""


class Outbox:
    """Outgoing messages of one worker."""

    def __init__(self, plan: Plan, index: int, recorder: Recorder | None = None) -> None:
        self.plan = plan
        self._recorder = recorder
        self._again: dict[int, list[Message]] = {}
        self._index = index
        self._waiting: dict[int, dict[Slot, list[list[Batch]]]] = {w: {} for w in range(plan.workers) if w != index}
        """Batches of each unsent message, by receiving worker and slot."""
        self._numbers: dict[tuple[int, int], int] = {}
        self._first = 0
        self._pressed = False
        self._has: Has | None = None
        self._pools = {edge: Pool() for edge in (recorder.keeping if recorder is not None else ())}
        """Encoding buffers by edge, as edges retain messages for different durations."""

    @property
    def pooled(self) -> int:
        """Size in bytes of the buffer pools for messages retained by the recorder."""
        return sum(pool.size for pool in self._pools.values())

    def split(self, route: Route, batch: Batch) -> list[Batch | None]:
        """Split `batch` into one part per receiving worker.

        An exception of a key function is raised as its operator's error.
        """
        channel = route.edge.channel
        assert isinstance(channel, Exchange)
        try:
            return channel.split(batch, self.plan.workers)
        except Exception as error:
            raise self._blame(route.edge.index, error, batch) from error

    def add(self, worker: int, route: Route, event: Time, time: Time, batch: Batch) -> bool:
        """Queue a batch for `worker`; True if it starts a new message to be sent.

        False if it joined a waiting message, or if `worker` already has the message: then it is built for the
        recorder and not sent.
        """
        waiting = self._waiting[worker]
        slot = (route.edge.index, event, time)
        messages = waiting.get(slot)
        if messages is None:
            waiting[slot] = [[batch]]
        elif alike(messages[-1][-1], batch):
            messages[-1].append(batch)
            return False
        else:
            messages.append([batch])
        return self._has is None or not self._has(worker, route.edge.index, time)

    def take(self, generation: int, progress: list[Update], pressed: bool) -> dict[int, Frame]:
        """Next frame for each worker with messages, progress or back-pressure to receive."""
        everyone = bool(progress) or pressed != self._pressed
        self._pressed = pressed
        frames = {}
        for_all: dict[tuple[Slot, int], Encoded] = {}
        for worker, waiting in self._waiting.items():
            if waiting or everyone or self._again:
                messages = self._again.pop(worker, [])
                made = [
                    self._message(worker, slot, number, batches, for_all)
                    for slot, of_slot in waiting.items()
                    for number, batches in enumerate(of_slot)
                ]
                if (has := self._has) is not None:
                    made = [message for message in made if not has(worker, message.edge, message.time)]
                messages += made
                waiting.clear()
                frames[worker] = Frame(self._index, generation, messages, progress, pressed)
        return frames

    def begin(self, generation: int, has: Has | None = None) -> None:
        """Start a generation: discard waiting messages, number from an unused range.

        `has`: predicate for messages already held by their receivers.
        """
        self._has = has
        for waiting in self._waiting.values():
            waiting.clear()
        self._again.clear()
        self._pressed = False
        self._numbers.clear()
        self._first = generation << GENERATION_BITS

    def again(self, worker: int, message: Message) -> None:
        """Queue a logged message for resending, ahead of others, under its old number."""
        self._again.setdefault(worker, []).append(message)

    def _message(
        self, worker: int, slot: Slot, place: int, batches: list[Batch], for_all: dict[tuple[Slot, int], Encoded]
    ) -> Message:
        """Build and encode the message at position `place` of its slot.

        Messages of broadcasts are encoded once and shared through `for_all`.
        """
        edge, event, time = slot
        encoded = for_all.get((slot, place))
        if encoded is None:
            encoded = self._encode(edge, batches)
            if isinstance(self.plan.graph.edges[edge].channel, Broadcast):
                for_all[slot, place] = encoded
        number = self._numbers.get((edge, worker), self._first) + 1
        self._numbers[edge, worker] = number
        message = Message(edge, number, event, time, *encoded)
        if self._recorder is not None and edge in self._recorder.shipping:
            self._recorder.shipped(worker, message)
        return message

    def _encode(self, edge: int, batches: list[Batch]) -> Encoded:
        batch = concat(batches)
        try:
            return encode_batch(batch, self._pools.get(edge))
        except CodecError as error:
            raise self._blame(edge, error, batch) from error

    def _blame(self, edge: int, error: Exception, batch: Batch) -> FalkirkError:
        node = self.plan.graph.nodes[self.plan.graph.edges[edge].target.node]
        return exchange_error(f"{node.kind} {node.name!r}", node.site, error, batch)


def decode_message(message: Message) -> Batch:
    """Decode a received message; the batch may share the message's buffers."""
    payload = message.payload
    return decode_batch(message.header, payload[0] if len(payload) == 1 else b"".join(payload), message.trusted)
