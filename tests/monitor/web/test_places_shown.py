"""Copies on the page and in the history: a row for each place, and numbers of those at work only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.coordination.coordinator import Coordinator, Settings
from monitor.coordination.supervision import Busy, TimelineEvent
from monitor.explain.verdict import Judge
from monitor.history.frames import Frame, pack, unpack
from monitor.web.hub import Hub
from monitor.web.questions import Act, answer_at_once
from monitor.web.recording import frame_of
from monitor.web.view import View
from recovery.place import Place, places
from recovery.protocol import ROWS, Observe, Observed, ToWorker
from runtime.page.protocol import DifferenceReader, DifferenceWriter
from runtime.page.watched import WatchedJob
from tests.monitor.web.test_metrics import scraped
from tests.recovery.layouts import LOOP, layout

PLAN = layout(*LOOP)
assert PLAN.workers == 2


def reported(place: Place, read: int) -> Observed:
    table = np.zeros((len(ROWS), len(PLAN.processors)), np.int64)
    return Observed(place, 0, table.tobytes(), read, read, 5, incarnation=1)


def watched(**more: Any) -> tuple[WatchedJob, list[tuple[Place, ToWorker]]]:
    sent: list[tuple[Place, ToWorker]] = []
    leads = Coordinator(PLAN, None, Settings(copies=2), 0.0)
    for number, status in enumerate(leads.workers):
        status.incarnation, status.failures = number, 10 * number
    return WatchedJob(leads, lambda asked: None, lambda *each: sent.append(each), lambda: 7.0, **more), sent


def test_a_page_has_a_row_for_each_place_and_counts_a_copy_nowhere() -> None:
    job, sent = watched()
    for place in places(2, copies=2):
        job.hear(reported(place, 5 if place.at_work else 1000))
    job.hear_busy(Busy(Place(0, 1), 61.5, 2, "map", "line 7", 100, 3, True))
    view = View(PLAN)
    view.update(DifferenceReader().next(DifferenceWriter().next(job.observe())))
    assert view.totals()["read"] == 10
    rows = view.workers()
    assert [row[:3] for row in rows] == [["absent", 0, 0], ["absent", 1, 10], ["absent", 2, 20], ["absent", 3, 30]]
    assert [row[6] for row in rows] == [0, 0, None, None]
    job.look(7.0, sampled=True)
    assert [(place, type(message)) for place, message in sent] == [(place, Observe) for place in places(2)]


def test_the_history_has_a_column_for_each_place() -> None:
    job, _ = watched()
    view = View(PLAN)
    view.update(job.observe())
    (frame,) = unpack(pack([frame_of(view, 77, 5)]))
    assert isinstance(frame, Frame)
    assert frame.workers.shape[1] == 4
    assert frame.workers[1].tolist() == [0, 1, 2, 3]
    assert frame.workers[3].tolist() == [0, 10, 20, 30]


def test_an_order_names_a_place() -> None:
    ordered: list[Place] = []

    def restart(place: Place) -> str:
        ordered.append(place)
        return "done"

    job, _ = watched(acts={"restart": restart})
    for order in (Act("restart", 1), Act("restart", 0, 1)):
        assert answer_at_once(job, order) == b'{"text":"done"}'
    assert ordered == [Place(1), Place(0, 1)]


@pytest.mark.parametrize(("data", "state"), [({"worker": 0}, "rolling back"), ({"worker": 0, "copy": 1}, "running")])
def test_the_failure_of_a_copy_is_no_rollback(data: dict[str, Any], state: str) -> None:
    judge = Judge([TimelineEvent("began", 0.0, {}), TimelineEvent("restored", 1.0, {})])
    judge.take(TimelineEvent("failure", 2.0, {**data, "reason": "killed"}))
    assert judge.verdict(True, 3.0).state == state


def test_metrics_name_a_copy_by_both_numbers() -> None:
    job, _ = watched()
    hub = Hub()
    hub.know(PLAN)
    hub.publish(job.observe())
    found = {name[1]: value for name, value in scraped(hub).items() if name[0] == "falkirk_worker_failures"}
    assert found == {"0": 0, "1": 10, "0/1": 20, "1/1": 30}
