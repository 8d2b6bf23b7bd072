"""A Java that takes its time before Spark starts in it: it is waited for, and said so, unless there is a limit."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import falkirk
from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.errors import SparkError
from libraries.spark.host.host import host_of
from libraries.spark.setup.java import find_java
from libraries.spark.setup.options import check_master
from timely.errors import FalkirkError
from timely.io import Batches
from timely.io.memory import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.check]

ROWS = pa.table({"k": [1, 2, 3]})


@pytest.fixture
def slow_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Path]:
    """Has a Java that sleeps so many seconds before it starts Spark; the folder in which each start leaves a file."""

    def made(seconds: float) -> Path:
        program = tmp_path / "slow" / "bin" / "java"
        starts = tmp_path / "starts"
        program.parent.mkdir(parents=True)
        starts.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            "for each do\n"
            '  [ "$each" = org.apache.spark.launcher.Main ] && break\n'
            '  if [ "$each" = org.apache.spark.deploy.SparkSubmit ]; then\n'
            f"    touch {shlex.quote(str(starts))}/$$\n"
            f"    sleep {seconds}\n"
            "  fi\n"
            "done\n"
            f'exec {shlex.quote(str(find_java().home / "bin" / "java"))} "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("FALKIRK_JAVA", str(tmp_path / "slow"))
        return starts

    return made


@pytest.mark.soak
def test_spark_that_still_starts_is_waited_for_and_streams_say_so(
    slow_java: Callable[[float], Path], tmp_path: Path
) -> None:
    starts = slow_java(6)
    options = spark.SparkOptions(memory="800m", nice=0, retries=0)
    (tmp_path / "in").mkdir()
    pq.write_table(ROWS, tmp_path / "in" / "0.parquet")
    notes: list[str] = []

    def build() -> Dataflow:
        flow = Dataflow("slow")
        source = spark.Stream.files(tmp_path / "in", ROWS.schema, available_now=True, options=options)
        flow.columns("in", source).capture("out")
        return flow

    result = falkirk.run(build, store=tmp_path / "store", on_note=notes.append)
    assert [row for _, batch in result.captured("out") for row in rows_of(batch)] == ROWS.to_pylist()
    assert len(list(starts.iterdir())) == 1, "it is not begun anew"
    assert sum("Spark starts; batches come when it runs" in note for note in notes) == 1
    assert sum("Spark runs, after" in note for note in notes) == 1


def test_start_that_takes_longer_than_its_limit_is_begun_anew_and_then_an_error_that_says_so(
    slow_java: Callable[[float], Path],
) -> None:
    starts = slow_java(30)
    options = spark.SparkOptions(memory="801m", nice=0, retries=1, start_limit=1.5)
    flow = Dataflow("late")
    spark.batch(flow.columns("in", Batches([ROWS])), "select k from input", options=options, name="late").capture("out")
    try:
        with pytest.raises(
            FalkirkError, match=r"test_slow_start.py.*Spark has failed 2 times.*did not start within 1.5 s"
        ):
            falkirk.run(flow)
        assert len(list(starts.iterdir())) <= 2
    finally:
        host_of(options).stop()


def test_server_in_the_place_of_a_master_is_refused_with_the_reason() -> None:
    with pytest.raises(SparkError, match=r"Spark Connect runs no barrier stages.*SparkOptions\(connect=\)"):
        check_master("sc://host:15002")
