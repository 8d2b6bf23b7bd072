"""Selections give each row its own, constants too, however rows are divided into batches."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from timely.errors import GraphError
from timely.operators import stateless

n = pl.col("n")
CONSTANTS: dict[str, Any] = {
    "typed": pl.lit(1, pl.Int64),
    "narrow": pl.lit(1, pl.Int8),
    "untyped": pl.lit(1),
    "fraction": pl.lit(1.5),
    "text": pl.lit("Len"),
    "nothing": pl.lit(None),
    "day": pl.lit(dt.date(2024, 2, 29)),
    "list": pl.lit([1, 2]),
    "computed": (pl.lit(1) + 2).cast(pl.Int16),
    "chosen": pl.when(pl.lit(2) > 1).then(pl.lit("u")).otherwise(pl.lit("v")),
    "python": 7,
}
CHOSEN = {"n": n, "twice": n * 2, "and one": n + pl.lit(1)}


def divided(rows: list[int], ends: list[int]) -> list[pl.DataFrame]:
    """The rows in batches, some of which may be empty."""
    frame, begins = pl.DataFrame({"n": rows}, {"n": pl.Int64}), [0, *sorted(ends)]
    return [frame.slice(begin, end - begin) for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True)]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    rows=st.lists(st.integers(0, 9), max_size=12),
    ends=st.lists(st.integers(0, 12), max_size=4),
    before=st.sampled_from(["nothing", "with_columns", "filter", "function"]),
    constants=st.lists(st.sampled_from(sorted(CONSTANTS)), min_size=1, max_size=3, unique=True),
    others=st.lists(st.sampled_from(sorted(CHOSEN)), max_size=2, unique=True),
    after=st.booleans(),
    arrow=st.booleans(),
    at_most=st.sampled_from([0, 3, stateless.FEW]),
)
def test_constants_are_for_each_row_in_batches_of_any_size(
    rows: list[int],
    ends: list[int],
    before: str,
    constants: list[str],
    others: list[str],
    after: bool,
    arrow: bool,
    at_most: int,
) -> None:
    batches = divided(rows, [min(end, len(rows)) for end in ends])
    named = {name: CONSTANTS.get(name, CHOSEN.get(name)) for name in (*constants, *others)}
    flow = falkirk.Dataflow()
    stream = flow.columns("in", falkirk.Batches([each.to_arrow() if arrow else each for each in batches]))
    whole = pl.concat(batches)
    if before == "with_columns":
        stream = stream.with_columns(m=n + 1)
    elif before == "filter":
        stream, whole = stream.filter(n % 2 == 0), whole.filter(n % 2 == 0)
    elif before == "function":
        stream = stream.map_batches(pl.DataFrame)
    stream = stream.select(**named)
    if after:
        stream = stream.with_columns(pl.col(constants[0]).alias("again")).select(*named)
    stream.capture("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stateless, "FEW", at_most)
        found = [pl.DataFrame(batch) for _, batch in falkirk.run(flow).captured("out")]
    wanted = whole.with_columns(**named).select(*named)
    assert sum(map(len, found)) == len(wanted)
    if found:
        assert pl.concat(found).equals(wanted)


@pytest.mark.parametrize("total", [pl.len(), pl.len() + 1, n.sum()], ids=["len", "more than len", "sum"])
def test_totals_of_a_batch_are_refused_unless_a_batch_is_a_time(total: pl.Expr) -> None:
    """Beside constants, too. Behind `sort` it is a row an epoch, as Polars gives it."""
    batches = divided([1, 2, 3], [2])
    flow = falkirk.Dataflow()
    rows = flow.columns("in", falkirk.Batches(batches))
    with pytest.raises(GraphError, match="an expression looks at other rows"):
        rows.select(m=total, one=pl.lit(1))
    rows.sort("n", over="time").select(m=total, one=pl.lit(1)).capture("out")
    found = [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
    assert found == [each.select(m=total, one=pl.lit(1)).rows() for each in batches]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    rows=st.lists(st.floats(allow_nan=False), min_size=2, max_size=12),
    whole=st.booleans(),
    by=st.integers(1, 2**40) | st.floats(1e-250, 1e250),
    ends=st.lists(st.integers(0, 12), max_size=4),
    at_most=st.sampled_from([1, 3, stateless.FEW]),
)
def test_a_quotient_is_the_same_however_rows_are_divided_into_batches(
    rows: list[float], whole: bool, by: float, ends: list[int], at_most: int
) -> None:
    """Polars multiplies by the reciprocal of a number, but not in a batch of one row."""
    numbers = [int(each) if abs(each) < 2**60 else 7 for each in rows] if whole else rows
    frame = pl.DataFrame({"n": numbers}, {"n": pl.Int64 if whole else pl.Float64})
    bounds = [0, *sorted(min(end, len(rows)) for end in ends), len(rows)]
    batches = [frame.slice(begin, end - begin) for begin, end in pairwise(bounds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stateless, "FEW", at_most)
        flow = falkirk.Dataflow()
        flow.columns("in", falkirk.Batches(batches)).with_columns(q=n / by).capture("out")
        found = falkirk.run(flow).captured("out")
    assert pl.concat([pl.DataFrame(batch) for _, batch in found]).equals(frame.with_columns(q=n / by))
