"""Running totals come out when they change, and only then: over records and over columns alike."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.timely.feeding import feed_batches_in_turn
from timely.data.batch import as_polars
from timely.errors import OperatorError
from timely.io import Batches
from timely.operators.window_shapes import Epochs
from timely.time import Time

Rows = list[tuple[Any, Any]]

ROW = pa.schema([("k", pa.int64()), ("v", pa.int64())])
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), max_size=6)
epochs_ = st.lists(pairs, min_size=1, max_size=5)
workers_ = st.sampled_from([1, 2, 3])
AGGREGATES = {"sum": agg.sum("v"), "min": agg.min("v"), "max": agg.max("v"), "count": agg.count()}


def table(rows: Rows) -> pa.Table:
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.table([pa.array(keys, pa.int64()), pa.array(values, pa.int64())], schema=ROW)


def fed(flow: Dataflow, epochs: Sequence[Sequence[Any]], workers: int) -> Cluster:
    """A cluster that has run: `epochs` are batches, dealt to the workers in turn."""
    cluster = Cluster(flow, workers, seed=len(epochs))
    feed_batches_in_turn(cluster, epochs)
    return cluster


def changes(cluster: Cluster, capture: Any) -> dict[Time, dict[Any, Any]]:
    """The output at each time, by key; every key once."""
    at: dict[Time, dict[Any, Any]] = defaultdict(dict)
    for time, batch in cluster.captured(capture):
        for key, value in batch if isinstance(batch, list) else as_polars(batch).rows():
            assert key not in at[time]
            at[time][key] = value
    return dict(at)


@pytest.mark.parametrize("verb", AGGREGATES)
@given(epochs_, workers_)
@settings(max_examples=25)
def test_records_and_columns_tell_the_same_changes(verb: str, epochs: list[Rows], workers: int) -> None:
    flow = Dataflow()
    rows = flow.input("in")
    by_record = getattr(rows.keyed(), verb)().capture()
    by_column = (
        rows.to_columns({"k": pl.Int64, "v": pl.Int64}).group_by("k").agg(v=AGGREGATES[verb], over="scope").capture()
    )
    cluster = fed(flow, [[[row] for row in rows] for rows in epochs], workers)
    total = {"sum": sum, "min": min, "max": max, "count": len}[verb]
    values: dict[Any, list[int]] = defaultdict(list)
    expected: dict[Time, dict[Any, Any]] = {}
    for epoch, records in enumerate(epochs):
        before = {key: total(held) for key, held in values.items()}
        for key, value in records:
            values[key].append(value)
        told = {key: total(held) for key, held in values.items() if key not in before or before[key] != total(held)}
        if told:
            expected[(epoch,)] = told
    assert changes(cluster, by_record) == expected
    assert changes(cluster, by_column) == expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [3, 700, 20_000])
@pytest.mark.parametrize("workers", [1, 2])
def test_changes_do_not_depend_on_the_size_of_batches(size: int, workers: int) -> None:
    rng = np.random.default_rng(size)
    epochs = [
        pl.DataFrame({"k": rng.integers(0, size, size), "v": rng.integers(-1, 2, size) * rng.integers(0, 2)})
        for _ in range(6)
    ]
    flow = Dataflow()
    found = flow.input("in").to_columns().group_by("k")
    captures = {
        verb: found.agg(v=aggregate, over="scope").capture()
        for verb, aggregate in {**AGGREGATES, "mean": agg.mean("v")}.items()
    }
    cluster = fed(flow, [[frame[: size // 2], frame[size // 2 :]] for frame in epochs], workers)
    for verb, capture in captures.items():
        told = changes(cluster, capture)
        for epoch in range(len(epochs)):

            def total(upto: int, verb: str = verb) -> dict[int, Any]:
                if not upto:
                    return {}
                result = pl.len() if verb == "count" else getattr(pl.col("v"), verb)()
                return dict(pl.concat(epochs[:upto]).group_by("k").agg(result).rows())

            before = total(epoch)
            expected = {key: value for key, value in total(epoch + 1).items() if before.get(key) != value}
            assert told.get((epoch,), {}) == expected, (verb, epoch)


@given(st.lists(pairs, min_size=2, max_size=9), st.integers(1, 3), workers_)
@settings(max_examples=15)
def test_keys_without_a_row_for_a_while_begin_anew(epochs: list[Rows], ttl: int, workers: int) -> None:
    flow = Dataflow()
    aggregates = {**AGGREGATES, "n_unique": agg.n_unique("v")}
    rows = flow.input("in").to_columns({"k": pl.Int64, "v": pl.Int64})
    captures = {
        verb: rows.group_by("k").agg(v=aggregate, ttl=Epochs(ttl)).capture() for verb, aggregate in aggregates.items()
    }
    seen = rows.distinct("k", ttl=Epochs(ttl)).capture()
    cluster = fed(flow, [[[row] for row in rows] for rows in epochs], workers)
    held: dict[Any, tuple[int, list[int]]] = {}
    new: list[Any] = []
    expected: dict[str, dict[Time, dict[Any, Any]]] = {verb: {} for verb in aggregates}
    for epoch, records in enumerate(epochs):
        held = {key: each for key, each in held.items() if epoch - each[0] <= ttl}
        before = {key: list(values) for key, (_, values) in held.items()}
        for key, value in records:
            held[key] = (epoch, [*held.get(key, (0, []))[1], value])
        new += [((epoch,), key) for key in held if key not in before]
        totals = {"sum": sum, "min": min, "max": max, "count": len, "n_unique": lambda values: len(set(values))}
        for verb, total in totals.items():
            told = {key: total(values) for key, (_, values) in held.items()}
            told = {key: each for key, each in told.items() if key not in before or total(before[key]) != each}
            if told:
                expected[verb][(epoch,)] = told
    assert {verb: changes(cluster, capture) for verb, capture in captures.items()} == expected
    found = [(time, key) for time, batch in cluster.captured(seen) for (key,) in as_polars(batch).rows()]
    assert sorted(found) == sorted(new)


def test_results_that_stay_are_not_told_again_whatever_their_type() -> None:
    """NaN, null, text, dates: what did not change does not come out, and what came first does."""
    nan = float("nan")
    frames = [
        pl.DataFrame({"k": [0, 1], "f": [nan, None], "t": ["b", None], "n": [2**63 - 1, None]}),
        pl.DataFrame({"k": [0, 1], "f": [nan, None], "t": ["c", None], "n": [None, None]}),
        pl.DataFrame({"k": [0, 1], "f": [1.0, nan], "t": ["a", "z"], "n": [2**63 - 1, 2**63 - 1]}),
        pl.DataFrame({"k": [0, 1], "f": [1.0, nan], "t": ["b", "z"], "n": [None, 2**63 - 1]}),
    ]
    schema = {"k": pl.Int64, "f": pl.Float64, "t": pl.String, "n": pl.Int64}
    flow = Dataflow()
    grouped = flow.input("in").to_columns().group_by("k")
    low = grouped.agg(f=agg.min("f"), t=agg.min("t"), n=agg.min("n"), over="scope").capture()
    total = grouped.agg(f=agg.sum("f"), m=agg.mean("f"), over="scope").capture()
    cluster = fed(flow, [[frame.cast(pl.Schema(schema))] for frame in frames], 1)
    lows = [(time[0], *map(str, row)) for time, batch in cluster.captured(low) for row in as_polars(batch).rows()]
    big = str(2**63 - 1)
    assert lows == [
        (0, "0", "nan", "b", big), (0, "1", "None", "None", "None"),
        (2, "0", "1.0", "a", big), (2, "1", "nan", "z", big),
    ]  # fmt: skip
    sums = [(time[0], *map(str, row)) for time, batch in cluster.captured(total) for row in as_polars(batch).rows()]
    assert sums == [(0, "0", "nan", "nan"), (0, "1", "0.0", "None"), (2, "1", "nan", "nan")]


NUMBERS: list[tuple[Any, list[Any]]] = [
    (pl.Int8, [-128, 3]),
    (pl.Int64, [2**53, -(2**53) - 1, 2**57 + 1, 7]),
    (pl.Float16, [0.5, -3.0]),
    (pl.Float32, [0.25, 2.0**70]),
    (pl.Float64, [-0.75, 2.0**60, 1e-3]),
    (pl.Null, [None]),
]


@st.composite
def columns_of_a_type(draw: st.DrawFn) -> pl.Series:
    kind, values = draw(st.sampled_from(NUMBERS))
    return pl.Series("v", draw(st.lists(st.sampled_from(values) | st.none(), min_size=1, max_size=3)), dtype=kind)


@pytest.mark.parametrize("verb", ["sum", "min", "max"])
@given(st.lists(columns_of_a_type(), min_size=1, max_size=4), workers_)
@settings(max_examples=60)
def test_numbers_of_several_types_are_exact_or_refused(verb: str, columns: list[pl.Series], workers: int) -> None:
    """The last total is that of all values, as fractions; where a least or greatest integer that no float is meets floats, that
    is an error."""
    flow = Dataflow("types")
    batches = [pl.DataFrame([pl.Series("k", [1] * len(column)), column]) for column in columns]
    totals = flow.columns("s", Batches(batches)).group_by("k").agg(x=AGGREGATES[verb]).capture("out")
    values = [value for column in columns for value in column.to_list() if value is not None]
    real = any(column.dtype.is_float() for column in columns)
    cluster = Cluster(flow, workers)
    try:
        cluster.run()
    except OperatorError as error:
        refusal = str(error)
        assert re.search(r"column 'v'.*no float of 64 bits; cast it", refusal)
        assert verb != "sum"
        assert real
        assert any(int(float(value)) != value for value in values if isinstance(value, int))
        return
    last = list(changes(cluster, totals).values())[-1][1]
    if verb == "sum":
        exact = sum(map(Fraction, values))
        # Told as an integer before floats came, and then no more, as it is the same float.
        assert last == exact or (real and float(last) == float(exact))
    else:
        assert last == (None if not values else min(values) if verb == "min" else max(values))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1)), max_size=4), min_size=1, max_size=4), workers_
)
@settings(max_examples=25)
def test_a_fold_tells_the_accumulators_that_changed(epochs: list[Rows], workers: int) -> None:
    flow = Dataflow()
    told = flow.input("in").keyed().fold((), lambda seen, v: tuple(sorted({*seen, v}))).capture()
    cluster = fed(flow, [[[row] for row in rows] for rows in epochs], workers)
    seen: dict[int, set[int]] = defaultdict(set)
    expected: dict[Time, dict[Any, Any]] = defaultdict(dict)
    for epoch, rows in enumerate(epochs):
        before = {key: set(values) for key, values in seen.items()}
        for key, value in rows:
            seen[key].add(value)
        for key, values in seen.items():
            if values != before.get(key):
                expected[(epoch,)][key] = tuple(sorted(values))
    assert changes(cluster, told) == dict(expected)


def test_an_accumulator_that_is_changed_in_place_is_told_all_the_same() -> None:
    def put(seen: list[int], value: int) -> list[int]:
        seen.append(value)  # against the rules: but nothing may be lost in silence
        return seen

    flow = Dataflow()
    told = flow.input("in").keyed().fold(list, put).capture()
    cluster = fed(flow, [[[("a", 1)]], [[("a", 2)]]], 1)
    assert [time for time, _ in cluster.captured(told)] == [(0,), (1,)]


def test_sums_of_arrays_are_told_when_any_item_changes() -> None:
    flow = Dataflow()
    told = flow.input("in").keyed().sum().capture()
    cluster = fed(flow, [[[("a", np.array([1, 2]))]], [[("a", np.array([1, 0]))]]], 1)
    assert [[v.tolist() for _, v in batch] for _, batch in cluster.captured(told)] == [[[1, 2]], [[2, 2]]]


# Fixed points ---------------------------------------------------------------------------------------------------------


def components(edges: Columns, nodes: Columns) -> Columns:
    """The least node that each node is connected with, by a loop that ends because nothing changes any more."""

    def body(labels: Columns) -> tuple[Columns, Columns]:
        inside = edges.enter(labels.scope)
        spread = labels.join(inside, on="node", over="scope").select(node="to", label="label")
        best = labels.concat(spread).group_by("node").agg(label=agg.min("label"), over="scope")
        return best, best

    best = nodes.iterate(body, name="components")
    return best.group_by("node").agg(label=agg.min("label"), over="time")


@pytest.mark.parametrize("text", [False, True])
@given(st.integers(1, 14), st.integers(0, 20), st.integers(0, 2**32), st.sampled_from([1, 2]))
@settings(max_examples=20)
def test_a_loop_of_columns_ends_at_its_fixed_point(text: bool, n: int, m: int, seed: int, workers: int) -> None:
    """Connected components of a random graph an epoch, against networkx."""
    graphs = [nx.gnm_random_graph(n, m, seed=seed + epoch) for epoch in range(2)]
    kind = pl.String if text else pl.Int64

    def name(node: int) -> Any:
        return f"n{node:02}" if text else node

    flow = Dataflow()
    rows = flow.input("in")
    edges = rows.to_columns({"node": kind, "to": kind})
    nodes = edges.filter(pl.col("node") == pl.col("to")).select(node="node", label="to")
    capture = components(edges, nodes).capture()
    epochs = [
        [[(name(a), name(b))] for a, b in [*graph.edges, *(e[::-1] for e in graph.edges), *((v, v) for v in graph)]]
        for graph in graphs
    ]
    found = changes(fed(flow, epochs, workers), capture)
    for epoch, graph in enumerate(graphs):
        expected = {name(v): name(min(part)) for part in nx.connected_components(graph) for v in part}
        assert found[(epoch,)] == expected
