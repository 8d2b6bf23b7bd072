"""Frames: what was put in comes out, and large columns are viewed where they arrived."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from runtime.links.frames import LENGTH, decode_frame, encode_frame
from timely.data.codec import encode_batch
from timely.data.messages import Frame, Message
from timely.worker.outbox import decode_message


def arrived(frame: Frame) -> tuple[Frame, pa.Buffer]:
    """The frame that another worker gets, and the memory that it is in, aligned as links do it."""
    data = b"".join(bytes(part) for part in encode_frame(frame))
    assert LENGTH.unpack_from(data) == (len(data) - LENGTH.size,)
    memory = pa.allocate_buffer(len(data) - LENGTH.size)
    body = memoryview(memory).cast("B")
    body[:] = data[LENGTH.size :]
    return decode_frame(body, trusted=True), memory


def content(message: Message) -> tuple[Any, ...]:
    payload = [bytes(part) for part in message.payload]
    return message.edge, message.number, message.event, message.time, message.header, payload


@given(st.integers(0, 2**40))
def test_messages_of_all_sizes_come_out_as_they_went_in(seed: int) -> None:
    random = Random(seed)

    def block(limit: int) -> bytes:
        return random.randbytes(random.randrange(limit))

    sizes = (1, 100, 5_000, 20_000)
    messages = [
        Message(
            number, number, (3,), (4, 5), block(30), [block(random.choice(sizes)) for _ in range(random.randrange(4))]
        )
        for number in range(random.randrange(6))
    ]
    told = block(40)
    frame, _ = arrived(Frame(1, 2, messages, [(7, (3,), -1)], True, 3, told))
    assert list(map(content, frame.messages)) == list(map(content, messages))
    assert (frame.sender, frame.generation, frame.progress, frame.pressed) == (1, 2, [(7, (3,), -1)], True)
    assert (frame.ends, frame.recovery) == (3, told)


def test_large_columns_are_viewed_where_they_arrived_wherever_they_stand_in_a_frame() -> None:
    for length in range(8):
        table = pa.table({"key": list(range(1_000 + length))})
        records = Message(1, 1, (0,), (0,), *encode_batch(["x" * length]))
        columns = [Message(1, number, (0,), (0,), *encode_batch(table)) for number in (2, 3)]
        frame, memory = arrived(Frame(0, 0, [records, *columns]))
        for message in frame.messages[1:]:
            got = decode_message(message)
            assert isinstance(got, pa.Table)
            assert got.equals(table)
            buffer = got["key"].chunk(0).buffers()[1]
            assert memory.address <= buffer.address < memory.address + memory.size, "it was copied"
