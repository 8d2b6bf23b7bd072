"""Whole jobs on a real Spark cluster: one master and two workers on this machine, of which processes are killed."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import falkirk
from falkirk.what_if_view import predict
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.cluster.attempt import Ending, read_ending
from libraries.spark.cluster.calls import Calls
from libraries.spark.cluster.job import BarrierStage, cluster_job
from libraries.spark.cluster.session import SparkCluster
from libraries.spark.cluster.worker import check_shared
from libraries.spark.dataflow.placement import home
from libraries.spark.errors import SparkError
from libraries.spark.setup.options import SparkOptions
from monitor.coordination.supervision import Note
from recovery.place import Place
from recovery.store.address import StoreAddress
from recovery.store.identity import make_store_id
from recovery.store.interface import StoreGone
from recovery.store.local import LocalStore
from runtime.control import Here, tell
from runtime.processes.greeting import connect, new_token
from runtime.program import Program
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job
from tests.libraries.spark import region_under_test
from tests.libraries.spark.connect_server import server_for
from tests.libraries.spark.standalone import standalone_cluster
from tests.monitor.web.serving import when_ready
from tests.runtime.job_under_test import check
from tests.support.beside import run_beside
from tests.support.processes import monitor_pid
from tests.support.stores import beside
from timely.errors import FalkirkError, OperatorError, WorkerLost
from timely.io import Iterable

JOB = Path(__file__).resolve().parents[2] / "runtime" / "job_under_test.py"
RECORDS = 5000  # 100 epochs in 2 s
SETTINGS = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
PATIENCE = 240.0


# Without Spark


def test_spark_says_why_a_stage_failed() -> None:
    began = (
        "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure reason: "
        "Stage failed because barrier task ResultTask(3, 1) finished unsuccessfully.\n"
    )
    crashed = (
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'a' or'b' to 'true'.\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:1136)\n"
        "Caused by: java.io.EOFException\n\t... 22 more"
    )
    assert read_ending(began + crashed) == Ending("Python worker exited unexpectedly (crashed)", raised=False)
    lost = "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command exited with code 137"
    assert read_ending(began + lost) == Ending("Command exited with code 137", raised=False)
    raised = (
        "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
        'Traceback (most recent call last):\n  File "app.py", line 31, in h\n    if i: raise ValueError("my own\\nerror")\n'
        "          ^^^^^^\nValueError: my own\nerror\n SQLSTATE: 38000\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)"
    )
    assert read_ending(began + raised) == Ending("ValueError: my own\nerror", raised=True)
    assert read_ending("[SPARK-24819]: too few slots.\nmore") == Ending("[SPARK-24819]: too few slots", raised=False)


def test_only_tasks_that_know_the_secret_are_heard() -> None:
    token = new_token()
    calls = Calls("127.0.0.1", token, 2)
    here = Here(Place(1), 7, "host", 123)
    with connect(("127.0.0.1", calls.port)) as stranger, connect(("127.0.0.1", calls.port)) as task:
        stranger.sendall(bytes(len(token)))
        tell(stranger, Here(Place(0), 9, "elsewhere", 1))
        task.sendall(token)
        tell(task, here)
        tell(task, Note("more"))
        known = []
        deadline = time.monotonic() + 10
        while (not known or calls.callers) and time.monotonic() < deadline:
            known += calls.wait(0.1)
        ((said, control),) = known
        assert said == here
        assert control.read(wait=True) == [Note("more")]
        assert calls.callers == []
        with connect(("127.0.0.1", calls.port)) as odd:
            odd.sendall(token)
            tell(odd, Note("who says something else first is not heard"))
            while odd not in select.select([odd], [], [], 0)[0]:
                assert calls.wait(0.1) == []
    control.close()
    calls.close()


def test_store_that_is_not_shared_is_refused_where_a_worker_misses_it(tmp_path: Path) -> None:
    with pytest.raises(StoreGone, match=r"there is no folder .*missing on .*all hosts of the cluster share"):
        check_shared(StoreAddress.of(tmp_path / "missing"), b"x" * 16)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreGone, match=r"empty on .* is not the store of this job"):
        check_shared(StoreAddress.of(tmp_path / "empty"), b"x" * 16)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(StoreGone, match="is not the store of this job"):
        check_shared(StoreAddress.of(tmp_path / "other"), b"x" * 16)
    with LocalStore(tmp_path / "store") as store:
        identity = make_store_id(store, b"y" * 16)
    check_shared(StoreAddress.of(tmp_path / "store"), identity)
    with pytest.raises(StoreGone, match="is not the store of this job"):
        check_shared(StoreAddress.of(tmp_path / "store"), b"x" * 16)


def a_flow() -> Dataflow:
    flow = Dataflow("small")
    flow.source("numbers", Iterable(range(20), batch=5, epoch_every=5)).map(lambda n: n * n).capture("squares")
    return flow


def test_cluster_that_cannot_be_used_is_a_clear_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SparkError, match=f"spark://127.0.0.1:{port} does not answer"):
        falkirk.run(a_flow, workers=2, store=store, on=f"spark://127.0.0.1:{port}")
    with pytest.raises(SparkError, match="must be local"):
        falkirk.run(a_flow, workers=2, store=store, on="mesos://127.0.0.1:5050")
    with pytest.raises(SparkError, match="takes a SparkSession or the address of a master, not int"):
        falkirk.run(a_flow, workers=2, store=store, on=7)
    with pytest.raises(
        FalkirkError, match=r"no kind of store with addresses hdfs://; there are az://, file://, gs://, s3:// and paths"
    ):
        falkirk.run(a_flow, workers=2, store="hdfs://there/x", on="local[2]")
    with pytest.raises(FalkirkError, match="on= goes with store="):
        falkirk.run(a_flow, workers=2, on="local[2]")
    monkeypatch.setenv("FALKIRK_JAVA", str(tmp_path / "nowhere"))
    with pytest.raises(SparkError, match="needs Java 17"):
        falkirk.run(a_flow, workers=2, store=store, on="local[2]")


# With Spark


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of two workers, with room for two jobs of two tasks."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=2) as address:
        yield address


@pytest.fixture(scope="module")
def cluster(master: str) -> Iterator[SparkCluster]:
    """Spark on it, for all tests that bring their own session; one process can have one."""
    cluster = SparkCluster(SparkOptions(master=master, memory="512m", config=tuple(SETTINGS.items())))
    yield cluster
    cluster.close()


def stage_of(job: Job) -> BarrierStage:
    assert isinstance(job.place, BarrierStage)
    return job.place


class Watched:
    """A job on the cluster, and what has happened to it."""

    def __init__(
        self,
        cluster: SparkCluster,
        folder: Path,
        workers: int = 2,
        heartbeat_timeout: float = 30.0,
        program: Program | None = None,
        **arguments: Any,
    ) -> None:
        self.folder = folder
        self.cluster = cluster
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.notes: list[str] = []
        program = program or Program(path=str(JOB), args={"folder": str(folder), "records": RECORDS, **arguments})
        self.job = cluster_job(
            program, workers, folder / "store", cluster.session, None, self.hear, self.notes.append, heartbeat_timeout
        )
        self.stage = stage_of(self.job)

    @property
    def where(self) -> dict[int, tuple[str, int]]:
        """The host and the process of each worker that has called."""
        return {here.place.worker: (here.host, here.pid) for here in list(self.stage.processes.values())}

    def hear(self, kind: str, at: float, data: dict[str, Any]) -> None:
        self.events.append((kind, data))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [data for each, data in self.events if each == kind]

    def files(self) -> int:
        return len(list((self.folder / "files").glob("epoch-*")))

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < deadline, (self.notes, self.events[-5:])
            time.sleep(0.01)

    def run(self, disturb: Callable[[], None] = lambda: None) -> Any:
        return run_beside(self.job.run, disturb, PATIENCE)

    def quiet(self) -> bool:
        """True if Spark runs nothing any more."""
        return not self.cluster.context.statusTracker().getActiveJobsIds()


@pytest.mark.check
@pytest.mark.spark
def test_killed_worker_and_killed_executor_lead_to_a_rollback_and_the_same_output(
    tmp_path: Path, cluster: SparkCluster, record_property: Callable[[str, object], None]
) -> None:
    watched = Watched(cluster, tmp_path)

    def resumed(attempts: int, killed: int) -> None:
        struck = time.monotonic()
        os.kill(killed, signal.SIGKILL)
        watched.until(lambda: len(watched.of("restored")) == attempts)
        seconds = time.monotonic() - struck
        print(f"all workers run again {seconds:.2f} s after the kill")
        record_property(f"seconds until all workers run again after kill {attempts - 1}", seconds)
        before = watched.files()
        watched.until(lambda: watched.files() > before)

    def strike() -> None:
        watched.until(lambda: watched.files() >= 10 and len(watched.where) == 2)
        survivor = watched.where[0]
        resumed(2, watched.where[1][1])
        watched.until(lambda: len(watched.where) == 2)
        assert watched.where[0] == survivor
        assert watched.stage.attempts == 1
        resumed(3, executor_of(watched.where[0][1]))

    result = watched.run(strike)
    check(tmp_path, RECORDS, result.captured("counts"))
    assert watched.stage.attempts == 2
    assert [each["failed"] for each in watched.of("decided")] == [[0, 1], [1], [0, 1]]
    again = watched.of("decided")[-1]
    assert again["rolled_back"]
    assert sum("goes on, " in note for note in watched.notes) == 2, watched.notes
    assert re.match(r"process \d+ of worker 1 on \S+ was killed by SIGKILL", watched.notes[0]), watched.notes
    assert any("a task on the cluster was lost" in note for note in watched.notes)
    assert not any("takes its place" in note for note in watched.notes)  # a death is told of once
    assert watched.quiet()
    _, earlier = watched.job._gathered._before[0]
    assert earlier is not None
    assert result.stats[0].records - earlier.records < RECORDS  # the last attempt did not begin at the beginning


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_many_killed_workers_and_executors_on_a_cluster_lose_and_double_nothing(
    tmp_path: Path, cluster: SparkCluster, seed: int
) -> None:
    records, chance = 40_000, Random(seed)
    program = Program(path=str(JOB), args={"folder": str(tmp_path), "records": records, "per_second": 400})
    watched = Watched(cluster, tmp_path, program=program)
    killed, executors = 0, 0

    def strike() -> None:
        nonlocal killed, executors
        for number in range(12):
            before = watched.files()
            # Some epochs more: a worker that dies five times while nothing becomes durable ends the job.
            watched.until(lambda: len(watched.where) == 2 and watched.files() >= before + 5)  # noqa: B023
            pid = watched.where[chance.randrange(2)][1]
            executors += number % 6 == 5
            os.kill(executor_of(pid) if number % 6 == 5 else pid, signal.SIGKILL)
            killed += 1
            if chance.random() < 0.5:  # the other one, too, while the job recovers
                time.sleep(chance.random())
                for _, other in list(watched.where.values()):
                    if other != pid:
                        with suppress(ProcessLookupError):
                            os.kill(other, signal.SIGKILL)
                            killed += 1

    try:
        result = watched.run(strike)
    finally:
        print(*watched.notes, *watched.of("failure"), sep="\n")
    print(f"{killed} kills, {executors} of executors; {len(watched.of('decided'))} rounds")
    check(tmp_path, records, result.captured("counts"))
    assert watched.stage.attempts == 1 + executors, watched.notes
    assert watched.quiet()


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("inner", ["local[1]", "the cluster", "Spark Connect"])
def test_job_whose_region_has_a_spark_of_its_own_goes_on_when_its_worker_is_killed(
    tmp_path: Path, master: str, cluster: SparkCluster, inner: str
) -> None:
    """And when the server is, where the region runs on one."""
    with server_for("connect" if inner == "Spark Connect" else "local", tmp_path) as server:
        where = (
            {"master": master if inner == "the cluster" else inner} if server is None else {"connect": server.address}
        )
        program = Program(path=region_under_test.__file__, args={"folder": str(tmp_path), **where})
        watched = Watched(cluster, tmp_path, program=program)

        def strike() -> None:
            watched.until(lambda: watched.files() >= 2 and len(watched.where) == 2)
            _, python = watched.where[home(2)]
            os.kill(python, signal.SIGKILL)
            if server is not None:
                watched.until(lambda: watched.files() >= 5)
                server.kill()
                server.start()

        watched.run(strike)
    assert region_under_test.published(tmp_path) == region_under_test.expected()
    assert watched.stage.attempts == 1
    assert not beside(tmp_path / "store").files.exists()
    assert watched.quiet()


def executor_of(pid: int) -> int:
    """The executor that has started a process, by way of others."""
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return pid


@pytest.mark.check
@pytest.mark.spark
def test_error_of_the_program_names_operator_and_line_and_is_not_tried_again(
    tmp_path: Path, cluster: SparkCluster
) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "import falkirk\n"
        "def build():\n"
        "    flow = falkirk.Dataflow('wrong')\n"
        "    numbers = flow.source('numbers', falkirk.Iterable(range(100), batch=5, epoch_every=5))\n"
        "    numbers.map(lambda n: 1 // (n - 50), name='divide').capture('quotients')\n"
        "    return flow\n"
    )
    job = cluster_job(Program(path=str(program)), 2, tmp_path / "store", cluster.session, on_note=print)
    with pytest.raises(OperatorError, match=r"'divide' \(.*app\.py:5\) failed at time \(10,\): ZeroDivisionError"):
        job.run()
    assert stage_of(job).attempts == 1


@pytest.mark.spark
@pytest.mark.soak
def test_stopped_job_leaves_spark_and_goes_on_when_it_is_run_again(tmp_path: Path, cluster: SparkCluster) -> None:
    watched = Watched(cluster, tmp_path)

    def stop() -> None:
        watched.until(lambda: watched.files() >= 10)
        assert stop_job(tmp_path / "store", PATIENCE)

    with pytest.raises(JobStopped):
        watched.run(stop)
    watched.until(watched.quiet)
    written = watched.files()
    assert written < RECORDS // 50
    again = Watched(cluster, tmp_path)
    result = again.run()
    check(tmp_path, RECORDS)
    assert 0 < result.records <= RECORDS - 50 * 5
    assert len(result.captured("counts")) > 0
    third = Watched(cluster, tmp_path)
    third.run()
    assert third.job.over is not None
    assert third.job.over.before


@pytest.mark.spark
@pytest.mark.soak
def test_program_from_memory_runs_with_one_worker_and_with_too_many_says_so(
    tmp_path: Path, cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Dataflow:
        flow = Dataflow("squares")
        flow.source("numbers", Iterable(range(20), batch=5, epoch_every=5)).map(lambda n: n * n).capture("squares")
        return flow

    result = falkirk.run(build, workers=1, store=tmp_path / "one", on=cluster.session)
    assert sorted(n for _, batch in result.captured("squares") for n in batch) == [n * n for n in range(20)]
    monkeypatch.setattr("libraries.spark.cluster.session._EXECUTOR_SECONDS", 0.5)
    with pytest.raises(SparkError, match="runs at most 2 tasks at a time, and 3 workers"):
        falkirk.run(build, workers=3, store=tmp_path / "three", on=cluster.session)


@pytest.mark.spark
@pytest.mark.soak
def test_executors_without_the_packages_are_a_clear_error_and_not_tried_again(
    tmp_path: Path, cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(cluster.context, "pythonExec", str(bare))
    job = cluster_job(Program(flow=a_flow), 2, tmp_path / "store", cluster.session, on_note=print)
    with pytest.raises(SparkError, match=r"ModuleNotFoundError: No module named[\s\S]*PYSPARK_PYTHON"):
        job.run()
    assert stage_of(job).attempts == 1


@pytest.mark.spark
@pytest.mark.soak
def test_worker_that_hangs_is_replaced_alone(tmp_path: Path, cluster: SparkCluster) -> None:
    watched = Watched(cluster, tmp_path, heartbeat_timeout=2.0)
    hung: list[int] = []

    def strike() -> None:
        watched.until(lambda: watched.files() >= 10 and len(watched.where) == 2)
        hung.append(watched.where[1][1])
        os.kill(hung[0], signal.SIGSTOP)
        watched.until(lambda: len(watched.of("restored")) == 2)

    result = watched.run(strike)
    check(tmp_path, RECORDS, result.captured("counts"))
    assert re.match(r"worker 1 gave no sign of life for \d+\.\d s", watched.notes[0])
    assert watched.stage.attempts == 1
    assert not Path(f"/proc/{hung[0]}").exists()


@pytest.mark.spark
@pytest.mark.soak
def test_monitor_that_dies_is_replaced_while_the_stage_goes_on(tmp_path: Path, cluster: SparkCluster) -> None:
    watched = Watched(cluster, tmp_path)

    def strike() -> None:
        watched.until(lambda: watched.files() >= 10)
        pid = monitor_pid(watched.job)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    result = watched.run(strike)
    check(tmp_path, RECORDS, result.captured("counts"))
    assert watched.stage.attempts == 1
    assert watched.of("resumed") == [{"generation": 1}]


@pytest.mark.spark
@pytest.mark.soak
def test_command_runs_on_the_cluster_stops_by_ctrl_c_and_goes_on(
    tmp_path: Path, master: str, cluster: SparkCluster
) -> None:
    command = [sys.executable, "-m", "falkirk", "run", str(JOB), "-w", "2", "--store", str(tmp_path / "store")]
    command += ["--ui", "--on", master, "--arg", f"folder={tmp_path}", "--arg", f"records={RECORDS}"]
    for name, value in {**SETTINGS, "spark.driver.memory": "512m"}.items():
        command += ["--spark-conf", f"{name}={value}"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    while len(list((tmp_path / "files").glob("epoch-*"))) < 10:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    page = beside(tmp_path / "store").page.read_text()
    assert page.startswith("http://127.0.0.1:")
    assert "count" in [operator["name"] for operator in when_ready(page, "/api/job")["operators"]]
    assert predict(page, ["worker:1"]).answer["processors"]
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130, said
    assert re.search(r"stopped: by Ctrl-C after .* run it again with its store, and it goes on", said), said
    Watched(cluster, tmp_path).run()
    check(tmp_path, RECORDS)


@pytest.mark.spark
@pytest.mark.soak
def test_job_whose_workers_die_again_and_again_is_given_up(tmp_path: Path, cluster: SparkCluster) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "import os, falkirk\n"
        "def build():\n"
        "    flow = falkirk.Dataflow('dies')\n"
        "    numbers = flow.source('numbers', falkirk.Iterable(range(100), batch=5, epoch_every=5))\n"
        "    numbers.map(lambda n: os.kill(os.getpid(), 9)).capture('nothing')\n"
        "    return flow\n"
    )
    job = cluster_job(Program(path=str(program)), 1, tmp_path / "store", cluster.session, on_note=print)
    with pytest.raises(WorkerLost, match="has failed 5 times, and nothing more became durable"):
        job.run()
    assert stage_of(job).attempts == 1
