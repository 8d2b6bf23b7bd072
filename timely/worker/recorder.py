"""The `Recorder` protocol: the engine's calls to recovery, at every processor's border and nowhere else.

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
    """The engine's view of recovery."""

    @property
    def logged(self) -> Container[int]:
        """The edges of the graph of whose messages some are logged: `taken` is called for these."""

    @property
    def shipping(self) -> Container[int]:
        """The edges of the graph for whose messages to other workers `shipped` is called, and `kept` for what stays here."""

    @property
    def keeping(self) -> Collection[int]:
        """Those of `shipping` of whose messages `shipped` keeps all for a while, encoded as they are."""

    def delivered(self, processor: int, port: int, time: Time, batch: Batch) -> None:
        """A batch is about to be handled."""

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
        """A batch was sent in the event at time `event`, with its own time `time` >= `event`."""

    def requested(self, processor: int, event: Time, time: Time) -> None:
        """The event at time `event` asked for a notification at `time`."""

    def notified(self, processor: int, time: Time) -> None:
        """A notification is about to be handled: the operator now acts on the completeness of `time`."""

    def resulted(self, processor: int, time: Time, result: Any) -> None:
        """The result of a job that the operator started at `time` is about to be handled."""

    def held(self, processor: int, event: Time, time: Time, diff: int) -> None:
        """A capability for `time` was retained (+1) or given back (-1) in the event at time `event`."""

    def kept_state(self, processor: int, event: Time, time: Time) -> None:
        """The event at time `event` wrote, or took out, state that is kept under `time`."""

    def started(self, processor: int, event: Time, time: Time) -> None:
        """The event at time `event` started a job for `time`."""

    def completed(self, processor: int) -> None:
        """An event of an operator that keeps state is over: its state may have changed."""

    def shipped(self, receiver: int, message: Message) -> None:
        """A message to another worker is made, on one of the edges of `shipping`."""

    def kept(self, edge: int, event: Time, time: Time, batch: Batch) -> None:
        """A batch on one of the edges of `shipping` goes into a queue of this worker itself."""

    def taken(self, sender: int, message: Message) -> bool:
        """A message on a logged edge is about to be handled. False: it was handled before, and must be dropped."""
