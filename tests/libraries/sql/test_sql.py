"""Queries over streams, in random batches, epochs and numbers of workers: against Polars' SQL over all rows at once."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.errors import GraphError
from timely.io import Batches

SALES = {"shop": pl.String, "n": pl.Int64, "price": pl.Float64}
SHOPS = {"id": pl.String, "town": pl.String, "n": pl.Int64}

sales = st.tuples(st.none() | st.sampled_from("abc"), st.none() | st.integers(-3, 5), st.sampled_from([0.5, 1.5, 2.0]))
shops = st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y"]), st.integers(0, 2))

ROWS = [
    "select * from sales",
    "select shop, n * 2 as twice, upper(shop) as loud from sales where n > 0 or price = 2.0",
    "select s.shop, coalesce(s.n, 0) as n from sales as s where s.shop is not null and s.n between -1 and 3",
    "select case when n > 1 then 'many' else 'few' end as much, cast(trunc(price) as bigint) as whole from sales",
    "select shop, n from sales where n > 2 union all select shop, n from sales where n < 0",
    "select shop, n from sales union select town, n from shops where n > 0",
    "select * from sales join shops on shop = id and sales.n > shops.n",
    "select price from sales join shops on shop = id and sales.n = shops.n and town <> 'x'",
    "with dear as (select shop, price from sales where price > 1) select shop, price + 1 as more from dear",
    "select loud from (select lower(shop) as loud, n from sales) as t where t.n in (1, 2)",
    "select shop, town, sales.n, shops.n as size from sales join shops on sales.shop = shops.id",
    "select s.shop, t.town from sales s join (select id as shop, town from shops) t using (shop) where t.town = 'x'",
    "select * from sales join shops on shop = id",
    "select * from sales join shops on sales.n = shops.n",
    "select sales.* from sales",
    "select sales.*, town from sales join shops on shop = id",
    "select t.*, s.* from sales s join (select id as shop, n as size from shops) t using (shop)",
]
"""Queries that give rows: at their time, or when there is a match."""

TOTALS = [
    "select shop, count(*) as rows, sum(n) as total, min(n) as least, max(n) as most from sales group by shop",
    "select shop, sum(price) / count(*) as mean, avg(price) as same from sales where price > 1 group by shop",
    "select count(n) as there, sum(n + 1) as more, max(shop) as last from sales",
    "select n > 1 as many, count(*) as rows from sales group by n > 1",
    "select shop as s, n, count(*) as rows from sales group by 1, n",
    "select upper(shop) as loud, sum(n) + sum(price) as both from sales group by loud",
    "select town, sum(price) as paid from sales join shops on shop = id group by town",
    "select shop, count(distinct n) as kinds, count(distinct upper(shop)) as own, sum(n) as n from sales group by shop",
    "select count(distinct n) + 1 as kinds from sales",
    "select distinct shop from sales",
    "select distinct town, n from shops where n > 0",
]
"""Queries whose results run on."""

LEFT = [
    "select * from sales left join shops on shop = id",
    "select * from sales left join shops on sales.n = shops.n and shop = id",
    "select sales.n, shops.n as size, town from sales left join shops on sales.n = shops.n",
    "select shop, id is null as lone from sales left join shops on shop = id",
    "select t.shop, price from sales s left join (select id as shop, town from shops) t using (shop)",
    "select shop, price, id, town from sales right join shops on shop = id",
    "select sales.n as n, shops.n as size, id from sales full join shops on sales.n = shops.n",
    "select shop, id, town from sales full join shops on shop = id and sales.n = shops.n",
    "select town, s.n from shops right join sales as s on town = shop",
    "select * from sales left join shops on shop = id and town = 'x'",
    "select * from sales left join shops on shop = id and shops.n > 0 and town <> 'y'",
    "select sales.n as n, id from sales right join shops on shop = id and price > 1 and sales.n > 0",
    "select shop, town from sales left join shops on shop = id and shops.n = shops.n",
]
"""Queries that also give rows without a match: those of a time."""

OF_A_TIME = [*TOTALS, "select shop, count(*) as rows from sales group by shop having count(*) > 1 and sum(n) > 0"]


def answer(query: str, tables: dict[str, pl.DataFrame]) -> list[Any]:
    return sorted(pl.SQLContext(tables).execute(query, eager=True).rows(), key=str)


def results(query: str, over: Any, epochs: list[dict[str, pl.DataFrame]], workers: int) -> list[list[Any]]:
    """The rows that come at each epoch."""
    flow = Dataflow("sql")
    streams = {name: flow.columns(name, Batches([tables[name] for tables in epochs])) for name in ("sales", "shops")}
    out = sql(query, over=over, **streams).capture()
    cluster = Cluster(flow, workers, 0)
    cluster.run()
    found: list[list[Any]] = [[] for _ in epochs]
    for time, batch in cluster.captured(out):
        found[time[0]] += as_polars(batch).rows()
    return [sorted(rows, key=str) for rows in found]


def frames(found: list[tuple[list[Any], list[Any]]]) -> list[dict[str, pl.DataFrame]]:
    return [
        {"sales": pl.DataFrame(one, SALES, orient="row"), "shops": pl.DataFrame(other, SHOPS, orient="row")}
        for one, other in found
    ]


inputs = st.lists(
    st.tuples(st.lists(sales, max_size=5), st.lists(shops, max_size=3, unique_by=lambda row: row[0])),
    min_size=1,
    max_size=3,
).map(frames)
some = settings(max_examples=max(2, settings.default.max_examples // 20))


@pytest.mark.parametrize("query", OF_A_TIME)
@some
@given(inputs, st.integers(1, 2))
def test_totals_of_a_time_are_those_of_polars(query: str, epochs: list[dict[str, pl.DataFrame]], workers: int) -> None:
    for found, tables in zip(results(query, "time", epochs, workers), epochs, strict=True):
        read = [tables[name] for name in tables if name in query]
        if all(map(len, read)):  # no rows are no results here
            assert plain(found) == plain(answer(query, tables))


@pytest.mark.parametrize("query", ROWS)
@some
@given(inputs, st.integers(1, 2))
def test_rows_are_those_of_polars(query: str, epochs: list[dict[str, pl.DataFrame]], workers: int) -> None:
    found = [row for rows in results(query, "scope", epochs, workers) for row in rows]
    whole = {name: pl.concat([tables[name] for tables in epochs]) for name in epochs[0]}
    assert sorted(found, key=str) == answer(query, whole)


@pytest.mark.parametrize("query", LEFT)
@some
@given(inputs, st.integers(1, 2))
def test_rows_without_a_match_are_those_of_polars(
    query: str, epochs: list[dict[str, pl.DataFrame]], workers: int
) -> None:
    for found, tables in zip(results(query, "time", epochs, workers), epochs, strict=True):
        assert found == answer(query, tables)


def test_a_column_that_using_made_one_is_there_once() -> None:
    tables = {"sales": pl.DataFrame({"k": [1, 2], "n": [3, 4]}), "shops": pl.DataFrame({"k": [2], "n": [5]})}
    for query, right in (
        ("select * from sales left join shops using (k)", [(1, 3, None), (2, 4, 5)]),
        ("select * from sales join shops using (k)", [(2, 4, 5)]),
        ("select k, shops.n from sales left join shops using (k)", [(1, None), (2, 5)]),
        ("select shops.k, sales.k as mine from sales left join shops using (k)", [(2, 2), (None, 1)]),
    ):
        assert sorted(results(query, "time", [tables], 1)[0], key=str) == right


@pytest.mark.parametrize("query", TOTALS)
@some
@given(inputs, st.integers(1, 2))
def test_running_totals_end_where_polars_ends(query: str, epochs: list[dict[str, pl.DataFrame]], workers: int) -> None:
    keys = 2 if query.startswith(("select shop as s", "select distinct town")) else 0 if "select count" in query else 1
    last = {row[:keys]: row for rows in results(query, "scope", epochs, workers) for row in rows}
    whole = {name: pl.concat([tables[name] for tables in epochs]) for name in epochs[0]}
    right = answer(query, whole)
    assert plain(sorted(last.values(), key=str)) == plain(right) or (not last and not len(whole["sales"]))


@some
@given(inputs, st.integers(1, 2))
def test_what_is_first_and_last_is_what_polars_sorts_first_and_last(
    epochs: list[dict[str, pl.DataFrame]], workers: int
) -> None:
    query = "select arg_min(n, price) as first, arg_max(n, price * 2) as last from sales"
    rows = pl.concat([tables["sales"] for tables in epochs]).drop_nulls("n").sort("price", "n")["n"].to_list()
    found = [row for each in results(query, "scope", epochs, workers) for row in each]
    assert found[-1:] == [(rows[0], rows[-1])] if rows else all(row == (None, None) for row in found)


@some
@given(inputs, st.integers(1, 2))
def test_a_quantile_is_that_of_polars_but_for_the_error(epochs: list[dict[str, pl.DataFrame]], workers: int) -> None:
    query = "select approx_quantile(n, 0.25) as low from sales"
    right = pl.concat([tables["sales"] for tables in epochs])["n"].quantile(0.25)
    found = [row[0] for each in results(query, "scope", epochs, workers) for row in each]
    assert found[-1:] == [None if right is None else pytest.approx(right, rel=0.01 + 1e-9)] or (
        right is None and not found
    )


def plain(rows: list[Any]) -> list[Any]:
    """Floats to nine digits: sums of them depend on their order."""
    return [tuple(round(value, 9) if isinstance(value, float) else value for value in row) for row in rows]


REFUSED = {
    "select * from nothing": "no stream 'nothing'; there are 'sales', 'shops'",
    "select nix from sales": "no column 'nix'; there are 'shop', 'n', 'price'",
    "select t.n from sales": "no table 't'; there are 'sales'",
    "select n from sales join shops on shop = id": "column 'n' is in several tables; say which: sales.n",
    "select * from sales order by n": "ORDER BY n: rows that go on coming have no last order",
    "select * from sales limit 3": "LIMIT 3: which rows are the first? say order by",
    "select * from sales order by n limit 3": "order by with limit over all epochs would have to take",
    "select * from sales order by n limit 0": "LIMIT 0: it is a number of rows, 1 or more",
    "select * from sales order by n offset 3": "OFFSET 3: rows of streams have no numbers",
    "select * from sales order by n fetch first 3 rows with ties": "it is a number of rows",
    "select shop from sales order by 2 limit 1": "order by 2: a number is the place of a column that is named, from 1 to 1",
    "select distinct shop from sales order by n limit 1": "ORDER BY n: it is by columns of the results here",
    "select n from sales qualify n > 1": "it has no meaning over streams",
    "select n from sales for update": "it has no meaning over streams",
    "select n from sales group by shop": "column 'n' must be in group by",
    "select shop from sales group by shop having count(*) > 1": "having over all epochs would have to take rows",
    "select mode(n) from sales": "var_pop, stddev, stddev_pop, bool_and, bool_or, arg_min, arg_max and approx",
    "select k from (select shop as k, count(*) as n from sales group by shop) t where n > 1": "where: the totals",
    "select sum(n) as n from (select shop, max(n) as n from sales group by shop) t": "an aggregate: the totals",
    "select * from sales join (select id, count(*) as c from shops group by id) t on shop = id": "a join: the totals",
    "select distinct n from (select max(n) as n from sales) t": "distinct rows: the totals",
    "select approx_quantile(n, 99) from sales": "a quantile is a number from 0 to 1",
    "select approx_quantile(n, price) from sales": "a quantile is a number from 0 to 1",
    "select count(distinct n, shop) from sales": "count takes *, one expression, or distinct and one expression",
    "select first(n order by price) from sales": "arg_min, arg_max and approx_quantile",
    "select * from sales join shops on sales.n > shops.n": "a join is on equal columns",
    "select * from sales full join shops on shop = id": "a full join over all epochs would have to take rows back; say sql(...",
    "select * from sales anti join shops on shop = id": "an anti join over all epochs would have to take rows",
    "select * from sales left join shops on shop = id and price > 1": "a left join takes conditions on columns of 'shops' al",
    "select * from sales right join shops on shop = id and town = 'x'": "a right join takes conditions on columns before 'sh",
    "select * from sales full join shops on shop = id and town = 'x'": "a full join takes no others: it keeps all rows of both",
    "select * from sales left join shops on shop = id and sales.n > shops.n": "sales.n > shops.n: beside equal columns, a left",
    "select * from sales semi join shops on shop = id and sales.n > shops.n": "a semi join takes conditions on columns of one",
    "select * from sales left join shops on shop = id and n > 1": "column 'n' is in several tables; say which: shops.n",
    "select * from sales anti join shops on shop = id and price > 1": "an anti join takes conditions on columns of 'shops' al",
    "select * from sales cross join shops": "no condition of where says which of its columns equals one of the tables before",
    "select * from sales, shops": "no condition of where says which of its columns equals one of the tables before",
    "select * from sales natural join shops": "name the columns that are equal: using (key)",
    "select * from sales as t(a)": "columns, not 1",
    "select * from sales tablesample system (10)": "from takes names of streams and subqueries",
    "select n from sales where exists (select id from shops)": "which of its columns equals one from outside?",
    "select n from sales except select n from shops": "say anti join, or semi join",
    "select distinct on (shop) n from sales": "group_by(...).top_k(1, by=...)",
    "with recursive t as (select n from sales) select n from t": "what goes round is Columns.iterate",
    "select shop, n from sales union all select n from shops": "union of 2 columns with 1",
    "select tumble_start(n, 5) from sales group by shop": "there is no such window in group by: tumble(...)",
    "select tumble(n, 5) from sales": "windows are in group by",
    "select tumble(n, 5) as w, count(*) as c from sales group by tumble(n, 5)": "windows are in group by",
    "select count(*) from sales group by tumble(n)": "tumble takes a column of event times, and the size of windows",
    "select count(*) from sales group by hop(n, 5)": "hop takes a column of event times, and the slide and the size of windows",
    "select count(*) from sales group by session(n, shop)": "the length of a window is a number, or interval '10 seconds'",
    "select count(*) from sales group by tumble(n, 0.5)": "windows have whole numbers as lengths, or intervals",
    "select count(*) from sales group by tumble(n, interval '1 month')": "a window has a fixed length",
    "select count(*) from sales group by tumble(n, interval 'soon')": "an interval is a text like",
    "select count(*) from sales group by hop(n, 5, interval '1 day')": "all numbers, or all intervals",
    "select count(*) from sales group by tumble(n, 5), tumble(n, 10)": "group by takes one window",
    "select count(*) from sales group by tumble(n, interval '1 day')": "time= is a column of datetimes",
    "select n from sales where sum(n) > 1": "an aggregate belongs into having",
    "select n, row_number() over (partition by shop) as r from sales": "functions are not known over streams",
    "select sum(n) over (partition by shop) as r from sales": "SUM(n) OVER (PARTITION BY shop): window functions are not",
    "select n from sales where n >= all (select n from shops)": "any, some and all of a query are not known: join with",
    "select n from sales where n > some (select 1)": "any, some and all of a query are not known: join with a query",
    "select n from sales where n < (select max(n) from shops)": "say sql(..., changes=True)",
    "select (select max(town) from shops) as m from sales": "a query as a value is not known: join with it, on columns that",
    "select shop from sales group by shop having sum(n) > (select 1)": "(SELECT 1): a query as a value is a total",
    "select shop from sales order by (select 1) limit 1": "(SELECT 1): a query as a value is not known",
    "select t.* from sales": "no table 't'; there are 'sales'",
    "select sales.*, count(*) as n from sales": "select * beside aggregates: name the keys",
    "": "sql() takes a query, and this one is empty",
    "select sum(lower(shop)) as s from sales": "agg(SUM(LOWER(shop))=agg.sum(...)): column 'LOWER(shop)' of type",
    "select n, all(n) as a from sales group by n": "ALL(n): unsupported function 'all'",
    "select shop + 1 from sales": "arithmetic on",
    "select no_such_function(n) from sales": "no_such_function",
    "insert into sales values (1)": "takes queries",
    "select n from sales; select n from sales": "takes one query, not 2",
    "select from where": "sql: ",
    "select sum(shop) as s from sales": "cannot be added up",
    "select shop from sales group by 2": "a number is the place of a column of the query, from 1 to 1",
}


@pytest.mark.parametrize(("said", "message"), [
    ({"over": "time", "changes": True}, "sql(changes=True) is of results over all epochs"),
    ({"lateness": 3}, "sql(lateness=...) is of windows in group by, and there is none"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(said: Any, message: str) -> None:
    with pytest.raises(GraphError) as refused:
        sql("select n from sales", **said, **streams())
    assert message in str(refused.value)
    assert "test_sql.py:" in str(refused.value)


def streams() -> dict[str, Columns]:
    flow = Dataflow("refused")
    one, other = pl.DataFrame(schema=SALES), pl.DataFrame(schema=SHOPS)
    return {"sales": flow.columns("sales", Batches([one])), "shops": flow.columns("shops", Batches([other]))}


@pytest.mark.parametrize("query", REFUSED)
def test_what_streams_cannot_do_is_refused_at_the_users_line(query: str) -> None:
    with pytest.raises(GraphError) as refused:
        sql(query, **streams())
    assert REFUSED[query] in str(refused.value)
    assert "test_sql.py:" in str(refused.value)


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64, pl.UInt8])
def test_deviations_of_all_rows_and_of_a_sample(kind: Any) -> None:
    frame = pl.DataFrame({"k": ["a", "a", "b", "a", "c"], "n": [1, 7, 3, None, None]}, {"k": pl.String, "n": kind})
    flow = Dataflow("sql")
    query = """
        select k, stddev_pop(n) as a, var_pop(n) as b, stddev_samp(n) as c, var_samp(n) as d, stddev(n) as e, variance(n) as f
        from t group by k
    """
    out = sql(query, t=flow.columns("t", Batches([frame]))).capture()
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    n = pl.col("n")
    right = frame.group_by("k").agg(
        a=n.std(ddof=0), b=n.var(ddof=0), c=n.std(), d=n.var(), e=n.std(), f=n.var()
    )  # fmt: skip
    found = [row for _, batch in cluster.captured(out) for row in as_polars(batch).rows()]
    assert plain(sorted(found)) == plain(sorted(right.rows()))


def test_columns_that_are_not_known_may_be_named_but_not_joined() -> None:
    given = {name: stream.map_batches(lambda frame: frame) for name, stream in streams().items()}
    assert sql("select shop, count(*) as n from sales where n > 1 group by shop", **given).schema is None
    with pytest.raises(GraphError, match="whose columns are known"):
        sql("select town from sales join shops on shop = id", **given)
    with pytest.raises(GraphError, match="which must be known"):
        sql("select distinct shop from sales", **given)
