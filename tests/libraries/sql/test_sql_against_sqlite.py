"""Drawn queries over drawn rows, nulls among them, in batches and epochs: against SQLite over all rows at once."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.errors import OperatorError
from timely.io import Batches

pytestmark = pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 39), reason="SQLite lacks IS DISTINCT FROM")

SCHEMA = {"k": pl.String, "i": pl.Int64, "f": pl.Float64, "b": pl.Boolean}
rows = st.tuples(
    st.sampled_from([None, "a", "b", "Ab", ""]),
    st.sampled_from([None, 0, 1, 2, -3]),
    st.sampled_from([None, 0.0, 0.5, -1.5]),
    st.sampled_from([None, True, False]),
)
epochs = st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=3)
some = settings(max_examples=settings.default.max_examples)


def made(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda texts: form.format(*texts))


def expressions(depth: int) -> tuple[st.SearchStrategy[str], st.SearchStrategy[str], st.SearchStrategy[str]]:
    """Numbers, texts and conditions, nested `depth` deep."""
    number, text = st.sampled_from(["i", "f", "1", "-3", "2.5"]), st.sampled_from(["k", "'a'", "''"])
    condition = st.sampled_from(["b", "i > 0", "k = 'a'", "i is null", "f is not null", "true"])
    if depth:
        one, word, true = expressions(depth - 1)
        compare = st.sampled_from(["<", "<=", "=", "<>", "is distinct from", "is not distinct from"])
        number |= (
            made("({} {} {})", one, st.sampled_from("+-*"), one)
            | made("coalesce({}, {})", one, one)
            | made("case when {} then {} end", true, one)
            | made("nullif({}, {})", one, one)
            | made("abs({})", one)
            | made("length({})", word)
        )
        text |= made("({} || {})", word, word) | made("lower({})", word) | made("coalesce({}, 'z')", word)
        condition |= (
            made("({} {} {})", true, st.sampled_from(["and", "or"]), true)
            | made("not {}", true)
            | made("{} is {}", made("({})", true), st.sampled_from(["true", "false", "not true", "not false"]))
            | made("{} {} {}", one, compare, one)
            | made("{} {} {} or {}", word, compare, word, true)
            | made("{} between {} and {}", one, one, one)
            | made("i {} (1, null)", st.sampled_from(["in", "not in"]))
        )
    return number, text, condition


NUMBER, TEXT, CONDITION = expressions(3)
AGGREGATE = (
    st.sampled_from(["count(*)", "max(k)", "count(distinct i)", "sum(i)", "count(b)"])
    | made("{}({})", st.sampled_from(["sum", "min", "max", "count"]), NUMBER)
    | made("{} filter (where {})", st.sampled_from(["count(*)", "sum(i)", "min(f)", "count(distinct k)"]), CONDITION)
)
ROWS = made("select {} as x, {} as y, {} as z from t where {}", NUMBER, TEXT, CONDITION, CONDITION)
TOTALS = made("select k, {} as x, {} as y from t where {} group by k", AGGREGATE, AGGREGATE, CONDITION)


def answer(query: str, given: list[Any]) -> Counter[Any]:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table t (k text, i integer, f real, b boolean)")
        database.executemany("insert into t values (?, ?, ?, ?)", given)
        return Counter(map(plain, database.execute(query)))


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLite has no booleans, and no negative zero."""
    return tuple(value + 0.0 if isinstance(value, int | float) else value for value in row)


def results(query: str, given: list[list[Any]], workers: int) -> list[tuple[Any, ...]]:
    flow = Dataflow("sql")
    frames = [pl.DataFrame(rows, SCHEMA, orient="row") for rows in given]
    out = sql(query, t=flow.columns("t", Batches(frames))).capture()
    cluster = Cluster(flow, workers, 0)
    try:
        cluster.run()
    except OperatorError as error:
        if "doesn't match the DataFrame height" in str(error):
            reject()  # Polars 2.1: `case when 1 < coalesce(i, 2.5) then 1 end` where each i is null
        raise
    return [plain(row) for _, batch in cluster.captured(out) for row in as_polars(batch).rows()]


@some
@given(ROWS, epochs, st.integers(1, 2))
def test_rows_are_those_of_sqlite(query: str, given: list[list[Any]], workers: int) -> None:
    assert Counter(results(query, given, workers)) == answer(query, [row for rows in given for row in rows])


@some
@given(TOTALS, epochs, st.integers(1, 2))
def test_running_totals_end_where_sqlite_ends(query: str, given: list[list[Any]], workers: int) -> None:
    last = {row[0]: row for row in results(query, given, workers)}
    assert Counter(last.values()) == answer(query, [row for rows in given for row in rows])


@pytest.mark.parametrize("query", ["select 1 as one from t", "select 2 + 1 as n, 'a' as k from t where b"])
def test_there_is_a_row_for_each_row_though_no_column_is_named(query: str) -> None:
    given = [[("a", 1, None, True), ("b", 2, None, True), ("b", 2, None, None)], [("a", 3, 0.5, True)]]
    assert Counter(results(query, given, 1)) == answer(query, [row for rows in given for row in rows])


def test_parts_of_dates_and_lengths_are_numbers_that_do_not_wrap() -> None:
    flow = Dataflow("sql")
    ships = pl.DataFrame({"at": [dt.datetime(2024, 12, 31, 23, 59, 58)], "k": ["a"]})
    query = """
        select extract(hour from at) * 60 + extract(minute from at) as minute, date_part('month', at) * 100 as month,
            extract(doy from at) * 1000 as day, extract(year from at) * 10000000 as year, length(k) - 5 as length,
            octet_length(k) - 5 as bytes, position('b' in k) - 5 as place, count(*) - 5 as n, count(distinct k) - 5 as kinds
        from ships group by k, at
    """
    out = sql(query, ships=flow.columns("ships", Batches([ships]))).capture()
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    ((_, batch),) = cluster.captured(out)
    assert as_polars(batch).rows() == [(1439, 1200, 366000, 20240000000, -4, -4, -5, -4, -4)]


def test_all_and_any() -> None:
    given = [[("a", 1, None, True), ("a", 2, None, None), ("b", 1, None, True), ("b", 1, None, False)]]
    found = results("select k, bool_and(b) as each, bool_or(b) as one from t group by k", given, 2)
    assert sorted(found) == [("a", 1, 1), ("b", 0, 1)]
