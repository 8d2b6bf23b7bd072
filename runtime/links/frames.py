"""Frames as bytes: a length, a small MessagePack head, and the encoded batches.

    frame   = u32 length of all that follows, u32 length of head, head, block*
    head    = [sender, copy, generation, pressed, ends, recovery, progress, messages]
    message = [edge, number, event, time, length of header, [length of each payload part]]
    block   = header of each message, zeros, and its payload parts, in order

Zeros are there before large payloads only, and let them begin at a multiple of 8 bytes of what follows the first length:
columns that do not would be copied before they are read.
A length of 0 is the goodbye of a worker that is done.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any

import msgspec

from timely.data.codec.typed import Typed
from timely.data.messages import Frame, Message
from timely.errors import ProtocolError

PREFIX = struct.Struct("<II")
LENGTH = struct.Struct("<I")
GOODBYE = LENGTH.pack(0)

_Size = Annotated[int, msgspec.Meta(ge=0)]
_Head = tuple[
    int,
    int,
    int,
    bool,
    int,
    bytes,
    list[tuple[int, tuple[int, ...], int]],
    list[tuple[int, int, tuple[int, ...], tuple[int, ...], _Size, list[_Size]]],
]
_ALIGNMENT = 8
"""Alignment of column payloads, for views without copies.

See `timely.data.codec.tables`.
"""

_LARGE = 4096
"""Minimum size in bytes of a payload to align.

A copy of fewer takes less time.
"""

_encoder = msgspec.msgpack.Encoder()
_decoder: Typed[_Head] = Typed("the head of a frame", _Head)


def encode_frame(frame: Frame) -> list[Any]:
    """Encode a frame as buffers to write one after the other, without copying batches."""
    blocks: list[Any] = []
    messages = []
    size = 0
    for m in frame.messages:
        lengths = [memoryview(part).nbytes for part in m.payload]
        messages.append((m.edge, m.number, m.event, m.time, len(m.header), lengths))
        blocks.append(m.header)
        blocks += m.payload
        size += len(m.header) + sum(lengths)
    beside = (frame.sender, frame.copy, frame.generation, frame.pressed, frame.ends, frame.recovery)
    head = _encoder.encode((*beside, frame.progress, messages))
    total = LENGTH.size + len(head) + size
    if size >= _LARGE:
        blocks, total = _aligned(frame, LENGTH.size + len(head))
    if total >= 1 << 32:
        raise ValueError(f"a frame of {total:,} bytes is too large; send smaller batches")
    return [PREFIX.pack(total, len(head)) + head, *blocks]


def _aligned(frame: Frame, at: int) -> tuple[list[Any], int]:
    """Blocks of a frame from offset `at` on, with alignment, and their end offset."""
    blocks: list[Any] = []
    for m in frame.messages:
        size = sum(memoryview(part).nbytes for part in m.payload)
        at += len(m.header)
        zeros = _zeros(at, size)
        blocks += (m.header, bytes(zeros), *m.payload) if zeros else (m.header, *m.payload)
        at += zeros + size
    return blocks, at


def _zeros(at: int, size: int) -> int:
    """Number of zeros before a message's payload of `size` bytes at offset `at`."""
    return -at % _ALIGNMENT if size >= _LARGE else 0


def decode_frame(body: memoryview, trusted: bool = False) -> Frame:
    """Decode a frame from the bytes after its first length.

    Payloads are views into `body`. `trusted`: it came straight from a process of this job on this host. Raises
    ProtocolError for what is not a frame.
    """
    if len(body) < LENGTH.size:
        raise ProtocolError(f"a frame of {len(body)} bytes cannot be")
    (length,) = LENGTH.unpack_from(body)
    at = LENGTH.size + length
    sender, copy, generation, pressed, ends, recovery, progress, heads = _decoder.decode(body[LENGTH.size : at])
    messages = []
    for edge, number, event, time, header_length, lengths in heads:
        header = bytes(body[at : at + header_length])
        at += header_length
        if len(body) >= _LARGE:
            at += _zeros(at, sum(lengths))
        payload = []
        for part in lengths:
            payload.append(body[at : at + part])
            at += part
        messages.append(Message(edge, number, event, time, header, payload, trusted))
    if at != len(body):
        raise ProtocolError(f"a frame says that it has {at:,} bytes, and has {len(body):,}")
    return Frame(sender, generation, messages, progress, pressed, ends, recovery, copy)
