"""Queries over all epochs whose rows are taken back: their signs add up to what SQLite gives of all rows so far."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.verbs.changes import Changes
from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.io import Batches

pytestmark = pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 39), reason="SQLite lacks right and full joins")

A = {"k": pl.String, "n": pl.Int64, "x": pl.Float64}
B = {"id": pl.String, "n": pl.Int64, "t": pl.String}
C = {"k": pl.String, "m": pl.Int64}
SCHEMAS = {"a": A, "b": B, "c": C}

key, number = st.sampled_from([None, "p", "q", "r"]), st.sampled_from([None, 0, 1, 2, -3])
ROWS: dict[str, st.SearchStrategy[Any]] = {
    "a": st.tuples(key, number, st.sampled_from([None, 0.5, -1.5, 2.0])),
    "b": st.tuples(key, number, st.sampled_from([None, "u", "v"])),
    "c": st.tuples(key, number),
}
epochs = st.lists(
    st.fixed_dictionaries({name: st.lists(row, max_size=4) for name, row in ROWS.items()}), min_size=1, max_size=3
)

QUERIES = [
    "select k, n + 1 as more from a where n > 0",
    "select k, b.n, t from a join b on k = id",
    "select k, a.n, id, t from a left join b on k = id",
    "select k, a.n, id, b.n as other from a right join b on k = id",
    "select k, a.n, id, b.n as other, t from a full join b on k = id",
    "select k, x, id from a full join b on a.n = b.n and k = id",
    "select k, m, x from a left join c using (k)",
    "select k, m, x from a right join c using (k)",
    "select k, m, x from a full join c using (k)",
    "select k, count(*) as n, sum(n) as s from a group by k having count(*) > 1",
    "select k, max(n) as top from a group by k having max(n) < 2",
    "select k, count(*) as c, sum(n) as s from a group by k having c > 1 and s + 1 > 0",
    "select k, sum(n) * 2 as n from a group by k having sum(n) > 0 and k <> 'q'",
    "select k, n > 0 as up, count(*) as c from a group by k, up having up or c - 1 > 0",
    "select a.k, a.n, id, t from a left join b on k = id and b.n > 0",
    "select a.k, a.n, id, t from a left join b on k = id and t = 'u' and b.n = b.n",
    "select k, a.n, id, b.n as other from a right join b on k = id and x > 0",
    "select b.*, k from a join b on k = id and b.n > 0 and a.n is not null",
    "select sum(n) as s, count(n) as c, count(distinct n) as d from a having count(*) < 4",
    "select k, count(distinct n) as c, min(x) as low, avg(n) as mean from a group by k",
    "select s, count(*) as c from (select k, sum(n) as s from a group by k) t group by s",
    "select max(c) as top, sum(c) as whole, count(distinct c) as kinds from (select count(*) as c from a group by k) t",
    "select t, count(*) as c, sum(a.n) as s from a left join b on k = id group by t",
    "select t, count(k) as c, max(a.n) as s from a full join b on k = id group by t having count(*) > 1",
    "select k, n from a order by n desc nulls last, k nulls first, x nulls first limit 2",
    "select k, sum(n) as s from a group by k order by s desc nulls first, k nulls last limit 2",
    "select x from a order by n nulls first, k nulls last, x nulls last limit 3",
    "select k from (select k, n from a order by n nulls last, k nulls last limit 3) t where n > 0",
    "select distinct k, n from a",
    "select distinct t from a left join b on k = id",
    "select distinct t as rows from a left join b on k = id",
    "select k, n from a union all select id, n from b where n > 0",
    "select k, n from a union select id, n from b",
    "select k, sum(n) as s from a group by k union all select id, n from b",
    "select k, s from (select k, sum(n) as s from a group by k) t union select id, n from b",
    "select a.k, s from a left join (select id, sum(n) as s from b group by id) t on k = id",
    "select a.k, s, id from a right join (select id, sum(n) as s from b group by id) t on k = id",
    "select a.k, s, id from a full join (select id, max(n) as s from b group by id) t on k = id",
    "select a.k, t, m from a left join b on a.k = id left join c on c.k = id",
    "select a.k, t, m from a full join b on a.k = id full join c on c.m = b.n",
    "select a.k, t, m, c.k as own from a left join b on a.k = id right join c on c.m = b.n",
    "with big as (select k from a group by k having count(*) > 1) select b.n, id from b join big on k = id",
    "select k, count(*) filter (where n > 0) as c, sum(n) filter (where x > 0) as s from a group by k having sum(n) >= 0",
]

ANTI = {
    "select k, n from a anti join b on k = id": "select k, n from a where not exists (select 1 from b where k = id)",
    "select k, n from a semi join b on k = id": "select k, n from a where exists (select 1 from b where k = id)",
    "select k, n from a semi join b on k = id and b.n > 0 and x > 0": (
        "select k, n from a where exists (select 1 from b where k = id and b.n > 0 and x > 0)"
    ),
    "select k, n from a anti join b on k = id and t = 'u'": (
        "select k, n from a where not exists (select 1 from b where k = id and t = 'u')"
    ),
    "select k, n from a anti join (select id from b group by id having count(*) > 1) t on k = id": (
        "select k, n from a where not exists (select id from b where k = id group by id having count(*) > 1)"
    ),
    "select k, n from a semi join (select id from b group by id having count(*) = 1) t on k = id": (
        "select k, n from a where exists (select id from b where k = id group by id having count(*) = 1)"
    ),
}
"""Queries with joins that SQLite does not have, and what they are there."""

some = settings(max_examples=max(3, settings.default.max_examples // 10))


def made(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda texts: form.format(*texts))


side = st.sampled_from(["", "left ", "right ", "full "])
KEYED = made(
    "select k, {} as v from a where {} group by k {}",
    st.sampled_from(["sum(n)", "count(*)", "max(n)", "count(distinct n)", "min(n)"]),
    st.sampled_from(["true", "n > 0", "x is not null"]),
    st.sampled_from(["", "having count(*) > 1", "having sum(n) > 0", "having max(n) = 2 or min(n) is null"]),
)
PLAIN = st.sampled_from(
    ["select k, n as v from a", "select k, m as v from c", "select id as k, n as v from b where n > 0"]
)
INNER = KEYED | PLAIN | made("{} union {}", PLAIN, PLAIN)
JOINED = made("select o.k, o.v, i.k as k2, i.v as v2 from ({}) o {}join ({}) i on o.k = i.k", INNER, side, INNER)
DRAWN = (
    made("select k, v, v2 from ({}) j where v > 0 or v2 is null", JOINED)
    | made("select k2, count(*) as c, sum(v) as s, max(v2) as top from ({}) j group by k2", JOINED)
    | made("select distinct k, v2 from ({}) j", JOINED)
    | made(
        "select k, v, k2, v2 from ({}) j order by v desc nulls last, k nulls first, k2 nulls first, v2 nulls last limit 2",
        JOINED,
    )
    | made("select k, v from ({}) t union all select k, v from ({}) u", KEYED, INNER)
)


def answer(query: str, given: dict[str, list[Any]]) -> Counter[Any]:
    with sqlite3.connect(":memory:") as database:
        for name, schema in SCHEMAS.items():
            kinds = {pl.String: "text", pl.Int64: "integer", pl.Float64: "real"}
            database.execute(
                f"create table {name} ({', '.join(f'{each} {kinds[kind]}' for each, kind in schema.items())})"
            )
            marks = ", ".join("?" * len(schema))
            database.executemany(f"insert into {name} values ({marks})", given[name])
        return Counter(map(plain, database.execute(query)))


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLite has no booleans, and no negative zero."""
    return tuple(round(value + 0.0, 9) if isinstance(value, int | float) else value for value in row)


def check(query: str, right: str, given: list[dict[str, list[Any]]], workers: int, seed: int) -> None:
    flow = Dataflow("sql")
    streams = {
        name: flow.columns(name, Batches([pl.DataFrame(epoch[name], schema, orient="row") for epoch in given]))
        for name, schema in SCHEMAS.items()
    }
    found = sql(query, changes=True, **streams)
    assert isinstance(found, Changes)
    assert found.schema is not None
    assert list(found.schema)[-1] == CHANGE
    out = found.capture()
    cluster = Cluster(flow, workers, seed)
    cluster.run()
    told: list[list[pl.DataFrame]] = [[] for _ in given]
    for time, batch in cluster.captured(out):
        assert as_polars(batch).schema == found.schema
        told[time[0]].append(as_polars(batch))
    there: Counter[Any] = Counter()
    for epoch, frames in enumerate(told):
        for frame in frames:
            for *row, sign in frame.rows():
                there[plain(tuple(row))] += sign
        so_far = {name: [row for each in given[: epoch + 1] for row in each[name]] for name in SCHEMAS}
        wanted = answer(right, so_far)
        assert min(there.values(), default=0) >= 0
        assert +there == wanted or (not +there and _of_no_rows(right, so_far))


def _of_no_rows(query: str, so_far: dict[str, list[Any]]) -> bool:
    """Totals of no rows at all, without a key, are one row in SQL, and none here until a row comes."""
    return not so_far["a"] and query.startswith(("select sum(n) as s, count(n)", "select max(c) as top"))


@pytest.mark.parametrize("query", QUERIES)
@some
@given(epochs, st.integers(1, 3), st.integers(0, 99))
def test_rows_that_there_are_are_those_of_sqlite(query: str, given: Any, workers: int, seed: int) -> None:
    check(query, query, given, workers, seed)


@pytest.mark.parametrize("query", ANTI)
@some
@given(epochs, st.integers(1, 3), st.integers(0, 99))
def test_rows_with_and_without_a_match_are_those_of_sqlite(query: str, given: Any, workers: int, seed: int) -> None:
    check(query, ANTI[query], given, workers, seed)


@settings(max_examples=settings.default.max_examples)
@given(DRAWN, epochs, st.integers(1, 3), st.integers(0, 99))
def test_rows_of_drawn_queries_are_those_of_sqlite(query: str, given: Any, workers: int, seed: int) -> None:
    check(query, query, given, workers, seed)
