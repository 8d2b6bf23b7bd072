"""A monitor that is a process apart: the job outlives it, and waits for it with what only it can decide."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.msgpack import encode

from recovery.layout import lay_out
from runtime.control import Watch, frame
from runtime.processes.standalone_monitor import NoMonitor
from runtime.program import Program
from runtime.sources.limits import Limits
from runtime.supervisor.supervisor import Job
from tests.runtime.job_under_test import build, check
from tests.runtime.watched import RECORDS, ROOT, Watched
from tests.support.beside import run_beside
from tests.support.processes import gone, monitor_pid, wait_for
from tests.support.stores import beside
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError


class Monitors:
    """Starts `falkirk monitor`, and waits until it listens."""

    def __init__(self, processes: ExitStack) -> None:
        self._processes = processes

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "falkirk", "monitor", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        self._processes.callback(process.wait)
        self._processes.callback(process.kill)
        assert process.stderr is not None
        self._processes.callback(process.stderr.close)
        line = process.stderr.readline()
        assert "listens at" in line or "error" in line
        return process


@pytest.fixture
def monitors() -> Iterator[Monitors]:
    with ExitStack() as processes:
        yield Monitors(processes)


def test_a_job_goes_on_while_its_monitor_is_away_and_saves_when_it_is_back(tmp_path: Path, monitors: Monitors) -> None:
    store = tmp_path / "store"
    first = monitors.start(str(store))
    assert beside(store).monitor.stat().st_mode & 0o077 == 0
    records = 12_000  # all is read in 4.8 s, with a monitor or without
    watched = Watched(tmp_path, 2, monitor=store, records=records)

    def strike() -> None:
        watched.until(10)
        pids = watched.job.pids
        assert monitor_pid(watched.job) == first.pid
        first.kill()
        wait_for(lambda: watched.notes and 0 in watched.job.stats)
        before = watched.job.stats[0].records
        wait_for(lambda: watched.job.stats[0].records >= before + 200)  # it reads on
        written = len(list((tmp_path / "files").glob("epoch-*")))
        assert written < records // 50  # but nothing is safe, so nothing is published
        again = monitors.start(str(store))
        watched.until(written + 10)
        assert watched.job.pids == pids
        assert monitor_pid(watched.job) == again.pid
        os.kill(pids[1], signal.SIGKILL)

    check(tmp_path, records, watched.run(strike).captured("counts"))
    assert "has gone" in watched.notes[0]
    assert "is there again" in watched.notes[1]
    assert [each["failed"] for each in watched.of("decided")] == [[0, 1], [1]]
    done = Watched(tmp_path, 2, monitor=store, records=records)  # the same monitor waits for the next job of this store
    done.run(lambda: None)
    assert "finished by an earlier run" in done.notes[-1]


@pytest.mark.check
def test_a_worker_that_dies_while_the_monitor_is_away_is_replaced_when_it_is_back(
    tmp_path: Path, monitors: Monitors
) -> None:
    listen = str(tmp_path / "here")
    first = monitors.start(str(tmp_path / "store"), "--listen", listen)
    watched = Watched(tmp_path, 2, monitor=Path(listen))

    def strike() -> None:
        watched.until(10)
        pid = watched.job.pids[0]
        first.kill()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: watched.notes and gone(pid))
        monitors.start(str(tmp_path / "store"), "--listen", listen)

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))


@pytest.mark.soak
def test_what_waits_for_a_monitor_that_is_away_is_bounded(tmp_path: Path, monitors: Monitors) -> None:
    records, store = 12_000, tmp_path / "store"
    first = monitors.start(str(store))
    program = Program(flow=build, args={"folder": str(tmp_path), "records": records, "per_second": 2500})
    job = Job(program, 2, store, Limits(bytes=100_000), None, lambda text: None, 3.0, store)

    def read() -> int:
        return sum(stats.records for stats in job.stats.values())

    def strike() -> None:
        wait_for(lambda: len(list((tmp_path / "files").glob("epoch-*"))) >= 10)
        first.kill()
        before = -1
        deadline = time.monotonic() + 60
        while read() != before:
            assert time.monotonic() < deadline, "it reads on"
            before = read()
            time.sleep(4)
        stuck.append(before)
        monitors.start(str(store))

    stuck: list[int] = []
    result = run_beside(job.run, strike)
    assert len(stuck) == 1
    assert 500 <= stuck[0] < records
    check(tmp_path, records, result.captured("counts"))


def test_what_does_not_fit_is_refused(tmp_path: Path, monitors: Monitors) -> None:
    program = Program(flow=build, args={"folder": str(tmp_path)})
    with pytest.raises(NoMonitor, match="start it with falkirk monitor"):
        Job(program, 1, tmp_path / "store", monitor=tmp_path / "nobody")
    monitors.start(str(tmp_path / "other"))
    with pytest.raises(FalkirkError, match=r"watches the store .*other, and the job uses .*store"):
        Job(program, 1, tmp_path / "store", monitor=tmp_path / "other").run()
    second = monitors.start(str(tmp_path / "other"))
    assert second.wait(120) == 1


def test_who_is_no_job_does_not_keep_the_monitor_from_one_that_is(tmp_path: Path, monitors: Monitors) -> None:
    store = tmp_path / "store"
    monitor = monitors.start(str(store))
    layout = lay_out(compile_plan(build(str(tmp_path)).graph, 1))
    without_its_sockets = Watch(beside(store).address, 1, encode(layout), (), 1.0)
    for said in (b"", b"\0\0\0\0", b"\1\0\0\0\xc1", b"GET / HTTP/1.1\r\n\r\n", frame(encode(without_its_sockets))):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(beside(store).monitor))
            stranger.sendall(said)
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(str(beside(store).monitor))  # and says nothing, for as long as it may
    with silent:
        watched = Watched(tmp_path, 1, heartbeat_timeout=60.0, monitor=store, records=200)
        watched.run(lambda: None)
    check(tmp_path, 200)
    assert monitor.poll() is None
