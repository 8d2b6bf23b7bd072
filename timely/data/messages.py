"""Messages and frames between workers, and effects requested of the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from timely.data.batch import Batch
from timely.time import Time


@dataclass(slots=True)
class Message:
    """Encoded batch in transit over an exchange, with its header.

    `number` counts the messages on the physical edge (logical edge, sender, receiver) from 1. `event` is the time of the
    event that sent it, `time` its own.
    """

    edge: int
    number: int
    event: Time
    time: Time
    header: bytes
    payload: list[Any]
    trusted: bool = False
    """True for a message straight from a process of this job on this host.

    Its columns need no check: they are as Arrow made them.
    """

    @property
    def nbytes(self) -> int:
        return len(self.header) + sum(memoryview(part).nbytes for part in self.payload)


Update = tuple[int, Time, int]
"""Change of a pointstamp count: (place, time, difference)."""


@dataclass(slots=True)
class Frame:
    """Messages and progress updates from one worker to another, sent together.

    `progress` is atomic; frames of one process stay in order.

    `pressed` says that the sender holds more queued bytes than it should: sources everywhere pause.
    """

    sender: int
    generation: int
    messages: list[Message] = field(default_factory=list)
    progress: list[Update] = field(default_factory=list)
    pressed: bool = False
    ends: int = 0
    """Number of the coming rollback round after a sender's last frame, else 0.

    Nothing more comes from the sender before that round.
    """
    recovery: bytes = b""
    """Payload from recovery to recovery; then the rest of the frame is empty."""
    copy: int = 0
    """Number of the sending process among those of its worker; 0 is the one at work."""


class WriteSink(msgspec.Struct, frozen=True):
    """Effect: give a batch of an epoch to the sink of a node."""

    node: int
    epoch: int
    batch: Batch


class CommitSink(msgspec.Struct, frozen=True):
    """Effect: an epoch of a node's sink is complete."""

    node: int
    epoch: int


class Incomplete(msgspec.Struct, frozen=True):
    """Effect: epochs of a node's sink from `first` to `last` may lack records.

    A `last` of None: for ever.
    """

    node: int
    first: int
    last: int | None


class Captured(msgspec.Struct, frozen=True):
    """Effect: a batch reached a capture."""

    node: int
    time: Time
    batch: Batch


class StartJob(msgspec.Struct, frozen=True):
    """Effect: run a job outside the worker.

    Its result is fed back with `Worker.finish(number, result)`.

    With `context` it is given a `timely.operators.base.JobContext`.
    """

    number: int
    node: int
    time: Time
    job: Callable[..., Any]
    context: bool = False


Effect = WriteSink | CommitSink | Incomplete | Captured | StartJob
"""Request of a worker to its driver; carried out in order."""
