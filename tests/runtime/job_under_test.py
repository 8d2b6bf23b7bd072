"""A job for tests with real processes: running counts of words into files, a database and a capture, and what must be there."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink, SqliteSink
from recovery.policy import Eager, Lazy, PassiveStandby
from timely.io import Chunk, End, Rate, Wait

PER_EPOCH = 50


def word(i: int) -> str:
    return f"w{(i * i * 7 + i // 3) % 101}"


GATE = "go-on"
_BEFORE_GATE = 20
"""Epochs."""


class Gated(Rate):
    """The same numbers, but after the first epochs none before there is a file: so that a test decides when the job ends."""

    def __init__(self, gate: Path, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._gate = gate

    def partitions(self, worker: int, workers: int) -> list[Any]:
        return [_GatedPartition(self._gate, each) for each in super().partitions(worker, workers)]


class _GatedPartition:
    def __init__(self, gate: Path, inner: Any) -> None:
        self.name = inner.name
        self._gate = gate
        self._inner = inner
        self._next: Chunk | None = None

    def read(self) -> Chunk | Wait | End:
        if self._next is None:
            found = self._inner.read()
            if not isinstance(found, Chunk) or found.epoch < _BEFORE_GATE:
                return found
            self._next = found
        if not self._gate.exists():
            return Wait(0.02)
        found, self._next = self._next, None
        return found

    def seek(self, position: Any) -> None:
        self._next = None
        self._inner.seek(position)

    def ack(self, position: Any) -> None:
        self._inner.ack(position)

    def close(self) -> None:
        self._inner.close()


def build(
    folder: str,
    records: int = 5000,
    per_second: float = 2500,
    every: float = 0.1,
    operator: str = "count",
    gated: bool = False,
    eager: bool = False,
    durable: float | None = None,
) -> Dataflow:
    """Counts in `folder`/files and `folder`/counts.db; the words come at worker 0, and are counted on all.

    Two regions: what goes from one to the other is logged. With `gated`, most words come when `folder`/`GATE` is there; with
    `eager`, both are eager; with `durable`, checkpoints are in the memory of mates, and durable so often.
    """
    policy = Eager() if eager else Lazy(every=every) if durable is None else PassiveStandby(every, durable)
    flow = Dataflow("words")
    with flow.region("counting", policy):
        gate = [Path(folder) / GATE] if gated else []
        kind: Any = Gated if gated else Rate
        words = flow.source("words", kind(*gate, word, per_second, records, epoch_every=PER_EPOCH))
        counts = words.key_by(lambda w: w).count(name=operator).records()
    with flow.region("writing", policy):
        rows = counts.map(lambda count: {"word": count[0], "count": count[1]})
        rows.to(FileSink(Path(folder) / "files"), name="files")
        rows.to(SqliteSink(Path(folder) / "counts.db", "counts"), name="database")
        counts.capture("counts")
    return flow


def expected(records: int = 5000) -> dict[int, dict[str, int]]:
    """Of each epoch the counts that it changed."""
    counts: Counter[str] = Counter()
    changed: dict[int, dict[str, int]] = {}
    for i in range(records):
        counts[word(i)] += 1
        changed.setdefault(i // PER_EPOCH, {})[word(i)] = counts[word(i)]
    return changed


def in_files(folder: Path) -> dict[int, dict[str, int]]:
    """The content of the files; each word once an epoch."""
    found: dict[int, dict[str, int]] = {}
    for path in (folder / "files").glob("epoch-*"):
        epoch = found.setdefault(int(path.name.split("-")[1]), {})
        for row in map(json.loads, path.read_text().splitlines()):
            assert row["word"] not in epoch, f"twice in epoch {path.name}: {row}"
            epoch[row["word"]] = row["count"]
    return found


def in_database(folder: Path) -> list[tuple[str, int]]:
    """All rows, sorted."""
    connection = sqlite3.connect(folder / "counts.db")
    try:
        return sorted(connection.execute("SELECT word, count FROM counts"))
    finally:
        connection.close()


def check(folder: Path, records: int, captured: Any = None) -> None:
    """All outputs are those of a run in which nothing happened."""
    right = expected(records)
    assert in_files(folder) == right
    assert in_database(folder) == sorted(pair for epoch in right.values() for pair in epoch.items())
    if captured is not None:
        found: dict[int, dict[str, int]] = {}
        for (epoch,), batch in captured:
            there = found.setdefault(epoch, {})
            assert not there.keys() & dict(batch).keys(), f"twice in epoch {epoch}"
            there.update(batch)
        assert found == right
