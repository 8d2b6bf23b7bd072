"""What a deterministic verb gives at a time does not depend on the order in which the records of that time come.

Nobody keeps that order: records of several workers meet in another one when a time is done again, and then what a survivor
has kept would be of another execution than what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk import lindi
from falkirk.simulate.judging import order_of
from libraries.columns import agg
from libraries.columns.verbs.columns import Columns, Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.guarantees.classes import OperatorClass
from runtime.session.cluster import Cluster
from tests.recovery.guarantees import test_classes as tables
from tests.timely.feeding import feed_batches_in_turn
from timely.dataflow.keyed import Keyed
from timely.dataflow.wire import view
from timely.io.memory import rows_of
from timely.operators.window_shapes import Epochs, Session, Sliding, Tumbling

Verb = Callable[[Any], Any]

OF_BATCHES = {
    *("map_batches", "select a total", "with_columns of a running total", "filter by a mean", "branch by a mean"),
    *("fill_null by a mean", "to_columns"),
}
"""Verbs of a batch. That their functions give the same in whatever batches records come, is for the program to see to."""

NOT_OURS = {
    *("unary", "unary without state", "unary that starts jobs", "unary that starts jobs which repeat", "binary"),
    *("enter", "leave", "distinct in a loop", "map in a loop", "count in a loop"),
}
"""Operators of the user's, and those within a loop that is never closed."""

RECORDS: dict[str, Verb] = {
    "to_columns": lambda s: s.map(lambda n: {"n": n}).to_columns(),
    "least by a key": lambda s: lindi.Query(s).min(lambda n: n % 2).stream,
    "greatest by a key": lambda s: lindi.Query(s).max(lambda n: n % 3).stream,
    "top by a key": lambda s: lindi.Query(s).top(3, lambda n: n % 2).stream,
    "groups of a query": lambda s: (
        lindi.Query(s).group_by(lambda n: n % 2).select(lambda _, found: tuple(found)).stream
    ),
    "aggregate of a query": lambda s: lindi.Query(s).aggregate(max).stream,
    "distinct of a query": lambda s: lindi.Query(s).distinct().stream,
}
OF_KEYS: dict[str, Verb] = {
    "fold of text": lambda s: s.fold(str, lambda text, n: f"{text}{n}"),
    "fold over time": lambda s: s.fold(str, lambda text, n: f"{text}{n}", over="time"),
    "fold of pairs": lambda s: s.map_values(lambda n: (n, -n)).fold(str, lambda text, n: f"{text}{n}"),
    "fold of sets": lambda s: s.map_values(lambda n: {n, "a", "b"}).fold(
        str, lambda text, n: f"{text}{sorted(map(str, n))}"
    ),
    "fold in an order": lambda s: s.fold(str, lambda text, n: f"{text}{n}", order_by=lambda n: n % 2),
    "collect": lambda s: s.window(Tumbling(3), time=lambda n: n % 4).collect(),
    "collect of sessions": lambda s: s.window(Session(2), time=lambda n: n).collect(),
    "fold of windows": lambda s: s.window(Sliding(4, 2), time=lambda n: n % 4).fold(str, lambda text, n: f"{text}{n}"),
    "fold of sessions": lambda s: s.window(Session(2), time=lambda n: n).fold(
        str, lambda text, n: f"{text}{n}", merge=lambda a, b: f"{a}+{b}"
    ),
    "fold of epochs": lambda s: s.window(Epochs(2)).fold(str, lambda text, n: f"{text}{n}"),
    "late ones": lambda s: s.window(Tumbling(3), time=lambda n: n).late(),
}
ALL_AGGREGATES = {
    **{"n": agg.count(), "sum": agg.sum("f"), "mean": agg.mean("f"), "var": agg.var("f"), "std": agg.std("f")},
    **{"first": agg.first("c", "at"), "last": agg.last("c", "at"), "kinds": agg.n_unique("c")},
    **{"some": agg.quantile("f", 0.3), "middle": agg.median("c"), "least": agg.min("f"), "most": agg.max("f")},
}
OF_COLUMNS: dict[str, Verb] = {
    "all aggregates": lambda s: s.group_by("a").agg(**ALL_AGGREGATES),
    "all aggregates over time": lambda s: s.group_by("a").agg(**ALL_AGGREGATES, over="time"),
    "all aggregates of windows": lambda s: (
        s.window(Tumbling(2), time="at")
        .group_by("a")
        .agg(**{name: each for name, each in ALL_AGGREGATES.items() if name != "kinds"})
    ),
    "join_asof, forward": lambda s: s.join_asof(s, on="at", by="a", strategy="forward"),
    "join_asof, nearest": lambda s: s.join_asof(s, on="at", strategy="nearest"),
    "join_asof over time": lambda s: s.join_asof(s, on="at", by="a", over="time"),
    "join as lookup": lambda s: s.join(s.select("a", d="c"), on="a", how="lookup"),
    "least by a column": lambda s: lindi.Table(s).top(2, by="a", least=True).stream,
    "greatest by a column": lambda s: lindi.Table(s).top(3, by="at").stream,
    "rename": lambda s: s.rename({"a": "z"}),
    "explode": lambda s: s.with_columns(both=pl.concat_list("a", "c")).explode("both"),
    "unnest": lambda s: s.select(pl.struct("a", "c").alias("both")).unnest("both"),
    "match_to_schema": lambda s: s.match_to_schema({"a": int, "b": str, "at": int, "c": int, "f": float}),
    "distinct of a table": lambda s: lindi.Table(s).distinct("a").stream,
}

CASES = [
    pytest.param(kind, verb, id=f"{kind.__name__}.{name}")
    for kind, table in ((Stream, tables.STREAM | tables.WIRE), (Keyed, tables.KEYED), (Columns, tables.COLUMNS))
    for name, (known, verb) in table.items()
    if known > OperatorClass.ARBITRARY and name not in OF_BATCHES | NOT_OURS | RECORDS.keys() | OF_COLUMNS.keys()
] + [
    pytest.param(kind, verb, id=f"{kind.__name__}.{name}")
    for kind, table in ((Stream, RECORDS), (Keyed, OF_KEYS), (Columns, OF_COLUMNS))
    for name, verb in table.items()
]

values = st.integers(0, 6)
rows_of_kind: dict[type, st.SearchStrategy[Any]] = {
    Stream: values,
    Keyed: st.tuples(st.sampled_from("ab"), values),
    Columns: st.tuples(
        *(st.integers(0, 1), st.sampled_from("xy"), st.integers(0, 3), values, st.sampled_from([0.1, 0.2, 0.3, 1e9]))
    ),
}


def batch_of(kind: type, rows: list[Any]) -> Any:
    return pl.DataFrame(rows, ["a", "b", "at", "c", "f"], orient="row") if kind is Columns else rows


def given_in(kind: type, verb: Verb, epochs: list[list[Any]], workers: int, arrival: Random) -> dict[Any, list[Any]]:
    """The batches that come out at each time, where records come in some order, in some batches, at some workers."""
    flow = Dataflow()
    stream = flow.input("in")
    made = verb(stream.keyed() if kind is Keyed else view(stream, kind))
    out = made.capture("out")
    dealt: list[list[Any]] = []
    for rows in epochs:
        rows = arrival.sample(rows, len(rows))
        batches = []
        while rows:
            count = arrival.randint(1, 3)
            batches.append(batch_of(kind, rows[:count]))
            rows = rows[count:]
        dealt.append(batches)
    cluster = Cluster(flow, workers, seed=arrival.randrange(1000))
    feed_batches_in_turn(cluster, dealt)
    found: dict[Any, list[Any]] = {}
    for time, batch in cluster.captured(out):
        if len(batch):
            found.setdefault(time, []).append(rows_of(batch))
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("kind", "verb"), CASES)
@given(st.data(), st.integers(1, 2), st.integers(0, 99), st.integers(0, 99))
@settings(max_examples=8)
def test_what_a_verb_gives_does_not_depend_on_the_order_of_arrival(
    kind: type, verb: Verb, data: st.DataObject, workers: int, one: int, other: int
) -> None:
    epochs = data.draw(st.lists(st.lists(rows_of_kind[kind], min_size=1, max_size=6), min_size=1, max_size=3))
    ways = [given_in(kind, verb, epochs, workers, Random(seed)) for seed in (one, other)]
    first, second = (
        {time: sorted(order_of(row) for rows in batches for row in rows) for time, batches in found.items()}
        for found in ways
    )
    assert first == second


ORDERED: dict[str, tuple[type, Verb]] = {
    "order_by": (Stream, lambda s: lindi.Query(s).order_by(lambda n: n % 2).stream),
    "order_by, descending": (Stream, lambda s: lindi.Query(s).order_by(lambda n: n % 2, descending=True).stream),
    "top": (Stream, lambda s: lindi.Query(s).top(3, lambda n: n % 2).stream),
    "order_by of a table": (Columns, lambda s: lindi.Table(s).order_by("a", "b").stream),
    "top of a table": (Columns, lambda s: lindi.Table(s).top(3, by="a").stream),
}


@pytest.mark.parametrize(("kind", "verb"), ORDERED.values(), ids=ORDERED)
@given(st.data(), st.integers(1, 2), st.integers(0, 99), st.integers(0, 99))
@settings(max_examples=8)
def test_what_a_verb_gives_in_order_is_in_the_same_order(
    kind: type, verb: Verb, data: st.DataObject, workers: int, one: int, other: int
) -> None:
    epochs = data.draw(st.lists(st.lists(rows_of_kind[kind], min_size=1, max_size=8), min_size=1, max_size=2))
    first, second = (given_in(kind, verb, epochs, workers, Random(seed)) for seed in (one, other))
    assert first == second


def test_an_order_of_arrival_that_counts_is_found() -> None:
    """So the test above can fail."""

    def unsteady(stream: Stream) -> Stream:
        return stream.map_batches(lambda batch: batch[:1])

    epochs = [[1, 2, 3, 4, 5, 6]]
    ways = [given_in(Stream, unsteady, epochs, 1, Random(seed)) for seed in range(5)]
    assert any(each != ways[0] for each in ways)
