"""What is said to be elementwise gives the same for rows that come one by one, by Polars itself; totals are told apart."""

from __future__ import annotations

import datetime as dt
import io

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from libraries.columns.kernels.elementwise import are_elementwise

a, b, s, day, xs = (pl.col(name) for name in ("a", "b", "s", "day", "xs"))
FRAME = pl.DataFrame(
    {
        "a": [3, -1, None, 3, 8],
        "b": [0.5, 2.5, -1.0, None, 0.5],
        "s": ["x,1", "y,2", None, "x,1", ""],
        "day": [dt.datetime(2024, 2, 28 + i % 2, i) for i in range(5)],
        "xs": [[1, 2], [], [3], [1, 2], [0, 5]],
    }
)

WITHIN_ROWS = [
    a,
    pl.all(),
    a + 1,
    (a * b - 2).alias("x"),
    a.cast(pl.Float64).round(1),
    a.is_null() | (b > 0),
    ~a.is_in([3, 8]),
    a.is_between(0, 5),
    a.fill_null(0),
    pl.when(a > 2).then(b).otherwise(pl.lit(0.0)),
    pl.coalesce(a, 7),
    pl.max_horizontal(a, b),
    pl.sum_horizontal(a, b),
    pl.struct(a, s).alias("both"),
    pl.struct(a, s).struct.field("s"),
    pl.concat_str(s, a),
    s.str.to_uppercase(),
    s.str.split(",").list.get(0, null_on_oob=True),
    s.str.contains("x"),
    s.str.len_chars(),
    s.str.replace("x", "z"),
    day.dt.year(),
    day.dt.truncate("1d"),
    day.dt.offset_by("1h"),
    xs.list.sum(),
    xs.list.eval(pl.element() * 2),
    a.abs(),
    a.clip(0, 4),
    a.sign(),
    b.sqrt(),
    b.exp(),
    b.floor(),
    a.hash(1),
    a.replace({3: 4}),
    -a,
    a**2,
    pl.sql_expr("a * b / 2 % 3"),
    pl.sql_expr("cast(cast(a as int128) * 3 as bigint)"),
    pl.sql_expr("power(b, 2)"),
]

OVER_ROWS = [
    b.sum(),
    b / b.sum(),
    a.max(),
    a.shift(),
    a.diff(),
    a.cum_sum(),
    a.rank(),
    b.sum().over("a"),
    a.fill_null(strategy="forward"),
    a.is_unique(),
    a.is_duplicated(),
    a.is_first_distinct(),
    (a > 1).any(),
    (a > 1).all(),
    pl.len(),
    pl.int_range(pl.len()),
    a.sort(),
    a.reverse(),
    a.unique(),
    a.head(1),
    a.filter(a > 1),
    b.rolling_mean(2),
    b.ewm_mean(alpha=0.5),
    b.interpolate(),
    a.shuffle(),
    s.str.join(","),
    xs.explode(),
    a.first(),
    a.rle_id(),
    pl.lit(pl.Series([1, 2, 3, 4, 5])),
    a.map_batches(lambda series: series),
]


@pytest.mark.parametrize("expr", WITHIN_ROWS, ids=str)
def test_elementwise_expressions_need_one_row(expr: pl.Expr) -> None:
    assert are_elementwise([expr])
    row_by_row = [FRAME[place : place + 1].with_columns(expr) for place in range(len(FRAME))]
    assert_frame_equal(pl.concat(row_by_row), FRAME.with_columns(expr))


@pytest.mark.parametrize("expr", OVER_ROWS, ids=str)
def test_others_are_told_apart(expr: pl.Expr) -> None:
    assert not are_elementwise([a, expr])
    assert not are_elementwise([[expr]])


def test_names_and_values_are_elementwise() -> None:
    assert are_elementwise(["a", ["b", "s"], 3, dt.date(2024, 1, 1), None])
    assert not are_elementwise([pl.Series([1])])


def test_what_is_not_known_is_not() -> None:
    tree = io.StringIO(a.is_null().meta.serialize(format="json"))
    assert are_elementwise([pl.Expr.deserialize(tree, format="json")])
    assert not are_elementwise([object.__new__(pl.Expr)])
