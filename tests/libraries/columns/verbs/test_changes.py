"""Streams of changes on random rows that come and go, in random epochs, on some workers: against Polars, for every verb.

The rows that there are, are the last ones of each `id`: so what comes is taken back again and again, whatever its type is.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.verbs.changes import Changes
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.timely.feeding import feed_batches_in_turn
from timely.data.batch import as_polars
from timely.dataflow.wire import view
from timely.errors import GraphError
from timely.operators.base import Operator
from timely.operators.window_shapes import Tumbling

inf, nan = float("inf"), float("nan")

KINDS: dict[str, tuple[Any, Any]] = {
    "int": (pl.Int64, st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-2, 2)),
    "byte": (pl.Int8, st.integers(-128, 127)),
    "uint64": (pl.UInt64, st.integers(0, 2**62) | st.integers(0, 3)),
    "uint8": (pl.UInt8, st.integers(0, 255)),
    "bool": (pl.Boolean, st.booleans()),
    "decimal": (pl.Decimal(18, 2), st.decimals(-(10**6), 10**6, places=2)),
    "float": (pl.Float64, st.floats() | st.sampled_from([inf, -inf, nan, 1e300, 1.0, 5e-324])),
    "float32": (pl.Float32, st.floats(width=32)),
}
NAMES = ("id", "k", "x", "at")

some = settings(max_examples=settings.default.max_examples // 5)
few = settings(max_examples=settings.default.max_examples // 20)


def schema(kind: str) -> dict[str, Any]:
    return {"id": pl.Int64, "k": pl.String, "x": KINDS[kind][0], "at": pl.Int64}


def drawn(kind: str) -> st.SearchStrategy[list[list[tuple[Any, ...]]]]:
    """Epochs of rows (id, k, x)."""
    row = st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.none() | KINDS[kind][1])
    return st.lists(st.lists(row, max_size=5), min_size=1, max_size=5)


def frames(kind: str, fed: list[list[tuple[Any, ...]]]) -> list[pl.DataFrame]:
    """The rows of each epoch, numbered as they come."""
    found, at = [], 0
    for data in fed:
        found.append(pl.DataFrame([(*row, at + n) for n, row in enumerate(data)], schema(kind), orient="row"))
        at += len(data)
    return found


def there(came: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows that there are."""
    return pl.concat(came).sort("at").unique("id", keep="last", maintain_order=True)


def changes_of(stream: Columns) -> Changes:
    found = stream.group_by("id").top_k(1, by="at")
    assert isinstance(found, Changes)
    return found


def run(build: Callable[[Columns], Any], kind: str, fed: list[pl.DataFrame], workers: int, seed: int) -> list[Any]:
    """The frames that come out at each epoch."""
    flow = Dataflow()
    out = build(flow.input("in").to_columns(schema(kind))).capture()
    cluster = Cluster(flow, workers, seed)
    feed_batches_in_turn(cluster, [[frame[n : n + 1] for n in range(len(frame))] for frame in fed])
    found: list[list[pl.DataFrame]] = [[] for _ in fed]
    for time, batch in cluster.captured(out):
        found[time[0]].append(as_polars(batch))
    return found


def plain(value: Any) -> Any:
    """NaN as text, which is equal to itself, and one zero."""
    if isinstance(value, dict):
        return tuple(map(plain, value.values()))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def rows_of(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, row)) for row in frame.rows()]


def total(values: list[Any]) -> Any:
    """The sum of what is not null, rounded once."""
    values = [each for each in values if each is not None]
    if not any(isinstance(each, float) for each in values):
        return sum(values)
    try:
        return math.fsum(values)
    except ValueError:  # of infinities of both signs
        return nan
    except OverflowError:
        return None


def totals_of(stream: Columns, aggregates: Mapping[str, Any], keyed: bool, changes: bool = False) -> Columns:
    """The running aggregates of a stream, by `k` or of all rows."""
    if keyed:
        return stream.group_by("k").agg(**aggregates, changes=changes)
    return stream.agg(**aggregates, changes=changes)


def followed(
    aggregates: Mapping[str, Any], keyed: bool, kind: str, fed: list[pl.DataFrame], workers: int, seed: int
) -> Iterator[tuple[list[pl.DataFrame], dict[Any, tuple[Any, ...]], Any]]:
    """Of each epoch what totals of changes tell, the results that are known since, by key, and the rows that there are of each.

    As changes they are the same: what a key had before is taken back, and nothing else is.
    """
    known: dict[Any, tuple[Any, ...]] = {}
    signed: Counter[Any] = Counter()
    told = run(lambda stream: totals_of(changes_of(stream), aggregates, keyed), kind, fed, workers, seed)
    told_as_changes = run(
        lambda stream: totals_of(changes_of(stream), aggregates, keyed, changes=True), kind, fed, workers, seed
    )
    for at, found in enumerate(told):
        for frame in found:
            known |= {row[0] if keyed else None: row[keyed:] for row in frame.rows()}
        for frame in told_as_changes[at]:
            for *row, sign in rows_of(frame):
                signed[tuple(row)] += sign
        kept = [tuple(map(plain, (key, *row)[not keyed :])) for key, row in known.items() if row[0] or not keyed]
        assert {row: n for row, n in signed.items() if n} == Counter(kept)
        left = there(fed[: at + 1])
        yield found, known, left.group_by("k") if keyed else [((None,), left)] if len(left) else []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@some
@given(data=st.data(), workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_totals_are_those_of_the_rows_that_there_are_in_the_types_of_plain_rows(
    kind: str, beside: bool, keyed: bool, data: Any, workers: int, seed: int
) -> None:
    """Sums are exact: of floats they are rounded once, whatever was taken back of them. `beside` values that are kept."""
    fed = frames(kind, data.draw(drawn(kind)))
    if kind in ("int", "uint64") and sum(abs(x) for frame in fed for x in frame["x"].drop_nulls().to_list()) >= 2**63:
        return  # where it is an error, as of plain rows
    aggregates: dict[str, Any] = {"n": agg.count(), "total": agg.sum("x"), "mean": agg.mean("x")}
    if beside:
        aggregates |= {"ids": agg.n_unique("id")}

    types = run(lambda stream: totals_of(stream, aggregates, keyed), kind, fed, workers, seed)
    for found, known, groups in followed(aggregates, keyed, kind, fed, workers, seed):
        for frame in found:
            assert all(frame.schema == other.schema for epoch in types for other in epoch if len(other))
        for (key,), group in groups:
            values = [each for each in group["x"].to_list() if each is not None]
            right = total(values)
            if right is None:
                continue
            n, summed, mean, *_ = known[key]
            assert n == len(group)
            assert plain(summed) == plain(right)
            assert type(summed) is type(right) or not values
            expected = None if not values else float(right) / len(values)
            assert plain(mean) == (expected if expected is None else pytest.approx(plain(expected), nan_ok=True))


def spread(values: list[Any], ddof: int) -> float | None:
    """The variance, exact but for one rounding; of what is no number, and of squares that are none, as Polars has it."""
    if len(values) <= ddof:
        return None
    if any(isinstance(each, float) and not abs(each) < 2.0**511 for each in values):
        return inf if all(map(math.isfinite, values)) else nan
    exact = list(map(Fraction, values))
    mean = sum(exact) / len(exact)
    return float(sum((each - mean) ** 2 for each in exact) / (len(exact) - ddof))


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "decimal"])
@some
@given(data=st.data(), ddof=st.integers(0, 2), workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_variances_are_those_of_the_rows_that_there_are(
    kind: str, keyed: bool, data: Any, ddof: int, workers: int, seed: int
) -> None:
    """To the last digit but one, whatever was taken back; and as Polars has them, where its own are exact enough to tell."""
    fed = frames(kind, data.draw(drawn(kind)))
    aggregates: dict[str, Any] = {"n": agg.count(), "var": agg.var("x", ddof), "std": agg.std("x", ddof)}

    for _, known, groups in followed(aggregates, keyed, kind, fed, workers, seed):
        for (key,), group in groups:
            values = [each for each in group["x"].to_list() if each is not None]
            n, var, std = known[key]
            assert n == len(group)
            right = spread(values, ddof)
            close = [
                None if each is None else pytest.approx(plain(each), rel=1e-14)
                for each in (right, right and right**0.5)
            ]
            assert [plain(var), plain(std)] == close
            if right is not None and all(abs(each) < 1e6 for each in values):
                assert var == pytest.approx(
                    group.select(pl.col("x").cast(pl.Float64).var(ddof)).item(), rel=1e-6, abs=1e-4
                )


def test_variances_do_not_suffer_from_what_was_far_larger() -> None:
    """Numbers around 1e9 whose distances are 1e-6, beside which 1e150 came and went, and infinity."""
    near = [1e9 + each * 1e-6 for each in range(5)]
    rows = [(n, "a", value, n) for n, value in enumerate([*near, 1e150, -3e140, inf, 1e300])]
    back = [(n, "b", 0.0, 100 + n) for n in range(5, 9)]
    fed = [pl.DataFrame(each, schema("float"), orient="row") for each in (rows, back)]
    told = run(lambda s: changes_of(s).group_by("k").agg(v=agg.var("x")), "float", fed, 1, 0)
    assert ("a", spread(near, 1)) in [row for frame in told[-1] for row in frame.rows()]


@given(st.lists(st.tuples(st.floats(), st.booleans()), max_size=20))
@few
def test_what_is_taken_back_leaves_nothing(values: list[tuple[float, bool]]) -> None:
    """A key whose numbers have all gone has a sum of 0, however large they were."""
    fed = [pl.DataFrame([(0, "a", value, n)], schema("float"), orient="row") for n, (value, _) in enumerate(values)]
    fed.append(pl.DataFrame([(0, "a", 0.25, len(values))], schema("float"), orient="row"))
    told = run(lambda s: changes_of(s).agg(total=agg.sum("x"), mean=agg.mean("x")), "float", fed, 1, 0)
    assert [frame.rows() for frame in told[-1]] in ([[(0.25, 0.25)]], [])
    last = [row for epoch in told for frame in epoch for row in frame.rows()][-1]
    assert last == (0.25, 0.25)


def _beside(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("k", beside=pl.col("id")).unique()


VERBS: dict[str, tuple[Callable[[Changes, Columns], Columns], Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]]] = {
    "select": (lambda c, s: c.select("k", y=pl.col("at") + 1), lambda f, a: f.select("k", y=pl.col("at") + 1)),
    "select with the sign": (lambda c, s: c.select("k", "change", pl.col("change")), lambda f, a: f.select("k")),
    "select constants": (lambda c, s: c.select(one=pl.lit(1)), lambda f, a: f.select("k", one=pl.lit(1)).drop("k")),
    "with_columns": (lambda c, s: c.with_columns(y=pl.col("at") + 1), lambda f, a: f.with_columns(y=pl.col("at") + 1)),
    "with_columns of all": (
        lambda c, s: c.with_columns(cs.integer() * 2),
        lambda f, a: f.with_columns(cs.integer() * 2),
    ),
    "filter": (lambda c, s: c.filter(pl.col("at") % 2 == 0, k="a"), lambda f, a: f.filter(pl.col("at") % 2 == 0, k="a")),
    "filter by all": (
        lambda c, s: c.filter(pl.all_horizontal(cs.integer() >= 0)),
        lambda f, a: f.filter(pl.all_horizontal(cs.integer() >= 0)),
    ),
    "branch": (
        lambda c, s: c.branch(pl.any_horizontal(cs.integer() == -1))[1],
        lambda f, a: f.filter(~pl.any_horizontal(cs.integer() == -1).fill_null(False)),
    ),
    "inspect": (lambda c, s: c.inspect(len), lambda f, a: f),
    "exchange": (lambda c, s: c.exchange("k"), lambda f, a: f),
    "concat": (lambda c, s: c.concat(c.filter(k="a")), lambda f, a: pl.concat([f, f.filter(k="a")])),
    "rows": (lambda c, s: c.rows(), lambda f, a: f),
    "join": (
        lambda c, s: c.join(s.select("k", beside=pl.col("id")).distinct("k", "beside"), on="k"),
        lambda f, a: f.join(_beside(a), on="k"),
    ),
    "join behind": (
        lambda c, s: s.select("k", beside=pl.col("id")).distinct("k", "beside").join(c, on="k"),
        lambda f, a: _beside(a).join(f, on="k"),
    ),
    "join with itself": (
        lambda c, s: c.join(c.select("k", other="id"), on="k"),
        lambda f, a: f.join(f.select("k", other="id"), on="k"),
    ),
    "join on other names": (
        lambda c, s: c.join(c.select(l="k", at="id"), left_on="k", right_on="l", suffix=" of it"),
        lambda f, a: f.join(f.select(l="k", at="id"), left_on="k", right_on="l", suffix=" of it"),
    ),
    "join on expressions": (
        lambda c, s: c.select("id").join(c.select("at"), left_on="id", right_on=pl.col("at") % 4),
        lambda f, a: f.select("id").join(f.select("at").with_columns(id=pl.col("at") % 4), on="id"),
    ),
    "totals": (
        lambda c, s: c.group_by("k").agg(n=agg.count(), last=agg.max("at"), changes=True),
        lambda f, a: f.group_by("k").agg(n=pl.len(), last=pl.col("at").max()),
    ),
    "drop": (lambda c, s: c.drop("x", "id"), lambda f, a: f.drop("x", "id")),
    "rename": (lambda c, s: c.rename({"k": "l"}), lambda f, a: f.rename({"k": "l"})),
    "rename by a function": (lambda c, s: c.rename(str.upper), lambda f, a: f.rename(str.upper)),
    "cast": (lambda c, s: c.cast({"at": pl.String}), lambda f, a: f.cast({"at": pl.String})),
    "cast by types": (
        lambda c, s: c.drop("x").cast({cs.integer(): pl.String}),
        lambda f, a: f.drop("x").cast({cs.integer(): pl.String}),
    ),
    "cast of all": (lambda c, s: c.cast(pl.String), lambda f, a: f.cast(pl.String)),
    "drop_nulls": (lambda c, s: c.drop_nulls(), lambda f, a: f.drop_nulls()),
    "drop_nans": (
        lambda c, s: c.with_columns(pl.col("x").cast(float)).drop_nans(),
        lambda f, a: f.with_columns(pl.col("x").cast(float)).drop_nans(),
    ),
    "fill_null": (lambda c, s: c.select("k", "id", "x").fill_null(7), lambda f, a: f.select("k", "id", "x").fill_null(7)),
    "fill_null by a text that looks like a pattern": (
        lambda c, s: c.select("id", t=pl.col("k").replace({"a": None})).fill_null("*"),
        lambda f, a: f.select("id", t=pl.col("k").replace({"a": None})).fill_null("*"),
    ),
    "fill_null of an expression": (
        lambda c, s: c.select("id", pl.col("at").replace({2: None, 3: None})).fill_null(pl.col("id")),
        lambda f, a: f.select("id", pl.col("at").replace({2: None, 3: None})).fill_null(pl.col("id")),
    ),
    "fill_nan": (
        lambda c, s: c.with_columns(pl.col("x").cast(float)).fill_nan(0.5),
        lambda f, a: f.with_columns(pl.col("x").cast(float)).fill_nan(0.5),
    ),
    "explode": (
        lambda c, s: c.select("k", l=pl.concat_list("id", "at")).explode("l"),
        lambda f, a: f.select("k", l=pl.concat_list("id", "at")).explode("l"),
    ),
    "explode of all lists": (
        lambda c, s: c.select(l=pl.concat_list("id", "at")).explode(pl.all()),
        lambda f, a: f.select(l=pl.concat_list("id", "at")).explode(pl.all()),
    ),
    "unnest": (
        lambda c, s: c.select(pl.struct("k", "at").alias("s"), "id").unnest("s"),
        lambda f, a: f.select("k", "at", "id"),
    ),
    "match_to_schema": (
        lambda c, s: c.drop("x").match_to_schema({"k": str, "at": int, "id": int}),
        lambda f, a: f.select("k", "at", "id"),
    ),
    "pipe": (lambda c, s: c.pipe(lambda rows: rows.filter(k="a")), lambda f, a: f.filter(k="a")),
    "top_k by an expression": (
        lambda c, s: c.select("k", "at").top_k(2, by=-pl.col("at")),
        lambda f, a: f.select("k", "at").bottom_k(2, by="at"),
    ),
    "top_k": (
        lambda c, s: c.select("k", "at").top_k(2, by="at"),
        lambda f, a: f.select("k", "at").top_k(2, by="at"),
    ),
    "group_by": (
        lambda c, s: c.group_by("k").top_k(1, by="at", reverse=True).select("k", "at"),
        lambda f, a: f.group_by("k").agg(pl.col("at").min()),
    ),
    "group_by expressions of all": (
        lambda c, s: c.group_by(odd=pl.sum_horizontal(cs.signed_integer() % 8) % 2).top_k(1, by="at").select("odd", "at"),
        lambda f, a: f.group_by(odd=pl.sum_horizontal(cs.signed_integer() % 8) % 2).agg(pl.col("at").max()),
    ),
    **{
        f"select {name}": (lambda c, s, of=of: c.select(*of()), lambda f, a, of=of: f.select(*of()))
        for name, of in {
            "all": lambda: [pl.all()],
            "a star": lambda: ["*"],
            "a pattern": lambda: ["^.*a.*$", pl.col("^[i-k].*$")],
            "a list of all": lambda: [["k", pl.exclude("k")]],
            "all but one": lambda: [pl.exclude("x")],
            "numbers": lambda: [cs.integer() - 1],
            "all in one": lambda: ["k", pl.sum_horizontal(pl.exclude("k", "x")).alias("s")],
            "all as a struct": lambda: [pl.struct(pl.exclude("x")).alias("s")],
            "all by a function": lambda: ["k", pl.struct(cs.signed_integer()).map_elements(repr, pl.String).alias("s")],
        }.items()
    },
}  # fmt: skip
"""Verbs of changes, and of the rows that there are (of all that came, too), in Polars."""


@pytest.mark.parametrize("name", VERBS)
@few
@given(data=st.data(), kind=st.sampled_from(["int", "uint64", "decimal", "float"]), workers=st.integers(1, 3))
def test_a_verb_of_changes_gives_changes_of_what_it_gives(name: str, data: Any, kind: str, workers: int) -> None:
    fed = frames(kind, data.draw(drawn(kind)))
    build, oracle = VERBS[name]
    told = run(lambda stream: build(changes_of(stream), stream), kind, fed, workers, data.draw(st.integers(0, 99)))
    counted: Counter[Any] = Counter()
    for at, found in enumerate(told):
        for frame in found:
            assert frame.columns[-1] == "change"
            for *row, sign in rows_of(frame):
                counted[tuple(row)] += sign
        wanted = oracle(there(fed[: at + 1]), pl.concat(fed[: at + 1]))
        assert {row: n for row, n in counted.items() if n} == Counter(rows_of(wanted))


HEEDED = {
    *("agg", "branch", "broadcast", "capture", "concat", "exchange", "filter", "group_by", "inspect", "join", "leave", "probe"),
    *("cast", "drop", "drop_nans", "drop_nulls", "explode", "fill_nan", "fill_null", "match_to_schema", "pipe", "rename"),
    *("rows", "select", "to", "top_k", "unnest", "with_columns"),
}  # fmt: skip
"""The verbs that heed the sign. Each is tested by what it gives."""

NOT_VERBS = {"first", "graph", "nondeterministic", "output", "outputs", "policy", "schema", "scope"}


class Nothing(Operator):
    """Does nothing."""


REFUSED: dict[str, Callable[[Columns, Columns], Any]] = {
    "binary": lambda a, b: a.binary(b, "own", Nothing),
    "connect_loop": lambda a, b: a.connect_loop(None),  # type: ignore[arg-type]
    "distinct": lambda a, b: a.distinct("k"),
    "enter": lambda a, b: a.enter(a.graph.add_scope("inner", a.scope)),
    "iterate": lambda a, b: a.iterate(lambda s: s.filter(pl.col("at") < 0)),
    "join_asof": lambda a, b: a.join_asof(b, on="at", by="k"),
    "join_interval": lambda a, b: a.join_interval(b, "at", 0, 1, by="k"),
    "key_by": lambda a, b: a.key_by("k").count(),
    "map_batches": lambda a, b: a.map_batches(lambda batch: batch),
    "sort": lambda a, b: a.sort("at", over="time"),
    "split_late": lambda a, b: a.split_late("at"),
    "to_records": lambda a, b: a.to_records(),
    "unary": lambda a, b: a.unary("own", Nothing),
    "window": lambda a, b: a.window(Tumbling(3), "at"),
}
"""The verbs that do not, of the first stream, and some also of the second one."""


def test_every_verb_heeds_the_sign_or_is_refused() -> None:
    verbs = {name for name in dir(Changes) if not name.startswith("_")}
    assert verbs == HEEDED | set(REFUSED) | NOT_VERBS


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("which", [0, 1])
def test_a_verb_that_does_not_heed_the_sign_is_refused_at_the_call(name: str, which: int) -> None:
    stream = Dataflow().input("in").to_columns(schema("int"))
    changed = changes_of(stream)
    nodes = len(stream.graph.nodes)
    sides = (changed, stream) if which == 0 else (stream, changed)
    if which and name not in ("binary", "join_asof", "join_interval"):
        return
    with pytest.raises(GraphError, match=rf"test_changes\.py:\d+: {name} cannot take back rows.*rows\(\) first"):
        REFUSED[name](*sides)
    assert len(stream.graph.nodes) == nodes


def test_a_verb_that_says_nothing_of_signs_is_refused() -> None:
    """Whatever reads a stream is refused changes, but for what the class of changes itself gives it."""

    class Later(Columns):
        def mean(self) -> Columns:
            return self._of(self._attach("mean", None, factory=Nothing))

        def beside(self, other: Columns) -> Columns:
            self._same_scope(other, "beside")
            return self

    class LaterChanges(Changes, Later):
        pass

    stream = Dataflow().input("in").to_columns(schema("int"))
    changed = view(changes_of(stream), LaterChanges)
    for build, verb in (
        (changed.mean, "mean"),
        (lambda: view(stream, Later).beside(changed), "beside"),
        (lambda: changed.beside(stream), "beside"),
    ):
        with pytest.raises(GraphError, match=rf"test_changes\.py:\d+: {verb} cannot take back rows"):
            build()


def test_what_cannot_be_meant_is_refused_at_the_call() -> None:
    stream = Dataflow().input("in").to_columns(schema("int"))
    named = stream.with_columns(change=pl.lit(1))
    changed = changes_of(stream)
    lock = threading.Lock()  # a function that holds one cannot be written down
    for build, why in (
        (lambda: stream.concat(changed), "concat cannot take back rows"),
        (lambda: changed.concat(stream), "rows of Columns.* have no sign"),
        (lambda: stream.join(changed, on="k", how="lookup"), "changes are joined by how='inner'"),
        (lambda: stream.join(changed, on="k", over="time"), "changes are joined by how='inner'"),
        (lambda: changed.join(named, on="k"), "join with changes gives each row a sign, in a column 'change'"),
        (lambda: named.join(changed, on="k"), "and there is one of that name: rename it"),
        (lambda: stream.join(named, on="k", how="left", changes=True), r"join\(changes=True\) gives each row a sign"),
        (lambda: named.join(stream, on="k", how="anti", changes=True), r"join\(changes=True\) gives each row a sign"),
        (lambda: stream.group_by("k").agg(change=agg.count(), changes=True), r"agg\(changes=True\) gives each row a sign"),
        (lambda: named.group_by("change").agg(n=agg.count(), changes=True), r"agg\(changes=True\) gives each row a sign"),
        (lambda: stream.agg(change=agg.count(), changes=True), r"agg\(changes=True\) gives each row a sign"),
        (lambda: named.group_by("k").top_k(2, by="at"), "top_k with over='scope' gives each row a sign"),
        (lambda: changed.select("k", change=pl.lit(1)), "select of changes keeps the sign 'change' by itself"),
        (lambda: changed.select(pl.col("at").alias("change")), "select of changes keeps the sign"),
        (lambda: changed.with_columns(change=-pl.col("change")), "with_columns of changes keeps the sign"),
        (lambda: changed.drop("change"), "drop of changes takes names of columns"),
        (lambda: changed.drop(cs.integer()), "drop of changes takes names of columns"),
        (lambda: changed.rename({"at": "change"}), "rename of changes leaves the sign 'change' as it is"),
        (lambda: changed.rename({"change": "sign"}), "rename of changes leaves the sign 'change' as it is"),
        (lambda: changed.rename(lambda name: "change"), "rename"),
        (lambda: changed.cast({"change": pl.Int64}), "cast of changes leaves the sign 'change' as it is"),
        (lambda: changed.with_columns(pl.all().map_elements(lambda n: lock)), "name its columns"),
        (lambda: changed.group_by("k").agg(k=agg.count()), "'k' would come out twice"),
        (lambda: changed.group_by("k").agg(k=agg.max("at")), "'k' would come out twice"),
        (lambda: changed.agg(n=agg.sum("k")), "cannot be added up"),
    ):  # fmt: skip
        with pytest.raises(GraphError, match=rf"test_changes\.py:\d+: .*{why}"):
            build()


def test_the_schema_of_changes_is_that_of_what_comes() -> None:
    stream = Dataflow().input("in").to_columns(schema("decimal"))
    changed = changes_of(stream)
    signed = {"change": pl.Int8}
    assert changed.select(pl.all()).schema == changed.schema
    assert changed.with_columns(y="k").schema == pl.Schema({**schema("decimal"), "y": pl.String, **signed})
    found = changed.group_by("k").agg(total=agg.sum("x"), mean=agg.mean("x"), n=agg.count()).schema
    assert found == stream.group_by("k").agg(total=agg.sum("x"), mean=agg.mean("x"), n=agg.count()).schema


@pytest.mark.parametrize("workers", [1, 3])
def test_broadcast_changes_and_those_that_leave_a_scope_keep_the_sign(workers: int) -> None:
    fed = frames("int", [[(0, "a", 1)], [(0, "a", 2)]])
    found = run(lambda s: changes_of(s).select("x").broadcast(), "int", fed, workers, 0)
    assert [sorted(row for frame in epoch for row in frame.rows()) for epoch in found] == [
        [(1, 1)] * workers,
        sorted([(1, -1), (2, 1)] * workers),
    ]

    def through(stream: Columns) -> Columns:
        inner = stream.enter(stream.graph.add_scope("inner", stream.scope))
        return inner.group_by("k").agg(most=agg.max("at"), changes=True).leave().filter(pl.col("most") >= 0)

    found = run(through, "int", fed, workers, 0)
    assert [[row for frame in epoch for row in frame.rows()] for epoch in found] == [[("a", 0, 1)], [("a", 1, 1)]]


def test_the_least_integer_that_is_taken_back_is_an_error_that_says_what_to_do() -> None:
    fed = frames("int", [[(0, "a", -(2**63))], [(0, "a", 1)]])
    with pytest.raises(Exception, match=r"beyond 64-bit integers; cast the column before"):
        run(lambda s: changes_of(s).agg(total=agg.sum("x")), "int", fed, 1, 0)
    exact = run(
        lambda s: changes_of(s).with_columns(pl.col("x").cast(pl.Decimal(38, 0))).agg(total=agg.sum("x")),
        "int",
        fed,
        1,
        0,
    )
    assert [frame.rows() for epoch in exact for frame in epoch] == [[(Decimal(-(2**63)),)], [(Decimal(1),)]]
