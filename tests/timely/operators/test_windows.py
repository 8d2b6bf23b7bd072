"""Windows: results are those of the definition, whatever the workers, the batches and the schedule; nothing is lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from timely.data.codec import encode
from timely.dataflow.windows import Epochs, Session, Sliding, Tumbling, Window, Windowed
from timely.dataflow.wire import Capture
from timely.time import INF, Time, visible

END = visible((INF,))


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
    members: dict[tuple[str, Window], list[Event]] = defaultdict(list)
    for key in {x.key for x in events}:
        mine = [x for x in events if x.key == key]
        if isinstance(shape, Session):
            mine = [x for x in mine if not is_late(shape, x.at, before[x.epoch])]
            for window in sessions_of([x.at for x in mine], shape.gap):
                members[key, window] = [x for x in mine if window.start <= x.at < window.end]
        else:
            for x in mine:
                for window in windows_of(shape, x.at):
                    if window.end > before[x.epoch]:  # it misses only those that have closed
                        members[key, window].append(x)
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


def events(keys: str = "ab", times: int = 24) -> st.SearchStrategy[list[Event]]:
    event = st.builds(
        Event,
        worker=st.integers(0, 3),
        epoch=st.integers(0, 5),
        key=st.sampled_from(keys),
        at=st.integers(-times // 4, times),
        value=st.just(0),
    )
    return st.lists(event, max_size=40).map(lambda found: [replace(x, value=number) for number, x in enumerate(found)])


shapes = st.one_of(
    st.builds(Tumbling, st.integers(1, 8)),
    st.integers(1, 8).flatmap(lambda n: st.builds(Sliding, st.just(n), st.integers(1, n))),
    st.builds(Session, st.integers(1, 6)),
)
runs = given(events(), shapes, st.integers(0, 12), st.integers(1, 4), st.integers(0, 1000))


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
    assert (
        isinstance(shape, Sliding) or not in_windows & too_late
    )  # sliding windows: it misses only those that have closed
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
