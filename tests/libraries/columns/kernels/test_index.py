"""Indexes from keys to dense ids, against a Python dictionary."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from libraries.columns.kernels.index import ColumnIndex, Encoder, KeyIndex
from timely.data.kernels import tables
from timely.data.kernels.columns import TINY
from timely.data.kernels.tables import IntTable, StringTable

texts = st.text(max_size=4) | st.sampled_from(["x" * n + end for n in range(6, 40) for end in ("", "\0", "y")])


def first_seen(values: list[Any]) -> list[int]:
    known: dict[Any, int] = {}
    return [known.setdefault(value, len(known)) for value in values]


@settings(max_examples=40)
@given(st.lists(texts, max_size=300), st.sampled_from([pa.string(), pa.large_string()]), st.integers(0, 3))
def test_strings_get_ids_in_order_of_first_sight(values: list[str], kind: pa.DataType, skip: int) -> None:
    table = StringTable()
    column = pa.array(["?"] * skip + values, kind)[skip:]  # a slice, so offsets do not start at 0
    assert table.ids(column).tolist() == first_seen(values)
    assert table.values().to_pylist() == list(dict.fromkeys(values))


def test_tables_grow_far_beyond_their_first_size() -> None:
    rng = np.random.default_rng(3)
    numbers = rng.integers(-(2**63), 2**63 - 1, 30_000)[rng.integers(0, 30_000, 90_000)]
    words = [f"{n}" * (1 + n % 3) for n in numbers.tolist()]
    strings, integers = StringTable(), IntTable()
    early = None
    for part in range(0, 90_000, 9_000):
        s = strings.ids(pa.array(words[part : part + 9_000]))
        i = integers.ids(numbers[part : part + 9_000])
        assert s.tolist() == i.tolist() == first_seen(numbers.tolist()[: part + 9_000])[part:]
        early = early or strings.values()
    assert early is not None
    assert early.to_pylist() == strings.values().to_pylist()[: len(early)]
    assert integers.values().tolist() == list(dict.fromkeys(numbers.tolist()))


def test_a_large_table_moves_a_little_at_a_time_and_finds_all_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_AT_ONCE", 16)
    rng = np.random.default_rng(4)
    given = rng.integers(-(2**63), 2**63 - 1, 60_000)
    given[1::2] = given[rng.integers(0, 30_000, 30_000) * 2]  # half of them come again
    table, moving = IntTable(), 0
    known: dict[int, int] = {}
    for start in range(0, len(given), 500):
        part = given[start : start + 500].tolist()
        assert table.ids(given[start : start + 500]).tolist() == [known.setdefault(each, len(known)) for each in part]
        moving += table._old.size > 0
    assert table.values().tolist() == list(known)
    assert moving > 10


instants = st.integers(-(2**40), 2**40)
HOUR_TWICE = [1_729_987_200_000_000 + hour * 3_600_000_000 for hour in range(4)]
"""Instants around the end of summer time in Berlin: two of them have one time on the clock."""

KINDS: list[tuple[pa.DataType, Any]] = [
    (pa.string(), texts),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.decimal128(9, 2), st.decimals(-99, 99, places=2)),
    (pa.uint64(), st.integers(0, 2**64 - 1) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1])),
    (pa.timestamp("us", "Europe/Berlin"), instants | st.sampled_from(HOUR_TWICE)),
    (pa.timestamp("ns"), instants),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999) | st.integers(0, 3)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.duration("ns"), instants | st.integers(0, 3)),
    (pa.date32(), st.integers(-99, 99)),
]


def column_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column of what stands in it: of times integers, which are not rounded as Python's are."""
    if not pa.types.is_temporal(kind):
        return pa.array(values, kind)
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def held_in(column: pa.Array) -> list[Any]:
    """The inverse of `column_of`."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    found: list[Any] = column.to_pylist()
    return found


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=[str(k) for k, _ in KINDS])
@settings(max_examples=25)
@given(data=st.data())
def test_ids_are_the_same_for_tiny_and_big_batches(kind: pa.DataType, values: Any, data: Any) -> None:
    pool = data.draw(st.lists(st.none() | values, min_size=1, max_size=20))
    sizes = data.draw(st.lists(st.sampled_from([1, 7, TINY, 200]), min_size=1, max_size=5))
    rng = np.random.default_rng(len(pool))
    index, fed = ColumnIndex(), []
    coded = data.draw(st.booleans())
    for size in sizes:
        picked = [pool[i] for i in rng.integers(0, len(pool), size)]
        fed += picked
        column = column_of(picked, kind)
        ids = index.ids(column.dictionary_encode() if coded else column)
        assert ids.tolist() == first_seen(fed)[-size:]
    distinct = list(dict.fromkeys(fed))
    assert held_in(index.values()) == distinct
    kept = len(distinct) // 2
    index.truncate(kept)
    assert len(index) == kept
    if kept:
        assert held_in(index.values()) == distinct[:kept]
    assert index.ids(column_of(distinct[kept:], kind)).tolist() == list(range(kept, len(distinct)))


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.none() | st.sampled_from("abc"), st.integers(0, 3), st.booleans()), min_size=1, max_size=99)
)
def test_keys_of_several_columns(rows: list[Any]) -> None:
    index = KeyIndex(3)
    columns = [pa.array(c, t) for c, t in zip(zip(*rows), [pa.string(), pa.int64(), pa.bool_()])]
    ids = index.ids(columns)
    assert ids.tolist() == first_seen(rows)
    assert list(zip(*(c.to_pylist() for c in index.keys(ids)))) == rows
    kept = list(dict.fromkeys(rows))[: len(index) // 2]
    index.truncate(len(kept))
    assert index.ids(columns).tolist() == first_seen(kept + rows)[len(kept) :]


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 30, 400, 3000]), min_size=1, max_size=8),
    chance=st.integers(0, 999).map(np.random.default_rng),
    ranges=st.lists(st.sampled_from([2, 60, 2**62]), min_size=2, max_size=3),
    other=st.sampled_from([None, "null", "float", "leading"]),
    data=st.data(),
)
def test_keys_of_several_integers_are_one_table_until_others_come(
    sizes: list[int], chance: np.random.Generator, ranges: list[int], other: str | None, data: Any
) -> None:
    """Ids are by order of first sight, in the table and in pairs, when it grows, is cut, and is given up."""
    tables.compiled_loops()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_AT_ONCE", 16)
        index, known = KeyIndex(len(ranges)), dict[Any, int]()
        given_up = data.draw(st.integers(0, len(sizes)))
        for turn, size in enumerate(sizes):
            drawn = [chance.integers(-each, each, size) for each in ranges]
            columns = [pa.array(column) for column in drawn]
            if turn >= given_up and other == "null" and size:
                columns[0] = pa.array([None, *drawn[0][1:].tolist()], pa.int64())
            elif turn == given_up and other == "float" and size and len(known):
                with pytest.raises(TypeError, match="was of type int64 and is now double"):
                    index.ids([*columns[:-1], columns[-1].cast(pa.float64(), safe=False)])
            elif turn >= given_up and other == "leading":
                of = index.leading(columns[:-1])
                assert of.tolist() == index.leading(columns[:-1]).tolist()
            rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
            assert index.ids(columns).tolist() == [known.setdefault(row, len(known)) for row in rows]
            assert len(index) == len(known)
            if known and data.draw(st.integers(0, 3)) == 0:
                kept = data.draw(st.integers(0, len(known) - 1))
                index.truncate(kept)
                known = dict(list(known.items())[:kept])
            if known:
                held = index.keys(None)
                assert list(zip(*(column.to_pylist() for column in held), strict=True)) == list(known)
                names, some = [f"k{n}" for n in range(len(ranges))], np.arange(len(known), dtype=np.intp)[::2]
                if (found := index.series(names, some)) is not None:
                    assert list(zip(*(column.to_list() for column in found), strict=True)) == list(known)[::2]


def test_a_dictionary_that_grew_is_looked_up_only_where_it_is_new() -> None:
    index = ColumnIndex()
    encoder = Encoder()
    words = [f"w{i % 7000}" for i in range(20_000)]
    for part in range(0, 20_000, 1000):
        encoded = encoder.encode(pa.array(words[part : part + 1000]))
        assert pa.types.is_dictionary(encoded.type)
        assert index.ids(encoded).tolist() == first_seen(words)[part : part + 1000]
    assert index.ids(pa.array(words[:5]).dictionary_encode()).tolist() == [0, 1, 2, 3, 4]


def test_a_key_column_may_not_change_its_type() -> None:
    index = ColumnIndex()
    index.ids(pa.array([1]))
    with pytest.raises(TypeError, match="was of type int64 and is now string"):
        index.ids(pa.array(["a"]))


@pytest.mark.check
def test_kernels_work_where_nothing_can_be_cached() -> None:
    code = (
        "from timely.data.kernels import compiled, tables; import numba\n"
        "def refuse(*args, **kw):\n"
        "    if kw.pop('cache', False): raise RuntimeError('cannot cache function: no locator available')\n"
        "    return real(*args, **kw)\n"
        "real, numba.njit = numba.njit, refuse\n"
        "import numpy as np, importlib; importlib.reload(compiled)\n"
        "print(tables.IntTable().ids(np.array([5, 5, 6])).tolist())"
    )
    root = str(Path(timely.__path__[0]).parent)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}
    )
    assert done.stdout.strip() == "[0, 0, 1]", done.stderr


def test_numba_is_not_loaded_by_tiny_batches() -> None:
    code = (
        "import sys, pyarrow as pa; from libraries.columns.operators.aggregate import ColumnAggregate\n"
        "from libraries.columns.kernels.index import ColumnIndex; ColumnIndex().ids(pa.array([1, 2, 1]))\n"
        "print('numba' in sys.modules)"
    )
    root = str(Path(timely.__path__[0]).parent)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}
    )
    assert done.stdout.strip() == "False", done.stderr
