"""Windows: single cases, kinds of event time, and what is refused."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.session import Session as Driver
from timely.data.codec import decode, encode
from timely.dataflow.windows import Epochs, Session, Sliding, Tumbling, Window, Windowed
from timely.errors import GraphError, OperatorError
from timely.operators.windows import in_order
from timely.time import INF, Time, visible

Outcome = tuple[Time, str, Window, Any]

END = visible((INF,))


def run_one(keyed_records: list[list[Any]], shape: Any, **how: Any) -> list[Outcome]:
    """Counts over the records (key, event time) of some epochs, on one worker."""
    flow = Dataflow("windows")
    counts = Windowed(flow.input("records").keyed(), shape, **how).count().capture()
    with Driver(flow) as session:
        records = session.input("records")
        for epoch, batch in enumerate(keyed_records):
            records.send(batch)
            records.advance_to(epoch + 1)
        records.close()
        session.run()
        return [(t, k, w, n) for t, batch in session.captured(counts) for (k, w), n in batch]


def test_an_epoch_is_complete_downstream_before_the_next_one_begins() -> None:
    flow = Dataflow("windows")
    keyed = flow.input("records").keyed()
    counts = Windowed(keyed, Tumbling(10), time=lambda at: at).count()
    done, seen = counts.probe(), counts.capture()
    with Driver(flow) as session:
        records = session.input("records")
        records.send([("a", 3), ("a", 12)])
        records.advance_to(1)
        session.step_until(lambda: session.probe(done).done(0))
        assert session.captured(seen) == [((0,), [(("a", Window(0, 10)), 1)])]
        records.advance_to(7)  # Epochs without records hold nothing back either.
        session.step_until(lambda: session.probe(done).done(6))
        records.close()
        session.run()
        assert session.captured(seen)[1:] == [(END, [(("a", Window(10, 20)), 1)])]


def test_a_record_that_joins_two_sessions_makes_them_one() -> None:
    epochs = [[("a", 0), ("a", 8), ("b", 4)], [("a", 4)], [("z", 100)]]
    assert Counter(run_one(epochs, Session(5), time=lambda at: at, lateness=20)) == Counter(
        [((2,), "a", Window(0, 13), 3), ((2,), "b", Window(4, 9), 1), (END, "z", Window(100, 105), 1)]
    )


def test_what_joins_two_sessions_keeps_the_values_of_both() -> None:
    flow = Dataflow("windows")
    values = Windowed(flow.input("records").keyed(), Session(5), time=lambda at: at, lateness=20)
    text = values.fold("", lambda text, at: f"{text} {at}", merge=lambda a, b: f"{a} +{b}").capture()
    collected = values.collect().capture()
    with Driver(flow) as session:
        records = session.input("records")
        records.send([("a", 8), ("a", 0), ("a", 1)])
        records.advance_to(1)
        records.send([("a", 4)])
        records.close()
        session.run()
        ((_, [(_, told)]),), ((_, [(_, found)]),) = session.captured(text), session.captured(collected)
    assert told == " 0 1 + 8 4"
    assert found == [0, 1, 4, 8]


def test_a_window_that_ends_at_the_watermark_has_closed() -> None:
    flow = Dataflow("windows")
    windowed = Windowed(flow.input("records").keyed(), Tumbling(10), time=lambda at: at, lateness=3)
    late, counts = windowed.late().capture(), windowed.count().capture()
    with Driver(flow) as session:
        records = session.input("records")
        for epoch, at in enumerate([5, 13, 9, 10]):
            records.send([("a", at)])
            records.advance_to(epoch + 1)
        records.close()
        session.run()
        assert session.captured(late) == [((2,), [("a", 9)])]
        assert session.captured(counts) == [
            ((1,), [(("a", Window(0, 10)), 1)]),
            (END, [(("a", Window(10, 20)), 2)]),
        ]


def test_a_silence_of_the_whole_gap_ends_a_session() -> None:
    assert run_one([[("a", 0), ("a", 5), ("a", 9)]], Session(5), time=lambda at: at)[0][1:] == ("a", Window(0, 5), 1)


def test_records_of_one_epoch_are_never_late_for_each_other() -> None:
    assert run_one([[("a", 500)], []], Tumbling(10), time=lambda at: at) == run_one(
        [[("a", 500)]], Tumbling(10), time=lambda at: at
    )
    found = run_one([[("a", 1), ("a", 500), ("a", 2)]], Tumbling(10), time=lambda at: at)
    assert Counter(found) == Counter([((0,), "a", Window(0, 10), 2), (END, "a", Window(500, 510), 1)])


ROME = ZoneInfo("Europe/Rome")


def test_aware_datetimes_are_aligned_and_given_in_utc() -> None:
    at = dt.datetime(2024, 3, 31, 3, 30, tzinfo=ROME)  # 01:30 UTC, half an hour after the clocks changed
    ((_, _, window, _),) = run_one([[("a", at)]], Tumbling(dt.timedelta(hours=6)), time=lambda at: at)
    assert window == Window(dt.datetime(2024, 3, 31, tzinfo=dt.UTC), dt.datetime(2024, 3, 31, 6, tzinfo=dt.UTC))
    assert window.start.tzinfo is dt.UTC
    assert decode(encode(window)) == window


def test_sessions_of_datetimes_measure_elapsed_time_across_a_change_of_clocks() -> None:
    before = dt.datetime(2024, 3, 31, 1, 50, tzinfo=ROME)
    after = dt.datetime(2024, 3, 31, 3, 5, tzinfo=ROME)  # 15 minutes later
    found = run_one([[("a", before), ("a", after)]], Session(dt.timedelta(minutes=20)), time=lambda at: at)
    assert [count for *_, count in found] == [2]


def test_naive_datetimes_agree_with_polars() -> None:
    random = Random(5)
    start = dt.datetime(2023, 12, 31, 23, 0)
    ats = sorted(start + dt.timedelta(seconds=random.randrange(20_000)) for _ in range(200))
    shape = Sliding(dt.timedelta(minutes=15), dt.timedelta(minutes=5))
    lateness = dt.timedelta(days=1)
    found = run_one([[("a", at) for at in ats]], shape, time=lambda at: at, lateness=lateness)
    counts = {(w.start, w.end): n for _, _, w, n in found if w.start > ats[0] - dt.timedelta(minutes=5)}
    frame = pl.DataFrame({"at": ats}).group_by_dynamic("at", every="5m", period="15m", include_boundaries=True)
    rows = frame.agg(pl.len()).select("_lower_boundary", "_upper_boundary", "len").rows()
    assert counts == {(start, end): n for start, end, n in rows}


lengths = st.floats(1e-3, 1e3)


@given(st.floats(-1e6, 1e6), lengths)
def test_every_float_is_in_one_tumbling_window(at: float, length: float) -> None:
    ((start, end),) = Tumbling(length).aligned().spans(at)
    assert start <= at < end
    ((_, end_before),) = Tumbling(length).aligned().spans(start - length / 2)
    assert end_before == start


@given(st.integers(-10_000, 10_000), lengths)
def test_a_border_between_floats_begins_a_window(number: int, length: float) -> None:
    ((start, end),) = Tumbling(length).aligned().spans(number * length)
    assert (start, end) == (number * length, (number + 1) * length)


@given(st.floats(-1e4, 1e4), lengths, st.integers(1, 7))
def test_every_float_is_in_the_sliding_windows_that_hold_it(at: float, every: float, times: int) -> None:
    spans = Sliding(every * times, every).aligned().spans(at)
    assert all(start <= at < end for start, end in spans)
    assert times - 1 <= len(spans) <= times + 1
    assert spans == sorted(spans)


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.integers(0, 2), st.text("ab", max_size=2)))), st.randoms())
def test_order_of_arrival_is_forgotten(items: list[Any], random: Random) -> None:
    shuffled = random.sample(items, len(items))
    assert in_order(shuffled) == in_order(items)
    assert [at for at, _ in in_order(items)] == sorted(at for at, _ in items)


# Errors ----------------------------------------------------------------------------------------------------------------


def refused(build: Callable[[Any], Any]) -> str:
    with pytest.raises(GraphError) as caught:
        build(Dataflow("windows").input("records").keyed())
    return str(caught.value)


def test_windows_that_make_no_sense_are_refused_where_they_are_written() -> None:
    assert "positive" in refused(lambda keyed: Tumbling(0))
    assert "positive" in refused(lambda keyed: Session(dt.timedelta(0)))
    assert "leaves out" in refused(lambda keyed: Sliding(5, 6))
    assert "two timedeltas" in refused(lambda keyed: Sliding(dt.timedelta(1), 6))
    assert "1 epoch" in refused(lambda keyed: Epochs(0))
    assert "needs the event time" in refused(lambda keyed: Windowed(keyed, Tumbling(5)))
    assert "no time=" in refused(lambda keyed: Windowed(keyed, Epochs(), time=lambda at: at))
    assert "same unit" in refused(
        lambda keyed: Windowed(keyed, Tumbling(dt.timedelta(1)), time=lambda at: at, lateness=5)
    )
    assert "0 or more" in refused(lambda keyed: Windowed(keyed, Tumbling(5), time=lambda at: at, lateness=-5))
    assert "no record is late" in refused(lambda keyed: Windowed(keyed, Epochs()).late())
    assert "merge=" in refused(lambda keyed: Windowed(keyed, Session(5), lambda at: at).fold(0, lambda a, b: a))
    assert "takes Tumbling" in refused(lambda keyed: Windowed(keyed, 5))  # type: ignore[arg-type]
    assert __file__ in refused(lambda keyed: Windowed(keyed, Tumbling(5)))


@pytest.mark.parametrize(
    ("shape", "at", "message"),
    [
        (Tumbling(5), float("nan"), "nan is no event time"),
        (Tumbling(5), dt.datetime(2024, 1, 1), "give lengths, and lateness=, as timedeltas"),
        (Tumbling(dt.timedelta(5)), 7, "not a datetime"),
        (Tumbling(5), "noon", "'noon' \\(str\\)"),
    ],
)
def test_an_event_time_of_the_wrong_kind_names_the_record(shape: Any, at: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message) as caught:
        run_one([[("a", at)]], shape, time=lambda at: at)
    assert "the record: ('a'" in str(caught.value)
    assert __file__ in str(caught.value)


def test_windows_of_windows_take_in_what_closes_at_the_end() -> None:
    flow = Dataflow("windows")
    keyed = flow.input("records").keyed()
    first = Windowed(keyed, Tumbling(10), time=lambda at: at).count()
    by_window = first.map_values(lambda n: n).records().map(lambda r: (r[0][0], (r[0][1].start, r[1]))).keyed()
    second = Windowed(by_window, Tumbling(20), time=lambda v: v[0]).collect().capture()
    third = Windowed(first, Epochs(2)).sum().capture()
    with Driver(flow) as session:
        session.input("records").send([("a", at) for at in (1, 2, 11, 25, 31, 32, 33)])
        session.input("records").close()
        session.run()
        found = {window.start: values for _, batch in session.captured(second) for (_, window), values in batch}
        assert found == {0: [(0, 2), (10, 1)], 20: [(20, 1), (30, 3)]}
        assert {time for time, _ in session.captured(third)} == {(1,), END}


def test_a_late_record_misses_only_the_windows_that_have_closed() -> None:
    """Sliding windows of 10 every 5: at watermark 12 a record of 9 has lost [0, 10), and is still in [5, 15)."""
    flow = Dataflow()
    windowed = flow.input("records").keyed().window(Sliding(10, 5), time=lambda at: at)
    late, counts = windowed.late().capture(), windowed.collect().capture()
    with Driver(flow) as session:
        records = session.input("records")
        for epoch, ats in enumerate([[3, 12], [9, 2], [40]]):
            records.send([("a", at) for at in ats])
            records.advance_to(epoch + 1)
        records.close()
        session.run()
        assert [sorted(batch) for _, batch in session.captured(late)] == [[("a", 2), ("a", 9)]]
        found = {(w.start, w.end): values for _, batch in session.captured(counts) for (_, w), values in batch}
        assert found == {(-5, 5): [3], (0, 10): [3], (5, 15): [9, 12], (10, 20): [12], (35, 45): [40], (40, 50): [40]}


def test_wrong_shapes_name_the_line_of_the_user() -> None:
    for make in (
        lambda: Tumbling(0),
        lambda: Sliding(-1, 1),
        lambda: Sliding(5, 6),
        lambda: Session(0),
        lambda: Epochs(0),
    ):
        with pytest.raises(GraphError, match=r"test_window_cases\.py:\d+: "):
            make()
