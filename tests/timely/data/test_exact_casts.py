"""Columns of Arrow in another type: each value as it was, or an error."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timely.data.test_common_types import VALUES
from timely.data.batch import as_arrow, as_polars, concat
from timely.data.exact_casts import cast_exactly

ZONED = [pl.Datetime("us", "UTC"), pl.Datetime("ms", "Europe/Berlin")]
COLUMNS: list[tuple[pl.DataType, list[Any]]] = [
    *VALUES,
    *((kind, [dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC)]) for kind in ZONED),
    (pl.Float16(), [0.5, float("nan")]),
]


def content(value: Any) -> Any:
    """A value such that those of several types are equal where they mean the same."""
    if isinstance(value, bool) or value is None or value != value:
        return str(value)
    if isinstance(value, dict):
        return {name: content(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(content, value))
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is None else ("zoned", value)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    finite = isinstance(value, int | Decimal) or (isinstance(value, float) and abs(value) < float("inf"))
    return Fraction(value) if finite else value


@st.composite
def columns(draw: st.DrawFn) -> pl.Series:
    kind, values = draw(st.sampled_from(COLUMNS))
    chosen = draw(st.lists(st.sampled_from(values) | st.none(), min_size=1, max_size=3))
    # Within lists and structs Polars panics at tables of which some have Enums and some categories.
    shapes = ["plain"] if isinstance(kind, pl.Enum | pl.Categorical) else ["plain", "plain", "list", "struct"]
    match draw(st.sampled_from(shapes)):
        case "list":
            return pl.Series("x", [chosen], dtype=pl.List(kind))
        case "struct":
            return pl.Series("x", [{"y": each} for each in chosen], dtype=pl.Struct({"y": kind}))
    return pl.Series("x", chosen, dtype=kind)


def arrow(column: pl.Series) -> pa.ChunkedArray:
    return as_arrow(column.to_frame())["x"]


@given(columns(), columns())
def test_a_value_is_what_it_was_or_it_is_an_error(given_: pl.Series, other: pl.Series) -> None:
    column, kind = arrow(given_), arrow(other).type
    try:
        made = cast_exactly(column, kind)
    except TypeError:
        return
    assert made.type.equals(kind)
    assert list(map(content, made.to_pylist())) == list(map(content, column.to_pylist()))


@given(st.lists(columns(), min_size=2, max_size=3))
def test_tables_together_have_the_values_of_each_or_it_is_an_error(several: list[pl.Series]) -> None:
    tables = [as_arrow(each.to_frame()) for each in several]
    try:
        whole = concat(tables)
    except TypeError as error:
        refusal = str(error)
        assert "column 'x'" in refusal
        return
    as_polars(whole)
    rows = [row for table in tables for row in table["x"].to_pylist()]
    assert list(map(content, as_arrow(whole)["x"].to_pylist())) == list(map(content, rows))


@pytest.mark.parametrize(
    ("values", "of", "kind"),
    [
        ([0.1], pa.float64(), pa.float32()),
        ([[0.1]], pa.list_(pa.float64()), pa.list_(pa.float32())),
        ([2**53 + 1], pa.int64(), pa.float64()),
        ([2], pa.int64(), pa.bool_()),
        (["7"], pa.string(), pa.int64()),
        ([Decimal("0.1")], pa.decimal128(5, 1), pa.float64()),
        ([0.126], pa.float64(), pa.decimal128(9, 2)),
        ([dt.datetime(2024, 1, 1, 23, 59)], pa.timestamp("us"), pa.date32()),
        ([dt.datetime(2024, 1, 1)], pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")),
        ([5], pa.int64(), pa.duration("us")),
    ],
    ids=str,
)
def test_what_arrow_would_make_something_else_of_is_an_error(values: list[Any], of: Any, kind: Any) -> None:
    with pytest.raises(TypeError):
        cast_exactly(pa.chunked_array([pa.array(values, of)]), kind)


def test_nan_and_nulls_are_what_they_were() -> None:
    column = pa.chunked_array([[float("nan"), None, 0.5]])
    assert str(cast_exactly(column, pa.float32()).to_pylist()) == "[nan, None, 0.5]"
