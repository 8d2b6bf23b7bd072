"""Queries over changes, in random epochs and numbers of workers: against Polars' SQL over the rows that there are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from tests.timely.feeding import feed_batches_in_turn
from timely.data.batch import as_polars
from timely.errors import GraphError

SCHEMA = {"id": pl.Int64, "k": pl.String, "n": pl.Int64, "at": pl.Int64}
drawn = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.none() | st.integers(-3, 3)), max_size=4),
    min_size=1,
    max_size=4,
)
few = settings(max_examples=settings.default.max_examples // 10)

CHANGES = [
    "select * from c",
    "select k, n + 1 as m from c where n > 0",
    "select * from c join p on c.k = p.k",
    "select w, k, id, n from p join c using (k)",
    "select c.id, d.id as other from c join c as d using (k)",
    "select * from (select k, at from c) as t where at > 1",
    "select id, k from c union all select id, k from c where n > 0",
    "with t as (select * from c) select k, id from t",
    "select distinct k, n from c",
    "select k, id from c union all select k, w as id from p",
    "select k, w as id from p union all select k, id from c",
    "select p.k, p.w from p semi join c using (k)",
]
"""Queries that give changes."""

TOTALS = [
    "select k, count(*) as rows, sum(n) as total, avg(n) as mean, count(distinct n) as kinds from c group by k",
    "select k, max(n) as most, count(n) filter (where n > 0) as positive from c group by k",
    "select k, variance(n) as v, stddev(n) as s from c group by k",
    "select p.k, count(*) as rows from c join p on c.k = p.k group by p.k",
]
"""Queries that give totals by their first column."""


def streams(flow: Dataflow) -> dict[str, Columns]:
    rows = flow.input("in").to_columns(SCHEMA)
    return {"c": rows.group_by("id").top_k(1, by="at"), "p": rows.select("k", w="id").distinct("k", "w")}


def run(query: str, fed: list[pl.DataFrame], workers: int, seed: int) -> list[list[pl.DataFrame]]:
    """The frames that come out at each epoch."""
    flow = Dataflow()
    out = sql(query, **streams(flow)).capture()
    cluster = Cluster(flow, workers, seed)
    feed_batches_in_turn(cluster, [[frame] for frame in fed])
    found: list[list[pl.DataFrame]] = [[] for _ in fed]
    for time, batch in cluster.captured(out):
        found[time[0]].append(as_polars(batch))
    return found


def frames(fed: list[list[Any]]) -> list[pl.DataFrame]:
    numbered, at = [], 0
    for data in fed:
        numbered.append(pl.DataFrame([(*row, at + n) for n, row in enumerate(data)], SCHEMA, orient="row"))
        at += len(data)
    return numbered


def answer(query: str, came: pl.DataFrame) -> pl.DataFrame:
    there = came.unique("id", keep="last", maintain_order=True)
    tables = {"c": there, "p": came.select("k", w="id").unique()}
    return pl.SQLContext(tables, eager=True).execute(query)


@pytest.mark.parametrize("query", CHANGES)
@few
@given(fed=drawn, workers=st.integers(1, 2), seed=st.integers(0, 99))
def test_a_query_over_changes_gives_changes_of_its_rows(query: str, fed: Any, workers: int, seed: int) -> None:
    numbered = frames(fed)
    counted: Counter[Any] = Counter()
    for at, epoch in enumerate(run(query, numbered, workers, seed)):
        for frame in epoch:
            for *row, sign in frame.rows():
                counted[tuple(row)] += sign
        wanted = answer(query, pl.concat(numbered[: at + 1]))
        assert {row: n for row, n in counted.items() if n} == Counter(wanted.rows())


@pytest.mark.parametrize("query", TOTALS)
@few
@given(fed=drawn, workers=st.integers(1, 2), seed=st.integers(0, 99))
def test_totals_of_changes_are_those_of_the_rows_that_there_are(query: str, fed: Any, workers: int, seed: int) -> None:
    numbered = frames(fed)
    known: dict[Any, Any] = {}
    for at, epoch in enumerate(run(query, numbered, workers, seed)):
        known |= {row[0]: row for frame in epoch for row in frame.rows()}
        for row in answer(query, pl.concat(numbered[: at + 1])).rows():
            assert list(known[row[0]]) == [each if each is None else pytest.approx(each) for each in row]


def test_what_would_not_heed_the_sign_is_refused() -> None:
    given_ = streams(Dataflow())
    for query, why in (
        ("select k, change from c", "no column 'change'"),
        ("select k as change from c", "keeps the sign 'change' by itself"),
    ):
        with pytest.raises(GraphError, match=rf"test_sql_of_changes\.py:\d+: .*{why}"):
            sql(query, **given_)
