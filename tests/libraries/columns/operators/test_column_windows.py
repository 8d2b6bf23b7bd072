"""Windows over columns on random rows, in random batches and epochs, on some workers: against a window by window count."""

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
from libraries.columns.operators.sessions import ColumnSessions, _reached
from libraries.columns.operators.windows import AT, START, ColumnEpochs, ColumnWindows
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from runtime.session.session import Session
from tests.support.in_polars import expression_of
from tests.timely.operators.fake_context import feed
from timely.data.batch import as_polars
from timely.errors import GraphError, OperatorError
from timely.operators.window_shapes import Epochs, Sliding, Tumbling
from timely.operators.window_shapes import Session as SessionWindow
from timely.operators.windows import END
from timely.time import Frontier

SCHEMA = {"k": pl.String, "at": pl.Int64, "v": pl.Int64}
rows = st.lists(
    st.tuples(st.none() | st.sampled_from("ab"), st.integers(-12, 25), st.none() | st.integers(-5, 5)), max_size=7
)
epochs = st.lists(rows, min_size=1, max_size=5)
shapes = st.sampled_from(
    [Tumbling(5), Tumbling(1), Sliding(6, 2), Sliding(7, 3), Sliding(4, 4), Sliding(9, 2)]
    + [SessionWindow(gap) for gap in (1, 3, 4, 5, 8, 15)]
)
TOTALS: dict[str, Any] = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "least": agg.min("v"),
    "mean": agg.mean("v"),
    "last": agg.last("v", order_by="at"),
    "middle": agg.median("v", error=0.0001),
    "high": agg.quantile("v", 0.8, error=0.0001),
    "kinds": agg.n_unique("v"),
    "keys": agg.n_unique("k"),
}
ORIGIN = dt.datetime(1970, 1, 1)


def frame(data: list[Any], dtype: Any = pl.Int64) -> pl.DataFrame:
    made = pl.DataFrame(data, SCHEMA, orient="row")
    return made if dtype == pl.Int64 else made.with_columns(moments(made["at"], dtype))


def moments(numbers: pl.Series, dtype: Any) -> pl.Series:
    """Numbers as so many days, or so many seconds and a bit, since 1970."""
    if dtype == pl.Date:
        return numbers.cast(pl.Int32).cast(pl.Date)
    return (numbers * 1_000_000).cast(pl.Datetime("us")).cast(dtype) + dt.timedelta(milliseconds=1)


def totals(rows: list[Any], start: Any, end: Any, keys: list[str]) -> list[Any]:
    """The rows of a window, as Polars has them for each key."""
    held = frame(rows).with_columns(start=start, end=end)
    return held.group_by([*keys, "start", "end"]).agg(expression_of(a).alias(name) for name, a in TOTALS.items()).rows()


def risen(watermark: Any, data: list[Any], lateness: int) -> Any:
    """The watermark after an epoch: as far as its last row but `lateness`, and never back."""
    reached = max(row[1] for row in data) - lateness
    return reached if watermark is None else max(watermark, reached)


def expected(fed: list[Any], shape: Tumbling | Sliding, lateness: int, keys: list[str]) -> tuple[Any, Any]:
    """By time: what comes out, and what is late."""
    every = shape.every if isinstance(shape, Sliding) else shape.length
    watermark: Any = None
    open_: dict[int, list[Any]] = {}
    out: dict[Any, list[Any]] = {}
    late: dict[Any, list[Any]] = {}

    def close(time: Any, upto: Any) -> None:
        for start in sorted(start for start in open_ if upto is None or start + shape.length <= upto):
            out.setdefault(time, []).extend(totals(open_.pop(start), start, start + shape.length, keys))

    for epoch, data in enumerate(fed):
        for row in data:
            starts = [
                start for start in range(-60, 60) if start % every == 0 and start <= row[1] < start + shape.length
            ]
            closed = [start for start in starts if watermark is not None and start + shape.length <= watermark]
            if closed:
                late.setdefault((epoch,), []).append(row)
            for start in {*starts} - {*closed}:
                open_.setdefault(start, []).append(row)
        if data:
            watermark = risen(watermark, data, lateness)
            close((epoch,), watermark)
    close(END, None)
    return out, late


def expected_sessions(fed: list[Any], gap: int, lateness: int, keys: list[str]) -> tuple[Any, Any]:
    """The same for sessions: those of all rows that are on time and in none that has closed, sought anew in each epoch."""
    watermark: Any = None
    there: list[Any] = []
    out: dict[Any, list[Any]] = {}
    late: dict[Any, list[Any]] = {}

    def close(time: Any, upto: Any) -> None:
        for key in {row[0] if keys else None for row in there}:
            rows = sorted((row for row in there if not keys or row[0] == key), key=lambda row: row[1])
            borders = [n for n in range(1, len(rows)) if rows[n][1] - rows[n - 1][1] >= gap]
            for first, after in zip([0, *borders], [*borders, len(rows)], strict=True):
                session = rows[first:after]
                start, end = session[0][1], session[-1][1] + gap
                if upto is None or end <= upto:
                    for row in session:
                        there.remove(row)
                    out.setdefault(time, []).extend(totals(session, start, end, keys))

    for epoch, data in enumerate(fed):
        on_time = [row for row in data if watermark is None or row[1] >= watermark]
        there += on_time
        if len(on_time) < len(data):
            late[(epoch,)] = [row for row in data if row[1] < watermark]
        if data:
            watermark = risen(watermark, data, lateness)
            close((epoch,), watermark)
    close(END, None)
    return out, late


def run(fed: list[Any], workers: int, seed: int, build: Any, dtype: Any = pl.Int64) -> list[Any]:
    """By capture and time: the rows."""
    flow = Dataflow()
    captures = [stream.capture() for stream in build(flow.input("in").to_columns())]
    cluster = Cluster(flow, workers, seed)
    for epoch, data in enumerate(fed):
        for worker, session in enumerate(cluster.sessions):
            for batch in (data[worker :: 2 * workers], data[worker + workers :: 2 * workers]):
                if batch:
                    session.input("in").send(frame(batch, dtype) if seed % 2 else frame(batch, dtype).to_arrow())
            session.input("in").advance_to(epoch + 1)
        cluster.step()
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()
    found: list[Any] = []
    for capture in captures:
        times: dict[Any, list[Any]] = {}
        for time, batch in cluster.captured(capture):
            times.setdefault(time, []).extend(as_polars(batch).rows())
        found.append(in_order(times))
    return found


def in_order(times: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
    """In order; what is exact but for a relative error of 0.0001, and lies at halves from -5 to 5, is so."""
    rounded = {
        time: [tuple(round(each, 2) + 0.0 if type(each) is float else each for each in row) for row in rows]
        for time, rows in times.items()
    }
    return {time: sorted(rows, key=str) for time, rows in rounded.items()}


@settings(max_examples=settings.default.max_examples // 3)
@given(epochs, shapes, st.sampled_from([0, 3, 12]), st.booleans(), st.integers(1, 3), st.integers(0, 99))
def test_windows_hold_what_came_before_they_closed(
    fed: list[Any], shape: Any, lateness: int, keyed: bool, workers: int, seed: int
) -> None:
    def build(stream: Columns) -> list[Columns]:
        windows = stream.window(shape, time="at", lateness=lateness)
        return [(windows.group_by("k") if keyed else windows).agg(**TOTALS), windows.late()]

    keys = ["k"] if keyed else []
    if isinstance(shape, SessionWindow):
        out, late = expected_sessions(fed, shape.gap, lateness, keys)
    else:
        out, late = expected(fed, shape, lateness, keys)
    assert run(fed, workers, seed, build) == [in_order(out), in_order(late)]


@settings(max_examples=settings.default.max_examples // 5)
@given(epochs, st.integers(1, 4), st.booleans(), st.integers(1, 3), st.integers(0, 99))
def test_windows_of_epochs_hold_the_rows_of_theirs(
    fed: list[Any], n: int, keyed: bool, workers: int, seed: int
) -> None:
    def build(stream: Columns) -> list[Columns]:
        windows = stream.window(Epochs(n))
        return [(windows.group_by("k") if keyed else windows).agg(**TOTALS)]

    out = {}
    for start in range(0, len(fed), n):
        if data := [row for epoch in fed[start : start + n] for row in epoch]:
            out[(start + n - 1,)] = totals(data, start, start + n, ["k"] if keyed else [])
    assert run(fed, workers, seed, build) == [in_order(out)]


def test_what_comes_after_every_epoch_has_a_window_of_its_own() -> None:
    def build(stream: Columns) -> list[Columns]:
        return [stream.window(Tumbling(5), "at").agg(n=agg.count()).window(Epochs(2)).agg(n=agg.sum("n"))]

    assert run([[("a", 1, 1)], [("a", 7, 1)], [("b", 8, 1)]], 2, 0, build) == [
        {(1,): [(0, 2, 1)], END: [(*END, *END, 2)]}
    ]


@settings(max_examples=settings.default.max_examples // 10)
@given(epochs, st.sampled_from([0, 3]), st.integers(1, 3), st.integers(0, 99))
def test_rows_are_parted_by_the_watermark(fed: list[Any], lateness: int, workers: int, seed: int) -> None:
    _, late = expected_sessions(fed, 1, lateness, [])
    on_time = {(e,): [row for row in data if row not in late.get((e,), [])] for e, data in enumerate(fed)}
    found = run(fed, workers, seed, lambda stream: list(stream.split_late("at", lateness)[:2]))
    assert found == [in_order({time: each for time, each in on_time.items() if each}), in_order(late)]


KINDS = [pl.Datetime("ms"), pl.Datetime("us", "Europe/London"), pl.Datetime("ns"), pl.Date]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_moments_are_put_into_windows_as_their_numbers_are(dtype: Any) -> None:
    fed = [[("a", -7, 1), ("b", 3, 2)], [("a", 9, 3)], [("a", 3, 4), ("b", 21, 5)]]
    unit = dt.timedelta(days=1) if dtype == pl.Date else dt.timedelta(seconds=1)
    shape = Sliding(6 * unit, 3 * unit)

    def build(stream: Columns) -> list[Columns]:
        windows = stream.window(shape, time="at", lateness=unit)
        return [windows.group_by("k").agg(**TOTALS), windows.late()]

    out, late = run(fed, 2, 0, build, dtype)
    numbers, also_late = expected(fed, Sliding(6, 3), 1, ["k"])
    zone = dt.UTC if getattr(dtype, "time_zone", None) else None
    origin = ORIGIN.replace(tzinfo=zone)
    since = {
        time: [(k, (start - origin) / unit, (end - origin) / unit, *rest) for k, start, end, *rest in each]
        for time, each in out.items()
    }
    assert in_order(since) == in_order(
        {t: [(k, float(s), float(e), *r) for k, s, e, *r in rs] for t, rs in numbers.items()}
    )
    assert [(k, v) for row in late.values() for k, _, v in row] == [
        (k, v) for rs in also_late.values() for k, _, v in rs
    ]


def of_epochs() -> ColumnEpochs:
    return ColumnEpochs(["k"], {"n": agg.count(), "total": agg.sum("v")}, Epochs(3))


def fixed() -> ColumnWindows:
    return ColumnWindows(["k"], {"n": agg.count(), "total": agg.sum("v")}, 10)


def sessions() -> ColumnSessions:
    totals = {"n": agg.count(), "total": agg.sum("v"), "kinds": agg.n_unique("v"), "own": agg.n_unique("k")}
    operator = ColumnSessions(["k"], totals, 10)
    for state in (operator._open, *operator._met.values()):
        state.few = 2
    return operator


@pytest.mark.parametrize("make", [fixed, sessions, of_epochs])
def test_open_windows_go_on_after_a_rollback_and_a_restore(make: Any) -> None:
    def batch(start: int, key: str) -> pa.Table:
        return pa.table({START: [start, start], AT: [start, start], "k": [key, "z"], "v": [start, 1]})

    events: list[Any] = [(0, (t,), batch(10 * (t % 3), "ab"[t % 2])) for t in range(6)]
    if make is not of_epochs:
        events += [(1, (3,), [10]), (1, (5,), [25])]
    if make is sessions:
        events += [(0, (t,), batch(50 * t, "cd"[t % 2])) for t in range(6, 12)]
        events += [(1, (t,), [50 * t]) for t in range(6, 12)]
    wanted = feed(make(), events, compact=False)
    assert wanted[-1][0] == ((5,) if make is of_epochs else END)
    assert len(wanted) == {fixed: 3, sessions: 9, of_epochs: 2}[make]
    for cut in range(len(wanted) + 3):
        for compacted in (cut // 2,):
            first, second = make(), make()
            feed(first, events, compact=False)
            f = Frontier.before([(cut,)])
            assert first.state is not None
            assert second.state is not None
            first.state.compact(Frontier.before([(compacted,)]))
            second.state.restore(first.state.snapshot(f, Frontier.empty(1)))
            first.state.keep(f)
            for operator in (first, second):
                again = feed(operator, [event for event in events if event[1] not in f])
                late = [(t, sorted(as_polars(b).rows())) for t, b in again]
                assert late == [(t, sorted(as_polars(b).rows())) for t, b in wanted if t not in f]


def test_what_cannot_be_meant_is_refused_at_the_call() -> None:
    stream = Dataflow().input("in").to_columns()
    for build, why in (
        (lambda: stream.window(Epochs(5), "at"), "takes no time= and no lateness="),
        (lambda: stream.window(Epochs(5)).late(), "no record is late for"),
        (lambda: stream.window(Tumbling(5)), "the name of a column, not None"),
        (lambda: stream.window(5, "at"), "takes Tumbling, Sliding, Session or Epochs, not 5"),  # type: ignore[arg-type]
        (lambda: stream.window(Tumbling(5), pl.col("at")), "the name of a column"),  # type: ignore[arg-type]
        (lambda: stream.window(Tumbling(0.5), "at"), "whole numbers as lengths, not 0.5"),
        (lambda: stream.window(Tumbling(5), "at", lateness=dt.timedelta(1)), "give it in the same unit"),
        (lambda: stream.window(Tumbling(5), "at").group_by(), "names of columns"),
        (lambda: stream.window(Tumbling(5), "at").group_by("end").agg(n=agg.count()), "'end' would come out twice"),
        (lambda: stream.window(Tumbling(5), "at").agg(), "at least one aggregate"),
        (lambda: stream.window(Tumbling(5), "at").agg(n=pl.len()), "takes name=agg.count"),  # type: ignore[arg-type]
    ):
        with pytest.raises(GraphError, match=rf"test_column_windows\.py:\d+: .*{why}"):
            build()


@pytest.mark.parametrize(
    ("shape", "values", "why"),
    [
        (Tumbling(5), [1, None], "null is no event time"),
        (Tumbling(5), [1.5], "so time= is a column of integers"),
        (Tumbling(dt.timedelta(1)), [1], "so time= is a column of datetimes or dates"),
        (Tumbling(5), [1 << 62], "too far from 0"),
    ],
)
def test_what_is_no_event_time_is_an_error_with_the_line(shape: Any, values: list[Any], why: str) -> None:
    flow = Dataflow()
    flow.input("in").to_columns().window(shape, "at").agg(n=agg.count()).capture()
    with Session(flow) as session, pytest.raises(OperatorError, match=rf"test_column_windows\.py:\d+\).*{why}"):
        session.input("in").send(pl.DataFrame({"at": values}))


@pytest.mark.parametrize("far", [9, 2**59])
def test_what_sessions_reach_is_the_greatest_end_so_far_of_their_key(far: int) -> None:
    rng = np.random.default_rng(far % 7)
    for size in (2, 5, 60):
        keys = np.sort(rng.integers(-4, 4, size))
        last = rng.integers(-far, far, size)
        wanted = [max(last[i] for i in range(at + 1) if keys[i] == keys[at]) for at in range(size)]
        assert _reached(keys, last).tolist() == wanted
