"""A job from table to table, in processes that are killed: the right rows, once, and whole epochs for who reads meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.libraries.connect.tables.lakes import DeltaLake, IcebergLake, Lake
from tests.support.beside import run_beside

KEYS = 30


def version(number: int) -> pl.DataFrame:
    return pl.DataFrame({"version": [number] * KEYS, "k": range(KEYS)})


def slowly(rows: pl.DataFrame) -> pl.DataFrame:
    """So that there is time to read what is written while more is to come."""
    time.sleep(0.2)
    return rows


def build(folder: str) -> Dataflow:
    """Of each key how often it came, and the last version that it came with: into tables of both kinds."""
    flow = Dataflow("from table to table")
    rows = flow.columns("in", DeltaLake(Path(folder, "in")).source()).map_batches(slowly)
    counts = rows.group_by("k").agg(times=falkirk.agg.count(), latest=falkirk.agg.max("version"))
    counts = counts.policy(falkirk.Lazy(every=0.1))
    counts.to(DeltaLake(Path(folder, "out")).sink(), name="delta")
    counts.to(IcebergLake(Path(folder, "out")).sink(), name="iceberg")
    return flow


def epoch(number: int) -> Counter[Any]:
    return Counter((k, number + 1, number) for k in range(KEYS))


def whole_epochs(rows: Counter[Any]) -> int:
    """The number of epochs that are there, all of them whole, and the first ones."""
    there = len({latest for _, _, latest in rows})
    assert rows == sum((epoch(number) for number in range(there)), Counter())
    return there


def run_with_kills(folder: Path, versions: int, kills: int, seed: int) -> None:
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    source, targets = DeltaLake(folder / "in"), (DeltaLake(folder / "out"), IcebergLake(folder / "out"))
    for number in range(versions):
        source.append(version(number))
    random = Random(seed)
    job = Job(
        Program(flow=build, args={"folder": str(folder)}), 2, folder / "store", None, lambda *_: None, lambda _: None
    )
    problems: list[BaseException] = []
    found: set[int] = set()
    over = threading.Event()

    def watch(lake: Lake) -> None:
        seen = 0
        try:
            while not over.is_set():
                there = whole_epochs(lake.rows())
                assert there >= seen
                seen = there
                found.add(there)
                time.sleep(0.02)
        except BaseException as error:
            problems.append(error)

    def strike() -> None:
        for kill in range(kills):
            least = (kill + 1) * versions // (kills + 2)
            while whole_epochs(targets[0].rows()) < least or len(job.pids) < 2:
                time.sleep(0.02)
            time.sleep(random.uniform(0, 0.1))
            for pid in random.choice((job.pids[:1], job.pids[1:], job.pids)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    readers = [threading.Thread(target=watch, args=(lake,)) for lake in targets]
    for reader in readers:
        reader.start()
    try:
        run_beside(job.run, strike)
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert not problems
    assert any(0 < there < versions for there in found), "nobody has read while the job wrote"
    for lake in targets:
        assert whole_epochs(lake.rows()) == versions
        assert [each for each in lake.commits() if each] == [epoch(number) for number in range(versions)]


@pytest.mark.check
def test_a_job_from_table_to_table_with_a_killed_worker(tmp_path: Path) -> None:
    run_with_kills(tmp_path, 8, 1, 7)


@pytest.mark.soak
def test_a_job_from_table_to_table_with_many_killed_workers(tmp_path: Path) -> None:
    for seed in range(5):
        (tmp_path / str(seed)).mkdir()
        run_with_kills(tmp_path / str(seed), 60, 8, seed)
