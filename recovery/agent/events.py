"""The events of the agent: what its driver tells it. The time comes with each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from recovery.checkpoint.records import SourcePosition
from recovery.epoch_ends import EpochEnds
from recovery.protocol import ToWorker
from timely.data.messages import Frame


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection to the monitor is there, or a new one: who listens now knows nothing of this worker. The first event."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of the monitor."""

    message: ToWorker


@dataclass(frozen=True, slots=True)
class Received:
    """A frame of another worker that is not the engine's alone: see `Agent.concerns`."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Stored:
    """The segment of this name is durable."""

    name: str


@dataclass(frozen=True, slots=True)
class GenerationBegun:
    """The first frames of all workers are here, and the worker is about to be run: see `Agent.begins`."""


@dataclass(frozen=True, slots=True)
class PieceDue:
    """There is time for a piece of a cut, of about so many rows: see `Agent.saving`."""

    rows: int


@dataclass(frozen=True, slots=True)
class PositionsFound:
    """The answer to `AskPositions`, by processor."""

    positions: dict[int, tuple[SourcePosition, ...]]


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The worker has had a turn, and so have the pieces of cuts; not every turn need be told.

    Attributes:
        quiet: it can do nothing more until something comes.
        worked: seconds that it has worked, in all turns so far.
    """

    quiet: bool
    worked: float


@dataclass(frozen=True, slots=True)
class EpochsEnded:
    """Epochs of sources are over on this worker, and nobody has heard of it yet."""

    ends: tuple[EpochEnds, ...]


Event: TypeAlias = (
    Connected | Heard | Received | Stored | GenerationBegun | PieceDue | PositionsFound | TurnEnded | EpochsEnded
)
