"""Times between cuts and until W contains them; what the user is told when they are too long; the metrics."""

from __future__ import annotations

import pytest

from monitor.coordination.intervals import NOTE_SECONDS, Intervals, Safe
from monitor.coordination.supervision import Note, TimelineEvent
from monitor.web.hub import Hub
from monitor.web.metrics import metrics
from recovery.layout import GroupInfo
from recovery.place import Place
from recovery.protocol import Completed, Durable
from tests.monitor.coordination.coordinators import running, write, xis
from tests.recovery.layouts import FIREWALL, layout

EVERY = GroupInfo(None, 0.5)
LINE = ("read source, parse any, count chain", "read>parse, parse=>count")


def by(worker: int) -> Durable:
    """A worker has a cut of the first group."""
    return Durable(Place(worker), 1, 0, (3,), (), 0.1, 2.0, 0.5)


def test_a_cut_is_safe_when_w_contains_it_on_every_worker() -> None:
    intervals = Intervals(layout(*LINE, groups=EVERY))
    intervals.announced(0, (3,), 10.0)
    intervals.announced(0, (5,), 10.6)
    assert intervals.contained((((3,), (3,), (3,)), ((3,), (3,), (2,))), 10.7) == []
    found = intervals.contained((((5,), (9,), (5,)), ((5,), (0,), (4,))), 10.8)
    assert [(safe.at, round(safe.seconds, 3), safe.since_last) for safe in found] == [((3,), 0.8, None)]
    assert intervals.contained((((5,), (9,), (5,)), ((5,), (0,), (4,))), 11.0) == []
    (last,) = intervals.contained((((5,), (9,), (5,)), ((6,), (0,), (5,))), 11.0)
    assert last.at == (5,)
    assert round(last.seconds, 3) == 0.4
    assert last.since_last is not None
    assert round(last.since_last, 3) == 0.6


def test_groups_have_intervals_of_their_own() -> None:
    intervals = Intervals(layout(*FIREWALL, groups=EVERY))
    low = (((9,),) * len(layout(*FIREWALL).processors),) * 2
    intervals.announced(1, (3,), 1.0)
    intervals.announced(0, (4,), 2.0)
    assert intervals.contained(low, 3.0) == [Safe(0, (4,), 1.0, None), Safe(1, (3,), 2.0, None)]


def test_who_is_behind_in_another_group_holds_no_cut_of_this_one_back() -> None:
    plan = layout(*FIREWALL, groups=EVERY)
    intervals = Intervals(plan)
    intervals.announced(1, (3,), 1.0)
    for worker in range(2):
        low = [[(9,) if info.group == 1 else (0,) for info in plan.processors] for _ in range(2)]
        (behind,) = (p for p, info in enumerate(plan.processors) if info.chain and info.group == 1)
        low[worker][behind] = (2,)
        assert intervals.contained(low, 2.0) == []
        low[worker][behind] = (3,)
    assert intervals.contained(low, 3.0) == [Safe(1, (3,), 2.0, None)]


def test_a_note_comes_when_the_interval_is_missed_again_and_again_but_not_all_the_time() -> None:
    intervals = Intervals(layout(*LINE, groups=EVERY))
    assert intervals.durable(by(1), 3.0, 0.0) is None
    assert intervals.durable(by(1), 0.6, 1.0) is None
    assert [intervals.durable(by(1), 3.0, 2.0 + n) is not None for n in range(5)] == [False, False, True, False, False]
    assert intervals.durable(by(0), 1.2, 5.0 + NOTE_SECONDS) is not None


@pytest.mark.parametrize(
    ("waited", "made", "written", "first"),
    [
        (3.0, 0.1, 0.1, "took 3.0 s to begin, "),
        (0.1, 3.0, 0.1, "took 3.0 s to make its pieces beside its other work, "),
        (0.1, 0.1, 3.0, "took 3.0 s to write them, "),
        (0.1, 0.1, 0.1, "took 3.7 s in messages, "),
        (9.0, 0.0, 0.0, "took 9.0 s to begin, 0.0 s to make its pieces"),
    ],
)
def test_the_note_begins_with_what_took_longest(waited: float, made: float, written: float, first: str) -> None:
    intervals = Intervals(layout(*LINE, groups=EVERY))
    cut = Durable(Place(1), 1, 0, (3,), (), waited, made, written)
    notes = [intervals.durable(cut, 4.0, float(n)) for n in range(3)]
    assert f"and {first}" in str(notes[-1])


def test_the_note_says_what_where_and_what_to_do() -> None:
    intervals = Intervals(layout(*LINE, groups=EVERY))
    notes = [intervals.durable(by(1), 3.2, float(n)) for n in range(3)]
    assert notes[-1] == (
        "checkpoints of 'count' and 1 more should be made every 0.5 s, and take 3.2 s (worker 1 was the last to have one, and "
        "took 2.0 s to make its pieces beside its other work, 0.6 s in messages, 0.5 s to write them, 0.1 s to begin): so much "
        "more is done again after a failure, and exactly-once output waits so long. Ask for fewer (every='5s'), use more "
        "workers or a faster disk for the store, or keep less state"
    )


def test_the_note_names_a_source_where_nothing_else_keeps_state() -> None:
    for processors, name in (("a source, q any", "'a'"), ("q any, r any", "a group without state")):
        intervals = Intervals(layout(processors, "a>q" if "a " in processors else "q>r", groups=EVERY))
        notes = [intervals.durable(by(1), 3.2, float(n)) for n in range(3)]
        assert str(notes[-1]).startswith(f"checkpoints of {name} should be made every 0.5 s")


def test_where_no_seconds_were_asked_for_none_are_missed() -> None:
    intervals = Intervals(layout(*LINE, groups=GroupInfo(10, None)))
    assert [intervals.durable(by(1), 99.0, float(n)) for n in range(5)] == [None] * 5


def test_the_coordinator_tells_when_a_cut_is_safe_and_the_metrics_count_it() -> None:
    coordinator = running()
    events: list[TimelineEvent] = []
    for number, now in ((3, 1.0), (6, 3.0)):
        for worker in range(2):
            coordinator.hear(Completed(Place(worker), 1, ((number,),)), now)
        for worker in range(2):
            coordinator.hear(Durable(Place(worker), 1, 0, (number,), xis(number)), now + 0.25)
        write(coordinator)
        effects = coordinator.take()
        assert not any(isinstance(effect, Note) for effect in effects)
        events += [effect for effect in effects if isinstance(effect, TimelineEvent) and effect.kind == "safe"]
    assert [event.data for event in events] == [
        {"group": 0, "epoch": 3, "seconds": 0.25},
        {"group": 0, "epoch": 6, "seconds": 0.25, "interval": 2.0},
    ]
    hub = Hub()
    hub.happened(events)
    text = metrics(hub, 4.0).decode()
    assert 'falkirk_cut_interval_seconds_bucket{group="0",le="1.5"} 0.0' in text
    assert 'falkirk_cut_interval_seconds_bucket{group="0",le="2.5"} 1.0' in text
    assert 'falkirk_cut_interval_seconds_sum{group="0"} 2.0' in text
    assert 'falkirk_cut_to_low_watermark_seconds_count{group="0"} 2.0' in text
