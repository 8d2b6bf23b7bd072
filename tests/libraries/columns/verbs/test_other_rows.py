"""Expressions that look at other rows are refused where these would be the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import falkirk
from libraries.columns.kernels.elementwise import sees_other_rows
from libraries.columns.verbs.columns import Columns
from timely.errors import GraphError

a = pl.col("a")

OTHERS = {
    "totals": [a.sum(), a - a.mean(), pl.len(), a.first(), pl.int_range(pl.len()), pl.when(a > a.max()).then(1)],
    "groups": [a.sum().over("k"), a.shift(1).over("k"), pl.int_range(pl.len()).over("k")],
    "order": [
        a.shift(1),
        a.diff(),
        a.cum_sum(),
        a.rank(),
        a.pct_change(),
        a.rolling_mean(3),
        a.reverse(),
        1 + a.cum_max(),
    ],
}
OWN = [a + 1, pl.lit(3), pl.sum_horizontal("a", "v"), a.cast(pl.String).str.split(",").list.sum(), a.is_in([1, 2])]


def stream() -> Columns:
    frame = pl.DataFrame({"k": ["x", "y", "x"], "a": [3, 1, 2], "v": [0.5, 1.5, 2.5]})
    return falkirk.Dataflow().columns("in", falkirk.Batches([frame]))


@pytest.mark.parametrize(("kind", "expr"), [(kind, expr) for kind, of in OTHERS.items() for expr in of], ids=str)
def test_what_looks_at_other_rows_is_refused_and_the_verb_is_named(kind: str, expr: pl.Expr) -> None:
    verbs: list[Callable[[Columns], Columns]] = [
        lambda s: s.select("k", x=expr),
        lambda s: s.with_columns(expr.alias("x")),
        lambda s: s.filter(expr.is_not_null()),
    ]
    verb = {"totals": r"agg\(total=", "groups": r"group_by\(key\)", "order": "join_asof"}[kind]
    for each in verbs:
        with pytest.raises(
            GraphError, match=rf"test_other_rows.py:\d+: \w+: an expression looks at other rows.*{verb}"
        ):
            each(stream())
        each(stream().sort("a", over="time").filter(a > 0))


@pytest.mark.parametrize("expr", OWN, ids=str)
def test_what_looks_at_its_own_row_is_not(expr: pl.Expr) -> None:
    assert sees_other_rows([expr, "a", 3, [expr]]) is None
    stream().select("a", x=expr)
