"""Jobs in a process that has no file descriptor left: they wait for one, and lose nothing."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import Csv, FileSink, JsonLines, Parquet, SqliteSink
from tests.support.few_descriptors import few_descriptors
from timely.errors import SinkError, SourceError
from timely.io import Iterable, Memory

FILES = 4


def give_back_later(seconds: float) -> Any:
    """Called from inside a running job: no descriptor is left, for so long."""
    held = few_descriptors()
    give_back = held.__enter__()
    timer = threading.Timer(seconds, give_back)
    timer.start()
    return held, timer


class Take:
    """Takes all descriptors when the first record passes, and gives them back later."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: Any = None

    def __call__(self, record: Any) -> None:
        if self._held is None:
            self._held = give_back_later(self._seconds)

    def end(self) -> None:
        held, timer = self._held
        timer.join()
        held.__exit__(None, None, None)


def written(folder: Path, kind: str) -> str:
    for number in range(FILES):
        frame = pl.DataFrame({"n": [number * 2, number * 2 + 1]})
        path = folder / f"{number}.{kind}"
        {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[kind](path)
    return str(folder / f"*.{kind}")


SOURCES: dict[str, Any] = {"csv": Csv, "parquet": Parquet, "jsonl": JsonLines}


@pytest.mark.check
@pytest.mark.parametrize("kind", SOURCES)
def test_a_job_over_files_waits_for_descriptors(kind: str, tmp_path: Path) -> None:
    """The files of its source are opened one by one, those of its sinks epoch by epoch."""
    source = SOURCES[kind](written(tmp_path, kind), as_records=True, epoch="file")
    take = Take(0.3)
    flow = Dataflow("files")
    numbers = flow.source("in", source)
    numbers.inspect(take).to(FileSink(tmp_path / "out"))
    numbers.to(SqliteSink(tmp_path / "out.db", "t"))
    falkirk.run(flow)
    take.end()
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    assert len(files) == FILES
    assert [int(line[5:-1]) for file in files for line in file.read_text().splitlines()] == list(range(2 * FILES))
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        assert sorted(n for (n,) in database.execute("SELECT n FROM t")) == list(range(2 * FILES))


def test_a_database_with_a_journal_waits_for_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened anew for each transaction; SQLite says only that it cannot open a file."""
    monkeypatch.setattr("libraries.connect.sqlite._WAL_IS_SOUND", False)
    writer = SqliteSink(tmp_path / "out.db", "t").open(0, 2)
    for epoch in range(2):
        writer.write(epoch, [{"n": epoch}])
        with few_descriptors() as give_back:
            timer = threading.Timer(0.3, give_back)
            timer.start()
            writer.commit(epoch)
            timer.join()
    writer.close()
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        assert database.execute("SELECT n FROM t").fetchall() == [(0,), (1,)]


class Shy:
    """A source and a sink of the user's, which need a descriptor when they are opened."""

    def __init__(self) -> None:
        self.tried = 0
        self.rows: list[Any] = []

    def _need_one(self) -> None:
        self.tried += 1
        if self.tried < 4:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def partitions(self, worker: int, workers: int) -> Sequence[Any]:
        self._need_one()
        return Iterable([1, 2]).partitions(worker, workers)

    def open(self, worker: int, workers: int) -> Any:
        self._need_one()
        return self

    def write(self, epoch: int, batch: Any) -> None:
        self.rows += batch

    def commit(self, epoch: int) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def test_sources_and_sinks_are_opened_again_when_there_are_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = Shy(), Shy()
    flow = Dataflow("shy")
    flow.source("in", source).to(sink)
    falkirk.run(flow)
    assert (source.tried, sink.tried, sink.rows) == (4, 4, [1, 2])
    monkeypatch.setattr("timely.io.descriptors.PATIENCE_SECONDS", 0.0)
    for name, kind in (("source", SourceError), ("sink", SinkError)):
        flow = Dataflow("shy")
        source_, sink_ = (Shy(), Memory()) if name == "source" else (Iterable([1]), Shy())
        flow.source("in", source_).to(sink_)
        with pytest.raises(kind, match=rf"{name} '\S+' \(.*test_few_descriptors.py.*Too many open files"):
            falkirk.run(flow)
