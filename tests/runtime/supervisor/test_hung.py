"""Processes that are stopped, not killed: they are noticed by their silence, ended and replaced. Who is only busy is not."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.runtime.job_under_test import check
from tests.runtime.watched import RECORDS, Watched
from tests.support.beside import run_beside
from tests.support.processes import gone, monitor_pid
from timely.io import Iterable

TIMEOUT = 3.0


def test_a_stopped_worker_is_ended_and_replaced(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 2, heartbeat_timeout=TIMEOUT)
    stopped: list[int] = []

    def strike() -> None:
        watched.until(10)
        stopped.append(watched.job.pids[1])
        os.kill(stopped[0], signal.SIGSTOP)

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    failures = watched.of("failure")
    assert [each["worker"] for each in failures] == [1]
    found = re.search(r"gave no sign of life for ([\d.]+) s", failures[0]["reason"])
    assert found is not None
    assert TIMEOUT <= float(found[1]) < 30
    assert any(note.startswith("worker 1 gave no sign of life") for note in watched.notes)
    assert gone(stopped[0])


@pytest.mark.check
def test_a_stopped_monitor_is_ended_and_replaced(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 2, heartbeat_timeout=TIMEOUT)

    def strike() -> None:
        watched.until(10)
        pids, monitor = watched.job.pids, monitor_pid(watched.job)
        assert monitor is not None
        os.kill(monitor, signal.SIGSTOP)
        watched.until(50)
        assert monitor_pid(watched.job) != monitor
        assert watched.job.pids == pids
        assert gone(monitor)

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert watched.of("failure") == []
    assert any(note.startswith("the monitor gave no sign of life") for note in watched.notes)


@pytest.mark.check
def test_a_worker_that_cannot_be_killed_is_fenced_and_ends_when_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that hangs in the kernel: it is given up, and goes on when its replacement has long been at work."""
    watched = Watched(tmp_path, 2, heartbeat_timeout=TIMEOUT)
    monkeypatch.setattr("runtime.supervisor.processes._KILL_SECONDS", 0.2)

    def strike() -> None:
        watched.until(10)
        pid = watched.job.pids[1]
        process = next(child for child in watched.job.place.workers.values() if child.pid == pid).process
        process.kill = lambda: None  # type: ignore[method-assign]
        os.kill(pid, signal.SIGSTOP)
        while locked(tmp_path / "counts.db"):  # of that nobody could relieve it, unless by killing it
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
            os.kill(pid, signal.SIGSTOP)
        while pid in watched.job.pids:
            time.sleep(0.01)
        watched.until(35)
        assert not gone(pid)
        os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 120
        while not gone(pid):
            assert time.monotonic() < deadline, "it goes on"
            time.sleep(0.01)

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert [each["failed"] for each in watched.of("decided")] == [[0, 1], [1]]


def locked(database: Path) -> bool:
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")  # a reader keeps others from committing, too
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
    return False


def waiting(gate: str) -> Dataflow:
    """One record takes until there is a file, and lets other threads run."""

    def slow(n: int) -> int:
        while n == 3 and not os.path.exists(gate):
            time.sleep(0.01)
        return n

    flow = Dataflow("waiting")
    numbers = flow.source("numbers", Iterable(range(6), epoch_every=1)).exchange(lambda n: n)
    numbers.map(slow, name="slow").capture("out")
    return flow


def computing(gate: str) -> Dataflow:
    """One record takes until there is a file, in calls that let no other thread run, each twice as long as the one before."""

    def slow(n: int) -> int:
        length = 1_000_000
        while n == 3 and not os.path.exists(gate):
            length *= 2
            sum(range(length))
        return n

    flow = Dataflow("computing")
    numbers = flow.source("numbers", Iterable(range(6), epoch_every=1)).exchange(lambda n: n)
    numbers.map(slow, name="slow").capture("out")
    return flow


def restoring(gate: str) -> Dataflow:
    """The first record takes until there is a file."""

    def slow(n: int) -> int:
        begun = time.monotonic()
        while not os.path.exists(gate):
            if time.monotonic() - begun > 60:
                raise TimeoutError("nobody has opened the gate")
            time.sleep(0.01)
        return n

    flow = Dataflow("restoring")
    numbers = flow.source("numbers", Iterable(range(6), epoch_every=1))
    numbers.map(slow, name="slow").exchange(lambda n: n).capture("out")
    return flow


def test_a_long_first_turn_begins_after_the_report_of_the_restore(tmp_path: Path) -> None:
    """The turn ends only when the monitor knows that all workers are restored."""
    gate = tmp_path / "gate"

    def see(kind: str, at: float, data: Mapping[str, object]) -> None:
        if kind == "restored":
            gate.touch()

    program = Program(flow=restoring, args={"gate": str(gate)})
    result = Job(program, 2, tmp_path / "store", on_event=see).run()
    assert sorted(n for _, batch in result.captured("out") for n in batch) == list(range(6))


@pytest.mark.parametrize("build", [waiting, pytest.param(computing, marks=pytest.mark.check)])
def test_a_worker_that_is_busy_is_not_ended_and_the_user_hears_of_it(
    tmp_path: Path, build: Callable[[str], Dataflow]
) -> None:
    notes: list[str] = []
    events: list[str] = []
    gate = tmp_path / "gate"

    def hear(note: str) -> None:
        notes.append(note)
        if note.startswith("worker 1 "):  # busy, or computing
            gate.touch()

    program = Program(flow=build, args={"gate": str(gate)})
    job = Job(
        program,
        2,
        tmp_path / "store",
        on_event=lambda kind, at, data: events.append(kind),
        on_note=hear,
        heartbeat_timeout=1.0,
    )
    result = job.run()
    assert sorted(n for _, batch in result.captured("out") for n in batch) == list(range(6))
    assert "failure" not in events
    if build is waiting:
        busy = rf"worker 1 has been busy for \d+ s with map 'slow' \({re.escape(__file__)}:\d+\), now in line \d+ of "
        assert any(re.match(busy, note) for note in notes), notes


@pytest.mark.check
def test_a_worker_that_gets_no_processor_is_not_ended(tmp_path: Path) -> None:
    """Others are served before it, until the user hears of that; or for a while, on a machine that serves it all the same."""
    notes, events, gate = list[str](), list[str](), tmp_path / "gate"
    failures: list[Mapping[str, object]] = []
    processor = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{processor}])\nprint(flush=True)\nwhile True: pass"
    program = Program(flow=waiting, args={"gate": str(gate)})
    told = threading.Event()

    def hear(note: str) -> None:
        notes.append(note)
        if note.startswith("worker 1 has given no sign of life"):
            told.set()

    def see(kind: str, at: float, data: Mapping[str, object]) -> None:
        events.append(kind)
        if kind == "failure":
            failures.append(data)

    job = Job(
        program,
        2,
        tmp_path / "store",
        on_event=see,
        on_note=hear,
        heartbeat_timeout=1.0,
    )
    pids: list[list[int]] = []

    def starve() -> None:
        try:
            while "restored" not in events:
                time.sleep(0.01)
            pids.append(job.pids)
            for thread in os.listdir(f"/proc/{job.pids[1]}/task"):
                os.sched_setaffinity(int(thread), [processor])
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
            told.wait(10)
            pids.append(job.pids)
        finally:
            for each in spinning:
                each.kill()
                each.communicate()
            gate.touch()

    spinning = [subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) for _ in range(2)]
    result = run_beside(job.run, starve)
    assert pids[0] == pids[1]
    assert failures == []
    assert sorted(n for _, batch in result.captured("out") for n in batch) == list(range(6))
    assert all("waits for a processor" in note or "computes" in note for note in notes if "no sign of life" in note)
