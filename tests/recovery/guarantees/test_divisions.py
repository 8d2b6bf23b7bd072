"""Search: every public verb, on drawn records in several divisions into batches and orders. What differs must be declared.

The records are such as made verbs depend on their division once: equal keys of several types, NaN, zeros of both signs, floats,
decimals and NumPy's scalars whose sums are rounded, text. Each epoch is given as one batch, record by record, and in pieces in
some order; every record stays at its worker. A verb whose output differs in anything must repeat over batches alone.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from falkirk import differential, graph, lindi
from falkirk.simulate.judging import exactly
from libraries.columns import agg
from libraries.columns.verbs.changes import Changes
from libraries.columns.verbs.columns import Columns, GroupBy, Stream
from libraries.columns.verbs.dataflow import Dataflow
from libraries.columns.verbs.windows import WindowedColumns
from libraries.differential.collection import Collection
from libraries.lindi.columns import Table
from libraries.lindi.query import Base
from libraries.lindi.records import Groups, Query
from recovery.guarantees.classes import operators_of
from recovery.guarantees.repeating import between_workers, divided
from runtime.session.cluster import Cluster
from tests.recovery.guarantees import test_arrival as arrival
from tests.recovery.guarantees import test_classes as tables
from tests.support.profile import effort
from timely.dataflow.keyed import Keyed
from timely.dataflow.windows import Windowed
from timely.dataflow.wire import Wire, view
from timely.errors import FalkirkError
from timely.io.memory import rows_of
from timely.operators.window_shapes import Epochs, Session, Sliding, Tumbling

ROOT = Path(__file__).resolve().parents[3]
Verb = Callable[[Any], Any]

NAN = float("nan")
POOLS: dict[str, list[Any]] = {
    "integers": [0, 1, 2, 3, -1, 7],
    "equal numbers": [0, 1, True, False, 1.0, 0.0, -0.0, 2, 2.0, 3],
    "floats": [0.1, 0.2, 0.3, 1e16, -1e16, 0.0, -0.0, 1.0],
    "floats with NaN": [NAN, 1.0, 2.0, 0.5],
    "decimals": [Decimal("1"), Decimal("1.0"), Decimal("1e28"), Decimal("0.3"), Decimal("-1e28"), 1],
    "small floats": [np.float32(16777216), np.float32(1), np.float32(0.1), 1],
    "complex numbers": [0.1 + 0j, 0.2 + 0j, 0.3 + 0j, 1 + 1j],
    "text": ["a", "b", "ab", "", "1"],
    "tuples": [(1,), (1.0,), (True, "a"), ("a",), (1, "a")],
    "instants": [
        dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    ],
}

STREAM: dict[str, Verb] = {
    "map to text": lambda s: s.map(repr),
    "distinct of text": lambda s: s.distinct().map(repr),
    "exchange by text": lambda s: s.exchange(by=repr),
    "map_batches of records": lambda s: s.map_batches(lambda batch: [repr(n) for n in batch], repeats_over="record"),
}
STREAM_BY_BATCH: dict[str, Verb] = {
    "map_batches in order": lambda s: s.map_batches(lambda batch: batch[:1]),
    "map_batches of a number": lambda s: s.map_batches(lambda batch: [len(batch)]),
    "to_columns without types": lambda s: s.map(lambda n: {"n": n}).to_columns().to_records().map(repr),
    "unary that declares nothing": lambda s: s.unary("first", _First, stateful=False),
}


def _over_time(name: str, stream: Any) -> Any:
    return getattr(stream, name)(over="time")


def _count_and_set(key: Any, value: Any, timers: falkirk.Timers) -> Any:
    """Set timers by how many values came, and tell of some."""
    timers.state = f"{timers.state}{value!r}"
    timers.set(timers.epoch + len(timers.state) % 3)
    if len(timers.state) % 2:
        timers.cancel(timers.epoch + 1)
        yield key, timers.due


def _tell(key: Any, epoch: int, timers: falkirk.Timers) -> list[Any]:
    told = (repr(key), epoch, timers.state)
    timers.state = None
    return [told]


def _all_so_far(key: Any, value: Any, timers: falkirk.Timers) -> list[Any]:
    timers.state = [*(timers.state or ()), value]
    return [(repr(key), repr(timers.state))]


KEYED: dict[str, Verb] = {
    **{f"{name} over time": partial(_over_time, name) for name in ("sum", "min", "max", "count")},
    "reduce": lambda s: s.reduce(lambda a, b: (a, b)),
    "reduce over time": lambda s: s.reduce(lambda a, b: f"{a}{b}", over="time"),
    "reduce by max": lambda s: s.reduce(max),
    "reduce by a function of any order": lambda s: s.map_values(hash).reduce(lambda a, b: a ^ b, any_order=True),
    "process with timers": lambda s: s.process(_count_and_set, _tell),
    "process in an order": lambda s: s.process(_count_and_set, _tell, order_by=repr),
    "process with state": lambda s: s.process(_all_so_far),
    "join of text": lambda s: s.join(s.map_values(repr)).map_values(repr),
}
SHAPES = {
    "Tumbling": Tumbling(2),
    "Sliding": Sliding(4, 2),
    "Session": Session(2),
}
WINDOWED: dict[str, Callable[[Windowed], Any]] = {
    "count": lambda w: w.count(),
    "sum": lambda w: w.sum(),
    "min": lambda w: w.min(),
    "max": lambda w: w.max(),
    "reduce": lambda w: w.reduce(lambda a, b: (a, b)),
    "fold": lambda w: w.fold(str, lambda text, n: f"{text}{n}", merge=lambda a, b: f"{a}+{b}"),
    "collect": lambda w: w.collect(),
}
QUERY: dict[str, Verb] = {
    "where": lambda q: q.where(lambda n: n == n),
    "select": lambda q: q.select(repr),
    "select_many": lambda q: q.select_many(lambda n: [n, n]),
    "distinct": lambda q: q.distinct().select(repr),
    "union": lambda q: q.union(q),
    "intersect": lambda q: q.intersect(q.where(lambda n: n != 1)),
    "without": lambda q: q.without(q.where(lambda n: n == 1)),
    "join": lambda q: q.join(q, lambda n: n, lambda n: n, lambda a, b: (a, b)),
    "order_by": lambda q: q.order_by(),
    "top": lambda q: q.top(2),
    "count": lambda q: q.count(),
    "sum": lambda q: q.sum(),
    "min": lambda q: q.min(),
    "max": lambda q: q.max(),
    "aggregate": lambda q: q.aggregate(lambda a, b: (a, b)),
    "group_by": lambda q: q.group_by(lambda n: n).count(),
}
GROUPS: dict[str, Verb] = {
    "select": lambda g: g.select(lambda key, found: (key, repr(found))),
    "count": lambda g: g.count(),
    "sum": lambda g: g.sum(),
    "min": lambda g: g.min(),
    "max": lambda g: g.max(),
    "aggregate": lambda g: g.aggregate(lambda n: n, lambda a, b: (a, b)),
}
CHANGES_OF_ROWS = {"t": agg.sum("f"), "n": agg.count()}
TABLE: dict[str, Verb] = {
    "where": lambda t: t.where(pl.col("a") > 0),
    "select": lambda t: t.select("a", "f"),
    "with_columns": lambda t: t.with_columns(g=pl.col("f") * 2),
    "distinct": lambda t: t.distinct("a", "f"),
    "join": lambda t: t.join(t.select("a", d="c"), "a"),
    "order_by": lambda t: t.order_by("a"),
    "top": lambda t: t.top(2, by="f"),
    "aggregate": lambda t: t.aggregate(m=pl.col("f").sum(), first=pl.col("f").first()),
    "group_by": lambda t: t.aggregate("b", m=pl.col("f").sum()),
}
COLLECTION: dict[str, Verb] = {
    "map": lambda c: c.map(lambda r: r),
    "filter": lambda c: c.filter(lambda r: r[1] != 1),
    "flat_map": lambda c: c.flat_map(lambda r: [r, r]),
    "map_pairs": lambda c: c.map_pairs(lambda k, v: (v, k)),
    "filter_pairs": lambda c: c.filter_pairs(lambda k, v: k == k),
    "as_keys": lambda c: c.as_keys(),
    "negate": lambda c: c.negate(),
    "concat": lambda c: c.concat(c),
    "minus": lambda c: c.minus(c.filter(lambda r: r[1] == 1)),
    "join": lambda c: c.join(c),
    "left_join": lambda c: c.left_join(c.filter(lambda r: r[1] == 1)),
    "full_join": lambda c: c.full_join(c.filter(lambda r: r[1] == 1)),
    "semijoin": lambda c: c.semijoin(c.map(lambda r: r[1])),
    "antijoin": lambda c: c.antijoin(c.map(lambda r: r[1])),
    "reduce": lambda c: c.reduce(lambda key, group: [repr(sorted(group, key=repr))]),
    "count": lambda c: c.count(),
    "sum": lambda c: c.sum(),
    "min": lambda c: c.min(),
    "max": lambda c: c.max(),
    "top": lambda c: c.top(2),
    "distinct": lambda c: c.distinct(),
    "threshold": lambda c: c.threshold(lambda record, n: n % 2),
    "consolidate": lambda c: c.consolidate(),
    "arrange": lambda c: c.arrange().join(c.arrange()),
}


class _First(falkirk.Operator):
    """Sends what it got first at each time."""

    def __init__(self) -> None:
        self.state = falkirk.TimedBatches()

    def on_batch(self, ctx: Any, port: int, time: Any, batch: Any) -> None:
        self.state.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Any, time: Any) -> None:
        ctx.send(self.state.pop(time)[0][:1])


def _windowed(shape: Any, verb: Verb) -> Verb:
    return lambda s: verb(s.window(shape, time=lambda n: n if isinstance(n, int | float) and n == n else 0))


Case = tuple[str, type, Verb]

OF_RECORDS: dict[str, tuple[type, Verb]] = {
    **{f"Stream.{name}": (Stream, verb) for name, (_, verb) in (tables.STREAM | tables.WIRE).items()},
    **{f"Stream.{name}": (Stream, verb) for name, verb in (arrival.RECORDS | STREAM | STREAM_BY_BATCH).items()},
    **{f"Keyed.{name}": (Keyed, verb) for name, (_, verb) in tables.KEYED.items()},
    **{f"Keyed.{name}": (Keyed, verb) for name, verb in (arrival.OF_KEYS | KEYED).items()},
    **{
        f"Windowed.{name} of {shape}": (Keyed, _windowed(SHAPES[shape], verb))
        for name, verb in WINDOWED.items()
        for shape in SHAPES
    },
    **{
        f"Windowed.{name} of Epochs": (Keyed, lambda s, verb=verb: verb(s.window(Epochs(2))))
        for name, verb in WINDOWED.items()
    },
    **{f"Query.{name}": (Stream, lambda s, verb=verb: verb(lindi.Query(s)).stream) for name, verb in QUERY.items()},
    **{
        f"Groups.{name}": (Stream, lambda s, verb=verb: verb(lindi.Query(s).group_by(lambda n: n)).stream)
        for name, verb in GROUPS.items()
    },
    **{
        f"Collection.{name}": (
            Keyed,
            lambda s, verb=verb: verb(differential.from_records(s.records())).consolidate().stream,
        )
        for name, verb in COLLECTION.items()
    },
}
OF_COLUMNS: dict[str, Verb] = {
    **{f"Columns.{name}": verb for name, (_, verb) in tables.COLUMNS.items()},
    **{f"Columns.{name}": verb for name, verb in arrival.OF_COLUMNS.items()},
    **{f"Table.{name}": (lambda s, verb=verb: verb(lindi.Table(s)).stream) for name, verb in TABLE.items()},
    "Columns.a quotient": lambda s: s.select(x=pl.col("f") / 3, y=(pl.col("f") / 7).round(3), z=pl.col("f").sin() / 3),
    "Columns.a quotient of few": lambda s: s.filter((pl.col("f") / 3).is_not_nan()).with_columns(z=pl.col("f") / 0.7),
    "Columns.changes": lambda s: s.group_by("a").agg(changes=True, **CHANGES_OF_ROWS),
    "Columns.sum of changes": lambda s: s.group_by("b").agg(changes=True, **CHANGES_OF_ROWS).agg(u=agg.sum("n")),
    "Columns.sql of known columns": lambda s: falkirk.sql(
        "select a, sum(f) as t, count(*) as n from s group by a",
        over="time",
        s=s.match_to_schema({"a": int, "b": str, "at": int, "c": int, "f": float}),
    ),
    "Columns.sql": lambda s: falkirk.sql("select a, sum(f) as t, count(*) as n from s group by a", over="time", s=s),
    "Columns.sql of a select": lambda s: falkirk.sql("select a / 3 as t, f / 7 as u from s where f > 0", s=s),
}
NOT_TRIED = {
    *("Stream.enter", "Stream.leave", "Stream.distinct in a loop", "Stream.map in a loop", "Keyed.count in a loop"),
    *("Stream.unary", "Stream.unary without state", "Stream.binary", "Stream.unary that starts jobs"),
    *("Stream.unary that starts jobs which repeat", "Columns.map_batches", "Stream.map that is declared"),
}
"""Loops that are never closed, and operators of tables of classes that have no methods."""

CASES = [
    *(pytest.param(kind, verb, id=name) for name, (kind, verb) in OF_RECORDS.items() if name not in NOT_TRIED),
    *(pytest.param(Columns, verb, id=name) for name, verb in OF_COLUMNS.items() if name not in NOT_TRIED),
]


def epochs_of(kind: type, data: st.DataObject) -> list[list[Any]]:
    if kind is Columns:
        row = st.tuples(
            *(st.integers(0, 1), st.sampled_from("xy"), st.integers(0, 3), st.integers(0, 6)),
            st.sampled_from([0.1, 0.2, 0.3, 1e9, -0.0, 0.0, NAN, 1e16]),
        )
    else:
        pool = data.draw(st.sampled_from(sorted(POOLS)), "pool")
        value = (
            st.sampled_from(POOLS["integers"]) if data.draw(st.booleans(), "plain") else st.sampled_from(POOLS[pool])
        )
        row = st.tuples(value, value) if kind is Keyed else value
    return data.draw(st.lists(st.lists(row, min_size=1, max_size=7), min_size=1, max_size=2), "epochs")


def batch_of(kind: type, rows: list[Any]) -> Any:
    return pl.DataFrame(rows, ["a", "b", "at", "c", "f"], orient="row") if kind is Columns else rows


def given_in(kind: type, verb: Verb, epochs: list[list[Any]], workers: int, way: Random | int) -> Any:
    """The records that come out at each time, each in words, or an error.

    `way`: batches of so many records, in order, or some order and division.
    """
    flow = Dataflow()
    stream = flow.input("in")
    out = verb(stream.keyed() if kind is Keyed else view(stream, kind)).capture("out")
    cluster = Cluster(flow, workers, seed=way.randrange(1000) if isinstance(way, Random) else 0)
    try:
        for epoch, rows in enumerate(epochs):
            for worker, session in enumerate(cluster.sessions):
                mine = rows[worker::workers]
                if isinstance(way, Random):
                    way.shuffle(mine)
                while mine:
                    count = way.randint(1, 3) if isinstance(way, Random) else way
                    session.input("in").send(batch_of(kind, mine[:count]))
                    del mine[:count]
                    if isinstance(way, Random) and way.random() < 0.5:
                        cluster.step()
                session.input("in").advance_to(epoch + 1)
            cluster.step()
        for session in cluster.sessions:
            session.input("in").close()
        cluster.run()
    except FalkirkError as error:
        return type(error).__name__
    found: dict[Any, Counter[str]] = {}
    for time, batch in cluster.captured(out):
        found.setdefault(time, Counter()).update(map(exactly, rows_of(batch)))
    return found


def by_batch(kind: type, verb: Verb) -> bool:
    """True if something in the verb declares that it repeats over batches alone."""
    flow = Dataflow()
    stream = flow.input("in")
    verb(stream.keyed() if kind is Keyed else view(stream, kind)).capture("out")
    return bool(divided(flow.graph, between_workers, operators_of(flow.graph)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("kind", "verb"), CASES)
@given(st.data(), st.integers(1, 2), st.integers(0, 999))
@settings(max_examples=effort(4, 8, 8))
def test_what_depends_on_the_division_into_batches_is_declared(
    kind: type, verb: Verb, data: st.DataObject, workers: int, seed: int
) -> None:
    if by_batch(kind, verb):
        return
    epochs = epochs_of(kind, data)
    ways = [given_in(kind, verb, epochs, workers, way) for way in (100, 1, Random(seed))]
    if "CodecError" not in ways:  # one worker looks at a few records only to see whether they could travel
        assert ways == [ways[0]] * 3


@pytest.mark.parametrize("verb", STREAM_BY_BATCH.values(), ids=STREAM_BY_BATCH)
def test_what_is_declared_by_batch_depends_on_it(verb: Verb) -> None:
    """So the search would find it, were it not declared."""
    assert by_batch(Stream, verb)
    epochs = [[1, 2.5, 2, 3]]
    ways = [given_in(Stream, verb, epochs, 1, way) for way in (100, 1, 3, *map(Random, range(6)))]
    assert any(way != ways[0] for way in ways)


TABLES: dict[type, tuple[set[str], str]] = {
    Windowed: (set(), "Windowed."),
    Query: ({"stream"}, "Query."),
    Groups: ({"query", "key"}, "Groups."),
    Table: ({"stream"}, "Table."),
    Collection: (
        {
            "stream",
            "scope",
            "values",
            "arrangement",
            "enter",
            "enter_at",
            "leave",
            "iterate",
            "capture",
            "probe",
            "to",
            "changes",
        },
        "Collection.",
    ),
}
"""By class: names that are no verbs of single times, and the prefix of its cases."""


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_verb_is_searched(kind: type) -> None:
    left_out, prefix = TABLES[kind]
    bases = kind.__mro__ if issubclass(kind, Wire) else (kind,)
    owners = [owner for owner in bases if owner is kind or owner not in Wire.__mro__]
    verbs = {name for owner in owners for name in vars(owner) if not name.startswith("_")} - left_out - {"late"}
    searched = {name.removeprefix(prefix).split()[0] for name in (OF_RECORDS | OF_COLUMNS) if name.startswith(prefix)}
    assert verbs <= searched, f"not searched: {sorted(verbs - searched)}"


def test_every_verb_of_columns_in_groups_windows_and_changes_is_known() -> None:
    """A new one needs a case above, or a place here."""
    assert {name for name in vars(GroupBy) if not name.startswith("_")} == {"columns", "keys", "made", "agg", "top_k"}
    assert {name for name in vars(WindowedColumns) if not name.startswith("_")} == {"late", "group_by", "agg"}
    assert {name for name in vars(Base) if not name.startswith("_")} >= {"capture", "logged"}
    own = {name for name, found in vars(Changes).items() if not name.startswith("_") and callable(found)}
    assert own <= set(dir(Columns)) | {"all", "rows", "finish", "refuse", "leave", "totals"}, own - set(dir(Columns))


GRAPHS: dict[str, Callable[[Any], Any]] = {
    "components": lambda edges: graph.components(edges),
    "reach": lambda edges: graph.reach(edges, edges.filter(lambda e: e[0] == 0).map(lambda e: e[0])),
    "triangles": lambda edges: graph.triangles(edges),
    "k_core": lambda edges: graph.k_core(edges, 2),
}


def of_graph(made: Callable[[Any], Any]) -> Verb:
    """The verb of a keyed stream that `made` is of a collection."""
    return lambda stream: made(differential.from_records(stream.records())).consolidate().stream


@pytest.mark.parametrize("made", GRAPHS.values(), ids=GRAPHS)
@given(st.data(), st.integers(1, 2), st.integers(0, 999))
@settings(max_examples=4)
def test_graphs_do_not_depend_on_the_division_into_batches(
    made: Callable[[Any], Any], data: st.DataObject, workers: int, seed: int
) -> None:
    verb = of_graph(made)
    edge = st.tuples(st.integers(0, 4), st.integers(0, 4))
    epochs = data.draw(st.lists(st.lists(edge, min_size=1, max_size=7), min_size=1, max_size=2))
    assert not by_batch(Keyed, verb)
    assert given_in(Keyed, verb, epochs, workers, Random(seed)) == given_in(Keyed, verb, epochs, workers, 100)


def test_the_reference_has_the_declaration_of_each_verb() -> None:
    """Otherwise run scripts/obligations_page.py."""
    script, page = ROOT / "scripts" / "obligations_page.py", ROOT / "docs" / "reference" / "obligations.md"
    made = subprocess.run([sys.executable, str(script), "--print"], capture_output=True, text=True)
    assert made.stdout == page.read_text(), made.stderr or "run scripts/obligations_page.py"
