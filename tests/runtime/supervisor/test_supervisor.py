"""A job with a store, as real processes: what dies comes back, and nobody can tell from the output."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falkirk.failures import explain
from falkirk.job_memory import job_processes
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink
from recovery.policy import Lazy
from recovery.store.address import StoreAddress
from recovery.store.interface import StoreBusy, StoreUnwritable
from runtime.control import Stats
from runtime.folders.workspace import Workspace
from runtime.program import Program
from runtime.supervisor.result import Gathered
from runtime.supervisor.starting import begin, begun, starts
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job
from tests.runtime.job_under_test import build, check
from tests.runtime.watched import RECORDS, ROOT, Watched, command, run
from tests.support.beside import run_beside
from tests.support.processes import descendants, gone, monitor_pid, wait_for
from tests.support.stores import beside
from timely.errors import FalkirkError, GraphError, OperatorError, WorkerLost
from timely.io import Rate


def test_a_killed_worker_is_replaced_and_the_others_go_on(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 2)
    pids: list[list[int]] = []

    def strike() -> None:
        for worker, files in ((1, 10), (0, 35)):
            watched.until(files)
            pids.append(watched.job.pids)
            os.kill(pids[-1][worker], signal.SIGKILL)
        while len(watched.job.pids) != 2 or watched.job.pids[0] == pids[-1][0]:
            time.sleep(0.01)
        pids.append(watched.job.pids)

    result = watched.run(strike)
    check(tmp_path, RECORDS, result.captured("counts"))
    before, between, after = pids
    assert between[0] == before[0]
    assert between[1] != before[1]
    assert after[1] == between[1]
    assert [(each["worker"], "SIGKILL" in each["reason"]) for each in watched.of("failure")] == [(1, True), (0, True)]
    told = [note for note in watched.notes if "takes its place" in note]
    assert [note.partition(":")[0] for note in told] == ["worker 1", "worker 0"]
    assert all("was killed by SIGKILL; another process" in note for note in told)
    assert [each["failed"] for each in watched.of("decided")] == [[0, 1], [1], [0]]
    assert all(gone(pid) for each in pids for pid in each)


def test_records_are_those_of_all_processes_that_have_been_a_worker() -> None:
    def said(records: int, written: int) -> Stats:
        return Stats(records, written, epoch=0, read_epoch=1, queued_bytes=0)

    gathered = Gathered(Dataflow())
    for worker, incarnation, stats in (
        (0, 1, said(10, 1)),
        (1, 1, said(7, 0)),
        (0, 1, said(30, 2)),
        (0, 2, said(5, 1)),  # its predecessor was killed
        (0, 2, said(20, 4)),
        (0, 3, said(1, 0)),
        (1, 1, said(9, 3)),
    ):
        gathered.hear(worker, incarnation, stats)
    assert {worker: (each.records, each.written) for worker, each in gathered.stats.items()} == {0: (51, 6), 1: (9, 3)}
    assert gathered.result().records == 60


def test_a_killed_monitor_is_replaced_and_no_worker_notices(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 2)

    def strike() -> None:
        watched.until(10)
        pids, monitor = watched.job.pids, monitor_pid(watched.job)
        assert monitor is not None
        os.kill(monitor, signal.SIGKILL)
        watched.until(50)
        assert watched.job.pids == pids
        assert monitor_pid(watched.job) != monitor

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert len(watched.of("decided")) == 1
    assert watched.of("resumed") == [{"generation": 1}]


@pytest.mark.check
def test_a_worker_and_the_monitor_die_at_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 2)

    def strike() -> None:
        watched.until(20)
        monitor = monitor_pid(watched.job)
        assert monitor is not None
        os.kill(watched.job.pids[0], signal.SIGKILL)
        os.kill(monitor, signal.SIGKILL)

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert [each["failed"] for each in watched.of("decided")] == [[0, 1], [0]]


@pytest.mark.check
def test_a_job_that_is_killed_as_a_whole_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    again = command(tmp_path, "-w", "2")
    private = Path(tempfile.mkdtemp())  # with a short path, for sockets
    first = subprocess.Popen(again, cwd=ROOT, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(private)})
    while len(list((tmp_path / "files").glob("epoch-*"))) < 20:
        time.sleep(0.01)
        assert first.poll() is None
    started = descendants(first.pid)
    assert len(started) >= 4
    told = job_processes(tmp_path / "store")
    assert {each.pid for each in told} == {first.pid, *started}
    assert [each.name for each in told[:2]] == ["the command", "fork server"]
    assert {each.name for each in told[2:]} == {"monitor", "worker"}
    assert all(each.resident >= each.share > 0 for each in told)
    assert len(list(private.glob("falkirk-*"))) == 1
    first.kill()
    first.wait()
    wait_for(lambda: all(gone(pid) for pid in started))
    with pytest.raises(FalkirkError, match="no job is using"):
        job_processes(tmp_path / "store")
    assert not list(private.glob("falkirk-*"))
    shutil.rmtree(private)
    code, said = run(again)
    assert code == 0, said
    check(tmp_path, RECORDS)


def test_falkirk_stop_stops_a_job_that_can_go_on(tmp_path: Path) -> None:
    slowly = command(tmp_path, "-w", "1", "--arg", "per_second=200")
    with subprocess.Popen(slowly, cwd=ROOT, stderr=subprocess.PIPE, text=True) as first:
        while len(list((tmp_path / "files").glob("epoch-*"))) < 10:
            time.sleep(0.01)
            assert first.poll() is None
        code, said = run([sys.executable, "-m", "falkirk", "stop", str(tmp_path / "store")])
        assert (code, said) == (0, f"stopped the job of {tmp_path / 'store'}\n")
        assert first.stderr is not None
        assert "by falkirk stop" in first.stderr.read()
    assert first.returncode == 143
    watched = Watched(tmp_path, 1)
    watched.run(lambda: None)
    check(tmp_path, RECORDS)


SLOW = """
import time
from pathlib import Path
import falkirk
from timely.io import Iterable

HERE = Path(__file__).parent
(HERE / "began").touch()
while not (HERE / "go").exists():
    time.sleep(0.01)
flow = falkirk.Dataflow("slow")
flow.source("numbers", Iterable(range(10**9), batch=10, epoch_every=10)).map(lambda n: n).probe("done")
"""


@pytest.mark.check
def test_job_that_still_starts_is_stopped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text(SLOW)
    store = tmp_path / "store"
    asked = threading.Event()

    def noted(folder: Any) -> bool:
        asked.set()
        return starts(folder)

    monkeypatch.setattr("runtime.supervisor.stop.starts", noted)
    stopped: list[bool] = []
    asks = threading.Thread(target=lambda: stopped.append(stop_job(store, 300.0)))
    command_ = [sys.executable, "-m", "falkirk", "run", "-q", str(tmp_path / "app.py"), "--store", str(store)]
    with subprocess.Popen(command_, cwd=ROOT) as job:
        wait_for((tmp_path / "began").exists)
        assert starts(StoreAddress.of(store))
        assert not store.exists()
        asks.start()
        asked.wait()
        (tmp_path / "go").touch()
        asks.join()
    assert stopped == [True]
    assert job.returncode == 143
    assert not starts(StoreAddress.of(store))


def test_there_is_no_job_to_be_stopped_where_one_has_died_as_it_started(tmp_path: Path) -> None:
    begin(StoreAddress.of(tmp_path / "store"))
    assert starts(StoreAddress.of(tmp_path / "store"))
    assert not starts(StoreAddress.of(tmp_path / "other"))
    begun()
    assert not stop_job(tmp_path / "store")
    assert not (tmp_path / "store").exists()


class Tally:
    """A sink that notes each commit, and nothing else."""

    exactly_once = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, worker: int, workers: int) -> Tally:
        return self

    def write(self, epoch: int, batch: Any) -> None:
        pass

    def commit(self, epoch: int) -> None:
        with self.path.open("a") as file:
            file.write(f"{epoch}\n")

    def abort(self) -> None:
        pass

    close = abort

    def committed(self) -> list[int]:
        return [int(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def tallied(path: str) -> Dataflow:
    flow = Dataflow("tallied")
    numbers = flow.source("numbers", Rate(lambda n: n, 2500, RECORDS, epoch_every=25))
    numbers.key_by(lambda n: n % 10).count().policy(Lazy(every=2)).records().to(Tally(Path(path)))
    return flow


@pytest.mark.check
def test_what_was_published_two_segments_ago_is_not_published_again_by_a_new_process(tmp_path: Path) -> None:
    tally, store = Tally(tmp_path / "tally"), tmp_path / "store"
    job = Job(Program(flow=tallied, args={"path": str(tally.path)}), 1, store)
    sure: list[list[int]] = []

    def segments() -> str:
        return max((path.name for path in (store / "worker-000").glob("segment-*")), default="")

    def wait(so_far: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not so_far():
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def strike() -> None:
        for at in (20, 60):
            wait(lambda at=at: len(set(tally.committed())) >= at)  # type: ignore[misc]
            done = tally.committed()
            for _ in range(2):  # the first may have been sealed before
                newest = segments()
                wait(lambda newest=newest: segments() > newest)  # type: ignore[misc]
            sure.append(done)
            os.kill(job.pids[0], signal.SIGKILL)

    run_beside(job.run, strike)
    found = tally.committed()
    assert sorted(set(found)) == list(range(RECORDS // 25))
    assert len(sure) == 2
    for done in sure:
        assert not set(done) & set(found[len(done) :])


def failing(folder: str) -> Dataflow:
    flow = Dataflow("failing")
    numbers = flow.source("numbers", Rate(lambda n: n, 2000, 2000, epoch_every=50)).exchange(lambda n: n)
    numbers.map(lambda n: 1 // (500 - n), name="divide").to(FileSink(folder))
    return flow


def test_an_error_of_the_program_ends_the_job_and_is_raised(tmp_path: Path) -> None:
    job = Job(Program(flow=failing, args={"folder": str(tmp_path / "out")}), 2, tmp_path / "store")
    with pytest.raises(OperatorError, match=r"map 'divide' .* failed at time"):
        job.run()


@pytest.mark.check
def test_one_worker_survives_its_death_but_not_that_of_its_store(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 1)

    def strike() -> None:
        watched.until(10)
        os.kill(watched.job.pids[0], signal.SIGKILL)
        watched.until(20)
        (tmp_path / "store").rename(tmp_path / "elsewhere")

    with pytest.raises(FalkirkError, match="was removed or replaced while the job was running"):
        watched.run(strike)
    assert len(watched.of("decided")) == 2
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    living = Workspace(beside(tmp_path / "store").files).folder("of the run before", living=True)
    again = Watched(tmp_path, 1)

    def look() -> None:
        again.until(40)
        assert living.parents[1].exists()
        assert not living.exists()

    again.run(look)
    check(tmp_path, RECORDS)


def test_what_cannot_be_begun_says_why(tmp_path: Path) -> None:
    by_hand = Dataflow()
    by_hand.input("in").map(len).capture()
    with pytest.raises(GraphError, match="fed by hand"):
        Job(Program(flow=by_hand), 1, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    file = tmp_path / "file"
    file.touch()
    program = Program(flow=build, args={"folder": str(tmp_path)})
    with pytest.raises(StoreUnwritable):
        Job(program, 1, file)
    job = Job(program, 1, tmp_path / "store")
    try:
        with pytest.raises(StoreBusy):
            Job(program, 1, tmp_path / "store")
    finally:
        job.close()


def dying(folder: str) -> Dataflow:
    flow = Dataflow("dying")
    numbers = flow.source("numbers", Rate(lambda n: n, 2000, 2000, epoch_every=50)).exchange(lambda n: n)
    numbers.map(lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == 501 else n, name="die").to(FileSink(folder))
    return flow


@pytest.mark.check
def test_a_job_whose_worker_dies_again_and_again_is_given_up_as_lost(tmp_path: Path) -> None:
    job = Job(Program(flow=dying, args={"folder": str(tmp_path / "out")}), 2, tmp_path / "store")
    with pytest.raises(WorkerLost, match=r"worker 1 has failed \d times.*SIGKILL") as lost:
        job.run()
    assert explain(lost.value).code == 3
