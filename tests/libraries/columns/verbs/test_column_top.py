"""The first few rows of each key on random rows, in random batches, epochs and orders, on some workers: against Polars."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.operators.ordering import RunningTop
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.timely.feeding import feed_batches_in_turn
from tests.timely.operators.fake_context import FakeContext, feed
from timely.data.batch import as_polars
from timely.errors import GraphError, OperatorError
from timely.time import Frontier

SCHEMA_OF_RIGHT = {"k": pl.String, "t": pl.String}
SCHEMA = {"k": pl.String, "n": pl.Int64, "x": pl.Float64, "t": pl.String}
rows = st.lists(
    st.tuples(
        st.none() | st.sampled_from("ab"),
        st.none() | st.integers(-2, 3),
        st.sampled_from([None, -1.5, 0.0, 2.0, float("inf"), float("nan")]),
        st.none() | st.sampled_from(["u", "vv", "ä"]),
    ),
    max_size=6,
)
epochs = st.lists(st.lists(rows, max_size=3), min_size=1, max_size=4)
orders = st.sampled_from([["n"], ["x"], ["t"], ["x", "n"], ["t", "x"], ["n", "t", "x"]])
some = settings(max_examples=settings.default.max_examples // 3)


def frame(data: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(data, SCHEMA, orient="row")


def run(build: Any, fed: list[list[pl.DataFrame]], workers: int, seed: int) -> list[pl.DataFrame]:
    """All that comes out at each epoch; an empty frame where that is nothing."""
    flow = Dataflow()
    out = build(flow.input("in").to_columns()).capture()
    cluster = Cluster(flow, workers, seed)
    feed_batches_in_turn(cluster, fed)
    found: list[list[pl.DataFrame]] = [[] for _ in fed]
    for time, batch in cluster.captured(out):
        found[time[0]].append(as_polars(batch))
    return [pl.concat(each) if each else pl.DataFrame() for each in found]


def top(rows: pl.DataFrame, keys: list[str], k: int, by: list[str], least: list[bool]) -> list[Any]:
    """The first rows as Polars sorts them; those that are equal in `by` go by the others, the least first."""
    others = [name for name in rows.columns if name not in (*keys, *by)]
    descending = [not each for each in least] + [False] * len(others)
    ordered = rows.sort([*by, *others], descending=descending, nulls_last=True)
    first = ordered.group_by(keys, maintain_order=True).head(k) if keys else ordered.head(k)
    return list(map(_plain, first.select(*keys, pl.exclude(keys) if keys else pl.all()).rows()))


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """With NaN as text, which is equal to itself."""
    return tuple("NaN" if each != each else each for each in row)


def added_up(told: list[pl.DataFrame]) -> list[Counter[Any]]:
    """The rows that there are after each epoch."""
    there: Counter[Any] = Counter()
    found = []
    for each in told:
        for *row, sign in each.rows():
            there[_plain(tuple(row))] += sign
        assert min(there.values(), default=0) >= 0
        found.append(+there)
    return found


@some
@given(fed=epochs, k=st.integers(1, 3), by=orders, keyed=st.booleans(), workers=st.integers(1, 3), data=st.data())
def test_the_first_rows_so_far_are_those_of_polars(
    fed: Any, k: int, by: list[str], keyed: bool, workers: int, data: Any
) -> None:
    least = data.draw(st.lists(st.booleans(), min_size=len(by), max_size=len(by)))

    def build(stream: Columns) -> Columns:
        return (stream.group_by("k") if keyed else stream).top_k(k, by, least)

    batches = [[frame(batch) for batch in epoch] for epoch in fed]
    found = added_up(run(build, batches, workers, data.draw(st.integers(0, 99))))
    for at in range(len(fed)):
        so_far = pl.concat([frame([]), *(batch for epoch in batches[: at + 1] for batch in epoch)])
        assert found[at] == Counter(top(so_far, ["k"] if keyed else [], k, by, least))


@some
@given(
    fed=epochs, k=st.integers(1, 3), by=orders, keyed=st.booleans(), workers=st.integers(1, 3), seed=st.integers(0, 99)
)
def test_the_first_rows_of_a_time_are_those_of_polars(
    fed: Any, k: int, by: list[str], keyed: bool, workers: int, seed: int
) -> None:
    def build(stream: Columns) -> Columns:
        return (stream.group_by("k") if keyed else stream).top_k(k, by, over="time")

    batches = [[frame(batch) for batch in epoch] for epoch in fed]
    for told, epoch in zip(run(build, batches, workers, seed), batches, strict=True):
        right = top(pl.concat([frame([]), *epoch]), ["k"] if keyed else [], k, by, [False] * len(by))
        assert Counter(map(_plain, told.rows())) == Counter(right)


@some
@given(
    fed=epochs, k=st.integers(1, 3), least=st.booleans(), keyed=st.booleans(), workers=st.integers(1, 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_rows_that_are_taken_back_are_not_among_the_first(
    fed: Any, k: int, least: bool, keyed: bool, workers: int, seed: int
) -> None:
    def build(stream: Columns) -> Columns:
        most = stream.group_by("k", "t").agg(most=agg.max("n"), n=agg.count(), changes=True)
        return (most.group_by("k") if keyed else most).top_k(k, "most", least)

    batches = [[frame(batch) for batch in epoch] for epoch in fed]
    found = added_up(run(build, batches, workers, seed))
    for at in range(len(fed)):
        so_far = pl.concat([frame([]), *(batch for epoch in batches[: at + 1] for batch in epoch)])
        most = so_far.group_by("k", "t").agg(most=pl.max("n"), n=pl.len().cast(pl.Int64))
        assert found[at] == Counter(top(most, ["k"] if keyed else [], k, ["most"], [least]))


@some
@given(fed=epochs, workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_equal_rows_count_as_often_as_they_are_there(fed: Any, workers: int, seed: int) -> None:
    """A left join has a row with nulls as often as there are such on the left, and takes all of them back."""

    def build(stream: Columns) -> Columns:
        right = stream.filter(pl.col("n") > 1).select("k", "t")
        joined = stream.select("k", "n").join(right, on="k", how="left", changes=True, right=SCHEMA_OF_RIGHT)
        return joined.group_by("k").top_k(2, by="n").group_by("k").agg(total=agg.sum("n"), n=agg.count())

    batches = [[frame(batch) for batch in epoch] for epoch in fed]
    told = {row[0]: row[1:] for each in run(build, batches, workers, seed) for row in each.rows()}
    whole = pl.concat([frame([]), *(batch for epoch in batches for batch in epoch)])
    joined = whole.select("k", "n").join(whole.filter(pl.col("n") > 1).select("k", "t"), on="k", how="left")
    first = joined.sort("n", descending=True, nulls_last=True).group_by("k").head(2)
    right = first.group_by("k").agg(total=pl.sum("n"), n=pl.len())
    assert told == {k: tuple(rest) for k, *rest in right.rows()}


def test_only_the_first_rows_are_kept_where_nothing_is_taken_back() -> None:
    operator, ctx = RunningTop(["k"], 2, ["n"], [False], signed=False), FakeContext()
    assert operator.state is not None
    for epoch in range(3000):
        ctx.time = (epoch,)
        operator.on_batch(ctx, 0, ctx.time, pl.DataFrame({"k": [epoch % 3, 7], "n": [epoch * 37 % 1009, epoch]}))  # type: ignore[arg-type]
        operator.on_notify(ctx, ctx.time)  # type: ignore[arg-type]
        operator.state.compact(Frontier.before([(epoch + 1,)]))
    assert operator.state.size().rows < 4000
    assert as_polars(ctx.sent[-1][1]).rows() == [(7, 2997, -1), (7, 2999, 1)]


@pytest.mark.parametrize("signed", [False, True])
def test_the_first_rows_go_on_after_a_rollback_and_a_restore(signed: bool) -> None:
    def batch(t: int) -> pl.DataFrame:
        found = pl.DataFrame({"n": [t * 5 % 7, t, t % 2], "k": ["a", "b", "ab"[t % 2]], "t": ["u", None, "v"]})
        if not signed:
            return found
        back = pl.DataFrame({"n": [(t - 2) * 5 % 7, t - 2], "k": ["a", "b"], "t": ["u", None]}).head(2 * (t > 1))
        signs = pl.Series(CHANGE, [1] * 3 + [-1] * len(back), pl.Int8)
        return pl.concat([found, back]).hstack([signs])

    def make() -> RunningTop:
        operator = RunningTop(["k"], 2, ["n"], [False], signed)
        operator._rows.few = 2
        return operator

    def told(sent: list[Any]) -> list[Any]:
        return [(time, sorted(as_polars(batch).rows(), key=str)) for time, batch in sent]

    events: list[Any] = [(0, (t,), batch(t)) for t in range(9)]
    wanted = told(feed(make(), events, compact=False))
    assert any(row[-1] < 0 for _, rows in wanted for row in rows)
    for cut in range(10):
        first, second = make(), make()
        feed(first, events, compact=False)
        f = Frontier.before([(cut,)])
        assert first.state is not None
        assert second.state is not None
        first.state.compact(Frontier.before([(cut // 2,)]))
        second.state.restore(first.state.snapshot(f, Frontier.empty(1)))
        first.state.keep(f)
        for operator in (first, second):
            again = feed(operator, [event for event in events if event[1] not in f])
            assert told(again) == [(time, rows) for time, rows in wanted if time not in f]


def test_the_schema_is_known_and_is_that_of_what_comes() -> None:
    flow = Dataflow()
    stream = flow.input("in").to_columns(SCHEMA)
    for build in (stream.group_by("t").top_k(1, by="n"), stream.group_by("t").top_k(1, by="n", over="time")):
        known = build.schema
        assert known is not None
        name = build.capture()
        cluster = Cluster(flow, 1, 0)
        cluster.sessions[0].input("in").send(frame([("a", 1, 2.0, "u")]))
        cluster.sessions[0].input("in").close()
        cluster.run()
        ((_, batch),) = cluster.captured(name)
        assert as_polars(batch).schema == known


def test_what_cannot_be_meant_is_refused_at_the_call() -> None:
    stream = Dataflow().input("in").to_columns(SCHEMA)
    changed = stream.group_by("k").agg(n=agg.count(), changes=True)
    inner = stream.enter(stream.graph.add_scope("inner", stream.scope))
    inner_changes = inner.group_by("k").agg(n=agg.count(), changes=True)
    for build, why in (
        (lambda: stream.top_k(0, by="n"), "takes a number of rows, 1 or more, not 0"),
        (lambda: stream.top_k(2, by=[]), "takes names of columns"),
        (lambda: stream.top_k(2, by=3), "takes names of columns and Polars expressions, not 3"),  # type: ignore[arg-type]
        (lambda: stream.group_by("k").top_k(2, by="m"), "no column 'm'; there are 'k', 'n', 'x', 't'"),
        (
            lambda: stream.group_by("k").top_k(2, by="n", reverse=[True, False]),
            "one truth value, or one for each column",
        ),
        (lambda: changed.group_by("k").top_k(2, by="n", over="time"), "of changes runs on"),
        (lambda: stream.top_k(True, by="n"), "1 or more, not True"),
        (lambda: inner.top_k(2, by="n"), "top_k with over='scope' keeps rows of the root scope"),
        (lambda: inner_changes.group_by("k").agg(low=agg.min("n")), "of changes keeps rows of the root scope"),
    ):
        with pytest.raises(GraphError, match=rf"test_column_top\.py:\d+: .*{why}"):
            build()


@pytest.mark.parametrize(
    ("batches", "why"),
    [
        ([pl.DataFrame({"k": [1], "m": [1]})], "no column 'n'"),
        ([pl.DataFrame({"k": [1], "n": [[1]]})], "cannot be keys|have no order"),
        ([pl.DataFrame({"k": [1], "n": [1], CHANGE: [1]})], "is called 'change'"),
        ([pl.DataFrame({"k": [1], "n": [1]}), pl.DataFrame({"k": [1], "n": [1], "m": [1]})], "had the columns"),
    ],
)
def test_rows_that_have_no_order_are_an_error_with_the_line(batches: list[pl.DataFrame], why: str) -> None:
    flow = Dataflow()
    flow.input("in").to_columns().group_by("k").top_k(2, by="n").capture()
    cluster = Cluster(flow, 1, 0)
    with pytest.raises(OperatorError, match=rf"(?s)top_k .*test_column_top\.py:\d+\).*({why})"):
        feed_batches_in_turn(cluster, [[batch] for batch in batches])
