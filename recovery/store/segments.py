"""Format of a segment: sections gathered for one durable write.

    0   8   magic
    8   4   version of the format
    12  4   number of sections
    16  16  id of the store
    32  8   length of all, in bytes
    40  4   length of the head
    44  4   CRC of the head and the table
    48  12  zeros
    60  4   CRC of the 60 bytes before, which all versions have in common
    64      the head (MessagePack), the table, zeros up to a multiple of 8
            the sections: each a head, zeros, its payload, zeros up to a multiple of 8
            8 bytes: length of all; 8 bytes: magic of the end

Each row of the table holds, for one section, the length of its head, a CRC of all its bytes (zeros included), and the length of
its payload. Numbers are little-endian. Large payloads start at multiples of 64, so that Arrow can use them where they are.
Every bit of a segment is under one of the checks. The CRC is that of zlib, which reads several GB a second with the
instructions that today's processors have for it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, overload

import msgspec

from recovery.store.interface import Buffer, StoreCorrupt, StoreVersion
from recovery.store.memory import ALIGNMENT
from timely.data.codec.typed import Typed
from timely.errors import ProtocolError

FORMAT = 3
LARGE = 1024
"""Least size of payloads aligned to `ALIGNMENT` and written without a copy.

Others are aligned to 8 bytes.
"""

_MAGIC = b"FALKIRK\n"
_END = b"\nFALKEND"
_PREFIX = struct.Struct("<8sII16sQII12x")
_CRC = struct.Struct("<I")
_ROW = struct.Struct("<IIQ")
_TRAILER = struct.Struct("<Q8s")
_START = _PREFIX.size + _CRC.size
_ZEROS = bytes(ALIGNMENT)


class SegmentMeta(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Header of a segment.

    Args:
        owner: whose journal it belongs to, for example "worker-000".
        number: its place in that journal.
        generation, incarnation: of the writer, when it was sealed.
        fence: the number of the fence of this incarnation: the empty segment with which it began.
        needed: which earlier segments of the journal are still needed, as (first, last) pairs in rising order. Fences are not
            among them.
        fences: in a fence, the numbers of the fences before it.
    """

    owner: str
    number: int
    generation: int
    incarnation: int
    fence: int
    needed: tuple[tuple[int, int], ...] = ()
    fences: tuple[int, ...] = ()

    @property
    def is_fence(self) -> bool:
        """True for the first, empty segment of an incarnation."""
        return self.number == self.fence

    def needed_numbers(self) -> Iterator[int]:
        """Numbers in `needed`, one by one."""
        for first, last in self.needed:
            yield from range(first, last + 1)


@dataclass(frozen=True, slots=True)
class Unread:
    """Payload left in the store, by segment and index of its section."""

    nbytes: int
    read: Callable[[int, int], Buffer]
    """Read it: segment, section."""
    segment: int
    index: int

    def content(self) -> Buffer:
        """The payload, read now; raises StoreError."""
        return self.read(self.segment, self.index)


Payload: TypeAlias = Buffer | Unread


def size_of(payload: Payload) -> int:
    """Bytes of a payload."""
    return payload.nbytes if isinstance(payload, Unread) else memoryview(payload).nbytes


def content_of(payload: Payload) -> Buffer:
    """Bytes of a payload, read from the store if necessary."""
    return payload.content() if isinstance(payload, Unread) else payload


@dataclass(frozen=True, slots=True)
class Section:
    """Record in a segment: a short typed head, and payload bytes."""

    head: bytes
    payload: Payload = b""


_encode = msgspec.msgpack.Encoder().encode
_decode = Typed[SegmentMeta]("its head", SegmentMeta).decode


def as_bytes(data: Buffer) -> memoryview:
    """View of single bytes; raise TypeError if `data` is not contiguous."""
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def encode_segment(meta: SegmentMeta, sections: Sequence[Section], store_id: bytes) -> list[Buffer]:
    """Encode a segment, in parts; payloads from `LARGE` bytes on are not copied.

    They must not change until the segment is written.
    """
    if len(store_id) != 16:
        raise ValueError(f"the id of a store has 16 bytes, not {len(store_id)}")
    head = _encode(meta)
    table = bytearray()
    body: list[Buffer] = []
    small: list[Buffer] = []  # what comes between large payloads, to be joined
    index = len(head) + _ROW.size * len(sections)
    at = _START + index + -(_START + index) % 8
    for section in sections:
        payload = as_bytes(content_of(section.payload))
        start = at + len(section.head)
        gap = _gap(start, len(payload))
        end = start + gap + len(payload)
        fill = -end % 8
        before = section.head + _ZEROS[:gap]
        crc = zlib.crc32(_ZEROS[:fill], zlib.crc32(payload, zlib.crc32(before)))
        table += _ROW.pack(len(section.head), crc, len(payload))
        small.append(before)
        if len(payload) >= LARGE:
            body += (b"".join(small), payload)
            small = [_ZEROS[:fill]]
        else:
            small += (payload, _ZEROS[:fill])
        at = end + fill
    total = at + _TRAILER.size
    small.append(_TRAILER.pack(total, _END))
    body.append(b"".join(small))
    described = head + bytes(table)
    prefix = _PREFIX.pack(_MAGIC, FORMAT, len(sections), store_id, total, len(head), zlib.crc32(described))
    start_of_all = prefix + _CRC.pack(zlib.crc32(prefix)) + described + _ZEROS[: -(_START + index) % 8]
    if len(body) == 1:
        return [start_of_all + bytes(body[0])]
    return [start_of_all, *body]


class SealedParts(Sequence[Buffer]):
    """Buffers of a segment, encoded by the writing thread on first access."""

    def __init__(self, meta: SegmentMeta, sections: Sequence[Section], store_id: bytes) -> None:
        self._what: tuple[SegmentMeta, Sequence[Section], bytes] | None = (meta, sections, store_id)
        self._parts: list[Buffer] = []

    def _encoded(self) -> list[Buffer]:
        if self._what is not None:
            self._parts, self._what = encode_segment(*self._what), None
        return self._parts

    @overload
    def __getitem__(self, index: int) -> Buffer: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Buffer]: ...

    def __getitem__(self, index: int | slice) -> Buffer | Sequence[Buffer]:
        return self._encoded()[index]

    def __len__(self) -> int:
        return len(self._encoded())


def decode_segment(
    data: Buffer, name: str = "segment", store_id: bytes | None = None
) -> tuple[SegmentMeta, list[Section]]:
    """Decode a segment; payloads are views into `data`.

    Args:
        name: for errors.
        store_id: the segment must belong to this store.

    Raises:
        StoreCorrupt: if a single bit is not what was written, or the segment belongs to another store.
        StoreVersion: if it is whole as far as can be told, but of another version.
    """
    view = as_bytes(data)
    count, total, head_length, index_crc = _read_prefix(view, name, store_id)
    _check_end(view, name, total)
    index = head_length + _ROW.size * count
    if _START + index > total - _TRAILER.size:
        raise StoreCorrupt(name, _START, f"a table of {count} sections does not fit into {total} bytes")
    described = view[_START : _START + index]
    if zlib.crc32(described) != index_crc:
        raise StoreCorrupt(name, _START, "the checksum of its table of sections does not match")
    at = _START + index
    fill = -at % 8
    if bytes(view[at : at + fill]) != _ZEROS[:fill]:
        raise StoreCorrupt(name, at, "there is something between its table and its first section")
    at += fill
    try:
        meta = _decode(described[:head_length])
    except ProtocolError as error:
        raise StoreCorrupt(name, _START, str(error)) from error
    sections = []
    for place, (length, crc, size) in enumerate(_ROW.iter_unpack(described[head_length:])):
        start = at + length
        payload_at = start + _gap(start, size)
        end = payload_at + size
        following = end + -end % 8
        if following > total - _TRAILER.size:
            raise StoreCorrupt(name, at, f"section {place} of {count} goes past the end")
        if zlib.crc32(view[at:following]) != crc:
            raise StoreCorrupt(name, at, f"the checksum of section {place} of {count} does not match")
        sections.append(Section(bytes(view[at:start]), view[payload_at:end].toreadonly()))
        at = following
    if at != total - _TRAILER.size:
        raise StoreCorrupt(name, at, f"{total - _TRAILER.size - at} bytes belong to no section")
    return meta, sections


def segment_name(owner: str, number: int) -> str:
    """Name of a segment in the store, in the folder `owner`.

    Names sort as numbers do.
    """
    return f"{owner}/segment-{number:08}"


def segment_number(name: str) -> int | None:
    """Number of the segment of this name; None for other names.

    >>> segment_number("worker-000/segment-00000012"), segment_number("worker-000/segment-00000012.damaged")
    (12, None)
    """
    kind, _, digits = name.rpartition("/")[2].partition("-")
    return int(digits) if kind == "segment" and len(digits) >= 8 and digits.isascii() and digits.isdigit() else None


def _gap(start: int, payload: int) -> int:
    return -start % (ALIGNMENT if payload >= LARGE else 8)


def _read_prefix(view: memoryview, name: str, store_id: bytes | None) -> tuple[int, int, int, int]:
    if len(view) < _START:
        raise StoreCorrupt(name, len(view), f"it ends after {len(view)} bytes, within its first {_START}", torn=True)
    magic, version, count, its_store, total, head_length, index_crc = _PREFIX.unpack_from(view)
    if zlib.crc32(view[: _PREFIX.size]) != _CRC.unpack_from(view, _PREFIX.size)[0]:
        what = "its first bytes are not those of a segment" if magic != _MAGIC else "the checksum of its start is wrong"
        raise StoreCorrupt(name, 0, what, torn=not _ends(view))
    if magic != _MAGIC:
        raise StoreCorrupt(name, 0, "its first bytes are not those of a segment")
    if version != FORMAT:
        raise StoreVersion(name, version, FORMAT)
    if store_id is not None and its_store != store_id:
        raise StoreCorrupt(
            name,
            16,
            f"it belongs to the store {its_store.hex()}, not to this one ({store_id.hex()})",
            "move it back to where it came from: stores cannot be mixed",
        )
    return count, total, head_length, index_crc


def _check_end(view: memoryview, name: str, total: int) -> None:
    if len(view) < total:
        raise StoreCorrupt(name, len(view), f"it ends here, and should have {total} bytes", torn=True)
    if len(view) > total:
        raise StoreCorrupt(name, total, f"it should end here, and has {len(view)} bytes")
    if total < _START + _TRAILER.size:
        raise StoreCorrupt(name, 32, f"a segment of {total} bytes cannot be")
    length, magic = _TRAILER.unpack_from(view, total - _TRAILER.size)
    if magic != _END:
        raise StoreCorrupt(name, total - _TRAILER.size, "the mark of its end is missing", torn=True)
    if length != total:
        raise StoreCorrupt(name, total - _TRAILER.size, f"its end says that it has {length} bytes, not {total}")


def _ends(view: memoryview) -> bool:
    return bytes(view[-len(_END) :]) == _END
