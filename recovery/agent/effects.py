"""Effects of the agent, carried out by its driver in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from recovery.protocol import ToMonitor
from recovery.rollback.orders import SourceOrder
from recovery.store.interface import Buffer
from timely.data.messages import Effect as EngineEffect
from timely.data.messages import Frame


class Report(msgspec.Struct, frozen=True):
    """Send a message to the monitor.

    Without a connection it is dropped: `Connected` leads to all that matters once more.
    """

    message: ToMonitor


class SendFrame(msgspec.Struct, frozen=True):
    """Send a frame to another worker."""

    worker: int
    frame: Frame


class Put(msgspec.Struct, frozen=True):
    """Write a segment; `Stored` reports completion.

    There is never more than one in flight.
    """

    name: str
    parts: Sequence[Buffer]


class Delete(msgspec.Struct, frozen=True):
    """Delete a segment at some time."""

    name: str


class Perform(msgspec.Struct, frozen=True):
    """Carry out effects of operators, above all released output.

    They come before a `Put` that records them as done.
    """

    effects: list[EngineEffect]


class Rewind(msgspec.Struct, frozen=True):
    """Rewind sources, by node, after a rollback; end jobs that nothing waits for."""

    sources: Mapping[int, SourceOrder]


class Acknowledge(msgspec.Struct, frozen=True):
    """Acknowledge all epochs of a source, by node, before `epoch`.

    They will never be read again.
    """

    node: int
    epoch: int


class AskPositions(msgspec.Struct, frozen=True):
    """Request positions of sources, after all epochs before the given one.

    `wanted` has (processor, epoch). `PositionsFound` must answer at once.
    """

    wanted: tuple[tuple[int, int], ...]


class Fail(msgspec.Struct, frozen=True):
    """Fail this worker: it cannot take part, for a reason shown to the user."""

    reason: str


Effect: TypeAlias = Report | SendFrame | Put | Delete | Perform | Rewind | Acknowledge | AskPositions | Fail
