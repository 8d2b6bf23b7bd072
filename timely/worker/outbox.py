"""The outbox of a worker: batches gathered by receiver, edge, event and time, encoded when a frame is taken."""

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

_GENERATION_BITS = 40
"""Message numbers begin anew in each generation, above this bit: those of logged messages must never be given twice."""

Slot = tuple[int, Time, Time]
"""The key by which batches merge into one message: (edge, event time, time)."""

Encoded = tuple[bytes, list[Any]]
"""Header and payload of a message."""

Has = Callable[[int, int, Time], bool]
"""True if a worker needs no message of an edge at a time, because it has them: of (worker, edge, time)."""


class Outbox:
    """The sending half of one worker."""

    def __init__(self, plan: Plan, index: int, recorder: Recorder | None = None) -> None:
        self.plan = plan
        self._recorder = recorder
        self._again: dict[int, list[Message]] = {}
        self._index = index
        self._waiting: dict[int, dict[Slot, list[list[Batch]]]] = {w: {} for w in range(plan.workers) if w != index}
        """By worker and slot: the batches of each message."""
        self._numbers: dict[tuple[int, int], int] = {}
        self._first = 0
        self._pressed = False
        self._has: Has | None = None
        self._pools = {edge: Pool() for edge in (recorder.keeping if recorder is not None else ())}
        """By edge, because what is kept of one may be kept for longer than that of another."""

    @property
    def pooled(self) -> int:
        """Bytes of the memory in which columns are encoded that the recorder keeps."""
        return sum(pool.size for pool in self._pools.values())

    def split(self, route: Route, batch: Batch) -> list[Batch | None]:
        """The part of `batch` for each worker; a key function that raises is reported as its operator's error."""
        channel = route.edge.channel
        assert isinstance(channel, Exchange)
        try:
            return channel.split(batch, self.plan.workers)
        except Exception as error:
            raise self._blame(route.edge.index, error, batch) from error

    def add(self, worker: int, route: Route, event: Time, time: Time, batch: Batch) -> bool:
        """Take a batch for `worker`. True when it begins a message that will be sent.

        False when it joined one that waits, or when `worker` has it already: then it is made, and the recorder hears of it.
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
        """A frame for every worker that has something to hear."""
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
        """A new generation: forget what waits. Numbers go on beyond all that were ever given out before.

        `has`: whether a worker has all messages of an edge at a time already.
        """
        self._has = has
        for waiting in self._waiting.values():
            waiting.clear()
        self._again.clear()
        self._pressed = False
        self._numbers.clear()
        self._first = generation << _GENERATION_BITS

    def again(self, worker: int, message: Message) -> None:
        """Send a logged message once more, before all else, under its old number."""
        self._again.setdefault(worker, []).append(message)

    def _message(
        self, worker: int, slot: Slot, place: int, batches: list[Batch], for_all: dict[tuple[Slot, int], Encoded]
    ) -> Message:
        """The message of some batches, the one at `place` of its slot. What is for every worker is encoded for the first one:
        `for_all`."""
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
    """The batch of a received message; it may view into the message's buffers."""
    payload = message.payload
    return decode_batch(message.header, payload[0] if len(payload) == 1 else b"".join(payload), message.trusted)
