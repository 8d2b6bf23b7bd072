"""Real jobs that are killed in the midst of work, or stopped, and go on with another number of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from recovery.store.address import StoreAddress
from runtime.page.recorded import RecordedJob

APP = '''
import os
from pathlib import Path

import falkirk


class Paced:
    """Numbers in epochs of two, up to an epoch that a file names."""

    rereadable = True
    repeats = True
    layout_free = True

    def partitions(self, worker, workers):
        return [Part(i) for i in range(4) if i % workers == worker]


class Part:
    def __init__(self, number):
        self.name, self._number, self._next = f"part-{number}", number, 0

    def read(self):
        epoch = self._next // 2
        if epoch == EPOCHS:
            return falkirk.End()
        if epoch >= int(Path(os.environ["UPTO"]).read_text()):
            return falkirk.Wait(0.02)
        at, self._next = self._next, self._next + 1
        return falkirk.Chunk(epoch, [(f"k{(at * (self._number + 3)) % 13}", at)], self._next, self._next % 2 == 0)

    def seek(self, position):
        self._next = position or 0

    def ack(self, position):
        pass

    def close(self):
        pass


EPOCHS = 60


def told(key, value, timers):
    timers.state = (timers.state or 0) + value
    timers.set(timers.epoch + 3)


def due(key, epoch, timers):
    yield {"key": key, "due": epoch, "n": timers.state}


def build():
    flow = falkirk.Dataflow("paced")
    with flow.region("front", policy=falkirk.Lazy(every=5, log_outputs=True)):
        pairs = flow.source("in", Paced()).keyed()
        sums = pairs.sum()
    with flow.region("behind", policy=falkirk.Lazy(every=2)):
        late = sums.process(told, due)
    sums.records().map(lambda pair: {"key": pair[0], "n": pair[1]}).to(falkirk.FileSink(os.environ["SUMS"]), name="sums")
    late.to(falkirk.SqliteSink(os.environ["LATE"], "late"), name="late")
    return flow
'''


class Runs:
    """Runs of the program in a folder; `upto`: the first epoch that its source does not give yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "app.py").write_text(APP)
        self.upto(0)

    def upto(self, epoch: int) -> None:
        new = self.folder / "upto.new"
        new.write_text(str(epoch))
        new.rename(self.folder / "upto")

    def start(self, *options: str) -> subprocess.Popen[str]:
        files = {"UPTO": "upto", "SUMS": "sums", "LATE": "late.db"}
        places = {name: str(self.folder / file) for name, file in files.items()}
        return subprocess.Popen(
            [sys.executable, "-m", "falkirk", "run", str(self.folder / "app.py"), *options],
            env=os.environ | places,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def published(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for file in sorted((self.folder / "sums").glob("epoch-*.jsonl")):
            found.setdefault(file.name.split("-w")[0], []).extend(file.read_text().splitlines())
        return {epoch: sorted(rows) for epoch, rows in found.items() if rows}

    def late(self) -> list[tuple[object, ...]]:
        import sqlite3

        with sqlite3.connect(self.folder / "late.db") as db:
            return sorted(db.execute("select key, due, n from late"))

    def wait_for(self, process: subprocess.Popen[str], epoch: int) -> None:
        """Wait until an epoch is published."""
        while not any(int(name.split("-")[1]) >= epoch for name in self.published() if not name.endswith("end")):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)


def right(folder: Path) -> tuple[dict[str, list[str]], list[tuple[object, ...]]]:
    folder.mkdir()
    runs = Runs(folder)
    runs.upto(60)
    with runs.start() as process:
        assert process.wait() == 0
    return runs.published(), runs.late()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["killed", "stopped"])
@pytest.mark.parametrize("numbers", [(1, 2, 3, 1)], ids=str)
def test_a_job_goes_on_with_other_numbers_of_workers(
    tmp_path: Path, numbers: Sequence[int], end: signal.Signals
) -> None:
    expected, late = right(tmp_path / "right")
    runs = Runs(tmp_path)
    for run, workers in enumerate(numbers):
        last = run == len(numbers) - 1
        runs.upto(60 if last else 15 * (run + 1))
        with runs.start("-w", str(workers), "--store", str(tmp_path / "store")) as process:
            if not last:
                runs.wait_for(process, 15 * run + 8)
                process.send_signal(end)
            _, told = process.communicate()
        if run:
            assert f"the state of {numbers[run - 1]} worker(s) has moved to {workers}" in told
        if last:
            assert process.returncode == 0, told
        with StoreAddress.of(tmp_path / "store").open() as store:
            there = RecordedJob(store)
            assert there.layout.workers == workers
            there.what_if(["worker:0"], lambda answer: None)
    assert runs.published() == expected
    assert runs.late() == late
    assert json.loads(runs.published()["epoch-0000000059"][0])


def test_a_program_that_cannot_move_is_refused_before_anything_starts(tmp_path: Path) -> None:
    text = APP.replace("falkirk.Lazy(every=2)", "falkirk.Eager()")
    runs = Runs(tmp_path)
    (tmp_path / "app.py").write_text(text)
    runs.upto(4)
    options = ("--store", str(tmp_path / "store"))
    with runs.start("-w", "2", *options) as process:
        runs.wait_for(process, 1)
        process.send_signal(signal.SIGINT)
        process.communicate()
    before = sorted((path, path.stat().st_size) for path in (tmp_path / "store").rglob("segment-*"))
    with runs.start("-w", "3", *options) as process:
        _, told = process.communicate()
    assert process.returncode == 1
    assert "the store is of 2 worker(s), and the job cannot go on with 3" in told
    assert "app.py:" in told
    assert "is Eager" in told
    assert sorted((path, path.stat().st_size) for path in (tmp_path / "store").rglob("segment-*")) == before
    runs.upto(60)
    with runs.start("-w", "2", *options) as process:
        assert process.wait() == 0
