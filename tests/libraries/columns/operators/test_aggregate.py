"""Group-by over columns, against Polars."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.operators.aggregate import ColumnAggregate, PreAggregate, column_aggregate
from libraries.columns.operators.changed_aggregate import ChangedAggregate
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from runtime.session.session import Session
from tests.support.in_polars import expression_of
from tests.timely.feeding import feed_batches_in_turn
from tests.timely.operators.fake_context import FakeContext, feed
from timely.data.batch import as_polars, joined
from timely.data.kernels.columns import TINY
from timely.errors import GraphError, OperatorError
from timely.time import Frontier

ALL = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "low": agg.min("v"),
    "top": agg.max("v"),
    "mean": agg.mean("v"),
}


def plain(batch: Any) -> pl.DataFrame:
    frame = as_polars(batch)
    coded = [c for c, t in frame.schema.items() if t in (pl.Categorical, pl.Enum)]
    return frame.with_columns(pl.col(c).cast(pl.String) for c in coded)


def expected(frames: list[Any], keys: list[str], aggregates: dict[str, agg.Aggregate] = ALL) -> set[Any]:
    frame = pl.concat([plain(f) for f in frames])
    return rows(frame.group_by(keys).agg(expression_of(a).alias(n) for n, a in aggregates.items()))


def rows(frame: Any) -> set[Any]:
    """Rows as a set; floats rounded, as the order of additions is free."""
    found = [
        tuple(float(f"{x:.9g}") + 0.0 if isinstance(x, float) else x for x in row) for row in plain(frame).iter_rows()
    ]
    assert len(set(map(str, found))) == len(found)
    return set(map(str, found))


def running(batches: list[Any], keys: list[str], over: str, **options: Any) -> None:
    """Check one operator against Polars at every time: batches[t] is a list of batches."""
    operator = ColumnAggregate(keys, ALL, over=over, **options)  # type: ignore[arg-type]
    for t in range(len(batches)):
        sent = feed(operator, [(0, (t,), b) for b in batches[t]])
        if not batches[t]:
            assert sent == []
            continue
        [(time, result)] = sent
        assert time == (t,)
        own = expected(batches[t], keys)
        if over == "time":
            assert rows(result) == own
        else:
            changed = {str(k) for k in plain(pl.concat([plain(b) for b in batches[t]])).select(keys).iter_rows()}
            so_far = pl.concat([plain(b) for time in batches[: t + 1] for b in time])
            everything = so_far.group_by(keys).agg(expression_of(a).alias(n) for n, a in ALL.items())
            wanted = everything.filter(pl.Series([str(key) in changed for key in everything.select(keys).iter_rows()]))
            assert rows(result) == rows(wanted)


KEYS: dict[str, Any] = {
    "text": (pa.string(), st.text("abé", max_size=3) | st.sampled_from(["x" * n for n in range(5, 40)])),
    "large": (pa.large_string(), st.sampled_from(["a", "bb", "c" * 16, "c" * 17])),
    "coded": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b", "c", ""])),
    "whole": (pa.int64(), st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int16(), st.integers(-5, 5)),
    "float": (pa.float64(), st.sampled_from([0.0, 1.5, -2.0, float("nan"), float("inf")])),
    "truth": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 9))),
}
VALUES: dict[str, Any] = {
    "int": (pa.int64(), st.integers(-(2**40), 2**40)),
    "byte": (pa.int8(), st.integers(-100, 100)),
    "float": (pa.float64(), st.integers(-(10**6), 10**6).map(lambda n: n / 8)),
}


@st.composite
def inputs(draw: Any, keys: list[str]) -> Any:
    """Batches of three times: some tiny, some big enough for the compiled loops, some with nulls."""
    kind, value = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    with_null = draw(st.booleans())
    pools = [draw(st.lists(KEYS[k][1], min_size=1, max_size=6)) + [None] * with_null for k in keys]
    values = draw(st.lists(value, min_size=1, max_size=6)) + [None] * with_null
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    result = []
    for _ in range(3):
        batches = []
        for size in draw(st.lists(st.sampled_from([1, 3, TINY - 1, TINY, 200]), max_size=3)):
            columns = [
                pa.array([pool[i] for i in rng.integers(0, len(pool), size)], KEYS[k][0])
                for k, pool in zip(keys, pools, strict=True)
            ]
            picked = pa.array([values[i] for i in rng.integers(0, len(values), size)], kind)
            batches.append(pa.table([*columns, picked], [*keys, "v"]))
        result.append(batches)
    return result


def rank(value: Any) -> Any:
    """A value in the order of Polars: NaN is the greatest."""
    return (value != value, 0 if value != value else value)


@settings(max_examples=settings.default.max_examples // 10)
@given(
    by=st.sampled_from(sorted({**KEYS, **VALUES})),
    of=st.sampled_from(sorted({**KEYS, **VALUES})),
    sizes=st.lists(st.lists(st.sampled_from([1, 3, TINY - 1, TINY, 700]), max_size=3), min_size=2, max_size=3),
    data=st.data(),
    ahead=st.booleans(),
)
def test_first_and_last_are_the_least_and_greatest_of_pairs(
    by: str, of: str, sizes: list[list[int]], data: Any, ahead: bool
) -> None:
    kinds = {**KEYS, **VALUES}
    pools = {
        name: [*data.draw(st.lists(kinds[each][1], min_size=1, max_size=5)), None]
        for name, each in (("at", by), ("v", of))
    }
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    aggregates = {
        "first": agg.first("v", order_by="at"),
        "last": agg.last("v", order_by="at"),
        "kinds": agg.n_unique("v"),
    }
    operator = ColumnAggregate(["k"], aggregates, combined=ahead)
    combine = PreAggregate(["k"], aggregates)
    met: dict[int, list[Any]] = {}
    told: dict[int, Any] = {}
    for t, each in enumerate(sizes):
        batches = []
        for size in each:
            drawn = {name: [pool[i] for i in rng.integers(0, len(pool), size)] for name, pool in pools.items()}
            keys = rng.integers(0, 4, size).tolist()
            table = pa.table(
                [pa.array(keys), *(pa.array(drawn[n], kinds[k][0]) for n, k in (("at", by), ("v", of)))], ["k", *drawn]
            )
            batches.append(combine.apply(table) if ahead else table)
            for key, *pair in zip(keys, *drawn.values(), strict=True):
                met.setdefault(key, []).append(pair)
        for _, result in feed(operator, [(0, (t,), batch) for batch in batches], workers=2 if ahead else 1):
            for k, first, last, kinds_ in as_polars(result).rows():
                assert str(told.get(k)) != str((first, last, kinds_))  # NaN is not another one
                told[k] = first, last, kinds_
        for key, held in met.items():
            order = sorted((rank(at), rank(v), v) for at, v in held if at is not None and v is not None)
            ends = (order[0][2], order[-1][2]) if order else (None, None)
            different = len({None if v is None else rank(v) for _, v in held})
            assert str(told[key]).replace("-0.0", "0.0") == str((*ends, different)).replace("-0.0", "0.0")


@pytest.mark.parametrize("over", ["time", "scope"])
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data(), ddof=st.integers(0, 2), far=st.sampled_from([0, 10**9]))
def test_variances_are_those_of_polars(over: Any, data: Any, ddof: int, far: int) -> None:
    batches = data.draw(inputs(["text"]))[:2]
    batches = [[as_polars(b).with_columns(pl.col("v").cast(pl.Float64) + far) for b in each] for each in batches]
    aggregates = {"var": agg.var("v", ddof), "std": agg.std("v", ddof)}
    operator = ColumnAggregate(["text"], aggregates, over=over, combined=True)
    combine = PreAggregate(["text"], aggregates)
    for t, given_ in enumerate(batches):
        sent = feed(operator, [(0, (t,), combine.apply(batch)) for batch in given_], workers=2)
        if not given_:
            assert sent == []
            continue
        of = given_ if over == "time" else [batch for each in batches[: t + 1] for batch in each]
        frame = pl.concat(of)
        wanted = {
            k: rest for k, *rest in frame.group_by("text").agg(pl.col("v").var(ddof), s=pl.col("v").std(ddof)).rows()
        }
        scale = max((abs(v) for v in frame["v"] if v is not None), default=0.0)
        for k, *found in as_polars(sent[0][1]).rows() if sent else []:
            for a, b, tiny in zip(found, wanted[k], (scale**2 * 1e-15, scale * 1e-7), strict=True):
                assert (a is None) == (b is None)
                assert a is None or a == pytest.approx(b, rel=1e-6, abs=tiny)


def test_a_variance_far_from_zero_is_not_lost_in_rounding() -> None:
    rows = pl.DataFrame({"k": ["a"] * 2000, "v": [1e9 + n % 2 for n in range(2000)]})
    for size in (7, 600):
        operator = ColumnAggregate(["k"], {"var": agg.var("v", 0)}, over="scope")
        sent = feed(operator, [(0, (t,), rows[at : at + size]) for t, at in enumerate(range(0, 2000, size))])
        assert as_polars(sent[-1][1])["var"][0] == pytest.approx(0.25, rel=1e-6)


@pytest.mark.parametrize("over", ["time", "scope"])
@pytest.mark.parametrize("keys", [[k] for k in KEYS] + [["text", "whole"], ["day", "coded", "truth"]], ids="-".join)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_equals_polars(keys: list[str], over: str, data: Any) -> None:
    running(data.draw(inputs(keys)), keys, over)


@pytest.mark.parametrize("over", ["time", "scope"])
def test_polars_frames_are_taken_too(over: str) -> None:
    rng = np.random.default_rng(1)
    frames = [
        [pl.DataFrame({"k": rng.integers(0, 9, n).astype(str), "v": rng.integers(0, 9, n)})] for n in (3, 500, 70)
    ]
    running(frames, ["k"], over)
    running([[f.with_columns(pl.col("k").cast(pl.Categorical)) for f in t] for t in frames], ["k"], over)


@pytest.mark.parametrize("over", ["time", "scope"])
def test_a_dictionary_with_repeated_entries_gives_each_key_once(over: str) -> None:
    codes = pa.array(np.arange(400) % 4, pa.int32())
    batch = pa.table({"k": pa.DictionaryArray.from_arrays(codes, ["a", "b", "a", "b"]), "v": np.arange(400)})
    running([[batch], [batch, batch]], ["k"], over)


@pytest.mark.parametrize("over", ["time", "scope"])
def test_combining_before_the_exchange_changes_nothing(over: str) -> None:
    rng = np.random.default_rng(2)
    before = PreAggregate(["k"], ALL)
    after = ColumnAggregate(["k"], ALL, over=over, combined=True)  # type: ignore[arg-type]
    direct = ColumnAggregate(["k"], ALL, over=over)  # type: ignore[arg-type]
    for t in range(4):
        halves = [
            pa.table({"k": rng.integers(0, 50, 300).astype(str), "v": rng.random(300)}).set_column(
                0, "k", pa.array(rng.integers(0, 50, 300).astype(str)).dictionary_encode()
            )
            for _ in range(2)
        ]
        partial = [before.apply(half) for half in halves]
        assert all(pa.types.is_dictionary(p["k"].type) for p in partial)
        [(_, one)] = feed(after, [(0, (t,), pa.concat_tables(partial))], workers=2)
        [(_, two)] = feed(direct, [(0, (t,), half) for half in halves])
        assert rows(one) == rows(two)


def test_text_leaves_as_it_came_whatever_the_batch_size() -> None:
    words = pa.array([f"w{i % 60}" for i in range(600)])
    for column in (words, words.dictionary_encode()):
        operator = ColumnAggregate(["k"], {"n": agg.count()})
        sizes = [5, 600, 5, 600]
        sent = [feed(operator, [(0, (t,), pa.table({"k": column[:n]}))])[0][1] for t, n in enumerate(sizes)]
        coded = [as_polars(batch)["k"].dtype != pl.String for batch in sent]
        assert coded == [pa.types.is_dictionary(column.type)] * 4
        assert as_polars(sent[-1])["n"].sum() == 1210


def test_a_small_change_does_not_carry_a_large_dictionary() -> None:
    words = pa.array([f"w{i}" for i in range(5000)]).dictionary_encode()
    operator = ColumnAggregate(["k"], {"n": agg.count()})
    feed(operator, [(0, (0,), pa.table({"k": words}))])
    [(_, change)] = feed(operator, [(0, (1,), pa.table({"k": words[:2]}))])
    assert len(change["k"].chunk(0).dictionary) == 2


def test_nested_scopes_start_afresh_and_run_along_iterations() -> None:
    operator = ColumnAggregate(["k"], {"n": agg.count()})
    batch = pa.table({"k": ["a"]})
    times = [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
    sent = feed(operator, [(0, time, batch) for time in times], compact=False)
    assert {time: as_polars(b)["n"].to_list() for time, b in sent} == {
        (0, 0): [1], (0, 1): [2], (1, 0): [1], (1, 1): [2], (1, 2): [3]
    }  # fmt: skip


def test_many_tiny_batches_of_one_time_are_combined_as_they_come() -> None:
    operator = ColumnAggregate(["k"], {"n": agg.count()}, over="time")
    ctx_events = [(0, (0,), pa.table({"k": [i % 3]})) for i in range(1000)]
    [(_, result)] = feed(operator, ctx_events)
    assert sorted(result["n"].to_pylist()) == [333, 333, 334]
    assert operator.state is not None
    assert operator.state.size().rows == 0


@pytest.mark.parametrize("cut", range(5))
def test_rollback_and_restore_go_on_as_if_nothing_had_happened(cut: int) -> None:
    rng = np.random.default_rng(cut)
    batches = [pa.table({"k": rng.integers(0, 300, 200).astype(str), "v": rng.random(200)}) for _ in range(6)]
    whole = ColumnAggregate(["k"], ALL)
    wanted = feed(whole, [(0, (t,), b) for t, b in enumerate(batches)], compact=False)
    f = Frontier.before([(cut,)])
    restored = ColumnAggregate(["k"], ALL)
    assert whole.state is not None
    assert restored.state is not None
    restored.state.restore(whole.state.snapshot(f, Frontier.empty(1)))
    whole.state.keep(f)
    for operator in (whole, restored):
        again = feed(operator, [(0, (t,), b) for t, b in enumerate(batches) if t >= cut])
        assert [rows(b) for _, b in again] == [rows(b) for _, b in wanted[cut:]]


def test_dates_keep_their_type_in_minimum_and_maximum() -> None:
    days = [dt.datetime(2024, 1, day, 12) for day in (3, 1, 2)]
    operator = ColumnAggregate(["k"], {"first": agg.min("t"), "last": agg.max("t")})
    [(_, result)] = feed(operator, [(0, (0,), pa.table({"k": [1, 1, 1], "t": days}))])
    assert result.to_pylist() == [{"k": 1, "first": min(days), "last": max(days)}]


def test_expressions_are_polars_own() -> None:
    frame = pl.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 5]})
    expressions = {"all": pl.col("v").sort(descending=True), "n": agg.count()}
    operator = column_aggregate(["k"], expressions, over="time")
    [(_, result)] = feed(operator, [(0, (0,), frame[:1]), (0, (0,), frame[1:].to_arrow())])
    assert result.sort("k").to_dicts() == [{"k": "a", "all": [5, 1], "n": 2}, {"k": "b", "all": [2], "n": 1}]
    with pytest.raises(GraphError, match='over="time"'):
        column_aggregate(["k"], expressions, over="scope")


def test_errors_name_operator_and_column() -> None:
    table = pa.table({"k": ["a"], "v": ["x"]})
    with pytest.raises(OperatorError, match=r"under test.*here.py:1(.|\n)*'v' of type string"):
        feed(ColumnAggregate(["k"], {"s": agg.sum("v")}), [(0, (0,), table)])
    with pytest.raises(OperatorError, match="no column 'w'; this batch has 'k', 'v'"):
        feed(ColumnAggregate(["k"], {"s": agg.sum("w")}), [(0, (0,), table)])
    with pytest.raises(OperatorError, match="was of type string and is now int64"):
        feed(ColumnAggregate(["k"], {"n": agg.count()}), [(0, (0,), table), (0, (1,), pa.table({"k": [1]}))])
    with pytest.raises(GraphError, match="come out twice"):
        ColumnAggregate(["k"], {"k": agg.count()})


@pytest.mark.parametrize("spread", [20_000, 10_000_000])
@pytest.mark.parametrize("over", ["time", "scope"])
def test_large_partial_tables_of_integer_keys_are_added_up(spread: int, over: str) -> None:
    rng = np.random.default_rng(4)
    aggregates = {
        "n": agg.count(),
        "total": agg.sum("v"),
        "low": agg.min("v"),
        "high": agg.max("v"),
        "mean": agg.mean("v"),
    }
    before = PreAggregate(["k"], aggregates)
    after = ColumnAggregate(["k"], aggregates, over=over, combined=True)  # type: ignore[arg-type]
    batches = [
        pa.table({"k": rng.integers(-spread, spread, 12_000), "v": rng.integers(-9, 9, 12_000)}) for _ in range(2)
    ]
    partial = [(0, (0,), before.apply(batch)) for batch in batches]
    [(_, result)] = feed(after, partial, workers=2)
    expected = (
        pl.concat([pl.from_arrow(batch) for batch in batches])  # type: ignore[misc]
        .group_by("k")
        .agg(n=pl.len(), total=pl.sum("v"), low=pl.min("v"), high=pl.max("v"), mean=pl.mean("v"))
        .sort("k")
    )
    found = pl.DataFrame(pl.from_arrow(result)).sort("k")
    assert found.rows() == expected.rows()


@pytest.mark.parametrize("over", ["time", "scope"])
def test_rows_that_are_alone_travel_as_they_are_and_meet_partial_tables(over: Any) -> None:
    rng = np.random.default_rng(3)
    before = PreAggregate(["k"], ALL, sparing=True)
    alone, alike, few = (
        pa.table({"k": rng.integers(0, n, m), "v": rng.random(m)}) for n, m in ((90_000, 9_000), (90, 9_000), (9, 9))
    )
    sent = [before.apply(batch) for batch in (alone, alike, few)]
    assert [batch.column_names == ["k", "v"] for batch in sent] == [True, False, False]
    for batches in ([0], [1], [0, 0], [0, 1], [1, 2], [0, 1, 2], [2, 0]):
        wanted = expected([(alone, alike, few)[i] for i in batches], ["k"])
        for given_ in (joined([sent[i] for i in batches]), [sent[i] for i in batches]):
            after = ColumnAggregate(["k"], ALL, over=over, combined=True)
            [(_, result)] = feed(after, [(0, (0,), batch) for batch in given_], workers=2)
            assert rows(result) == wanted
            after = ColumnAggregate(["k"], ALL, over=over, combined=True)
            again = ColumnAggregate(["k"], ALL, over=over, combined=True)
            ctx: Any = FakeContext(2)
            for batch in given_:
                ctx.time = (0,)
                after.on_batch(ctx, 0, (0,), batch)
            assert after.state is not None
            assert again.state is not None
            again.state.restore(after.state.snapshot(Frontier.top(1), Frontier.empty(1)))
            again.on_notify(ctx, (0,))
            assert rows(ctx.sent[-1][1]) == wanted


@pytest.mark.parametrize("odd", [float("nan"), 2.0**1023])
def test_many_floats_with_nan_and_integers_that_leave_64_bits_are_as_in_polars(odd: float) -> None:
    keys = np.arange(20_000) % 7_000
    floats = np.where(np.arange(20_000) % 5_000 == 3, odd, np.arange(20_000) / 4)
    batch = pa.table({"k": keys, "v": floats})
    [(_, result)] = feed(ColumnAggregate(["k"], ALL, over="time"), [(0, (0,), batch)])
    assert rows(result) == expected([batch], ["k"])
    far = pa.table({"k": keys, "v": np.where(keys == 5, 2**62, keys)})
    with pytest.raises(OperatorError, match="k=5 is 13835058055282163712, which is beyond 64-bit"):
        feed(ColumnAggregate(["k"], {"s": agg.sum("v")}, over="time"), [(0, (0,), far)])


@pytest.mark.parametrize("size", [4, 2000])
def test_keys_may_be_views_of_text_with_nulls(size: int) -> None:
    words = pa.array([["a", None, "b", "b"][i % 4] for i in range(size)]).cast(pa.string_view())
    [(_, result)] = feed(ColumnAggregate(["k"], {"n": agg.count()}), [(0, (0,), pa.table({"k": words}))])
    assert {row["k"]: row["n"] for row in as_polars(result).to_dicts()} == {
        "a": size // 4,
        None: size // 4,
        "b": size // 2,
    }


def test_agg_by_position_takes_expressions_with_names_of_their_own_and_says_what_else_to_write() -> None:
    grouped = Dataflow().input("in").to_columns().group_by("k")
    for build, why in (
        (
            lambda: grouped.agg(agg.mean("v")),
            r"agg\.mean\('v'\) needs a name for its column: agg\(v=agg\.mean\('v'\)\)",
        ),  # type: ignore[arg-type]
        (lambda: grouped.agg(agg.count()), r"agg\(n=agg\.count\(\)\)"),  # type: ignore[arg-type]
        (lambda: grouped.agg("v"), "takes Polars expressions"),  # type: ignore[arg-type]
        (lambda: grouped.agg(pl.col("v").min(), pl.col("v").max(), over="time"), "computes 'v' twice"),
        (lambda: grouped.agg(pl.all().min(), over="time"), "one column each"),
        (lambda: grouped.agg(k=agg.count()), "'k' would come out twice"),
        (lambda: grouped.agg(v=pl.col("v").min()), "say over='time'"),
    ):
        with pytest.raises(GraphError, match=rf"test_aggregate\.py:\d+: .*{why}"):
            build()


def test_one_default_for_all_verbs_totals_run_on() -> None:
    flow = Dataflow()
    rows = flow.input("in")
    by_column = rows.to_columns({"k": pl.String, "v": pl.Int64}).group_by("k").agg(v=agg.sum("v")).capture()
    by_record = rows.keyed().sum().capture()
    with Session(flow) as session:
        for epoch in range(3):
            session.input("in").send([("a", 2)])
            session.input("in").advance_to(epoch + 1)
        session.input("in").close()
        session.run()
        columns = [(time, as_polars(batch).rows()) for time, batch in session.captured(by_column)]
        assert columns == session.captured(by_record) == [((t,), [("a", 2 * t + 2)]) for t in range(3)]


SIGNED: dict[str, Any] = {
    "text": (pl.String, st.none() | st.sampled_from(["", "a", "b", "é"])),
    "float": (pl.Float64, st.none() | st.sampled_from([0.0, 1.5, -2.0, float("nan"), float("inf")])),
    "byte": (pl.Int8, st.none() | st.integers(-3, 3)),
    "day": (pl.Date, st.none() | st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 3))),
}


@pytest.mark.parametrize("kind", SIGNED)
@settings(max_examples=settings.default.max_examples // 25)
@given(data=st.data())
def test_values_of_changes_are_those_of_the_rows_that_are_left(kind: str, data: Any) -> None:
    dtype, value = SIGNED[kind]
    ats = st.none() | st.integers(0, 3)

    def shown(results: list[Any]) -> str:
        return str(results).replace("-0.0", "0.0")

    there: list[Any] = []
    events: list[Any] = []
    wanted: list[Any] = []
    of_values = {
        "low": agg.min("v"),
        "high": agg.max("v"),
        "first": agg.first("v", order_by="at"),
        "last": agg.last("v", order_by="at"),
        "kinds": agg.n_unique("v"),
    }
    oracle = {name: expression_of(each) for name, each in of_values.items()}
    oracle |= {"kinds": pl.col("v").drop_nulls().n_unique(), "n": pl.col("change").sum()}
    told: dict[Any, Any] = {}
    for epoch in range(5):
        gone = data.draw(st.lists(st.sampled_from(range(len(there))), unique=True) if there else st.just([]))
        rows = [(*there[n], -1) for n in gone]
        there = [row for n, row in enumerate(there) if n not in gone]
        new = data.draw(st.lists(st.tuples(st.sampled_from("ab"), value, ats), max_size=4))
        there += new
        rows += [(*row, 1) for row in new]
        for batch in (rows[::2], rows[1::2]):
            if batch:
                signed = {"k": pl.String, "v": dtype, "at": pl.Int16, "change": pl.Int8}
                events.append((0, (epoch,), pl.DataFrame(batch, signed, orient="row")))
        left = pl.DataFrame(there, {"k": pl.String, "v": dtype, "at": pl.Int16}, orient="row")
        found = left.with_columns(change=pl.lit(1)).group_by("k").agg(each.alias(name) for name, each in oracle.items())
        now = {k: shown(each) for k, *each in found.rows()}
        changed = {k: now.get(k, shown([None, None, None, None, 0, 0])) for k, *_ in rows}
        changed = {k: each for k, each in changed.items() if told.get(k) != each}
        told |= changed
        wanted.append(changed)

    def make() -> ChangedAggregate:
        operator = ChangedAggregate(["k"], {"n": agg.sum("change")}, of_values, "change")
        for values in operator._values.values():
            values.few = 1
        return operator

    def results(sent: list[Any]) -> dict[int, Any]:
        return {
            time[0]: {k: shown(each) for k, *each in as_polars(batch).select("k", *oracle).rows()}
            for time, batch in sent
        }

    expected = {epoch: each for epoch, each in enumerate(wanted) if each}
    assert results(feed(make(), events)) == expected
    cut = data.draw(st.integers(0, 4))
    frontier = Frontier.before([(cut,)])
    first, second = make(), make()
    feed(first, events, compact=False)
    assert first.state is not None
    assert second.state is not None
    second.state.restore(first.state.snapshot(frontier, Frontier.empty(1)))
    first.state.keep(frontier)
    for operator in (first, second):
        again = feed(operator, [event for event in events if event[1] not in frontier])
        assert results(again) == {epoch: each for epoch, each in expected.items() if epoch >= cut}


# Many rows on several workers


def _keys(kind: str, numbers: Any) -> pa.Array:
    if kind == "whole":
        return pa.array(numbers)
    text = pa.array([f"key {number}" for number in numbers.tolist()])
    return text.dictionary_encode() if kind == "coded" else text


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["whole", "text", "coded"])
@pytest.mark.parametrize("over", ["time", "scope"])
def test_many_rows_are_divided_among_workers_and_give_what_polars_gives(kind: str, over: Any) -> None:
    random = np.random.default_rng(3)
    many, few = 100_000, 900
    spreads = [many, few, many, many]

    def batch(spread: int, count: int) -> pa.Table:
        keys = random.integers(0, spread, count)
        return pa.table({"k": _keys(kind, keys), "v": random.integers(-9, 9, count)})

    epochs = [[batch(spread, 9_000), batch(spread, 300), batch(spread, 9_000)] for spread in spreads]

    flow = Dataflow()
    out = flow.input("in").to_columns().group_by("k").agg(over=over, **ALL).capture()
    cluster = Cluster(flow, 3, seed=1)
    feed_batches_in_turn(cluster, epochs)

    before = set[str]()
    for epoch, batches in enumerate(epochs):
        so_far = batches if over == "time" else [each for known in epochs[: epoch + 1] for each in known]
        answer = expected(so_far, ["k"])
        found = [plain(part) for time, part in cluster.captured(out) if time == (epoch,)]
        if over == "time":
            assert rows(pl.concat(found)) == answer
        else:
            assert rows(pl.concat(found)) == answer - before
            before = answer


def test_a_key_whose_type_changes_is_named() -> None:
    after = ColumnAggregate(["one", "two"], {"n": agg.count()})
    ints, floats = ({"one": [1], "two": pa.array([1], kind)} for kind in (pa.int64(), pa.float64()))
    with pytest.raises(
        OperatorError, match="key column 'two' was of type int64 and is now double; cast it to one type"
    ):
        feed(after, [(0, (0,), pa.table(ints)), (0, (1,), pa.table(floats))])
