"""The effects of the agent, carried out by its driver in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from recovery.protocol import ToMonitor
from recovery.rollback.orders import SourceOrder
from recovery.store.interface import Buffer
from timely.data.messages import Effect as EngineEffect
from timely.data.messages import Frame


@dataclass(frozen=True, slots=True)
class Report:
    """A message for the monitor. Without a connection it is dropped: `Connected` leads to all that matters once more."""

    message: ToMonitor


@dataclass(frozen=True, slots=True)
class SendFrame:
    """A frame for another worker."""

    worker: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Put:
    """Write a segment; `Stored` tells of it. There is never more than one under way."""

    name: str
    parts: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a segment, some time."""

    name: str


@dataclass(frozen=True, slots=True)
class Perform:
    """Carry out what operators ask for: output that was released, above all. It comes before a `Put` that says so."""

    effects: list[EngineEffect]


@dataclass(frozen=True, slots=True)
class Rewind:
    """The worker has gone back: sources, by node, go on elsewhere, and jobs that nothing waits for any more are ended."""

    sources: Mapping[int, SourceOrder]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The epochs of a source, by node, before this one will never be read again."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AskPositions:
    """Tell by `PositionsFound`, at once, where each of these sources is: (processor, epoch), after all epochs before that."""

    wanted: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """This worker cannot take part; the reason is for the user."""

    reason: str


Effect: TypeAlias = Report | SendFrame | Put | Delete | Perform | Rewind | Acknowledge | AskPositions | Fail
