"""Orders and windows in queries: against SQLite, and against the verbs of columns."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.io import Batches
from timely.operators.window_shapes import Session, Sliding, Tumbling

SCHEMA = {"k": pl.String, "n": pl.Int64, "x": pl.Float64, "at": pl.Int64}
rows = st.tuples(
    st.sampled_from([None, "a", "b", "Ab"]),
    st.sampled_from([None, 0, 1, 2, -3]),
    st.sampled_from([None, 0.0, 0.5, -1.5]),
    st.integers(0, 40),
)
epochs = st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=3)
some = settings(max_examples=max(4, settings.default.max_examples // 5))
workers, seeds = st.integers(1, 3), st.integers(0, 99)

TIES = "k nulls first, n nulls first, x nulls first, at"
ORDERED = [
    f"select k, n from t order by {TIES}",
    f"select k, n + 1 as more, at from t where n > 0 order by more desc, at * -1, {TIES}",
    f"select k, n from t order by n desc nulls last, {TIES} limit 2",
    f"select k, n as m from t order by n nulls last, {TIES} limit 3",
    f"select x from t order by abs(n) desc nulls first, {TIES} limit 2",
    f"select * from t order by x desc nulls last, {TIES} limit 3",
    "select k, count(*) as c from t group by k order by c desc, k nulls last",
    "select k, sum(n) as s from t group by k order by max(at) desc, 1 nulls first limit 2",
    "select k, count(*) as c from t group by k having count(*) > 1 order by 2, 1 nulls first",
    "select distinct k, n from t order by n nulls first, k nulls first limit 3",
    "select k from t union select upper(k) from t order by k nulls last limit 3",
    f"select k, n from (select * from t order by at desc, {TIES} limit 3) u order by k nulls first, n nulls first",
    f"select k from t order by {TIES} fetch first 2 rows only",
]


def answer(query: str, given: list[Any]) -> list[Any]:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table t (k text, n integer, x real, at integer)")
        database.executemany("insert into t values (?, ?, ?, ?)", given)
        return list(map(plain, database.execute(query.replace("fetch first 2 rows only", "limit 2"))))


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLite has no negative zero."""
    return tuple(value + 0.0 if isinstance(value, int | float) else value for value in row)


def frames(given: list[list[Any]]) -> list[pl.DataFrame]:
    return [pl.DataFrame(rows, SCHEMA, orient="row") for rows in given]


@pytest.mark.parametrize("query", ORDERED)
@some
@given(epochs, workers, seeds)
def test_the_rows_of_an_epoch_are_in_the_order_of_sqlite(query: str, given: Any, workers: int, seed: int) -> None:
    flow = Dataflow("sql")
    out = sql(query, over="time", t=flow.columns("t", Batches(frames(given)))).capture()
    cluster = Cluster(flow, workers, seed)
    cluster.run()
    found: list[list[Any]] = [[] for _ in given]
    for time, batch in cluster.captured(out):
        found[time[0]] += map(plain, as_polars(batch).rows())
    assert found == [answer(query, rows) for rows in given]


@some
@given(epochs, workers, seeds)
def test_tumbling_windows_are_groups_of_event_times(given: Any, workers: int, seed: int) -> None:
    query = """
        select upper(k) as loud, tumble_start(at, 10) as begin, tumble_end(at, 10) - 1 as last, sum(n) as s, count(*) as c
        from t where n is not null group by loud, tumble(at, 10) having count(*) > 1
    """
    right = """
        select upper(k) as loud, at / 10 * 10, at / 10 * 10 + 9, sum(n), count(*)
        from t where n is not null group by upper(k), at / 10 having count(*) > 1
    """
    flow = Dataflow("sql")
    out = sql(query, lateness=99, t=flow.columns("t", Batches(frames(given)))).capture()
    cluster = Cluster(flow, workers, seed)
    cluster.run()
    found = Counter(plain(row) for _, batch in cluster.captured(out) for row in as_polars(batch).rows())
    assert found == Counter(answer(right, [row for rows in given for row in rows]))


def instants(t: Columns) -> Columns:
    return t.with_columns(at=pl.from_epoch("at", time_unit="s"))


second = dt.timedelta(seconds=1)
WINDOWS: dict[str, Any] = {
    "select k, hop_start(at, 5, 10) as s, count(*) as c from t group by k, hop(at, 5, 10)": (
        lambda t: (
            t.window(Sliding(10, 5), time="at", lateness=4).group_by("k").agg(c=agg.count()).select("k", "start", "c")
        )
    ),
    "select k as start, session_end(at, 6) as e, max(n) as top from t group by session(at, 6), k": (
        lambda t: (
            t.window(Session(6), time="at", lateness=4).group_by("k").agg(top=agg.max("n")).select("k", "end", "top")
        )
    ),
    "select k, session_start(at, 6) as s, count(distinct n) as kinds from t group by k, session(at, 6)": (
        lambda t: (
            t.window(Session(6), time="at", lateness=4)
            .group_by("k")
            .agg(kinds=agg.n_unique("n"), all_there=agg.min("there"))
            .select("k", s="start", kinds=pl.col("kinds") + pl.col("all_there") - 1)
        )
    ),
    "select tumble_start(at, interval '10 seconds') as s, max(n) as c from t group by tumble(at, interval '10 seconds')": (
        lambda t: (
            t.window(Tumbling(10 * second), time="at", lateness=4 * second).agg(c=agg.max("n")).select("start", "c")
        )
    ),
    "select count(n) as c, hop_end(at, interval '0.5' minute, interval '1 minute 30 seconds') as e from t "
    "group by hop(at, interval '0.5' minute, interval '1 minute 30 seconds')": (
        lambda t: (
            t.window(Sliding(90 * second, 30 * second), time="at", lateness=4 * second)
            .agg(c=agg.sum("there"))
            .select("c", "end")
        )
    ),
    "select top, count(*) as n from (select max(n) as top from t group by k, session(at + 1, 7)) w group by top": (
        lambda t: (
            t.with_columns(later=pl.col("at") + 1)
            .window(Session(7), time="later", lateness=4)
            .group_by("k")
            .agg(top=agg.max("n"))
            .group_by("top")
            .agg(n=agg.count())
        )
    ),
}


@pytest.mark.parametrize("query", WINDOWS)
@some
@given(epochs, workers, seeds)
def test_windows_are_those_of_the_verbs(query: str, given: Any, workers: int, seed: int) -> None:
    flow = Dataflow("sql")
    timed = "interval" in query
    t = flow.columns("t", Batches(frames(given)))
    t = instants(t) if timed else t
    found = sql(query, lateness=4 * second if timed else 4, t=t)
    verbs = WINDOWS[query](t.with_columns(there=pl.col("n").is_not_null().cast(pl.Int64)))
    assert found.schema is not None
    outs = found.capture(), verbs.capture()
    cluster = Cluster(flow, workers, seed)
    cluster.run()
    one, other = (
        Counter((time, row) for time, batch in cluster.captured(out) for row in as_polars(batch).rows()) for out in outs
    )
    assert one == other


def test_a_median_is_within_a_hundredth() -> None:
    flow = Dataflow("sql")
    t = flow.columns("t", Batches(frames([[("a", n, None, 0) for n in range(100, 201)]])))
    out = sql("select k, median(n) as middle from t group by k", t=t).capture()
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    ((_, batch),) = cluster.captured(out)
    assert as_polars(batch).rows() == [("a", pytest.approx(150, rel=0.01))]
