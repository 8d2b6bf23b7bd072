"""Real jobs whose number of workers or program changes: programs, processes and outputs."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

EPOCHS = 60
"""Epochs of the program's source."""

SOURCE = '''
import os
from pathlib import Path

import polars as pl

import falkirk
from falkirk import agg


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
'''

APP = (
    SOURCE
    + """

def counted(pair):
    with Path(os.environ["READ"]).open("a") as log:
        print(*pair, file=log)
    return pair


def count(key, value, timers):
    timers.state = (timers.state or 0) + value
    timers.set(timers.epoch + 3)


def due(key, epoch, timers):
    yield {"key": key, "due": epoch, "n": timers.state}


def build():
    flow = falkirk.Dataflow("paced")
    with flow.region("front", policy=falkirk.Lazy(every="100ms", log_outputs=True)):
        pairs = flow.source("in", Paced()).map(counted).keyed()
        sums = pairs.sum()
        rows = pairs.records().to_columns({"key": str, "at": int})
        windows = rows.window(falkirk.Tumbling(9), time="at").group_by("key").agg(n=agg.count(), last=agg.max("at"))
        totals = rows.group_by("key").agg(sum=agg.sum("at"), most=agg.max("at"))
        joined = totals.join(rows.group_by("key").agg(n=agg.count(), over="time"), on="key", over="time")
        plain = rows.filter(pl.col("at") % 3 == 0)
    with flow.region("behind", policy=falkirk.Lazy(every=2)):
        late = sums.process(count, due)
    sums.records().map(lambda pair: {"key": pair[0], "n": pair[1]}).to(falkirk.FileSink(os.environ["SUMS"]), name="sums")
    late.to(falkirk.SqliteSink(os.environ["LATE"], "late"), name="late")
    for name, output in {"windows": windows, "joined": joined, "plain": plain}.items():
        output.to(falkirk.FileSink(os.environ["MORE"], name=name), name=name)
    return flow
"""
)

FORMS = 1 << 8
"""Number of forms of the program that changes."""

CHANGING = (
    SOURCE
    + '''

def count(key, value, timers):
    timers.state = (timers.state or 0) + value
    timers.set(timers.epoch + 3)


def due(key, epoch, timers):
    yield {"key": key, "due": epoch, "n": timers.state}


def same(record):
    return record


def none(record):
    return False


def build(form=0):
    """All forms have the same outputs; each bit of `form` is a difference that nobody sees outside."""
    names = {name: f"other {name}" if form >> bit & 1 else name for bit, name in enumerate(NAMED)}
    passes, before, after, branch, keeps, log = (form >> 2 + bit & 1 for bit in range(6))
    flow = falkirk.Dataflow("changing")
    with flow.region("front", policy=falkirk.Lazy(every="100ms", log_outputs=bool(log))):
        source = flow.source("in", Paced())
        pairs = (source.map(same, name="passes") if passes else source).keyed()
        sums = pairs.sum(name=names["sums"])
        rows = pairs.records().to_columns({"key": str, "at": int}, name="rows")
        if before:
            rows = rows.filter(pl.col("at") >= 0, name="all rows")
        windows = rows.window(falkirk.Tumbling(9), time="at").group_by("key").agg(
            n=agg.count(), last=agg.max("at"), name="in windows"
        )
        totals = rows.group_by("key").agg(sum=agg.sum("at"), most=agg.max("at"), name="totals")
        counts = rows.group_by("key").agg(n=agg.count(), over="time", name="counts")
        joined = totals.join(counts, on="key", over="time", name="joins")
        if branch:
            pairs.count(name="how many").records().filter(none, name="drops").to(
                falkirk.FileSink(os.environ["MORE"], name="none"), name="nothing"
            )
    with flow.region("behind", policy=falkirk.Lazy(every=3 if keeps else 2)):
        late = sums.process(count, due, name=names["late"])
        if after:
            late.filter(none, name="none").to(falkirk.FileSink(os.environ["MORE"], name="no-more"), name="nothing more")
    sums.records().map(lambda pair: {"key": pair[0], "n": pair[1]}, name="as rows").to(
        falkirk.FileSink(os.environ["SUMS"]), name="sums out"
    )
    late.to(falkirk.SqliteSink(os.environ["LATE"], "late"), name="late out")
    for name, output in {"windows": windows, "joined": joined}.items():
        output.to(falkirk.FileSink(os.environ["MORE"], name=name), name=name)
    return flow


NAMED = ("sums", "late")
'''
)


def renames(former: int, form: int) -> list[str]:
    """Options that name the operators of one form as another form does."""
    found = []
    for bit, name in enumerate(("sums", "late")):
        old, new = (f"other {name}" if each >> bit & 1 else name for each in (former, form))
        found += ["--rename", f"{old}={new}"]
    return found


class Runs:
    """Runs of the program in a folder; `upto`: the first epoch that its source does not give yet."""

    def __init__(self, folder: Path, app: str = APP) -> None:
        self.folder = folder
        (folder / "app.py").write_text(app)
        self.upto(0)

    def upto(self, epoch: int) -> None:
        new = self.folder / "upto.new"
        new.write_text(str(epoch))
        new.rename(self.folder / "upto")

    def start(self, *options: str, command: str = "run") -> subprocess.Popen[str]:
        files = {"UPTO": "upto", "SUMS": "sums", "LATE": "late.db", "MORE": "more", "READ": "read"}
        places = {name: str(self.folder / file) for name, file in files.items()}
        return subprocess.Popen(
            [sys.executable, "-m", "falkirk", command, str(self.folder / "app.py"), *options],
            env=os.environ | places,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def published(self, where: str = "sums") -> dict[str, list[str]]:
        """Rows in files, by output and epoch."""
        found: dict[str, list[str]] = {}
        for file in sorted((self.folder / where).glob("*epoch-*.jsonl")):
            found.setdefault(file.name.split("-w")[0], []).extend(file.read_text().splitlines())
        return {epoch: sorted(rows) for epoch, rows in found.items() if rows}

    def outputs(self) -> tuple[dict[str, list[str]], dict[str, list[str]], list[tuple[object, ...]]]:
        """All that is published."""
        return self.published(), self.published("more"), self.late()

    def read(self) -> list[str]:
        """Records that entered the dataflow, once for each time."""
        return (self.folder / "read").read_text().splitlines()

    def late(self) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.folder / "late.db") as db:
            return sorted(db.execute("select key, due, n from late"))

    def wait_for(self, process: subprocess.Popen[str], epoch: int) -> None:
        """Wait until an epoch is published."""
        while not any(int(name.split("-")[1]) >= epoch for name in self.published() if not name.endswith("end")):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)

    def end(self, process: subprocess.Popen[str], how: signal.Signals = signal.SIGKILL) -> str:
        """End a job with all its processes, or its supervisor; returns its notes."""
        if how == signal.SIGKILL:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        return process.communicate()[1]


def right(folder: Path, app: str = APP) -> Runs:
    """Outputs of a run in which nothing happens."""
    folder.mkdir()
    runs = Runs(folder, app)
    runs.upto(EPOCHS)
    with runs.start() as process:
        _, notes = process.communicate()
    assert process.returncode == 0, notes
    return runs
