"""A whole job with a region on Spark, as its user has it: what is told of a failed attempt, its memory, how it stops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from falkirk.job_memory import job_processes
from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch
from tests.libraries.spark.connect_server import RUNNERS, server_for
from tests.monitor.web.serving import ask, streaming
from tests.support.processes import gone, parent, wait_for
from tests.support.stores import beside
from timely.io import Batches

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).resolve().parents[3]
STOP_SECONDS, STOP_STARTS = 8.0, 5
"""Seconds that a job may take to end that was asked to: 3 of them are for what does not answer. On a busy machine it may take
so many times as long as a command that does nothing."""

OPTIONS = spark.SparkOptions(memory="1g", nice=0, config=(("spark.sql.shuffle.partitions", "2"),))

APP = """
from tests.libraries.spark.test_whole_job import in_a_region, in_a_stream
"""


def held(folder: str, batches: Any) -> Any:
    """In Python of Spark's: fails as long as there is no file `go`, and then takes very long, and beats."""
    with open(f"{folder}/go"):
        Path(folder, "held").touch()
    for _ in range(12_000):
        time.sleep(0.05)
        with open(f"{folder}/beats", "a") as file:
            file.write(".")
    yield from batches


def options_for(connect: str | None) -> spark.SparkOptions:
    """Those of a Java of the job's own, or of the server at the address `connect`."""
    return OPTIONS if connect is None else spark.SparkOptions(connect=connect, nice=0)


def in_a_region(folder: str, connect: str | None = None) -> Dataflow:
    options = options_for(connect)
    flow = Dataflow("whole")
    rows = flow.columns("in", Batches([pl.DataFrame({"k": [1, 2]})]))
    with flow.region("history", policy=Batch(log_outputs=True)):
        found = spark.batch(
            rows, lambda df: df.mapInArrow(lambda given: held(folder, given), df.schema), options=options, name="slow"
        )
    found.capture("out")
    return flow


def in_a_stream(folder: str, connect: str | None = None) -> Dataflow:
    def opened(session: Any) -> Any:
        rows = session.readStream.schema("k long").parquet(f"{folder}/in")
        return rows.mapInArrow(lambda given: held(folder, given), rows.schema)

    flow = Dataflow("whole")
    flow.columns("in", spark.Stream(opened, options=options_for(connect))).capture("out")
    return flow


@contextmanager
def running(folder: Path, name: str = "in_a_region", *more: str) -> Iterator[subprocess.Popen[str]]:
    """The command, which is killed in the end, if it is still there."""
    (folder / "app.py").write_text(APP)
    (folder / "in").mkdir()
    pl.DataFrame({"k": [1, 2]}).write_parquet(folder / "in" / "0.parquet")
    command = [sys.executable, "-m", "falkirk", "run", f"{folder / 'app.py'}:{name}", "--store", str(folder / "store")]
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen([*command, "--arg", f"folder={folder}", *more], cwd=ROOT, stderr=said, text=True) as job,
    ):
        try:
            yield job
        finally:
            job.kill()


def below(pids: set[int]) -> set[int]:
    """All that these processes have started, and that those have; each of their threads may have."""
    found = set(pids)
    while True:
        started = set()
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(FileNotFoundError, ProcessLookupError):
                if pid not in found and parent(pid) in found:
                    started.add(pid)
        if not started:
            return found - pids
        found |= started


def test_failed_attempt_is_told_on_the_console_on_the_page_and_in_the_events_and_doctor_knows_all_processes(
    tmp_path: Path,
) -> None:
    said, events = tmp_path / "said", tmp_path / "events"
    with running(tmp_path, "in_a_region", "--ui", "--ui-port", "0", "--events", str(events)) as job:
        wait_for(lambda: "another one follows" in said.read_text())
        (tmp_path / "go").touch()
        wait_for(lambda: (tmp_path / "held").exists())
        (line,) = [each for each in said.read_text().splitlines() if "another one follows" in each]
        assert "slow" in line
        reason = f"No such file or directory: '{tmp_path}/go'"
        assert reason in said.read_text()
        timeline = ask(beside(tmp_path / "store").page.read_text(), "/api/timeline")["events"]
        for kept in (timeline, [json.loads(each) for each in events.read_text().splitlines()]):
            (note,) = [each for each in kept if each["kind"] == "note" and "another one follows" in each["text"]]
            assert reason in note["text"]

        doctor = [sys.executable, "-m", "falkirk", "doctor", "--run", str(tmp_path / "store")]
        done = subprocess.run(doctor, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        rows = [each.split(None, 5) for each in done.stdout.splitlines()[1:-1]]
        names = {int(pid): name for pid, _, _, _, _, name in rows}
        (keeper,) = [pid for pid, name in names.items() if name == "Spark daemon"]
        assert set(names) == {job.pid, keeper, *below({job.pid, keeper})}
        assert {
            "the command",
            "worker",
            "monitor",
            "page",
            "Spark client",
            "Java of Spark",
            "Python of Spark",
        } < set(names.values())
        assert all(float(size) > 0 for _, size, *_ in rows)


@pytest.mark.parametrize(("name", "operator"), [("in_a_region", "slow"), ("in_a_stream", "in")])
def test_what_spark_does_is_told_on_the_page_and_in_the_events(name: str, operator: str, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    file = tmp_path / "events"
    what = {"slow": "Spark: task", "in": "Spark runs the batch"}[operator]
    with running(tmp_path, name, "--ui", "--ui-port", "0", "--events", str(file)):
        wait_for(lambda: (tmp_path / "held").exists())
        url = beside(tmp_path / "store").page.read_text()
        names = [each["name"] for each in ask(url, "/api/job")["operators"]]
        with streaming(url, "/api/events"):  # somebody looks

            def working() -> Any:
                (worker,) = ask(url, f"/api/operator/{names.index(operator)}")["workers"]
                return [each for each in worker.get("working", ()) if each["what"] == what]

            wait_for(working)
            (told,) = working()
        assert told["epoch"] == 0
        assert told["total"] == (0 if operator == "in" else told["total"])
        events = [json.loads(line) for line in file.read_text().splitlines()]
        said = [event for event in events if event["kind"] == "working" and event["what"] == what]
        assert {(event["worker"], event["operator"], event["epoch"]) for event in said} == {(0, operator, 0)}
        steps = [(event["what"], event["done"], event["total"]) for event in events if event["kind"] == "working"]
        assert all(one != other for one, other in pairwise(steps)), "each once"


@pytest.mark.parametrize("name", ["in_a_region", "in_a_stream"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_job_is_stopped_in_seconds_while_spark_runs_a_query(runner: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with server_for(runner, tmp_path) as server:
        more = [] if server is None else ["--arg", f"connect={server.address}"]
        with running(tmp_path, name, *more) as job:
            wait_for(lambda: (tmp_path / "held").exists(), 400)  # a server that is busy is waited for
            all_of_it = [each.pid for each in job_processes(tmp_path / "store")]
            starts = seconds_of("--help")
            took = seconds_of("stop", str(tmp_path / "store"))
            print(f"stopped after {took} s, where a command starts in {starts} s")
            assert job.wait() == 143
            wait_for(lambda: all(map(gone, all_of_it)), 1)
            assert took < max(STOP_SECONDS, STOP_STARTS * starts)
        wait_for(lambda: is_still(tmp_path / "beats"), 30)


def seconds_of(*arguments: str) -> float:
    """Seconds that a command of falkirk takes, which must go well."""
    began = time.monotonic()
    command = [sys.executable, "-m", "falkirk", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def is_still(file: Path) -> bool:
    """True if nothing is written into a file, for a long time as tasks count."""
    before = file.stat().st_size
    time.sleep(1)
    return file.stat().st_size == before
