"""Columns that SQL cannot read, by its text: they are not written, and a query that has changed its mind is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from libraries import spark
from libraries.spark.dataflow.operators import Gather
from libraries.spark.errors import SparkError
from libraries.spark.files.manifest import Calendar, ManifestEntry
from libraries.spark.files.mentioned import Mentioned
from libraries.spark.files.schemas import write_schema
from runtime.run import run
from tests.libraries.spark.local_runner import LocalRunner
from timely.dataflow.dataflow import Dataflow
from timely.io import Batches
from timely.io.memory import rows_of

COLUMNS = ["shop", "price", "at", "Place", "a b"]


@pytest.mark.parametrize(
    ("sql", "left_out"),
    [
        ("select shop, sum(price) from input group by shop", ["at", "Place", "a b"]),
        ("select count(*) from input", ["price", "at", "Place", "a b"]),
        ("select SHOP * 2 * input.price as p from input where `a b` > 1", ["at", "Place"]),
        ("select place, 'at' from input", ["shop", "price", "a b"]),
        ("select shops, prices, atat from input", ["price", "at", "Place", "a b"]),
        ("select count(*), (price) * 3 from input where (shop > 1)", ["at", "Place", "a b"]),
        ("select shop -- price\nfrom input", ["at", "Place", "a b"]),
        *(
            (f"select {all_} from input", [])
            for all_ in ("*", "distinct *", "all *", "shop, *", "input.*", "struct(*)", "hash(shop, *)", "count(distinct *)")
        ),
        ("select shop -- that\n * from input", []),
        ("select 1 as /* one */ one", []),
        ("select shop from input natural join other", []),
        ("from input |> where shop > 1", []),
        ("table input", []),
        ("select identifier('pri' || 'ce') from input", []),
        ("select b from input as t(a, b, c, d, e, f)", []),
        ("select b from `input` t (a, b, c, d, e, f)", []),
        ("select price from other join input on (shop > 1)", ["at", "Place", "a b"]),
        ("select price from other join input using (shop)", ["at", "Place", "a b"]),
        ("select shop from input pivot (sum(price) for at in (1, 2))", []),
        ("select shop from input where (price > 1) union (select shop from input)", ["at", "Place", "a b"]),
    ],
)  # fmt: skip
def test_column_that_is_not_mentioned_is_left_out_where_nothing_stands_for_it(sql: str, left_out: list[str]) -> None:
    assert Mentioned(sql, ["input", "other"]).left_out(COLUMNS) == tuple(left_out)


def test_name_that_may_be_written_in_several_ways_is_kept() -> None:
    assert Mentioned("select a from input", ["input"]).left_out(["a", "größe", "b`c", "d"]) == ("d",)


ROWS = [pa.table({"k": [n % 2, 1], "v": [n, 1], "wide": ["x" * 9] * 2, "more": [0, 1]}) for n in range(3)]


class Reading(LocalRunner):
    """Of each run the schema that it is told of, and the columns of its files."""

    def __init__(self) -> None:
        super().__init__(lambda table: table)
        self.read: list[tuple[list[str], list[str]]] = []

    def run(self, context: Any, inputs: Any, tables: Any, output: str, rows: int) -> Any:
        ((schema, paths),) = inputs.values()
        names = pa.ipc.read_schema(pa.py_buffer(schema)).names
        self.read.append((names, sorted({name for path in paths for name in pq.read_schema(path).names})))
        folder = Path(output)
        folder.mkdir()
        pq.write_table(pa.concat_tables([pq.read_table(path) for path in paths]), folder / "part-0.parquet")
        return ((str(folder / "part-0.parquet"), 2 * len(paths)),)


def regions(runner: LocalRunner, *queries: str | tuple[str, str]) -> Dataflow:
    """Regions over one stream; a query may come with what it is over."""
    flow = Dataflow("columns")
    rows = flow.columns("rows", Batches(ROWS))
    for number, query in enumerate(queries):
        sql, over = (query, "new") if isinstance(query, str) else query
        spark.batch(rows, sql, over=over, name=f"r{number}", runner=runner).capture(f"out {number}")  # type: ignore[arg-type]
    return flow


ALL = ["k", "more", "v", "wide"]


@pytest.mark.parametrize(
    ("queries", "columns"),
    [
        (["select k, v from input"], [["k", "v"]]),
        (["select k from input", "select v from input"], [["k", "v"]]),
        (["select k from input", "select * from input"], [ALL]),
        ([("select k, v from input", "all")], [ALL]),
    ],
)
def test_spill_has_the_columns_that_some_query_over_new_rows_mentions(
    queries: list[Any], columns: list[list[str]]
) -> None:
    runner = Reading()
    result = run(regions(runner, *queries))
    assert [found for _, found in runner.read] == columns * len(ROWS) * len(queries)
    assert all(names == ROWS[0].column_names for names, _ in runner.read)
    first = [row for _, batch in result.captured("out 0") for row in rows_of(batch)]
    wanted = [{name: row[name] for name in row if name in columns[0]} for table in ROWS for row in table.to_pylist()]
    assert sorted(map(repr, first)) == sorted(map(repr, wanted)) or queries[0][1] == "all"


def test_query_that_reads_more_than_what_was_written_for_the_one_before_is_told() -> None:
    schema = write_schema(ROWS[0].schema)
    entry = ManifestEntry("input", "a file", 2, 100, schema, left_out=("v", "wide"))
    sent: list[Any] = []
    context = SimpleNamespace(name="r-gather", site="app.py:7", notify_at=lambda _: None, send=sent.append)
    for sql in ("select k, v from input", None):
        after: Any = Gather("r", Calendar(), ["input"], {}, {}, sql and Mentioned(sql, ["input"]))
        after.on_batch(context, 0, (4,), [entry])
        with pytest.raises(
            SparkError, match=r"r-gather.*app.py:7.*epoch 4 .*did not read column 'v' of 'input'.*as it was"
        ):
            after.on_notify(context, (4,))
    before: Any = Gather("r", Calendar(), ["input"], {}, {}, Mentioned("select more from input", ["input"]))
    before.on_batch(context, 0, (4,), [entry])
    before.on_notify(context, (4,))
    assert [run[1] for (run,) in sent] == [[entry]]
