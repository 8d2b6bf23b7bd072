"""Records of the monitor's journal, and their sum after a restart.

Most records supersede the one before of the same `slot`: the newest low-watermarks say all that the older ones did, and
of the decisions only the last one is still needed, because no worker takes part in a round before the decision of the one
before is in its store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from recovery.epoch_ends import EpochEnds
from recovery.incomplete import Gap
from recovery.layout import Layout
from recovery.metadata import Bound
from timely.data.codec.typed import Typed

Value: TypeAlias = bool | int | float | str | list["Value"] | dict[str, "Value"] | None
"""Plain data, as in JSON."""

OWNER = "monitor"
"""Owner of the monitor's journal, as segments name it."""

MOST_EVENTS = 1000
"""Most timeline events kept over a restart."""


class KeptLayout(msgspec.Struct, tag="layout", frozen=True):
    """Plan of the job."""

    layout: Layout


class KeptWatermarks(msgspec.Struct, tag="watermarks", frozen=True):
    """W: `bounds[worker][processor]`, announced only when this is durable."""

    bounds: tuple[tuple[Bound, ...], ...]


class KeptDecision(msgspec.Struct, tag="decision", frozen=True):
    """Outcome of a round, as in `recovery.protocol.Decision`.

    `previous` is the generation that it ended.
    """

    generation: int
    previous: int
    bounds: tuple[tuple[Bound | None, ...], ...]
    failed: tuple[int, ...]
    held: tuple[tuple[Bound, ...], ...] = ()
    ends: tuple[EpochEnds, ...] = ()
    current: int = 0
    gaps: tuple[Gap, ...] = ()

    def returned(self) -> tuple[tuple[Bound | None, ...], ...]:
        """Bounds of the last return of each processor, by worker.

        Of this round only, where `held` is empty.
        """
        return self.held or self.bounds


class KeptRounds(msgspec.Struct, tag="rounds", frozen=True):
    """Last reserved number of a round; a later monitor begins above."""

    last: int


class KeptEvent(msgspec.Struct, tag="event", frozen=True):
    """Timeline event."""

    kind: str
    at: float
    data: dict[str, Any] = {}
    n: int = 0
    """Number of the event in order; 0 in journals of earlier versions."""


class KeptFinished(msgspec.Struct, tag="finished", frozen=True):
    """All workers are released."""


Record: TypeAlias = KeptLayout | KeptWatermarks | KeptDecision | KeptRounds | KeptEvent | KeptFinished

_encoder = msgspec.msgpack.Encoder()
_decoder: Typed[Record] = Typed("a record in the journal of the monitor", Record)


def encode_record(record: Record) -> bytes:
    """Record as bytes, for the head of a section of the journal."""
    return _encoder.encode(record)


def decode_record(data: bytes | memoryview) -> Record:
    """Decode a record; raise ProtocolError for anything else."""
    return _decoder.decode(data)


def slot(record: Record) -> str | None:
    """Slot of a record: the newest of one slot replaces the others.

    None: it stays (an event).

    >>> slot(KeptFinished()), slot(KeptEvent("failure", 1.5))
    ('finished', None)
    """
    if isinstance(record, KeptEvent):
        return None
    tag = type(record).__struct_config__.tag
    assert isinstance(tag, str)
    return tag


@dataclass(frozen=True)
class SavedJob:
    """Content of the journal, for a new coordinator."""

    layout: Layout | None = None
    watermarks: tuple[tuple[Bound, ...], ...] | None = None
    decision: KeptDecision | None = None
    events: tuple[KeptEvent, ...] = field(default=())
    finished: bool = False
    rounds: int = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> SavedJob:
        """Sum of records in the order of writing."""
        layout: Layout | None = None
        watermarks: tuple[tuple[Bound, ...], ...] | None = None
        decision: KeptDecision | None = None
        events: list[KeptEvent] = []
        finished = False
        rounds = 0
        for record in records:
            if isinstance(record, KeptLayout):
                layout = record.layout
            elif isinstance(record, KeptWatermarks):
                watermarks = record.bounds
            elif isinstance(record, KeptDecision):
                decision = record
            elif isinstance(record, KeptRounds):
                rounds = record.last
            elif isinstance(record, KeptEvent):
                events.append(record)
            else:
                finished = True
        events.sort(key=lambda event: (event.n, event.at))  # segments hold those that were carried over out of order
        return cls(layout, watermarks, decision, tuple(events[-MOST_EVENTS:]), finished, rounds)
