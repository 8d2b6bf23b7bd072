"""Queries in conditions, and tables in lists, over drawn rows with nulls: against SQLite, of an epoch and as changes."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.errors import GraphError
from timely.io import Batches

some = settings(max_examples=max(4, settings.default.max_examples // 25))

T = {"k": pl.Int64, "i": pl.Int64, "s": pl.String}
U = {"k2": pl.Int32, "j": pl.Int64, "r": pl.String}

small = st.sampled_from([None, 0, 1, 2, 3])
rows = st.lists(st.tuples(small, small, st.sampled_from([None, "a", "b"])), max_size=6)

CONDITIONS = [
    "k in (select k2 from u)",
    "k in (select k2 from u where j > 1)",
    "k in (select k2 from u where r = s)",
    "k not in (select k2 from u)",
    "k not in (select k2 from u where j > 1) and i > 0",
    "not k in (select k2 from u where k2 is not null)",
    "exists (select * from u where k2 = k)",
    "exists (select 1 from u where k = k2 and j < 2 and r = t.s)",
    "not exists (select * from u where u.k2 = t.k)",
    "exists (select * from u where k2 = k and j <> i)",
    "exists (select * from u where k2 = k and i < j)",
    "not exists (select * from u where k2 = k and j <> i)",
    "not exists (select * from u where k2 = k and j >= i)",
    "i > (select min(j) from u)",
    "i = (select max(j) from u where k2 = k)",
    "i + 1 >= (select 0.5 * sum(j) from u where k2 = k and r = s) and exists (select * from u where k2 = i)",
    "k in (select k2 from u where j in (select i from t where s = 'a'))",
]
LISTS = [
    "select i, j from t, u where k = k2",
    "select a.i, j, b.i as n from t a, u, t b where j = b.k and a.k = k2 and b.i > 0",
    "select i, j from t, u where (k = k2 and i > 1) or (k = k2 and j > 1 and s = r)",
    "select i, j from u, t where u.r = t.s and t.k = u.k2 and not exists (select * from t x where x.k = u.j)",
    "select a.i, j from t a cross join u where k = k2",
]
QUERIES = [f"select k, i, s from t where {condition}" for condition in CONDITIONS] + LISTS
TOTALS = ["select s, sum(i) as n from t group by s having sum(i) > (select max(j) from u)"]


def answer(query: str, given: list[tuple[Any, Any]]) -> Counter[Any]:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table t (k, i, s)")
        database.execute("create table u (k2, j, r)")
        for t, u in given:
            database.executemany("insert into t values (?, ?, ?)", t)
            database.executemany("insert into u values (?, ?, ?)", u)
        return Counter(database.execute(query).fetchall())


def results(query: str, given: list[tuple[Any, Any]], workers: int, **said: Any) -> list[tuple[Any, ...]]:
    flow = Dataflow("sql")
    streams = {
        name: flow.columns(name, Batches([pl.DataFrame(each[at], kinds, orient="row") for each in given]))
        for at, (name, kinds) in enumerate({"t": T, "u": U}.items())
    }
    out = sql(query, **said, **streams).capture()
    cluster = Cluster(flow, workers, 0)
    cluster.run()
    return [row for _, batch in cluster.captured(out) for row in as_polars(batch).rows()]


@pytest.mark.parametrize("query", QUERIES + TOTALS)
@some
@given(one=st.tuples(rows, rows), workers=st.integers(1, 2))
def test_an_epoch_gives_what_sqlite_gives(query: str, one: Any, workers: int) -> None:
    assert Counter(results(query, [one], workers, over="time")) == answer(query, [one])


@pytest.mark.parametrize("query", QUERIES)
@some
@given(given=st.lists(st.tuples(rows, rows), min_size=1, max_size=3), workers=st.integers(1, 2))
def test_changes_add_up_to_what_sqlite_gives_of_all(query: str, given: list[Any], workers: int) -> None:
    found: Counter[Any] = Counter()
    for *row, sign in results(query, given, workers, changes=True):
        found[tuple(row)] += sign
    assert {row: times for row, times in found.items() if times} == answer(query, given)


REFUSED = {
    "select i from t, u": "u: no condition of where says which of its columns equals one of the tables before",
    "select i from t where k in (select k2 from u limit 1)": "say a join in its place",
    "select i from t where k in (select k2, j from u)": "the query must have one column",
    "select i from t where k + 1 in (select k2 from u)": "the value must be a column",
    "select i from t where exists (select * from u where j > 1)": "which of its columns equals one from outside?",
    "select i from t where exists (select * from u where k2 = k and j + i > 3)": "one comparison of a column with one",
    "select i from t where k not in (select k2 from u where r = s)": "say not exists",
    "select i from t where i > (select j from u)": "a query as a value is a total",
    "select i from t where i > (select count(*) from u where k2 = k)": "a count is 0 where there are no rows",
    "select i, (select max(j) from u) as m from t": "a query as a value is not known",
    "select i from t where k in (select k2 from u) or i = 1": "not known within an expression",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_no_join_can_say_is_refused(query: str) -> None:
    with pytest.raises(GraphError, match=r"test_sql_of_subqueries\.py:\d+: sql: ") as refused:
        results(query, [([], [])], 1, over="time")
    assert REFUSED[query] in str(refused.value)
