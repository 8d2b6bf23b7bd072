"""Mates as real processes: a worker that dies is followed by one that has its state, whoever else dies with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import falkirk
from runtime.supervisor.placement import LocalWorkers
from runtime.supervisor.processes import Child
from tests.runtime.job_under_test import GATE, build, check
from tests.runtime.watched import RECORDS, Watched
from tests.support.processes import gone
from timely.errors import FalkirkError


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not ready():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.01)


class Mated(Watched):
    """A job of two workers with mates, which goes on to its end when it is let."""

    def __init__(self, folder: Path, heartbeat_timeout: float = 10.0) -> None:
        super().__init__(folder, 2, heartbeat_timeout, mates=1, gated=True)

    def mate(self, worker: int) -> int:
        """Process of the mate of a worker, when it has the worker's state."""
        place = self.job.place
        assert isinstance(place, LocalWorkers)
        until(lambda: worker in place.mates and place.mates[worker].caught_up)
        return place.mates[worker].pid

    def end(self) -> None:
        """Let the job go on to its end."""
        (self.folder / GATE).touch()


def test_a_mate_takes_the_place_of_its_worker_and_another_one_follows(tmp_path: Path) -> None:
    watched = Mated(tmp_path)
    followed: list[tuple[int, int]] = []

    def strike() -> None:
        watched.until(10)
        for worker in (1, 0, 1):
            mate, other = watched.mate(worker), watched.job.pids[1 - worker]
            os.kill(watched.job.pids[worker], signal.SIGKILL)
            until(lambda: len(watched.of("restored")) == 2 + len(followed))
            followed.append((mate, watched.job.pids[worker]))
            assert watched.job.pids[1 - worker] == other
        watched.end()

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert all(mate == pid for mate, pid in followed)
    assert watched.of("takeover") == [{"worker": 1}, {"worker": 0}, {"worker": 1}]
    assert {each["worker"] for each in watched.of("mate")} == {0, 1}
    assert [each["failed"] for each in watched.of("decided")] == [[0, 1], [1], [0], [1]]


def test_a_mate_that_dies_is_begun_anew_and_the_job_goes_on(tmp_path: Path) -> None:
    watched = Mated(tmp_path)
    died: list[int] = []

    def strike() -> None:
        watched.until(10)
        died.append(watched.mate(1))
        os.kill(died[0], signal.SIGKILL)
        until(lambda: any("the mate of worker 1 was killed by SIGKILL" in note for note in watched.notes))
        assert watched.mate(1) != died[0]
        watched.end()

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert gone(died[0])
    assert watched.of("failure") == watched.of("takeover") == []
    assert len(watched.of("decided")) == 1


def test_a_mate_takes_over_before_it_has_begun_to_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped until both orders are there."""
    watched, stopped = Mated(tmp_path), set[int]()
    real = LocalWorkers._begin_mate

    def begin(self: LocalWorkers, worker: int, child: Child) -> None:
        if worker == 0 and not stopped:
            stopped.add(child.pid)
            os.kill(child.pid, signal.SIGSTOP)
        real(self, worker, child)

    def strike() -> None:
        until(lambda: bool(stopped))
        os.kill(watched.job.pids[0], signal.SIGKILL)
        until(lambda: len(watched.of("takeover")) == 1)
        time.sleep(0.1)
        os.kill(*stopped, signal.SIGCONT)
        watched.end()

    monkeypatch.setattr(LocalWorkers, "_begin_mate", begin)
    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert [each["worker"] for each in watched.of("failure")] == [0], "the mate ended in place of taking over"


@pytest.mark.check
def test_a_worker_and_its_mate_die_together(tmp_path: Path) -> None:
    watched = Mated(tmp_path)

    def strike() -> None:
        watched.until(10)
        mate, worker = watched.mate(0), watched.job.pids[0]
        for pid in (mate, worker):
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(watched.of("restored")) == 2)
        assert watched.job.pids[0] not in (mate, worker)
        watched.end()

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))


@pytest.mark.check
def test_a_stopped_mate_is_ended_and_replaced(tmp_path: Path) -> None:
    watched = Mated(tmp_path, heartbeat_timeout=3.0)
    stopped: list[int] = []

    def strike() -> None:
        watched.until(10)
        stopped.append(watched.mate(0))
        os.kill(stopped[0], signal.SIGSTOP)
        until(lambda: gone(stopped[0]))
        until(lambda: watched.mate(0) != stopped[0])
        watched.end()

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert watched.of("failure") == []


@pytest.mark.check
def test_a_worker_that_wakes_after_its_mate_took_over_neither_sends_nor_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Mated(tmp_path, heartbeat_timeout=3.0)
    monkeypatch.setattr("runtime.supervisor.processes._KILL_SECONDS", 0.2)

    def strike() -> None:
        watched.until(10)
        mate, pid = watched.mate(0), watched.job.pids[0]
        process = next(child for child in watched.job.place.workers.values() if child.pid == pid).process
        assert process is not None
        process.kill = lambda: None  # type: ignore[method-assign]  # as if it hung in the kernel
        os.kill(pid, signal.SIGSTOP)
        until(lambda: mate in watched.job.pids)
        until(lambda: len(watched.of("restored")) == 2)
        assert not gone(pid)
        os.kill(pid, signal.SIGCONT)
        until(lambda: gone(pid))
        watched.end()

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert watched.of("takeover") == [{"worker": 0}]


@pytest.mark.check
def test_a_mate_that_falls_behind_for_good_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.supervisor.mates.BEHIND", -1)
    monkeypatch.setattr("runtime.supervisor.mates.BEHIND_SECONDS", 0.0)
    watched = Mated(tmp_path)

    def strike() -> None:
        watched.until(10)
        until(lambda: any("the mate of worker 1 has fallen behind for good; another" in note for note in watched.notes))
        monkeypatch.setattr("runtime.supervisor.mates.BEHIND", 2)
        watched.mate(1)
        watched.end()

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert {"worker": 1, "reason": "has fallen behind for good", "again": True} in watched.of("mate_lost")
    assert watched.of("failure") == []


@pytest.mark.check
def test_a_worker_goes_on_without_where_mates_fail_again_and_again(tmp_path: Path) -> None:
    watched = Mated(tmp_path)

    def strike() -> None:
        watched.until(10)
        place = watched.job.place
        assert isinstance(place, LocalWorkers)
        died: set[int] = set()

        def given_up() -> bool:
            mate = place.mates.get(1)
            if mate is not None and mate.pid not in died:
                died.add(mate.pid)
                os.kill(mate.pid, signal.SIGKILL)
            return place.mate_views[1].state == "none"

        until(given_up)
        watched.end()

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert any("as 4 before it: worker 1 goes on without a mate" in note for note in watched.notes)
    assert [each["again"] for each in watched.of("mate_lost") if each["worker"] == 1][-1] is False
    assert watched.of("failure") == []


def test_mates_are_refused_where_they_cannot_be(tmp_path: Path) -> None:
    flow = build(str(tmp_path))
    with pytest.raises(FalkirkError, match="mates= goes with store="):
        falkirk.run(flow, mates=1)
    with pytest.raises(FalkirkError, match="mates is 0 or 1"):
        falkirk.run(flow, store=tmp_path / "store", mates=2)
    with pytest.raises(FalkirkError, match="none of a Spark cluster"):
        falkirk.run(flow, store=tmp_path / "store", on="local[1]", mates=1)
