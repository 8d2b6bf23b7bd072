"""The effects of the agent, carried out by its driver in their order."""

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
    """A message for the monitor. Without a connection it is dropped: `Connected` leads to all that matters once more."""

    message: ToMonitor


class SendFrame(msgspec.Struct, frozen=True):
    """A frame for another worker."""

    worker: int
    frame: Frame


class Put(msgspec.Struct, frozen=True):
    """Write a segment; `Stored` tells of it. There is never more than one under way."""

    name: str
    parts: Sequence[Buffer]


class Delete(msgspec.Struct, frozen=True):
    """Remove a segment, some time."""

    name: str


class Perform(msgspec.Struct, frozen=True):
    """Carry out what operators ask for: output that was released, above all. It comes before a `Put` that says so."""

    effects: list[EngineEffect]


class Rewind(msgspec.Struct, frozen=True):
    """The worker has gone back: sources, by node, go on elsewhere, and jobs that nothing waits for any more are ended."""

    sources: Mapping[int, SourceOrder]


class Acknowledge(msgspec.Struct, frozen=True):
    """The epochs of a source, by node, before this one will never be read again."""

    node: int
    epoch: int


class AskPositions(msgspec.Struct, frozen=True):
    """Tell by `PositionsFound`, at once, where each of these sources is: (processor, epoch), after all epochs before that."""

    wanted: tuple[tuple[int, int], ...]


class Fail(msgspec.Struct, frozen=True):
    """This worker cannot take part; the reason is for the user."""

    reason: str


Effect: TypeAlias = Report | SendFrame | Put | Delete | Perform | Rewind | Acknowledge | AskPositions | Fail
