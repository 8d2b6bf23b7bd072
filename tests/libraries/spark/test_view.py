"""Views in the place of streams: how a region takes them apart, and what is refused. No Spark here."""

from __future__ import annotations

from typing import Any

import pytest

from libraries import spark
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.dataflow.region import _all_sql
from libraries.spark.dataflow.views import Viewed, take_apart
from libraries.spark.files.deliveries import Delivering
from tests.libraries.spark.local_runner import LocalRunner
from timely.errors import GraphError
from timely.io import Batches


def streams() -> tuple[Columns, Columns]:
    flow = Dataflow("views")
    return flow.columns("a", Batches([])), flow.columns("b", Batches([]))


def test_views_are_taken_apart_into_streams_and_steps_from_the_first_to_the_last() -> None:
    a, b = streams()
    names = object()
    paid = spark.view(a, "select k from input where p > 0")
    known = spark.view({"paid": paid, "b": b}, "select k from paid join b using (k)", tables={"names": names})
    taken = take_apart({"known": known, "again": a}, {"names": names, "old": 7})
    assert taken.streams == {"known_paid_input": a, "known_b": b, "again": a}
    assert [(each.name, each.inputs, each.tables) for each in taken.views] == [
        ("known_paid", (("input", "known_paid_input"),), ()),
        ("known", (("paid", "known_paid"), ("b", "known_b")), ("names",)),
    ]
    assert taken.tables == {"names": names, "old": 7}


def test_spark_may_say_which_columns_are_read_where_all_steps_that_take_a_stream_are_sql() -> None:
    a, b = streams()
    sql = spark.view(a, "select k, p from input where p > 0")
    both = spark.view({"x": sql, "b": b}, "select k, v from x join b using (k)")

    def read(inputs: Any, what: Any) -> list[str]:
        taken = take_apart(inputs, {})
        own = Viewed("", tuple((name, name) for name in inputs), what, ())
        return [each for each in taken.streams if _all_sql([*taken.views, own], each)]

    assert read({"input": sql}, lambda df: df) == ["input_input"], "a function sees what comes of the view"
    assert read({"input": both}, "select * from input") == ["input_x_input", "input_b"]
    assert read({"x": sql, "a": a}, lambda x, a: a) == ["x_input"]
    assert read({"input": spark.view(a, lambda df: df)}, "select k from input") == []


def test_query_is_known_alike_in_every_process_whatever_functions_are_behind_it() -> None:
    one, two = (
        next(
            iter(consumers(spark.batch(spark.view(streams()[0], "select k from input"), lambda df: df, name="x")))
        ).reads
        for _ in range(2)
    )
    assert one is not None
    assert one == two


def consumers(stream: Columns) -> list[Any]:
    """Those of what is written for the region that gives this stream."""
    return [
        each
        for node in stream.graph.nodes
        if isinstance(node.factory, Delivering) and node.factory.outputs
        for each in node.factory.deliveries.consumers
    ]


def refused(match: str, inputs: Any, **arguments: Any) -> None:
    with pytest.raises(GraphError, match=rf"test_view.py:\d+: {match}"):
        spark.batch(inputs, "select 1", **arguments)


def test_views_that_cannot_be_are_errors_at_the_line() -> None:
    a, b = streams()
    one = spark.view(a, "select k from input")
    for what in (7, " "):
        with pytest.raises(GraphError, match=r"test_view.py:\d+: a view is a function or SQL text, not"):
            spark.view(a, what)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"test_view.py:\d+: a view needs at least one stream"):
        spark.view({}, "select 1")
    refused("'one_input' is the name of two inputs", {"one": one, "one_input": b})
    tables = {"names": 1}, {"names": 2}
    views = [spark.view(a, "select k from input", tables=each) for each in tables]
    refused("'names' is the name of two tables", {"x": views[0], "y": views[1]})
    refused("'names' is the name of two tables", views[0], tables=tables[1])
    refused("'input' is the name of an input and of a table", {"x": one}, tables={"input": "names"})
    refused("'a b' cannot be the name", {"x": spark.view({"a b": a}, "select 1")})
    refused("input 'input_input' of a region on Spark is str", spark.view("text", "select 1"))  # type: ignore[arg-type]
    refused("a view is for regions on Spark, not for runner=", one, runner=LocalRunner(lambda table: table))
    with pytest.raises(GraphError):
        spark.write(one, "folder")  # type: ignore[arg-type]
