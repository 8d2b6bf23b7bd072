"""The settings of the user's own Spark: catalogues and logs hold, what answers rest on does not, and that is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.setup.defaults import logs_by_itself
from libraries.spark.setup.options import ignored_settings, settings
from runtime.run import run
from timely.data.batch import as_polars
from timely.io import Batches

TEXT = """
spark.master                      spark://other:7077
spark.sql.session.timeZone        Asia/Tokyo
spark.sql.ansi.enabled            false
spark.sql.legacy.timeParserPolicy LEGACY
spark.sql.shuffle.partitions      3
spark.sql.parquet.compression.codec gzip
spark.sql.catalog.lake            org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog
spark.sql.catalog.lake.url        jdbc:derby:memory:lake;create=true
spark.sql.catalog.lake.driver     org.apache.derby.iapi.jdbc.AutoloadedDriver
spark.sql.extensions              none.such.Extension
spark.sql.warehouse.dir           /warehouse
spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs false
"""
LEFT = ["spark.master", "spark.sql.ansi.enabled", "spark.sql.legacy.timeParserPolicy", "spark.sql.session.timeZone"]


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the settings of a Spark of the user's."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(TEXT.replace("/warehouse", str(tmp_path / "warehouse")))
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    return folder


def test_all_hold_but_those_that_answers_rest_on_and_where_spark_runs(conf: Path) -> None:
    made = settings(spark.SparkOptions(), Path("here"))
    lines = (conf / "spark-defaults.conf").read_text().splitlines()
    given = {name: value for name, _, value in (line.partition(" ") for line in lines if line)}
    for name, value in given.items():
        assert (made.get(name) == value.strip()) == (name not in LEFT), name
    assert ignored_settings(spark.SparkOptions()) == LEFT
    assert ignored_settings(spark.SparkOptions(config=(("spark.sql.ansi.enabled", "false"),))) == [LEFT[0], *LEFT[2:]]
    (conf / "spark-defaults.conf").write_text("spark.sql.session.timeZone UTC\n")
    assert ignored_settings(spark.SparkOptions()) == [], "it is what it says"


def test_level_of_what_spark_logs_is_the_users_if_there_is_one(conf: Path) -> None:
    def level(**config: str) -> str | None:
        return settings(spark.SparkOptions(config=tuple(config.items())), Path(), level="OFF").get("spark.log.level")

    assert level() == "OFF"
    assert level(**{"spark.log.level": "INFO"}) == "INFO"
    assert level(**{"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine"}) is None
    (conf / "log4j2.properties.template").touch()
    assert level() == "OFF"
    (conf / "log4j2.properties").touch()
    assert level() is None
    assert not logs_by_itself({}, None)


@pytest.mark.check
@pytest.mark.spark
def test_region_finds_a_catalogue_of_the_users_and_what_does_not_hold_is_said(
    conf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (conf / "log4j2.properties").write_text(
        "rootLogger.level = warn\nrootLogger.appenderRef.stdout.ref = console\nappender.console.type = Console\n"
        "appender.console.name = console\nappender.console.target = SYSTEM_ERR\nappender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %p %c{1}: %m%n\n"
    )

    def what(df: Any) -> Any:
        session = df.sparkSession
        session.sql("use lake")
        session._jvm.org.slf4j.LoggerFactory.getLogger("mine").warn("it is told")
        names = ("spark.sql.extensions", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
        return session.createDataFrame(
            [[session.catalog.currentCatalog(), *map(session.conf.get, names)]], ["a", "b", "c", "d"]
        )

    options = spark.SparkOptions(memory="703m", nice=0, retries=0)
    flow = Dataflow("catalogue")
    rows = flow.columns("in", Batches([pl.DataFrame({"k": [1]})]))
    spark.batch(rows, what, options=options, name="history").capture("out")
    try:
        ((_, batch),) = run(flow).captured("out")
    finally:
        spark.stop()
    assert as_polars(batch).rows() == [("lake", "none.such.Extension", "3", "UTC")]
    said = capfd.readouterr().err
    assert f"do not hold here, as answers rest on them, or a job says where it runs: {', '.join(LEFT)}." in said
    assert "WARN mine: it is told" in said
