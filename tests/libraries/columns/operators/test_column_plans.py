"""Chains of column verbs, which are one plan of Polars, against the same verbs one after the other."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from tests.timely.operators.fake_context import FakeContext
from timely.data.kernels import expressions
from timely.dataflow.plan import compile_plan
from timely.errors import GraphError, OperatorError
from timely.operators.stateless import Stage, Stateless


@pytest.fixture(autouse=True, scope="module")
def _any_expression() -> Iterator[None]:
    """Also those that look at other rows, which verbs refuse where a batch is not an epoch: chains run them alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Columns, "_are_times", lambda stream: True)
        yield


a, b, x, t, y = (pl.col(name) for name in ("a", "b", "x", "t", "y"))

VERBS: dict[str, Callable[[Columns], Columns]] = {
    "double": lambda s: s.with_columns(a=a * 2),
    "positive": lambda s: s.filter(a > 0),
    "above the mean": lambda s: s.filter(a > a.mean()),
    "swap": lambda s: s.select(a="b", b="a"),
    "computed": lambda s: s.select(a + b, b=b.cum_sum()),
    "sum": lambda s: s.select(a.sum(), b=pl.lit(7)),
    "rows": lambda s: s.select(pl.len().cast(pl.Int64).alias("a"), pl.lit(1).alias("b")),
    "largest first": lambda s: s.select(pl.all().sort_by("a", descending=True)),
    "shift": lambda s: s.with_columns(b=b.shift(1)),
    "constraint": lambda s: s.filter(b=1),
    "narrow": lambda s: s.with_columns(a.cast(pl.Int8).cast(pl.Int64)),
    "misses": lambda s: s.filter(a != 3, pl.col("nowhere") > 0),
    "look": lambda s: s.inspect(len),
}
rows = st.lists(st.tuples(st.integers(-3, 3) | st.just(100), st.none() | st.integers(0, 2)), min_size=1, max_size=6)


def stages_of(verbs: list[str]) -> tuple[Stage, ...]:
    flow = Dataflow()
    stream = flow.columns("in", Nothing())
    for verb in verbs:
        stream = VERBS[verb](stream)
    stream.capture()
    chains = [processor.stages for processor in compile_plan(flow.graph, 1).processors if processor.stages]
    assert len(chains) == 1, "all of them are one processor"
    return chains[0]


class Nothing:
    """A source without partitions."""

    def partitions(self, worker: int, workers: int) -> list[Any]:
        return []


class Out(FakeContext):
    def __init__(self) -> None:
        super().__init__()
        self.out: list[Any] = []


def outcome(chains: list[tuple[Stage, ...]], frame: pl.DataFrame) -> Any:
    """The output of several processors in a row, or the error."""
    batch: Any = frame
    for chain in chains:
        ctx: Any = Out()
        try:
            Stateless(chain).on_batch(ctx, 0, (4,), batch)
        except OperatorError as error:
            return str(error)
        if not ctx.out:
            return None
        ((port, time, batch),) = ctx.out
        assert (port, time) == (0, (4,))
    return batch.schema, batch.rows()


@settings(max_examples=150)
@given(st.lists(st.sampled_from(sorted(VERBS)), min_size=1, max_size=6), rows)
def test_a_chain_gives_what_its_verbs_give_one_after_the_other(verbs: list[str], data: Any) -> None:
    frame = pl.DataFrame(data, {"a": pl.Int64, "b": pl.Int64}, orient="row")
    stages = stages_of(verbs)
    assert outcome([stages], frame) == outcome([(stage,) for stage in stages], frame)


def test_a_verb_that_makes_rows_of_none_is_not_asked_when_all_were_dropped() -> None:
    """Polars makes a sum of 0 of an empty frame; here a batch without rows goes no further."""
    frame = pl.DataFrame({"a": [-1], "b": [0]})
    assert outcome([stages_of(["positive", "sum"])], frame) is None
    assert outcome([stages_of(["double", "sum"])], frame) == ({"a": pl.Int64, "b": pl.Int32}, [(-2, 7)])


def test_an_error_in_a_plan_names_the_verb_its_line_and_its_input() -> None:
    found = outcome([stages_of(["double", "positive", "narrow", "swap"])], pl.DataFrame({"a": [100], "b": [0]}))
    assert re.match(r"with_columns .with_columns-2. \(.*test_column_plans.py:\d+\) failed at time \(4,\)", found)
    assert "200" in found.partition("its input began with")[2]


def test_what_is_no_expression_is_refused_at_the_call() -> None:
    stream = Dataflow().columns("in", Nothing())
    with pytest.raises(GraphError, match=r"test_column_plans.py:\d+: select takes Polars expressions"):
        stream.select(object())


def test_expressions_of_a_generator_count_for_every_batch() -> None:
    stream = Dataflow().columns("in", Nothing()).with_columns(pl.col(name) * 2 for name in "ab")
    (stage,) = stream.graph.nodes[-1].stages
    for _ in range(2):
        batch: Any = stage.apply(pl.DataFrame({"a": [1], "b": [2]}))
        assert batch.rows() == [(2, 4)]


def _of(parts: tuple[Any, str, Any]) -> Any:
    left, sign, right = parts
    return SIGNS[sign](left, right)


SIGNS: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "/": operator.truediv,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "&": operator.and_, "|": operator.or_,
}  # fmt: skip


numbers = st.integers(-4, 4) | st.sampled_from([2**62, -(2**63), 2**63 - 1])
floats = st.sampled_from([0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan, 1e300])
KINDS = {
    "a": (pl.Int64, numbers),
    "b": (pl.Int64, numbers),
    "x": (pl.Float64, floats),
    "t": (pl.String, st.sampled_from("uvwä")),
}
constants = st.integers(-3, 5) | st.sampled_from([0.5, -1.25])
arithmetic = st.recursive(
    st.sampled_from([a, b, x]),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "/"]), inner | constants).map(_of),
    max_leaves=4,
)
conditions = st.recursive(
    st.tuples(arithmetic, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), arithmetic | constants).map(_of)
    | st.sampled_from(
        [t == "u", t != "ä", t.is_in(["u", "w"]), a.is_in([1, 2, -3]), a.is_in(range(12)), y, ~y, t > "u"]
        + [a.is_between(-1, b, closed) for closed in ("both", "left", "right", "none")]
        + [x.is_between(-2.0, 1.5), t.is_between(pl.lit("u"), pl.lit("v"))]
    ),
    lambda inner: st.tuples(inner, st.sampled_from("&|"), inner).map(_of) | inner.map(operator.invert),
    max_leaves=3,
)
verbs = st.one_of(
    st.tuples(st.just("filter"), st.lists(conditions, min_size=1, max_size=2), st.sampled_from([{}, {}, {"a": 1}])),
    st.tuples(
        st.just("with_columns"),
        st.lists(arithmetic.map(lambda e: e.alias("a")) | conditions.map(lambda e: e.alias("new")), max_size=1),
        st.sampled_from(
            [{"b": a}, {"x": x * 2}, {"m": pl.lit(0, pl.Int8), "o": pl.lit(7, pl.Int64)}, {"t": "t", "u": pl.col("t")}]
            + [{"c": col.cast(pl.Int64)} for col in (a, x, y, t)]
            + [{"c": b * pl.col("i").cast(pl.Int64)}, {"c": a // (b % 3 + 1)}, {"c": b % (a % 2 + 1)}]
        ),
    ),
    st.tuples(
        st.just("select"),
        st.sampled_from(
            [["a", "b", "x", "t", "y", "i"], [pl.col("b", "a"), "t", x], [pl.all()], [pl.all().exclude("b")]]
        ),
        st.sampled_from([{}, {"sum": a + b}]),
    ),
)


@settings(max_examples=80)
@given(
    st.data(), st.lists(verbs, min_size=1, max_size=4), st.integers(1, 6), st.sampled_from([0, 0, 0, 1]), st.booleans()
)
def test_few_rows_give_what_polars_gives(data: Any, chain: list[Any], count: int, holes: int, arrow: bool) -> None:
    """Whatever the verbs that are compiled do of themselves is what Polars does, types included; the rest is left to it."""
    frame = pl.DataFrame(
        {
            name: pl.Series([data.draw(values | st.none() if holes else values) for _ in range(count)], dtype=kind)
            for name, (kind, values) in {
                **KINDS,
                "y": (pl.Boolean, st.booleans()),
                "i": (pl.Int8, st.integers(-128, 127)),
            }.items()
        }
    )
    compiled = [expressions.compiled(kind, exprs, named) for kind, exprs, named in chain]
    known = [verb for verb in compiled if verb is not None]
    if len(known) < len(chain):
        return
    found = expressions.apply(known, frame.to_arrow() if arrow else frame)
    event(f"left to Polars: {found is None}")
    if found is not None:
        wanted = frame
        for kind, exprs, named in chain:
            wanted = getattr(wanted, kind)(*exprs, **named)
            if not len(wanted):
                assert not len(found)
                return
        assert found.equals(wanted), (found, wanted)
        assert found.schema == wanted.schema


def test_verbs_of_arithmetic_are_not_left_to_polars() -> None:
    frame = pl.DataFrame({"a": [5, -5, 7], "t": ["u", "v", "u"], "s": pl.Series([-1, 1, 1], dtype=pl.Int8)})
    verbs = [
        expressions.compiled("filter", [t.is_in(["u"]) | (a < 0)], {}),
        expressions.compiled("with_columns", [(a % 3 * 2).alias("b")], {"c": a // 2}),
        expressions.compiled("select", ["t", "s", pl.col("b", "c")], {"d": "a"}),
        expressions.compiled("filter", [b != 0], {"t": "u"}),
        expressions.compiled("filter", [pl.col("d").is_between(b, 9)], {}),
        expressions.compiled("select", ["t", "b"], {"e": pl.col("d") // b * pl.col("s").cast(pl.Int64)}),
    ]
    found = expressions.apply([verb for verb in verbs if verb is not None], frame)
    assert found is not None
    assert found.rows() == [("u", 4, -1), ("u", 2, 3)]
