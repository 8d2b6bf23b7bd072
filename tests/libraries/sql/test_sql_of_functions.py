"""Functions of SQL that mean something else in Polars' SQL: each against Python, with nulls, and with types unknown."""

from __future__ import annotations

import datetime as dt
import math
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from tests.support.profile import effort
from timely.data.batch import as_polars
from timely.errors import GraphError
from timely.io import Batches

some = settings(max_examples=max(effort(5, 10, 10), settings.default.max_examples // 10))

SCHEMA: dict[str, Any] = {
    **{"n": pl.Int64, "m": pl.Int64, "f": pl.Float64, "s": pl.String},
    **{"d": pl.Date, "t": pl.Datetime("us"), "c": pl.Decimal(10, 2)},
}

rows = st.tuples(
    st.integers(1, 10**9) | st.none(),
    st.integers(-3, 3) | st.none(),
    st.floats(allow_nan=True) | st.none(),
    st.text("ab-", max_size=3) | st.sampled_from(["12", "-7", "1x"]) | st.none(),
    st.dates(dt.date(1, 1, 9), dt.date(9999, 12, 20)) | st.none(),
    st.datetimes(dt.datetime(1000, 1, 1)) | st.none(),
    st.decimals(-99, 99, places=2) | st.none(),
)


def strict(function: Callable[..., Any], *names: str) -> Callable[[dict[str, Any]], Any]:
    """Null where one of the columns is null."""
    return lambda row: None if any(row[name] is None for name in names) else function(*(row[name] for name in names))


def quotient(one: Any, other: Any) -> float:
    one, other = float(one), float(other)
    return one / other if other else math.nan if not one or math.isnan(one) else math.copysign(math.inf, one)


def at_midnight(day: dt.date) -> dt.datetime:
    return dt.datetime(day.year, day.month, day.day)


def integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


FUNCTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "log10(n)": strict(math.log10, "n"),
    "log(n)": strict(math.log10, "n"),
    "log2(n)": strict(math.log2, "n"),
    "log(2, n) + 0": strict(math.log2, "n"),
    "log(5, n)": strict(lambda n: math.log(n) / math.log(5), "n"),
    "log(m + 5, n)": strict(lambda n, m: math.log(n) / math.log(m + 5), "n", "m"),
    "ln(n)": strict(math.log, "n"),
    "position('b' in s)": strict(lambda s: s.find("b") + 1, "s"),
    "strpos(s, 'ab') - 1": strict(lambda s: s.find("ab"), "s"),
    "left(s, 0)": strict(lambda s: "", "s"),
    "right(s, 0)": strict(lambda s: "", "s"),
    "right(s, 2)": strict(lambda s: s[-2:], "s"),
    "right(s, 9)": strict(lambda s: s, "s"),
    "round(sqrt(n), 12)": strict(lambda n: round(math.sqrt(n), 12), "n"),
    "round(1.0 * n / 3, 12)": strict(lambda n: round(n / 3, 12), "n"),
    "f / 7": strict(lambda f: f / 7, "f"),
    "f / (2 + 1.3)": strict(lambda f: f / 3.3, "f"),
    "m / 49": strict(lambda m: m / 49, "m"),
    "sqrt(n) / 3": strict(lambda n: math.sqrt(n) / 3, "n"),
    "log(power(10, m))": strict(float, "m"),
    "floor(log10(power(10, m + 12)))": strict(lambda m: m + 12.0, "m"),
    "log2(power(2, m + 30))": strict(lambda m: m + 30.0, "m"),
    "d + interval '3 hours'": strict(lambda d: at_midnight(d) + dt.timedelta(hours=3), "d"),
    "d - interval '1 day 1 second'": strict(lambda d: at_midnight(d) - dt.timedelta(days=1, seconds=1), "d"),
    "d + interval '48 hours'": strict(lambda d: d + dt.timedelta(days=2), "d"),
    "try_cast(s as date)": lambda row: None,
    "try_cast(cast(d as varchar) as date)": strict(lambda d: d, "d"),
    "cast(cast(d as varchar) as date)": strict(lambda d: d, "d"),
    "date(cast(d as varchar))": strict(lambda d: d, "d"),
    "try_cast('2024-01-31T10:30' as timestamp)": lambda row: dt.datetime(2024, 1, 31, 10, 30),
    "cast(cast(d as varchar) as timestamp)": strict(lambda d: at_midnight(d), "d"),
    "try_cast(s as timestamp) is null": lambda row: True,
    "try_cast(case when m > 0 then '10:30' else s end as time)": lambda row: dt.time(10, 30) if (row["m"] or 0) > 0 else None,
    "try_cast(case when m > 0 then 'True' when m = 0 then 'no' else s end as boolean)": lambda row: (
        True if (row["m"] or 0) > 0 else False if row["m"] == 0 else None
    ),
    "cast('true' as boolean)": lambda row: True,
    "left(s, 2)": strict(lambda s: s[:2], "s"),
    "replace(s, '', '-')": strict(lambda s: s, "s"),
    "replace(s, 'a', 'bb')": strict(lambda s: s.replace("a", "bb"), "s"),
    "try_cast(s as int)": strict(integer, "s"),
    "try_cast(s as bigint) + 1": strict(lambda s: None if integer(s) is None else int(s) + 1, "s"),
    "isnan(f)": strict(math.isnan, "f"),
    "1.0 * n / m": strict(quotient, "n", "m"),
    "n * 0.5 / 1000000000": strict(lambda n: n * 0.5 / 1e9, "n"),
    "c / m": strict(quotient, "c", "m"),
    "1.0 / 3": lambda row: 1 / 3,
    "c * 2": strict(lambda c: c * 2, "c"),
    "date(t)": strict(lambda t: t.date(), "t"),
    "date(d)": strict(lambda d: d, "d"),
    "extract(epoch from t)": strict(lambda t: (t - dt.datetime(1970, 1, 1)) / dt.timedelta(seconds=1), "t"),
    "extract(epoch from d)": strict(lambda d: float((d - dt.date(1970, 1, 1)).days * 86400), "d"),
    "coalesce(d, '2024-02-29')": lambda row: row["d"] or dt.date(2024, 2, 29),
    "coalesce(t, '2024-02-29 10:00')": lambda row: row["t"] or dt.datetime(2024, 2, 29, 10),
    "case when m > 0 then d else '2024-02-29' end": lambda row: row["d"] if (row["m"] or 0) > 0 else dt.date(2024, 2, 29),
    "case d when '2000-01-01' then 1 else 0 end": lambda row: int(row["d"] == dt.date(2000, 1, 1)),
    "nullif(d, ('2000-01-01'))": lambda row: None if row["d"] == dt.date(2000, 1, 1) else row["d"],
    "greatest(d, '2000-01-01')": lambda row: max(row["d"] or dt.date.min, dt.date(2000, 1, 1)),
    "least(d, '2000-01-01') = ('2000-01-01')": lambda row: (row["d"] or dt.date.max) >= dt.date(2000, 1, 1),
    "m + 0 * -9223372036854775808": strict(lambda m: m, "m"),
    "n > -9223372036854775808": strict(lambda n: True, "n"),
}  # fmt: skip


def results(item: str, batches: list[list[Any]], known: bool) -> list[Any]:
    flow = Dataflow("sql")
    frames = [pl.DataFrame(each, SCHEMA, orient="row") for each in batches]
    s = flow.columns("s", Batches(frames))
    out = sql(f"select {item} as x from s", s=s if known else s.map_batches(lambda batch: batch)).capture()
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    return [value for _, batch in cluster.captured(out) for value in as_polars(batch)["x"].to_list()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("item", FUNCTIONS)
@some
@given(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=3), st.booleans())
def test_functions_are_those_of_sql(item: str, batches: list[list[Any]], known: bool) -> None:
    right = [FUNCTIONS[item](dict(zip(SCHEMA, row, strict=True))) for batch in batches for row in batch]
    found = results(item, batches, known)
    for value, wanted in zip(found, right, strict=True):
        if isinstance(wanted, float):
            assert isinstance(value, float), (value, wanted)
            rounded = item.startswith(("log", "ln", "round", "extract(epoch"))  # in another way than Python does it
            near = pytest.approx(wanted, rel=1e-12, abs=0, nan_ok=True) if rounded else None
            assert value == (wanted if near is None else near) or value != value != wanted != wanted
        else:
            assert (value, type(value)) == (wanted, type(wanted))


def test_the_same_functions_are_those_of_sqlite() -> None:
    given = ["abc", None, "", "bb", "-a-"]
    with sqlite3.connect(":memory:") as database:
        for item in ("instr(s, 'b')", "replace(s, '', 'x')", "replace(s, 'b', '')", "coalesce(s, 'none')"):
            right = [database.execute(f"select {item} from (select ? as s)", (text,)).fetchone()[0] for text in given]
            batch = [(1, 1, 1.0, text, None, None, Decimal(1)) for text in given]
            assert results(item, [batch], known=True) == right, item


@pytest.mark.parametrize("item", ["n = '1'", "s > 1", "case when n then 1 end", "s like 1", "abs(s)"])
def test_what_polars_sees_only_when_it_computes_is_refused_at_the_call(item: str) -> None:
    flow = Dataflow("sql")
    with pytest.raises(GraphError) as refused:
        sql(f"select {item} as x from s", s=flow.columns("s", Batches([pl.DataFrame(schema=SCHEMA)])))
    assert "test_sql_of_functions.py:" in str(refused.value)
