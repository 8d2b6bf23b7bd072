"""Regions on a Sail beside the job: types come back as from Spark, kills cost nothing, and what it cannot do is said."""

from __future__ import annotations

import datetime
import os
import signal
from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import falkirk
from falkirk.doctor import Verdict, sail
from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.errors import SparkError
from libraries.spark.host.host import SparkHost, host_of
from libraries.spark.setup.sail import VARIABLE, look_for_sail, sail_python
from recovery.policy import Batch
from runtime.run import run
from tests.support.beside import run_beside
from tests.support.processes import gone, parent, wait_for
from timely.data.batch import as_arrow, as_polars
from timely.errors import FalkirkError
from timely.io import Batches

OPTIONS = spark.SparkOptions(sail=True, nice=0, retries=1)

needs_sail = pytest.mark.skipif(
    sail_python() is None,
    reason="Sail is 170 MB: tests/soak/spark_matrix.py brings it; or name a Python that has it by FALKIRK_SAIL",
)


@pytest.fixture
def host() -> Iterator[SparkHost]:
    yield host_of(OPTIONS)
    spark.stop()


def region(frames: list[pl.DataFrame], what: Any, name: str = "r", **arguments: Any) -> Dataflow:
    flow = Dataflow("region")
    cells = flow.columns("in", Batches(frames))
    with flow.region("history", policy=Batch(log_outputs=True)):
        spark.batch(cells, what, options=OPTIONS, name=name, **arguments).capture("out")
    return flow


TYPES = pl.DataFrame(
    {
        "flag": [True, None],
        "tiny": pl.Series([1, None], dtype=pl.Int8),
        "small": pl.Series([-2, None], dtype=pl.Int16),
        "whole": pl.Series([3, None], dtype=pl.Int32),
        "long": [1 << 60, None],
        "single": pl.Series([1.5, None], dtype=pl.Float32),
        "double": [0.1, None],
        "text": ["größe", None],
        "bytes": [b"\x00\xff", None],
        "day": [datetime.date(2024, 5, 6), None],
        "local": [datetime.datetime(2024, 5, 6, 7, 8, 9, 123456), None],
        "instant": pl.Series([datetime.datetime(2024, 5, 6, 7, 8, 9), None]).dt.replace_time_zone("UTC"),
        "amount": pl.Series([Decimal("12.34"), None], dtype=pl.Decimal(9, 2)),
        "list": [[1, 2], None],
        "things": [{"a": 1, "b": ["x"]}, None],
    }
)


@pytest.mark.check
@needs_sail
@pytest.mark.spark
def test_types_and_values_come_back_as_they_went(host: SparkHost) -> None:
    sent = as_arrow(TYPES)
    for what in ("select * from input", lambda df: df):
        ((_, found),) = run(region([TYPES], what)).captured("out")
        there = as_arrow(found)
        assert as_polars(found).equals(TYPES)
        narrow = {
            pa.large_string(): pa.string(),
            pa.string_view(): pa.string(),
            pa.large_binary(): pa.binary(),
            pa.binary_view(): pa.binary(),
        }
        for field in sent.schema:
            type_ = there.schema.field(field.name).type
            if not pa.types.is_nested(type_):
                assert type_ == narrow.get(field.type, field.type), field.name


@pytest.mark.check
@needs_sail
@pytest.mark.spark
def test_functions_tables_and_epochs_are_as_on_spark(host: SparkHost, tmp_path: Path) -> None:
    pl.DataFrame({"k": [0, 1], "name": ["even", "odd"]}).write_parquet(tmp_path / "names.parquet")

    def doubled(df: Any, names: Any) -> Any:
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType

        twice = F.udf(lambda v: 2 * v, LongType())
        return df.join(names, "k").groupBy("name").agg(F.sum(twice("v")).alias("s"))

    parts = [pl.DataFrame({"k": [0, 1, 0], "v": [n, 1, 1]}) for n in range(3)]
    found = run(region(parts, doubled, over="all", tables={"names": tmp_path / "names.parquet"})).captured("out")
    assert {time[0]: sorted(as_polars(batch).rows()) for time, batch in found} == {
        n: [("even", 2 * (sum(range(n + 1)) + n + 1)), ("odd", 2 * (n + 1))] for n in range(3)
    }


@pytest.mark.check
@needs_sail
@pytest.mark.spark
def test_many_rows_come_in_files_of_bounded_size(host: SparkHost) -> None:
    found = run(region([pl.DataFrame({"k": range(200_000)})], "select k + 1 as k from input")).captured("out")
    frames = [as_polars(batch) for _, batch in found]
    assert max(frame.height for frame in frames) <= 1 << 16
    assert sorted(pl.concat(frames)["k"]) == list(range(1, 200_001))


@pytest.mark.check
@needs_sail
@pytest.mark.spark
@pytest.mark.parametrize("victim", ["sail", "child"])
def test_kill_costs_a_start_and_no_row(victim: str, host: SparkHost, tmp_path: Path) -> None:
    called = tmp_path / "called"

    def waits(df: Any) -> Any:
        import time

        first = not called.exists()
        called.touch()
        if first:
            time.sleep(60)
        return df.selectExpr("k + 1 as k")

    def kill() -> None:
        wait_for(called.exists)
        server = host.pid
        assert server is not None
        killed.append(server)
        if victim == "sail":
            os.kill(server, signal.SIGKILL)
        else:
            from tests.libraries.spark.starting import speaking_to

            (child,) = speaking_to(server)
            os.kill(child, signal.SIGKILL)

    killed: list[int] = []
    ((_, found),) = run_beside(lambda: run(region([pl.DataFrame({"k": [1, 2]})], waits)), kill).captured("out")
    assert sorted(as_polars(found)["k"]) == [2, 3]
    assert (host.pid in killed) == (victim == "child")


@pytest.mark.check
@needs_sail
@pytest.mark.spark
def test_sail_ends_with_its_keeper_and_with_the_job(host: SparkHost) -> None:
    for end in (lambda keeper: os.kill(keeper, signal.SIGKILL), lambda keeper: spark.stop()):
        run(region([pl.DataFrame({"k": [1]})], "select k from input"))
        server = host.pid
        assert server is not None
        end(parent(server))
        wait_for(lambda pid=server: gone(pid))  # type: ignore[misc]


@pytest.mark.check
@needs_sail
@pytest.mark.spark
def test_streaming_query_is_refused_with_what_to_do(host: SparkHost, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    flow = Dataflow("stream")
    source = spark.Stream.files(tmp_path / "in", pa.schema([("k", pa.int64())]), available_now=True, options=OPTIONS)
    flow.columns("in", source).capture("out")
    with pytest.raises(FalkirkError, match=r"test_sail.py.*Sail has no streaming queries: take Spark"):
        falkirk.run(flow)


@pytest.mark.check
@needs_sail
@pytest.mark.spark
def test_query_that_cannot_be_is_an_error_at_once(host: SparkHost) -> None:
    before = host.starts
    with pytest.raises(FalkirkError, match=r"'r' .*nowhere"):
        run(region([pl.DataFrame({"k": [1]})], "select nowhere from input"))
    assert host.starts == before + 1


def test_options_that_do_not_go_with_sail_are_refused() -> None:
    for more in ({"master": "local[2]"}, {"memory": "1g"}, {"spare": True}, {"connect": "sc://host"}, {"shared": True}):
        with pytest.raises(SparkError, match=r"sail=True is a Sail beside the job"):
            spark.SparkOptions(sail=True, **more)  # type: ignore[arg-type]


@pytest.mark.check
@pytest.mark.spark
def test_python_without_sail_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "libraries.spark.setup.sail.find_spec", lambda name: None if name == "pysail" else find_spec(name)
    )
    monkeypatch.delenv(VARIABLE, raising=False)
    options = spark.SparkOptions(sail=True, retries=2, config=(("a", "b"),))
    flow = Dataflow("none")
    spark.batch(
        flow.columns("in", Batches([pl.DataFrame({"k": [1]})])), "select k from input", options=options, name="r"
    ).capture("out")
    with pytest.raises(FalkirkError, match=r"test_sail.py.*needs Sail.*falkirk\[sail\]"):
        run(flow)


@needs_sail
def test_sail_that_is_there_is_found_with_its_versions() -> None:
    good, text = look_for_sail()
    assert good
    assert "with PySpark 4." in text


def test_doctor_tells_of_a_sail_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for said, verdict in (("0.7.2 4.2.0", Verdict.GOOD), ("0.7.2 4.3.0", Verdict.NOTE)):
        python = tmp_path / said.replace(" ", "-")
        python.write_text(f"#!/bin/sh\necho {said}\n")
        python.chmod(0o755)
        monkeypatch.setenv(VARIABLE, str(python))
        assert sail().verdict is verdict
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    assert sail().verdict is Verdict.NOTE
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr("libraries.spark.setup.sail.find_spec", lambda _: None)
    assert sail().verdict is Verdict.GOOD
    assert "falkirk[sail]" in sail().text
