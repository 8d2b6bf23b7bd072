"""Segments: what goes in comes out, nothing that is damaged comes out, and large payloads are never copied."""

from __future__ import annotations

import zlib

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.store import segments as format_
from recovery.store.interface import StoreCorrupt, StoreError, StoreVersion
from recovery.store.memory import ALIGNMENT, aligned_memory
from recovery.store.segments import (
    LARGE,
    Section,
    SegmentMeta,
    as_bytes,
    decode_segment,
    encode_segment,
    segment_name,
    segment_number,
)
from timely.data.codec import decode_batch, encode_batch

STORE = bytes(range(16))
META = SegmentMeta(owner="worker-003", number=12, generation=4, incarnation=2, fence=5, needed=((0, 3), (7, 7)))
SIZES = st.one_of(st.integers(0, 70), st.integers(LARGE - 70, LARGE + 70))
SECTIONS = st.lists(
    st.builds(Section, st.binary(max_size=90), SIZES.map(lambda size: bytes(i % 251 for i in range(size))))
)
METAS = st.builds(
    SegmentMeta,
    owner=st.text(max_size=20),
    number=st.integers(0, 2**60),
    generation=st.integers(0, 2**60),
    incarnation=st.integers(0, 2**60),
    fence=st.integers(0, 2**60),
    fences=st.lists(st.integers(0, 2**60), max_size=3).map(tuple),
    needed=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), max_size=5).map(tuple),
)


def in_memory(meta: SegmentMeta, sections: list[Section]) -> memoryview:
    data = b"".join(encode_segment(meta, sections, STORE))
    memory = aligned_memory(len(data))
    memory[:] = data
    return memory


@given(METAS, SECTIONS)
def test_decode_gives_back_what_was_encoded(meta: SegmentMeta, sections: list[Section]) -> None:
    found, back = decode_segment(in_memory(meta, sections), "a", STORE)
    assert found == meta
    assert [(each.head, bytes(each.payload)) for each in back] == [(each.head, each.payload) for each in sections]


@given(SECTIONS)
def test_payloads_are_aligned_views(sections: list[Section]) -> None:
    data = in_memory(META, sections)
    whole = pa.py_buffer(data)
    for section in decode_segment(data)[1]:
        if len(section.payload):
            payload = pa.py_buffer(section.payload)
            assert whole.address <= payload.address < whole.address + whole.size
            assert payload.address % (ALIGNMENT if payload.size >= LARGE else 8) == 0


def test_large_payloads_are_not_copied_and_arrow_uses_them_where_they_are() -> None:
    table = pa.table({"x": pa.array(range(50_000)), "y": pa.array([str(i) for i in range(50_000)])})
    header, (body,) = encode_batch(table)
    parts = encode_segment(META, [Section(b"small", b"s"), Section(header, memoryview(body))], STORE)
    assert any(pa.py_buffer(part).address == pa.py_buffer(body).address for part in parts)

    data = aligned_memory(sum(memoryview(part).nbytes for part in parts))
    data[:] = b"".join(parts)
    section = decode_segment(data)[1][1]
    back = decode_batch(section.head, section.payload)
    assert isinstance(back, pa.Table)
    assert back.equals(table)
    inside = pa.py_buffer(data)
    for column in back.columns:
        for buffer in column.chunk(0).buffers():
            assert buffer is None or inside.address <= buffer.address < inside.address + inside.size


def test_views_of_wider_items_are_bytes() -> None:
    numbers = memoryview(aligned_memory(8 * 300)).cast("q")
    numbers[:] = memoryview(b"".join(i.to_bytes(8, "little") for i in range(300))).cast("q")
    (section,) = decode_segment(in_memory(META, [Section(b"", numbers)]))[1]
    assert memoryview(section.payload).cast("q").tolist() == list(range(300))


def test_views_of_rows_and_columns_are_bytes() -> None:
    square = memoryview(bytes(range(12))).cast("B", (3, 4))
    assert (as_bytes(square).ndim, len(as_bytes(square))) == (1, 12)


SMALL_SEGMENT = [Section(b"first", b"abc"), Section(b"", b""), Section(b"third", bytes(range(256)) * 5)]


@pytest.mark.parametrize("owner", ["worker-000", "monitor"])  # with and without zeros behind the table
def test_every_single_flipped_bit_is_detected(owner: str) -> None:
    good = bytes(in_memory(SegmentMeta(owner=owner, number=1, generation=0, incarnation=0, fence=0), SMALL_SEGMENT))
    decode_segment(good, "a", STORE)
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreCorrupt, match=r"worker-003/a is damaged at byte \d+: .+; restore it from a copy"):
            decode_segment(bad, "worker-003/a", STORE)


def test_every_truncation_is_detected_and_known_as_one() -> None:
    good = bytes(in_memory(META, SMALL_SEGMENT))
    for size in range(len(good)):
        for tail in (b"", bytes(len(good) - size), b"\x9d" * (len(good) - size)):
            with pytest.raises(StoreCorrupt) as caught:
                decode_segment(good[:size] + tail, "a", STORE)
            assert caught.value.torn
    with pytest.raises(StoreCorrupt, match="it should end here"):
        decode_segment(good + b"\0", "a", STORE)


def test_a_flipped_bit_is_not_taken_for_a_truncation() -> None:
    good = bytearray(in_memory(META, SMALL_SEGMENT))
    good[len(good) // 2] ^= 1
    with pytest.raises(StoreCorrupt, match="section 2 of 3") as caught:
        decode_segment(good, "a", STORE)
    assert not caught.value.torn


@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_are_refused(data: bytes, with_start: bool) -> None:
    start = bytes(in_memory(META, SMALL_SEGMENT))[:64] if with_start else b""
    with pytest.raises(StoreError):
        decode_segment(start + data, "a", STORE)


def forged(
    sizes: list[tuple[int, int]],
    body: bytes,
    head: bytes = msgspec.msgpack.encode(META),
    count: int | None = None,
    magic: bytes = format_._MAGIC,
) -> bytes:
    """A segment whose checksums are all right, whatever else is not. `sizes`: (head, payload) of each section."""
    index = len(head) + format_._ROW.size * len(sizes)
    start = format_._START + index
    at = start + -start % 8
    rest = bytes(at - start) + body
    total = format_._START + index + len(rest) + format_._TRAILER.size
    rest += format_._TRAILER.pack(total, format_._END)
    table = b""
    for length, size in sizes:
        following = at + length + -(at + length) % 8 + size
        following += -following % 8
        begin = at - start
        table += format_._ROW.pack(length, zlib.crc32(rest[begin : begin + following - at]), size)
        at = following
    described = head + table
    count = len(sizes) if count is None else count
    claimed = (described + rest)[: len(head) + format_._ROW.size * count]
    prefix = format_._PREFIX.pack(magic, format_.FORMAT, count, STORE, total, len(head), zlib.crc32(claimed))
    return prefix + format_._CRC.pack(zlib.crc32(prefix)) + described + rest


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (forged([(8, 8)], bytes(24)), "8 bytes belong to no section"),
        (forged([(8, 8)], bytes(8)), "section 0 of 1 goes past the end"),
        (forged([(8, 8)], bytes(16), count=40), "a table of 40 sections does not fit"),
        (forged([], b"", count=1), "a table of 1 sections does not fit"),
        (forged([(8, 8)], bytes(16), head=b"\xc1"), "is damaged at byte"),
        (forged([(8, 8)], bytes(16), magic=b"FALKIRK?"), "its first bytes are not those of a segment"),
    ],
)
def test_what_contradicts_itself_is_refused_though_every_checksum_is_right(data: bytes, why: str) -> None:
    decode_segment(forged([(8, 8)], bytes(16)), "a", STORE)
    with pytest.raises(StoreCorrupt, match=why):
        decode_segment(data, "a", STORE)


def test_a_start_that_claims_to_be_all_is_refused() -> None:
    prefix = format_._PREFIX.pack(format_._MAGIC, format_.FORMAT, 0, STORE, format_._START, 0, 0)
    with pytest.raises(StoreCorrupt, match=f"a segment of {format_._START} bytes cannot be"):
        decode_segment(prefix + format_._CRC.pack(zlib.crc32(prefix)), "a", STORE)


def test_the_id_of_a_store_has_one_length() -> None:
    with pytest.raises(ValueError, match="has 16 bytes, not 15"):
        encode_segment(META, [], STORE[1:])


def test_a_segment_of_another_store_is_refused() -> None:
    with pytest.raises(StoreCorrupt, match=rf"it belongs to the store {STORE.hex()}, not to this one \({'ff' * 16}\)"):
        decode_segment(in_memory(META, []), "a", b"\xff" * 16)


def test_another_version_is_named_with_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_, "FORMAT", 9)
    data = in_memory(META, SMALL_SEGMENT)
    monkeypatch.undo()
    with pytest.raises(StoreVersion, match="a is in format 9, and this version reads format 3; use the newer version"):
        decode_segment(data, "a", STORE)


@given(st.integers(0, 10**12))
@settings(max_examples=20)
def test_names_carry_numbers_and_sort_like_them(number: int) -> None:
    assert segment_number(segment_name("worker-000", number)) == number
    if number < 10**8 - 1:
        assert segment_name("w", number) < segment_name("w", number + 1)


@pytest.mark.parametrize(
    "name",
    [
        *("store", "w/segment-1", "w/segment-00000001.damaged", "w/segment-0000000a", "segment-", "w/section-00000001"),
        "w/segment-٠٠٠٠٠٠١٢",
    ],
)
def test_other_names_carry_none(name: str) -> None:
    assert segment_number(name) is None
