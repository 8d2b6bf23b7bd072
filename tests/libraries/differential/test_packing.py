"""Changes as columns of bytes: what is read is what was written, as narrow as it can be, and damaged bytes are refused."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.differential.channel import BY_KEY, ByPlace
from libraries.differential.packing import packed, unpacked, unpacked_tuples
from libraries.differential.rows import LEAST, NOTHING, Rows, Tuples, as_pairs, constant, rows_of, summed
from timely.data.codec import decode_batch, encode_batch
from timely.data.routing import partition_records
from timely.errors import CodecError

MOST = (1 << 63) - 1

ranges = st.sampled_from([(0, 0), (-3, 3), (0, 255), (0, 256), (-1000, 70_000), (5, 1 << 33), (LEAST, MOST)])


@st.composite
def columns(draw: st.DrawFn, count: int, least: int = LEAST) -> np.ndarray[Any, Any]:
    """A column of numbers from a narrow or a wide range; sometimes all are one."""
    low, high = draw(ranges)
    numbers = st.integers(max(low, least), high)
    if draw(st.integers(0, 3)) == 0:
        return constant(draw(numbers), count)
    return np.array(draw(st.lists(numbers, min_size=count, max_size=count)), np.int64)


@st.composite
def changes(draw: st.DrawFn) -> Rows:
    count = draw(st.integers(0, 40))
    value = constant(NOTHING, count) if draw(st.booleans()) else draw(columns(count))
    return Rows(draw(columns(count)), value, draw(columns(count, -(1 << 63))))


@given(st.lists(changes(), min_size=1, max_size=12))
def test_what_is_read_is_what_was_written(given: list[Rows]) -> None:
    header, payload = encode_batch(list(given))
    read = decode_batch(header, b"".join(payload))
    for before, after in zip(given, read, strict=True):
        assert after.pairs() == before.pairs()
        assert all(getattr(after, name).dtype == np.int64 for name in ("key", "value", "diff"))


@st.composite
def tuples(draw: st.DrawFn) -> Tuples:
    count = draw(st.integers(0, 40))
    width = draw(st.integers(1, 5))
    return Tuples(tuple(draw(columns(count)) for _ in range(width)), draw(columns(count, -(1 << 63))))


@given(st.lists(tuples(), min_size=1, max_size=4))
def test_tuples_are_read_as_they_were_written(given: list[Tuples]) -> None:
    header, payload = encode_batch(list(given))
    for before, after in zip(given, decode_batch(header, b"".join(payload)), strict=True):
        assert after.pairs() == before.pairs()
        assert len(after.columns) == len(before.columns)


@given(tuples(), st.data(), st.integers(2, 4))
def test_tuples_go_to_the_workers_of_what_they_have_in_a_place(
    given: Tuples, data: st.DataObject, workers: int
) -> None:
    place = data.draw(st.integers(0, len(given.columns) - 1))
    cut = data.draw(st.integers(0, len(given)))
    late = Tuples(tuple(each[cut:] for each in given.columns), given.diff[cut:])
    parts = ByPlace(place=place).split([given.head(cut), *late.pairs()], workers)
    wanted = partition_records(given.pairs(), lambda change: change[0][place], workers)
    for part, want in zip(parts, wanted, strict=True):
        assert Counter(as_pairs(part or [])) == Counter(want or [])


@pytest.mark.parametrize(
    "damage",
    [
        (),
        [0, 1, b"a"] * 2,
        (0, 1, b"a"),
        (0, 1, b"a") * 2 + (0,),
        (0, 1, b"ab", 0, 1, b"a"),
        (0, 0, b"", 0, 0, b""),
        (0, 1, b"a", 1, 0, b""),
        (0, 3, b"abc", 0, 1, b"a"),
        (LEAST - 1, 1, b"a", 0, 1, b"a"),
        (MOST, 1, b"a", 0, 1, b"a"),
    ],
)
def test_tuples_that_no_writer_gives_are_refused(damage: Any) -> None:
    with pytest.raises(CodecError, match=r"damaged (tuples|rows)"):
        unpacked_tuples(damage)


@pytest.mark.parametrize(
    ("rows", "each"),
    [
        (rows_of(range(1000)), 2),
        (rows_of(range(7, 207), range(0, 400_000, 2000)), 1 + 4),
        (rows_of(range(0, 1 << 40, 1 << 31), diff=-1), 8),
        (rows_of([1 << 60] * 500, range(-250, 250), [1, -1] * 250), 1 + 2 + 1),
    ],
)
def test_a_row_takes_as_few_bytes_as_its_numbers_need(rows: Rows, each: int) -> None:
    assert sum(len(part) for part in packed(rows) if type(part) is bytes) == each * len(rows)


@pytest.mark.parametrize(
    "damage",
    [
        (),
        (0, 1, b"a") * 2,
        [0, 1, b"a"] * 3,
        (0, 0, b"", 0, 0, b"", 0, 0, b""),
        (0, 1, b"abc", 0, 1, b"ab", 1, 0, b""),
        (0, 2, b"abc", 0, 0, b"", 1, 0, b""),
        (0, 3, b"abc", 0, 0, b"", 1, 0, b""),
        (0, True, b"abc", 0, 0, b"", 1, 0, b""),
        (0.0, 1, b"abc", 0, 0, b"", 1, 0, b""),
        (0, 1, "abc", 0, 0, b"", 1, 0, b""),
        (0, 1, b"abc", 0, 0, b"x", 1, 0, b""),
        (LEAST - 1, 1, b"abc", 0, 0, b"", 1, 0, b""),
        (0, 1, b"abc", NOTHING, 1, b"abc", 1, 0, b""),
        (0, 1, b"abc", NOTHING + 1, 0, b"", 1, 0, b""),
        (MOST, 1, b"abc", 0, 0, b"", 1, 0, b""),
        (0, 8, b"\xff" * 8, 0, 0, b"", 1, 0, b""),
        (1 << 63, 1, b"abc", 0, 0, b"", 1, 0, b""),
    ],
)
def test_what_no_writer_gives_is_refused(damage: Any) -> None:
    with pytest.raises(CodecError, match="damaged rows"):
        unpacked(damage)


def test_bytes_from_elsewhere_cannot_ask_for_more_memory_than_eight_times_their_number() -> None:
    many = b"\0" * (1 << 20)
    tracemalloc.start()
    rows = unpacked((0, 1, many, 5, 0, b"", 1, 0, b""))
    assert len(rows) == len(many)
    assert rows.value[-1] == 5
    assert tracemalloc.get_traced_memory()[1] < 9 * len(many)
    tracemalloc.stop()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 2)), min_size=1, max_size=20),
    st.booleans(),
    st.integers(2, 4),
)
def test_many_rows_go_to_the_workers_of_their_keys_and_add_up_to_what_they_were(
    few: list[tuple[int, int]], bare: bool, workers: int
) -> None:
    again = 1 + 5000 // len(few)
    keys = [key * 7 for key, _ in few] * again
    rows = rows_of(keys, None if bare else range(len(keys)), [by for _, by in few] * again)
    parts = BY_KEY.split([rows], workers)
    found: Counter[Any] = Counter()
    for worker, part in enumerate(parts):
        for record, by in as_pairs(part or []):
            found[record] += by
            key = record if bare else record[0]
            assert partition_records([(key, 0)], None, workers)[worker], "another worker owns it"
    wanted: Counter[Any] = Counter()
    for record, by in rows.pairs():
        wanted[record] += by
    assert {record: by for record, by in found.items() if by} == {record: by for record, by in wanted.items() if by}
    assert not bare or sum(len(each) for part in parts for each in part or []) <= 6, "each key travels once"


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.sampled_from([0, 1, 2, 1 << 40, -(1 << 61)]), st.integers(-2, 2)), max_size=60
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_rows_are_summed_up_in_order_whichever_way_is_taken(
    given: list[tuple[int, int, int]], narrow: bool, alike: bool, ordered: bool
) -> None:
    rows = [(key, abs(value) % 3 if narrow else value, 1 if alike else by) for key, value, by in given]
    rows = sorted(rows) if ordered else rows
    key, value, diff = np.array(rows, np.int64).reshape(-1, 3).T
    found, by = summed([key, value], constant(1, len(rows)) if alike else diff.copy())
    wanted: Counter[tuple[int, int]] = Counter()
    for one, other, times in rows:
        wanted[one, other] += times
    pairs = list(zip(found[0].tolist(), found[1].tolist(), strict=True))
    assert list(zip(pairs, by.tolist(), strict=True)) == sorted((pair, n) for pair, n in wanted.items() if n)
