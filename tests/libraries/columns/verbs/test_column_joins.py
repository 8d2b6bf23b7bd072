"""Joins of columns on random rows, in random batches, epochs and orders, on some workers: against Polars."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.operators.joins.bounded import ExpiringJoin, IntervalJoin
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.timely.operators.fake_context import FakeContext
from timely.errors import GraphError
from timely.operators.window_shapes import Epochs
from timely.time import Frontier

rows = st.lists(
    st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("ab"), st.integers(-3, 9)), min_size=2, max_size=6
)
epochs = st.lists(rows, min_size=3, max_size=4)
holed = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["left", "right"]), st.none() | st.sampled_from("ab"), st.integers(-3, 9)), max_size=6
    ),
    min_size=1,
    max_size=4,
)
"""The same with null keys, and epochs without rows."""
SCHEMA = {
    "left": {"k": pl.String, "at": pl.Int64, "n": pl.Int64},
    "right": {"k": pl.String, "at": pl.Int64, "m": pl.Int64},
}
some = settings(max_examples=settings.default.max_examples // 8)
few = settings(max_examples=max(1, settings.default.max_examples // 20))


def run(
    build: Any, fed: list[list[Any]], workers: int, seed: int
) -> tuple[list[list[Any]], list[dict[str, pl.DataFrame]]]:
    """The rows that come out at each epoch, and what had come in by then. Each row is a batch of its own."""
    flow = Dataflow()
    sides = [flow.input(name).to_columns(schema) for name, schema in SCHEMA.items()]
    out = build(*sides).capture()
    cluster = Cluster(flow, workers, seed)
    came: dict[str, list[Any]] = {name: [] for name in SCHEMA}
    so_far = []
    for epoch, data in enumerate(fed):
        for number, (side, key, at) in enumerate(data):
            row = (key, at, 10 * epoch + number)
            came[side].append(row)
            frame = pl.DataFrame([row], SCHEMA[side], orient="row")
            cluster.sessions[number % workers].input(side).send(frame)
        for session in cluster.sessions:
            for name in SCHEMA:
                session.input(name).advance_to(epoch + 1)
        so_far.append({name: pl.DataFrame(came[name], SCHEMA[name], orient="row") for name in SCHEMA})
        cluster.step()
    for session in cluster.sessions:
        for name in SCHEMA:
            session.input(name).close()
    cluster.run()
    found: list[list[Any]] = [[] for _ in fed]
    for time, batch in cluster.captured(out):
        found[time[0]] += pl.DataFrame(batch).rows()
    return found, so_far


@some
@given(epochs, st.sampled_from(["left", "right", "full", "anti"]), st.integers(1, 3), st.integers(0, 99))
def test_changes_and_their_totals_follow_the_join(fed: list[Any], how: Any, workers: int, seed: int) -> None:
    def joined(left: Columns, right: Columns) -> Columns:
        return left.join(right.select("k", "m"), on="k", how=how, changes=True, right={"k": pl.String, "m": pl.Int64})

    def totals(left: Columns, right: Columns) -> Columns:
        return (
            joined(left, right)
            .group_by("k")
            .agg(rows=agg.count(), total=agg.sum("n"), mean=agg.mean("n"), low=agg.min("at"), high=agg.max("n"))
        )

    changes, so_far = run(lambda *sides: joined(*sides).select("k", "n"), fed, workers, seed)
    told, _ = run(totals, fed, workers, seed)
    there: Counter[Any] = Counter()
    known: dict[str, Any] = {}
    for at, sides in enumerate(so_far):
        whole = sides["left"].join(sides["right"].select("k", "m"), on="k", how=how, coalesce=True)
        for *row, sign in changes[at]:
            there[tuple(row)] += sign
        assert +there == Counter(whole.select("k", "n").rows())
        known |= {key: result for key, *result in told[at]}
        wanted = whole.group_by("k").agg(
            rows=pl.len(),
            total=pl.col("n").sum(),
            mean=pl.col("n").mean(),
            low=pl.col("at").min(),
            high=pl.col("n").max(),
        )
        assert {key: each for key, each in known.items() if each[0]} == {key: each for key, *each in wanted.rows()}


@few
@given(epochs, st.sampled_from(["left", "full"]), st.integers(0, 2), st.integers(1, 3), st.integers(0, 99))
def test_joins_of_changes_follow_what_they_join(fed: list[Any], how: Any, which: int, workers: int, seed: int) -> None:
    def joined(left: Columns, right: Columns) -> Columns:
        changed = left.join(right.select("k", "m"), on="k", how=how, changes=True)
        plain = right.select("k", r=pl.col("at"))
        if which == 2:
            return changed.join(changed.select("k", r=pl.col("m")), on="k").select("k", "n", "m", "r")
        return (changed.join(plain, on="k") if which else plain.join(changed, on="k")).select("k", "n", "m", "r")

    told, so_far = run(joined, fed, workers, seed)
    there: Counter[Any] = Counter()
    for at, sides in enumerate(so_far):
        changed = sides["left"].join(sides["right"].select("k", "m"), on="k", how=how, coalesce=True)
        other = changed.select("k", r="m") if which == 2 else sides["right"].select("k", r="at")
        for *row, sign in told[at]:
            there[tuple(row)] += sign
        assert {row: n for row, n in there.items() if n} == Counter(
            changed.join(other, on="k").select("k", "n", "m", "r").rows()
        )


@some
@given(holed, st.sampled_from(["inner", "semi", "lookup"]), st.integers(1, 3), st.integers(0, 99))
def test_joins_that_run_on_and_take_nothing_back_are_those_of_polars(
    fed: list[Any], how: Any, workers: int, seed: int
) -> None:
    """A pair comes at the later of its epochs, a semi join's row at that of its first match, and a lookup's at its own."""

    def joined(left: Columns, right: Columns) -> Columns:
        return left.join(right.select("k", "m"), on="k", how=how)

    told, so_far = run(joined, fed, workers, seed)
    before: Counter[Any] = Counter()
    seen = 0
    for at, sides in enumerate(so_far):
        left, right = sides["left"], sides["right"].select("k", "m")
        if how == "lookup":
            wanted = Counter(left.slice(seen).join(right, on="k", how="left").rows())
            seen = len(left)
        else:
            whole = Counter(left.join(right, on="k", how=how).rows())
            wanted, before = whole - before, whole
        assert Counter(told[at]) == wanted


@few
@given(
    holed, st.sampled_from(["inner", "left", "right", "full", "anti", "semi"]), st.integers(1, 3), st.integers(0, 99)
)
def test_joins_within_a_time_are_those_of_polars(fed: list[Any], how: Any, workers: int, seed: int) -> None:
    told, so_far = run(lambda left, right: left.join(right, on="k", how=how, over="time"), fed, workers, seed)
    before = {name: pl.DataFrame(schema=schema) for name, schema in SCHEMA.items()}
    for at, sides in enumerate(so_far):
        new = {name: sides[name].slice(len(before[name])) for name in SCHEMA}
        before = sides
        wanted = new["left"].join(new["right"], on="k", how=how, coalesce=True)
        wanted = wanted.select("k", "at", *(name for name in wanted.columns if name not in ("k", "at")))
        assert Counter(told[at]) == Counter(wanted.rows())


@some
@given(
    epochs,
    st.booleans(),
    st.tuples(st.integers(-6, 6), st.integers(0, 6)),
    st.integers(0, 3),
    st.booleans(),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_an_interval_join_gives_each_pair_once_but_for_late_rows(
    fed: list[Any], keyed: bool, bounds: tuple[int, int], lateness: int, instants: bool, workers: int, seed: int
) -> None:
    lower, upper = bounds[0], sum(bounds)
    seconds = (lambda n: dt.timedelta(seconds=n)) if instants else (lambda n: n)

    def timed(stream: Columns) -> Columns:
        return stream.with_columns(pl.from_epoch("at", "s")) if instants else stream

    def joined(left: Columns, right: Columns, which: int) -> Columns:
        streams = timed(left).join_interval(
            timed(right), "at", seconds(lower), seconds(upper), "k" if keyed else None, seconds(lateness)
        )
        return streams[which].select("n", "m") if which == 0 else streams[which].select("nm"[which - 1])

    on_time: dict[str, list[Any]] = {"left": [], "right": []}
    late: dict[str, list[Any]] = {"left": [], "right": []}
    greatest = {"left": -100, "right": -100}
    for epoch, data in enumerate(fed):
        for number, (side, key, at) in enumerate(data):
            held = on_time if at >= greatest[side] - lateness else late
            held[side].append((epoch, key, at, 10 * epoch + number))
        for side, _, at in data:
            greatest[side] = max(greatest[side], at)
    told, _ = run(lambda left, right: joined(left, right, 0), fed, workers, seed)
    assert sorted((epoch, *row) for epoch, each in enumerate(told) for row in each) == sorted(
        (max(e, f), n, m)
        for e, k, at, n in on_time["left"]
        for f, key, to, m in on_time["right"]
        if lower <= at - to <= upper and (k == key or not keyed)
    )
    for which, side in enumerate(late, 1):
        told, _ = run(lambda left, right, which=which: joined(left, right, which), fed, workers, seed)
        assert sorted((epoch, row[0]) for epoch, each in enumerate(told) for row in each) == sorted(
            (epoch, number) for epoch, _, _, number in late[side]
        )


@some
@given(
    st.lists(rows | st.just([]), min_size=3, max_size=6),
    st.sampled_from(["inner", "semi", "lookup"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_a_join_with_a_ttl_is_of_rows_of_near_epochs(
    fed: list[Any], how: Any, ttl: int, workers: int, seed: int
) -> None:
    def joined(left: Columns, right: Columns) -> Columns:
        found = left.join(right.select("k", "m"), on="k", how=how, ttl=Epochs(ttl))
        return found.select("n") if how == "semi" else found.select("n", "m")

    told, so_far = run(joined, fed, workers, seed)
    dated = {name: so_far[-1][name].with_columns(epoch=pl.col("nm"[name == "right"]) // 10) for name in SCHEMA}
    both = dated["left"].join(dated["right"], on="k", suffix="_right")
    both = both.filter((pl.col("epoch") - pl.col("epoch_right")).abs() <= ttl)
    both = both.with_columns(at_epoch=pl.max_horizontal("epoch", "epoch_right"))
    wanted = both.select("at_epoch", "n", "m")
    if how == "semi":
        wanted = both.group_by("n").agg(pl.col("at_epoch").min()).select("at_epoch", "n")
    elif how == "lookup":
        known = both.filter(pl.col("at_epoch") == pl.col("epoch")).select("n", "m")
        wanted = dated["left"].join(known, on="n", how="left").select("epoch", "n", "m")
    assert Counter((epoch, *row) for epoch, each in enumerate(told) for row in each) == Counter(wanted.rows())


@pytest.mark.parametrize("how", ["inner", "semi", "lookup"])
def test_a_join_with_a_ttl_keeps_some_epochs(how: Any) -> None:
    operator, ctx = ExpiringJoin(["k"], how, 3), FakeContext()
    held, size = [], []
    for epoch in range(300):
        ctx.time = (epoch,)
        for port, column in enumerate("nm"):
            keys = [port * (how == "semi") * 1000 + epoch % 7, 5]  # of semi joins rows wait
            operator.on_batch(ctx, port, (epoch,), pl.DataFrame({"k": keys, column: [epoch, 0]}))  # type: ignore[arg-type]
        operator.on_notify(ctx, (epoch,))  # type: ignore[arg-type]
        operator.on_watermark(Frontier.before([(epoch + 1,)]))
        assert operator.state is not None
        held.append(operator.state.size().rows)
        size.append(operator.state.size().bytes)
        if epoch in (80, 200):
            after = ExpiringJoin(["k"], how, 3)
            assert after.state is not None
            after.state.restore(operator.state.snapshot(Frontier.before([(epoch + 1,)]), Frontier.empty(1)))
            operator = after
    assert max(held) <= 2 * 2 * 2 * 5  # two rows of two sides in an epoch, and as many again that are not dropped yet
    assert max(size[200:]) <= 2 * max(size[:50])


def test_a_ttl_that_has_no_meaning_is_refused() -> None:
    flow = Dataflow()
    left, right = (flow.input(name).to_columns(schema) for name, schema in SCHEMA.items())
    changed = left.group_by("k").agg(n=agg.max("n"), changes=True)
    for build, why in (
        (lambda: left.join(right, on="k", ttl="3"), "counts the epochs for which a row is kept; it is not '3'"),  # type: ignore[arg-type]
        (lambda: left.join(right, on="k", ttl=3), "of event times that are near each other join_interval"),  # type: ignore[arg-type]
        (lambda: left.join(right, on="k", ttl=Epochs(3), over="time"), "is for what runs on over all epochs"),
        (
            lambda: left.join(right, on="k", how="anti", changes=True, ttl=Epochs(3)),
            "how='anti' would have to take back",
        ),
        (lambda: changed.join(right, on="k", ttl=Epochs(3)), "joins of changes have no ttl"),
        (
            lambda: left.join_asof(right.select("k", "at"), on="at", ttl=Epochs(3)),  # type: ignore[arg-type]
            r"of join_asof is a length of event time, the column on=...; it is not Epochs\(n=3\)",
        ),
        (lambda: left.join_asof(right.select("k", "at"), on="at", ttl=-3), "a ttl is not negative, as -3 is"),
        (lambda: left.join_asof(right.select("k", "at"), on="at", ttl=3, over="time"), "runs on over all epochs"),
        (
            lambda: left.join_asof(right.select("k", "at"), on="at", ttl=dt.timedelta(3)),
            "a column of datetimes or dates",
        ),
        (lambda: left.select("k").join_asof(right, on="at", ttl=3), "join_asof: no column 'at'"),
    ):
        with pytest.raises(GraphError, match=rf"test_column_joins\.py:\d+: .*{why}"):
            build()


@some
@given(
    epochs,
    st.sampled_from([None, "k"]),
    st.sampled_from(["backward", "forward", "nearest"]),
    st.none() | st.integers(0, 4),
    st.integers(0, 3),
    st.sampled_from([None, "us", "ms", "ns", "day"]),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_an_as_of_join_with_a_ttl_leaves_out_late_rows_and_changes_nothing_else(
    fed: list[Any],
    by: str | None,
    strategy: Any,
    tolerance: int | None,
    ttl: int,
    unit: Any,
    workers: int,
    seed: int,
) -> None:
    def length(n: int) -> Any:
        return n if unit is None else dt.timedelta(days=n) if unit == "day" else dt.timedelta(seconds=n)

    def timed(stream: Columns) -> Columns:
        kind = pl.Int64() if unit is None else pl.Date() if unit == "day" else pl.Datetime(unit)
        at = pl.col("at") if unit is None else pl.from_epoch("at", "d" if unit == "day" else "s").cast(kind)
        return stream.with_columns(at=at)

    within = None if tolerance is None else length(tolerance)

    def joined(left: Columns, right: Columns, ttl: Any) -> Columns:
        mine, theirs = timed(left), timed(right.with_columns(found="at").select("k", "at", "found"))
        if ttl is None:
            mine, _, _ = mine.split_late("at", lateness=length(lateness))
        found = mine.join_asof(theirs, on="at", by=by, strategy=strategy, tolerance=within, ttl=ttl)
        return found.select("n", "found")

    lateness = ttl
    told, _ = run(lambda *sides: joined(*sides, length(ttl)), fed, workers, seed)
    wanted, _ = run(lambda *sides: joined(*sides, None), fed, workers, seed)
    places = {10 * epoch + number: at for epoch, each in enumerate(fed) for number, (_, _, at) in enumerate(each)}
    if strategy == "nearest":  # as near before as behind
        told, wanted = (
            [[(n, None if at is None else abs(at - places[n])) for n, at in each] for each in found]
            for found in (told, wanted)
        )
    assert [Counter(each) for each in told] == [Counter(each) for each in wanted]
    greatest = -100
    for epoch, each in enumerate(fed):
        mine = {10 * epoch + number: at for number, (side, _, at) in enumerate(each) if side == "left"}
        assert {n for n, _ in told[epoch]} == {n for n, at in mine.items() if at >= greatest - ttl}
        greatest = max([greatest, *mine.values()])


@pytest.mark.parametrize("lag", [0, 10])
def test_an_interval_join_keeps_what_can_still_be_met(lag: int) -> None:
    """And little else, however far the low-watermark is behind."""
    operator, ctx = IntervalJoin(["k"], -5, 5), FakeContext()
    assert operator.state is not None
    held = []
    for epoch in range(150):
        time = (epoch,)
        ctx.time = time
        for port in (0, 1):
            frame = pl.DataFrame({"k": ["a"], "at": [epoch], "n": [epoch]}).with_columns(pl.col("at").alias("at()"))
            operator.on_batch(ctx, port, time, frame)  # type: ignore[arg-type]
            operator.on_batch(ctx, port + 2, time, [epoch])  # type: ignore[arg-type]
        operator.on_notify(ctx, time)  # type: ignore[arg-type]
        operator.on_watermark(Frontier.before([(max(0, epoch + 1 - lag),)]))
        held.append(operator.state.size().rows)
        if epoch == 80 and lag:
            after = IntervalJoin(["k"], -5, 5)
            assert after.state is not None
            after.state.restore(operator.state.snapshot(Frontier.before([(81,)]), Frontier.empty(1)))
            operator = after
    assert max(held) <= 2 * 2 * (2 * lag + 6 + 1) + 2  # what is kept, and as much again that is not dropped yet
    assert sum(len(frame) for _, frame in ctx.sent) == 150 + 2 * sum(150 - apart for apart in range(1, 6))


@some
@given(
    epochs,
    st.booleans(),
    st.sampled_from(["backward", "forward", "nearest"]),
    st.sampled_from(["time", "scope"]),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_an_as_of_join_gives_each_row_what_polars_gives(
    fed: list[Any], keyed: bool, strategy: Any, over: Any, workers: int, seed: int
) -> None:
    """Of right rows at one place which one is chosen depends on the order in which they come: so the places are compared."""
    by = "k" if keyed else None

    def joined(left: Columns, right: Columns) -> Columns:
        right = right.with_columns(found=pl.col("at")).select("k", "at", "found")
        schema = {"k": pl.String, "at": pl.Int64, "found": pl.Int64}
        return left.join_asof(right, on="at", by=by, strategy=strategy, tolerance=4, over=over, right=schema).select(
            "n", "found"
        )

    told, so_far = run(joined, fed, workers, seed)
    before = {name: pl.DataFrame(schema=schema) for name, schema in SCHEMA.items()}
    for at, sides in enumerate(so_far):
        new = {name: sides[name].slice(len(before[name])) for name in SCHEMA}
        before = sides
        right = (sides if over == "scope" else new)["right"].sort("at").with_columns(found=pl.col("at")).drop("m")
        wanted = (
            new["left"]
            .sort("at")
            .join_asof(right, on="at", by=by, strategy=strategy, tolerance=4, check_sortedness=False)
        )
        got, expected = sorted(told[at]), sorted(wanted.select("n", "found").rows())
        if strategy == "nearest":  # as near before as behind
            place = dict(new["left"].select("n", "at").rows())
            got, expected = (
                [(n, None if found is None else abs(found - place[n])) for n, found in each] for each in (got, expected)
            )
        assert got == expected


@some
@given(
    epochs,
    st.booleans(),
    st.sampled_from(["backward", "forward", "nearest"]),
    st.sampled_from([None, 0, 4]),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_an_as_of_join_with_changes_is_always_that_of_all_rows_so_far(
    fed: list[Any], keyed: bool, strategy: Any, tolerance: int | None, workers: int, seed: int
) -> None:
    by = "k" if keyed else None
    schema = {"k": pl.String, "at": pl.Int64, "found": pl.Int64}

    def joined(left: Columns, right: Columns) -> Columns:
        right = right.select("k", "at", found=pl.col("at"))
        found = left.join_asof(
            right, on="at", by=by, strategy=strategy, tolerance=tolerance, right=schema, changes=True
        )
        return found.select("n", "found")

    def distances(pairs: Any, places: dict[int, int]) -> Counter[Any]:
        return Counter((n, found if found is None else abs(found - places[n])) for n, found in pairs)

    told, so_far = run(joined, fed, workers, seed)
    there: Counter[Any] = Counter()
    for at, sides in enumerate(so_far):
        for *row, sign in told[at]:
            there[tuple(row)] += sign
        assert not -there
        wanted = (
            sides["left"]
            .sort("at")
            .join_asof(
                sides["right"].select("k", "at", found="at").sort("at"),
                on="at",
                by=by,
                strategy=strategy,
                tolerance=tolerance,
                check_sortedness=False,
            )
        )
        places = dict(sides["left"].select("n", "at").rows())  # a row as near before as behind may be either
        assert distances((+there).elements(), places) == distances(wanted.select("n", "found").rows(), places)
        if strategy != "nearest":
            assert +there == Counter(wanted.select("n", "found").rows())


@few
@given(epochs, st.integers(1, 3), st.integers(0, 99))
def test_totals_of_an_as_of_join_with_changes_follow_it(fed: list[Any], workers: int, seed: int) -> None:
    def totals(left: Columns, right: Columns) -> Columns:
        joined = left.join_asof(right.select("k", "at", m="at"), on="at", by="k", right=SCHEMA["right"], changes=True)
        return joined.group_by("k").agg(n=agg.count(), last=agg.max("m"), total=agg.sum("m"))

    told, so_far = run(totals, fed, workers, seed)
    known: dict[str, Any] = {}
    for at, sides in enumerate(so_far):
        known |= {key: result for key, *result in told[at]}
        right = sides["right"].select("k", "at", m="at").sort("at")
        joined = sides["left"].sort("at").join_asof(right, on="at", by="k", check_sortedness=False)
        wanted = joined.group_by("k").agg(pl.len(), pl.col("m").max(), pl.col("m").sum().alias("total"))
        assert known == {key: each for key, *each in wanted.rows()}


def test_an_as_of_join_whose_changes_have_no_meaning_is_refused() -> None:
    flow = Dataflow()
    left, right = (flow.input(name).to_columns(schema) for name, schema in SCHEMA.items())
    for build, why in (
        (lambda: left.join_asof(right, on="at", over="time", changes=True), r"join_asof\(changes=True\) runs on"),
        (
            lambda: left.join_asof(right.with_columns(change="m"), on="at", changes=True),
            r"join_asof\(changes=True\) gives each row a sign",
        ),
    ):
        with pytest.raises(GraphError, match=rf"test_column_joins\.py:\d+: .*{why}"):
            build()
    joined = left.join_asof(right, on="at", changes=True)
    assert joined.schema == pl.Schema({**SCHEMA["left"], "k_right": pl.String, "m": pl.Int64, "change": pl.Int8})
