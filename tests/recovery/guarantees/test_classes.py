"""The class of every verb: how far what it gives depends on the division of its input into epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from libraries.columns import agg
from libraries.columns.verbs.columns import Columns, GroupBy, Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.guarantees.classes import (
    OperatorClass,
    class_of,
    gives_each_once,
    keeps_state,
    operators_of,
    why_arbitrary,
)
from timely.dataflow.keyed import Keyed
from timely.dataflow.windows import Windowed
from timely.dataflow.wire import Wire, view
from timely.operators.base import Operator
from timely.operators.window_shapes import Epochs, Session, Tumbling

REPEATABLE = OperatorClass.REPEATABLE
CONVERGENT = OperatorClass.CONVERGENT_CAPABLE
DETERMINISTIC = OperatorClass.DETERMINISTIC
ARBITRARY = OperatorClass.ARBITRARY

Verb = Callable[[Any], Any]


class Steady(Operator):
    """Gives the same again, with all that its jobs give."""

    repeats = True


STREAM: dict[str, tuple[OperatorClass, Verb]] = {
    "map": (REPEATABLE, lambda s: s.map(str)),
    "filter": (REPEATABLE, lambda s: s.filter(bool)),
    "flat_map": (REPEATABLE, lambda s: s.flat_map(str)),
    "inspect": (REPEATABLE, lambda s: s.inspect(str)),
    "attempt": (REPEATABLE, lambda s: s.attempt(str)[0]),
    "branch": (REPEATABLE, lambda s: s.branch(bool)[0]),
    "exchange": (REPEATABLE, lambda s: s.exchange(by=str)),
    "key_by": (REPEATABLE, lambda s: s.key_by(str)),
    "to_columns": (DETERMINISTIC, lambda s: s.to_columns()),
    "to_columns with types": (REPEATABLE, lambda s: s.to_columns({"n": int})),
    "distinct": (REPEATABLE, lambda s: s.distinct()),
    "distinct over time": (DETERMINISTIC, lambda s: s.distinct(over="time")),
    "distinct in a loop": (DETERMINISTIC, lambda s: s.enter(s.graph.add_scope("inner", s.scope)).distinct()),
    "map in a loop": (REPEATABLE, lambda s: s.enter(s.graph.add_scope("inner", s.scope)).map(str)),
    "map that is declared": (ARBITRARY, lambda s: s.map(str).nondeterministic("it rolls dice")),
}
KEYED: dict[str, tuple[OperatorClass, Verb]] = {
    "map_values": (REPEATABLE, lambda s: s.map_values(str)),
    "values": (REPEATABLE, lambda s: s.values()),
    "exchange": (REPEATABLE, lambda s: s.exchange()),
    "join": (REPEATABLE, lambda s: s.join(s)),
    "join over time": (DETERMINISTIC, lambda s: s.join(s, over="time")),
    "reduce": (DETERMINISTIC, lambda s: s.reduce(lambda a, b: (a, b))),
    "reduce by max": (CONVERGENT, lambda s: s.reduce(max)),
    "reduce over time": (DETERMINISTIC, lambda s: s.reduce(max, over="time")),
    "sum": (CONVERGENT, lambda s: s.sum()),
    "min": (CONVERGENT, lambda s: s.min()),
    "max": (CONVERGENT, lambda s: s.max()),
    "count": (CONVERGENT, lambda s: s.count()),
    "fold": (DETERMINISTIC, lambda s: s.fold(list, lambda all, one: [*all, one])),
    "process": (DETERMINISTIC, lambda s: s.process(lambda key, value, timers: [(key, value)])),
    "count in a loop": (DETERMINISTIC, lambda s: s.enter(s.graph.add_scope("inner", s.scope)).count()),
    "window": (DETERMINISTIC, lambda s: s.window(Tumbling(5), time=float).count()),
    "split_late": (DETERMINISTIC, lambda s: s.split_late(float)[1]),
    "window of epochs": (DETERMINISTIC, lambda s: s.window(Epochs(5)).sum()),
}
COLUMNS: dict[str, tuple[OperatorClass, Verb]] = {
    "select": (REPEATABLE, lambda s: s.select("a", b=pl.col("a") * 2)),
    "select a constant": (REPEATABLE, lambda s: s.select(b=pl.lit(3))),
    "with_columns": (REPEATABLE, lambda s: s.with_columns(b=pl.col("a") % 7 > 3)),
    "filter": (REPEATABLE, lambda s: s.filter(pl.col("a") > 3, b="x")),
    "drop": (REPEATABLE, lambda s: s.drop("b")),
    "rename": (REPEATABLE, lambda s: s.rename({"a": "b"})),
    "sort": (DETERMINISTIC, lambda s: s.sort("a", over="time")),
    "cast": (REPEATABLE, lambda s: s.cast({"a": pl.Int32})),
    "drop_nulls": (REPEATABLE, lambda s: s.drop_nulls("a")),
    "drop_nans": (REPEATABLE, lambda s: s.drop_nans()),
    "fill_null": (REPEATABLE, lambda s: s.fill_null(0)),
    "fill_nan": (REPEATABLE, lambda s: s.fill_nan(0.0)),
    "explode": (REPEATABLE, lambda s: s.explode("a")),
    "unnest": (REPEATABLE, lambda s: s.unnest("a")),
    "pipe": (REPEATABLE, lambda s: s.pipe(Columns.drop, "a")),
    "map_batches": (DETERMINISTIC, lambda s: s.map_batches(str)),
    "match_to_schema": (REPEATABLE, lambda s: s.match_to_schema({"a": int})),
    "iterate": (REPEATABLE, lambda s: s.iterate(lambda inner: inner, limit=2)),
    "inspect": (REPEATABLE, lambda s: s.inspect(str)),
    "exchange": (REPEATABLE, lambda s: s.exchange("a")),
    "to_records": (REPEATABLE, lambda s: s.to_records()),
    "key_by": (REPEATABLE, lambda s: s.key_by("a")),
    "group_by": (CONVERGENT, lambda s: s.group_by("a").agg(n=agg.count())),
    "group_by over time": (DETERMINISTIC, lambda s: s.group_by("a").agg(n=agg.count(), over="time")),
    "join": (REPEATABLE, lambda s: s.join(s, on="a")),
    "join over time": (DETERMINISTIC, lambda s: s.join(s, on="a", over="time")),
    "join as semi": (REPEATABLE, lambda s: s.join(s, on="a", how="semi")),
    "group_by an expression": (CONVERGENT, lambda s: s.group_by(pl.col("a") % 2).agg(n=agg.count())),
    "join as lookup": (DETERMINISTIC, lambda s: s.join(s, on="a", how="lookup", right={"a": pl.Int64})),
    "join with changes": (DETERMINISTIC, lambda s: s.join(s, on="a", how="left", changes=True)),
    "join_asof": (DETERMINISTIC, lambda s: s.join_asof(s, on="at", by="a")),
    "join_asof with changes": (DETERMINISTIC, lambda s: s.join_asof(s, on="at", by="a", changes=True)),
    "join_asof with a time to live": (DETERMINISTIC, lambda s: s.join_asof(s, on="at", by="a", ttl=3)),
    "join_interval": (DETERMINISTIC, lambda s: s.join_interval(s, on="at", lower=0, upper=1, by="a")[0]),
    "branch": (REPEATABLE, lambda s: s.branch(pl.col("a") > 0)[0]),
    "branch by a mean": (DETERMINISTIC, lambda s: s.branch(pl.col("a") > pl.col("a").mean())[0]),
    "agg": (REPEATABLE, lambda s: s.agg(n=agg.count())),
    "top_k": (REPEATABLE, lambda s: s.top_k(2, by="a")),
    "group_by with the first rows": (DETERMINISTIC, lambda s: s.group_by("b").top_k(2, by="a")),
    "group_by with the first rows over time": (
        DETERMINISTIC,
        lambda s: s.group_by("b").top_k(2, by="a", over="time"),
    ),
    "distinct": (REPEATABLE, lambda s: s.distinct("a")),
    "group_by with a time to live": (
        DETERMINISTIC,
        lambda s: s.group_by("a").agg(n=agg.count(), ttl=Epochs(2)),
    ),
    "split_late": (DETERMINISTIC, lambda s: s.split_late("a", lateness=1)[0]),
    "window": (DETERMINISTIC, lambda s: s.window(Tumbling(5), time="a").agg(n=agg.count())),
    "window of epochs": (DETERMINISTIC, lambda s: s.window(Epochs(5)).group_by("b").agg(n=agg.count())),
    "window of sessions": (DETERMINISTIC, lambda s: s.window(Session(5), time="a").group_by("b").agg(n=agg.count())),
}
WIRE: dict[str, tuple[OperatorClass, Verb]] = {
    "map_batches": (DETERMINISTIC, lambda s: s.map_batches(sorted)),
    "broadcast": (REPEATABLE, lambda s: s.broadcast()),
    "unary": (DETERMINISTIC, lambda s: s.unary("own", Operator)),
    "unary without state": (DETERMINISTIC, lambda s: s.unary("own", Operator, stateful=False)),
    "unary that starts jobs": (ARBITRARY, lambda s: s.unary("own", Operator, holds=True)),
    "unary that starts jobs which repeat": (DETERMINISTIC, lambda s: s.unary("own", Steady, holds=True)),
    "binary": (DETERMINISTIC, lambda s: s.binary(s, "own", Operator)),
    "enter": (REPEATABLE, lambda s: s.enter(s.graph.add_scope("inner", s.scope))),
    "leave": (REPEATABLE, lambda s: s.enter(s.graph.add_scope("inner", s.scope)).leave()),
    "iterate": (REPEATABLE, lambda s: s.iterate(lambda inner: inner, limit=2)),
}
NO_OPERATOR = {
    *("concat", "policy", "nondeterministic", "output", "probe", "capture", "to", "connect_loop", "keyed", "records"),
}

CASES = [
    pytest.param(kind, *case, id=f"{kind.__name__}.{name}")
    for kind, table in ((Stream, STREAM | WIRE), (Keyed, KEYED), (Columns, COLUMNS))
    for name, case in table.items()
]


@pytest.mark.parametrize(("kind", "expected", "verb"), CASES)
def test_each_verb_has_its_class(kind: type[Wire], expected: OperatorClass, verb: Verb) -> None:
    flow = Dataflow()
    stream = flow.input("in")
    made = verb(stream.keyed() if kind is Keyed else view(stream, kind))
    assert class_of(flow.graph.nodes[made.outputs[0].node], operators_of(flow.graph)) == expected


@pytest.mark.parametrize(("kind", "table"), [(Stream, STREAM), (Keyed, KEYED), (Columns, COLUMNS), (Wire, WIRE)])
def test_every_verb_is_in_the_table(kind: type[Wire], table: dict[str, object]) -> None:
    owners = kind.__mro__[: kind.__mro__.index(Wire)] or (Wire,)
    members = {name: found for owner in owners for name, found in vars(owner).items()}
    verbs = {name for name, found in members.items() if callable(found) and not name.startswith("_")}
    assert verbs - NO_OPERATOR == {name.split()[0] for name in table}


def test_what_groups_and_windows_can_be_asked_for_is_known() -> None:
    assert {name for name in vars(GroupBy) if not name.startswith("_")} == {"columns", "keys", "made", "agg", "top_k"}
    verbs = {name for name in vars(Windowed) if not name.startswith("_")}
    assert verbs == {"late", "count", "sum", "min", "max", "reduce", "fold", "collect"}


def test_what_has_no_operator_is_deterministic_and_keeps_nothing() -> None:
    flow = Dataflow()
    flow.input("in").capture("out")
    for name in ("in", "out"):
        node = flow.graph.node_named(name)
        assert class_of(node, {}) == DETERMINISTIC
        assert why_arbitrary(node, {}) is None
        assert not keeps_state(node, {})
        assert not gives_each_once(node, {})


def test_a_record_is_given_once_by_a_distinct_over_all_epochs_alone() -> None:
    def once(verb: Callable[[Stream], Stream]) -> bool:
        flow = Dataflow()
        made = verb(flow.input("in"))
        return gives_each_once(flow.graph.nodes[made.outputs[0].node], operators_of(flow.graph))

    assert once(lambda s: s.distinct())
    assert not once(lambda s: s.distinct(over="time"))
    assert not once(lambda s: s.enter(s.graph.add_scope("inner", s.scope)).distinct())
    assert not once(lambda s: s.map(str))
