"""Dates in queries: compared with texts as SQLite does it, and cut off as Polars' own SQL does it."""

from __future__ import annotations

import datetime as dt
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

SCHEMA = {"t": pl.Datetime("us"), "d": pl.Date, "k": pl.String}
some = settings(max_examples=max(10, settings.default.max_examples // 5))
instants = st.datetimes(dt.datetime(2023, 12, 30), dt.datetime(2024, 1, 3)).map(lambda at: at.replace(microsecond=0))
rows = st.tuples(
    st.none() | instants | st.just(dt.datetime(2024, 1, 1, 0, 10)),
    st.none() | st.dates(dt.date(2023, 12, 30), dt.date(2024, 1, 3)),
    st.sampled_from([None, "2024-01-01", "a"]),
)

COMPARED = [
    "t >= '2024-01-01 00:10:00'",
    "'2024-01-01 00:10:00' = t",
    "t <> '2024-01-01 00:10:00' or d > '2024-01-01'",
    "t between '2023-12-31 12:00:00' and '2024-01-02 00:00:00'",
    "d in ('2024-01-01', '2023-12-31')",
    "d is distinct from '2024-01-01' and t is not null",
    "k = '2024-01-01'",
    "coalesce(d, '2024-01-02') < '2024-01-02'",
]
TRUNCATED = [
    "select date_trunc('hour', t) as x, date_trunc('month', d) as y from s",
    "select date_trunc('week', t) - t as x, date_trunc('quarter', t + interval '1 day') as y from s where k = 'a'",
    "select date_trunc('day', date_trunc('minute', t)) as x, extract(day from date_trunc('year', d)) + 1 as y from s",
    "select date_trunc('day', t) as x, count(*) as n from s where date_trunc('day', t) > '2023-12-31' group by x",
]


def results(query: str, frame: pl.DataFrame, known: bool) -> Counter[Any]:
    flow = Dataflow("sql")
    s = flow.columns("s", Batches([frame]))
    out = sql(query, s=s if known else s.map_batches(lambda batch: batch)).capture()
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    return Counter(row for _, batch in cluster.captured(out) for row in as_polars(batch).rows())


@pytest.mark.parametrize("condition", COMPARED)
@some
@given(st.lists(rows, min_size=1, max_size=6), st.booleans())
def test_texts_that_dates_are_compared_with_are_dates(condition: str, given: list[Any], known: bool) -> None:
    numbered = [(place, *row) for place, row in enumerate(given)]
    frame = pl.DataFrame(numbered, {"i": pl.Int64, **SCHEMA}, orient="row")
    with sqlite3.connect(":memory:") as database:
        database.execute("create table s (i integer, t text, d text, k text)")
        for i, t, d, k in numbered:
            database.execute("insert into s values (?, ?, ?, ?)", (i, t and str(t), d and str(d), k))
        right = Counter(database.execute(f"select i from s where {condition}"))
    assert results(f"select i from s where {condition}", frame, known) == right


@pytest.mark.parametrize("query", TRUNCATED)
@some
@given(st.lists(rows, min_size=1, max_size=6), st.booleans())
def test_dates_are_cut_off_as_polars_does_it(query: str, given: list[Any], known: bool) -> None:
    frame = pl.DataFrame(given, SCHEMA, orient="row")
    right = pl.SQLContext(s=frame).execute(query.replace("'2023-12-31'", "timestamp '2023-12-31'"), eager=True)
    assert results(query, frame, known) == Counter(right.rows())


@pytest.mark.parametrize(("item", "message"), [
    ("date_trunc('fortnight', t)", "date_trunc takes one of millisecond, second"),
    ("date_trunc('hour', k)", "date_trunc is of dates and datetimes, not of String"),
    ("t > '2024-13-01'", "'2024-13-01' is beside Datetime(time_unit='us', time_zone=None), and is no timestamp"),
    ("d > 'soon'", "'soon' is beside Date, and is no timestamp"),
])  # fmt: skip
def test_what_is_no_date_is_refused(item: str, message: str) -> None:
    flow = Dataflow("sql")
    with pytest.raises(GraphError) as refused:
        sql(f"select {item} as x from s", s=flow.columns("s", Batches([pl.DataFrame(schema=SCHEMA)])))
    assert message in str(refused.value)
    assert "test_sql_of_dates.py:" in str(refused.value)
