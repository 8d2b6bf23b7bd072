"""Verbs over columns on random rows, in random batches, epochs and orders, on some workers: against Polars."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.operators.expiring_aggregate import ExpiringAggregate
from libraries.columns.state import ExpiringTotals
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.support.in_polars import expression_of
from tests.timely.feeding import feed_batches_in_turn
from tests.timely.operators.fake_context import FakeContext
from timely.data.batch import as_polars
from timely.errors import GraphError, OperatorError
from timely.io import Batches
from timely.operators.window_shapes import Epochs, Session, Tumbling
from timely.time import Frontier

SCHEMA = {"k": pl.String, "n": pl.Int64}
rows = st.lists(st.tuples(st.none() | st.sampled_from("abc"), st.none() | st.integers(-4, 9)), max_size=6)
epochs = st.lists(rows, min_size=1, max_size=4)
some = settings(max_examples=settings.default.max_examples // 5)


def frame(data: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(data, SCHEMA, orient="row")


def run(build: Callable[[Columns], Columns], fed: list[list[Any]], workers: int, seed: int) -> list[list[Any]]:
    """The rows that come out at each epoch."""
    flow = Dataflow()
    out = build(flow.input("in").to_columns()).capture()
    cluster = Cluster(flow, workers, seed)
    for epoch, data in enumerate(fed):
        for worker, session in enumerate(cluster.sessions):
            for row in data[worker::workers]:
                session.input("in").send(frame([row]))
            session.input("in").advance_to(epoch + 1)
        cluster.step()
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()
    found: list[list[Any]] = [[] for _ in fed]
    for time, batch in cluster.captured(out):
        found[time[0]] += as_polars(batch).rows()
    return [sorted(each, key=str) for each in found]


def changes(answers: list[pl.DataFrame]) -> list[list[Any]]:
    """The changes that a running verb tells, by its whole answer after each epoch: the rows that were not in it before."""
    told, before = [], set[Any]()
    for answer in answers:
        now = set(answer.rows())
        told.append(sorted(now - before, key=str))
        before = now
    return told


TOTALS: dict[str, Any] = {"rows": agg.count(), "total": agg.sum("n"), "least": agg.min("n")}
IN_POLARS = [pl.len().cast(pl.Int64).alias("rows"), pl.col("n").sum().alias("total"), pl.col("n").min().alias("least")]
parity = pl.col("n") % 2
OF_VALUES: dict[str, Any] = {
    "kinds": agg.n_unique("k"),
    "first": agg.first("k", order_by="n"),
    "last": agg.last("n", order_by="k"),
    "most": agg.max("n"),
}

VERBS: dict[str, tuple[Callable[[Columns, Any], Columns], Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "agg": (
        lambda s, over: s.agg(over=over, **TOTALS),
        lambda f: f.select(IN_POLARS) if len(f) else f,
    ),
    "distinct": (lambda s, over: s.distinct("n", over=over), lambda f: f.select("n").unique()),
    "distinct pairs": (lambda s, over: s.distinct("n", "k", over=over), lambda f: f.select("n", "k").unique()),
    "keys made": (
        lambda s, over: s.group_by("k", parity.alias("odd")).agg(over=over, **TOTALS),
        lambda f: f.group_by("k", parity.alias("odd")).agg(IN_POLARS),
    ),
    "values of keys": (
        lambda s, over: s.group_by(odd=parity).agg(over=over, **OF_VALUES),
        lambda f: f.group_by(odd=parity).agg(expression_of(each).alias(name) for name, each in OF_VALUES.items()),
    ),
    "values of a key twice": (
        lambda s, over: s.group_by("k").agg(over=over, own=agg.n_unique("k"), n=agg.n_unique("n")),
        lambda f: f.group_by("k").agg(pl.lit(1).alias("own"), pl.col("n").n_unique().cast(pl.Int64)),
    ),
    "keys named": (
        lambda s, over: s.group_by(first=pl.col("k").fill_null("z")).agg(over=over, **TOTALS),
        lambda f: f.group_by(pl.col("k").fill_null("z").alias("first")).agg(IN_POLARS),
    ),
}


@pytest.mark.parametrize("name", VERBS)
@some
@given(fed=epochs, over=st.sampled_from(["time", "scope"]), workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_verb_gives_what_polars_gives(name: str, fed: list[Any], over: Any, workers: int, seed: int) -> None:
    build, oracle = VERBS[name]
    found = run(lambda stream: build(stream, over), fed, workers, seed)
    if over == "time":
        assert found == [sorted(oracle(frame(data)).rows(), key=str) if data else [] for data in fed]
    else:
        so_far = [frame([row for data in fed[: at + 1] for row in data]) for at in range(len(fed))]
        assert found == changes([oracle(each) if len(each) else each for each in so_far])


@some
@given(
    fed=epochs,
    over=st.sampled_from(["time", "scope"]),
    keyed=st.booleans(),
    ddof=st.integers(0, 2),
    workers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_variances_are_those_of_polars(
    fed: list[Any], over: Any, keyed: bool, ddof: int, workers: int, seed: int
) -> None:
    def build(stream: Columns) -> Columns:
        groups = stream.group_by("k") if keyed else stream.with_columns(k=pl.lit("all"))
        totals = {"var": agg.var("n", ddof), "std": agg.std("n", ddof)}
        return groups.agg(over=over, **totals)

    found = run(build, fed, workers, seed)
    known: dict[Any, Any] = {}
    for at, told in enumerate(found):
        rows = frame([row for data in (fed[: at + 1] if over == "scope" else fed[at : at + 1]) for row in data])
        wanted = [pl.col("n").var(ddof), pl.col("n").std(ddof).alias("std")]
        known = {**(known if over == "scope" else {}), **{tuple(row[:-2]): row[-2:] for row in told}}
        if keyed:
            right = {(key,): tuple(values) for key, *values in rows.group_by("k").agg(wanted).rows()}
        else:  # a key that is the same for all would not do: Polars then has 0.0 for the variance of one null
            right = {(): rows.select(wanted).row(0)} if len(rows) else {}
        assert known.keys() == right.keys()
        for key, values in right.items():
            assert known[key] == pytest.approx(values, abs=1e-12)


_CHANGE = 1_729_987_200_000_000
"""The end of summer time in Berlin, in microseconds: the hour before and the hour after have the same times on the clock."""


def of_integers(numbers: Any, kind: Any) -> pl.Series:
    """A column of any of `KINDS` that is made of 64-bit integers: those near each other give values that are."""
    column = pl.Series("k", numbers, pl.Int64)
    if kind in (pl.Enum, pl.Categorical):
        return SIZES[(column % len(SIZES)).to_list()].cast(kind).alias("k")
    if kind == pl.Datetime:
        quarters = (column + 2**19) % 2**20 - 2**19
        instants = (quarters * 900_000_000 + _CHANGE).cast(pl.Datetime("us", "UTC"))
        return instants.dt.convert_time_zone("Europe/Berlin").cast(kind)
    if kind == pl.UInt64:
        return column.reinterpret(signed=False)
    return (column % {pl.Time: 86_400 * 10**9, pl.Date: 30_000}.get(kind, 2**60)).cast(kind)


SIZES = pl.Series(["small", "medium", "large"])

KINDS: list[Any] = [
    pl.Enum(SIZES),
    pl.Categorical,
    pl.Int64,
    pl.UInt64,
    pl.Datetime("us", "Europe/Berlin"),
    pl.Datetime("ns"),
    pl.Time,
    pl.Date,
    pl.Duration("ns"),
]


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame, with categories as the text that they are, by which all verbs of Falkirk's own compare them."""
    return frame.with_columns(pl.selectors.by_dtype(pl.Categorical, pl.Enum).cast(pl.String))


def as_integers(frame: pl.DataFrame) -> list[Any]:
    """The rows, with times as integers: those of Python have no nanoseconds, and are equal where the clock shows the same."""
    return sorted(as_text(frame).with_columns(pl.selectors.temporal().to_physical()).rows(), key=str)


@st.composite
def many(draw: Any) -> list[list[pl.DataFrame]]:
    """Epochs of batches of some rows and of many, whose keys are mostly alone in some."""
    key = draw(st.sampled_from(KINDS))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    kind = draw(st.sampled_from([pl.Int64, pl.Float64, pl.Int16]))
    batch = st.tuples(st.sampled_from([1, 300, 700, 2100, 9000]), st.sampled_from([3, 4000, 2**50]))
    fed = []
    for sizes in draw(st.lists(st.lists(batch, max_size=5), min_size=1, max_size=3)):
        frames = []
        for size, span in sizes:
            values = pl.Series("v", rng.integers(-99, 99, size), pl.Int64).cast(kind) / (8 if kind == pl.Float64 else 1)
            values = values.cast(kind)
            if draw(st.booleans()):
                values = values.set(values == values[0], None if draw(st.booleans()) else values.max())
            frames.append(pl.DataFrame({"k": of_integers(rng.integers(-span, span, size), key), "v": values}))
        fed.append(frames)
    return fed


MANY = {"n": agg.count(), "total": agg.sum("v"), "low": agg.min("v"), "top": agg.max("v"), "mean": agg.mean("v")}


@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(fed=many(), over=st.sampled_from(["time", "scope"]), workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_totals_of_many_rows_are_those_of_polars_whether_or_not_they_are_combined_before_they_travel(
    fed: list[list[pl.DataFrame]], over: Any, workers: int, seed: int
) -> None:
    flow = Dataflow()
    out = flow.input("in").to_columns().group_by("k").agg(over=over, **MANY).capture()
    cluster = Cluster(flow, workers, seed)
    feed_batches_in_turn(cluster, fed)
    found: dict[int, list[Any]] = {}
    for time, batch in cluster.captured(out):
        found.setdefault(time[0], []).extend(as_integers(as_polars(batch)))
    so_far: list[pl.DataFrame] = []
    for epoch, batches in enumerate(fed):
        so_far = [*so_far, *batches] if over == "scope" else batches
        if batches:
            now = pl.concat(so_far).group_by("k").agg(expression_of(each).alias(name) for name, each in MANY.items())
            now = now.join(pl.concat(batches), on="k", how="semi", nulls_equal=True)
            assert sorted(found.get(epoch, []), key=str) == as_integers(now)
        else:
            assert epoch not in found


OF_KINDS: dict[str, tuple[Callable[[Columns], Columns], Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "keys": (
        lambda s: s.group_by("k", "g").agg(over="time", n=agg.sum("n")),
        lambda f: f.group_by("k", "g").agg(pl.col("n").sum()),
    ),
    "distinct": (lambda s: s.distinct("k", over="time"), lambda f: f.select("k").unique()),
    "values": (
        lambda s: s.group_by("g").agg(over="time", low=agg.min("k"), top=agg.max("k"), kinds=agg.n_unique("k")),
        lambda f: f.group_by("g").agg(
            low=pl.col("k").min(), top=pl.col("k").max(), kinds=pl.col("k").n_unique().cast(pl.Int64)
        ),
    ),
    "values in an order": (
        lambda s: s.agg(over="time", first=agg.first("n", order_by="k"), last=agg.last("k", order_by="n")),
        lambda f: f.select(first=pl.col("n").sort_by("k", "n").first(), last=pl.col("k").sort_by("n", "k").last()),
    ),
    "values beside expressions": (
        lambda s: s.agg(over="time", low=agg.min("k"), top=agg.max("k"), n=pl.col("n").sum()),
        lambda f: f.select(low=pl.col("k").min(), top=pl.col("k").max(), n=pl.col("n").sum()),
    ),
    "the first rows": (
        lambda s: s.group_by("g").top_k(1, by="k", over="time"),
        lambda f: f.sort("k", "n", descending=[True, False]).group_by("g", maintain_order=True).head(1),
    ),
    "the first rows so far": (
        lambda s: s.top_k(1, by="k").rows().filter(pl.col("change") == 1).drop("change"),
        lambda f: f.sort("k", "g", "n", descending=[True, False, False]).head(1),
    ),
    "changes": (
        lambda s: s.group_by("k").agg(n=agg.sum("n"), changes=True).rows().drop("change"),
        lambda f: f.group_by("k").agg(pl.col("n").sum()),
    ),
    "totals of changes": (
        lambda s: (
            s.group_by("k", "g")
            .agg(n=agg.count(), changes=True)
            .group_by("g")
            .agg(low=agg.min("k"), top=agg.max("k"), kinds=agg.n_unique("k"))
        ),
        lambda f: f.group_by("g").agg(
            low=pl.col("k").min(), top=pl.col("k").max(), kinds=pl.col("k").n_unique().cast(pl.Int64)
        ),
    ),
    "windows of keys": (
        lambda s: s.window(Epochs(1)).group_by("k").agg(n=agg.sum("n")).select("k", "n"),
        lambda f: f.group_by("k").agg(pl.col("n").sum()),
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", OF_KINDS)
@some
@given(
    fed=st.lists(
        st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(0, 2)), min_size=1, max_size=5),
        min_size=1,
        max_size=3,
    ),
    many=st.booleans(),
    workers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_keys_and_values_of_any_type_are_those_of_polars(
    name: str, kind: Any, fed: list[Any], many: bool, workers: int, seed: int
) -> None:
    build, oracle = OF_KINDS[name]
    batches = []
    for rows in fed:
        g, k, n = zip(*(rows * 300 if many else rows), strict=True)
        batches.append(pl.DataFrame({"g": g, "k": of_integers(k, kind), "n": n}))
    flow = Dataflow()
    out = build(flow.input("in").to_columns()).capture()
    cluster = Cluster(flow, workers, seed)
    feed_batches_in_turn(cluster, [batches])
    found = [as_polars(batch) for _, batch in cluster.captured(out)]
    assert as_integers(pl.concat(found)) == as_integers(oracle(as_text(pl.concat(batches))))


SHAPES = [Tumbling(dt.timedelta(hours=1)), Session(dt.timedelta(minutes=20))]


@pytest.mark.parametrize("shape", SHAPES, ids=["Tumbling", "Session"])
@given(quarters=st.lists(st.integers(-6, 6), min_size=1, max_size=9), many=st.booleans(), workers=st.integers(1, 3))
def test_windows_about_a_change_of_the_clock_are_those_of_utc(
    shape: Any, quarters: list[int], many: bool, workers: int
) -> None:
    rows = pl.DataFrame({"k": of_integers(quarters * (100 if many else 1), pl.Datetime("us", "Europe/Berlin"))})
    found = []
    for zone in ("Europe/Berlin", "UTC"):
        flow = Dataflow()
        stream = flow.input("in").to_columns({"k": pl.Datetime("us", zone)})
        out = stream.window(shape, time="k").group_by(at=pl.col("k")).agg(n=agg.count()).capture()
        cluster = Cluster(flow, workers, 0)
        feed_batches_in_turn(cluster, [[rows.with_columns(pl.col("k").dt.convert_time_zone(zone))]])
        found.append(sorted(row for _, batch in cluster.captured(out) for row in as_integers(as_polars(batch))))
    assert found[0] == found[1]


@pytest.mark.parametrize("keyed", [True, False])
@some
@given(fed=epochs, workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_changes_of_totals_add_up_to_the_totals(keyed: bool, fed: list[Any], workers: int, seed: int) -> None:
    totals = {**TOTALS, "mean": agg.mean("n"), "first": agg.first("n", order_by="n"), "kinds": agg.n_unique("n")}
    told = run(lambda s: (s.group_by("k") if keyed else s).agg(changes=True, **totals), fed, workers, seed)
    there: Counter[Any] = Counter()
    for at in range(len(fed)):
        for *row, sign in told[at]:
            there[tuple(row)] += sign
        so_far = frame([row for data in fed[: at + 1] for row in data])
        wanted = [expression_of(each).alias(name) for name, each in totals.items()]
        right = so_far.group_by("k").agg(wanted) if keyed else so_far.select(wanted)
        assert {row: n for row, n in there.items() if n} == Counter(right.rows() if len(so_far) else [])


@some
@given(fed=epochs, workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_totals_of_changing_totals_are_of_those_that_there_are(fed: list[Any], workers: int, seed: int) -> None:
    def build(stream: Columns) -> Columns:
        most = stream.group_by("k", odd=parity).agg(most=agg.max("n"), changes=True)
        return most.group_by("odd").agg(mean=agg.mean("most"), least=agg.min("most"))

    told = run(build, fed, workers, seed)
    found = {row[0]: row[1:] for each in told for row in each}
    most = frame([row for data in fed for row in data]).group_by("k", odd=parity).agg(pl.max("n"))
    right = most.group_by("odd").agg(mean=pl.mean("n"), least=pl.min("n")).rows()
    assert found == {odd: tuple(rest) for odd, *rest in right}


@pytest.mark.parametrize("keyed", [True, False])
@some
@given(fed=epochs, workers=st.integers(1, 3), seed=st.integers(0, 99), summed=st.booleans())
def test_values_of_changes_are_of_those_that_there_are(
    keyed: bool, fed: list[Any], workers: int, seed: int, summed: bool
) -> None:
    values: dict[str, Any] = {
        "kinds": agg.n_unique("most"),
        "names": agg.n_unique("k"),
        "first": agg.first("k", order_by="most"),
        "last": agg.last("most", order_by="k"),
        "middle": agg.median("most", error=0.0001),
    }
    if summed:
        values = {"share": agg.quantile("most", 0.3, "lower", error=0.0001)}

    def build(stream: Columns) -> Columns:
        most = stream.group_by("k", odd=parity).agg(most=agg.max("n"), changes=True)
        return most.group_by("odd").agg(**values) if keyed else most.agg(**values)

    there: dict[Any, Any] = {}
    for at, told in enumerate(run(build, fed, workers, seed)):
        for row in told:
            key, found = (row[0], row[1:]) if keyed else (None, row)
            there[key] = found
        most = frame([row for data in fed[: at + 1] for row in data]).group_by("k", odd=parity).agg(most=pl.max("n"))
        made = [expression_of(each).alias(name) for name, each in values.items()]
        right = most.group_by("odd").agg(made) if keyed else most.select(pl.lit(None).alias("all"), *made)
        for row in right.rows() if len(most) else []:
            assert there[row[0]] == tuple(
                pytest.approx(each, abs=0.001) if type(each) is float else each for each in row[1:]
            )


def test_a_median_of_all_rows_of_a_time_is_one_row() -> None:
    assert run(lambda s: s.agg(pl.col("n").median(), over="time"), [[("a", 1), ("b", 5)], [], [("a", 2)]], 2, 0) == [
        [(3.0,)],
        [],
        [(2.0,)],
    ]


@some
@given(
    fed=epochs.map(lambda fed: [[row for row in data if row[1] is not None] for data in fed]),
    ttl=st.integers(0, 6),
    instants=st.booleans(),
    workers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_a_key_is_forgotten_when_its_event_times_are_past(
    fed: list[Any], ttl: int, instants: bool, workers: int, seed: int
) -> None:
    length: Any = dt.timedelta(days=ttl) if instants else ttl

    def timed(stream: Columns) -> Columns:
        return stream.with_columns(at=pl.from_epoch("n", "d") if instants else pl.col("n"))

    def totals(stream: Columns) -> Columns:
        aggregates: dict[str, Any] = {
            "rows": agg.count(),
            "low": agg.min("n"),
            "kinds": agg.n_unique("n"),
            "own": agg.n_unique("k"),
        }
        return timed(stream).group_by("k").agg(**aggregates, ttl=length, time="at")

    def once(stream: Columns) -> Columns:
        return timed(stream).distinct("k", ttl=length, time="at")

    watermark = -100
    held: dict[Any, list[int]] = {}
    wanted: list[Any] = []
    new: list[Any] = []
    for data in fed:
        on_time = [(k, n) for k, n in data if n >= watermark]
        new.append(sorted({(k,) for k, _ in on_time if k not in held}, key=str))
        for k, n in on_time:
            held.setdefault(k, []).append(n)
        wanted.append(sorted({(k, len(held[k]), min(held[k]), len(set(held[k])), 1) for k, _ in on_time}, key=str))
        watermark = max([watermark, *(n - ttl for _, n in data)])
        held = {k: met for k, met in held.items() if max(met) >= watermark}
    assert run(totals, fed, workers, seed) == wanted
    assert run(once, fed, workers, seed) == new


@pytest.mark.check
def test_keys_that_are_past_are_not_kept() -> None:
    aggregates = {"n": agg.count(), "middle": agg.median("at()"), "own": agg.n_unique("k")}
    operator, ctx = ExpiringAggregate(["k"], aggregates), FakeContext()
    assert operator.state is not None
    held, taken = [], []
    for epoch in range(1500):
        ctx.time = (epoch,)
        operator.on_batch(ctx, 0, ctx.time, pl.DataFrame({"k": [epoch, epoch % 3 - 3], "at()": epoch}))  # type: ignore[arg-type]
        operator.on_batch(ctx, 1, ctx.time, [epoch - 20])  # type: ignore[arg-type]
        operator.on_notify(ctx, ctx.time)  # type: ignore[arg-type]
        operator.on_watermark(Frontier.before([(epoch + 1,)]))
        held.append(operator.state.size().rows)
        taken.append(operator.state.size().bytes)
    assert max(held) <= 2 * 4 * ExpiringTotals.few
    assert max(taken[1000:]) <= 1.5 * max(taken[:1000])
    assert sorted(as_polars(ctx.sent[-1][1])["n"].to_list()) == [1, 500]


@pytest.mark.parametrize("given", [[None, None, None], [None, 3, None], [1, 2, 3]])
def test_a_selection_has_a_row_for_each_row_though_each_value_of_a_batch_is_null(given: list[Any]) -> None:
    """Polars' own select then gives one row for all: what comes out would depend on how rows are divided into batches."""
    flow = Dataflow()
    rows = pl.DataFrame({"n": given}, {"n": pl.Int64})
    some, all_ = (
        flow.columns(name, Batches(batches))
        .select(pl.coalesce("n", 0).alias("n"), more=pl.coalesce("n", 2.5) > 1)
        .capture()
        for name, batches in {"some": [rows[place] for place in range(3)], "all": [rows]}.items()
    )
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    expected = [(0 if n is None else n, n is None or n > 1) for n in given]
    for capture in some, all_:
        assert [row for _, batch in cluster.captured(capture) for row in as_polars(batch).rows()] == expected


def test_an_unsigned_column_beyond_signed_integers_is_an_error_that_says_what_to_do() -> None:
    flow = Dataflow()
    hashes = pl.DataFrame({"hash": pl.Series([1, 1 << 63], dtype=pl.UInt64)})
    flow.columns("in", Batches([hashes])).agg(most=agg.sum("hash")).capture()
    with pytest.raises(OperatorError, match=r"holds 9223372036854775808, .*; cast it before: with_columns"):
        Cluster(flow, 1, 0).run()


def test_what_cannot_be_meant_is_refused_at_the_call() -> None:
    stream = Dataflow().input("in").to_columns()
    for build, why in (
        (lambda: stream.group_by((pl.col("n") % 2)).agg(total=agg.sum("n")), "a key 'n', and agg reads the column"),
        (lambda: stream.group_by(pl.col("n") % 2).agg(pl.col("n").sum().alias("s"), over="time"), "a key 'n', and agg"),
        (lambda: stream.group_by(3), "takes names of columns and Polars expressions, not 3"),  # type: ignore[arg-type]
        (lambda: stream.group_by(odd="n"), r"group_by\(odd=...\) takes a Polars expression"),  # type: ignore[arg-type]
        (lambda: stream.group_by(), "for totals of all rows say agg"),
        (lambda: stream.group_by(pl.all()), "expressions of one column each"),
        (lambda: stream.agg(), "agg needs something to compute"),
        (lambda: stream.agg(m=pl.col("n").median()), "a running total cannot be kept"),
        (lambda: stream.distinct(), "distinct of columns takes names of columns"),
        (lambda: stream.agg(n=agg.count(), time="n"), "agg.time=.... takes agg.count.., .*, not 'n'"),
        (lambda: stream.group_by("k").agg(n=agg.count(), time="n"), "time= is the event time of a ttl"),
        (lambda: stream.group_by("k").agg(n=agg.count(), ttl=3), "ttl=3 is a length of event time: name its column"),
        (lambda: stream.group_by("k").agg(n=agg.count(), ttl=Epochs(3), time="n"), "counts epochs; with time= it is a"),
        (lambda: stream.distinct("k", ttl=3, time=7), "takes the name of a column, not 7"),  # type: ignore[arg-type]
        (lambda: stream.group_by("k").agg(n=agg.count(), ttl=-1, time="n"), "a ttl is not negative, as -1 is"),
        (lambda: stream.agg(n=agg.count(), changes=True, over="time"), "is of totals that run on"),
        (lambda: stream.distinct("n", over="day"), "over is 'time'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(GraphError, match=rf"test_column_verbs\.py:\d+: .*{why}"):
            build()
