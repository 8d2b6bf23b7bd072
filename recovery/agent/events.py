"""The events of the agent: what its driver tells it. The time comes with each step."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from recovery.checkpoint.records import SourcePosition
from recovery.epoch_ends import EpochEnds
from recovery.protocol import ToWorker
from timely.data.messages import Frame


class Connected(msgspec.Struct, frozen=True):
    """The connection to the monitor is there, or a new one: who listens now knows nothing of this worker. The first event."""


class Heard(msgspec.Struct, frozen=True):
    """A message of the monitor."""

    message: ToWorker


class Received(msgspec.Struct, frozen=True):
    """A frame of another worker that is not the engine's alone: see `Agent.concerns`."""

    frame: Frame


class Stored(msgspec.Struct, frozen=True):
    """The segment of this name is durable."""

    name: str


class GenerationBegun(msgspec.Struct, frozen=True):
    """The first frames of all workers are here, and the worker is about to be run: see `Agent.begins`."""


class PieceDue(msgspec.Struct, frozen=True):
    """There is time for a piece of a cut, of about so many rows: see `Agent.saving`."""

    rows: int


class PositionsFound(msgspec.Struct, frozen=True):
    """The answer to `AskPositions`, by processor."""

    positions: dict[int, tuple[SourcePosition, ...]]


class TurnEnded(msgspec.Struct, frozen=True):
    """The worker has had a turn, and so have the pieces of cuts; not every turn need be told.

    Attributes:
        quiet: it can do nothing more until something comes.
        worked: seconds that it has worked, in all turns so far.
    """

    quiet: bool
    worked: float


class EpochsEnded(msgspec.Struct, frozen=True):
    """Epochs of sources are over on this worker, and nobody has heard of it yet."""

    ends: tuple[EpochEnds, ...]


Event: TypeAlias = (
    Connected | Heard | Received | Stored | GenerationBegun | PieceDue | PositionsFound | TurnEnded | EpochsEnded
)
