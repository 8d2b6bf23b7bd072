"""The engine "spark": what programs give on Spark alone, epoch by epoch, is what they give on Falkirk's workers."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pyspark
import pytest

import falkirk
from examples import tolls
from falkirk import agg
from libraries import spark as falkirk_spark
from libraries.connect.files.sink import FileWriter
from libraries.spark import Stream, stop
from libraries.spark.cluster.session import driver
from libraries.spark.engine.expressions import query_of
from libraries.spark.engine.history import InAStore
from libraries.spark.engine.refused import Refused
from libraries.spark.engine.rows import private
from libraries.spark.engine.types import EPOCH, arrow_schema
from libraries.spark.setup.java import find_java, home_for_spark
from libraries.spark.setup.options import SparkOptions, environment
from runtime.supervisor.stop import stop_job
from tests.libraries.spark.standalone import standalone_cluster
from tests.support.beside import run_beside
from tests.support.processes import wait_for
from tests.support.stores import beside
from timely.data.batch import as_arrow
from timely.operators.window_shapes import Session as Gap

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with ExitStack() as resources:
        yield driver(SparkOptions(master="local[2]", config=(("spark.sql.shuffle.partitions", "1"),)), resources)


def answers(result: falkirk.Result, names: Any) -> dict[tuple[str, Any], Counter[str]]:
    """The rows of each capture at each time."""
    found: dict[tuple[str, Any], Counter[str]] = {}
    for name in names:
        for at, batch in result.captured(name):
            rows = batch if isinstance(batch, list) else pl.DataFrame(batch).to_dicts()
            found.setdefault((name, str(at)), Counter()).update(map(repr, rows))
    return found


def same(build: Callable[[], falkirk.Dataflow], spark: Any) -> dict[tuple[str, Any], Counter[str]]:
    """Run a program both ways; the answers, which are the same."""
    names = [node.name for node in build().graph.of_kind("capture")]
    alone = answers(falkirk.run(build, engine="spark", on=spark), names)
    assert alone == answers(falkirk.run(build), names)
    return alone


@pytest.mark.check
def test_totals_and_a_join_give_the_same_both_ways(spark: Any) -> None:
    def build() -> falkirk.Dataflow:
        flow = falkirk.Dataflow("small")
        sales = flow.columns(
            "sales", falkirk.Batches([pl.DataFrame({"k": ["a", "b"], "n": [n, 3]}) for n in (3, 5, 1)])
        )
        names = flow.columns("names", falkirk.Batches([pl.DataFrame({"k": ["a"], "name": ["A"]})]))
        totals = sales.filter(pl.col("n") > 1).group_by("k").agg(sum=agg.sum("n"), most=agg.max("n"))
        totals.join(names, on="k", how="lookup").capture("totals")
        return flow

    assert len(same(build, spark)) == 3


@pytest.mark.soak
def test_an_example_gives_the_same_both_ways(spark: Any) -> None:
    found = same(lambda: tolls.build(days=3, ships=200), spark)
    assert {name for name, _ in found} == {"totals", "windows", "late"}


# ------------------------------------------------------------------------------------------ expressions

EDGES: dict[str, tuple[Any, list[Any]]] = {
    "i": (pl.Int64, [-(1 << 63), (1 << 63) - 1, -7, -1, 0, 1, 2, 5, None]),
    "j": (pl.Int64, [-(1 << 63), (1 << 63) - 1, -3, -1, 0, 1, 3, None]),
    "b": (pl.Int8, [-128, 127, -1, 0, 1, None]),
    "c": (pl.Int8, [-128, 127, -1, 0, 3, None]),
    "u": (pl.UInt32, [0, 1, (1 << 32) - 1, None]),
    "f": (pl.Float64, [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, -2.25, 1e308, 5e-324, None]),
    "g": (pl.Float64, [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.1, -3.0, 1e-308, None]),
    "s": (pl.String, ["", "a", "ab", "ß", "é€😀", "it's \\n ${x} `q`", "\n\0", "Z", None]),
    "t": (pl.String, ["", "a", "b", "😀", "\\", None]),
    "p": (pl.Boolean, [True, False, None]),
    "q": (pl.Boolean, [True, False, None]),
    "d": (pl.Date, [dt.date(1970, 1, 1), dt.date(1900, 2, 28), dt.date(2024, 12, 31), dt.date(1582, 10, 10), None]),
    "m": (
        pl.Datetime("us"),
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            dt.datetime(2024, 2, 29, 1, 2, 3, 4),
            dt.datetime(1, 1, 1),
            None,
        ],
    ),
}
WHOLE, FLOATING, TEXTS, TRUTHS = ("i", "j"), ("f", "g"), ("s", "t"), ("p", "q")


def expression(chance: random.Random, kind: str, depth: int) -> pl.Expr:
    """A random expression of whole numbers, floats, texts or truths."""
    inner = lambda of: expression(chance, of, depth - 1)  # noqa: E731
    if depth == 0:
        return pl.col(chance.choice({"int": WHOLE, "float": FLOATING, "text": TEXTS, "truth": TRUTHS}[kind]))
    choices: dict[str, list[Callable[[], pl.Expr]]] = {
        "int": [
            lambda: inner("int") + inner("int"),
            lambda: inner("int") - inner("int"),
            lambda: inner("int") * inner("int"),
            lambda: inner("int") // inner("int"),
            lambda: inner("int") % inner("int"),
            lambda: -inner("int"),
            lambda: inner("int").abs(),
            lambda: inner("int").fill_null(chance.randint(-5, 5)),
            lambda: pl.when(inner("truth")).then(inner("int")).otherwise(inner("int")),
            lambda: pl.coalesce(inner("int"), inner("int")),
            lambda: inner("truth").cast(pl.Int64),
            lambda: pl.col("b").cast(pl.Int64) * inner("int"),
            lambda: pl.col("u").cast(pl.Int64),
            lambda: inner("text").str.len_chars().cast(pl.Int64),
            lambda: pl.col("d").dt.year().cast(pl.Int64) + pl.col("m").dt.second().cast(pl.Int64),
        ],
        "float": [
            lambda: inner("float") + inner("float"),
            lambda: inner("float") - inner("float"),
            lambda: inner("float") * inner("float"),
            lambda: inner("float") / inner("float"),
            lambda: inner("int") / inner("int"),
            lambda: inner("float") + inner("int"),
            lambda: inner("float").fill_nan(1.0),
            lambda: inner("float").fill_null(-0.0),
            lambda: -inner("float"),
            lambda: inner("float").abs().sqrt(),
            lambda: pl.when(inner("truth")).then(inner("float")).otherwise(None),
        ],
        "text": [
            lambda: inner("text") + inner("text"),
            lambda: inner("int").cast(pl.String),
            lambda: pl.concat_str(inner("text"), inner("text"), separator="'"),
            lambda: inner("text").fill_null("é\\"),
            lambda: pl.when(inner("truth")).then(inner("text")).otherwise(pl.lit("x")),
        ],
        "truth": [
            *(lambda kind=kind: inner(kind) > inner(kind) for kind in ("int", "float", "text")),  # type: ignore[misc]
            *(lambda kind=kind: inner(kind) == inner(kind) for kind in ("int", "float", "text", "truth")),  # type: ignore[misc]
            *(lambda kind=kind: inner(kind).ne_missing(inner(kind)) for kind in ("int", "float", "text")),  # type: ignore[misc]
            *(lambda kind=kind: inner(kind).is_null() for kind in ("int", "float", "text", "truth")),  # type: ignore[misc]
            lambda: inner("truth") & inner("truth"),
            lambda: inner("truth") | inner("truth"),
            lambda: inner("truth") ^ inner("truth"),
            lambda: ~inner("truth"),
            lambda: inner("float").is_nan(),
            lambda: inner("float").is_finite(),
            lambda: inner("int").is_between(-1, 3, closed="left"),
            lambda: inner("int").is_in([1, None, -7]),
            lambda: inner("text").is_in([]),
            lambda: inner("text").str.starts_with("a"),
            lambda: inner("text").str.contains("'", literal=True),
            lambda: inner("text").str.ends_with(pl.col("t")),
            lambda: pl.col("d") < dt.date(1970, 1, 2),
            lambda: pl.col("m") >= dt.datetime(1, 1, 1),
            lambda: pl.col("d").dt.weekday() == 7,
            lambda: pl.col("u") > 5,
        ],
    }
    return chance.choice(choices[kind])()


def hold(spark: Any, frame: pl.DataFrame, exprs: list[pl.Expr]) -> None:
    """Compare what both make of expressions over a frame."""
    named = {f"x{number}": expr for number, expr in enumerate(exprs)}
    session = private(spark)
    rows = as_arrow(frame).select(frame.columns).cast(arrow_schema(frame.schema))
    numbered = rows.append_column(EPOCH, [list(range(len(frame)))])
    session.createDataFrame(numbered).createOrReplaceTempView("edges")
    sql, made = query_of(lambda lazy: lazy.select(**named), "edges", frame.schema)
    found = pl.DataFrame(session.sql(sql).toArrow()).sort(EPOCH).drop(EPOCH).cast(made)  # type: ignore[arg-type]
    for name, expr in named.items():
        mine, theirs = found[name].to_list(), frame.select(expr.alias(name))[name].to_list()
        wrong = [row for row in range(len(frame)) if repr(mine[row]) != repr(theirs[row])]
        assert not wrong, (
            f"{expr}: {mine[wrong[0]]!r} is not {theirs[wrong[0]]!r} for {frame.row(wrong[0], named=True)}"
        )


def edges(chance: random.Random, rows: int) -> pl.DataFrame:
    return pl.DataFrame(
        {name: [chance.choice(values) for _ in range(rows)] for name, (_, values) in EDGES.items()},
        schema={name: kind for name, (kind, _) in EDGES.items()},
    )


ALL = [
    *(pl.col("i") // pl.col("j"), pl.col("i") % pl.col("j"), pl.col("b") // pl.col("c"), pl.col("b") % pl.col("c")),
    *(pl.col("b") + pl.col("c"), pl.col("b") * pl.col("c"), -pl.col("b"), pl.col("b").abs(), pl.col("b") - 100),
    *(pl.col("f") / pl.col("g"), pl.col("i") / pl.col("j"), pl.col("f") * pl.col("g"), pl.col("f").sqrt()),
    *(pl.col("f") > pl.col("g"), pl.col("f") == pl.col("g"), pl.col("s") < pl.col("t"), pl.col("p") > pl.col("q")),
    *(getattr(pl.col("m").dt, part)() for part in ("year", "month", "day", "hour", "minute", "second", "quarter")),
    *(getattr(pl.col("d").dt, part)() for part in ("year", "month", "day", "weekday", "ordinal_day")),
    *(
        pl.col("s").str.len_bytes(),
        pl.col("d").cast(pl.Datetime("us")),
        pl.lit(dt.datetime(1, 1, 1)).is_null() & pl.col("p"),
    ),
    *(pl.col("s") + pl.col("t"), pl.col("i").is_in([1, None]), pl.col("s").is_in(["a", "\n\0"]), pl.col("u") > 300),
    *(pl.col("p") & pl.col("q"), pl.col("p") | pl.col("q"), pl.col("i").cast(pl.Float64), pl.col("u").cast(pl.String)),
]


@pytest.mark.check
def test_expressions_give_the_same_for_nulls_and_what_does_not_fit(spark: Any) -> None:
    chance = random.Random(5)
    kinds = ["int", "float", "text", "truth"]
    hold(spark, edges(chance, 120), [*ALL, *(expression(chance, kinds[n % 4], 1 + n % 2) for n in range(24))])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_random_expressions_give_the_same(seed: int, spark: Any) -> None:
    chance = random.Random(seed)
    exprs = [expression(chance, kind, 1 + n % 3) for n in range(12) for kind in ("int", "float", "text", "truth")]
    hold(spark, edges(chance, 400), exprs)


# ------------------------------------------------------------------------------------------ verbs

KEYS = ["a", "b", "c", None]


def random_batches(chance: random.Random) -> list[pl.DataFrame]:
    schema = {"k": pl.String, "n": pl.Int64, "x": pl.Float64, "at": pl.Int64, "w": pl.Datetime("us")}
    days = dt.datetime(2024, 2, 28)
    return [
        pl.DataFrame(
            [
                (
                    chance.choice(KEYS),
                    chance.choice([None, -(1 << 40), chance.randint(-9, 9), 1 << 57]),
                    chance.choice([None, float("nan"), -0.0, 1.5, 64.0, float("inf")]),
                    10 * day + chance.randint(-25, 9),
                    days + dt.timedelta(hours=10 * day + chance.randint(-25, 9), microseconds=chance.randint(-1, 1)),
                )
                for _ in range(chance.choice([0, 1, 6]))
            ],
            schema=schema,
            orient="row",
        )
        for day in range(chance.randint(1, 7))
    ]


def every_verb(left: list[pl.DataFrame], right: list[pl.DataFrame]) -> falkirk.Dataflow:
    flow = falkirk.Dataflow("verbs")
    rows, others = (
        flow.columns("left", falkirk.Batches(left)),
        flow.columns("right", falkirk.Batches(right, per_epoch=2)),
    )
    least = {f"{kind}_{of}": getattr(agg, kind)(of) for of in "nx" for kind in ("min", "max")} | {"first": agg.min("k")}
    rows.group_by("k").agg(**least).capture("changes")
    rows.group_by("k", odd=pl.col("n") % 2 == 1).agg(sum=agg.sum("n"), mean=agg.mean("n"), last=agg.max("w")).capture(
        "sums"
    )
    rows.group_by("k").agg(rows=agg.count(), mean=agg.mean("n"), over="time", **least).capture("times")
    rows.agg(sum=agg.sum("n")).capture("all")
    rows.distinct("k").group_by("k").agg(n=agg.count()).capture("distinct")
    for how in ("inner", "semi", "lookup"):
        rows.join(others, on="k", how=how).capture(how)  # type: ignore[arg-type]
    for how in ("inner", "semi", "left", "right", "full", "anti"):
        rows.join(others, on=["k", "n"], how=how, over="time").capture(f"{how} in a time")  # type: ignore[arg-type]
    by_number = rows.window(falkirk.Sliding(10, every=4), time="at", lateness=3)
    by_number.group_by("k").agg(n=agg.count(), least=agg.min("x")).capture("sliding")
    by_number.late().capture("late")
    by_day = rows.window(falkirk.Tumbling(dt.timedelta(hours=7)), time="w")
    by_day.agg(n=agg.count(), sum=agg.sum("at")).filter(pl.col("n") > 1).capture("tumbling")
    odd, even = rows.branch(pl.col("n") % 2 == 1)
    rows.select(pl.lit("x").alias("c"), n=pl.lit(None, pl.Int64)).capture("constants")
    odd.concat(even, others).select("k", pl.col("n").cast(pl.Float64)).capture("concat")
    found = (
        rows.to_records().map(lambda row: {"k": row["k"], "n": len(row["k"] or "")}).to_columns({"k": str, "n": int})
    )
    found.filter(pl.col("n") > 0).agg(n=agg.sum("n")).to_records().capture("records")
    return flow


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_every_verb_gives_the_same(seed: int, spark: Any) -> None:
    chance = random.Random(seed)
    left, right = random_batches(chance), random_batches(chance)
    assert len(same(lambda: every_verb(left, right), spark)) > 0


@pytest.mark.soak
def test_files_and_sinks(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        rows = "".join(f"{number * 10 + n},{'abc'[n % 3]}\n" for n in range(5))
        (tmp_path / f"{number}.csv").write_text("n,k\n" + rows)
        pl.DataFrame({"k": ["a", "b"], "m": [number, 5]}).write_parquet(tmp_path / f"{number}.parquet")

    def build(out: Path) -> falkirk.Dataflow:
        flow = falkirk.Dataflow("files")
        numbers = flow.columns("numbers", falkirk.Csv(tmp_path / "*.csv", epoch=2))
        others = flow.columns("others", falkirk.Parquet(tmp_path / "*.parquet", epoch="file"))
        totals = numbers.join(others, on="k", how="inner").group_by("k").agg(sum=agg.sum("m"), n=agg.max("n"))
        totals.to(falkirk.FileSink(out, "csv"))
        totals.to(falkirk.Console("totals "))
        return flow

    printed, files = [], []
    for engine in ("spark", "falkirk"):
        out = tmp_path / engine
        falkirk.run(build(out), engine=engine, on=spark if engine == "spark" else None)  # type: ignore[arg-type]
        printed.append(sorted(capsys.readouterr().out.splitlines()))
        files.append(
            {path.name: sorted(path.read_text().splitlines()) for path in out.iterdir() if path.suffix == ".csv"}
        )
    assert files[0] == files[1]
    assert len(files[0]) > 1
    assert printed[0] == printed[1]


@pytest.mark.soak
def test_errors_name_the_users_line_and_leave_nothing(spark: Any, tmp_path: Path) -> None:
    flow = falkirk.Dataflow("large")
    rows = flow.columns("rows", falkirk.Batches([pl.DataFrame({"k": [1, 1], "n": [1 << 62, 1 << 62]})]))
    rows.group_by("k").agg(sum=agg.sum("n")).to(falkirk.FileSink(tmp_path / "out"))
    with pytest.raises(
        falkirk.FalkirkError, match=r"test_engine.py:\d+\) failed: the sum of column 'n' is beyond 64-bit"
    ):
        falkirk.run(flow, engine="spark", on=spark)
    assert not [path for path in (tmp_path / "out").iterdir() if path.suffix == ".jsonl"]
    flow = falkirk.Dataflow("wrong")
    flow.source("items", falkirk.Iterable([1, 0])).map(lambda n: 1 // n).capture("out")
    with pytest.raises(falkirk.FalkirkError, match=r"map 'map-1' \(.*test_engine.py:\d+\) failed.*ZeroDivisionError"):
        falkirk.run(flow, engine="spark", on=spark)


@pytest.mark.soak
def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "falkirk", "run", str(Path(tolls.__file__)), "--engine", "spark", "--quiet"]
    done = subprocess.run([*command, "--arg", "ships=50"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


BESIDE = """
def doubled(n):
    with open("things/factor") as file:  # in the folder of the executor, where Spark unpacks archives
        return {"n": int(file.read()) * n}
"""

SUBMITTED = """
import beside
import falkirk
import polars as pl

flow = falkirk.Dataflow("submitted")
rows = flow.source("items", falkirk.Iterable([1, 2, 3])).map(beside.doubled).to_columns({"n": int})
rows.filter(pl.col("n") > 2).capture("out")
print("found", *(sorted(pl.DataFrame(batch)["n"]) for _, batch in falkirk.run(flow, engine="spark").captured("out")))

from pyspark.sql import SparkSession
session = SparkSession.active()
print("on", session.sparkContext.master, session.conf.get("spark.mine"), session.conf.get("spark.sql.ansi.enabled"))
"""


@pytest.mark.soak
def test_a_submitted_program_runs_on_the_spark_it_was_submitted_to(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "factor").write_text("2")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.write(tmp_path / "factor", "factor")
    (tmp_path / "app.py").write_text(SUBMITTED)
    java = find_java()
    variables = environment(SparkOptions(), home_for_spark(java, tmp_path))
    with standalone_cluster(tmp_path, 1, cores=2) as master:
        command = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            "--master",
            master,
            "--conf",
            "spark.mine=1",
        ]
        command += [
            "--conf",
            "spark.executor.memory=500m",
            "--py-files",
            "beside.py",
            "--archives",
            "packed.zip#things",
        ]
        done, cluster = (
            subprocess.run([*command, *more], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
            for more in (["app.py"], ["--deploy-mode", "cluster", "app.py"])
        )
    said = [line for line in done.stdout.splitlines() if not line.startswith("note: ")]
    assert said == ["found [4, 6]", f"on {master} 1 true"], done.stderr[-3000:]
    assert cluster.returncode != 0
    assert (
        "Cluster deploy mode is currently not supported for python applications on standalone clusters"
        in cluster.stderr
    )


# ------------------------------------------------------------------------------------------ streams of Spark


OF_STREAM = {"k": pl.String, "n": pl.Int64, "x": pl.Float64, "at": pl.Int64, "w": pl.Datetime("us")}


def streamed(folder: Path) -> Stream:
    schema = as_arrow(pl.DataFrame(schema=OF_STREAM)).schema
    return Stream.files(folder, schema, per_batch=1, available_now=True, options=SparkOptions(memory="1g", nice=0))


def over_a_stream(folder: Path, chance: random.Random, files: int = 5) -> None:
    """Files of a stream, in their order; a key may be null, and come again, or not at all."""
    folder.mkdir()
    for number in range(files):
        rows = [
            (
                chance.choice(["a", "b", None]),
                chance.choice([None, 1, 1 << 40, -(1 << 57)]),
                chance.choice([None, -0.5, 2.0]),
                10 * number + chance.randint(-25, 9),
                dt.datetime(2024, 1, 1) + dt.timedelta(hours=10 * number + chance.randint(-25, 9)),
            )
            for _ in range(chance.randint(1, 6))
        ]
        frame = pl.DataFrame(rows, schema=OF_STREAM, orient="row")
        frame.write_parquet(folder / f"{number:02}.parquet")
        os.utime(folder / f"{number:02}.parquet", (number, number))


def streaming_verbs(folder: Path) -> falkirk.Dataflow:
    flow = falkirk.Dataflow("streaming")
    rows = flow.columns("rows", streamed(folder))
    least = {f"{kind}_{of}": getattr(agg, kind)(of) for of in "nx" for kind in ("min", "max")}
    rows.with_columns(m=pl.col("n") + 1).filter(pl.col("x") > 0).capture("some rows")
    rows.group_by("k").agg(**least).capture("changes")
    sums = rows.group_by("k", odd=pl.col("n") % 2 == 1).agg(rows=agg.count(), sum=agg.sum("n"), mean=agg.mean("x"))
    sums.capture("sums")
    sums.filter(pl.col("rows") > 1).agg(n=agg.count()).capture("of totals")
    rows.agg(sum=agg.sum("n")).capture("all")
    rows.distinct("k").capture("distinct")
    rows.group_by("k").agg(n=agg.count(), over="time").capture("times")
    rows.join(rows.select("k", y="n"), on="k", over="time").capture("join")
    windows = rows.window(falkirk.Sliding(10, every=4), time="at", lateness=3)
    windows.group_by("k").agg(n=agg.count(), least=agg.min("x"), sum=agg.sum("n")).capture("sliding")
    windows.late().capture("late")
    closed = rows.window(falkirk.Tumbling(dt.timedelta(hours=7)), time="w").agg(n=agg.count())
    closed.group_by(most=pl.col("n") > 1).agg(windows=agg.count()).capture("tumbling")
    records = (
        rows.to_records().map(lambda row: {"k": row["k"], "n": len(row["k"] or "")}).to_columns({"k": str, "n": int})
    )
    records.group_by("k").agg(n=agg.sum("n")).to_records().capture("records")
    return flow


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_stream_gives_the_same_batch_by_batch(seed: int, spark: Any, tmp_path: Path) -> None:
    over_a_stream(tmp_path / "rows", random.Random(seed))
    found = same(lambda: streaming_verbs(tmp_path / "rows"), spark)
    assert {time for _, time in found} == {*(f"({number},)" for number in range(5)), "(END,)"}
    stop()


def joined(source: Any) -> falkirk.Dataflow:
    """Running joins of what a stream brings with some of it, with totals, and with each other."""
    flow = falkirk.Dataflow("joined")
    rows = flow.columns("rows", source)
    some = rows.filter(pl.col("n") > 0)
    for how in ("inner", "semi", "lookup"):
        rows.join(some.select("k", y="x", at="at"), on="k", how=how).capture(how)  # type: ignore[arg-type]
    rows.join(some.select("k", "n", y="x"), on=["k", "n"], how="semi").capture("semi on two columns")
    both = some.join(rows.group_by("k").agg(sum=agg.sum("n")), on="k").join(
        rows.select("k", z="at"), on="k", how="semi"
    )
    both.group_by("k").agg(n=agg.count(), most=agg.max("sum")).capture("totals of joins")
    return flow


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_running_joins_over_a_stream_give_the_same(seed: int, spark: Any, tmp_path: Path) -> None:
    over_a_stream(tmp_path / "rows", random.Random(seed), 4)
    batches = [pl.read_parquet(path) for path in sorted((tmp_path / "rows").glob("*.parquet"))]
    flow = joined(falkirk.Batches(batches))
    names = [node.name for node in flow.graph.of_kind("capture")]
    right = answers(falkirk.run(flow), names)
    assert answers(falkirk.run(joined(streamed(tmp_path / "rows")), engine="spark", on=spark), names) == right


@pytest.mark.check
def test_running_totals_over_a_stream_go_on_from_batch_to_batch(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number, rows in enumerate([[("a", 1), ("b", 5)], [("a", 2)], [("b", 9), ("b", 1)]]):
        frame = pl.DataFrame(rows, schema={"k": pl.String, "n": pl.Int64}, orient="row")
        frame = frame.with_columns(x=pl.lit(0.5), at=pl.col("n"), w=pl.datetime(2024, 1, 1))
        frame.write_parquet(tmp_path / "rows" / f"{number}.parquet")
        os.utime(tmp_path / "rows" / f"{number}.parquet", (number, number))
    flow = falkirk.Dataflow("running")
    flow.columns("rows", streamed(tmp_path / "rows")).group_by("k").agg(least=agg.min("n"), sum=agg.sum("n")).capture(
        "out"
    )
    captured = falkirk.run(flow, engine="spark", on=spark).captured("out")
    found = [(time, *row) for time, batch in captured for row in pl.DataFrame(batch).sort("k").rows()]
    assert found == [((0,), "a", 1, 1), ((0,), "b", 5, 5), ((1,), "a", 1, 3), ((2,), "b", 1, 15)]


def going_on(source: Any, out: Path, full: bool = True) -> falkirk.Dataflow:
    """Running verbs, into files; `full`: of each kind."""
    flow = falkirk.Dataflow("going on")
    rows = flow.columns("rows", source)
    some = rows.filter(pl.col("n") > 0).select("k", y="at")
    rows.join(some, on="k").to(falkirk.FileSink(out / "inner"))
    sums = rows.group_by("k").agg(sum=agg.sum("n"), most=agg.max("x"), last=agg.max("w"))
    sums.to(falkirk.FileSink(out / "sums"))
    if not full:
        return flow
    rows.join(some, on="k", how="semi").to(falkirk.FileSink(out / "semi"))
    windows = rows.window(falkirk.Tumbling(10), time="at", lateness=3).group_by("k").agg(n=agg.count())
    windows.to(falkirk.FileSink(out / "windows"))
    return flow


def files_in(out: Path) -> dict[str, list[str]]:
    return {
        str(path.relative_to(out)): sorted(path.read_text().splitlines())
        for path in sorted(out.glob("*/*.jsonl"))
        if path.stat().st_size
    }


def by_workers(rows: Path, out: Path, full: bool = True) -> dict[str, list[str]]:
    """Rows that Falkirk's workers write, where each file of the stream is an epoch."""
    batches = [pl.read_parquet(path) for path in sorted(rows.glob("*.parquet"))]
    falkirk.run(going_on(falkirk.Batches(batches), out, full))
    return files_in(out)


class Struck(Exception):
    """The end of a run, in a test."""


@contextmanager
def striking(where: str) -> Iterator[None]:
    """Inside, a run ends when it has gone through a micro-batch, at a point of what is done then."""
    seen: list[str] = []

    def ends(of: Any, name: str, before: bool) -> Any:
        real = getattr(of, name)

        def called(*given: Any) -> Any:
            if before and not seen:
                seen.append(name)
                raise Struck("struck")
            done = real(*given)
            if not seen:
                seen.append(name)
                raise Struck("struck")
            return done

        return patch.object(of, name, called)

    points = {
        "computed": (InAStore, "keep", True),
        "kept": (InAStore, "keep", False),
        "one sink written": (FileWriter, "commit", False),
        "all sinks written": (InAStore, "written", True),
        "written, and Spark does not know": (InAStore, "written", False),
    }
    with ends(*points[where]):
        yield


@pytest.mark.check
@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_program_over_a_stream_goes_on_where_it_was_wherever_it_ended(full: bool, spark: Any, tmp_path: Path) -> None:
    rows, out, store = tmp_path / "rows", tmp_path / "out", tmp_path / "store"
    over_a_stream(rows, random.Random(5), 6 if full else 3)
    right = by_workers(rows, tmp_path / "right", full)
    assert {name.split("/")[0] for name in right} == {"inner", "sums", *(("semi", "windows") if full else ())}

    def run(**arguments: Any) -> None:
        falkirk.run(lambda: going_on(streamed(rows), out, full), engine="spark", on=spark, store=store, **arguments)

    points = ["one sink written", "written, and Spark does not know"]
    for where in [*points, "computed", "kept", "all sinks written"] if full else points:
        with striking(where), pytest.raises((falkirk.FalkirkError, Struck), match="struck"):
            run()
        there = files_in(out)
        assert {name: right[name] for name in there} == there
    run()
    assert files_in(out) == right
    assert len(list(beside(store).spark_mark.glob("batch-*"))) == 1
    notes: list[str] = []
    run(on_note=notes.append)
    assert files_in(out) == right
    assert "has ended" in notes[0]
    with pytest.raises(falkirk.FalkirkError, match="has a job that runs on Spark alone, with --engine spark"):
        falkirk.run(lambda: going_on(streamed(rows), out), store=store)

    def other() -> falkirk.Dataflow:
        flow = falkirk.Dataflow("other")
        flow.columns("rows", streamed(rows)).distinct("k").capture("out")
        return flow

    with pytest.raises(falkirk.FalkirkError, match=r"(?s)has what another program has kept.*'distinct-1' is new"):
        falkirk.run(other, engine="spark", on=spark, store=store)
    with pytest.raises(falkirk.FalkirkError, match=r"a store is for a program over a stream"):
        falkirk.run(lambda: going_on(falkirk.Batches([]), out), engine="spark", on=spark, store=tmp_path / "none")


@pytest.mark.soak
def test_a_stream_that_somebody_else_stops_has_not_ended(spark: Any, tmp_path: Path) -> None:
    rows, out, store = tmp_path / "rows", tmp_path / "out", tmp_path / "store"
    over_a_stream(rows, random.Random(7), 6)
    right = by_workers(rows, tmp_path / "right", full=False)

    def run() -> None:
        falkirk.run(lambda: going_on(streamed(rows), out, full=False), engine="spark", on=spark, store=store)

    def stop_it() -> None:
        wait_for(lambda: files_in(out))
        for query in spark._jsparkSession.sharedState().activeStreamingQueries().values():
            query.stop()

    with pytest.raises(
        falkirk.FalkirkError, match=r"'rows' \(.*test_engine.py:\d+\).*somebody else has stopped its query"
    ):
        run_beside(run, stop_it)
    there = files_in(out)
    assert {name: right[name] for name in there} == there
    assert len(there) < len(right)
    run()
    assert files_in(out) == right


APP = """
from pathlib import Path
from tests.libraries.spark.test_engine import going_on, streamed

def build(folder):
    return going_on(streamed(Path(folder) / "rows"), Path(folder) / "out")
"""


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_command_over_a_stream_is_killed_and_stopped_and_goes_on(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    rows, out, store = tmp_path / "rows", tmp_path / "out", tmp_path / "store"
    over_a_stream(rows, chance, 14)
    right = by_workers(rows, tmp_path / "right")
    (tmp_path / "app.py").write_text(APP)
    command = [sys.executable, "-m", "falkirk", "run", str(tmp_path / "app.py"), "--engine", "spark"]
    command += ["--store", str(store), "--arg", f"folder={tmp_path}", "--spark-conf", "spark.sql.shuffle.partitions=1"]
    for kill in (True, True, True, False, True):
        before = len(files_in(out))
        with (tmp_path / "said").open("w") as said, subprocess.Popen(command, cwd=ROOT, stderr=said) as job:
            wait_for(lambda before=before: len(files_in(out)) > before + 4, 120)  # type: ignore[misc]
            time.sleep(chance.random())
            if kill:
                job.kill()
            else:
                assert stop_job(store)
        assert job.returncode == (-signal.SIGKILL if kill else 143)
        there = files_in(out)
        assert {name: right[name] for name in there} == there
        assert len(there) < len(right)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert files_in(out) == right


@pytest.mark.soak
def test_what_goes_wrong_over_a_stream_is_told_with_its_line(spark: Any, tmp_path: Path) -> None:
    over_a_stream(tmp_path / "rows", random.Random(1))

    def run(build: Callable[[falkirk.Dataflow, Any], Any]) -> None:
        flow = falkirk.Dataflow("wrong")
        build(flow, flow.columns("rows", streamed(tmp_path / "rows")))
        falkirk.run(flow, engine="spark", on=spark)

    wrong: list[tuple[str, Callable[[Any, Any], Any]]] = [
        (
            "sessions",
            lambda flow, rows: rows.window(Gap(3), time="n").agg(n=agg.count()),
        ),
        (
            "sources beside the stream 'rows'",
            lambda flow, rows: flow.source("one", falkirk.Iterable([1])).capture("out"),
        ),
        ("failed.*ZeroDivisionError", lambda flow, rows: rows.to_records().map(lambda row: 1 // 0).capture("out")),
    ]
    for said, build in wrong:
        with pytest.raises(falkirk.FalkirkError, match=rf"(?s)test_engine.py:\d+.*{said}|{said}.*test_engine.py:\d+"):
            run(build)


# ------------------------------------------------------------------------------------------ without Spark


def refusals() -> Iterator[tuple[str, Callable[[falkirk.Dataflow, Any], Any]]]:
    yield "Uppercase of String", lambda flow, rows: rows.select(pl.col("k").str.to_uppercase())
    yield "cast from Int64 to Int32", lambda flow, rows: rows.select(pl.col("n").cast(pl.Int32))
    yield "cast from Float64 to Int64", lambda flow, rows: rows.filter(pl.col("x").cast(pl.Int64) > 0)
    yield "a Python function", lambda flow, rows: rows.with_columns(y=pl.col("n").map_elements(abs, pl.Int64))
    yield "select without any column", lambda flow, rows: rows.select(pl.selectors.boolean(), pl.lit(1))
    yield "a Series", lambda flow, rows: rows.select(n=pl.lit(pl.Series([1])))
    yield "a key of type Float64", lambda flow, rows: rows.group_by("x").agg(n=agg.count())
    yield "say agg.count", lambda flow, rows: rows.group_by("k").agg(pl.col("n").median(), over="time")
    yield "say agg.count", lambda flow, rows: rows.group_by("k").agg(v=agg.var("n"))
    yield "changes=True", lambda flow, rows: rows.join(rows, on="k", how="anti", changes=True)
    yield "joins on the nearest row", lambda flow, rows: rows.join_asof(rows, on="n")
    yield "sessions", lambda flow, rows: rows.window(Gap(3), time="n").agg(n=agg.count())
    yield "a time to live", lambda flow, rows: rows.group_by("k").agg(n=agg.count(), ttl=falkirk.Epochs(2))
    yield "loops", lambda flow, rows: rows.to_records().iterate(lambda s: s.filter(bool))
    yield "operators of your own", lambda flow, rows: rows.unary("own", falkirk.Operator)
    yield "inputs that are fed by hand", lambda flow, rows: flow.input("hand")
    yield "count", lambda flow, rows: rows.key_by("k").count()
    yield "columns are not known", lambda flow, rows: rows.filter(k="a").map_batches(abs).filter(pl.col("n") > 0)
    yield "type Duration", lambda flow, rows: rows.select(y=pl.duration(days=1) + pl.duration(days=pl.col("n")))
    yield "require='precise'", lambda flow, rows: rows.to(falkirk.Console(), require="precise")
    yield (
        "spark.source(per_epoch=...)",
        lambda flow, rows: falkirk_spark.source(flow, lambda s: s.range(1), per_epoch=1),
    )
    yield "can be read only once", lambda flow, rows: flow.source("wire", falkirk.Socket("127.0.0.1", 1, epoch_lines=1))


@pytest.mark.parametrize(("name", "add"), list(refusals()), ids=lambda each: each if isinstance(each, str) else "")
def test_what_spark_cannot_do_is_refused_by_name_and_line(name: str, add: Callable[[Any, Any], Any]) -> None:
    from libraries.spark.engine.compiler import compile_for_spark

    flow = falkirk.Dataflow("refused")
    batch = pl.DataFrame({"k": ["a"], "n": [1], "x": [0.5]})
    add(flow, flow.columns("rows", falkirk.Batches([batch])))
    with pytest.raises(falkirk.FalkirkError, match=r"test_engine.py:[0-9]+: ") as raised:
        compile_for_spark(flow)
    assert name in str(raised.value)


def test_spark_connect_is_refused() -> None:
    with pytest.raises(falkirk.FalkirkError, match="not over Spark Connect"), ExitStack() as resources:
        driver(SparkOptions(connect="sc://127.0.0.1:15002"), resources)


def test_types_that_spark_lacks_are_refused() -> None:
    for kind in (pl.UInt64(), pl.Categorical(), pl.List(pl.Int64), pl.Time(), pl.Datetime("ns")):
        with pytest.raises(Refused, match="type"):
            query_of(lambda frame: frame.filter(pl.col("a").is_null()), "v", pl.Schema({"a": kind}))
