"""The records of the monitor's journal, and their sum after a restart.

Most records supersede the one before of the same `slot`: the newest low-watermarks say all that the older ones did, and
of the decisions only the last one is still needed, because nobody takes part in a round before the decision of the one
before is in its store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from recovery.epoch_ends import EpochEnds
from recovery.layout import Layout
from recovery.metadata import Bound
from timely.data.codec.typed import Typed

Value: TypeAlias = bool | int | float | str | list["Value"] | dict[str, "Value"] | None
"""Plain data, as in JSON."""

OWNER = "monitor"
"""The owner of the monitor's journal, as segments name it."""

MOST_EVENTS = 1000
"""Events of the timeline that are kept over a restart."""


class KeptLayout(msgspec.Struct, tag="layout", frozen=True):
    """The plan of the job."""

    layout: Layout


class KeptWatermarks(msgspec.Struct, tag="watermarks", frozen=True):
    """W: `bounds[worker][processor]`. Announced only when this is durable."""

    bounds: tuple[tuple[Bound, ...], ...]


class KeptDecision(msgspec.Struct, tag="decision", frozen=True):
    """The outcome of a round, as in `recovery.protocol.Decision`; `previous` is the generation that it ended."""

    generation: int
    previous: int
    bounds: tuple[tuple[Bound | None, ...], ...]
    failed: tuple[int, ...]
    held: tuple[tuple[Bound, ...], ...] = ()
    ends: tuple[EpochEnds, ...] = ()
    current: int = 0


class KeptRounds(msgspec.Struct, tag="rounds", frozen=True):
    """Numbers of rounds up to `last` may have been used. A later monitor begins above."""

    last: int


class KeptEvent(msgspec.Struct, tag="event", frozen=True):
    """Something for the timeline."""

    kind: str
    at: float
    data: dict[str, Any] = {}
    n: int = 0
    """Its number in the order in which things happened; 0 in journals of earlier versions."""


class KeptFinished(msgspec.Struct, tag="finished", frozen=True):
    """All workers are done for good."""


Record: TypeAlias = KeptLayout | KeptWatermarks | KeptDecision | KeptRounds | KeptEvent | KeptFinished

_encoder = msgspec.msgpack.Encoder()
_decoder: Typed[Record] = Typed("a record in the journal of the monitor", Record)


def encode_record(record: Record) -> bytes:
    """A record as bytes, for the head of a section of the journal."""
    return _encoder.encode(record)


def decode_record(data: bytes | memoryview) -> Record:
    """The record again. Raises ProtocolError for anything else."""
    return _decoder.decode(data)


def slot(record: Record) -> str | None:
    """Records of one slot supersede each other: only the newest counts. None: it stays (an event).

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
    """The content of the journal, for a new coordinator."""

    layout: Layout | None = None
    watermarks: tuple[tuple[Bound, ...], ...] | None = None
    decision: KeptDecision | None = None
    events: tuple[KeptEvent, ...] = field(default=())
    finished: bool = False
    rounds: int = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> SavedJob:
        """From records in the order in which they were written."""
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
