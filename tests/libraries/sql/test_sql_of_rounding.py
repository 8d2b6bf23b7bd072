"""`round` and casts to integers round as SQL does, and what is another value each time is refused."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.errors import GraphError
from timely.io import Batches

floats = (
    st.floats(-1e12, 1e12)
    | st.integers(-4000, 4000).map(lambda n: n / 8)
    | st.integers(-9999, 9999).map(lambda n: n / 1000)
)


def of_rows(items: str, frame: pl.DataFrame, known: bool = True) -> list[tuple[Any, ...]]:
    flow = Dataflow()
    stream = flow.columns("s", Batches([frame]))
    out = sql(f"select {items} from s", s=stream if known else stream.map_batches(lambda batch: batch)).capture("out")
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    return [row for _, batch in cluster.captured(out) for row in as_polars(batch).rows()]


@pytest.mark.parametrize("known", [True, False])
@given(values=st.lists(floats, min_size=1, max_size=20), digits=st.integers(0, 4))
def test_floats_are_rounded_away_from_zero(known: bool, values: list[float], digits: int) -> None:
    frame = pl.DataFrame({"v": values}, {"v": pl.Float64})
    unit = Decimal(1).scaleb(-digits)
    want = [float(Decimal(value).quantize(unit, ROUND_HALF_UP)) for value in values]
    assert [row[0] for row in of_rows(f"round(v, {digits}) as x", frame, known)] == want


@pytest.mark.parametrize("known", [True, False])
@given(values=st.lists(floats, min_size=1, max_size=20))
def test_floats_are_cast_to_the_nearest_integer_and_ties_to_even_ones(known: bool, values: list[float]) -> None:
    found = of_rows(
        "cast(v as bigint) as x, v::bigint as y, try_cast(v as bigint) as z", pl.DataFrame({"v": values}), known
    )
    assert found == [(round(value),) * 3 for value in values]


@given(values=st.lists(st.decimals(-999, 999, places=3), min_size=1, max_size=20))
def test_decimals_are_rounded_away_from_zero(values: list[Decimal]) -> None:
    found = of_rows("cast(v as bigint) as x, round(v, 1) as y", pl.DataFrame({"v": values}, {"v": pl.Decimal(10, 3)}))
    assert found == [
        (int(value.quantize(Decimal(1), ROUND_HALF_UP)), value.quantize(Decimal("0.1"), ROUND_HALF_UP))
        for value in values
    ]


def test_constants_are_decimals() -> None:
    found = of_rows(
        "cast(1.5 as bigint) as a, cast(2.5 as int) as b, cast(-63.63 as bigint) as c, round(0.25, 1) as d",
        pl.DataFrame({"v": [0]}),
    )
    assert found == [(2, 3, -64, Decimal("0.3"))]


@pytest.mark.parametrize(
    "what",
    [
        *("now()", "current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"),
        *("random()", "uuid()", "gen_random_uuid()", "clock_timestamp()"),
    ],
)
@pytest.mark.parametrize(
    "where", ["select {} as x from s", "select v from s where {} is not null", "select max({}) as x from s"]
)
def test_what_is_another_value_each_time_is_refused(what: str, where: str) -> None:
    stream = Dataflow().columns("s", Batches([pl.DataFrame({"v": [0]})]))
    with pytest.raises(GraphError, match=r"test_sql_of_rounding.py:.*the same.*send it as a column"):
        sql(where.format(what), s=stream)


def test_streams_are_given_by_name() -> None:
    stream = Dataflow().columns("s", Batches([pl.DataFrame({"v": [0]})]))
    with pytest.raises(GraphError, match=r"sql\(query, name=stream\)"):
        sql("select v from s", stream)
    with pytest.raises(GraphError, match=r"div\(a, b\)"):
        sql("select v // 2 from s", s=stream)
    with pytest.raises(GraphError, match=r"windows are keys here: .*group by tumble"):
        sql("select * from table(tumble(s, v, 10))", s=stream)
