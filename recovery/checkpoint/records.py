"""Sections of a worker's journal: typed heads, and payloads with batches.

Everything is MessagePack with types, and the engine's own codec for batches: nothing that is read back is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import msgspec

from recovery.layout import Layout, ProcessorInfo
from recovery.metadata import Bound, Xi, depth_of
from recovery.store.segments import Section
from timely.data.batch import Batch
from timely.data.codec import encode_batch
from timely.data.codec.typed import Typed
from timely.errors import CodecError, OperatorError, ProtocolError
from timely.state.shapes import digest_of, shown
from timely.time import Time


class Opening(msgspec.Struct, tag="opening", array_like=True, frozen=True):
    """First record of a journal, with the program's layout."""

    layout: Layout


class Applied(msgspec.Struct, tag="applied", array_like=True, frozen=True):
    """Carried-out decision of `generation`, voiding earlier records outside `bounds`.

    A bound of None is ⊤.
    """

    generation: int
    bounds: tuple[Bound | None, ...]


class SourcePosition(msgspec.Struct, array_like=True, frozen=True):
    """Position of a source's partition after a cut."""

    partition: str
    position: Any
    ended: bool
    before: Any
    """Position at the beginning of the last epoch before the cut.

    `fingerprint` is of its content, 0 for none.
    """
    fingerprint: int


class Checkpoint(msgspec.Struct, tag="checkpoint", array_like=True, frozen=True):
    """Ξ(p, f) and S(p, f) without runs, followed by its `Piece`s.

    These have what is new since the checkpoint before, or all.

    The state at f is in the pieces of all checkpoints from the one at `since` up to this one.
    """

    xi: Xi
    generation: int
    since: Bound
    pieces: int
    requests: tuple[tuple[Time, Time], ...]
    positions: tuple[SourcePosition, ...]
    held: tuple[tuple[Time, int], ...] = ()
    """Capabilities for times outside f: time and number."""
    state: int = 0
    """Digest of the saved state's shape; 0 for none, and of earlier versions.

    See `timely.state.shapes`.
    """

    @property
    def whole(self) -> bool:
        """True if its own pieces are all of the state."""
        return self.since == self.xi.bound


class Piece(msgspec.Struct, tag="piece", array_like=True, frozen=True):
    """Runs of a checkpoint's state in one batch: time, part and rows of each."""

    processor: int
    bound: Bound
    runs: tuple[tuple[Time, int | str, int], ...]
    header: bytes
    slots: tuple[tuple[Time, bool] | None, ...] = ()
    """Key time of each run, if not its own, and True for a removal.

    Empty where no run has one.
    """


class Logged(msgspec.Struct, tag="logged", array_like=True, frozen=True):
    """Message of L(e, ·) to `receiver`."""

    edge: int
    receiver: int
    number: int
    event: Time
    time: Time
    header: bytes
    cut: Bound
    generation: int
    """Generation of its cut."""


class HistoryRecord(msgspec.Struct, tag="happened", array_like=True, frozen=True):
    """Event of a full history H(p); `port` -1 is a notification, -2 a job's result."""

    processor: int
    order: int
    port: int
    time: Time
    header: bytes
    cut: Bound
    generation: int
    """Generation of its cut."""


class Published(msgspec.Struct, tag="published", array_like=True, frozen=True):
    """Published bound of each processor when the segment was sealed."""

    bounds: tuple[tuple[int, Bound], ...]


Record: TypeAlias = Opening | Applied | Checkpoint | Piece | Logged | HistoryRecord | Published

Keyed: TypeAlias = tuple[tuple[Any, ...], Section]
"""Section of a journal, and its key."""

Each = TypeVar("Each")

PUBLISHED = ("published",)
"""Key of `Published`: each replaces the one before."""

_encoder = msgspec.msgpack.Encoder()
_decoder: Typed[Record] = Typed("a record in the journal of a worker", Record)


def key_of(record: Record) -> tuple[Any, ...]:
    """Journal key of a record; records of one key live and die together."""
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


def current(entries: Sequence[tuple[int, tuple[Any, ...], Each]]) -> list[Each]:
    """Items of the last segment with their key.

    Entries are segment, key and item, in order of segments.
    """
    last = {key: number for number, key, _ in entries}
    return [each for number, key, each in entries if last[key] == number]


def newer(
    stored: Sequence[tuple[Record, Each]], held: Sequence[tuple[Record, Each]]
) -> tuple[list[tuple[Record, Each]], list[tuple[Record, Each]]]:
    """Records of a store, and those in memory not in it, or of a later generation.

    Of one key the records of only one are returned.
    """
    there, beside = _generations(stored), _generations(held)
    taken = {key for key, generation in beside.items() if generation > there.get(key, -1)}
    return (
        [each for each in stored if key_of(each[0]) not in taken],
        [each for each in held if key_of(each[0]) in taken],
    )


def _generations(records: Sequence[tuple[Record, Any]]) -> dict[tuple[Any, ...], int]:
    """Generation of each key's checkpoint or cut."""
    found: dict[tuple[Any, ...], int] = {}
    for record, _ in records:
        of = record.generation if isinstance(record, Checkpoint | Logged | HistoryRecord) else 0
        found[key_of(record)] = max(found.get(key_of(record), 0), of)
    return found


def check_fit(record: Record, layout: Layout, senders: Mapping[int, int]) -> None:
    """Check a record against `layout`: its checksum does not prove that it fits.

    `senders` has the processor that sends on each edge.

    Raises:
        ProtocolError: if it does not.
    """
    if not _fits(record, layout, senders):
        raise ProtocolError(
            f"a record in the journal of a worker does not fit the program: {type(record).__name__} of what is not there. "
            "Run the program that wrote the store, bring back a copy of the store, or choose another one"
        )


def check_state(
    checkpoint: Checkpoint, layout: Layout, digests: Sequence[int], written_by: Callable[[], Sequence[Layout]]
) -> None:
    """Check a saved state's shape against the program's.

    `digests` has the program's, by processor.

    Raises:
        OperatorError: if it has another one, which is that of a layout in `written_by`.
    """
    p = checkpoint.xi.processor
    info = layout.processors[p]
    if checkpoint.state in (0, digests[p]) or info.state is None:
        return
    of = (layout.processors[p].state for layout in written_by() if p < len(layout.processors))
    before = next((shape for shape in of if shape and digest_of(shape) == checkpoint.state), None)
    was = "of another shape" if before is None else shown(before)
    raise OperatorError(
        f"{info.kind} {info.name!r} ({info.site}): the state in the store was {was}, and is {shown(info.state)} in "
        "this program, so it cannot be restored. Run the program with the state as it was, or choose another store"
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
    """Section with a record as its head."""
    return Section(_encoder.encode(record), payload)


def record_of(head: bytes | memoryview) -> Record:
    """Decode a section's head; raise ProtocolError if it is no record."""
    return _decoder.decode(head)


def keyed(record: Record, payload: bytes | memoryview = b"") -> Keyed:
    """Section with a record as its head, and its journal key."""
    return key_of(record), section(record, payload)


@contextmanager
def saving(info: ProcessorInfo) -> Iterator[None]:
    """Name the processor in an error if its records cannot be encoded."""
    try:
        yield
    except CodecError as error:
        raise CodecError(f"{info.kind} {info.name!r} ({info.site}), whose records are saved: {error}") from error


def save_batch(batch: Batch) -> tuple[bytes, bytes]:
    """Batch as header and payload.

    The payload is a copy of just its size: it is kept until it is written, and Arrow's pool, made for what is soon free
    again, would take fresh memory in large blocks for it, at several milliseconds each.
    """
    header, buffers = encode_batch(batch)
    return header, b"".join(buffers)
