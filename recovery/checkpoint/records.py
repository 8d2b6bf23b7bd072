"""The sections of a worker's journal: heads that name the content, payloads with the batches.

Everything is MessagePack with types, and the engine's own codec for batches: nothing that is read back is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec

from recovery.layout import Layout, ProcessorInfo
from recovery.metadata import Bound, Xi, depth_of
from recovery.store.segments import Section
from timely.data.batch import Batch
from timely.data.codec import encode_batch
from timely.data.codec.typed import Typed
from timely.errors import CodecError, ProtocolError
from timely.time import Time


class Opening(msgspec.Struct, tag="opening", array_like=True, frozen=True):
    """The first record of a journal: of which program it is."""

    layout: Layout


class Applied(msgspec.Struct, tag="applied", array_like=True, frozen=True):
    """The decision of `generation` was carried out: what lies outside `bounds` (None: ⊤) and comes before this is void."""

    generation: int
    bounds: tuple[Bound | None, ...]


class SourcePosition(msgspec.Struct, array_like=True, frozen=True):
    """The position of a partition after a cut."""

    partition: str
    position: Any
    ended: bool
    before: Any
    """The position at which the last epoch before the cut begins; `fingerprint` is of its content, 0 for none."""
    fingerprint: int


class Checkpoint(msgspec.Struct, tag="checkpoint", array_like=True, frozen=True):
    """Ξ(p, f) with what S(p, f) has beside runs. Its `Piece`s follow: what is new since the checkpoint before, or all.

    The state at f is in the pieces of all checkpoints from the one at `since` up to this one.
    """

    xi: Xi
    generation: int
    since: Bound
    pieces: int
    requests: tuple[tuple[Time, Time], ...]
    positions: tuple[SourcePosition, ...]
    held: tuple[tuple[Time, int], ...] = ()
    """Capabilities for times outside f: time and how many."""
    state: int = 0
    """The digest of the shape of the state that was saved (`timely.state.shapes`); 0 for none, and of earlier versions."""

    @property
    def whole(self) -> bool:
        """True if its own pieces are all of the state."""
        return self.since == self.xi.bound


class Piece(msgspec.Struct, tag="piece", array_like=True, frozen=True):
    """Runs of the state of a checkpoint, their rows one after the other in one batch: the time, part and rows of each."""

    processor: int
    bound: Bound
    runs: tuple[tuple[Time, int | str, int], ...]
    header: bytes
    slots: tuple[tuple[Time, bool] | None, ...] = ()
    """Of each run the time under which it is kept, if that is not its own, and whether it says that something was taken out
    there. Empty where no run has one."""


class Logged(msgspec.Struct, tag="logged", array_like=True, frozen=True):
    """One message of L(e, ·), to `receiver`."""

    edge: int
    receiver: int
    number: int
    event: Time
    time: Time
    header: bytes
    cut: Bound
    generation: int
    """Of the cut that saved it."""


class HistoryRecord(msgspec.Struct, tag="happened", array_like=True, frozen=True):
    """One event of a full history H(p): `port` -1 is a notification, -2 the result of a job."""

    processor: int
    order: int
    port: int
    time: Time
    header: bytes
    cut: Bound
    generation: int
    """Of the cut that saved it."""


class Published(msgspec.Struct, tag="published", array_like=True, frozen=True):
    """The published bounds when the segment was sealed: all times before each (processor, bound)."""

    bounds: tuple[tuple[int, Bound], ...]


Record: TypeAlias = Opening | Applied | Checkpoint | Piece | Logged | HistoryRecord | Published

PUBLISHED = ("published",)
"""The key of `Published`: each takes the place of the one before."""

_encoder = msgspec.msgpack.Encoder()
_decoder: Typed[Record] = Typed("a record in the journal of a worker", Record)


def key_of(record: Record) -> tuple[Any, ...]:
    """The key under which a journal holds a record: records of one key live and die together."""
    match record:
        case Opening():
            return ("opening",)
        case Applied():
            return ("applied", record.generation)
        case Checkpoint():
            return ("cut", record.xi.processor, record.xi.bound)
        case Piece():
            return ("cut", record.processor, record.bound)
        case Logged():
            return ("log", record.edge, record.receiver, record.cut, record.generation)
        case HistoryRecord():
            return ("events", record.processor, record.cut, record.generation)
        case Published():
            return PUBLISHED


def check_fit(record: Record, layout: Layout, senders: Mapping[int, int]) -> None:
    """See that a record speaks of what is in `layout`: its checksum says only that it is what somebody wrote.

    `senders` has the processor that sends on each edge.

    Raises:
        ProtocolError: if it does not.
    """
    if not _fits(record, layout, senders):
        raise ProtocolError(
            f"a record in the journal of a worker does not fit the program: {type(record).__name__} of what is not there. "
            "Run the program that wrote the store, bring back a copy of the store, or choose another one"
        )


def _fits(record: Record, layout: Layout, senders: Mapping[int, int]) -> bool:
    depths = [info.depth for info in layout.processors]

    def known(p: int, *times: Time | None) -> bool:
        return 0 <= p < len(depths) and all(time is None or depth_of(time) == depths[p] for time in times)

    match record:
        case Opening():
            return True
        case Applied():
            return len(record.bounds) == len(depths) and all(known(p, bound) for p, bound in enumerate(record.bounds))
        case Checkpoint():
            return known(record.xi.processor, record.xi.bound, record.since)
        case Piece():
            return known(
                record.processor,
                record.bound,
                *(time for time, _, _ in record.runs),
                *(slot[0] for slot in record.slots if slot),
            )
        case Logged():
            return known(senders.get(record.edge, -1), record.event) and 0 <= record.receiver < layout.workers
        case HistoryRecord():
            return known(record.processor, record.time) and layout.processors[record.processor].history
        case Published():
            return all(known(p, bound) for p, bound in record.bounds)


def section(record: Record, payload: bytes | memoryview = b"") -> Section:
    """A record as a section."""
    return Section(_encoder.encode(record), payload)


def record_of(head: bytes | memoryview) -> Record:
    """The record in a section's head. Raises ProtocolError for what is none."""
    return _decoder.decode(head)


@contextmanager
def saving(info: ProcessorInfo) -> Iterator[None]:
    """Name the processor whose records cannot be encoded."""
    try:
        yield
    except CodecError as error:
        raise CodecError(f"{info.kind} {info.name!r} ({info.site}), whose records are saved: {error}") from error


def save_batch(batch: Batch) -> tuple[bytes, bytes]:
    """A batch as header and payload.

    The payload is a copy of just its size: it is kept until it is written, and Arrow's pool, made for what is soon free
    again, would take fresh memory in large blocks for it, at several milliseconds each.
    """
    header, buffers = encode_batch(batch)
    return header, b"".join(buffers)
