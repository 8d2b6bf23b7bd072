"""Files that are written once for several regions and tables: who is given them, that they are right whatever fails, and go."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.files import deliveries
from libraries.spark.files import parquet as files
from libraries.spark.files.deliveries import Consumer
from recovery.policy import Batch, Lazy
from runtime.run import run
from runtime.session.session import Session
from tests.libraries.spark.local_runner import LocalRunner
from tests.libraries.spark.test_region import parquet_under
from tests.support.profile import tries
from timely.errors import FalkirkError
from timely.io import Batches
from timely.io.memory import rows_of

EPOCHS = 12
BATCHES = [pa.table({"k": [i % 3, i % 5], "v": [i, 1]}) for i in range(2 * EPOCHS)]


def same(table: pa.Table) -> pa.Table:
    return table


def totals(table: pa.Table) -> pa.Table:
    return table.group_by("k").aggregate([("v", "sum")]).rename_columns(["k", "s"]).sort_by("k")


def program(runner: Any = LocalRunner, table: Path | None = None, times: int = 1) -> Dataflow:
    """Rows that two regions take as they come, and one of them hands on: to regions at other epochs, and a table."""
    flow = Dataflow("handed")
    cells = flow.columns("in", Batches(BATCHES * times, per_epoch=2))
    with flow.region("history", policy=Batch(log_outputs=True)):
        clean = spark.batch(cells, same, name="clean", runner=runner(same), checkpoint=2)
        so_far = spark.batch(clean, same, name="so-far", over="all", every=2, runner=runner(totals), checkpoint=3)
        three = spark.batch(clean, same, name="three", over=3, runner=runner(totals), checkpoint=1)
        beside = spark.batch(cells, same, name="beside", every=4, runner=runner(totals), checkpoint=2)
    if table is not None:
        spark.write(clean, table)
    for name, stream in {"so-far": so_far, "three": three, "beside": beside}.items():
        stream.capture(f"out {name}")
    sums = three.to_records().map(lambda row: (0, row["s"])).keyed().sum(name="sum").policy(Lazy(every=3))
    sums.capture("sums")
    return flow


def expected() -> dict[str, dict[int, list[tuple[int, int]]]]:
    def over(first: int, last: int) -> list[tuple[int, int]]:
        sums: Counter[int] = Counter()
        for table in BATCHES[2 * max(0, first) : 2 * last + 2]:
            for row in table.to_pylist():
                sums[row["k"]] += row["v"]
        return sorted(sums.items())

    return {
        "so-far": {due: over(0, due) for due in range(1, EPOCHS, 2)},
        "three": {due: over(due - 2, due) for due in range(EPOCHS)},
        "beside": {due: over(due - 3, due) for due in range(3, EPOCHS, 4)},
    }


def found_in(result: dict[tuple[str, Any], Any]) -> dict[str, dict[int, list[tuple[int, int]]]]:
    found: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for (name, time), batch in result.items():
        if name.startswith("out "):
            rows = [(row["k"], row["s"]) for row in rows_of(batch)]
            found.setdefault(name[4:], {}).setdefault(time[0], []).extend(rows)
    return {name: {epoch: sorted(rows) for epoch, rows in times.items() if rows} for name, times in found.items()}


@pytest.mark.check
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_regions_that_share_files_and_hand_them_on_give_the_same_whatever_fails(workers: int) -> None:
    simulation = Simulation(program, workers)
    for seed in range(tries(1)):
        failure = simulation.run(seed)
        assert failure is None, f"seed {seed}: {failure and failure.error}"
    assert simulation.tally.rounds > 0
    world = World(program, workers, 1, ())
    world.run()
    assert found_in(world.outside.result()) == expected()


def test_without_a_name_of_its_own_for_each_consumer_files_go_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "link_input", lambda file, *more: file.name)
    simulation = Simulation(program, 1)
    with pytest.raises(FalkirkError, match="FileNotFoundError"):
        simulation.run(0)


@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
def test_rows_are_written_once_and_come_into_the_workers_only_where_an_operator_takes_them(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    monkeypatch.setenv("FALKIRK_FILES", str(tmp_path / "files"))
    written: list[str] = []
    read: list[str] = []
    write, take = files.write_input, files.read_output
    monkeypatch.setattr(files, "write_input", lambda *how: written.append(found := write(*how)) or found)
    monkeypatch.setattr(files, "read_output", lambda path: read.append(path) or take(path))
    if not links:

        def refuse(*paths: Any) -> None:
            raise OSError("no links here")

        monkeypatch.setattr(os, "link", refuse)
    rows: dict[str, int] = {}

    class Runner(LocalRunner):
        def run(self, context: Any, inputs: Any, tables: Any, output: str, most: int) -> Any:
            rows[Path(output).parts[-3]] = most
            return super().run(context, inputs, tables, output, most)

    captured: dict[tuple[str, Any], Any] = {}
    with Session(program(Runner, tmp_path / "table")) as session:
        session.run()
        for name in (f"out {each}" for each in expected()):
            for time, batch in session.captured(name):
                captured.setdefault((name, time), []).extend(rows_of(batch))
    assert found_in(captured) == expected()
    assert len(written) == EPOCHS  # for two regions; and nothing that is handed on
    assert all("/clean/in/" in path for path in written)
    assert not any("/clean/" in path for path in read)
    assert rows == {"clean": 0, "so-far": 65_536, "three": 65_536, "beside": 65_536}
    table = pl.concat(pl.read_parquet(file, hive_partitioning=False) for file in (tmp_path / "table").glob("epoch=*/*"))
    assert sorted(table.rows()) == sorted(tuple(row.values()) for batch in BATCHES for row in batch.to_pylist())
    assert parquet_under(tmp_path / "files") == []


def test_of_a_table_beside_a_region_the_files_outlive_those_of_the_region(tmp_path: Path) -> None:
    flow = Dataflow("both")
    cells = flow.columns("in", Batches(BATCHES))
    spark.write(cells.concat(spark.batch(cells, same, name="again", runner=LocalRunner(same))), tmp_path / "table")
    run(flow)
    assert pl.read_parquet(tmp_path / "table/epoch=*/*", hive_partitioning=False)["v"].sum() == 2 * sum(
        table["v"].to_numpy().sum() for table in BATCHES
    )


def test_files_of_shared_and_handed_rows_go_when_no_run_can_need_them_any_more() -> None:
    world = World(lambda: program(times=2), 1, 1)
    world.run()
    oldest: dict[str, int] = {}
    for path in world._files.path.rglob("*.parquet"):
        region, place, name = path.relative_to(world._files.path).parts[:3]
        oldest[f"{region}/{place}"] = min(int(name[:20]), oldest.get(f"{region}/{place}", 99))
    assert "clean/out" not in oldest  # nobody reads it
    assert all(oldest[f"{region}/in"] > 3 for region in ("clean", "three", "beside")), oldest  # of 24
    assert oldest["so-far/in"] > 1, "its files were merged"
    world._files.close()


class Context:
    """A job's services, in a folder."""

    def __init__(self, folder: Path, durable: bool) -> None:
        self._folder = folder
        self.durable = durable

    def folder(self, name: str, living: bool = False) -> Path:
        (self._folder / name).mkdir(parents=True, exist_ok=True)
        return self._folder / name


def test_file_that_its_first_owner_has_removed_meanwhile_is_still_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def late(path: str, other: Path) -> None:
        os.unlink(path)
        link(path, other)

    monkeypatch.setattr(os, "link", late)
    context: Any = Context(tmp_path, durable=True)
    consumers = [Consumer("first", "a"), Consumer("second", "b")]
    (gone,), (there,) = deliveries.write_for(context, consumers, 3, 0, 0, BATCHES[:2])
    assert not Path(gone.path).exists()
    assert pq.read_table(there.path) == pa.concat_tables(BATCHES[:2])
    assert (there.input, there.rows, files.epoch_of(Path(there.path))) == ("b", 4, 3)


@pytest.mark.parametrize("durable", [True, False])
def test_what_others_are_told_of_is_on_the_disk_before(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.fstat(fd).st_ino) or sync(fd))
    output = tmp_path / "part-0.parquet"
    pq.write_table(BATCHES[0], output)
    (tmp_path / "table").mkdir()
    consumers = [Consumer("region", "in"), Consumer("table", "rows", folder=tmp_path / "table")]
    context: Any = Context(tmp_path, durable)
    told = deliveries.hand_over(context, consumers[: 1 + durable], 0, 0, "run", [(str(output), 2)])
    for entry in (entry for entries in told for entry in entries):
        assert (os.stat(entry.path).st_ino in synced) == durable
        assert (os.stat(Path(entry.path).parent).st_ino in synced) == durable
    ((table,),) = deliveries.hand_over(context, consumers[1:], 0, 0, "run", [(str(output), 2)])
    assert {os.stat(table.path).st_ino, os.stat(tmp_path / "table").st_ino} <= synced  # it outlives any job
