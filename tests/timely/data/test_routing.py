"""Routing: one hash for equal keys, wherever they stand; shards in ranges; partitions that lose and reorder nothing."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timely.data.routing import (
    SHARDS,
    hash_column,
    hash_columns,
    partition,
    partition_columns,
    partition_records,
    shard_of,
    shards_of,
    stable_hash,
    worker_of_shard,
)
from timely.errors import CodecError


@dataclass(frozen=True)
class Place:
    row: int
    column: str


class Cell(NamedTuple):
    row: int
    column: str


class Frozen(msgspec.Struct, frozen=True):
    row: int


class Fluid(msgspec.Struct):
    row: int


@dataclass
class Loose:
    row: int


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


GOLDEN: list[tuple[Any, int]] = [
    (None, 0xFA23FD5B103B9439),
    (0, 0x0000000000000000),
    (1, 0x17FB89EE8A313DC4),
    (-1, 0x1F9B169DF08B3B57),
    (2**40, 0x7ECDC648B3010F00),
    (2**61, 0x17FB89EE8A313DC4),
    (2**63 - 1, 0xE7D92AE621EC2CE9),
    (-(2**63), 0xC5E45A558EE0E882),
    (2**100, 0xF293E1EDD9808780),
    (0.5, 0x8FFC1F3DF0000000),
    (-0.1, 0x25CE57EAFA8AAE32),
    (1e300, 0x318D602BEEE95AEA),
    (float("inf"), 0x5285A9E0EA8CCFA9),
    (float("-inf"), 0x18A607912B091755),
    (float("nan"), 0xBF58C710BB37F8FB),
    ("", 0xC049D5A9F493AAFC),
    ("a", 0xEFE7ED03CAF11261),
    ("Ferrière 🙂", 0x638E392CC8CC7961),
    (b"", 0x7837014300131E59),
    (b"\x00\xff", 0xCF6A2C37C8F39785),
    ((), 0x1D8E4E27C47D124F),
    (("a", 1), 0x3E71CD9B9CA3CC21),
    ((("a", None), 2.5), 0xCAA1402ABF8564DD),
    (frozenset([1, "a"]), 0x5279288D7EBDD2F7),
    (Decimal("1.10"), 0x9E598B29F0B7BD60),
    (dt.date(2024, 2, 29), 0x0F5C23550FCF37EA),
    (dt.datetime(2024, 2, 29, 12, 30, 1, 5), 0x258A5D74EEA5BA14),
    (dt.datetime(1900, 1, 1, tzinfo=dt.UTC), 0xC106BCA159B5D801),
    (dt.time(12, 30), 0x04D027518A69A546),
    (dt.timedelta(-1, 5), 0x493482940C618806),
    (uuid.UUID(int=2**127), 0xEB2809FB6E93EE2C),
    (Colour.RED, 0x7284FC7E1911D0BC),
    (Place(1, "a"), 0x48D8ED78FD0A6CA2),
]


@pytest.mark.parametrize(
    ("key", "expected"), GOLDEN, ids=[f"{i}-{type(key).__name__}" for i, (key, _) in enumerate(GOLDEN)]
)
def test_hash_never_changes(key: Any, expected: int) -> None:
    """Stores are sharded by these values: a failure here means that every existing store would be misread."""
    assert stable_hash(key) == expected


NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**62), 2**62),
    st.sampled_from([n + d for n in (2**53, 2**60, 2**61, 2**63, 2**64, -(2**61), -(2**63)) for d in (-1, 0, 1)]),
    st.floats(allow_nan=False),
    st.booleans(),
    st.decimals(allow_nan=False),
    st.integers(-8, 8).map(float),
    st.integers(-64, 64).map(lambda n: Decimal(n) / 16),
    st.integers(-64, 64).map(lambda n: n / 16),
)


@given(NUMBERS)
def test_equal_numbers_of_any_type_hash_equal(number: Any) -> None:
    others: list[Any] = [Decimal(number)]
    if abs(number) < 10**400 and number == int(number):
        others.append(int(number))
    if abs(number) < 1e300 and float(number) == number:
        others.append(float(number))
        others.append(np.float64(number))
    for other in others:
        if other == number:
            assert stable_hash(other) == stable_hash(number)


@pytest.mark.parametrize(
    "keys",
    [
        (1, 1.0, True, Decimal(1), Level.LOW, np.int8(1), np.bool_(True)),
        (0, -0.0, False, Decimal("-0")),
        ("a", Word.A, np.str_("a")),
        (0.1, np.float64(0.1), Decimal.from_float(0.1)),
        (np.float32(0.1), float(np.float32(0.1))),
        ((1, "a"), Cell(1, "a"), (True, "a")),
        (float("inf"), Decimal("Infinity")),
        (frozenset([1, 2, 3]), frozenset([3, 2.0, True])),
        (dt.datetime(2024, 6, 1, 12, tzinfo=ZoneInfo("Europe/Rome")), dt.datetime(2024, 6, 1, 10, tzinfo=dt.UTC)),
        (Place(1, "a"), Place(True, "a")),
        (Frozen(1), Frozen(True)),  # type: ignore[arg-type]
    ],
    ids=lambda keys: repr(keys[0])[:30],
)
def test_keys_that_python_holds_equal_hash_equal(keys: tuple[Any, ...]) -> None:
    assert all(key == keys[0] for key in keys)
    assert len({stable_hash(key) for key in keys}) == 1


def test_different_keys_mostly_differ() -> None:
    keys = [
        *(None, 0, 1, -1, 2**59, 0.5, "", "a", "b", "ab", b"", b"a", (), (0,), (0, 0), (1, 0), (0, 1), ("a", ("b",))),
        *(("a", "b"), frozenset(), frozenset([1]), dt.date(1970, 1, 2), dt.datetime(1970, 1, 2), dt.time(0, 0, 1)),
        *(dt.timedelta(1), uuid.UUID(int=1), Colour.RED, float("inf"), float("-inf"), float("nan")),
    ]
    assert len({stable_hash(key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    "keys",
    [
        range(50_000),
        range(0, 50_000 * 1024, 1024),
        range(0, 50_000 << 32, 1 << 32),
        [float(n) / 8 for n in range(50_000)],
        [f"word{n}" for n in range(50_000)],
        [(n, n % 7) for n in range(50_000)],
    ],
    ids=["dense", "stride_1024", "stride_2_32", "eighths", "text", "pairs"],
)
def test_shards_are_evenly_filled(keys: Any) -> None:
    counts = Counter(shard_of(stable_hash(key)) for key in keys)
    assert len(counts) == SHARDS
    assert max(counts.values()) < 2 * len(keys) / SHARDS  # 49 each; a random spread stays below 80


COLUMNS = {
    "int8": (st.integers(-128, 127), pa.int8()),
    "int64": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "uint64": (st.integers(0, 2**64 - 1), pa.uint64()),
    "double": (st.floats(), pa.float64()),
    "float": (st.floats(width=32), pa.float32()),
    "bool": (st.booleans(), pa.bool_()),
    "text": (st.text(), pa.string()),
    "binary": (st.binary(), pa.binary()),
    "date": (st.dates(), pa.date32()),
    "timestamp": (st.datetimes(), pa.timestamp("us")),
    "timestamp_ms": (
        st.datetimes().map(lambda t: t.replace(microsecond=0)),
        pa.timestamp("ms"),
    ),
    "timestamp_zone": (st.datetimes(timezones=st.just(dt.UTC)), pa.timestamp("us", "Europe/Rome")),
    "duration": (st.timedeltas(dt.timedelta(-(10**8)), dt.timedelta(10**8)), pa.duration("us")),
    "time": (st.times(), pa.time64("us")),
    "decimal": (st.decimals(-(10**9), 10**9, places=3), pa.decimal128(20, 3)),
    "null": (st.none(), pa.null()),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_columns_hash_as_records_do(name: str, data: st.DataObject) -> None:
    strategy, kind = COLUMNS[name]
    keys = data.draw(st.lists(st.none() | strategy, max_size=12))
    array = pa.array(keys, kind)
    expected = [stable_hash(key) for key in keys]
    shapes: list[Any] = [
        array,
        pa.concat_arrays([array, array])[len(keys) :],
        pa.chunked_array([array.slice(0, 3), array.slice(3)], kind),
        pl.Series(pl.from_arrow(array)) if len(keys) else array,
    ]
    if name != "null":
        shapes.append(array.dictionary_encode())
    if name == "text":
        shapes += [array.cast(pa.large_string()), array.cast(pa.string_view()), pl.Series(keys, dtype=pl.Categorical)]
    for shape in shapes:
        assert hash_column(shape).tolist() == expected


def test_numpy_columns_hash_as_records_do() -> None:
    for array in (
        np.array([True, False]),
        np.arange(-3, 3, dtype=np.int16),
        np.array([0.5, np.nan, -0.0, 1e300]),
        np.array(["a", ""]),
    ):
        assert hash_column(array).tolist() == [stable_hash(key) for key in array.tolist()]


def test_few_rows_of_a_large_dictionary_hash_as_records_do() -> None:
    words = [f"word{n}" for n in range(5000)]
    part = pa.array([*words, None]).dictionary_encode()[4990:]
    assert hash_column(part).tolist() == [stable_hash(word) for word in [*words[4990:], None]]


@given(st.lists(st.tuples(st.integers(-5, 5), st.text(max_size=2), st.none() | st.booleans()), max_size=9))
def test_several_columns_hash_as_tuples(keys: list[tuple[Any, ...]]) -> None:
    a, b, c = (pa.array([key[i] for key in keys], kind) for i, kind in enumerate((pa.int64(), pa.string(), pa.bool_())))
    before = a.to_pylist()
    assert hash_columns([a, b, c]).tolist() == [stable_hash(key) for key in keys]
    assert hash_columns([a]).tolist() == [stable_hash(key[0]) for key in keys]
    assert a.to_pylist() == before


def test_hashing_leaves_the_column_as_it_was() -> None:
    array = np.arange(10)
    hash_columns([array, array])
    assert array.tolist() == list(range(10))


def test_hash_is_the_same_in_a_process_with_another_seed() -> None:
    program = "from timely.data.routing import stable_hash as h; print(h(('a', 1.5, b'x', frozenset('abc'), None)))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{stable_hash(('a', 1.5, b'x', frozenset('abc'), None))}\n"}


@pytest.mark.parametrize(
    "key",
    [[1], {}, object(), Loose(1), Fluid(1), (1, [2]), {1}, np.datetime64("2024-01-01")],
    ids=lambda key: type(key).__name__,
)
def test_what_has_no_stable_hash_is_refused(key: Any) -> None:
    for call in (
        lambda: stable_hash(key),
        lambda: partition_records([(key, 1)], None, 2),
        lambda: partition_records([(key, 1)] * 99, None, 2),
    ):
        with pytest.raises(CodecError, match="cannot be a key"):
            call()


def test_column_without_a_stable_hash_is_refused() -> None:
    for column in (pa.array([[1]]), pa.array([{"a": 1}])):
        with pytest.raises(CodecError, match="cannot be a key"):
            hash_column(column)


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 100, 1024])
def test_workers_own_balanced_contiguous_ranges(workers: int) -> None:
    owners = [worker_of_shard(shard, workers) for shard in range(SHARDS)]
    assert owners == sorted(owners)
    sizes = Counter(owners)
    assert set(sizes) == set(range(workers))
    assert max(sizes.values()) - min(sizes.values()) <= 1


RECORDS = st.lists(
    st.tuples(st.one_of(st.integers(0, 30), st.text(max_size=1), st.none(), st.floats()), st.integers()), max_size=150
)


@given(RECORDS, st.sampled_from([1, 2, 3, 5, 300]))
def test_records_go_to_their_owner_in_order(records: list[Any], workers: int) -> None:
    expected: list[list[Any]] = [[] for _ in range(workers)]
    for record in records:
        expected[worker_of_shard(shard_of(stable_hash(record[0])), workers)].append(record)
    assert partition_records(records, None, workers) == expected
    assert partition_records(records, lambda record: record[0], workers) == expected


@given(st.lists(st.integers(-(2**70), 2**70), min_size=60, max_size=80))
def test_integer_keys_of_any_size_go_to_their_owner(keys: list[int]) -> None:
    for n in (keys, [key % 1000 for key in keys]):
        parts = partition_records(n, int, 2)
        assert parts == [[k for k in n if worker_of_shard(shard_of(stable_hash(k)), 2) == w] for w in (0, 1)]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", None])), max_size=60),
    st.sampled_from([1, 2, 3, 300]),
)
def test_columns_go_where_records_go(rows: list[tuple[int, str | None]], workers: int) -> None:
    table = pa.table(
        {"k": pa.array([k for k, _ in rows], pa.int32()), "w": pa.array([w for _, w in rows], pa.string())}
    )
    for columns in (
        table,
        table.set_column(1, "w", table["w"].combine_chunks().dictionary_encode()),
        pl.DataFrame(table),
    ):
        for keys, key in ((["k"], lambda row: row[0]), (["w", "k"], lambda row: (row[1], row[0]))):
            parts = partition_columns(columns, keys, workers)
            got = [[] if part is None else pl.DataFrame(part).cast({"w": pl.String}).rows() for part in parts]
            assert got == partition_records(rows, key, workers)
            assert all(part is None or (type(part) is type(columns) and len(part)) for part in parts)


@given(
    least=st.sampled_from([-(2**63), -(2**61) + 1, -5, 10**6]),
    span=st.sampled_from([1, 100, 2**40, 2**60]),
    size=st.sampled_from([8192, 9001]),
    kind=st.sampled_from([pa.int64(), pa.int32(), pa.uint64()]),
    workers=st.integers(2, 9),
    null=st.booleans(),
)
@settings(max_examples=settings.default.max_examples // 5)
def test_many_rows_of_numbers_go_to_the_owners_of_their_keys_in_order(
    least: int, span: int, size: int, kind: pa.DataType, workers: int, null: bool
) -> None:
    rng = np.random.default_rng(size)
    keys = least + rng.integers(0, span, size) if kind == pa.int64() else rng.integers(0, min(span, 2**31), size)
    floats = pa.array(rng.random(size), mask=np.arange(size) == 7) if null else rng.random(size)
    table = pa.table({"v": floats, "k": pa.array(keys, kind), "row": np.arange(size)})
    owners = np.array([worker_of_shard(shard_of(stable_hash(int(key))), workers) for key in keys])
    parts = partition_columns(table, ["k"], workers)
    assert [part is None for part in parts] == [not (owners == worker).any() for worker in range(workers)]
    for worker, part in enumerate(parts):
        if part is not None:
            assert part.equals(table.take(pa.array(np.flatnonzero(owners == worker))).combine_chunks())


def test_shards_of_a_column_are_the_upper_bits() -> None:
    hashes = hash_column(np.arange(1000))
    assert shards_of(hashes).tolist() == [shard_of(stable_hash(n)) for n in range(1000)]


def test_partition_takes_either_kind_and_says_what_it_needs() -> None:
    assert [part for part in partition([1, 2, 3], lambda n: 0, 2) if part] == [[1, 2, 3]]
    table = pa.table({"a": [0, 0]})
    assert [part for part in partition(table, "a", 2) if part is not None] == [table]
    with pytest.raises(CodecError, match="no key column 'b'; the columns are"):
        partition(table, "b", 2)
    with pytest.raises(CodecError, match="exchange"):
        partition(table, None, 2)
    with pytest.raises(CodecError, match="function"):
        partition([1], "a", 2)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_long_columns_hash_as_short_ones_and_as_records(kind: pa.DataType) -> None:
    values: list[Any] = [f"wort-{i}-\u00e4" * (i % 4) for i in range(5000)] + [None, ""]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [None if value is None else value.encode() for value in values]
    column = pa.array(values, kind)
    long = hash_column(column)
    assert long.tolist() == [stable_hash(value) for value in values]
    assert long[3:].tolist() == hash_column(column[3:]).tolist()
    assert hash_column(column[10:20]).tolist() == long[10:20].tolist()


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())])], ids=str
)
def test_a_column_that_cannot_be_a_key_is_named(kind: pa.DataType) -> None:
    table = pa.table({"k": pa.nulls(2, kind), "v": [1, 2]})
    with pytest.raises(CodecError, match=r"column 'k' of type .* cannot be a key"):
        partition_columns(table, ["v", "k"], 2)
