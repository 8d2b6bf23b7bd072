"""A job that stands still: it is seen, where, and nothing else is taken for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.coordination.coordinator import Coordinator
from monitor.coordination.effects import Effect, Send
from monitor.coordination.supervision import Busy, TimelineEvent
from recovery.place import Place
from recovery.protocol import END, ROWS, Closely, Completed, Observe, Observed, ObservedHold, Working
from tests.monitor.coordination.coordinators import PLAN, running
from tests.monitor.coordination.driven import DrivenCoordinator

LIMIT = 10.0


def observed(worker: int, epoch: int, *holds: ObservedHold, working: tuple[Working, ...] = ()) -> Observed:
    table = np.zeros((len(ROWS), len(PLAN.processors)), dtype=np.int64)
    table[ROWS.index("epoch")] = epoch
    closely = (Closely(1, ((epoch,),), holds),) if holds else ()
    return Observed(Place(worker), 1, table.tobytes(), 0, 0, None, (), closely, working)


def told(effects: list[Effect]) -> list[tuple[str, dict[str, Any]]]:
    found = [(each.kind, each.data) for each in effects if isinstance(each, TimelineEvent)]
    return [each for each in found if each[0] in ("stuck", "moves")]


def asked(effects: list[Effect]) -> list[Observe]:
    return [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Observe)]


def at_standstill(*holds: ObservedHold, working: tuple[Working, ...] = (), epoch: int = 4) -> DrivenCoordinator:
    """Two workers that have completed nothing for twice the limit, and say this when they are asked."""
    coordinator = running(stuck_seconds=LIMIT, heartbeat_seconds=1e9)
    now = 0.0
    while now < 2 * LIMIT:
        now += LIMIT / 10
        coordinator.tick(now)
        if asked(list(coordinator._given)):
            closely = coordinator.standstill.closely
            for worker in range(2):
                coordinator.hear(observed(worker, epoch, *(holds if closely else ()), working=working), now)
    return coordinator


def test_a_worker_that_does_not_come_back_is_stuck_until_it_does() -> None:
    coordinator = running(stuck_seconds=LIMIT, heartbeat_seconds=1e9)
    for now in range(1, 30):
        coordinator.happens(Busy(Place(1), now, 1, "second", "line 7"), now)
        coordinator.tick(now)
    assert told(coordinator.take()) == [
        ("stuck", {"processor": 1, "worker": 1, "name": "second", "what": "line 7 to return", "seconds": LIMIT})
    ]
    coordinator.happens(Busy(Place(1), 0.0), 30.0)
    coordinator.hear(Completed(Place(1), 1, ((3,),)), 30.0)
    coordinator.tick(30.0)
    assert [kind for kind, _ in told(coordinator.take())] == ["moves"]


@pytest.mark.parametrize("what", ["capability", "notification", "message", "batch", "commit"])
def test_who_holds_the_output_back_is_named(what: str) -> None:
    coordinator = at_standstill(ObservedHold(what, 0, (4,), 1, True))
    ((kind, data),) = told(coordinator.take())
    assert (kind, data["name"], data["worker"]) == ("stuck", "read", 0)
    assert "epoch 4" in data["what"]


def test_a_source_at_which_nothing_arrives_is_no_standstill() -> None:
    assert told(at_standstill(ObservedHold("position", 0, (4,), 1, True)).take()) == []


def test_work_that_others_do_is_no_standstill() -> None:
    working = (Working(0, 4, "Spark: task", 1, 8, 12.0),)
    assert told(at_standstill(ObservedHold("capability", 0, (4,), 1, True), working=working).take()) == []


def test_outputs_at_their_end_are_no_standstill() -> None:
    assert told(at_standstill(epoch=END).take()) == []


def test_nobody_is_asked_while_epochs_are_completed() -> None:
    coordinator = running(stuck_seconds=LIMIT, heartbeat_seconds=1e9)
    for epoch in range(1, 60):
        for worker in range(2):
            coordinator.hear(Completed(Place(worker), 1, ((epoch,),)), float(epoch))
        coordinator.tick(epoch + 0.5)
    assert asked(coordinator.take()) == []
    assert told(coordinator.take()) == []


def test_what_cannot_be_read_is_not_believed() -> None:
    coordinator = running(stuck_seconds=LIMIT, heartbeat_seconds=1e9)
    for worker, hold in enumerate(
        (ObservedHold("capability", 99, (4,), 1, True), ObservedHold("magic", 0, (4,), 1, True))
    ):
        coordinator.hear(observed(worker, 4, hold), 1.0)
    coordinator.hear(Observed(Place(0), 1, b"short", 0, 0, None), 1.0)
    coordinator.tick(2 * LIMIT)
    assert told(coordinator.take()) == []


def test_a_job_that_nobody_watches_asks_nobody() -> None:
    coordinator = running(heartbeat_seconds=1e9)
    for now in range(1000):
        coordinator.tick(float(now))
    assert asked(coordinator.take()) == []
    assert isinstance(coordinator, Coordinator)
