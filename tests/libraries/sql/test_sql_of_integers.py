"""Integers in queries, of all types and sizes: against Python's, which have no end. More than 64 bits are an error."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any, TypeAlias

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.errors import OperatorError
from timely.io import Batches

Term: TypeAlias = tuple[Any, ...]
"""An expression: ("column", name), ("number", value), or an operation and its terms."""

SIZES: dict[str, Any] = {
    "a": (pl.Int8, -128, 127),
    "b": (pl.Int16, -(2**15), 2**15 - 1),
    "c": (pl.Int32, -(2**31), 2**31 - 1),
    "d": (pl.Int64, -(2**63), 2**63 - 1),
    "e": (pl.UInt8, 0, 255),
    "f": (pl.UInt32, 0, 2**32 - 1),
    "g": (pl.UInt64, 0, 2**64 - 1),
}
SCHEMA = {name: kind for name, (kind, _, _) in SIZES.items()}

terms = st.recursive(
    st.sampled_from([("column", name) for name in SIZES])
    | st.sampled_from([0, 1, 3, 1000, 2**31, 2**62, 2**63 - 1]).map(lambda value: ("number", value)),
    lambda inner: (
        st.tuples(st.sampled_from("+-*"), inner, inner)
        | st.tuples(st.sampled_from(["neg", "abs"]), inner)
        | st.tuples(st.just("case"), inner, inner, inner)
    ),
    max_leaves=5,
)
rows = st.tuples(
    *(st.none() | st.sampled_from([low, high, 0, 1, 100]) | st.integers(low, high) for _, low, high in SIZES.values())
)
whole = st.tuples(*(st.integers(max(low, -99), min(high, 99)) for _, low, high in SIZES.values()))
"""Rows without a null, of numbers whose sums and products are within 64 bits: the way without a plan of Polars."""
some = settings(max_examples=settings.default.max_examples * 2)


class TooLarge(Exception):
    """More than 64 bits with a sign."""


def said(term: Term) -> str:
    match term:
        case ("column", name):
            return str(name)
        case ("number", value):
            return str(value)
        case ("neg", of):
            return f"(- {said(of)})"
        case ("abs", of):
            return f"abs({said(of)})"
        case ("case", of, one, other):
            return f"(case when {said(of)} > 50 then {said(one)} else {said(other)} end)"
        case (op, one, other):
            return f"({said(one)} {op} {said(other)})"
    raise AssertionError(term)


def value_of(term: Term, row: dict[str, Any]) -> int | None:
    match term:
        case ("column", name):
            return row[name]  # type: ignore[no-any-return]
        case ("number", value):
            return int(value)
        case ("case", of, one, other):
            held = value_of(of, row)
            return value_of(one if held is not None and held > 50 else other, row)
        case (op, *parts):
            values = [value_of(part, row) for part in parts]
            if any(value is None for value in values):
                return None
            one, *others = (value for value in values if value is not None)
            if op == "neg":
                found = -one
            elif op == "abs":
                found = abs(one)
            else:
                (other,) = others
                found = one + other if op == "+" else one - other if op == "-" else one * other
            if not -(2**63) <= found < 2**63:
                raise TooLarge(found)
            return found
    raise AssertionError(term)


def results(query: str, frames: list[pl.DataFrame], known: bool = True) -> list[tuple[Any, ...]]:
    flow = Dataflow("sql")
    s = flow.columns("s", Batches(frames))
    if not known:
        s = s.map_batches(lambda frame: frame)
        assert s.schema is None
    out = sql(query, s=s).capture()
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    return [row for _, batch in cluster.captured(out) for row in as_polars(batch).rows()]


@some
@given(terms, st.lists(st.lists(whole | rows, min_size=1, max_size=4), min_size=1, max_size=2), st.booleans())
def test_numbers_are_those_of_python_or_an_error(term: Term, batches: list[list[Any]], known: bool) -> None:
    frames = [pl.DataFrame(batch, SCHEMA, orient="row") for batch in batches]
    try:
        right = [value_of(term, dict(zip(SIZES, row, strict=True))) for batch in batches for row in batch]
    except TooLarge:
        with pytest.raises(OperatorError, match="conversion from `i128` to `i64` failed"):
            results(f"select {said(term)} as x from s", frames, known)
        return
    assert Counter(results(f"select {said(term)} as x from s", frames, known)) == Counter((each,) for each in right)


@pytest.mark.parametrize("known", [True, False])
def test_totals_and_conditions_of_products_do_not_wrap(known: bool) -> None:
    frame = pl.DataFrame({"q": [100_000, 3], "p": [100_000, 4]}, {"q": pl.Int32, "p": pl.Int32})
    assert results("select sum(q * p) as r from s", [frame], known) == [(10_000_000_012,)]
    assert results("select q from s where q * p > 2000000000", [frame], known) == [(100_000,)]
    assert results("select q * p as r, count(*) as n from s group by q * p", [frame], known) == [
        *((value, 1) for value in (10_000_000_000, 12))
    ]
    large = pl.DataFrame({"x": [2**62]})
    with pytest.raises(OperatorError, match=r"test_sql_of_integers\.py:\d+\) failed .*`i128` to `i64`"):
        results("select x * 4 as y from s", [large], known)
    with pytest.raises(OperatorError, match="i128"):
        results("select max(x) * 4 as y from s", [large], known)
    with pytest.raises(
        OperatorError, match=r"the sum of column 'x' of all rows is 9223372036854775808.*before agg, cast"
    ):
        results("select sum(x) as y from s", [large, large], known)
    assert results("select power(x, 2) as y from s", [large], known) == [(2.0**124,)]
    assert results("select sum(x * 4) filter (where x < 9) as y from s", [large, large.clear()], known) == [(None,)]
    assert results("select case x when 2 then x * 8 else 0 end as y from s", [large], known) == [(0,)]


def test_integers_of_128_bits_do_not_wrap_either() -> None:
    frame = pl.DataFrame({"h": [2**40, 3]}, {"h": pl.Int128})
    assert results("select h - 1 as x, cast(h as int128) * 2 as y from s", [frame]) == [(2**40 - 1, 2**41), (2, 6)]
    for query in ("select h * h as x from s", "select cast(h as int128) * h as x from s"):
        with pytest.raises(OperatorError, match="to `i64` failed"):
            results(query, [pl.DataFrame({"h": [2**100]}, {"h": pl.Int128})])


def test_changes_whose_types_are_not_known_keep_their_sign() -> None:
    frames = [
        pl.DataFrame({"k": ["a"], "x": [100]}, {"k": pl.String, "x": pl.Int8}),
        pl.DataFrame({"k": ["a"], "x": [3]}),
    ]
    flow = Dataflow("sql")
    query = (
        "select twice * 2 as y, 1 + k2 as z from (select sum(x) * 2 as twice, 0 * max(x) + 1 as k2 from s group by k) t"
    )
    out = sql(query, changes=True, s=flow.columns("s", Batches(frames)).map_batches(lambda frame: frame)).capture()
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    found = [as_polars(batch) for _, batch in cluster.captured(out)]
    assert [frame.columns for frame in found] == [["y", "z", "change"]] * 2
    assert [sorted(frame.rows()) for frame in found] == [[(400, 2, 1)], [(400, 2, -1), (412, 2, 1)]]


@pytest.mark.parametrize("known", [True, False])
def test_what_is_no_integer_stays_as_it_is(known: bool) -> None:
    at = dt.datetime(2024, 1, 2)
    frame = pl.DataFrame(
        {"f": [1.5], "g": [2.5], "m": [Decimal("1.25")], "t": [at], "d": [at.date()], "i": [3]},
        {"f": pl.Float64, "g": pl.Float32, "m": pl.Decimal(10, 2), "t": pl.Datetime, "d": pl.Date, "i": pl.Int32},
    )
    query = """
        select f * i as a, -g as b, m + i as c, t - t as d, t + interval '1 day' as e, d - d as f, abs(m) as g, m * m as h
        from s
    """
    right = pl.SQLContext(s=frame).execute(query, eager=True)
    assert results(query, [frame], known) == right.rows()


def test_the_type_of_arithmetic_is_known() -> None:
    flow = Dataflow("sql")
    s = flow.columns("s", Batches([pl.DataFrame({"a": [1], "f": [0.5]}, {"a": pl.Int8, "f": pl.Float32})]))
    found: Columns = sql("select a + 1 as x, -a as y, abs(a) as z, f * 2 as w, 1 + 1 as two from s", s=s)
    assert found.schema == {"x": pl.Int64, "y": pl.Int64, "z": pl.Int64, "w": pl.Float32, "two": pl.Int64}
