"""Regions whose step is part of the query of the one behind: which are, and that the same comes as if they were not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
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
from libraries.spark.dataflow.fusing import HandOn, RegionReading
from libraries.spark.files.pinned_file import PinnedFile
from libraries.spark.host.host import SparkHost, host_of
from recovery.policy import Batch
from runtime.folders.workspace import RunningJob
from runtime.run import run
from tests.support.profile import tries
from timely.data.batch import as_polars
from timely.errors import FalkirkError
from timely.io import Batches
from timely.io.memory import rows_of
from timely.operators.base import JobContext

OPTIONS = spark.SparkOptions(memory="1g", nice=0, retries=3, config=(("spark.sql.shuffle.partitions", "2"),))
PARTS = [pl.DataFrame({"k": range(number, number + 20), "v": range(20)}) for number in range(0, 60, 20)]


def fused(flow: Dataflow) -> set[str]:
    """The regions whose step another one does."""
    steps = [node.factory.step for node in flow.graph.nodes if isinstance(node.factory, RegionReading)]
    for step in steps:
        handing_on = isinstance(next(n for n in flow.graph.nodes if n.name == step.name).factory(), HandOn)
        assert handing_on == (step.fused_with() is not None)
    return {step.name for step in steps if step.fused_with() is not None}


QUERY = "select k, v from input"


def chain(second: Mapping[str, Any] = {}, **first: Any) -> tuple[Dataflow, Any, Any]:
    flow = Dataflow("chain")
    cells = flow.columns("in", Batches(PARTS))
    one = spark.batch(cells, QUERY, name="one", **{"options": OPTIONS, **first})
    return flow, one, spark.batch(one, QUERY, name="two", **{"options": OPTIONS, **second})


def test_step_is_fused_where_one_region_alone_takes_its_rows_and_is_done_alike(tmp_path: Path) -> None:
    flow, _, two = chain()
    two.capture("out")
    assert fused(flow) == {"one"}
    assert [node.name for node in flow.graph.nodes if node.name.startswith("one")] == [
        *("one-spill-input", "one-gather", "one", "one-read")
    ]
    assert fused(chain(every=2, second={"every": 2})[0]) == {"one"}
    assert fused(chain({"combine": QUERY, "over": "all"})[0]) == {"one"}
    for first, second in [
        ({"keep": True}, {}),
        ({"every": 2}, {}),
        ({}, {"every": 2}),
        ({"over": "all"}, {"over": "all"}),
        ({}, {"over": 2}),
        ({"options": spark.SparkOptions()}, {}),
        ({"tables": {"t": "a"}}, {"tables": {"t": "b"}}),
        ({"combine": QUERY, "over": "all"}, {}),
        ({}, {"combine": QUERY, "over": 2}),
        *[({"options": each}, {"options": each}) for each in [spark.SparkOptions(connect="sc://nowhere")]],
    ]:
        assert fused(chain(second, **first)[0]) == set(), (first, second)


def test_step_is_not_fused_whose_rows_others_see_or_whose_neighbour_has_more_inputs(tmp_path: Path) -> None:
    flow, one, _ = chain()
    one.capture("seen")
    assert fused(flow) == set()
    flow, one, _ = chain()
    spark.write(one, tmp_path / "table")
    assert fused(flow) == set()
    flow, one, _ = chain()
    spark.batch(one, QUERY, name="three", options=OPTIONS)
    assert fused(flow) == set()
    flow, one, two = chain()
    spark.batch({"one": one, "two": two}, "select k from one join two using (k)", name="diamond", options=OPTIONS)
    assert fused(flow) == set()
    flow = Dataflow("policies")
    cells = flow.columns("in", Batches(PARTS))
    with flow.region("kept", policy=Batch(log_outputs=True)):
        one = spark.batch(cells, QUERY, name="one", options=OPTIONS)
    with flow.region("history", policy=Batch(log_outputs=True)):
        two = spark.batch(one, QUERY, name="two", options=OPTIONS)
        spark.batch(two, QUERY, name="three", options=OPTIONS)
    assert fused(flow) == {"two"}


# All around Spark, with faults.

NUMBERS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
EPOCHS = 12
CELLS = [pa.table({"k": [i % 3, i % 5], "v": [i, 1]}, NUMBERS) for i in range(2 * EPOCHS)]


class Steps:
    """Does the steps of a run as a Spark would, in the job's thread: functions of Arrow tables."""

    def __init__(self, region: str, what: Any, others: Any, options: Any, whole: Any) -> None:
        self.whole = whole

    def warm(self) -> None:
        """Nothing starts."""

    def run(
        self,
        context: JobContext,
        inputs: Mapping[str, tuple[bytes, list[str]]],
        tables: Mapping[str, Sequence[PinnedFile]],
        output: str,
        rows: int,
    ) -> tuple[tuple[str, int], ...]:
        """Files of few rows."""
        known = {}
        for name, (schema, files) in inputs.items():
            arrow = pa.ipc.read_schema(pa.py_buffer(schema))
            known[name] = pa.concat_tables([*map(pq.read_table, files), arrow.empty_table()])
        for each in self.whole().queries:
            known[each.name] = each.what(*(known[name] for _, name in each.inputs))
            if each.kept and not len(known[each.name]):
                return ()
        Path(output).mkdir()
        found = []
        for at in range(0, len(known[""]), 3):
            path, part = Path(output) / f"part-{at:05}.parquet", known[""].slice(at, 3)
            pq.write_table(part, path)
            found.append((str(path), len(part)))
        return tuple(found)


def large(*tables: pa.Table) -> pa.Table:
    table = pa.concat_tables(tables)
    return table.filter(pa.compute.greater(table["v"], 1))


def doubled(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table])


def totals(table: pa.Table) -> pa.Table:
    return table.group_by("k").aggregate([("v", "sum")]).rename_columns(["k", "s"]).sort_by("k")


def program(keep: bool = False, times: int = 1) -> Dataflow:
    """Three steps, the first over two streams, of which one has rows in some epochs only."""
    flow = Dataflow("three")
    cells = flow.columns("in", Batches(CELLS * times, per_epoch=2))
    few = cells.filter(pl.col("v") % 4 == 0)
    with flow.region("history", policy=Batch(log_outputs=True)):
        both = {"all": cells, "few": few}
        one = spark.batch(both, large, schemas={"few": NUMBERS}, name="one", keep=keep, checkpoint=2)
        two = spark.batch(one, doubled, name="two", keep=keep, checkpoint=3)
        found = spark.batch(two, totals, name="three", checkpoint=1)
    found.capture("out")
    assert fused(flow) == (set() if keep else {"one", "two"})
    return flow


def outcome(world: World) -> dict[int, list[tuple[int, int]]]:
    world.run()
    result = world.outside.result()
    return {time[0]: sorted((row["k"], row["s"]) for row in rows_of(rows)) for (_, time), rows in result.items()}


@pytest.mark.check
@pytest.mark.parametrize("workers", [1, 2])
def test_fused_steps_give_the_same_whatever_fails(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libraries.spark.dataflow.runner.SparkRunner", Steps)
    simulation = Simulation(program, workers)
    for seed in range(tries(3)):
        failure = simulation.run(seed)
        assert failure is None, f"seed {seed}: {failure and failure.error}"
    assert simulation.tally.rounds > 0
    kept = outcome(World(lambda: program(keep=True), workers, 1, ()))
    assert outcome(World(program, workers, 1, ())) == kept
    assert len(kept) == EPOCHS - 1, "nothing large is in the first"


def test_files_that_are_handed_on_go_when_no_run_can_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libraries.spark.dataflow.runner.SparkRunner", Steps)
    world = World(lambda: program(times=4), 1, 3)
    world.run()
    oldest: dict[str, int] = {}
    for path in world._files.path.rglob("*.parquet"):
        region, place, name = path.relative_to(world._files.path).parts[:3]
        oldest[f"{region}/{place}"] = min(int(name[:20]), oldest.get(f"{region}/{place}", 99))
    assert not {"one/out", "two/out"} & oldest.keys()
    assert all(oldest[f"{region}/in"] > 3 for region in ("one", "two", "three")), oldest  # of 48
    world._files.close()


# On Spark.


@pytest.fixture(scope="module")
def one_spark() -> Iterator[SparkHost]:
    """All tests share one Spark."""
    host = host_of(OPTIONS)
    host.warm()
    yield host
    spark.stop()


def noted(path: Path, what: Any) -> None:
    with path.open("a") as file:
        print(what, file=file)


def ran(first: Any, second: Any, path: Path, keep: bool = False, **more: Any) -> tuple[dict[int, Any], list[bool]]:
    """The rows of each epoch behind two steps, and of each time that the second was called whether it was given files."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()

    def behind(df: Any) -> Any:
        noted(
            path / "calls",
            any("kept" in file or ("/two/in/" in file and "-input_input-" not in file) for file in df.inputFiles()),
        )
        return second(df) if callable(second) else df.sparkSession.sql(second)

    flow = Dataflow("two")
    cells = flow.columns("in", Batches(PARTS))
    with flow.region("history", policy=Batch(log_outputs=True)):
        one = spark.batch(cells, first, options=OPTIONS, name="one", keep=keep, **more)
        spark.batch(one, behind, options=OPTIONS, name="two").capture("out")
    assert fused(flow) == (set() if keep else {"one"})
    found: dict[int, list[Any]] = {}
    for time, batch in run(flow).captured("out"):
        found.setdefault(time[0], []).extend(as_polars(batch).rows())
    calls = (path / "calls").read_text().split() if (path / "calls").exists() else []
    return {epoch: sorted(rows) for epoch, rows in found.items()}, [each == "True" for each in calls]


def udf(df: Any) -> Any:
    from pyspark.sql import functions as F

    return df.select("k", F.udf(lambda v: v * 3, "long")("v").alias("v")).where("k % 3 > 0")


ONE_QUERY: dict[str, tuple[Any, Any]] = {
    "sql": ("select k, v from input where k % 2 = 0", "select k % 3 as k, sum(v) as s from input group by 1"),
    "text": (
        "select k, concat('n', v) as v from input",
        "select v, count(*) as n from input where v > 'n2' group by v",
    ),
    "functions": (udf, lambda df: df.where("v > 6").groupBy("k").count()),
    "join": (
        udf,
        "with t as (select * from input) select t.k, v + m as v from t join values (4, 5) as w (k, m) using (k)",
    ),
    "union": (udf, "select distinct k, v, w from input lateral view explode(array(1, 2)) as w limit 9999"),
    "no rows at times": (
        "select * from input where k < 20",
        "select k, row_number() over (order by v) as v from input",
    ),
}


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("steps", ONE_QUERY.values(), ids=ONE_QUERY)
def test_two_steps_are_one_query_and_give_what_they_give_one_after_the_other(
    steps: tuple[Any, Any], one_spark: SparkHost, tmp_path: Path
) -> None:
    found, files = ran(*steps, tmp_path / "fused")
    kept, _ = ran(*steps, tmp_path / "kept", keep=True)
    assert found == kept
    assert found
    assert files == [False] * len(PARTS)


@pytest.mark.check
@pytest.mark.spark
def test_folders_that_all_runs_write_into_stay(
    monkeypatch: pytest.MonkeyPatch, one_spark: SparkHost, tmp_path: Path
) -> None:
    given, removed = set(), set()
    folder, rmdir = RunningJob.folder, os.rmdir

    def giving(job: RunningJob, name: str, living: bool = False) -> Path:
        given.add(str(path := folder(job, name, living)))
        return path

    def removing(path: Any, **more: Any) -> None:
        removed.add(os.fspath(path))
        rmdir(path, **more)

    monkeypatch.setattr(RunningJob, "folder", giving)
    monkeypatch.setattr(os, "rmdir", removing)
    ran(*ONE_QUERY["sql"], tmp_path / "fused")
    assert any(path.endswith("/one/in") for path in given)
    assert not given & removed


def set_something(df: Any) -> Any:
    df.sparkSession.conf.set("spark.sql.shuffle.partitions", "3")
    return df


APART: dict[str, tuple[Any, Any]] = {
    "not deterministic": ("select k, rand() * 0 as v from input", "select * from input"),
    "taken twice": (udf, "select a.k from input a join input b using (k)"),
    "taken by a query within": (udf, "select k from input where v = (select max(v) from input)"),
    "counted first": (udf, lambda df: df.limit(df.count())),
    "sorted": (udf, "select * from input order by k"),
    "from nothing": ("select * from input where k < 20", "select count(*) as n from input"),
    "from nothing by a join": (
        "select * from input where k < 20",
        "select b from input right join values (1) as t (b) on k = b",
    ),
    "without keys": (udf, "select k, b from input, values (1), (2) as t (b)"),
    "other settings": (set_something, "select * from input"),
    "fails for nothing": ("select * from input where k < 20", lambda df: df.limit(int(df.first()["k"]) + 1)),
    "nested": ("select array(k) as k from input", "select k[0] as k from input"),
}


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("steps", APART.values(), ids=APART)
def test_step_is_kept_where_one_query_would_not_be_the_same(
    steps: tuple[Any, Any], one_spark: SparkHost, tmp_path: Path
) -> None:
    found, files = ran(*steps, tmp_path / "fused")
    kept, called = ran(*steps, tmp_path / "kept", keep=True)
    assert found == kept
    assert [each for each in files if each] == called, "it has a run where the step before gave rows"
    assert files.count(False) <= 1, "then that is known"


@pytest.mark.check
@pytest.mark.spark
def test_names_settings_and_tables_of_fused_steps_do_not_mix(one_spark: SparkHost, tmp_path: Path) -> None:
    pl.DataFrame({"k": range(60), "name": [f"n{k}" for k in range(60)]}).write_parquet(tmp_path / "names.parquet")
    made: list[int] = []

    def first(rows: Any, names: Any, old: Any, epoch: int) -> Any:
        rows.createOrReplaceTempView("mine")
        return rows.sparkSession.sql("select k, name from mine join names using (k) join old using (k)").selectExpr(
            "*", f"{epoch} as epoch"
        )

    def second(df: Any) -> Any:
        names = {each.name for each in df.sparkSession.catalog.listTables()}
        assert "mine" not in names and "names" not in names, names  # noqa: PT018
        return df.where("k > 1")

    flow = Dataflow("names")
    cells = flow.columns("in", Batches(PARTS))
    view = spark.view({"cells": cells}, "select k from cells")
    tables = {"names": tmp_path / "names.parquet", "old": lambda session: session.range(59).toDF("k")}
    one = spark.batch({"rows": view}, first, tables=tables, options=OPTIONS, name="one")
    two = spark.batch(one, second, options=OPTIONS, name="two")
    three = spark.batch(two, "select * from input join names using (k, name)", name="three", options=OPTIONS,
                        tables={"names": tables["names"]})  # fmt: skip
    three.capture("out")
    assert fused(flow) == {"one", "two"}
    found = pl.concat([as_polars(batch) for _, batch in run(flow).captured("out")]).sort("k")
    assert found.rows() == [(k, f"n{k}", k // 20) for k in range(2, 59)]
    assert not made


@pytest.mark.check
@pytest.mark.spark
def test_attempt_that_follows_keeps_what_came_of_the_first_step(one_spark: SparkHost, tmp_path: Path) -> None:
    def first(df: Any, epoch: int) -> Any:
        noted(tmp_path / "first", epoch)
        return df

    def second(df: Any, epoch: int, attempt: int) -> Any:
        from pyspark.sql import functions as F

        noted(tmp_path / "second", epoch)

        def fails(k: int) -> int:
            if epoch == 1 and attempt < 3:
                raise OSError("not there yet")
            return k

        return df.select(F.udf(fails, "long")("k").alias("k"))

    flow = Dataflow("again")
    one = spark.batch(flow.columns("in", Batches(PARTS)), first, options=OPTIONS, name="first")
    spark.batch(one, second, options=OPTIONS, name="second").capture("out")
    result = run(flow)
    assert sorted(k for _, batch in result.captured("out") for k in as_polars(batch)["k"]) == list(range(60))
    assert (tmp_path / "first").read_text().split() == ["0", "1", "1", "2"], "by itself in the second attempt, and kept"
    assert (tmp_path / "second").read_text().split() == ["0", "1", "1", "1", "1", "2"]


def fails(batches: Any) -> Any:
    raise ValueError("so bad")


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("select nowhere from input", QUERY, r"'two' .*nowhere.*in the step 'one'"),
        (QUERY, "select nowhere from input", r"'two' .*nowhere(?!.*'one')"),
        (
            lambda df: df.mapInPandas(fails, df.schema),
            QUERY,
            r"'two' .*so bad.*in one query of the steps 'one', 'two'",
        ),
        (
            "select interval 1 day as k from input",
            "select 1 as k from input",
            r"column 'k' is of type .*in the step 'one'",
        ),
    ],
)
def test_errors_name_the_step(first: Any, second: str, said: str, one_spark: SparkHost) -> None:
    flow = Dataflow("wrong")
    one = spark.batch(flow.columns("in", Batches(PARTS[:1])), first, options=OPTIONS, name="one")
    spark.batch(one, second, options=OPTIONS, name="two").capture("out")
    with pytest.raises(FalkirkError, match=f"(?s){said}"):
        run(flow)
