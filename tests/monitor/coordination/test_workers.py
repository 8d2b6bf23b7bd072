"""Workers as the monitor knows them."""

from __future__ import annotations

from monitor.coordination.workers import Presence, WorkerStatus, WorkerTable
from recovery.protocol import InMemory

CURRENT: tuple[InMemory, ...] | None = ()


def test_a_worker_that_is_gone_has_nothing_left_and_nothing_to_do() -> None:
    status = WorkerTable(1, (0,), 0.0)[0]
    status.must("join", 5.0)
    status.memory = CURRENT
    status.restored = status.paused = status.released = True
    status.leave()
    assert status.presence is Presence.ABSENT
    assert [status.memory, status.due] == [None, None]
    assert [status.restored, status.paused, status.released] == [False] * 3
    assert status.overdue(100.0, None) is None


def test_only_workers_of_the_job_are_in_the_table() -> None:
    table = WorkerTable(2, (), 0.0)
    assert [each in table for each in (-1, 0, 1, 2, "0", None)] == [False, True, True, False, False, False]


def test_a_process_counts_while_it_has_memory_if_it_is_the_one_that_does() -> None:
    status = WorkerStatus(0, Presence.JOINED, 0.0, incarnation=3)
    assert not any(map(status.counts, (2, 3, None)))
    status.presence = Presence.ALIVE
    assert [status.counts(each) for each in (2, 3, 4, None)] == [False, True, False, True]
