"""Workers as the monitor knows them."""

from __future__ import annotations

from monitor.coordination.workers import Presence, WorkerStatus, WorkerTable
from recovery.place import Place, places
from recovery.protocol import InMemory

CURRENT: tuple[InMemory, ...] | None = ()


def test_a_worker_that_is_gone_has_nothing_left_and_nothing_to_do() -> None:
    status = WorkerTable(places(1), places(1), 0.0)[Place(0)]
    status.must("join", 5.0)
    status.memory = CURRENT
    status.restored = status.paused = status.released = True
    status.leave()
    assert status.presence is Presence.ABSENT
    assert [status.memory, status.due] == [None, None]
    assert [status.restored, status.paused, status.released] == [False] * 3
    assert status.overdue(100.0, None) is None


def test_only_workers_of_the_job_are_in_the_table() -> None:
    table = WorkerTable(places(2), (), 0.0)
    strange = (Place(-1), Place(2), Place(0, 1), Place(0, -1), 0, "0", None)
    assert [each in table for each in (*places(2), *strange)] == [True] * 2 + [False] * 7


def test_a_process_counts_while_it_has_memory_if_it_is_the_one_that_does() -> None:
    status = WorkerStatus(Place(0), Presence.JOINED, 0.0, incarnation=3)
    assert not any(map(status.counts, (2, 3, None)))
    status.presence = Presence.ALIVE
    assert [status.counts(each) for each in (2, 3, 4, None)] == [False, True, False, True]
