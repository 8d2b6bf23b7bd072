"""Verbs that have the names and arguments of Polars, on random rows, batches, epochs and workers: against Polars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.timely.feeding import feed_batches_in_turn
from timely.data.batch import as_polars
from timely.errors import GraphError, OperatorError
from timely.io import Batches
from timely.operators.window_shapes import Epochs, Session, Tumbling

SCHEMA = {"k": pl.String, "n": pl.Int64, "x": pl.Float64}
OTHER = {"k2": pl.String, "n": pl.Int64, "k": pl.String, "y": pl.Int64}
rows = st.lists(
    st.tuples(
        st.none() | st.sampled_from("abc"),
        st.none() | st.integers(-2, 3),
        st.sampled_from([None, -1.5, 0.0, 2.0, float("inf"), float("nan")]),
    ),
    max_size=6,
)
others = st.lists(
    st.tuples(
        st.none() | st.sampled_from("abd"), st.none() | st.integers(-1, 2), st.sampled_from("ab"), st.integers(0, 9)
    ),
    max_size=4,
)
epochs = st.lists(st.lists(rows, max_size=3), min_size=1, max_size=3)
some = settings(max_examples=settings.default.max_examples // 3)
workers = st.integers(1, 3)
seeds = st.integers(0, 99)


def frame(data: list[Any], schema: Any = SCHEMA) -> pl.DataFrame:
    return pl.DataFrame(data, schema, orient="row")


def run(build: Callable[[Columns], Columns], fed: list[list[list[Any]]], workers: int, seed: int) -> list[pl.DataFrame]:
    """All that comes out at each epoch, batch behind batch."""
    flow = Dataflow()
    stream = build(flow.input("in").to_columns(SCHEMA))
    out = stream.capture()
    cluster = Cluster(flow, workers, seed)
    feed_batches_in_turn(cluster, [[frame(batch) for batch in epoch] for epoch in fed])
    found: list[list[pl.DataFrame]] = [[] for _ in fed]
    for time, batch in cluster.captured(out):
        found[time[0]].append(as_polars(batch))
        assert stream.schema is None or as_polars(batch).schema == stream.schema
    return [pl.concat(each) if each else pl.DataFrame() for each in found]


def whole(epoch: list[list[Any]]) -> pl.DataFrame:
    return frame([row for batch in epoch for row in batch])


def plain(found: pl.DataFrame) -> list[Any]:
    """With NaN as text, which is equal to itself."""
    return [tuple("NaN" if each != each else each for each in row) for row in found.rows()]


ORDERS: dict[str, list[Any]] = {
    "a column": ["k"],
    "a float": ["x"],
    "two": ["n", "k"],
    "an expression": [pl.col("n") * -1, "x"],
    "a total": [pl.col("x") > pl.col("x").mean(), "n"],
}


@pytest.mark.parametrize("order", ORDERS)
@some
@given(fed=epochs, workers=workers, seed=seeds, data=st.data())
def test_the_rows_of_a_time_are_in_the_order_of_polars(
    order: str, fed: Any, workers: int, seed: int, data: st.DataObject
) -> None:
    by = ORDERS[order]
    flags = st.booleans() | st.lists(st.booleans(), min_size=len(by), max_size=len(by))
    how: dict[str, Any] = {"descending": data.draw(flags), "nulls_last": data.draw(flags)}
    found = run(lambda s: s.sort(by, over="time", **how), fed, workers, seed)
    of = [[each] * len(by) if isinstance(each, bool) else each for each in how.values()]
    ties = [False] * len(SCHEMA)
    for told, epoch in zip(found, fed, strict=True):
        right = whole(epoch).sort([*by, *SCHEMA], descending=of[0] + ties, nulls_last=of[1] + ties)
        assert plain(told) == plain(right)


RESHAPED: dict[str, Callable[[Any], Any]] = {
    "drop": lambda f: f.drop("n"),
    "drop several": lambda f: f.drop(["k", "x"]),
    "drop what may be there": lambda f: f.drop("k", "nix", strict=False),
    "drop selected": lambda f: f.drop(pl.selectors.numeric()),
    "rename": lambda f: f.rename({"k": "n", "n": "k"}),
    "rename what may be there": lambda f: f.rename({"nix": "nothing", "x": "y"}, strict=False),
    "rename by a function": lambda f: f.rename(str.upper),
    "cast": lambda f: f.cast({"n": pl.Int32, "k": pl.Categorical}),
    "cast all": lambda f: f.cast(pl.String),
    "drop nulls": lambda f: f.drop_nulls(),
    "drop nulls of some": lambda f: f.drop_nulls(["k", "n"]),
    "drop NaN": lambda f: f.drop_nans("x"),
    "fill nulls": lambda f: f.fill_null(7),
    "fill nulls by a column": lambda f: f.fill_null(pl.col("n")),
    "fill NaN": lambda f: f.fill_nan(None),
    "explode": lambda f: f.select("k", l=pl.concat_list("n", "n")).explode("l"),
    "unnest": lambda f: f.select(s=pl.struct("k", "n")).unnest("s"),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", RESHAPED)
def test_columns_are_dropped_and_renamed_as_in_polars(name: str, known: bool) -> None:
    rows = frame([("a", 1, 0.5), ("b", 2, 1.5), (None, 3, float("nan")), ("c", None, None)])
    flow = Dataflow()
    stream = flow.columns("in", Batches([rows, rows if known else rows.to_arrow()]))
    stream = RESHAPED[name](stream if known else stream.map_batches(lambda batch: batch))
    out = stream.capture()
    assert stream.schema == (RESHAPED[name](rows).schema if known else None)
    cluster = Cluster(flow, 1, 0)
    cluster.run()
    found = pl.concat([as_polars(batch) for _, batch in cluster.captured(out)])
    assert found.equals(RESHAPED[name](pl.concat([rows, rows])))


JOINS: dict[str, dict[str, Any]] = {
    "two names": {"left_on": "k", "right_on": "k2"},
    "two names of which one is there": {"left_on": "k", "right_on": "k2", "suffix": "_of_it"},
    "numbers": {"left_on": ["n"], "right_on": ["y"]},
    "several": {"left_on": ["k", "n"], "right_on": ["k2", "y"]},
    "crosswise": {"left_on": ["k", "n"], "right_on": ["k", "y"]},
    "one name, said twice": {"left_on": "k", "right_on": "k"},
    "a suffix": {"on": "k", "suffix": "_2"},
    "expressions": {"left_on": [pl.col("n") + 1], "right_on": [pl.col("y")]},
    "one expression": {"on": pl.col("n") % 2},
    "an expression beside a column": {"left_on": ["k", pl.col("n") + 1], "right_on": ["k2", "n"]},
    "one key twice": {"left_on": ["k", "k"], "right_on": ["k", "k2"]},
}


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("name", JOINS)
@settings(max_examples=max(4, settings.default.max_examples // 10))
@given(
    left=st.lists(rows, min_size=1, max_size=3),
    right=others,
    workers=st.integers(1, 2),
    seed=seeds,
    known=st.booleans(),
)
def test_keys_of_two_names_join_as_in_polars(
    name: str, how: Any, left: Any, right: Any, workers: int, seed: int, known: bool
) -> None:
    on = JOINS[name]
    flow = Dataflow()
    one = flow.columns("left", Batches([frame(batch) for batch in left], per_epoch=9))
    two = flow.columns("right", Batches([frame(right, OTHER)]))
    there = None
    if not known:
        two, there = two.map_batches(lambda batch: batch), OTHER
    joined = one.join(two, how=how, over="time", right=there, **on)
    out = joined.capture()
    cluster = Cluster(flow, workers, seed)
    cluster.run()
    told = [as_polars(batch) for _, batch in cluster.captured(out)]
    of = dict(on)
    if how in ("right", "full") and name in ("a suffix", "one name, said twice"):
        of["coalesce"] = True  # of keys of one name, which come out once
    answer = whole(left).join(frame(right, OTHER), how=how, **of)
    if joined.schema is not None:
        assert {*joined.schema.items()} == {*answer.schema.items()}
    for each in told:
        assert set(each.columns) == set(answer.columns)
    right_rows = Counter(plain(answer))
    assert Counter(row for each in told for row in plain(each.select(answer.columns))) == right_rows


@pytest.mark.parametrize("how", ["left", "right", "full", "anti"])
@some
@given(left=st.lists(rows, min_size=1, max_size=3), right=st.lists(others, min_size=1, max_size=3), workers=workers)
def test_a_running_join_on_two_names_takes_rows_back(how: Any, left: Any, right: Any, workers: int) -> None:
    flow = Dataflow()
    one = flow.columns("left", Batches([frame(batch) for batch in left]))
    two = flow.columns("right", Batches([frame(batch, OTHER) for batch in right]))
    out = one.join(two, left_on="k", right_on="k2", how=how, changes=True).capture()
    cluster = Cluster(flow, workers, 0)
    cluster.run()
    answer = whole(left).join(pl.concat([frame(each, OTHER) for each in right]), left_on="k", right_on="k2", how=how)
    there: Counter[Any] = Counter()
    for _, batch in cluster.captured(out):
        told = as_polars(batch)
        for row, sign in zip(plain(told.select(answer.columns)), told[CHANGE].to_list(), strict=True):
            there[row] += sign
    assert +there == Counter(plain(answer))
    assert min(there.values(), default=0) >= 0


half = (pl.col("n") % 2).alias("half")


@some
@given(fed=epochs, workers=workers, seed=seeds, over=st.sampled_from(["time", "scope"]))
def test_distinct_of_expressions(fed: Any, workers: int, seed: int, over: Any) -> None:
    found = run(lambda s: s.distinct("k", half, loud=pl.col("k").str.to_uppercase(), over=over), fed, workers, seed)
    seen: set[Any] = set()
    for told, epoch in zip(found, fed, strict=True):
        now = set(whole(epoch).select("k", half, loud=pl.col("k").str.to_uppercase()).rows())
        assert sorted(told.rows(), key=str) == sorted(now - seen if over == "scope" else now, key=str)
        seen |= now


@pytest.mark.parametrize("shape", [Tumbling(2), Session(2), Epochs(1)])
@some
@given(fed=epochs, workers=workers, seed=seeds)
def test_windows_of_keys_that_are_computed(shape: Any, fed: Any, workers: int, seed: int) -> None:
    """As windows of the same keys, computed before."""

    def there(s: Columns) -> Columns:
        return s.filter(pl.col("n").is_not_null())

    def window(s: Columns) -> Any:
        return s.window(shape) if isinstance(shape, Epochs) else s.window(shape, time="n", lateness=9)

    flow = Dataflow()
    rows = there(flow.input("in").to_columns(SCHEMA))
    computed = window(rows).group_by("k", half, loud=pl.col("k") + "!").agg(n=agg.count(), x=agg.sum("n"))
    before = window(rows.with_columns(half, loud=pl.col("k") + "!")).group_by("k", "half", "loud")
    outs = [each.capture() for each in (computed, before.agg(n=agg.count(), x=agg.sum("n")))]
    assert computed.schema is not None
    cluster = Cluster(flow, workers, seed)
    feed_batches_in_turn(cluster, [[frame(batch) for batch in epoch] for epoch in fed])
    found = [
        Counter((time, row) for time, batch in cluster.captured(out) for row in as_polars(batch).rows()) for out in outs
    ]
    assert found[0] == found[1]


@some
@given(fed=epochs, workers=workers, seed=seeds, least=st.booleans(), keyed=st.booleans())
def test_the_first_rows_by_an_expression(fed: Any, workers: int, seed: int, least: bool, keyed: bool) -> None:
    by = [(pl.col("n") % 2 * 10 - pl.col("n")), pl.col("k"), "k"]

    def build(s: Columns, over: Any) -> Columns:
        return (s.group_by("k") if keyed else s).top_k(2, by=by, reverse=least, over=over)

    def right(rows: pl.DataFrame) -> Counter[Any]:
        ordered = rows.sort([*by, "n", "x"], descending=[not least] * 3 + [False] * 2, nulls_last=True)
        return Counter(plain(ordered.group_by("k", maintain_order=True).head(2) if keyed else ordered.head(2)))

    for told, epoch in zip(run(lambda s: build(s, "time"), fed, workers, seed), fed, strict=True):
        assert Counter(plain(told)) == right(whole(epoch))
    there: Counter[Any] = Counter()
    so_far: list[Any] = []
    for told, epoch in zip(run(lambda s: build(s, "scope"), fed, workers, seed), fed, strict=True):
        for *row, sign in plain(told):
            there[tuple(row)] += sign
        so_far += [row for batch in epoch for row in batch]
        assert +there == right(frame(so_far))


MISTAKES: dict[str, Callable[[Columns], Any]] = {
    "sort: no column 'nix'; there are 'k', 'n', 'x'": lambda s: s.sort("nix", over="time"),
    "sort: unable to find column": lambda s: s.sort(pl.col("nix") + 1, over="time"),
    "rows that go on coming have no last order: say over='time'": lambda s: s.sort("n"),
    "sort takes the columns by which": lambda s: s.sort([], over="time"),
    "sort takes names of columns and Polars expressions, not 3": lambda s: s.sort(3, over="time"),  # type: ignore[arg-type]
    "one truth value, or one for each column": lambda s: s.sort("n", descending=[True, False], over="time"),
    "drop: no column 'nix'": lambda s: s.drop("nix"),
    "drop takes the names": lambda s: s.drop(),
    "drop leaves no column": lambda s: s.drop("k", "n", "x"),
    "rename: no column 'nix'": lambda s: s.rename({"nix": "a"}),
    "rename takes a dict of names": lambda s: s.rename("k"),  # type: ignore[arg-type]
    "rename: .*duplicate": lambda s: s.rename({"k": "n"}),
    "join needs the columns on which rows meet": lambda s: s.join(s),
    "join takes on=, or left_on= and right_on=": lambda s: s.join(s, on="k", left_on="k"),
    "join takes as many columns": lambda s: s.join(s, left_on=["k"], right_on=["k", "n"]),
    "join: the other stream: no column 'nix'": lambda s: s.join(s, left_on="k", right_on="nix"),
    "join: no column 'nix'": lambda s: s.join(s, left_on="nix", right_on="k"),
    "datatypes of join keys": lambda s: s.join(s, left_on="k", right_on="n"),
    "join.left_on=.... takes names of columns": lambda s: s.join(s, left_on=3, right_on="n"),  # type: ignore[arg-type]
    "distinct: no column 'nix'": lambda s: s.distinct("nix"),
    "group_by in windows takes names of columns and Polars expressions, not 3": lambda s: s.window(Epochs(1)).group_by(
        3
    ),  # type: ignore[arg-type]
    "group_by in windows: unable to find column": lambda s: (
        s.window(Epochs(1)).group_by(a=pl.col("nix")).agg(n=agg.count())
    ),
    "group_by makes a key 'n', and agg reads": lambda s: (
        s.window(Epochs(1)).group_by(half.alias("n")).agg(n2=agg.sum("n"))
    ),
    "top_k: unable to find column": lambda s: s.top_k(1, by=pl.col("nix") + 1),
    "drop of changes takes names": lambda s: s.top_k(1, by="n").drop(CHANGE),
    "leaves the sign": lambda s: s.top_k(1, by="n").rename({CHANGE: "sign"}),
    "cannot take back rows": lambda s: s.top_k(1, by="n").sort("n", over="time"),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_errors_at_the_line_of_the_call(message: str) -> None:
    stream = Dataflow("mistakes").columns("in", Batches([frame([])]))
    with pytest.raises(GraphError, match=rf"test_columns_as_polars\.py:\d+: .*{message}"):
        MISTAKES[message](stream)


def test_an_order_by_a_column_that_no_batch_has_names_the_line() -> None:
    flow = Dataflow()
    flow.columns("in", Batches([frame([("a", 1, 1.0)])])).map_batches(lambda f: f).sort("nix", over="time").capture()
    with pytest.raises(
        OperatorError, match=r"sort 'sort-1' \(.*test_columns_as_polars\.py:\d+\) failed at time \(0,\): .*nix"
    ):
        Cluster(flow, 1, 0).run()


def test_the_sign_of_changes_stays_when_columns_are_dropped_or_renamed() -> None:
    first = Dataflow().columns("in", Batches([frame([])])).top_k(1, by="n")
    assert list(first.drop("x").schema or ()) == ["k", "n", CHANGE]
    assert list(first.rename({"x": "y"}).schema or ()) == ["k", "n", "y", CHANGE]
    assert list(first.rename(str.upper).schema or ()) == ["K", "N", "X", CHANGE]


FIRST_TRIED = (
    *(
        "select",
        "with_columns",
        "filter",
        "drop",
        "rename",
        "sort",
        "unique",
        "head",
        "tail",
        "limit",
        "slice",
        "sample",
        "join",
    ),
    *(
        "join_asof",
        "join_where",
        "group_by",
        "group_by_dynamic",
        "rolling",
        "explode",
        "unpivot",
        "pivot",
        "drop_nulls",
        "cast",
    ),
    *(
        "drop_nans",
        "fill_null",
        "fill_nan",
        "with_row_index",
        "top_k",
        "bottom_k",
        "describe",
        "sum",
        "mean",
        "min",
        "max",
        "sql",
    ),
    *(
        "count",
        "n_unique",
        "null_count",
        "unnest",
        "shift",
        "reverse",
        "vstack",
        "to_dicts",
        "collect",
        "sink_parquet",
        "lazy",
    ),
    *(
        "pipe",
        "iter_rows",
        "columns",
        "schema",
        "dtypes",
        "width",
        "height",
        "is_empty",
        "map_batches",
        "match_to_schema",
    ),
)


@pytest.mark.parametrize("verb", FIRST_TRIED)
def test_what_is_known_from_frames_is_there_or_says_what_is(verb: str) -> None:
    stream = Dataflow().columns("in", Batches([frame([])]))
    assert hasattr(pl.DataFrame, verb) or hasattr(pl.LazyFrame, verb)
    if not hasattr(type(stream), verb):
        with pytest.raises(AttributeError, match=rf"'Columns' object has no attribute '{verb}'; "):
            getattr(stream, verb)
