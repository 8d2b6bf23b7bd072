"""Memory that is used again: never while anybody looks at it, and always when nobody does."""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.data.codec import decode_batch, encode_batch
from timely.data.pool import CHUNK, Pool

CHUNK_HERE = 1024


def take(pool: Pool, content: bytes, room: int) -> memoryview | None:
    """A view of what was written to the pool, as bytes that nobody else may write to."""
    given_out = pool.room(room)
    if given_out is None:
        return None
    given_out[: len(content)] = content
    pool.used(len(content))
    return given_out[: len(content)]


@given(st.lists(st.tuples(st.integers(0, CHUNK_HERE + 100), st.integers(0, 100), st.integers(0, 6)), max_size=60))
def test_what_somebody_looks_at_stays_as_it_is(steps: list[tuple[int, int, int]]) -> None:
    pool, held = Pool(CHUNK_HERE), list[tuple[bytes, memoryview]]()
    for number, (room, used, dropped) in enumerate(steps):
        content = bytes([number]) * min(room, used)
        view = take(pool, content, room)
        assert (view is None) == (room > CHUNK_HERE)
        if view is not None:
            held.append((content, view))
        del held[:dropped]
        view = None
        assert all(bytes(view) == content for content, view in held)


def test_a_pool_is_as_large_as_what_was_used_at_the_same_time() -> None:
    pool = Pool(CHUNK_HERE)
    for _ in range(10):  # what is forgotten is used again, however often
        held = [take(pool, b"x" * 400, 400) for _ in range(20)]
        assert pool.size == 10 * CHUNK_HERE
        held.clear()
    one = [take(pool, b"x" * 400, 400)]
    for _ in range(50):
        one[:] = [take(pool, b"y" * 400, 400)]
    assert pool.size == 10 * CHUNK_HERE


def test_what_was_not_used_is_given_out_again() -> None:
    pool = Pool(CHUNK_HERE)
    held = [take(pool, b"abc", CHUNK_HERE - 64 * number) for number in range(16)]
    assert pool.size == CHUNK_HERE
    assert all(view is not None and bytes(view) == b"abc" for view in held)


def tables() -> list[Any]:
    rng = np.random.default_rng(7)
    rows = 5_000
    words = pa.array([f"word{number % 700}" for number in range(rows)])
    plain = pa.table({"key": rng.integers(0, 9, rows), "value": rng.random(rows), "word": words})
    pieces = pa.concat_tables([plain.slice(at, 1) for at in range(3_000)])
    return [
        plain,
        plain.slice(1_000, 3_000),
        plain.set_column(2, "word", words.dictionary_encode()),
        pieces,  # each row with a head of its own: more than there is room for
        pa.table(
            {"list": pa.array([[1, None]] * rows), "nothing": pa.nulls(rows), "flag": pa.array([True, None] * 2500)}
        ),
        pl.DataFrame({"key": range(rows), "text": ["a longer text than is kept within a view"] * rows}),
    ]


@pytest.mark.parametrize("number", range(6))
def test_columns_come_back_from_a_pool_as_from_any_memory(number: int) -> None:
    batch, pool = tables()[number], Pool()
    header, (payload,) = encode_batch(batch, pool)
    expected_header, (expected,) = encode_batch(batch)
    assert header == expected_header
    assert bytes(payload) == bytes(expected)
    back: Any = decode_batch(header, payload)
    assert back.equals(batch)
    assert pool.size == CHUNK


def test_few_rows_and_records_need_no_pool() -> None:
    pool = Pool()
    encode_batch([1, 2, 3], pool)
    encode_batch(pa.table({"key": range(100)}), pool)
    encode_batch(pa.table({"key": np.zeros(CHUNK // 8)}), pool)  # too large for a chunk, with its head
    assert pool.size == 0


def test_batches_that_are_left_of_a_message_keep_its_memory() -> None:
    """A receiver in the same process looks at it for longer than the sender keeps the message."""
    random, pool = Random(7), Pool()
    held: list[tuple[int, Any]] = []
    for number in range(120):
        table = pa.table({"key": np.full(60_000, number), "other": np.arange(60_000)})
        header, (payload,) = encode_batch(table, pool)
        batch: Any = decode_batch(header, payload, trusted=True)
        column = batch["key"].to_numpy() if number % 2 else pl.from_arrow(batch)["key"]
        del payload, batch, table
        held.append((number, column))
        random.shuffle(held)
        del held[8:]
        for known, kept in held:
            assert (kept == known).all()
    gc.collect()
    assert pool.size <= 9 * CHUNK
