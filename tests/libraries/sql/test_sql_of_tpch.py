"""The 22 queries of TPC-H as they are written, against SQLite."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
from functools import cache
from typing import Any

import pytest

from libraries.sql.query import sql
from runtime.memory import Cluster
from tests.libraries.sql.tpch import QUERIES, tables
from timely.data.batch import as_polars
from timely.dataflow.dataflow import Dataflow
from timely.io import Batches


@cache
def database(seed: int) -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.execute("pragma case_sensitive_like = on")
    for name, frame in tables(seed).items():
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
