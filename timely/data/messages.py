"""Messages and frames between workers, and the effects that a worker asks of its driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from timely.data.batch import Batch
from timely.time import Time


@dataclass(slots=True)
class Message:
    """A batch on its way over an exchange: encoded, with its header.

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
    """It came straight from a process of this job on this host: its columns are as Arrow made them."""

    @property
    def nbytes(self) -> int:
        return len(self.header) + sum(memoryview(part).nbytes for part in self.payload)


Update = tuple[int, Time, int]
"""A change of a pointstamp count: (place, time, difference)."""


@dataclass(slots=True)
class Frame:
    """Everything that one worker sends to another at once. `progress` is atomic; frames of one sender stay in order.

    `pressed` says that the sender holds more queued bytes than it should: sources everywhere pause.
    """

    sender: int
    generation: int
    messages: list[Message] = field(default_factory=list)
    progress: list[Update] = field(default_factory=list)
    pressed: bool = False
    ends: int = 0
    """Not 0: nothing more comes from the sender before the rollback round of this number."""
    told: bytes = b""
    """Words of recovery there to recovery here; then there is nothing else in the frame."""


class WriteSink(msgspec.Struct, frozen=True):
    """Give a batch of an epoch to the sink of a node."""

    node: int
    epoch: int
    batch: Batch


class CommitSink(msgspec.Struct, frozen=True):
    """Everything of an epoch has been given to the sink of a node."""

    node: int
    epoch: int


class Captured(msgspec.Struct, frozen=True):
    """A batch reached a capture."""

    node: int
    time: Time
    batch: Batch


class StartJob(msgspec.Struct, frozen=True):
    """Run a job outside the worker and feed its result back with `Worker.finish(number, result)`.

    With `context` it is given a `timely.operators.base.JobContext`.
    """

    number: int
    node: int
    time: Time
    job: Callable[..., Any]
    context: bool = False


Effect = WriteSink | CommitSink | Captured | StartJob
"""A request of a worker to its driver. Effects are carried out in order."""
