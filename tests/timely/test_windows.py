"""Windows: results are those of the definition, whatever the workers, the batches and the schedule; nothing is lost."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timely.codec import decode, encode
from timely.dataflow import Dataflow
from timely.drivers.memory import Cluster
from timely.drivers.session import Session as Driver
from timely.errors import GraphError, OperatorError
from timely.operators.windows import Aggregate, EventWindows, OpenWindows, collecting, counting, in_order
from timely.order import INF, Frontier, Time
from timely.windows import Epochs, Session, Sliding, Tumbling, Window, Windowed
from timely.wire import Capture

END = (INF,)


@dataclass(frozen=True)
class Event:
    worker: int
    epoch: int
    key: str
    at: int
    value: int


Outcome = tuple[Time, str, Window, Any]


# The definition, written down without any cleverness -------------------------------------------------------------------


def watermark(events: Iterable[Event], lateness: int) -> float:
    return max((event.at - lateness for event in events), default=float("-inf"))


def windows_of(shape: Tumbling | Sliding, at: int) -> list[Window]:
    length, every = shape.length, shape.every if isinstance(shape, Sliding) else shape.length
    return [Window(k * every, k * every + length) for k in range(-200, 200) if k * every <= at < k * every + length]


def is_late(shape: Any, at: int, mark: float) -> bool:
    if isinstance(shape, Session):
        return at < mark
    return any(window.end <= mark for window in windows_of(shape, at))


def sessions_of(ats: list[int], gap: int) -> list[Window]:
    """Maximal runs of times closer than the gap."""
    found: list[list[int]] = []
    for at in sorted(ats):
        if found and at - found[-1][-1] < gap:
            found[-1].append(at)
        else:
            found.append([at])
    return [Window(run[0], run[-1] + gap) for run in found]


def definition(
    events: list[Event], shape: Any, lateness: int, result: Callable[[list[Event]], Any]
) -> tuple[list[Outcome], list[tuple[Time, tuple[str, int]]]]:
    """All results with the times at which they go out, and all late records."""
    epochs = sorted({event.epoch for event in events})
    before = {e: watermark([x for x in events if x.epoch < e], lateness) for e in epochs}
    after = {e: watermark([x for x in events if x.epoch <= e], lateness) for e in epochs}
    late = [x for x in events if is_late(shape, x.at, before[x.epoch])]
    on_time = [x for x in events if not is_late(shape, x.at, before[x.epoch])]
    members: dict[tuple[str, Window], list[Event]] = defaultdict(list)
    for key in {x.key for x in on_time}:
        mine = [x for x in on_time if x.key == key]
        if isinstance(shape, Session):
            all_windows = sessions_of([x.at for x in mine], shape.gap)
        else:
            all_windows = [window for x in mine for window in windows_of(shape, x.at)]
        for window in set(all_windows):
            members[key, window] = [x for x in mine if window.start <= x.at < window.end]
    outcomes = []
    for (key, window), inside in members.items():
        closing = [(e,) for e in epochs if after[e] >= window.end]
        outcomes.append((closing[0] if closing else END, key, window, result(inside)))
    return outcomes, [((x.epoch,), (x.key, x.value)) for x in late]


# Running ---------------------------------------------------------------------------------------------------------------


def play(flow: Dataflow, events: list[Event], workers: int, seed: int, epochs: int = 6) -> Cluster:
    """Feed every worker its events epoch by epoch, in random batches and a random interleaving, and run to the end."""
    random = Random(seed)
    cluster = Cluster(flow, workers, seed=seed)
    scripts: list[list[Callable[[], None]]] = []
    for index, session in enumerate(cluster.sessions):
        handle = session.input("events")
        script: list[Callable[[], None]] = []
        for epoch in range(epochs):
            mine = [(x.key, x) for x in events if x.epoch == epoch and x.worker % workers == index]
            random.shuffle(mine)
            while mine:
                size = random.randint(1, len(mine))
                batch, mine = mine[:size], mine[size:]
                script += [lambda handle=handle, batch=batch: handle.send(batch), handle.flush]
            script.append(lambda handle=handle, epoch=epoch: handle.advance_to(epoch + 1))
        script.append(handle.close)
        scripts.append(script)
    while any(scripts):
        random.choice([script for script in scripts if script]).pop(0)()
        for _ in range(random.randint(0, 6)):
            cluster.step()
    cluster.run()
    return cluster


def outcomes(cluster: Cluster, capture: Capture) -> list[Outcome]:
    return [(time, key, window, result) for time, batch in cluster.captured(capture) for (key, window), result in batch]


def same(found: list[Any], expected: list[Any]) -> None:
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


def number_of(event: Event) -> int:
    return event.value


def events(keys: str = "abc", times: int = 60) -> st.SearchStrategy[list[Event]]:
    event = st.builds(
        Event,
        worker=st.integers(0, 3),
        epoch=st.integers(0, 5),
        key=st.sampled_from(keys),
        at=st.integers(-times // 4, times),
        value=st.just(0),
    )
    return st.lists(event, max_size=30).map(lambda found: [replace(x, value=number) for number, x in enumerate(found)])


shapes = st.one_of(
    st.builds(Tumbling, st.integers(1, 20)),
    st.integers(1, 20).flatmap(lambda n: st.builds(Sliding, st.just(n), st.integers(1, n))),
    st.builds(Session, st.integers(1, 15)),
)
runs = given(events(), shapes, st.integers(0, 20), st.integers(1, 4), st.integers(0, 1000))


@runs
def test_windows_and_late_records_are_those_of_the_definition(
    given_events: list[Event], shape: Any, lateness: int, workers: int, seed: int
) -> None:
    flow = Dataflow("windows")
    windowed = Windowed(flow.input("events").keyed(), shape, time=lambda x: x.at, lateness=lateness)
    late, counts = windowed.late().map_values(number_of).capture(), windowed.count().capture()
    collected = windowed.collect().capture()
    cluster = play(flow, given_events, workers, seed)

    expected, expected_late = definition(given_events, shape, lateness, len)
    same(outcomes(cluster, counts), expected)
    same([(time, record) for time, batch in cluster.captured(late) for record in batch], expected_late)
    by_time = lambda inside: sorted((x.at, x.epoch) for x in inside)  # noqa: E731
    expected, _ = definition(given_events, shape, lateness, by_time)
    found = [(t, k, w, [(x.at, x.epoch) for x in values]) for t, k, w, values in outcomes(cluster, collected)]
    same(found, expected)

    in_windows = {x.value for _, _, _, values in outcomes(cluster, collected) for x in values}
    too_late = {value for _, (_, value) in expected_late}
    assert not in_windows & too_late
    assert in_windows | too_late == {x.value for x in given_events}
    if not isinstance(shape, Sliding):
        assert sum(count for *_, count in outcomes(cluster, counts)) + len(expected_late) == len(given_events)


@settings(max_examples=30)
@runs
def test_folds_sums_and_extremes_are_those_of_the_definition(
    given_events: list[Event], shape: Any, lateness: int, workers: int, seed: int
) -> None:
    flow = Dataflow("windows")
    keyed = flow.input("events").keyed()
    windowed = Windowed(keyed.map_values(lambda x: (x.at, x.epoch, x.value)), shape, lambda v: v[0], lateness)
    spell = windowed.fold("", lambda text, v: f"{text}{v[2]}", merge=lambda a, b: a + b).capture()
    latest = windowed.max().capture()
    numbers = Windowed(keyed, shape, lambda x: x.at, lateness).reduce(lambda a, b: a if a.value > b.value else b)
    greatest = numbers.map_values(number_of).capture()
    cluster = play(flow, given_events, workers, seed)

    if not isinstance(shape, Session):  # Sessions that join are merged, which is no longer epoch by epoch.
        in_turn = lambda inside: "".join(  # noqa: E731
            str(x.value) for x in sorted(inside, key=lambda x: (x.epoch, x.at, encode((x.at, x.epoch, x.value))))
        )
        same(outcomes(cluster, spell), definition(given_events, shape, lateness, in_turn)[0])
    letters = [(t, k, w, sorted(text)) for t, k, w, text in outcomes(cluster, spell)]
    same(letters, definition(given_events, shape, lateness, lambda i: sorted("".join(str(x.value) for x in i)))[0])
    best = definition(given_events, shape, lateness, lambda i: max((x.at, x.epoch, x.value) for x in i))[0]
    same(outcomes(cluster, latest), best)
    best = definition(given_events, shape, lateness, lambda i: max(x.value for x in i))[0]
    same(outcomes(cluster, greatest), best)


@settings(max_examples=30)
@given(events(), st.integers(1, 4), st.integers(0, 1000))
def test_the_same_epochs_give_the_same_results_on_any_number_of_workers(
    given_events: list[Event], workers: int, seed: int
) -> None:
    def results(workers: int, seed: int) -> list[list[Outcome]]:
        flow = Dataflow("windows")
        keyed = flow.input("events").keyed().map_values(lambda x: (x.at, f"{x.value}"))
        found = []
        for shape in (Tumbling(10), Sliding(10, 4), Session(5)):
            windowed = Windowed(keyed, shape, lambda v: v[0], lateness=7)
            found.append(windowed.fold((), lambda t, v: (*t, v), merge=lambda a, b: a + b).capture())
            found.append(windowed.collect().capture())
        cluster = play(flow, given_events, workers, seed)
        return [sorted(outcomes(cluster, capture), key=repr) for capture in found]

    assert results(workers, seed) == results(1, 0)


@settings(max_examples=30)
@given(
    events(),
    st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    st.integers(1, 3),
    st.integers(0, 1000),
)
def test_sums_without_late_records_equal_those_of_polars(
    given_events: list[Event], lengths: tuple[int, int], workers: int, seed: int
) -> None:
    length, every = lengths
    shape = Tumbling(length) if length == every else Sliding(length, every)
    flow = Dataflow("windows")
    windowed = Windowed(flow.input("events").keyed(), shape, time=lambda x: x.at, lateness=1000)
    late, sums = windowed.late().capture(), windowed.fold(0, lambda total, x: total + x.value).capture()
    cluster = play(flow, given_events, workers, seed)
    assert cluster.captured(late) == []
    # Polars begins each group with the window that begins last before its first record.
    first = {key: min(x.at for x in given_events if x.key == key) for key in {x.key for x in given_events}}
    found = {(k, w.start, w.end): n for _, k, w, n in outcomes(cluster, sums) if w.start > first[k] - every}
    assert found == polars_sums(given_events, length, every)


def polars_sums(given_events: list[Event], length: int, every: int) -> dict[tuple[str, int, int], int]:
    if not given_events:
        return {}
    frame = pl.DataFrame([(x.key, x.at, x.value) for x in given_events], schema=["key", "at", "value"], orient="row")
    grouped = frame.sort("at").group_by_dynamic(
        "at", every=f"{every}i", period=f"{length}i", group_by="key", include_boundaries=True, closed="left"
    )
    rows = grouped.agg(pl.col("value").sum()).select("key", "_lower_boundary", "_upper_boundary", "value").rows()
    return {(key, start, end): total for key, start, end, total in rows}


@settings(max_examples=30)
@given(events(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000))
def test_windows_of_epochs_close_with_their_last_epoch(
    given_events: list[Event], n: int, workers: int, seed: int
) -> None:
    flow = Dataflow("windows")
    windowed = Windowed(flow.input("events").keyed().map_values(number_of), Epochs(n))
    collected, sums = windowed.collect().capture(), windowed.sum().capture()
    cluster = play(flow, given_events, workers, seed)

    inside: dict[tuple[str, int], list[int]] = defaultdict(list)
    for x in given_events:
        inside[x.key, x.epoch - x.epoch % n].append(x.value)
    expected = [((at + n - 1,), k, Window(at, at + n), sorted(values)) for (k, at), values in inside.items()]
    same([(t, k, w, sorted(values)) for t, k, w, values in outcomes(cluster, collected)], expected)
    same(outcomes(cluster, sums), [(t, k, w, sum(values)) for t, k, w, values in expected])


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


# State -----------------------------------------------------------------------------------------------------------------


class Recording:
    """A context that keeps what an operator sends."""

    name, site = "windows", "here.py:1"

    def __init__(self) -> None:
        self.time: Time = ()
        self.sent: list[tuple[Time, Any]] = []

    def send(self, batch: Any, port: int = 0) -> None:
        self.sent += [(self.time, record) for record in batch]

    def notify_at(self, time: Time | None = None) -> None:
        """The test delivers every notification itself."""


def epoch_of(operator: EventWindows, time: Time, records: list[Any], mark: int | None) -> list[tuple[Time, Any]]:
    ctx: Any = Recording()
    ctx.time = time
    if records:
        operator.on_batch(ctx, 0, time, records)
    if mark is not None:
        operator.on_batch(ctx, 1, time, [mark])
    operator.on_notify(ctx, time)
    return sorted(ctx.sent, key=repr)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 9)), max_size=8), max_size=6),
    shapes,
    st.integers(0, 5),
    st.sampled_from(["restore", "keep"]),
)
def test_windows_go_on_from_a_checkpoint_as_if_nothing_had_happened(
    epochs: list[list[Any]], shape: Any, cut: int, how: str
) -> None:
    marks = [min(10 * epoch, 60) for epoch in range(len(epochs))]
    epochs = [[x for x in batch if x[1] >= (marks[e - 1] if e else 0)] for e, batch in enumerate(epochs)]
    steps = [((epoch,), batch, marks[epoch]) for epoch, batch in enumerate(epochs)] + [(END, [], None)]
    cut = min(cut, len(epochs))
    frontier = Frontier.before([(cut,)])

    whole = EventWindows(shape, collecting())
    expected = [epoch_of(whole, *step) for step in steps]

    first = EventWindows(shape, collecting())
    upto = len(steps) if how == "keep" else cut
    assert [epoch_of(first, *step) for step in steps[:upto]] == expected[:upto]
    assert first.state is not None
    if how == "restore":
        runs = first.state.snapshot(frontier, Frontier.empty(1))
        carried = [(run.time, decode(encode(run.batch)), run.part) for run in runs]
        assert [run.batch for run in runs] == [batch for _, batch, _ in carried]
        first = EventWindows(shape, collecting())
        assert first.state is not None
        first.state.restore(runs)
    else:
        first.state.keep(frontier)
    assert [epoch_of(first, *step) for step in steps[cut:]] == expected[cut:]


def test_an_open_window_is_kept_in_the_shard_of_its_key() -> None:
    from timely.routing import shard_of, stable_hash

    state = OpenWindows()
    for start in range(20):
        state.put(("key", start), start + 1, "")
    state.commit((0,))
    (run,) = state.snapshot(Frontier.top(1), Frontier.empty(1))
    assert {record[0] for record in run.batch} == {shard_of(stable_hash("key"))}


def test_closed_windows_leave_nothing_behind() -> None:
    operator = EventWindows(Tumbling(10), counting())
    assert operator.state is not None
    for epoch in range(5):
        epoch_of(operator, (epoch,), [("a", 10 * epoch, 0)], 10 * epoch)
        operator.state.compact(Frontier.closure([(epoch,)]))
    assert operator.state.size().rows == 1
    epoch_of(operator, END, [], None)
    operator.state.compact(Frontier.top(1))
    assert operator.state.size().rows == 0


@pytest.mark.parametrize("shape", [Tumbling(10), Session(10)], ids=repr)
def test_an_epoch_costs_its_records_and_not_the_windows_that_are_open(shape: Any) -> None:
    def calls(opened: int) -> int:
        operator = EventWindows(shape, counting())
        epoch_of(operator, (0,), [("a", 10 * number, 0) for number in range(10, opened)], 5)
        assert operator.state is not None
        operator.state.compact(Frontier.closure([(0,)]))
        count = 0

        def count_call(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(count_call)
        try:
            epoch_of(operator, (1,), [("a", 55, 0), ("b", 52, 0)], 80)
        finally:
            sys.setprofile(None)
        return count

    assert calls(10_000) <= calls(100) + 20  # The heap of ends is a little deeper.


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
        (Tumbling(5), dt.datetime(2024, 1, 1), "give lengths as timedeltas"),
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


def test_an_aggregate_of_collected_values_copies_each_only_a_few_times() -> None:
    aggregate: Aggregate = collecting()
    chunks = aggregate.add(aggregate.add(_absent(), [(0, 0)]), [(1, 1)])
    for number in range(2, 1000):
        chunks = aggregate.add(chunks, [(number, number)])
    assert len(chunks) <= 11
    assert aggregate.finish(chunks) == list(range(1000))


def _absent() -> Any:
    from timely.operators.windows import ABSENT

    return ABSENT
