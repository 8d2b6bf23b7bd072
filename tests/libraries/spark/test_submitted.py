"""Regions in a program that `spark-submit` runs: on the master, and with the settings, that it was given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from libraries import spark
from libraries.spark.setup import submitted
from libraries.spark.setup.java import find_java, home_for_spark
from libraries.spark.setup.options import environment, ignored_settings, settings
from tests.libraries.spark.standalone import standalone_cluster

GIVEN = {
    "spark.master": "spark://host:7077",
    "spark.app.name": "theirs",
    "spark.app.submitTime": "1",
    "spark.submit.deployMode": "client",
    "spark.submit.pyFiles": "/there/beside.py",
    "spark.executor.memory": "500m",
    "spark.sql.ansi.enabled": "false",
}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was submitted, whose Java has said how."""
    monkeypatch.setenv(submitted.VARIABLE, "1")
    monkeypatch.setattr(submitted, "_read", lambda port: GIVEN)


@pytest.mark.usefixtures("given")
def test_options_are_those_of_the_submitted_program() -> None:
    options = spark.SparkOptions(config=(("spark.executor.memory", "1g"),))
    made = settings(options, Path("here"))
    assert (options.master, options.local) == ("spark://host:7077", False)
    assert made["spark.submit.pyFiles"] == "/there/beside.py"
    assert made["spark.executor.memory"] == "1g", "the program's own word wins"
    assert made["spark.app.name"] == "falkirk"
    assert "spark.submit.deployMode" not in made
    assert "spark.sql.ansi.enabled" not in made
    assert ignored_settings(options) == ["spark.sql.ansi.enabled"]


@pytest.mark.usefixtures("given")
def test_another_spark_that_is_named_has_none_of_them() -> None:
    for options in (spark.SparkOptions("local[2]"), spark.SparkOptions(connect="sc://host")):
        assert options.config == ()
    assert spark.SparkOptions("local[2]").local


def test_a_program_that_was_not_submitted_has_its_own_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(submitted.VARIABLE, raising=False)
    assert spark.SparkOptions() == spark.SparkOptions("local[*]")


def test_the_spark_that_pyspark_comes_from_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "spark"
    module = home / "python" / "lib" / "pyspark.zip" / "pyspark" / "__init__.py"
    for at, stays in ((module, True), (tmp_path / "site-packages" / "pyspark" / "__init__.py", False)):
        spec = type("Spec", (), {"origin": str(at)})()
        monkeypatch.setattr("libraries.spark.setup.options.find_spec", lambda _, spec=spec: spec)
        made = environment(spark.SparkOptions(), tmp_path, {"SPARK_HOME": str(home)})
        assert ("SPARK_HOME" in made) == stays


def test_a_cluster_has_a_python_of_its_own(tmp_path: Path) -> None:
    theirs = {"PYSPARK_PYTHON": "/opt/python"}
    assert environment(spark.SparkOptions("spark://host:7077"), tmp_path, theirs)["PYSPARK_PYTHON"] == "/opt/python"
    assert environment(spark.SparkOptions(), tmp_path, theirs)["PYSPARK_PYTHON"] != "/opt/python"


BESIDE = "def doubled(n): return 2 * n\n"
PROGRAM = """
import sys
import beside
import falkirk
import polars as pl
from falkirk import spark

def region(rows):
    from pyspark.sql import functions as F
    doubled = F.udf(lambda n: beside.doubled(n), "long")
    context = rows.sparkSession.sparkContext
    mine = context.getConf().get("spark.mine")
    return rows.select(doubled("n").alias("n"), F.lit(context.master).alias("on"), F.lit(mine).alias("mine"))

flow = falkirk.Dataflow("submitted")
rows = flow.source("items", falkirk.Iterable([1, 2, 3])).map(beside.doubled).to_columns({"n": int})
spark.batch(rows, region).capture("out")
for _, batch in falkirk.run(flow, workers=int(sys.argv[1])).captured("out"):
    print("found", *pl.DataFrame(batch).sort("n").rows())
"""


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_regions_run_on_the_cluster_that_the_program_was_submitted_to(tmp_path: Path, workers: int) -> None:
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "app.py").write_text(PROGRAM)
    files = tmp_path / "files"
    files.mkdir()
    with standalone_cluster(tmp_path, 1, cores=2) as master:
        variables = environment(spark.SparkOptions(master), home_for_spark(find_java(), tmp_path))
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master]
        command += ["--conf", "spark.mine=7", "--conf", "spark.executor.memory=500m", "--py-files", "beside.py"]
        done = subprocess.run(
            [*command, "app.py", str(workers)],
            cwd=tmp_path,
            env=os.environ | variables | {"FALKIRK_FILES": str(files)},
            capture_output=True,
            text=True,
            timeout=300,
        )
    found = [line for line in done.stdout.splitlines() if line.startswith("found")]
    assert found == [f"found {' '.join(str((n, master, '7')) for n in (4, 8, 12))}"], done.stderr[-3000:]
