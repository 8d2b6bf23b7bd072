"""`Recorder` protocol: the engine's calls into recovery at processor borders.

The engine calls a recorder, when it has one, for each event and each send; recovery implements it and builds its
metadata, logs and checkpoints from these calls alone. Without recovery there is no recorder, and the cost is one test
for None an event. Operators are named by their processor's index in the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Any, Protocol

from timely.data.batch import Batch
from timely.data.messages import Message
from timely.time import Time


class Recorder(Protocol):
    """Recovery as seen by the engine: callbacks for events and sends."""

    @property
    def logged(self) -> Container[int]:
        """Edges with logged messages: `taken` is called for these."""

    @property
    def shipping(self) -> Container[int]:
        """Edges with calls of `shipped` for remote and of `kept` for local messages."""

    @property
    def keeping(self) -> Collection[int]:
        """Edges of `shipping` with all messages retained, encoded, for a while."""

    def delivered(self, processor: int, port: int, time: Time, batch: Batch) -> None:
        """Called before a batch is handled."""

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
        """Called for each batch sent: in the event at `event`, at `time` >= `event`."""

    def requested(self, processor: int, event: Time, time: Time) -> None:
        """Called for each request, by the event at `event`, of a notification at `time`."""

    def notified(self, processor: int, time: Time) -> None:
        """Called before a notification is handled.

        From then on the operator has acted on the completeness of `time`.
        """

    def resulted(self, processor: int, time: Time, result: Any) -> None:
        """Called with the result of an operator's job, before the operator gets it."""

    def held(self, processor: int, event: Time, time: Time, diff: int) -> None:
        """Called for each capability retained (+1) or released (-1) by an event."""

    def kept_state(self, processor: int, event: Time, time: Time) -> None:
        """Called for each write or removal, by an event, of state kept under `time`."""

    def started(self, processor: int, event: Time, time: Time) -> None:
        """Called for each job started for `time` by the event at `event`."""

    def completed(self, processor: int) -> None:
        """Called after each event of a stateful operator: its state may have changed."""

    def shipped(self, receiver: int, message: Message) -> None:
        """Called for each new message to another worker on an edge of `shipping`."""

    def kept(self, edge: int, event: Time, time: Time, batch: Batch) -> None:
        """Called for each batch on an edge of `shipping` put into a local queue."""

    def taken(self, sender: int, message: Message) -> bool:
        """Called before a message on a logged edge is handled; False drops a duplicate."""
