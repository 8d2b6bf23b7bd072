"""Columns of several types together: each value as it was, or an error; never a value that looks like it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.data.batch import as_polars, concat
from timely.data.common_types import common_type

INSTANT = dt.datetime(2024, 5, 6, 7, 8, 9)
VALUES: list[tuple[pl.DataType, list[Any]]] = [
    (pl.Null(), [None]),
    (pl.Boolean(), [True, False]),
    *((kind(), [0, -128, 127]) for kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)),
    (pl.Int64(), [2**53 + 1, -(2**63), 2**63 - 1]),
    (pl.UInt8(), [255]),
    (pl.UInt32(), [2**32 - 1]),
    (pl.UInt64(), [2**64 - 1, 2**53 + 1]),
    (pl.Float32(), [0.5, float("inf")]),
    (pl.Float64(), [0.1, -0.0, 1e300]),
    (pl.Decimal(10, 2), [Decimal("1.25")]),
    (pl.Decimal(12, 4), [Decimal("1.0005")]),
    (pl.Decimal(38, 2), [Decimal("123456789012345678901234567890123456.25")]),
    (pl.String(), ["9", "true"]),
    (pl.Categorical(), ["x"]),
    (pl.Enum(["a", "b"]), ["b"]),
    (pl.Binary(), [b"9"]),
    (pl.Date(), [dt.date(2024, 5, 6), dt.date(9999, 1, 1)]),
    (pl.Datetime("ms"), [INSTANT]),
    (pl.Datetime("us"), [INSTANT + dt.timedelta(microseconds=1)]),
    (pl.Datetime("ns"), [INSTANT]),
    (pl.Duration("ms"), [dt.timedelta(seconds=1), dt.timedelta(days=200_000)]),
    (pl.Duration("us"), [dt.timedelta(microseconds=1234)]),
    (pl.Duration("ns"), [dt.timedelta(microseconds=1)]),
    (pl.Time(), [dt.time(1, 2, 3)]),
]


@st.composite
def columns(draw: st.DrawFn) -> pl.Series:
    kind, values = draw(st.sampled_from(VALUES))
    chosen = draw(st.lists(st.sampled_from(values) | st.none(), min_size=1, max_size=3))
    match draw(st.sampled_from(["plain", "list", "struct"])):
        case "list":
            return pl.Series("v", [[each] for each in chosen], pl.List(kind))
        case "struct":
            return pl.Series("v", [{"x": each} for each in chosen], pl.Struct({"x": kind}))
    return pl.Series("v", chosen, kind)


def plain(value: Any) -> Any:
    """A value such that equal ones are the same: 1 is not true, and a date is the instant at which it begins."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if type(value) is dt.date:
        value = dt.datetime(value.year, value.month, value.day)
    return type(value) is bool, value


@given(columns(), columns())
def test_values_stay_what_they_are_or_that_is_an_error(one: pl.Series, other: pl.Series) -> None:
    found: list[Any] = []
    for both in ([one, other], [other, one]):
        try:
            together = as_polars(concat([each.to_frame() for each in both]))["v"]
        except TypeError as error:
            told = str(error)
            found.append("column 'v' is of" in told and "cast it to one type" in told)
            continue
        found.append(together.dtype)
        assert [plain(each) for each in together.to_list()] == [
            plain(each) for column in both for each in column.to_list()
        ]
    assert found[0] == found[1]
    assert found[0] is not False


@pytest.mark.parametrize("kinds", [kind for kind, _ in VALUES], ids=str)
def test_a_type_goes_together_with_itself_and_with_nulls(kinds: pl.DataType) -> None:
    assert common_type([kinds, kinds]) == common_type([pl.Null(), kinds]) == common_type([kinds, pl.Null()]) == kinds
