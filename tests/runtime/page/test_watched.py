"""Observations of a job, of whichever processes: counters of what was, and exposure within its share of time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.coordination.coordinator import Coordinator, Settings
from monitor.coordination.options import Options
from monitor.coordination.supervision import TimelineEvent
from monitor.coordination.workers import JobPhase
from monitor.explain.exposure import MONITOR, Fate, Reduced, fate
from monitor.web.view import COUNTED, View
from recovery.layout import Layout
from recovery.place import Place
from recovery.protocol import ROWS, Exposed, Observed
from runtime.page.exposing import SHARE, Exposing, RestoreTimes
from runtime.page.protocol import DifferenceReader, DifferenceWriter
from runtime.page.watched import WatchedJob
from tests.monitor.web.programs import wide_layout
from tests.recovery.layouts import LOOP, layout

PLAN = layout(*LOOP)


def said(plan: Layout, worker: int, incarnation: int, read: int, generation: int = 0) -> Observed:
    table = np.zeros((len(ROWS), len(plan.processors)), np.int64)
    for name in COUNTED:
        table[ROWS.index(name)] = read
    exposed = Exposed((0,), np.ones(len(plan.processors), np.int64).tobytes(), 0.001)
    return Observed(Place(worker), generation, table.tobytes(), read, read, 5, incarnation=incarnation, exposed=exposed)


def watched(plan: Layout) -> WatchedJob:
    leads = Coordinator(plan, None, Settings(), 0.0)
    return WatchedJob(leads, lambda asked: None, lambda worker, message: None, lambda: 7.0)


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.booleans(), st.integers(0, 9)), max_size=30))
def test_counters_never_go_back_whichever_processes_end_and_whatever_they_still_say(
    reports: list[tuple[int, bool, bool, int]],
) -> None:
    """Also of a page that is started anew, which has the newest observation only."""
    job, view = watched(PLAN), View(PLAN)
    sent, received = DifferenceWriter(), DifferenceReader()
    incarnations, counts, true = [0, 0], [0, 0], 0
    before = np.zeros((len(COUNTED), len(PLAN.processors)), np.int64)
    for worker, dies, again, more in reports:
        if dies:
            if counts[worker] and again:  # what was sent by the old process arrives after the new one has begun
                job.hear(said(PLAN, worker, incarnations[worker] + 1, 0))
                job.hear(said(PLAN, worker, incarnations[worker], 10**6))
            incarnations[worker] += 1
            counts[worker] = 0
        counts[worker] += more
        true += more
        job.hear(said(PLAN, worker, incarnations[worker], counts[worker]))
        view.update(received.next(sent.next(job.observe())))
        fresh = View(PLAN)
        fresh.update(DifferenceReader().next(DifferenceWriter().next(job.observe())))
        for each in (view, fresh):
            now = each.counted()
            assert now is not None
            assert (now >= before).all()
            assert set(now.ravel().tolist()) == {true}
            assert each.totals()["read"] == each.totals()["written"] == true
        before = now


def test_exposure_takes_its_share_of_the_time_and_no_more_however_much_there_is_to_solve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = wide_layout(40, workers=4)
    leads = Coordinator(plan, None, Settings(), 0.0)
    leads.phase = JobPhase.RUNNING
    spent = 0.0
    solved: list[int] = []

    def slow(reduced: Reduced, options: Options, failed: Collection[int], *more: Any) -> Fate:
        nonlocal spent
        spent += 0.03
        solved.extend(failed)
        return fate(reduced, options, failed, *more)

    monkeypatch.setattr("runtime.page.exposing.fate", slow)
    exposing = Exposing(leads, clock=lambda: spent)
    told = {w: (0.0, said(plan, w, 0, 5)) for w in range(4)}
    for second in range(1, 400):
        leads.options.version += 1
        before, found = spent, exposing.look(told, 1.0, {})
        assert spent <= second * SHARE + 0.03
        assert spent - before <= 0.06
    assert spent > 390 * SHARE
    assert solved == [0, 1, 2, 3] * (len(solved) // 4) + [0, 1, 2, 3][: len(solved) % 4], "they take turns"
    assert [each.who for each in found] == [0, 1, 2, 3, MONITOR]


def test_what_has_not_changed_is_not_solved_again() -> None:
    plan = wide_layout(40, workers=2)
    leads = Coordinator(plan, None, Settings(), 0.0)
    leads.phase = JobPhase.RUNNING
    exposing = Exposing(leads, clock=lambda: 0.0)
    told = {w: (0.0, said(plan, w, 0, 5)) for w in range(2)}
    exposing.look(told, 1.0, {})
    before = dict(exposing._fates)
    exposing.look(told, 1.0, {})
    assert all(exposing._fates[w] is before[w] for w in range(2))
    leads.phase = JobPhase.GATHERING
    assert exposing.look(told, 1.0, {}) == ()


def test_times_of_restoring_are_unknown_until_one_was_measured() -> None:
    times = RestoreTimes()
    assert (times.of_worker(mate=False), times.of_worker(mate=True), times.of_monitor) == (None, None, None)
    for at, drain in enumerate((0.1, 0.3, 0.2)):
        phases = {"drain": drain, "decide": 0.0, "restore": 0.1}
        times.take(TimelineEvent("restored", float(at), {"rollback": {"phases": phases}}))
    assert times.of_worker(mate=False) == times.of_other == 0.2 + 0.1
    assert times.of_worker(mate=True) == 0.2 + 0.1, "the best that is known"
    for mates, seconds in (([[1, 3, 0]], 0.05), ([[0, 3, 0]], 7.0)):  # by its mate; one of two by its mate
        rollback = {"phases": {"drain": seconds}, "mates": mates, "failed": [1]}
        times.take(TimelineEvent("restored", 5.0, {"rollback": rollback}))
    assert times.of_worker(mate=True) == times.of_takeover == 0.05
    assert times.of_other == pytest.approx(0.35)
    times.take(TimelineEvent("monitor", 10.0, {}))
    times.take(TimelineEvent("resumed", 10.25, {}))
    assert times.of_monitor == 0.25


@pytest.mark.parametrize(
    "wrong",
    [
        {"numbers": b""},
        {"numbers": b"1234567"},
        {"exposed": Exposed((), b"", None)},
        {"exposed": Exposed((0,), b"12345678", None)},
    ],
)
def test_an_observation_with_tables_of_other_sizes_is_left_out(wrong: dict[str, Any]) -> None:
    job = watched(PLAN)
    job.hear(replace(said(PLAN, 0, 0, 3), **wrong))
    assert job.observe().samples == {}
    job.hear(said(PLAN, 0, 0, 3))
    assert set(job.observe().samples) == {0}
