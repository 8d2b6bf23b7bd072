"""The 22 queries of TPC-H as they are written, against SQLite."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
from collections import Counter
from functools import cache
from typing import Any

import polars as pl
import pytest

from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.verbs.changes import Changes
from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from tests.libraries.sql.tpch import QUERIES, tables
from timely.data.batch import as_polars
from timely.dataflow.wire import view
from timely.io import Batches


@cache
def database(seed: int) -> sqlite3.Connection:
    return in_memory(tables(seed))


def in_memory(frames: dict[str, pl.DataFrame]) -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.execute("pragma case_sensitive_like = on")
    for name, frame in frames.items():
        made.execute(f"create table {name} ({', '.join(frame.columns)})")
        rows = [[each.isoformat() if isinstance(each, dt.date) else each for each in row] for row in frame.rows()]
        made.executemany(f"insert into {name} values ({', '.join('?' * frame.width)})", rows)
    return made


def in_sqlite(query: str) -> str:
    """The query in SQLite's words: dates are texts there."""

    def moved(match: re.Match[str]) -> str:
        sign, count, unit = match[2], int(match[3]), match[4]
        day = dt.date.fromisoformat(match[1])
        if unit == "day":
            return f"'{day + dt.timedelta(days=count if sign == '+' else -count)}'"
        months = day.year * 12 + day.month - 1 + count * (12 if unit == "year" else 1)
        return f"'{day.replace(year=months // 12, month=months % 12 + 1)}'"

    query = re.sub(r"date '([\d-]+)' ([+-]) interval '(\d+)' (\w+)", moved, query)
    query = re.sub(r"date ('[\d-]+')", r"\1", query)
    query = re.sub(r"extract\(year from (\w+)\)", r"cast(strftime('%Y', \1) as integer)", query)
    query = re.sub(r"substring\((\w+) from (\d) for (\d)\)", r"substr(\1, \2, \3)", query)
    columns = re.search(r"\) as c_orders \(c_custkey, c_count\)", query)
    return (
        query
        if columns is None
        else query.replace("count(o_orderkey)", "count(o_orderkey) as c_count").replace(columns[0], ") as c_orders")
    )


def plain(row: Any) -> tuple[Any, ...]:
    values = (each.isoformat() if isinstance(each, dt.date) else each for each in row)
    return tuple(pytest.approx(each, rel=1e-9) if isinstance(each, float) else each for each in values)


def ordered(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: [f"{each:.6f}" if isinstance(each, int | float) else str(each) for each in row])


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_gives_what_sqlite_gives(number: int) -> None:
    query, seed = QUERIES[number], 1
    want = database(seed).execute(in_sqlite(query)).fetchall()
    assert want, "the tables give every query something to find"
    assert want[0][0] is not None
    flow = Dataflow()
    streams = {
        name: flow.columns(name, Batches([frame]))
        for name, frame in tables(seed).items()
        if re.search(rf"\b{name}\b", query)
    }
    out = sql(query, over="time", **streams).capture("out")
    cluster = Cluster(flow, 2, seed)
    cluster.run()
    got = [row for _, batch in cluster.captured(out) for row in as_polars(batch).rows()]
    if "limit" not in query:  # where it is not, rows that are equal in order may come in any
        got, want = ordered(got), ordered(want)
    assert [plain(each) for each in got] == [tuple(each) for each in want]


@cache
def epochs() -> list[dict[str, pl.DataFrame]]:
    """The tables as signed rows: two halves one after the other, then a fourth of all rows is taken back."""
    found: list[dict[str, pl.DataFrame]] = [{}, {}, {}]
    for name, frame in tables(1).items():
        half = len(frame) // 2
        parts = (frame[:half], 1), (frame[half:], 1), (frame.gather_every(4, 1), -1)
        for epoch, (part, sign) in zip(found, parts, strict=True):
            epoch[name] = part.with_columns(pl.lit(sign, pl.Int8).alias(CHANGE))
    return found


@cache
def databases() -> list[sqlite3.Connection]:
    """What there is after each epoch."""
    whole = tables(1)
    return [
        in_memory({name: frame[: len(frame) // 2] for name, frame in whole.items()}),
        in_memory(whole),
        in_memory({name: frame.filter(pl.int_range(len(frame)) % 4 != 1) for name, frame in whole.items()}),
    ]


@pytest.mark.parametrize("number", QUERIES)
def test_changes_add_up_to_what_sqlite_gives_after_each_epoch_rows_taken_back_too(number: int) -> None:
    query = QUERIES[number]
    flow = Dataflow()
    streams = {
        name: view(flow.columns(name, Batches([epoch[name] for epoch in epochs()])), Changes)
        for name in tables(1)
        if re.search(rf"\b{name}\b", query)
    }
    asked = query if "limit" in query else re.sub(r"\border by [^()]*$", "", query)
    out = sql(asked, changes=True, **streams).capture("out")
    cluster = Cluster(flow, 2, number)
    cluster.run()
    captured = [(time[0], as_polars(batch)) for time, batch in cluster.captured(out)]
    for epoch, held in enumerate(databases()):
        there = Counter[tuple[Any, ...]]()
        for row, sign in ((row, sign) for at, batch in captured if at <= epoch for *row, sign in batch.rows()):
            there[tuple(row)] += sign
        assert min(there.values(), default=0) >= 0
        want = [row for row in held.execute(in_sqlite(query)) if row != (None,)]  # totals of no rows are no row here
        assert [plain(each) for each in ordered(list(there.elements()))] == [tuple(each) for each in ordered(want)]
