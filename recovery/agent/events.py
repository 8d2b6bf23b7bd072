"""Events of the agent, sent by its driver.

The time comes with each step.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from recovery.checkpoint.records import SourcePosition
from recovery.epoch_ends import EpochEnds
from recovery.protocol import ToWorker
from timely.data.messages import Frame


class Connected(msgspec.Struct, frozen=True):
    """First event: a connection to the monitor is open.

    It may be a new one, to a monitor that knows nothing of this worker.
    """


class Heard(msgspec.Struct, frozen=True):
    """Message from the monitor."""

    message: ToWorker


class Received(msgspec.Struct, frozen=True):
    """Frame of another worker for the agent as well as the engine.

    See `Agent.concerns`.
    """

    frame: Frame


class Stored(msgspec.Struct, frozen=True):
    """Segment `name` is durable."""

    name: str


class GenerationBegun(msgspec.Struct, frozen=True):
    """First frames of all workers are here, and the worker is about to run.

    See `Agent.begins`.
    """


class PieceDue(msgspec.Struct, frozen=True):
    """Time for a piece of a cut, of about `rows` rows.

    See `Agent.saving`.
    """

    rows: int


class PositionsFound(msgspec.Struct, frozen=True):
    """Answer to `AskPositions`, by processor."""

    positions: dict[int, tuple[SourcePosition, ...]]


class TurnEnded(msgspec.Struct, frozen=True):
    """End of a turn of the worker, and of the pieces of cuts made in it.

    Drivers may leave out turns.

    Attributes:
        quiet: it can do nothing more until something comes.
        worked: seconds that it has worked, in all turns so far.
    """

    quiet: bool
    worked: float


class EpochsEnded(msgspec.Struct, frozen=True):
    """New ends of epochs of local sources, not yet sent to other workers."""

    ends: tuple[EpochEnds, ...]


Event: TypeAlias = (
    Connected | Heard | Received | Stored | GenerationBegun | PieceDue | PositionsFound | TurnEnded | EpochsEnded
)
