"""The news for a page: the least frontiers and the sums of what is folded, and nothing that it knows already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replaced

from monitor.explain.verdict import Verdict
from monitor.web.fold import fold, group_tree
from monitor.web.view import (
    BARS,
    ENDED,
    FIELDS,
    STALE_SECONDS,
    UNKNOWN,
    Observation,
    View,
    WorkerView,
    _shorten,
    changes,
)
from recovery.layout import Layout
from recovery.metadata import MORE, NEVER, Bound, everything
from recovery.place import Place
from recovery.protocol import END, ROWS, Observed
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.standing import StandingJob
from tests.recovery.layouts import LOOP, layout


@pytest.mark.parametrize("closed", [[], ["hand-on"]])
def test_a_row_is_the_least_frontier_and_the_sum_of_what_it_stands_for(closed: list[str]) -> None:
    layout = example_layout("flights", workers=3)
    folding = fold(layout, group_tree(layout), closed=closed)
    job, view = StandingJob(layout), View(layout)
    seen = job.step()
    for _ in range(5):
        view.update(seen)
        seen = job.step()
    view.update(seen)
    tables = [
        np.frombuffer(reported.numbers, dtype=np.int64).reshape(len(ROWS), -1) for _, reported in seen.samples.values()
    ]
    for row, members in zip(view.rows(folding), folding.nodes):
        samples = dict(zip(FIELDS, row))
        assert samples["progress"] == min(table[ROWS.index("epoch"), p] for table in tables for p in members)
        assert samples["low"] == min(bounds[p][0] for bounds in seen.low for p in members)
        assert samples["pending"] == sum(table[ROWS.index("pending"), p] for table in tables for p in members)
        assert len(str(samples["bars"])) == 3


def test_rates_are_records_by_seconds_and_survive_a_counter_that_begins_anew() -> None:
    layout = example_layout("wordcount")
    job, view = StandingJob(layout), View(layout)
    view.update(job.step(1.0))
    before = {worker: reported.read for worker, (_, reported) in job.samples.items()}
    for _ in range(30):
        view.update(job.step(1.0))
    read = {worker: reported.read for worker, (_, reported) in job.samples.items()}
    rate = sum(read[worker] - before[worker] for worker in read) / 30
    assert view.totals()["rate"] == pytest.approx(rate, rel=0.1)
    job._tables[:] = 0  # another process has taken over
    job.epoch = 0
    view.update(job.step(1.0))
    assert all(float(row[4]) >= 0 for row in view.rows(fold(layout, group_tree(layout))))


def test_what_is_kept_covers_as_much_as_its_least_sender_keeps() -> None:
    layout = example_layout("flights", workers=2)
    job, view = StandingJob(layout), View(layout)
    for _ in range(5):
        view.update(job.step())
    assert view.totals()["covered"] == 1.0
    seen = job.step()
    at, reported = seen.samples[1]
    table = np.frombuffer(reported.numbers, dtype=np.int64).reshape(len(ROWS), -1).copy()
    behind = int(np.argmax([int(table[ROWS.index("epoch"), p]) - bounds[0] for p, bounds in enumerate(seen.low[1])]))
    low, epoch = seen.low[1][behind][0], int(table[ROWS.index("epoch"), behind])
    assert epoch - low > 1
    table[ROWS.index("kept_from"), behind] = epoch - 1
    view.update(replace(seen, samples={**seen.samples, 1: (at + 1, replaced(reported, numbers=table.tobytes()))}))
    assert view.totals()["covered"] == pytest.approx(1 / (epoch - low), abs=0.01)


def test_only_what_has_changed_is_told() -> None:
    layout = wide_layout(60)
    folding = fold(layout, group_tree(layout))
    job, view = StandingJob(layout), View(layout)
    view.update(job.step())
    rows = view.rows(folding)
    assert changes(None, rows) == dict(enumerate(rows))
    view.update(replace(job.observe(), at=job.at + 1))
    assert changes(rows, view.rows(folding)) == {}
    view.update(job.step())
    after = view.rows(folding)
    assert changes(rows, after) == {node: row for node, row in enumerate(after) if row != rows[node]}


@pytest.mark.parametrize("bars", BARS)
def test_bars_compare_workers(bars: str) -> None:
    layout = wide_layout(20, workers=4)
    folding = fold(layout, group_tree(layout))
    job, view = StandingJob(layout), View(layout)
    for _ in range(4):
        view.update(job.step())
    for row in view.rows(folding, bars):
        assert set(str(row[-1])) <= set("0123456789abcdefghijklmnopqrstuvwxyz")
        assert len(str(row[-1])) == 4


def test_what_is_done_for_good_says_so() -> None:
    layout = example_layout("flights")
    job, view = StandingJob(layout), View(layout)
    job.low = tuple(tuple(everything(info.depth) for info in layout.processors) for _ in range(layout.workers))
    seen = job.observe()
    view.update(replace(seen, completed=tuple((NEVER,) * len(layout.groups) for _ in range(layout.workers))))
    for row in view.rows(fold(layout, group_tree(layout))):
        assert (row[0], row[2]) == (-1, -1)


# Numbers, one by one


def reported(
    count: int, worker: int = 0, newest: int | None = 0, latencies: Sequence[float] = (), **rows: Any
) -> Observed:
    """A report: rows of numbers by name, of all processors or of each."""
    table = np.zeros((len(ROWS), count), dtype=np.int64)
    for name, values in rows.items():
        if name in ROWS:
            table[ROWS.index(name)] = values
    return Observed(
        *(Place(worker), 1, table.tobytes(), rows.get("read", 0), rows.get("written", 0), newest, tuple(latencies)),
    )


def seen(
    plan: Layout,
    at: float,
    *samples: Observed,
    low: Sequence[Bound] | None = None,
    completed: tuple[tuple[int, ...] | None, ...] | None = None,
) -> Observation:
    """The monitor's knowledge at a moment, the same W of all workers."""
    bounds = tuple(low or (tuple(info.nothing for info in plan.processors)))
    views = tuple(WorkerView("alive", 10 + worker, 20 + worker) for worker in range(plan.workers))
    known = completed or (None,) * plan.workers
    heard = {each.place.worker: (at, each) for each in samples}
    return Observation(at, "running", 1, (bounds,) * plan.workers, known, views, heard)


def rows_of(view: View, bars: str = "busy", closed: Sequence[str] = ()) -> list[dict[str, Any]]:
    rows = view.rows(fold(view.layout, group_tree(view.layout), closed=closed), bars)
    return [dict(zip(FIELDS, row)) for row in rows]


PLAN = layout(*LOOP)
COUNT = len(PLAN.processors)
DEPTHS = [info.depth for info in PLAN.processors]


def test_frontiers_are_the_least_of_all_workers_with_what_follows_the_epoch_in_loops() -> None:
    view = View(PLAN)
    low = [(3,) if depth == 1 else (2, 5, MORE, 4) for depth in DEPTHS]
    low = [bound[: DEPTHS[p]] for p, bound in enumerate(low)]
    mine = reported(COUNT, 0, epoch=[7] * COUNT, inner=[3 + p for p in range(COUNT)])
    other = reported(COUNT, 1, epoch=[7, 6, 8, 7, 7, 7, 9], inner=[0] * COUNT)
    view.update(seen(PLAN, 1.0, mine, other, low=low))
    rows = rows_of(view)
    progress = [(row["progress"], row["progress_inner"]) for row in rows]
    assert sorted(progress) == sorted([(7, 0), (6, 0), (7, 5), (7, 0), (7, 0), (7, 0), (7, 0)])
    assert sorted((row["low"], row["low_inner"]) for row in rows) == sorted([(3, 0)] * 3 + [(2, 5)] * 4)


def test_who_has_told_nothing_is_where_it_has_completed_and_no_further_back_than_its_low_watermark() -> None:
    view = View(PLAN)
    groups = len(PLAN.groups)
    view.update(seen(PLAN, 1.0, completed=((4,) * groups, None)))
    assert {row["progress"] for row in rows_of(view)} == {UNKNOWN}
    view.update(seen(PLAN, 2.0, completed=((4,) * groups, (6,) * groups)))
    assert {row["progress"] for row in rows_of(view)} == {4}
    low = [(5,) if depth == 1 else (5, 2) for depth in DEPTHS]
    view.update(seen(PLAN, 3.0, completed=((4,) * groups, (6,) * groups), low=low))
    assert {(row["progress"], row["progress_inner"]) for row in rows_of(view)} == {(5, 0), (5, 2)}
    done = [everything(depth) for depth in DEPTHS]
    view.update(seen(PLAN, 4.0, low=done))
    assert {(row["progress"], row["low"], row["low_inner"]) for row in rows_of(view)} == {(-1, -1, 0)}


def test_rates_follow_what_was_counted_between_two_reports_half_of_the_way_each_time() -> None:
    view = View(PLAN)

    def at(step: int) -> Observation:
        reports = (
            reported(COUNT, worker, taken=400 * step, sent=40 * step, busy=1_000_000 * step, read=100 * step)
            for worker in range(2)
        )
        return seen(PLAN, 10.0 + 2 * step, *reports)

    view.update(at(0))
    assert {(row["taken"], row["sent"], row["busy"]) for row in rows_of(view)} == {(0.0, 0.0, 0.0)}
    view.update(at(1))
    assert {(row["taken"], row["sent"], row["busy"]) for row in rows_of(view)} == {(200.0, 20.0, 0.5)}
    assert view.totals()["rate"] == 50.0
    again = at(2)
    view.update(again)
    view.update(again)
    assert {(row["taken"], row["sent"]) for row in rows_of(view)} == {(300.0, 30.0)}, "the same report says nothing new"
    view.update(seen(PLAN, 16.0, reported(COUNT), reported(COUNT, 1)))
    assert {row["taken"] for row in rows_of(view)} == {150.0}, "another process counts from the beginning"
    busy = seen(PLAN, 18.0, reported(COUNT, busy=9_000_000), reported(COUNT, 1))
    view.update(busy)
    assert max(row["busy"] for row in rows_of(view)) <= 1.0, "nobody works longer than it is"
    assert view.version == 6


def test_each_operator_of_each_worker_has_its_own_low_watermark() -> None:
    """Whatever the depth of the times of the others."""
    view = View(PLAN)
    low = [(3 + p,) if depth == 1 else (3 + p, 20 + p) for p, depth in enumerate(DEPTHS)]
    view.update(seen(PLAN, 1.0, low=low))
    folding = fold(PLAN, group_tree(PLAN))
    for (p,), row in zip(folding.nodes, view.rows(folding)):
        assert row[FIELDS.index("low")] == low[p][0]
        assert row[FIELDS.index("low_inner")] == (low[p][1] if DEPTHS[p] > 1 else 0)


def test_all_iterations_of_an_epoch_are_no_number() -> None:
    view = View(PLAN)
    for low in (END - 1, END, END + 1, NEVER):
        view.update(seen(PLAN, 1.0, low=[(3, low)[:depth] for depth in DEPTHS]))
        shown = low if low < END else 0
        assert {(row["low"], row["low_inner"]) for row in rows_of(view)} == {(3, 0), (3, shown)}


def test_two_reports_of_one_moment_have_no_rate_between_them() -> None:
    """Nor has one that was told before the last: clocks are set back."""
    view = View(PLAN)
    view.update(seen(PLAN, 5.0, reported(COUNT)))
    view.update(seen(PLAN, 5.0, reported(COUNT, taken=100, busy=50_000, read=100, epoch=4)))
    view.update(
        seen(PLAN, 4.0, reported(COUNT, taken=200, busy=90_000, read=200, epoch=5), reported(COUNT, 1, epoch=9))
    )
    assert {(row["taken"], row["busy"], row["progress"]) for row in rows_of(view)} == {(0.0, 0.0, 5)}
    assert view.totals()["rate"] == 0.0
    view.update(seen(PLAN, 6.0, reported(COUNT, taken=220, busy=90_000, read=240, epoch=5)))
    assert {(row["taken"], row["busy"]) for row in rows_of(view)} == {(5.0, 0.0)}
    assert view.totals()["rate"] == 10.0


def test_the_rate_of_reading_is_never_below_nothing() -> None:
    view = View(PLAN)
    view.update(seen(PLAN, 1.0, reported(COUNT, read=1000)))
    view.update(seen(PLAN, 2.0, reported(COUNT, read=10)))
    assert (view.totals()["rate"], view.workers()[0][4]) == (0.0, 0.0), "another process counts from the beginning"


def test_shares_of_time_have_two_digits() -> None:
    view = View(PLAN)
    view.update(seen(PLAN, 1.0, reported(COUNT)))
    view.update(seen(PLAN, 2.0, reported(COUNT, busy=[24_690] * COUNT)))
    assert {row["busy"] for row in rows_of(view)} == {0.01}
    assert view.workers()[0][5] == 0.09


def test_reports_of_another_generation_are_not_heard() -> None:
    view = View(PLAN)
    view.update(replace(seen(PLAN, 1.0, reported(COUNT, epoch=5)), generation=2))
    assert {row["progress"] for row in rows_of(view)} == {UNKNOWN}


def test_what_is_held_is_summed_over_workers_and_over_what_is_folded() -> None:
    view = View(PLAN)
    names = ("pending", "held", "queued", "rows", "bytes", "logged_bytes")
    numbers = {name: [10**at + p for p in range(COUNT)] for at, name in enumerate(names)}
    view.update(seen(PLAN, 1.0, reported(COUNT, 0, **numbers), reported(COUNT, 1, **numbers)))
    fields = ("pending", "held", "queued", "rows", "bytes", "logged")
    rows = rows_of(view)
    for at, name in enumerate(fields):
        assert sorted(row[name] for row in rows) == [2 * (10**at + p) for p in range(COUNT)]


def test_totals_say_how_the_job_is_doing() -> None:
    view = View(PLAN)
    kept = {"kept_from": -1, "bytes": 3, "logged_bytes": 5, "kept_bytes": 7}
    times = [0.001 * at for at in range(1, 200)]
    one = reported(COUNT, 0, 9, times[:100], epoch=8, read=11, written=3, **kept)
    other = reported(COUNT, 1, 7, times[100:], epoch=6, read=22, written=4, **kept)
    view.update(seen(PLAN, 5.0, one, other))
    assert view.totals() == {
        "newest": 9,
        "slowest": 7,
        "read": 33,
        "written": 7,
        "rate": 0.0,
        "open": 6,
        "low": 0,
        "p50": 0.1,
        "p99": 0.198,
        "state": 2 * COUNT * 3,
        "logged": 2 * COUNT * 5,
        "kept": 2 * COUNT * 7,
        "covered": 1.0,
        "age": 0.0,
        "exposed": None,
    }
    view.update(seen(PLAN, 15.0, replace_newest(one), replace_newest(other)))
    assert view.totals()["p50"] == 0.1, "they are ten seconds old"
    view.update(seen(PLAN, 15.5))
    assert (view.totals()["p50"], view.totals()["p99"]) == (None, None)
    assert view.newest() == ENDED, "all sources have ended"


@pytest.mark.parametrize("count", [1, 2, 3, 99, 100, 101, 250])
def test_latencies_are_told_by_their_ranks_however_they_come(count: int) -> None:
    view = View(PLAN)
    times = [0.100049 + at for at in range(count)]
    mixed = [times[at * 7 % count] if count % 7 else times[-1 - at] for at in range(count)]
    assert sorted(mixed) == times
    view.update(seen(PLAN, 5.0, reported(COUNT, 0, latencies=mixed)))
    samples = view.totals()["p50"], view.totals()["p99"]
    assert samples == (round(times[count // 2], 4), round(times[count * 99 // 100], 4))


@pytest.mark.parametrize(
    ("epoch", "low", "kept_from", "covered"),
    [
        (5, 2, -1, 1.0),  # nothing leaves it for other workers
        (5, 2, 0, 1.0),
        (5, 2, 2, 1.0),
        (5, 2, 3, 0.67),
        (5, 2, 5, 0.0),
        (5, 2, 7, 0.0),
        (3, 2, 2, 1.0),
        (3, 2, 3, 0.0),
        (2, 2, 0, 1.0),  # nothing has come since the last cut
        (2, 2, 2, 1.0),
        (1, 0, 0, 1.0),
        (1, 0, 1, 0.0),
    ],
)
def test_what_is_kept_is_a_share_of_the_epochs_since_the_last_cut(
    epoch: int, low: int, kept_from: int, covered: float
) -> None:
    view = View(PLAN)
    bounds = [(low,) if depth == 1 else (low, 0) for depth in DEPTHS]
    kept = [-1] * COUNT
    kept[1] = kept_from
    view.update(seen(PLAN, 1.0, reported(COUNT, 0, epoch=epoch, kept_from=kept), low=bounds))
    assert view.totals()["covered"] == covered


def test_what_begins_with_epoch_0_may_be_kept_from_there_and_lost_from_there() -> None:
    view = View(PLAN)
    view.update(seen(PLAN, 1.0, reported(COUNT, 0, epoch=4, kept_from=0), reported(COUNT, 1, epoch=4, kept_from=4)))
    assert view.totals()["covered"] == 0.0


def replace_newest(report: Observed) -> Observed:
    return replaced(report, newest=None, latencies=())


def test_how_far_the_job_is_is_how_far_its_outputs_are() -> None:
    view = View(PLAN)
    ends = [5 if info.role == "sink" else 3 for info in PLAN.processors]
    view.update(seen(PLAN, 1.0, reported(COUNT, 0, epoch=ends), reported(COUNT, 1, epoch=ends)))
    assert view.totals()["open"] == 5
    inner = layout("read source, map any", "read>map")
    other = View(inner)
    other.update(seen(inner, 1.0, reported(2, 0, epoch=[5, 3]), reported(2, 1, epoch=[5, 4])))
    assert other.totals()["open"] == 3, "where there is none, how far all are"
    other.update(seen(inner, 2.0, reported(2, 0, epoch=END), reported(2, 1, epoch=END), low=[everything(1)] * 2))
    assert (other.totals()["open"], other.totals()["low"]) == (-1, -1)


def test_of_each_worker_it_is_told_who_it_is_and_how_fast_and_how_busy() -> None:
    view = View(PLAN)
    view.update(seen(PLAN, 1.0, reported(COUNT, 0, 4)))
    view.update(seen(PLAN, 2.0, reported(COUNT, 0, 5, read=100, busy=[100_000] * COUNT)))
    assert view.workers() == [["alive", 10, 20, 5, 50.0, 0.35, 0], ["alive", 11, 21, None, None, None, None]]
    view.update(seen(PLAN, 3.0, reported(COUNT, 0, 5, read=100, busy=[900_000] * COUNT)))
    assert view.workers()[0][5] == 1.0


def test_nothing_that_is_unknown_looks_ended() -> None:
    view = View(PLAN)
    view.update(seen(PLAN, 1.0, completed=(None, None)))
    assert (view.newest(), view.totals()["read"], view.totals()["age"]) == (None, None, None)
    view.update(seen(PLAN, 2.0, reported(COUNT, 0, None)))
    assert view.newest() is None, "of the other worker nobody knows"
    hung = replace(seen(PLAN, 3.0, reported(COUNT, 0, None)), read={1: (5700, 54)})
    view.update(hung)
    assert (view.newest(), view.totals()["read"]) == (54, 5700)
    assert view.workers()[1][3] == 54
    view.update(replace(seen(PLAN, 3.0 + STALE_SECONDS, reported(COUNT, 0, None)), read={1: (5700, 54)}))
    gone = replace(seen(PLAN, 4.0, reported(COUNT, 0, None), reported(COUNT, 1, None)), live=False)
    view.update(gone)
    totals = view.totals()
    assert [totals[name] for name in ("newest", "read", "written", "rate", "state", "kept", "covered")] == [None] * 7
    view.update(replace(gone, verdict=Verdict("ended", "ended: all is done", 4.0)))
    assert view.newest() == ENDED


def test_what_was_said_long_ago_is_no_rate_of_now() -> None:
    view = View(PLAN)
    first = reported(COUNT, 0, 4), reported(COUNT, 1, 4)
    view.update(seen(PLAN, 1.0, *first))
    later = reported(COUNT, 0, 5, read=100), reported(COUNT, 1, 5, read=100)
    view.update(seen(PLAN, 2.0, *later))
    assert view.totals()["rate"] == 100.0
    samples = {each.place.worker: (2.0, each) for each in later}
    view.update(replace(seen(PLAN, 2.0 + STALE_SECONDS), samples=samples))
    assert view.totals()["rate"] is None
    assert view.totals()["age"] == STALE_SECONDS
    assert [row[4:] for row in view.workers()] == [[None, None, int(STALE_SECONDS)]] * 2


def test_work_is_unsafe_since_its_epoch_was_first_seen() -> None:
    view = View(PLAN)
    for at in range(1, 5):
        low = [(at,) + (0,) * (depth - 1) for depth in DEPTHS]
        view.update(seen(PLAN, float(at), reported(COUNT, 0, 2 * at), reported(COUNT, 1, 2 * at), low=low))
    assert set(view.unsafe().tolist()) == {2.0}, "epoch 4 was first seen at 2"
    view.update(
        seen(PLAN, 5.0, reported(COUNT, 0, 8), reported(COUNT, 1, 8), low=[everything(depth) for depth in DEPTHS])
    )
    assert set(view.unsafe().tolist()) == {float(ENDED)}
    assert {row["unsafe"] for row in rows_of(view)} == {ENDED}


@pytest.mark.parametrize(
    ("bars", "numbers", "letters"),
    [
        ("bytes", ({"bytes": 8}, {"bytes": 4}), "zi"),
        ("queued", ({"queued": 0}, {"queued": 0}), "00"),
        ("queued", ({"queued": 1}, {"queued": 100}), "1z"),
        ("lag", ({"epoch": 9}, {"epoch": 5}), "0z"),
        ("lag", ({"epoch": 3}, {"epoch": 6}), "zi"),
        ("lag", ({"epoch": END}, {"epoch": 6}), "0z"),
    ],
)
def test_a_bar_is_the_share_of_the_greatest_worker(bars: str, numbers: tuple[Any, Any], letters: str) -> None:
    view = View(PLAN)
    view.update(seen(PLAN, 1.0, *(reported(COUNT, worker, 9, **each) for worker, each in enumerate(numbers))))
    assert {row["bars"] for row in rows_of(view, bars)} == {letters}


def test_who_has_told_nothing_is_not_behind() -> None:
    view = View(PLAN)
    view.update(seen(PLAN, 1.0))
    assert {row["bars"] for row in rows_of(view, "lag")} == {"00"}
    view.update(seen(PLAN, 2.0, reported(COUNT, 0, None, epoch=END), reported(COUNT, 1, None)))
    assert {row["bars"] for row in rows_of(view, "lag")} == {"00"}, "no source is ahead of it any more"


def test_bars_of_work_compare_all_that_is_drawn_and_those_of_records_the_workers() -> None:
    view = View(PLAN)
    for step in range(2):
        work = [100_000 * step * (10 if p else 1) for p in range(COUNT)]
        reports = reported(COUNT, 0, busy=work, taken=work), reported(COUNT, 1, taken=[each // 2 for each in work])
        view.update(seen(PLAN, 1.0 + step, *reports))
    busy = sorted(row["bars"] for row in rows_of(view))
    assert (busy[0], busy[-1]) == ("40", "z0")
    assert {row["bars"] for row in rows_of(view, "taken")} == {"zi"}


@pytest.mark.parametrize(
    ("value", "short"),
    [
        (0, 0),
        (0.26, 0.3),
        (0.04, 0),
        (9.94, 9.9),
        (10, 10),
        (123, 120),
        (987.6, 990),
        (98765, 99000),
        (1_050_000, 1_000_000),
    ],
)
def test_rates_have_two_digits_that_count(value: float, short: float) -> None:
    """So that a page is not told of every flicker."""
    assert _shorten(np.array([value]))[0] == short
