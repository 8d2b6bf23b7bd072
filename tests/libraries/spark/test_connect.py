"""Regions on a real Spark Connect server: what comes back, who is killed, what is refused, and what is kept secret."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.cluster.session import SparkCluster
from libraries.spark.dataflow.placement import home
from recovery.policy import Batch, Lazy
from runtime.program import Program
from runtime.run import run
from runtime.session.job import Result
from runtime.supervisor.supervisor import Job
from tests.libraries.spark.connect_server import ConnectServer, connect_server
from tests.libraries.spark.following import goes_on_where_it_was_when_somebody_stops_it, says_how_far_it_is
from tests.libraries.spark.test_lost_executor import executors
from tests.support.beside import run_beside
from tests.support.processes import parent, wait_for
from timely.data.batch import as_polars
from timely.errors import FalkirkError
from timely.io import Batches

pytestmark = pytest.mark.spark


LOCAL = spark.SparkOptions(memory="1g", nice=0)
TOKEN = "s3cr3t-t0ken"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """All tests of this module share one server, as far as they do not kill it."""
    pytest.importorskip("grpc", reason="the extra falkirk[connect] is not installed")
    with connect_server(tmp_path_factory.mktemp("connect")) as found:
        yield found
        spark.stop()


def options_for(server: ConnectServer, shared: bool | None = False) -> spark.SparkOptions:
    """Those that most tests share; a token goes with each call, of which this server takes no notice."""
    address = f"{server.address.replace('127.0.0.1', 'localhost')}/;token={TOKEN}"
    return spark.SparkOptions(connect=address, shared=shared, nice=0, retries=1)


def frame(seed: int, rows: int = 1_000) -> pl.DataFrame:
    return pl.DataFrame({"k": range(rows)}).with_columns(v=pl.col("k") % 7 + seed, k=pl.col("k") % 10)


def totals(df: Any) -> Any:
    from pyspark.sql import functions as F

    return df.groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))


def right(*frames: pl.DataFrame) -> pl.DataFrame:
    return pl.concat(frames).group_by("k").agg(s=pl.col("v").sum(), n=pl.len().cast(pl.Int64)).sort("k")


def region(batches: list[Any], what: Any, options: spark.SparkOptions, **arguments: Any) -> Dataflow:
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


def endless_at_first(folder: str) -> Any:
    """A region's function whose attempt 0 beats in a task for ever. It says which process it is in."""

    def what(df: Any, attempt: int) -> Any:
        from pyspark.sql import functions as F

        def beat(batches: Any) -> Any:
            while True:
                with open(f"{folder}/beats", "a") as file:
                    file.write(".")
                time.sleep(0.05)
            yield from batches

        with open(f"{folder}/child-{attempt}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"{folder}/child-{attempt}.new", f"{folder}/child-{attempt}")
        rows = df if attempt else df.mapInArrow(beat, df.schema)
        return rows.groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))

    return what


def beats(folder: Path) -> int:
    return (folder / "beats").stat().st_size if (folder / "beats").exists() else 0


def ends(folder: Path) -> bool:
    """True once nothing beats any more: for a long time, as tasks count."""
    before = beats(folder)
    time.sleep(1)
    return beats(folder) == before


@pytest.mark.soak
@pytest.mark.parametrize("shared", [False, None])
def test_rows_come_back_at_their_epochs_as_polars_groups_them(server: ConnectServer, shared: bool | None) -> None:
    parts = [frame(seed) for seed in range(2)]
    found = frames_of(run(region(parts, totals, options_for(server, shared), over="all")))
    assert found.keys() == {0, 1}
    assert found[0].sort("k").equals(right(parts[0]))
    assert found[1].sort("k").equals(right(*parts))


@pytest.mark.check
@pytest.mark.parametrize("shared", [False, pytest.param(None, marks=pytest.mark.soak)])
def test_types_and_tables_go_there_and_back(server: ConnectServer, shared: bool | None, tmp_path: Path) -> None:
    for day in range(2):
        (tmp_path / f"names/day={day}").mkdir(parents=True)
        pl.DataFrame({"k": [day], "name": [f"name {day}"]}).write_parquet(tmp_path / f"names/day={day}/a.parquet")
    query = (
        "select k, v, name, day, label, cast(v as tinyint) as small, struct(k, array(v)) as things, map('k', k) as named, "
        "cast(v as decimal(9,2)) as amount, timestamp'2024-05-06 07:08:09' as at, to_date('2024-05-06') as date, "
        "timestamp_ntz'2024-05-06 07:08:09' as local, cast(null as string) as nothing "
        "from input join names using (k) join labels using (k)"
    )
    tables = {"names": tmp_path / "names", "labels": pl.DataFrame({"k": [0, 1], "label": ["zero", "one"]})}
    rows = [pl.DataFrame({"k": [0, 1], "v": [3, 4]})]
    (found,) = frames_of(run(region(rows, query, options_for(server, shared), tables=tables))).values()
    (local,) = frames_of(run(region(rows, query, LOCAL, tables=tables))).values() if shared is None else (None,)
    assert local is None or found.sort("k").equals(local.sort("k"))
    assert found.sort("k").select("k", "v", "name", "day", "label", "small").rows() == [
        (0, 3, "name 0", 0, "zero", 3),
        (1, 4, "name 1", 1, "one", 4),
    ]
    row = found.sort("k").row(1, named=True)
    assert (row["things"], str(row["amount"]), str(row["date"])) == ({"k": 1, "col2": [4]}, "4.00", "2024-05-06")
    assert (str(row["at"]), str(row["local"])) == ("2024-05-06 07:08:09+00:00", "2024-05-06 07:08:09")


@pytest.mark.check
def test_names_within_views_are_those_of_each_view(server: ConnectServer) -> None:
    """All are called `input`; the server asks for them only when something runs."""
    flow = Dataflow("views")
    cells = flow.columns("in", Batches([pl.DataFrame({"v": [1, 2, 3]}), pl.DataFrame({"v": [4]})]))
    odd = spark.view(cells, "select v from input where v % 2 = 1")
    tens = spark.view(odd, lambda df: df.selectExpr("10 * v as v"))
    more = spark.view(tens, "select v + 1 as v from input")
    spark.batch(more, "select v * 2 as v from input", over="all", options=options_for(server)).capture("out")
    result = frames_of(run(flow))
    assert {epoch: sorted(found["v"]) for epoch, found in result.items()} == {0: [22, 62], 1: [22, 62]}


@pytest.mark.check
def test_files_of_a_result_hold_as_many_rows_as_they_may(server: ConnectServer) -> None:
    flow = Dataflow("many")
    flow.columns("in", Batches([pl.DataFrame({"n": [150_000]})]))
    spark.source(flow, lambda session: session.range(150_000), options=options_for(server)).capture("out")
    batches = [as_polars(batch) for _, batch in run(flow).captured("out")]
    assert max(map(len, batches)) == 65_536
    assert pl.concat(batches)["id"].sort().to_list() == list(range(150_000))


@pytest.mark.soak
@pytest.mark.parametrize("who", ["child", "keeper"])
def test_killed_child_or_keeper_is_replaced_and_what_it_had_the_server_do_ends_there(
    who: str, server: ConnectServer, tmp_path: Path
) -> None:
    def kill() -> None:
        wait_for(lambda: beats(tmp_path) > 3)
        child = int((tmp_path / "child-0").read_text())
        os.kill(child if who == "child" else parent(child), signal.SIGKILL)

    what = endless_at_first(str(tmp_path))
    result = run_beside(lambda: run(region([frame(0)], what, options_for(server))), kill)
    assert frames_of(result)[0].sort("k").equals(right(frame(0)))
    wait_for(lambda: ends(tmp_path), 30)


def _divides(df: Any) -> Any:
    from pyspark.sql import functions as F

    return df.select(F.udf(lambda k: 1 // (k - k), "long")("k").alias("q"))


@pytest.mark.check
@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda df: df.sparkSession.sparkContext, r"sparkContext.*test_connect.py:\d+.*connect='sc://localhost:\d+'"),
        (lambda df: df.rdd, r"rdd is not implemented.*test_connect.py:\d+.*connect='sc://localhost:\d+'"),
        ("select nope from input", "UNRESOLVED_COLUMN"),
        ("select 1 / (k - k) as q from input", "DIVIDE_BY_ZERO"),
        pytest.param(_divides, "ZeroDivisionError", marks=pytest.mark.soak),
        (lambda df: df.sparkSession.stop() or df, r"leave stop\(\) out"),
    ],
)
def test_what_can_never_work_is_an_error_at_once(server: ConnectServer, what: Any, said: str) -> None:
    with pytest.raises(FalkirkError, match=rf"(?s)'history' .*test_connect.py.*{said}") as raised:
        run(region([frame(0)], what, options_for(server)))
    assert "has failed" not in str(raised.value)  # it was not tried again
    assert TOKEN not in str(raised.value)


@pytest.mark.soak
def test_token_is_said_nowhere(server: ConnectServer, tmp_path: Path) -> None:
    options = options_for(server)
    assert TOKEN not in repr(options)

    def tells(df: Any, attempt: int) -> Any:
        if not attempt:
            raise ConnectionError(f"{TOKEN} was refused")
        return totals(df)

    said: list[str] = []
    events: list[Any] = []
    flow = region([frame(0)], tells, options)
    job = Job(
        Program(flow=flow), 1, tmp_path, on_note=said.append, on_event=lambda *event: events.append(event)
    )  # fmt: skip
    assert frames_of(job.run())[0].sort("k").equals(right(frame(0)))
    assert any("ConnectionError: *** was refused" in text for text in said)
    assert TOKEN not in f"{said} {events}"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 3
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]


def test_addresses_and_options_that_cannot_be_are_errors_that_show_no_token() -> None:
    for wrong in (f"http://a:1/;token={TOKEN}", f"sc://a:b/;token={TOKEN}", f"sc://me:{TOKEN}@a:1"):
        with pytest.raises(spark.SparkError, match=r"test_connect.py.*sc://host:port") as raised:
            spark.SparkOptions(connect=wrong)
        assert TOKEN not in str(raised.value)
    with pytest.raises(spark.SparkError, match="started here"):
        spark.SparkOptions(connect="sc://a:1", memory="1g")
    with pytest.raises(spark.SparkError, match="name it with connect="):
        spark.SparkOptions(shared=True)
    with pytest.raises(spark.SparkError, match=r"barrier.*connect="):
        SparkCluster("sc://a:1")


# Slow ones


@pytest.mark.soak
def test_server_that_is_killed_and_comes_again_is_waited_for(server: ConnectServer, tmp_path: Path) -> None:
    def kill() -> None:
        wait_for(lambda: beats(tmp_path) > 3)
        server.kill()
        wait_for(lambda: any("it is waited for" in text for text in said))
        server.start()

    said: list[str] = []
    what = endless_at_first(str(tmp_path))
    job = Job(Program(flow=region([frame(0)], what, options_for(server))), 1, on_note=said.append)
    assert frames_of(run_beside(job.run, kill))[0].sort("k").equals(right(frame(0)))
    assert any("does not answer any more" in text for text in said), said


@pytest.mark.soak
def test_server_that_was_started_anew_between_two_runs_costs_no_attempt(server: ConnectServer) -> None:
    def what(df: Any, attempt: int) -> Any:
        assert not attempt
        return totals(df)

    for seed in range(2):
        found = frames_of(run(region([frame(seed)], what, options_for(server))))
        assert found[0].sort("k").equals(right(frame(seed)))
        if not seed:
            server.kill()
            server.start()


@pytest.mark.soak
def test_server_that_never_comes_is_an_error_when_its_time_is_over() -> None:
    options = spark.SparkOptions(connect=f"sc://localhost:1/;token={TOKEN}", start_limit=3, nice=0)
    with pytest.raises(
        FalkirkError, match=r"sc://localhost:1 does not answer: .*[Cc]onnection refused.* 3 s"
    ) as raised:
        run(region([frame(0)], totals, options))
    assert TOKEN not in str(raised.value)


@pytest.mark.soak
def test_job_that_is_killed_whole_leaves_nothing_running_on_the_server(server: ConnectServer, tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from tests.libraries.spark.test_connect import endless_at_first, frame, region, run, spark
options = spark.SparkOptions(connect={server.address!r}, shared=False, nice=0)
run(region([frame(0)], endless_at_first({str(tmp_path)!r}), options))
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3])
    try:
        wait_for(lambda: beats(tmp_path) > 3)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: ends(tmp_path), 30)


@pytest.mark.soak
def test_setting_that_a_server_does_not_take_is_an_error_that_names_it(server: ConnectServer) -> None:
    options = spark.SparkOptions(connect=server.address, config=(("spark.executor.memory", "1g"),), nice=0)
    with pytest.raises(FalkirkError, match=r"(?s)'spark.executor.memory' cannot be made over Spark Connect"):
        run(region([frame(0)], totals, options))


@pytest.mark.soak
def test_python_process_of_the_server_that_dies_costs_a_task_and_not_the_run(
    server: ConnectServer, tmp_path: Path
) -> None:
    died = str(tmp_path / "died")

    def dies_once(batches: Any) -> Any:
        if not os.path.exists(died):
            open(died, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    def what(df: Any, attempt: int) -> Any:
        assert not attempt
        return totals(df.mapInArrow(dies_once, df.schema))

    found = frames_of(run(region([frame(0)], what, options_for(server))))
    assert os.path.exists(died)
    assert found[0].sort("k").equals(right(frame(0)))


@pytest.mark.soak
def test_run_that_hangs_on_the_server_is_given_up_at_its_limit_and_ends_there(
    server: ConnectServer, tmp_path: Path
) -> None:
    options = spark.SparkOptions(connect=server.address, nice=0, retries=1, limit=20)
    found = frames_of(run(region([frame(0)], endless_at_first(str(tmp_path)), options)))
    assert found[0].sort("k").equals(right(frame(0)))
    wait_for(lambda: ends(tmp_path), 30)


@pytest.mark.soak
def test_executor_of_the_server_that_is_killed_costs_its_tasks_and_not_the_run(tmp_path: Path) -> None:
    def what(df: Any, attempt: int) -> Any:
        def slowly(batches: Any) -> Any:
            (tmp_path / "begun").touch()
            time.sleep(0.5)
            yield from batches

        assert not attempt
        return totals(df.repartition(8).mapInArrow(slowly, df.schema))

    def kill() -> None:
        wait_for(lambda: (tmp_path / "begun").exists())
        assert server.process is not None
        os.kill(executors(server.process.pid)[0], signal.SIGKILL)

    with connect_server(tmp_path, master="local-cluster[2,1,1024]") as server:
        options = spark.SparkOptions(connect=server.address, nice=0)
        found = frames_of(run_beside(lambda: run(region([frame(0)], what, options)), kill))
    assert found[0].sort("k").equals(right(frame(0)))


# Streams


def put(folder: Path, *numbers: int) -> None:
    """Files come into a folder, one after the other."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        frame(number, 100).write_parquet(folder / f".{number}")
        os.utime(folder / f".{number}", (1_600_000_000 + number,) * 2)  # by which Spark orders them
        (folder / f".{number}").rename(folder / f"{number:04}.parquet")


def stream(folder: Path, options: spark.SparkOptions, **arguments: Any) -> Dataflow:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    flow = Dataflow("stream")
    source = spark.Stream.files(folder, schema, per_batch=1, options=options, **arguments)
    flow.columns("in", source).capture("out")
    return flow


@pytest.mark.soak
def test_each_micro_batch_on_the_server_is_an_epoch_and_all_of_it_comes_once(
    server: ConnectServer, tmp_path: Path
) -> None:
    put(tmp_path / "in", *range(6))
    # A Python process that the server starts must answer it within 15 s, which a busy machine may miss.
    options = spark.SparkOptions(connect=server.address, shared=True, nice=0, retries=9)
    found = frames_of(run(stream(tmp_path / "in", options, available_now=True, ahead=2), 2))
    assert sorted(found) == list(range(6))
    assert all(rows.sort("k", "v").equals(frame(number, 100).sort("k", "v")) for number, rows in found.items())


@pytest.mark.soak
def test_query_on_the_server_says_how_far_it_is(server: ConnectServer, tmp_path: Path) -> None:
    # A Python process that the server starts must answer it within 15 s, which a busy machine may miss.
    options = spark.SparkOptions(connect=server.address, shared=True, nice=0, retries=9)
    says_how_far_it_is(options, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("now", [True, False])
def test_query_on_the_server_that_somebody_else_stops_goes_on_where_it_was(
    now: bool, server: ConnectServer, tmp_path: Path
) -> None:
    options = spark.SparkOptions(connect=server.address, shared=True, nice=0, retries=9)
    goes_on_where_it_was_when_somebody_stops_it(options, tmp_path, now)


@pytest.mark.soak
def test_stream_from_a_server_that_does_not_see_the_files_is_an_error(server: ConnectServer, tmp_path: Path) -> None:
    put(tmp_path / "in", 0)
    with pytest.raises(FalkirkError, match=r"does not see: have both see one folder"):
        run(stream(tmp_path / "in", options_for(server), available_now=True))


@pytest.mark.soak
def test_query_whose_python_process_starts_too_late_is_waited_for(tmp_path: Path) -> None:
    """Such a start counts as no failure of the query: on a busy server all would fail, and begin anew, for ever."""
    put(tmp_path / "in", *range(2))
    late = tmp_path / "python"
    late.write_text(f"""#!/bin/sh
case "$*" in *foreach_batch*)
    echo . >> {tmp_path}/tries
    if [ $(wc -l < {tmp_path}/tries) -le 2 ]; then sleep 12; fi;;
esac
exec {sys.executable} "$@"
""")
    late.chmod(0o755)
    said: list[str] = []
    with connect_server(tmp_path, python=str(late)) as server:
        options = spark.SparkOptions(connect=server.address, shared=True, nice=0, retries=0)
        flow = stream(tmp_path / "in", options, available_now=True)
        found = frames_of(Job(Program(flow=flow), 1, tmp_path / "store", on_note=said.append).run())
    assert (tmp_path / "tries").read_text().count(".") > 2
    assert sum("is busy" in text for text in said) >= 2, said
    assert sorted(found) == [0, 1]


def followed(folder: str, connect: str) -> Dataflow:
    """A stream from the server as a table. Whoever speaks to the server says which process it is."""

    def opened(session: Any) -> Any:
        Path(folder, "now.new").write_text(str(os.getpid()))
        Path(folder, "now.new").rename(Path(folder, "now"))
        return session.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")

    options = spark.SparkOptions(connect=connect, nice=0, retries=9)
    flow = Dataflow("followed")
    with flow.region("front", policy=Lazy(every=0.1)):
        rows = flow.columns("in", spark.Stream(opened, available_now=True, ahead=1, options=options))
    spark.write(rows, Path(folder) / "table", name="table")
    return flow


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_every_row_of_a_stream_comes_once_whoever_is_killed(seed: int, tmp_path: Path) -> None:
    count = 14
    put(tmp_path / "in", *range(count))
    (tmp_path / "server").mkdir()
    with connect_server(tmp_path / "server") as server:
        arguments = {"folder": str(tmp_path), "connect": server.address}
        job = Job(Program(flow=followed, args=arguments), 2, tmp_path / "store")
        killed: list[str] = []

        def strike() -> None:
            victims = random.Random(seed).sample(["child", "server", "worker", "other", "child"], 5)
            for number, victim in enumerate(victims, 1):
                wait_for(lambda number=number: len(list((tmp_path / "table").glob("epoch=*"))) >= 2 * number)  # type: ignore[misc]
                here = home(2)
                pids = {
                    "child": int((tmp_path / "now").read_text()),
                    "worker": job.pids[here],
                    "other": job.pids[1 - here],
                }
                if victim == "server":
                    (server.stop if seed else server.kill)()
                    server.start()
                else:
                    with suppress(ProcessLookupError):  # it has just died with another
                        os.kill(pids[victim], signal.SIGKILL)
                killed.append(victim)

        run_beside(job.run, strike)
    assert len(killed) == 5
    found = pl.read_parquet(tmp_path / "table/epoch=*/*.parquet", hive_partitioning=True).cast({"epoch": pl.Int64})
    epochs = found.partition_by("epoch", as_dict=True)
    left = list(range(count))
    for epoch in range(len(epochs)):
        # A Spark that dies between two of its notes puts one more file into the batch that it was at.
        rows = epochs[epoch,].select("k", "v")
        files, left = left[: len(rows) // 100], left[len(rows) // 100 :]
        assert rows.sort("k", "v").equals(pl.concat([frame(number, 100) for number in files]).sort("k", "v"))
    assert not left
