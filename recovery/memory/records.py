"""Records of logs, kept messages and histories in a worker's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from timely.data.batch import Batch
from timely.data.codec import check_columns, decode_batch
from timely.data.messages import Message
from timely.time import Time

NOTIFICATION = -1
RESULT = -2

Shipment: TypeAlias = tuple[Time, Time, int, bytes | None, Any]
"""Kept message: its event's time, its own, its number, header and payload.

Header and payload are None and the batch where it stays on this worker. A plain tuple: one is made for each message
of a job that nothing ever happens to.
"""


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
