"""Events of the agent, sent by its driver.

The time comes with each step.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class FromMonitor(msgspec.Struct, frozen=True):
    """Message from the monitor."""

    message: ToWorker


class Received(msgspec.Struct, frozen=True):
    """Frame of another worker with a part for the agent: see `for_the_engine`."""

    frame: Frame


class Stored(msgspec.Struct, frozen=True):
    """Segment `name` is durable."""

    name: str


class MateBegan(msgspec.Struct, frozen=True):
    """A new mate has an empty memory for what is not durable."""


class MateEnded(msgspec.Struct, frozen=True):
    """The mate is gone, with its memory, or too slow."""


class Held(msgspec.Struct, frozen=True):
    """Segment `name` is in the mate's memory."""

    name: str


class PieceDue(msgspec.Struct, frozen=True):
    """Time for a piece of a cut, of about `rows` rows, as `Save` wants it.

    `positions` are those that it names: of the source `processor` after all epochs before `epoch`, by (processor, epoch).
    """

    rows: int
    positions: Mapping[tuple[int, int], tuple[SourcePosition, ...]] = {}


class TurnEnded(msgspec.Struct, frozen=True):
    """End of a turn of the worker, and of the pieces of cuts made in it.

    Drivers may leave out turns.

    Attributes:
        quiet: it can do nothing more until something comes.
        worked: seconds that it has worked since the last one.
    """

    quiet: bool
    worked: float


class EpochsEnded(msgspec.Struct, frozen=True):
    """New ends of epochs of local sources, not yet sent to other workers."""

    ends: tuple[EpochEnds, ...]


class Stood(msgspec.Struct, frozen=True):
    """Sources stand still; `epoch` is the first that none of them has begun."""

    epoch: int


Event: TypeAlias = (
    Connected
    | FromMonitor
    | Received
    | Stored
    | PieceDue
    | TurnEnded
    | EpochsEnded
    | MateBegan
    | MateEnded
    | Held
    | Stood
)


def for_the_engine(frame: Frame, generation: int | None) -> bool:
    """True if the agent has no part in a frame; others come as `Received`.

    `generation` is that of the last `Run`; None: there was none yet.
    """
    return frame.generation == generation and not frame.ends and not frame.recovery
