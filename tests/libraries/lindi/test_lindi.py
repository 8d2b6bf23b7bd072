"""Lindi's queries give at each time what Python and Polars give for its records; they keep nothing between times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from falkirk.simulate.simulation import Simulation, report
from libraries import lindi
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.support.profile import tries
from tests.timely.feeding import feed_batches_in_turn
from timely.data.batch import as_polars
from timely.errors import GraphError, OperatorError
from timely.io import Iterable

some = settings(max_examples=settings.default.max_examples // 5)
epochs = st.lists(st.tuples(*[st.lists(st.integers(-3, 9), max_size=8)] * 2), min_size=1, max_size=3)


def feed(cluster: Cluster, name: str, batches: list[list[Any]]) -> None:
    """Deal the records of each epoch out to the workers; they may be columns."""
    for epoch, batch in enumerate(batches):
        for i, session in enumerate(cluster.sessions):
            if part := batch[i :: len(cluster.sessions)]:
                session.input(name).send(pl.DataFrame(part, orient="row") if isinstance(part[0], dict) else part)
            session.input(name).advance_to(epoch + 1)
        cluster.step()
    for session in cluster.sessions:
        session.input(name).close()


QUERIES: dict[
    str, tuple[Callable[[lindi.Query, lindi.Query], lindi.Query], Callable[[list[int], list[int]], list[Any]]]
] = {
    "where": (lambda a, b: a.where(lambda n: n > 2), lambda a, b: [n for n in a if n > 2]),
    "select": (lambda a, b: a.select(lambda n: n * 2), lambda a, b: [n * 2 for n in a]),
    "select_many": (lambda a, b: a.select_many(range), lambda a, b: [m for n in a for m in range(n)]),
    "concat": (lambda a, b: a.concat(b), lambda a, b: a + b),
    "distinct": (lambda a, b: a.distinct(), lambda a, b: list(set(a))),
    "union": (lambda a, b: a.union(b), lambda a, b: list({*a, *b})),
    "intersect": (lambda a, b: a.intersect(b), lambda a, b: list({*a} & {*b})),
    "without": (lambda a, b: a.without(b), lambda a, b: list({*a} - {*b})),
    "join": (
        lambda a, b: a.join(b, lambda n: n % 3, lambda n: n % 3, lambda x, y: (x, y)),
        lambda a, b: [(x, y) for x in a for y in b if x % 3 == y % 3],
    ),
    "top": (lambda a, b: a.top(2), lambda a, b: sorted(a)[-2:]),
    "least": (lambda a, b: a.top(3, abs, least=True).select(abs), lambda a, b: sorted(map(abs, a))[:3]),
    "count": (lambda a, b: a.count(), lambda a, b: [len(a)] if a else []),
    "sum": (lambda a, b: a.sum(), lambda a, b: [sum(a)] if a else []),
    "min": (lambda a, b: a.min(), lambda a, b: [min(a)] if a else []),
    "max": (lambda a, b: a.max(), lambda a, b: [max(a)] if a else []),
    "groups": (
        lambda a, b: a.group_by(lambda n: n % 3).select(lambda key, found: (key, sorted(found))),
        lambda a, b: [(key, sorted(n for n in a if n % 3 == key)) for key in {n % 3 for n in a}],
    ),
    "counts": (lambda a, b: a.group_by(lambda n: n % 3).count(), lambda a, b: list(Counter(n % 3 for n in a).items())),
    "sums": (
        lambda a, b: a.group_by(lambda n: n % 3).sum(),
        lambda a, b: [(key, sum(n for n in a if n % 3 == key)) for key in {n % 3 for n in a}],
    ),
    "greatest": (
        lambda a, b: a.group_by(lambda n: n % 3).max(lambda n: -n),
        lambda a, b: [(key, max(-n for n in a if n % 3 == key)) for key in {n % 3 for n in a}],
    ),
    "rounds": (
        lambda a, b: a.iterate(lambda inner: inner.where(lambda n: n > 0).select(lambda n: n // 2).distinct()),
        lambda a, b: _halved(a),
    ),
}


def _halved(numbers: list[int]) -> list[int]:
    found: list[int] = []
    while numbers := list({n // 2 for n in numbers if n > 0}):
        found += numbers
    return found


@pytest.mark.parametrize("name", QUERIES)
@some
@given(fed=epochs, workers=st.integers(1, 3))
def test_a_query_of_each_time_is_what_python_says(name: str, fed: list[Any], workers: int) -> None:
    build, oracle = QUERIES[name]
    flow = Dataflow()
    out = build(lindi.Query(flow.input("a")), lindi.Query(flow.input("b"))).capture("out")
    cluster = Cluster(flow, workers)
    for number, each in enumerate("ab"):
        feed(cluster, each, [epoch[number] for epoch in fed])
    cluster.run()
    found: dict[int, list[Any]] = defaultdict(list)
    for (epoch,), batch in cluster.captured(out):
        found[epoch] += batch
    for epoch, (a, b) in enumerate(fed):
        assert sorted(found[epoch]) == sorted(oracle(a, b))


def canonical(value: Any) -> Any:
    """The value with one NaN and one zero, so that it can be counted and sorted."""
    if isinstance(value, tuple | list):
        return tuple(map(canonical, value))
    return "nan" if value != value else repr(value + 0.0)


def last(numbers: list[float], descending: bool = False) -> list[float]:
    """The numbers in order, and then what is none."""
    there = [n for n in numbers if n == n]
    return sorted(there, reverse=descending) + [n for n in numbers if n != n]


def once(records: list[Any]) -> list[Any]:
    return list({canonical(record): record for record in records}.values())


def by_key(records: list[float], key: Callable[[float], float], verb: Callable[[list[float]], Any]) -> list[Any]:
    groups: dict[str, list[float]] = defaultdict(list)
    for n in records:
        groups[canonical(key(n))].append(n)
    return [(key(found[0]), verb(found)) for found in groups.values()]


# A NaN is one key, as it is in columns, and comes last wherever there is an order.
OF_FLOATS: dict[
    str, tuple[Callable[[lindi.Query, lindi.Query], lindi.Query], Callable[[list[float], list[float]], list[Any]]]
] = {
    "distinct": (lambda a, b: a.distinct(), lambda a, b: once(a)),
    "distinct pairs": (lambda a, b: a.select(lambda n: (n, 1)).distinct(), lambda a, b: [(n, 1) for n in once(a)]),
    "union": (lambda a, b: a.union(b), lambda a, b: once(a + b)),
    "intersect": (lambda a, b: a.intersect(b), lambda a, b: [n for n in once(a) if canonical(n) in map(canonical, b)]),
    "without": (lambda a, b: a.without(b), lambda a, b: [n for n in once(a) if canonical(n) not in map(canonical, b)]),
    "join": (
        lambda a, b: a.join(b, lambda n: n, lambda n: n),
        lambda a, b: [(x, y) for x in a for y in b if canonical(x) == canonical(y)],
    ),
    "top": (lambda a, b: a.top(2), lambda a, b: last(a, descending=True)[:2]),
    "top by a pair": (lambda a, b: a.top(2, lambda n: (0, n)), lambda a, b: last(a, descending=True)[:2]),
    "least": (lambda a, b: a.top(3, least=True), lambda a, b: last(a)[:3]),
    "min": (lambda a, b: a.min(), lambda a, b: last(a)[:1]),
    "max": (lambda a, b: a.max(), lambda a, b: last(a, descending=True)[:1]),
    "ordered": (lambda a, b: a.order_by(), lambda a, b: last(a)),
    "ordered down": (lambda a, b: a.order_by(descending=True), lambda a, b: last(a, descending=True)),
    "counts": (lambda a, b: a.group_by(lambda n: n * 2).count(), lambda a, b: by_key(a, lambda n: n * 2, len)),
    "least of each": (
        lambda a, b: a.group_by(lambda n: n * 0).min(),
        lambda a, b: by_key(a, lambda n: n * 0, lambda found: last(found)[0]),
    ),
    "least of all": (
        lambda a, b: a.group_by(lambda n: 1.0).min(),
        lambda a, b: by_key(a, lambda n: 1.0, lambda found: last(found)[0]),
    ),
    "greatest of all": (
        lambda a, b: a.group_by(lambda n: 1.0).max(),
        lambda a, b: by_key(a, lambda n: 1.0, lambda found: last(found, descending=True)[0]),
    ),
}
floats = st.sampled_from([-2.0, -0.0, 0.0, 1.5, 3.0]) | st.builds(lambda: float("nan"))


@pytest.mark.parametrize("name", OF_FLOATS)
@some
@given(fed=st.lists(st.tuples(*[st.lists(floats, max_size=8)] * 2), min_size=1, max_size=2), workers=st.integers(1, 3))
def test_a_nan_is_one_value_whatever_worker_it_came_from(name: str, fed: list[Any], workers: int) -> None:
    build, oracle = OF_FLOATS[name]
    flow = Dataflow()
    out = build(lindi.Query(flow.input("a")), lindi.Query(flow.input("b"))).capture("out")
    cluster = Cluster(flow, workers)
    for number, side in enumerate("ab"):
        feed(cluster, side, [epoch[number] for epoch in fed])
    cluster.run()
    found: dict[int, list[Any]] = defaultdict(list)
    for (epoch,), batch in cluster.captured(out):
        found[epoch] += batch
    for epoch, (a, b) in enumerate(fed):
        seen, expected = (list(map(canonical, records)) for records in (found[epoch], oracle(a, b)))
        assert seen == expected if name.startswith("ordered") else sorted(seen) == sorted(expected)


def test_what_is_ordered_comes_in_order() -> None:
    flow = Dataflow()
    out = lindi.Query(flow.input("a")).order_by(abs, descending=True).capture("out")
    cluster = Cluster(flow, 3)
    feed(cluster, "a", [[3, -7, 5, 1], [2]])
    cluster.run()
    assert sorted(cluster.captured(out)) == [((0,), [-7, 5, 3, 1]), ((1,), [2])]


TABLES: dict[str, tuple[Callable[[lindi.Table, lindi.Table], lindi.Table], Callable[..., pl.DataFrame]]] = {
    "where": (lambda a, b: a.where(pl.col("n") > 2), lambda a, b: a.filter(pl.col("n") > 2)),
    "aggregate": (
        lambda a, b: a.aggregate("k", n=pl.col("n").sum(), rows=pl.len()),
        lambda a, b: a.group_by("k").agg(n=pl.col("n").sum(), rows=pl.len()),
    ),
    "whole": (lambda a, b: a.aggregate(n=pl.col("n").median()), lambda a, b: a.select(n=pl.col("n").median())),
    "distinct": (lambda a, b: a.distinct("k"), lambda a, b: a.unique()),
    "join": (lambda a, b: a.join(b, "k"), lambda a, b: a.join(b, on="k")),
    "anti": (lambda a, b: a.join(b, "k", how="anti"), lambda a, b: a.join(b, on="k", how="anti")),
    "top": (lambda a, b: a.select("n").top(3, "n"), lambda a, b: a.select("n").sort("n", descending=True).head(3)),
    "order_by": (lambda a, b: a.order_by("k", "n"), lambda a, b: a.sort("k", "n")),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_query_over_columns_is_what_polars_says(name: str, workers: int) -> None:
    build, oracle = TABLES[name]
    flow = Dataflow()
    tables = (lindi.Table(flow.input(each).to_columns({"k": int, "n": int})) for each in "ab")
    out = build(*tables).capture("out")
    cluster = Cluster(flow, workers)
    fed = [[[{"k": n % keys, "n": n * n % 11} for n in range(20 + epoch)] for epoch in (0, 1)] for keys in (4, 3)]
    for each, batches in zip("ab", fed, strict=True):
        feed(cluster, each, batches)
    cluster.run()
    for epoch in range(2):
        found = pl.concat([as_polars(batch) for time, batch in cluster.captured(out) if time == (epoch,)])
        want = oracle(*(pl.DataFrame(batches[epoch]) for batches in fed))
        assert_frame_equal(found, want, check_row_order=name in ("top", "order_by"))


holed_rows = st.lists(
    st.tuples(
        st.none() | st.sampled_from(["a", "b", "ä"]),
        st.none() | st.integers(-2, 3),
        st.sampled_from([None, -1.5, 0.0, 2.0, float("inf"), float("nan")]),
    ),
    max_size=6,
)
holed = st.lists(st.lists(holed_rows, max_size=3), min_size=1, max_size=3)
"""Batches of epochs."""
HOLED = {"k": pl.String, "n": pl.Int64, "x": pl.Float64}


def holed_frame(rows: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, HOLED, orient="row")


def of_table(
    build: Callable[[lindi.Table], lindi.Table], fed: list[Any], workers: int
) -> list[tuple[list[Any], pl.DataFrame]]:
    """The rows that come out at each epoch, in their order, and those that came in."""
    flow = Dataflow()
    out = build(lindi.Table(flow.input("in").to_columns())).capture("out")
    cluster = Cluster(flow, workers)
    feed_batches_in_turn(cluster, [[holed_frame(rows) for rows in epoch] for epoch in fed])
    found: list[list[Any]] = [[] for _ in fed]
    for (epoch,), batch in cluster.captured(out):
        found[epoch] += as_polars(batch).rows()
    return [
        (told, holed_frame([row for rows in epoch for row in rows])) for told, epoch in zip(found, fed, strict=True)
    ]


@some
@given(fed=holed, columns=st.permutations(["k", "n", "x"]), descending=st.booleans(), workers=st.integers(1, 3))
def test_rows_with_nulls_are_in_the_order_of_polars(
    fed: list[Any], columns: list[str], descending: bool, workers: int
) -> None:
    for told, rows in of_table(lambda table: table.order_by(*columns, descending=descending), fed, workers):
        assert_frame_equal(holed_frame(told), rows.sort(columns, descending=descending))


@some
@given(
    fed=holed,
    by=st.sampled_from(["k", "n", "x"]),
    count=st.integers(1, 4),
    least=st.booleans(),
    workers=st.integers(1, 3),
)
def test_the_first_rows_are_those_of_polars_and_null_is_behind_all(
    fed: list[Any], by: str, count: int, least: bool, workers: int
) -> None:
    for told, rows in of_table(lambda table: table.select(by).top(count, by, least), fed, workers):
        values = rows.select(by)
        want = values.bottom_k(count, by=by) if least else values.top_k(count, by=by)
        want = want.sort(by, descending=not least, nulls_last=True)  # Polars gives them in no order
        assert_frame_equal(pl.DataFrame(told, values.schema, orient="row"), want)


def test_a_query_is_stateless_and_has_nothing_in_a_checkpoint() -> None:
    flow = Dataflow()
    query = lindi.Query(flow.input("in")).group_by(lambda n: n % 5).count().top(2)
    query.concat(query.distinct()).order_by().capture("out")
    kinds = {node.kind: node.stateful for node in flow.graph.nodes}
    assert not any(stateful for kind, stateful in kinds.items() if kind not in ("capture",)), kinds


def firewalled() -> Dataflow:
    """A stateless front whose last step is logged, and running totals behind it."""
    flow = Dataflow("firewalled")
    numbers = [(i * 37) % 23 for i in range(60)]
    source = flow.source("in", Iterable(partitioned=[numbers, numbers[::-1]], batch=3, epoch_every=6))
    counts = lindi.Query(source).group_by(lambda n: n % 5).count().logged()
    counts.stream.keyed().sum(name="totals").records().capture("out")
    return flow


def test_a_logged_query_brings_its_output_through_failures() -> None:
    simulated = {workers: Simulation(firewalled, workers) for workers in (1, 2, 3)}
    for seed in range(tries(9)):
        each = simulated[1 + seed % 3]
        failure = each.run(seed)
        if failure is not None:
            pytest.fail(report(each.shrink(failure), f"firewalled, seed {seed}"), pytrace=False)


def test_mistakes_are_told_at_their_line() -> None:
    flow = Dataflow()
    query, table = lindi.Query(flow.input("a")), lindi.Table(flow.columns("b", Iterable([{"k": 1}])))
    with pytest.raises(GraphError, match=r"test_lindi.py.* join takes another Query, not Table"):
        query.join(table, abs, abs)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="top takes a number of records from 1 up, not 0"):
        query.top(0)
    with pytest.raises(GraphError, match="aggregate takes Polars expressions by name"):
        table.aggregate("k", n=3)  # type: ignore[arg-type]
    query.group_by(lambda n: 1 // n).count().capture("out")
    cluster = Cluster(flow, 1)
    cluster.sessions[0].input("a").send([1, 0])
    with pytest.raises(OperatorError, match=r"test_lindi.py.*ZeroDivisionError"):
        cluster.run()
