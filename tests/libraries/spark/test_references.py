"""Columns that SQL reads, as Spark's plan says: over these alone each query gives what it gives over all columns."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from libraries.spark.client.references import referenced
from libraries.spark.setup.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.check]

DAY = datetime.date(2024, 5, 6)
INPUT = pa.table(
    {
        "shop": ["n", "s", "n"],
        "price": [3, 5, 7],
        "at": [DAY] * 3,
        "Größe": [1.5, 2.5, 3.5],
        "a.b": [1, 2, 3],
        "tick`ed": [4, 5, 6],
        "tags": [["x", "y"], [], ["z"]],
        "made": [{"by": "m", "year": 1}, {"by": "k", "year": 2}, {"by": "m", "year": 3}],
        "x": [10, 20, 30],
    }
)
OTHER = pa.table({"shop": ["n", "s"], "price": [3, 6], "name": ["north", "south"]})
ALL = set(INPUT.column_names)

QUERIES: dict[str, tuple[str, set[str]]] = {
    "plain": ("select shop, sum(price) as s from input group by shop", {"shop", "price"}),
    "count": ("select count(*) as n from input", {"shop"}),
    "filter": ("select 1 as one from input where x > 10", {"x"}),
    "upper case": ("select SHOP, INPUT.Price from Input", {"shop", "price"}),
    "star": ("select * from input", ALL),
    "star of an alias": ("select t.* from input t", ALL),
    "star but for": ("select * except (made, tags) from input", ALL),
    "star in a function": ("select hash(*) as h from input", ALL),
    "star in a view": ("select shop from (select * from input) where x > 10", {"shop", "x"}),
    "star in a view with names": ("select b from (select * from input) as t(a, b, c, d, e, f, g, h, i)", ALL),
    "stars in a union": ("select shop from (select * from input union all select * from input)", ALL),
    "table": ("table input", ALL),
    "alias of columns": ("select a, b from input as t(a, b, c, d, e, f, g, h, i)", ALL),
    "alias of parentheses": ("select a, b from (input) as t(a, b, c, d, e, f, g, h, i)", ALL),
    "sample": ("select a from input tablesample (100 percent) as t(a, b, c, d, e, f, g, h, i)", ALL),
    "sample by name": ("select shop from input tablesample (100 percent)", {"shop"}),
    "lateral view": ("select shop, tag from input lateral view explode(tags) v as tag", {"shop", "tags"}),
    "lateral view of places": ("select shop, p, v from input lateral view posexplode(tags) as p, v", {"shop", "tags"}),
    "lateral subquery": ("select shop, y from input, lateral (select price + 1 as y)", ALL),
    "cte": ("with c as (select shop, price from input) select shop from c", {"shop", "price"}),
    "cte that shadows": ("with input as (select 'a' as shop, x from input) select shop, x from input", {"x"}),
    "view that shadows": ("select shop from (select x, shop from input) as input where x > 10", {"shop", "x"}),
    "cte of a table": ("with c as (table input) select shop from c", ALL),
    "scalar subquery": ("select shop from input where price = (select max(x) from input) - 23", {"shop", "price", "x"}),
    "correlated": (
        "select name from other o where exists (select 1 from input i where i.shop = o.shop and i.x > 10)",
        {"shop", "x"},
    ),
    "correlated outwards": (
        "select shop from input i where exists (select 1 from other o where o.price = i.price)",
        {"shop", "price"},
    ),
    "in": ("select name from other where shop in (select shop from input where `a.b` = 1)", {"shop", "a.b"}),
    "using": ("select name, x from input join other using (shop)", {"shop", "x"}),
    "natural": ("select name from input natural join other", {"shop", "price"}),
    "itself": ("select a.x, b.price from input a join input b on a.shop = b.shop", {"shop", "price", "x"}),
    "union": ("select shop from input union all select name from other", {"shop"}),
    "union of tables": ("select shop from (select shop, price, shop as s from input union table other)", {"shop", "price"}),
    "except": ("select shop from input except select shop from other where name = 'south'", {"shop"}),
    "distinct": ("select distinct shop from input", {"shop"}),
    "quoted": ("select `a.b`, `tick``ed`, `größe` from input", {"a.b", "tick`ed", "Größe"}),
    "field": ("select made.by, input.made.year from input", {"made"}),
    "higher order": ("select transform(tags, x -> upper(x)) as t from input", {"tags"}),
    "higher order over a column": ("select transform(tags, t -> t || x) as t from input", {"tags", "x"}),
    "alias of a column": ("select price as p, p + 1 as q from input", {"price"}),
    "alias named as a column": ("select price as x, x + 1 as y from input", {"price", "x"}),
    "ordinal": ("select shop, count(1) as n from input group by 1 order by 2 desc, 1", {"shop"}),
    "group by all": ("select shop, max(price) as m from input group by all", {"shop", "price"}),
    "having": ("select shop from input group by shop having sum(x) > 10", {"shop", "x"}),
    "window": ("select shop, row_number() over (partition by shop order by price) as n from input", {"shop", "price"}),
    "rollup": ("select shop, sum(price) as s from input group by rollup (shop)", ALL),
    "pivot": (
        "select * from (select shop, price, x from input) pivot (sum(price) for shop in ('n', 's'))",
        {"shop", "price", "x"},
    ),
    "pivot of a part": (
        "select n from (select shop, price from input) pivot (sum(price) for shop in ('n', 's'))",
        {"shop", "price"},
    ),
    "unpivot": ("select v from (select price, x from input) unpivot (v for k in (price, x))", {"price", "x"}),
    "pipes": ("from input |> where x > 10 |> select shop", {"shop", "x"}),
    "variable": ("select shop, ${falkirk.test.column} as y from input", {"shop", "price"}),
    "identifier": ("select identifier('pri' || 'ce') as y from input", {"price"}),
    "comment": ("select shop /* * price */ from input -- x", {"shop"}),
    "limit": ("select shop from input order by price desc limit 1", {"shop", "price"}),
    "values": ("select shop, v from input join (values ('n', 1)) as t(k, v) on k = shop", {"shop"}),
    "nothing of it": ("select name from other", {"shop"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java().home))
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        made = (
            builder.config("spark.driver.memory", "700m")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.sql.codegen.wholeStage", "false")
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("falkirk.test.column", "price")
            .getOrCreate()
        )
        try:
            yield made
        finally:
            made.stop()


@pytest.mark.parametrize("sql", QUERIES)
def test_query_over_the_columns_that_it_refers_to_gives_what_it_gives_over_all(session: Any, sql: str) -> None:
    text, columns = QUERIES[sql]
    session.createDataFrame(OTHER).createOrReplaceTempView("other")
    found = referenced(session, text, {"input": INPUT.schema})["input"]
    assert found == columns
    rows = []
    for kept in (ALL, found):
        session.createDataFrame(
            INPUT.select([each for each in INPUT.column_names if each in kept])
        ).createOrReplaceTempView("input")
        result = session.sql(text)
        rows.append((result.columns, sorted(map(repr, result.collect()))))
    assert rows[0] == rows[1]
    assert rows[0][1]
