"""Two jobs that write to the same place: neither loses or changes what the other has written, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink, SqliteSink
from libraries.spark.engine.writers import Writers
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.runtime.job_under_test import PER_EPOCH, expected, word
from tests.support.beside import run_beside
from timely.dataflow.graph import Graph
from timely.errors import SinkError
from timely.io import Batches, Iterable, Memory, Rate

ROOT = Path(__file__).resolve().parents[3]
RECORDS = 900

FIRST = """
import sys
from pathlib import Path
from tests.runtime.supervisor.test_two_jobs import job
job(Path(sys.argv[1]), "one", workers=1).run()
"""


def build(folder: str, files: str | None = None, per_second: float = 600) -> Dataflow:
    """Running counts into the files and the database of `folder`."""
    flow = Dataflow("words")
    words = flow.source("words", Rate(word, per_second, RECORDS, epoch_every=PER_EPOCH))
    counts = words.key_by(lambda w: w).count(name="count").records()
    rows = counts.map(lambda count: {"word": count[0], "count": count[1]})
    rows = rows.policy(falkirk.Lazy(every=0.1))
    rows.to(FileSink(Path(folder) / "files", name=files), name="files")
    rows.to(SqliteSink(Path(folder) / "counts.db", "counts"), name="database")
    return flow


def job(folder: Path, store: str, workers: int = 2, **args: Any) -> Job:
    program = Program(flow=build, args={"folder": str(folder), **args})
    return Job(program, workers, folder / store, None, lambda *_: None, lambda _: None)


def kill_after(running: Job, epochs: int, folder: Path, name: str) -> None:
    """Kill the last worker of a job when so many epochs are in its files, unless it is done before that is seen."""
    deadline = time.monotonic() + 120
    while (there := len(in_files(folder, name))) < epochs or not running.pids:
        assert time.monotonic() < deadline, "no output"
        if there == RECORDS // PER_EPOCH:
            return
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.kill(running.pids[-1], signal.SIGKILL)


def rows(folder: Path) -> Counter[Any]:
    connection = sqlite3.connect(folder / "counts.db", timeout=30)
    try:
        return Counter(connection.execute("SELECT word, count FROM counts"))
    except sqlite3.OperationalError:  # there is no table yet
        return Counter()
    finally:
        connection.close()


def in_files(folder: Path, name: str = "") -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for path in (folder / "files").glob(f"{name}epoch-*"):
        epoch = found.setdefault(int(path.name.removeprefix(name).split("-")[1]), {})
        epoch.update({row["word"]: row["count"] for row in map(json.loads, path.read_text().splitlines())})
    return found


def once() -> Counter[Any]:
    return Counter(pair for epoch in expected(RECORDS).values() for pair in epoch.items())


@pytest.mark.check
def test_jobs_at_the_same_time_with_kills(tmp_path: Path) -> None:
    """Both have rows in one table of one database, and files of their own in one folder."""
    first, second = job(tmp_path, "one"), job(tmp_path, "two", files="second")
    problems: list[BaseException] = []

    def run_second() -> None:
        try:
            second.run()
        except BaseException as error:
            problems.append(error)

    def strike() -> None:
        for running, name, epochs in ((first, "", 4), (second, "second-", 6), (first, "", 10)):
            kill_after(running, epochs, tmp_path, name)

    other = threading.Thread(target=run_second)
    other.start()
    run_beside(first.run, strike)
    other.join(120)
    assert not problems
    assert rows(tmp_path) == once() + once()
    assert in_files(tmp_path) == in_files(tmp_path, "second-") == expected(RECORDS)


@pytest.mark.check
def test_a_second_job_on_the_same_database_has_all_its_rows_and_the_first_goes_on_with_its_own(tmp_path: Path) -> None:
    """The first is killed whole, half-way; another takes its place with a new store; then the first goes on."""
    process = subprocess.Popen([sys.executable, "-c", FIRST, str(tmp_path)], cwd=ROOT, start_new_session=True)
    deadline = time.monotonic() + 120
    while not rows(tmp_path):
        assert time.monotonic() < deadline, "no output"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # its workers end by themselves
    half = rows(tmp_path)
    assert set() < set(half) < set(once())
    falkirk.run(lambda: build(str(tmp_path), "second", per_second=1e9))
    assert rows(tmp_path) == half + once()
    job(tmp_path, "one", workers=1).run()
    assert rows(tmp_path) == once() + once()
    assert in_files(tmp_path) == in_files(tmp_path, "second-") == expected(RECORDS)


@pytest.mark.check
@pytest.mark.spark
def test_files_of_another_job_are_left_alone_by_the_engine_on_spark(tmp_path: Path) -> None:
    """Whoever began: a run without a store is a job of its own, on either engine."""

    def flow_into(sink: Any) -> Dataflow:
        flow = Dataflow("numbers")
        flow.columns("in", Batches([pl.DataFrame({"n": [1, 2]}), pl.DataFrame({"n": [3]})])).to(sink, name="files")
        return flow

    def files(folder: str) -> dict[str, str]:
        return {path.name: path.read_text() for path in (tmp_path / folder).iterdir() if path.name[0] != "."}

    for engine in ("falkirk", "spark"):
        falkirk.run(partial(flow_into, FileSink(tmp_path / engine)), engine=engine)
        before = files(engine)
        assert len(before) == 2
        for other in ("spark", "falkirk"):
            with pytest.raises(
                SinkError, match=r"sink 'files' .*: another job writes here, its files are epoch-0.*name="
            ):
                falkirk.run(partial(flow_into, FileSink(tmp_path / engine)), engine=other)
        assert files(engine) == before
        falkirk.run(partial(flow_into, FileSink(tmp_path / engine, name="again")), engine="spark")
        assert files(engine) == before | {f"again-{name}": text for name, text in before.items()}

    def twice() -> Dataflow:
        flow = flow_into(FileSink(tmp_path / "out"))
        flow.columns("more", Batches([pl.DataFrame({"n": [4]})])).to(FileSink(tmp_path / "out"), name="others")
        return flow

    with pytest.raises(SinkError, match=r"sink 'others' .*: sink 'files' of this job writes here, too"):
        falkirk.run(twice, engine="spark")
    for _ in range(2):
        falkirk.run(lambda: flow_into(SqliteSink(tmp_path / "out.db", "t")), engine="spark")
    connection = sqlite3.connect(tmp_path / "out.db")
    assert sorted(connection.execute("SELECT n FROM t")) == [(1,), (1,), (2,), (2,), (3,), (3,)]
    connection.close()


def test_sinks_of_the_engine_on_spark_belong_to_a_job(tmp_path: Path) -> None:
    """Without Spark, which has no part in it."""

    def graph() -> Graph:
        flow = Dataflow("numbers")
        flow.columns("in", Batches([pl.DataFrame({"n": [1, 2]})])).to(FileSink(tmp_path / "out"), name="files")
        return flow.graph

    def write(job: str) -> None:
        with Writers(graph(), job) as writers:
            [writer] = writers._writers.values()
            writer.write(0, [{"n": 1}])
            writer.commit(0)
            writers.close()

    write("one")
    write("one")
    with pytest.raises(SinkError, match=r"sink 'files' .*: another job writes here, its files are epoch-0.*name="):
        write("two")


def test_files_of_another_job_are_left_alone_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    def run(store: str | None = None, name: str | None = None) -> None:
        flow = Dataflow("numbers")
        numbers = flow.source("in", Iterable(range(8), epoch_every=4))
        numbers.to(FileSink(tmp_path / "out", name=name), name="files")
        falkirk.run(flow, store=None if store is None else tmp_path / store)

    def files() -> dict[str, str]:
        return {path.name: path.read_text() for path in (tmp_path / "out").iterdir() if path.name[0] != "."}

    run("one")
    before = files()
    assert len(before) == 2
    for store in ("two", None):
        with pytest.raises(
            SinkError, match=r"sink 'files' .*out: another job writes here, its files are epoch-0.*name="
        ):
            run(store)
    assert files() == before
    run("one")  # it is over: nothing is left to do
    run(None, "again")
    assert files() == before | {f"again-{name}": text for name, text in before.items()}
    for path in (tmp_path / "out").glob("epoch-*"):
        path.unlink()
    run("three")  # nobody's files are there
    assert len(files()) == 4


def test_a_job_that_finds_its_empty_folder_taken_over_writes_nothing(tmp_path: Path) -> None:
    first, second = (FileSink(tmp_path).for_job(job, "files").open(0, 1) for job in ("a", "b"))
    second.write(0, [1])
    second.commit(0)
    first.write(0, [2])
    with pytest.raises(SinkError, match="another job writes here"):
        first.commit(0)
    assert (tmp_path / "epoch-0000000000-w0.jsonl").read_text() == "1\n"


def test_files_that_nobody_claims_and_two_sinks_of_one_job_are_errors(tmp_path: Path) -> None:
    (tmp_path / "epoch-0000000003-w0.csv").touch()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(SinkError, match=r"no job .* has written \(epoch-0000000003-w0.csv\)"):
        FileSink(tmp_path).for_job("a", "files").open(0, 1)
    (tmp_path / "epoch-0000000003-w0.csv").unlink()
    (tmp_path / ".falkirk-job").write_text('{"job":')  # torn: it died before it wrote anything else
    for worker in (0, 1, 0):
        FileSink(tmp_path).for_job("a", "files").open(worker, 2)
    flow = Dataflow("twice")
    numbers = flow.source("in", Iterable(range(8), epoch_every=4))
    numbers.to(FileSink(tmp_path / "out"), name="files")
    numbers.to(FileSink(tmp_path / "out"), name="others")
    with pytest.raises(SinkError, match=r"sink 'others' .*: sink 'files' of this job writes here, too"):
        falkirk.run(flow)


def test_two_sinks_of_one_job_on_one_table_both_have_their_rows(tmp_path: Path) -> None:
    flow = Dataflow("twice")
    numbers = flow.source("in", Iterable(range(8), epoch_every=4)).map(lambda n: {"n": n})
    for name in ("one", "two"):
        numbers.to(SqliteSink(tmp_path / "out.db", "t"), name=name)
    falkirk.run(flow)
    connection = sqlite3.connect(tmp_path / "out.db")
    assert sorted(connection.execute("SELECT n FROM t")) == [(n // 2,) for n in range(16)]
    connection.close()


def test_memory_holds_what_the_last_job_wrote() -> None:
    memory = Memory()
    for count in (12, 4):
        flow = Dataflow("numbers")
        flow.source("in", Iterable(range(count), epoch_every=4)).to(memory)
        falkirk.run(flow)
        assert memory.records() == list(range(count))
