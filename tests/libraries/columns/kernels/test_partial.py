"""Partial tables: few rows and many take different ways, and come to the same."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.kernels import grouping
from libraries.columns.kernels import partial as partials
from libraries.columns.kernels.added import grouped, table_of, ungrouped
from libraries.columns.kernels.partial import combine, partial
from libraries.columns.kernels.parts import EXACT, Part
from timely.data.sums.terms import is_terms, rounded, terms_of

VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any], bool]] = [
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1), True),
    (pa.int8(), st.integers(-128, 127), True),
    (pa.uint64(), st.integers(0, (1 << 63) - 1), True),
    (pa.uint64(), st.integers(0, (1 << 64) - 1), False),
    (pa.float64(), st.sampled_from([0.5, -0.0, 2.25, float("nan"), float("inf")]), True),
    (pa.float32(), st.sampled_from([0.5, 1.5, -4.0]), True),
    (pa.bool_(), st.booleans(), True),
    (pa.date32(), st.dates(dt.date(1970, 1, 1), dt.date(2100, 1, 1)), False),
    (pa.timestamp("us"), st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1)), False),
    (pa.decimal128(12, 2), st.decimals(-999, 999, places=2), True),
    (pa.string(), st.text(max_size=3), False),
    (pa.large_string(), st.text(max_size=3), False),
    (pa.binary(), st.binary(max_size=3), False),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b", "c"]), False),
    (pa.null(), st.none(), True),
]
"""Types of values, and whether they can be added up."""

KEYS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-2, 2)),
    (pa.string(), st.sampled_from(["a", "b", ""])),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b"])),
    (pa.float64(), st.sampled_from([0.0, -0.0, float("nan")])),
    (pa.uint64(), st.sampled_from([0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])),
    (pa.date32(), st.sampled_from([dt.date(1970, 1, 1), dt.date(2024, 10, 27)])),
]


def parts_for(adds: bool) -> list[Part]:
    compared = [Part("rows"), Part("values", "v"), Part("min", "v"), Part("max", "v")]
    return [*compared, Part("sum", "v")] if adds else compared


def rows_of(table: pa.Table) -> list[str]:
    """As text, for NaN equals NaN; the order of keys does not count, nor that a sum may be of more than 64 bits, or of several
    terms."""
    table = shown(table)
    exact = [name for name, kind in zip(table.column_names, table.schema.types, strict=True) if kind.equals(EXACT)]
    return sorted(repr({**row, **{name: int(row[name]) for name in exact}}) for row in table.to_pylist())


def shown(table: pa.Table) -> pa.Table:
    """With sums of floats rounded."""
    for number, column in enumerate(table.columns):
        if is_terms(column.type):
            table = table.set_column(number, table.column_names[number], rounded_column(column))
    return table


def rounded_column(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    empty = whole.is_null().to_numpy(zero_copy_only=False)
    found = np.zeros(len(whole))
    found[~empty] = rounded(terms_of(whole.drop_null()))
    return pa.array(found, mask=empty)


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.Table, list[str], bool]:
    kind, values, adds = draw(st.sampled_from(VALUES))
    columns: dict[str, pa.Array] = {}
    rows = draw(st.integers(1, 12))
    for name in ("k", "l")[: draw(st.integers(1, 2))]:
        of, keys = draw(st.sampled_from(KEYS))
        columns[name] = pa.array(draw(st.lists(keys | st.none(), min_size=rows, max_size=rows)), of)
    keys_ = list(columns)
    nulls = draw(st.booleans())
    columns["v"] = pa.array(draw(st.lists(values | st.none() if nulls else values, min_size=rows, max_size=rows)), kind)
    return pa.table(columns), keys_, adds


@given(batches())
def test_rows_added_up_one_by_one_are_the_partial_table(batch: tuple[pa.Table, list[str], bool]) -> None:
    table, keys, adds = batch
    parts = parts_for(adds)
    few = partial(table, keys, parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "TINY", 0)
        patch.setattr(partials, "TINY", 0)
        many = partial(table, keys, parts)
    assert few.schema.names == many.schema.names
    for one, other in zip(few.schema.types[len(keys) :], many.schema.types[len(keys) :], strict=True):
        assert one.equals(other) or (one, other) == (EXACT, pa.int64())  # few rows are not looked at so closely
    assert rows_of(few) == rows_of(many)


@given(st.lists(batches(), min_size=1, max_size=3))
def test_a_table_of_rows_that_are_not_grouped_is_as_good_as_a_partial_one(
    several: list[tuple[pa.Table, list[str], bool]],
) -> None:
    first, keys, adds = several[0]
    parts = parts_for(adds)
    tables = [table for table, _, _ in several if table.schema.equals(first.schema)]
    sent = [table_of(ungrouped(table, keys, parts), keys, parts) for table in tables]
    assert all(len(one) == len(table) for one, table in zip(sent, tables, strict=True))
    here = combine([ungrouped(table, keys, parts) for table in tables], keys, parts)
    there = combine([grouped(table, keys, parts) for table in sent], keys, parts)
    before = combine([grouped(partial(table, keys, parts), keys, parts) for table in tables], keys, parts)
    assert rows_of(here) == rows_of(there) == rows_of(before)


@pytest.mark.parametrize(("kind", "what"), [("sum", "added up"), ("min", "compared")])
def test_what_cannot_be_added_up_or_compared_is_refused_in_few_rows_as_in_many(kind: Any, what: str) -> None:
    for rows in (1, 2000):
        table = pa.table({"k": [1] * rows, "v": pa.array([[1]] * rows)})
        with pytest.raises(TypeError, match=f"column 'v' of type list.* cannot be {what}"):
            partial(table, ["k"], [Part(kind, "v")])


def test_sums_beyond_64_bits_are_exact_in_few_rows() -> None:
    table = pa.table({"k": [1, 1, 2], "v": [(1 << 63) - 1, (1 << 63) - 1, 5]})
    found = partial(table, ["k"], [Part("sum", "v")]).to_pylist()
    assert found == [{"k": 1, "sum(v)": Decimal((1 << 64) - 2)}, {"k": 2, "sum(v)": Decimal(5)}]


@given(
    least=st.sampled_from([-(1 << 63), -7, 0, (1 << 63) - 100_001]),
    span=st.sampled_from([1, 3, 20_000, 60_000, 100_000]),
    step=st.sampled_from([1, 2, 3]),
    sizes=st.lists(st.sampled_from([1, 700, 8192, 9001]), min_size=1, max_size=3).map(lambda some: [*some, 8192]),
    nan=st.booleans(),
    large=st.booleans(),
)
@settings(max_examples=settings.default.max_examples // 5)
def test_many_rows_in_pieces_come_to_what_polars_makes_of_them_and_stay_so(
    least: int, span: int, step: int, sizes: list[int], nan: bool, large: bool
) -> None:
    rng = np.random.default_rng(span + sum(sizes))
    parts = [Part("sum", "v"), Part("rows"), Part("max", "v"), Part("min", "w"), Part("sum", "w")]
    tables = []
    for size in sizes:
        keys = least + step * rng.integers(0, -(-span // step), size)
        floats = rng.integers(0, 100, size) / 4
        if nan:
            floats[:: max(1, size // 3)] = np.nan
        integers = rng.integers((1 << 62) if large else 0, (1 << 63) - 1 if large else 50, size)
        tables.append(pa.table({"k": keys, "v": floats, "w": integers}))
    found = combine([ungrouped(table, ["k"], parts) for table in tables], ["k"], parts)
    before = rows_of(found)
    other = pa.table({"k": np.arange(9001) // 2, "v": np.ones(9001), "w": np.ones(9001, np.int64)})
    combine([ungrouped(other, ["k"], parts)], ["k"], parts)  # in the memory in which the first one was made
    assert rows_of(found) == before
    frame = pl.concat([pl.from_arrow(table) for table in tables])
    assert isinstance(frame, pl.DataFrame)
    pl_sum = pl.col("w").cast(pl.Int128).sum()
    held = frame.group_by("k").agg(
        pl.col("v").sum(), pl.len().alias("n"), pl.col("v").max().alias("top"), pl.col("w").min(), pl_sum.alias("all")
    )
    assert sorted(map(repr, held.rows())) == sorted(repr((*row[:5], int(row[5]))) for row in _tuples(found))
    if span + step < 8 * sum(sizes):  # in so narrow a range keys are in their order
        assert found["k"].to_pylist() == sorted(found["k"].to_pylist())


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in shown(table).columns), strict=True))
