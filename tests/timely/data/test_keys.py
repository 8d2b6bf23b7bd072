"""NaN is one key and so are the zeros: over records and columns, whatever the number of workers and after every rollback."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.timely.feeding import feed_in_turn
from tests.timely.operators.fake_context import feed
from timely.data.batch import as_polars
from timely.data.codec import decode, encode
from timely.data.keys import are_canonical, canonical
from timely.dataflow.windows import Tumbling
from timely.errors import OperatorError
from timely.operators.keyed import Distinct, Fold, KeyedJoin, Reduce, least
from timely.state.interface import Run
from timely.time import Frontier


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Point:
    x: float


def a_nan() -> float:
    """A NaN that is no other one."""
    return float("nan")


floats = st.sampled_from(["nan", "0.0", "-0.0", "1.5"]).map(float)
keys = st.one_of(
    floats,
    floats.map(np.float64),
    st.sampled_from(["NaN", "1"]).map(Decimal),
    st.tuples(floats, st.sampled_from("ab")),
    st.tuples(st.tuples(floats)),
    floats.map(lambda x: Pair(x, 1)),
    floats.map(lambda x: frozenset([x])),
    st.sampled_from("ab"),
)
epochs_ = st.lists(st.lists(st.tuples(keys, st.integers(0, 3)), max_size=5), min_size=1, max_size=4)
workers_ = st.sampled_from([1, 2, 3])


def name(key: Any) -> str:
    """Equal for keys that are one: by content, in which NaN is a word."""
    if isinstance(key, tuple):
        return f"({', '.join(map(name, key))})"
    if isinstance(key, frozenset):
        return f"{{{', '.join(sorted(map(name, key)))}}}"
    if isinstance(key, Decimal):
        return f"D{key}" if key.is_nan() else name(float(key))
    return f"{float(key) + 0.0!r}" if isinstance(key, float | int) else repr(key)


@given(keys)
def test_a_canonical_key_is_found_again(key: Any) -> None:
    other = decode(encode(key))
    found = {canonical(key): 1}
    assert canonical(other) in found
    assert name(canonical(key)) == name(key)
    if are_canonical([key]):
        assert repr(canonical(key)) == repr(key)
        assert other in {key: 1}


@given(epochs_, workers_)
@settings(max_examples=40)
def test_records_group_by_keys_with_nan(epochs: Any, workers: int) -> None:
    flow = Dataflow()
    pairs = flow.input("in").keyed()
    counts = pairs.count().capture()
    within = pairs.count(over="time").capture()
    folded = pairs.fold(0, lambda n, _: n + 1).capture()
    distinct = pairs.records().map(lambda pair: pair[0]).distinct().capture()
    joined = pairs.join(pairs).capture()
    windows = pairs.window(Tumbling(10), time=lambda v: v).count().capture()
    cluster = Cluster(flow, workers, seed=len(epochs))
    feed_in_turn(cluster, epochs)
    every = Counter(name(key) for records in epochs for key, _ in records)

    def out(capture: Any) -> list[Any]:
        return [record for _, batch in cluster.captured(capture) for record in batch]

    for capture in (counts, folded):
        assert {name(key): n for key, n in out(capture)} == every
    assert Counter(name(key) for key in out(distinct)) == Counter(dict.fromkeys(every, 1))
    assert Counter(name(key) for key, _ in out(joined)) == Counter({key: n * n for key, n in every.items()})
    assert {name(key): n for (key, _), n in out(windows)} == every
    apart = [Counter(name(key) for key, _ in records) for records in epochs]
    assert Counter((name(key), n) for key, n in out(within)) == Counter(pair for each in apart for pair in each.items())


@pytest.mark.parametrize(
    "make", [lambda: Reduce(least, True), lambda: Fold(int, min, True), lambda: Distinct(True), lambda: KeyedJoin(True)]
)
def test_a_nan_that_was_saved_is_the_same_key(make: Any) -> None:
    operator, again = make(), make()
    join = isinstance(operator, KeyedJoin)
    feed(operator, [(0, (0,), [(a_nan(), 1), ((a_nan(), "x"), 2)])], compact=False)
    runs = operator.state.snapshot(Frontier.top(), Frontier.empty(1))
    saved = decode(encode([(run.time, run.batch, run.part) for run in runs]))
    again.state.restore([Run(*each) for each in saved])
    later = [(int(join), (1,), [(a_nan(), 1), ((a_nan(), "x"), 2)])]
    sent = [feed(one, later, compact=False) for one in (operator, again)]
    assert repr(sent[0]) == repr(sent[1])
    assert len(sent[0]) == int(join)  # the join meets what was there; for the others nothing has changed


def test_a_nan_in_a_class_of_the_users_is_refused() -> None:
    with pytest.raises(TypeError, match="holds a NaN, which equals nothing"):
        feed(Reduce(least, True), [(0, (0,), [(Point(a_nan()), 1)])])
    feed(Reduce(least, True), [(0, (0,), [(Point(1.5), 1)])])


@pytest.mark.parametrize("size", [3, 700, 9000])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", [pl.Float64, pl.Float32])
def test_columns_group_by_nan_as_records_do(size: int, workers: int, kind: Any) -> None:
    values = np.random.default_rng(size).choice([math.nan, -0.0, 0.0, 2.5], size)
    flow = Dataflow()
    columns = flow.input("in").to_columns()
    one = columns.group_by("k").agg(n=agg.count()).capture()
    two = columns.group_by("k", "j").agg(n=agg.count(), over="time").capture()
    mixed = columns.group_by("k").agg(n=agg.count(), all=pl.len(), over="time").capture()
    records = columns.key_by("k").count().capture()
    cluster = Cluster(flow, workers, seed=size)
    frame = pl.DataFrame({"k": values, "j": values}, schema={"k": kind, "j": kind})
    for index, session in enumerate(cluster.sessions):
        session.input("in").send(frame[index::workers])
        session.input("in").close()
    cluster.run()
    expected = Counter(map(name, values.tolist()))

    def rows(capture: Any) -> list[Any]:
        return [row for _, batch in cluster.captured(capture) for row in as_polars(batch).rows()]

    assert Counter((name(key), n) for key, n in rows(one)) == Counter(list(expected.items()))
    assert Counter((name(a), name(b), n) for a, b, n in rows(two)) == Counter([(k, k, n) for k, n in expected.items()])
    assert Counter((name(key), n) for key, n, _ in rows(mixed)) == Counter(list(expected.items()))
    assert {name(key): n for _, batch in cluster.captured(records) for key, n in batch} == expected


def test_nan_loses_in_minima_and_maxima_of_records_in_every_order() -> None:
    for values in ([a_nan(), 2.0, 1.0], [2.0, a_nan(), 1.0], [2.0, 1.0, a_nan()]):
        flow = Dataflow()
        pairs = flow.input("in").keyed()
        low, top = pairs.min().capture(), pairs.max().capture()
        cluster = Cluster(flow, 1)
        feed_in_turn(cluster, [[("a", value) for value in values]])
        assert [b for _, b in cluster.captured(low)] == [[("a", 1.0)]]
        assert [b for _, b in cluster.captured(top)] == [[("a", 2.0)]]


@pytest.mark.parametrize("record", ["ab", b"ab", {"a": 1, "b": 2}, {1, 2}, 7])
@pytest.mark.parametrize("verb", ["count", "sum", "values", "window"])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_no_pair_is_refused_by_keyed_verbs(record: Any, verb: str, workers: int) -> None:
    flow = Dataflow()
    stream = flow.input("in").keyed()
    if verb == "window":
        stream.window(Tumbling(1), time=lambda v: 1).count().capture()
    else:
        getattr(stream, verb)().capture()
    cluster = Cluster(flow, workers)
    with pytest.raises(OperatorError, match=r"take pairs \(key, value\), and .* is none"):
        feed_in_turn(cluster, [[("a", 1)] * 3 + [record]])


class Riddle:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("record", [("a", 1, 2), ("a",), (), Riddle(), (Riddle(), 1, 2)])
@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("verb", ["count", "sum", "values", "join", "max"])
def test_what_is_no_pair_is_refused_wherever_it_stands(record: Any, place: int, verb: str) -> None:
    flow = Dataflow()
    stream = flow.input("in").keyed()
    (stream.join(stream) if verb == "join" else getattr(stream, verb)()).capture()
    batch: list[Any] = [("a", 1)] * 3
    batch.insert(place, record)
    with pytest.raises(OperatorError, match=r"take pairs \(key, value\), and .* is none.*key_by"):
        feed_in_turn(Cluster(flow, 1), [batch])


def test_a_key_that_cannot_be_shown_does_not_hide_its_nan() -> None:
    @dataclass(frozen=True)
    class Hidden:
        x: float

        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(TypeError, match=r"Hidden.*holds a NaN"):
        canonical(Hidden(a_nan()))
