"""Schemas inferred through the graph are those of the batches that come, and mistakes are errors where a verb is called."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from libraries.columns import agg
from libraries.columns.schemas.inference import after
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import Csv, Parquet
from runtime.run import run
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.errors import FalkirkError, GraphError, OperatorError
from timely.io import Batches, Iterable
from timely.operators.window_shapes import Epochs, Session, Sliding, Tumbling

FRAME = pl.DataFrame(
    {
        "k": ["a", "b", None, "a"],
        "i": pl.Series([1, 2, 3, None], dtype=pl.Int32),
        "n": [1, 2, 3, 4],
        "f": pl.Series([0.5, None, 2.5, 1.5], dtype=pl.Float32),
        "x": [1.0, 2.0, float("nan"), 4.0],
        "b": [True, False, None, True],
        "d": [Decimal("1.25"), Decimal("2.50"), None, Decimal("3.75")],
        "at": [dt.datetime(2026, 1, day) for day in (1, 2, 3, 4)],
        "day": [dt.date(2026, 1, day) for day in (1, 2, 3, 4)],
        "u": pl.Series([1, 2, 3, 4], dtype=pl.UInt64),
        "c": pl.Series(["x", "y", "x", "y"], dtype=pl.Categorical),
        "e": pl.Series(["s", "l", "m", "s"], dtype=pl.Enum(["s", "m", "l"])),
    }
)
KEYS = ["k", "i", "n", "b", "day", "at", "u", "c", "e", "f"]
NUMBERS = ["i", "n", "f", "x", "d", "u"]


@st.composite
def aggregates(draw: Any) -> dict[str, agg.Aggregate]:
    made = [agg.count(), *(of(name) for name in NUMBERS for of in (agg.sum, agg.mean))]
    made += [of(name) for name in NUMBERS if name != "d" for of in (agg.var, agg.std)]
    made += [of(name) for name in (*NUMBERS, "k", "b", "day", "at", "c", "e") for of in (agg.min, agg.max)]
    comparable = st.sampled_from([*NUMBERS, "k", "b", "day", "at", "c", "e"])
    made += [draw(st.sampled_from([agg.first, agg.last]))(draw(comparable), order_by=draw(comparable))]
    made += [agg.n_unique(name) for name in KEYS]
    made += [of(name) for name in NUMBERS for of in (agg.median, lambda name: agg.quantile(name, 0.9, "lower"))]
    chosen = draw(st.lists(st.sampled_from(made), min_size=1, max_size=4))
    return {f"a{number}": each for number, each in enumerate(chosen)}


@settings(max_examples=settings.default.max_examples // 3)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), aggregates(), st.booleans(), st.integers(1, 2))
def test_aggregates_are_the_same_beside_an_expression(
    chosen: list[int], named: dict[str, agg.Aggregate], keyed: bool, workers: int
) -> None:
    rows = FRAME[chosen].with_columns(d=pl.col("d") * 3, x=pl.col("x") * 1e16)

    def told(**more: Any) -> pl.DataFrame:
        flow = Dataflow()
        stream = flow.columns("rows", Batches([rows[:1], rows[1:]], per_epoch=2))
        out = (stream.group_by("k") if keyed else stream).agg(over="time", **named, **more)
        schema = out.schema
        out.capture("out")
        cluster = Cluster(flow, workers, 0)
        cluster.run()
        frames = [as_polars(batch) for _, batch in cluster.captured("out")]
        assert all(schema == each.schema for each in frames)
        return pl.concat(frames).select(*("k",) * keyed, *named).sort(pl.all() if keyed else pl.lit(0))

    assert_frame_equal(told(), told(rows=pl.len(), sum=pl.col("x").sum()), check_exact=True)


STATELESS: list[Callable[[Columns], Columns]] = [
    lambda s: s.select(pl.all(), half=pl.col("n") / 2),
    lambda s: s.with_columns(n=pl.col("n") + 1, word=pl.col("k").str.to_uppercase(), f=pl.col("f").cast(pl.Float32)),
    lambda s: s.filter(pl.col("n") > 1),
    lambda s: s.inspect(lambda batch: None),
    lambda s: s.exchange("k"),
    lambda s: s.broadcast(),
    lambda s: s.branch(pl.col("b"))[0],
    lambda s: s.concat(s.filter(pl.col("b"))),
    lambda s: s.concat(
        s.select(*reversed(s.schema or {})).with_columns(pl.col("i").cast(pl.Int64), pl.col("u").cast(pl.UInt8))
    ),
    lambda s: (
        s.with_columns(c=pl.col("k").cast(pl.Categorical))
        .concat(s.with_columns(c="k"))
        .with_columns(pl.col("c").cast(pl.Categorical))
    ),
    lambda s: s.map_batches(lambda batch: batch, schema=s.schema),
    lambda s: s.iterate(lambda again: again.filter(pl.col("n") < 3).with_columns(pl.col("n") + 1)),
    lambda s: s.iterate(
        lambda again: again.filter(pl.col("n") < 3).with_columns(pl.col("n") + 1).map_batches(lambda batch: batch)
    ),
    lambda s: s.iterate(lambda again: (again.filter(pl.col("n") < 0).select(*reversed(s.schema or {})), again)),
    lambda s: s.drop("x").with_columns(x=pl.lit(1.0)).rename({"k": "word"}).rename({"word": "k"}),
    lambda s: s.sort("k", pl.col("n") * -1, over="time"),
    lambda s: s.enter(s.graph.add_scope(None, s.scope)).with_columns(z=pl.lit("z")).leave(),
]


FINAL: list[Callable[[Columns, Any, dict[str, agg.Aggregate], Any], Columns]] = [
    lambda s, keys, named, over: s.group_by(*keys).agg(**named, over=over),
    lambda s, keys, named, over: s.agg(**named, over=over),
    lambda s, keys, named, over: s.distinct(*keys, over=over),
    lambda s, keys, named, over: s.group_by(*keys).agg(top=pl.col("n").max(), all=pl.col("x").sum(), over="time"),
    lambda s, keys, named, over: s.window(Tumbling(2), time="n").group_by(*keys).agg(**named),
    lambda s, keys, named, over: s.window(Sliding(dt.timedelta(days=2), dt.timedelta(days=1)), time="at").agg(**named),
    lambda s, keys, named, over: s.join(s.select(*keys, other="n", n2="n"), on=keys, over=over),
    lambda s, keys, named, over: s.join(s.select("k", "x"), on="k", how="semi", over=over),
    lambda s, keys, named, over: s.join(s.select("k", "x"), on="k", how="lookup", ttl=Epochs(2)),
    lambda s, keys, named, over: s.group_by(*keys).agg(**named, ttl=3, time="n"),
    lambda s, keys, named, over: s.distinct(*keys, ttl=dt.timedelta(days=2), time="at"),
    lambda s, keys, named, over: s.join(s.select("k", "x"), on="k", how="left", over="time"),
    lambda s, keys, named, over: s.join(s.select("k", "x", "d"), on="k", how="right", over="time"),
    lambda s, keys, named, over: s.join(s.select("c", "x").filter(pl.col("x") > 99), on="c", how="full", changes=True),
    lambda s, keys, named, over: s.window(Session(2), time="n").group_by(*keys).agg(**named),
    lambda s, keys, named, over: s.join(s.select("c", "x").filter(pl.col("x") > 99), on="c", how="lookup"),
    lambda s, keys, named, over: s.join_asof(s.select("n", near="x"), on="n", over=over),
    lambda s, keys, named, over: (
        s.with_columns(l=pl.concat_list("n", "n")).group_by(*keys).top_k(1, by="x", over="time")
    ),
    lambda s, keys, named, over: s.group_by("k").top_k(1, by="x"),
]


@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_inferred_schemas_are_those_of_what_comes(data: st.DataObject) -> None:
    flow = Dataflow("schemas")
    stream = flow.columns(
        "in", Batches([FRAME, FRAME.head(2), FRAME.tail(1).to_arrow()][: data.draw(st.integers(1, 2))])
    )
    assert stream.schema == FRAME.schema
    for verb in data.draw(st.lists(st.sampled_from(STATELESS), max_size=3, unique=True)):
        stream = verb(stream)
    keys = data.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True))
    final = data.draw(st.sampled_from(FINAL))
    stream = final(stream, keys, data.draw(aggregates()), data.draw(st.sampled_from(["time", "scope"])))
    assert stream.schema is not None
    out = stream.capture()
    cluster = Cluster(flow, data.draw(st.integers(1, 2)), 0)
    cluster.run()
    found = cluster.captured(out)
    assert found
    for _, batch in found:
        assert as_polars(batch).schema == stream.schema


def test_a_schema_of_any_types_is_that_of_rows_that_are_chosen() -> None:
    kinds = (pl.Int8, pl.UInt64, pl.Float32, pl.String, pl.Binary, pl.Boolean, pl.Date, pl.Time, pl.Null, pl.Object)
    made = (pl.Datetime("ns", "UTC"), pl.Duration("ms"), pl.Decimal(10, 2), pl.Enum(["b", "a"]), pl.Categorical())
    nested = (pl.List(pl.Int64), pl.Array(pl.String, 2), pl.Struct({"a": pl.Date}), pl.List(pl.Struct({"b": pl.Int8})))
    schema = pl.Schema({f"c{number}": kind for number, kind in enumerate((*kinds, *made, *nested))})
    lazy = pl.LazyFrame(schema=schema)
    for plan in (
        lambda frame: frame,
        lambda frame: frame.select("c3", "c12", pl.col("c0") + 1),
        lambda frame: frame.filter("c5"),
    ):
        found = after("select", plan, schema)
        assert found == plan(lazy).collect_schema()


def test_objects_of_python_are_no_keys() -> None:
    frame = pl.DataFrame({"n": [1], "o": pl.Series([object()], dtype=pl.Object)})
    held = Dataflow("objects").columns("in", Batches([frame]))
    for verb in (lambda: held.distinct("o"), lambda: held.group_by("n", "o").agg(m=agg.count())):
        with pytest.raises(GraphError, match=r"test_schemas.py:\d+: .*column 'o' of type Object has no Arrow form"):
            verb()


def test_schemas_are_known_where_sources_or_users_say_them(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "rows.parquet")
    pl.DataFrame({"n": [1], "k": ["a"]}).write_csv(tmp_path / "rows.csv")
    flow = Dataflow("known")
    assert flow.columns("parquet", Parquet(tmp_path / "rows.parquet", columns=["n", "day"])).schema == {
        "n": pl.Int64,
        "day": pl.Date,
    }
    typed = flow.columns("csv", Csv(tmp_path / "rows.csv", columns=["k", "n"], schema={"n": int, "k": str}))
    assert typed.schema == {"k": pl.String, "n": pl.Int64}
    assert flow.source("rows", Iterable([("a", 1)])).to_columns({"k": str, "n": int}).schema == typed.schema


def test_a_source_is_asked_for_its_schema_once_and_only_where_somebody_wants_to_know_it() -> None:
    asked: list[int] = []

    class Asked(Batches):
        def columns_schema(self) -> pl.Schema | None:
            asked.append(len(asked))
            return super().columns_schema()

    frame = pl.DataFrame({"n": [1]})
    flow = Dataflow()
    stream = flow.columns("numbers", Asked([frame, frame]))
    stream.capture("out")
    assert asked == []  # to look at all batches takes longer than to move them
    assert stream.schema == stream.filter(pl.col("n") > 0).schema == frame.schema
    assert asked == [0]


def test_schemas_are_not_known_where_they_cannot_be(tmp_path: Path) -> None:
    pl.DataFrame({"n": [1]}).write_csv(tmp_path / "rows.csv")
    flow = Dataflow("unknown")
    known = flow.columns("in", Batches([FRAME]))
    called: list[Any] = []
    unknown = [
        flow.columns("csv", Csv(tmp_path / "rows.csv")),
        flow.columns("missing", Parquet(tmp_path / "missing.parquet")),
        flow.columns("unlike", Batches([FRAME, FRAME.select("n")])),
        flow.columns("records", Batches([[1, 2]])),
        flow.source("rows", Iterable([{"k": "a"}])).to_columns(),
        known.map_batches(lambda frame: frame),
        known.concat(known.map_batches(lambda frame: frame)),
        known.select(pl.col("n").map_batches(lambda n: called.append(n) or n)),
    ]
    for stream in unknown:
        assert stream.schema is None, stream
        assert stream.select("anything").schema is None
    assert not called, "functions of the user's are not called to find out"


MISTAKES: dict[str, Callable[[Columns], Any]] = {
    "concat: 'at', 'at2', .* are not in all of the streams": lambda s: s.concat(s.select("n")),
    "concat: 'extra' is not in all of the streams": lambda s: s.concat(s, s.with_columns(extra=1)),
    "concat: column 'k' is of String and Int64, which do not go together, in different streams": lambda s: s.concat(
        s.with_columns(k="n")
    ),
    "match_to_schema: column 'm' is declared, and not there": lambda s: s.select("n").match_to_schema(
        {"n": int, "m": int}
    ),
    "match_to_schema: column 'n' is there, and not declared; column 'i' is Int32, and declared as Int64": (
        lambda s: s.select("n", "i").match_to_schema({"i": int})
    ),
    "schema=3: give types by name": lambda s: s.map_batches(lambda frame: frame, schema=3),  # type: ignore[arg-type]
    "iterate: what goes round has other columns than what enters: column 'k' is declared, and not there": (
        lambda s: s.iterate(lambda again: again.drop("k"))
    ),
    "with_columns: unable to find column": lambda s: s.iterate(lambda again: again.with_columns(a=pl.col("nix"))),
    "unable to find column": lambda s: s.filter(pl.col("nix") > 1),
    "filter predicate must be of type": lambda s: s.filter(pl.col("n") + 1),
    "arithmetic on": lambda s: s.with_columns(pl.col("k") + 1),
    "group_by: no column 'nix'; there are 'k'": lambda s: s.group_by("nix").agg(n=agg.count(), over="time"),
    "cannot be added up": lambda s: s.group_by("k").agg(n=agg.sum("at2"), over="time"),
    "datatypes of join keys": lambda s: s.join(s.select(k="n"), on="k"),
    "join: the other stream: no column": lambda s: s.join(s.select("n"), on="k"),
    "agg: column 'l' of type List.Int64. cannot be a key": (
        lambda s: s.with_columns(l=pl.concat_list("n")).group_by("l").agg(n=agg.count())
    ),
    "join: column 's' of type Struct.* cannot be a key; .*unnest": (
        lambda s: s.with_columns(s=pl.struct("k", "n")).join(s.with_columns(s=pl.struct("k", "n")), on="s")
    ),
    "agg: column 's' of type Struct.* cannot be a key; .*unnest": (lambda s: s.distinct(s=pl.struct("k", "n"))),
    "top_k: column 'l' of type List.Int64. cannot be a key": lambda s: s.with_columns(l=pl.concat_list("n")).top_k(
        1, by="n"
    ),
    "explode takes columns of lists, and 'n' is of type Int64": lambda s: s.explode("n"),
    "unnest takes columns of structs, and 'n'": lambda s: s.unnest("n"),
    "unnest would give two columns 'k'; rename": lambda s: s.with_columns(s=pl.struct("k", "n")).unnest("s"),
    "join: 'i' is of type Int32, and 'n' of the other": lambda s: s.join(s, left_on="i", right_on="n"),
    "kinds=agg.n_unique.* of type large_list.* cannot be a key": (
        lambda s: s.with_columns(l=pl.concat_list("n")).agg(kinds=agg.n_unique("l"))
    ),
    "low=agg.min.* of type struct.* cannot be compared": (
        lambda s: s.with_columns(s=pl.struct("k", "n")).agg(low=agg.min("s"))
    ),
    "sum=agg.sum.*of type date.*cast it to pl.Int64": lambda s: s.agg(sum=agg.sum("day")),
    "agg: column 'w' of type Int128 has no Arrow form; cast it before": lambda s: (
        s.with_columns(w=WIDE).group_by("w").agg(n=agg.count())
    ),
    r"agg.m=agg.max.*: column 'w' of type UInt128 has no Arrow form": lambda s: s.with_columns(
        w=pl.col("n").cast(pl.UInt128)
    ).agg(m=agg.max("w")),
    "top_k: column 'w' of type Int128 has no Arrow form": lambda s: s.with_columns(w=WIDE).top_k(1, by="n"),
    "schema: Int128 of the column 'w' has no Arrow form": lambda s: Csv("rows.csv", schema={"w": pl.Int128}),
    "window: no column": lambda s: s.window(Tumbling(2), time="nix"),
    "time= is a column of datetimes": lambda s: s.window(Tumbling(dt.timedelta(days=1)), time="n"),
    "in windows: no column": lambda s: s.window(Tumbling(2), time="n").group_by("nix"),
}


WIDE = pl.col("n").cast(pl.Int128)
"""Of a type that Arrow lacks."""


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_errors_at_the_line_of_the_call(message: str) -> None:
    stream = Dataflow("mistakes").columns("in", Batches([FRAME.with_columns(at2=pl.col("k"))]))
    with pytest.raises(GraphError, match=rf"test_schemas\.py:\d+: .*{message}"):
        MISTAKES[message](stream)


@pytest.mark.parametrize("per_epoch", [1, 2])
@pytest.mark.parametrize(
    "verb", [lambda s: s, lambda s: s.with_columns(b=pl.col("a")), lambda s: s.filter(pl.col("a") == pl.col("a"))]
)
def test_batches_of_other_types_come_as_they_are(verb: Callable[[Columns], Columns], per_epoch: int) -> None:
    """Also those that are read together: nothing is cut off, and nothing is taken for something else."""
    kinds: list[tuple[Any, Any]] = [
        (Decimal("1.00"), pl.Decimal(10, 2)),
        (Decimal("1.005"), pl.Decimal(12, 3)),
        ("x", pl.String),
    ]
    frames = [pl.DataFrame({"a": pl.Series([value], dtype=kind)}) for value, kind in kinds]
    flow = Dataflow()
    verb(flow.columns("values", Batches(frames * 2, per_epoch=per_epoch))).capture("out")
    found = [(time, value) for time, batch in run(flow).captured("out") for value in as_polars(batch)["a"].to_list()]
    assert found == [((number // per_epoch,), kinds[number % 3][0]) for number in range(6)]


@given(st.lists(st.sampled_from(["frame", "table", "nothing", "large"]), min_size=1, max_size=8), st.integers(1, 3))
def test_frames_and_tables_may_follow_each_other(kinds: list[str], per_epoch: int) -> None:
    """Frames of small epochs are gathered, and tables are not: each must come at its own time."""
    sizes = {"nothing": 0, "large": 40_000}
    frames = [pl.DataFrame({"n": [number] * sizes.get(kind, 1)}) for number, kind in enumerate(kinds)]
    given = [frame.to_arrow() if kind == "table" else frame for frame, kind in zip(frames, kinds, strict=True)]
    flow = Dataflow()
    flow.columns("numbers", Batches(given, per_epoch=per_epoch)).filter(pl.col("n") >= 0).capture("out")
    found = [(time, value) for time, batch in run(flow).captured("out") for value in as_polars(batch)["n"].to_list()]
    assert found == [((number // per_epoch,), number) for number, frame in enumerate(frames) for _ in frame["n"]]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_panic_of_polars_names_the_operator_and_the_line(workers: int) -> None:
    flow = Dataflow()
    lists = flow.columns("lists", Batches([pl.DataFrame({"v": [[1]]}), pl.DataFrame({"v": [[None]]})]))
    lists.with_columns(q=pl.col("v") + pl.col("v")).capture("out")
    cluster = Cluster(flow, workers, 0)
    with pytest.raises(OperatorError, match=r"with_columns.* \(.*test_schemas.py:\d+\) failed at time \(1,\).*Panic"):
        cluster.run()


def test_a_batch_that_is_not_as_declared_is_an_error_when_it_comes() -> None:
    flow = Dataflow("declared")
    stream = flow.columns("in", Batches([FRAME]))
    declared = stream.map_batches(lambda frame: frame.select("n", "i"), schema={"i": int, "n": int})
    assert declared.schema == {"i": pl.Int64, "n": pl.Int64}
    declared.capture()
    with pytest.raises(OperatorError, match=r"test_schemas\.py:\d+.*column 'i' is Int32, and declared as Int64"):
        Cluster(flow, 1, 0).run()


def test_what_goes_round_is_held_to_what_enters() -> None:
    flow = Dataflow("round")
    stream = flow.columns("in", Batches([FRAME.select("n")]))
    stream.iterate(lambda again: again.map_batches(lambda frame: frame.cast(pl.Int32)), limit=2).capture()
    with pytest.raises(OperatorError, match=r"test_schemas\.py:\d+.*column 'n' is Int32, and declared as Int64"):
        Cluster(flow, 1, 0).run()


UNKNOWN: dict[str, Callable[[Columns], Columns]] = {
    "a key": lambda s: s.group_by("w").agg(n=agg.count()),
    "a value": lambda s: s.agg(m=agg.max("w")),
    "different ones": lambda s: s.distinct("w", over="time"),
    "rows": lambda s: s.top_k(1, by="n", over="time"),
    "rows so far": lambda s: s.top_k(1, by="n"),
    "a key of a join": lambda s: s.join(s.select("w", m="n"), on="w"),
    "windows": lambda s: s.window(Epochs(1)).group_by("w").agg(n=agg.count()),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("verb", UNKNOWN)
def test_a_type_that_arrow_lacks_is_an_error_that_says_what_to_do(verb: str, workers: int) -> None:
    flow = Dataflow("wide")
    stream = flow.columns("in", Batches([FRAME.select("n", w=WIDE)])).map_batches(lambda frame: frame)
    UNKNOWN[verb](stream).capture()
    why = r"test_schemas\.py:\d+\).* column 'w' of type Int128 has no Arrow form; cast it first"
    with pytest.raises(FalkirkError, match=why):
        Cluster(flow, workers, 0).run()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_column_that_no_aggregate_reads_may_be_of_a_type_that_arrow_lacks(workers: int) -> None:
    flow = Dataflow("wide")
    stream = flow.columns("in", Batches([FRAME.select("k", "n", w=WIDE)]))
    out = stream.group_by("k").agg(n=agg.sum("n")).capture()
    cluster = Cluster(flow, workers, 0)
    cluster.run()
    found = pl.concat(as_polars(batch) for _, batch in cluster.captured(out))
    assert sorted(found.rows(), key=str) == [("a", 5), ("b", 2), (None, 3)]
