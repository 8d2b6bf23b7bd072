"""Joins of columns, against Polars on everything at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.operators.joins.equi import ColumnJoin
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.session import Session
from tests.timely.operators.fake_context import feed
from timely.errors import GraphError, OperatorError
from timely.time import Frontier

keys = st.none() | st.sampled_from(["a", "b", "c"])
sides = st.lists(st.lists(keys, max_size=4), min_size=1, max_size=4)
busy = st.lists(st.lists(keys, min_size=2, max_size=5), min_size=3, max_size=5)
RIGHT = {"k": pl.String, "r": pl.Int64}


def frames(side: list[list[str | None]], name: str) -> list[pl.DataFrame]:
    """One frame a time, every row with a number of its own."""
    numbers = iter(range(1000))
    return [
        pl.DataFrame({"k": ks, name: [next(numbers) for _ in ks]}, schema={"k": pl.String, name: pl.Int64})
        for ks in side
    ]


def events(left: list[pl.DataFrame], right: list[pl.DataFrame]) -> list[Any]:
    both = [(0, (t,), f) for t, f in enumerate(left)] + [(1, (t,), f) for t, f in enumerate(right)]
    return [event for event in both if len(event[2])]


def rows(sent: list[Any]) -> list[Any]:
    return sorted((str(row) for _, frame in sent for row in frame.iter_rows()))


@settings(max_examples=40)
@given(sides, sides, st.sampled_from(["inner", "left", "semi", "anti"]))
def test_per_time_join_equals_polars_at_each_time(l_side: Any, r_side: Any, how: Any) -> None:
    left, right = frames(l_side, "l"), frames(r_side, "r")
    sent = feed(ColumnJoin(["k"], how, "time", right=RIGHT), events(left, right))
    wanted = [
        (t, frame.join(right[t] if t < len(right) else pl.DataFrame(schema=RIGHT), on="k", how=how))
        for t, frame in enumerate(left)
    ]
    assert {time: rows([(time, f)]) for time, f in sent} == {(t,): rows([(t, f)]) for t, f in wanted if len(f)}


@settings(max_examples=40)
@given(sides, sides, st.booleans())
def test_running_inner_join_gives_each_pair_once_at_its_later_time(l_side: Any, r_side: Any, merge: bool) -> None:
    left, right = frames(l_side, "l"), frames(r_side, "r")
    sent = feed(ColumnJoin(["k"], over="scope"), events(left, right), compact=merge)
    dated = [
        pl.concat([f.with_columns(pl.lit(t).alias(at)) for t, f in enumerate(side)])
        for side, at in ((left, "tl"), (right, "tr"))
    ]
    pairs = dated[0].join(dated[1], on="k").with_columns(t=pl.max_horizontal("tl", "tr"))
    assert sorted((t[0], *row) for t, f in sent for row in f.iter_rows()) == sorted(
        pairs.select("t", "k", "l", "r").iter_rows()
    )


@settings(max_examples=40)
@given(sides, sides, st.booleans())
def test_a_running_semi_join_gives_each_row_once_at_its_first_match(l_side: Any, r_side: Any, merge: bool) -> None:
    left, right = frames(l_side, "l"), frames(r_side, "r")
    sent = feed(ColumnJoin(["k"], "semi", "scope"), events(left, right), compact=merge)
    first = {k: min(t for t, f in enumerate(right) if k in f["k"]) for f in right for k in f["k"] if k is not None}
    assert sorted((t[0], *row) for t, f in sent for row in f.iter_rows()) == sorted(
        (max(t, first[k]), k, n) for t, f in enumerate(left) for k, n in f.iter_rows() if k in first
    )


@settings(max_examples=30)
@given(busy, busy, st.sampled_from(["left", "anti"]), st.none() | st.integers(0, 4))
def test_changes_add_up_to_the_join_of_all_rows_so_far(l_side: Any, r_side: Any, how: Any, cut: int | None) -> None:
    """Also where the operator is restored at some epoch."""
    left, right = frames(l_side, "l"), frames(r_side, "r")
    every = events(left, right)

    def new() -> ColumnJoin:
        return ColumnJoin(["k"], how, "scope", RIGHT, changes=True)

    first = new()
    if cut is None:
        sent = feed(first, every)
    else:
        f = Frontier.before([(cut,)])
        sent = feed(first, [event for event in every if event[1] in f], compact=False)
        second = new()
        assert first.state is not None
        assert second.state is not None
        second.state.restore(first.state.snapshot(f, Frontier.empty(1)))
        sent += feed(second, [event for event in every if event[1] not in f])
    there: Counter[Any] = Counter()
    for t in range(max(len(left), len(right))):
        for _, frame in (each for each in sent if each[0] == (t,)):
            for *row, sign in frame.iter_rows():
                there[tuple(row)] += sign
        so_far = pl.concat(left[: t + 1]).join(pl.concat(right[: t + 1]), on="k", how=how)
        assert +there == Counter(so_far.rows())
        assert min(there.values(), default=0) >= 0
        taken = [row for time, frame in sent if time == (t,) for row in frame.filter(pl.col("change") == -1).rows()]
        given_too = {row[:-1] for time, frame in sent if time == (t,) for row in frame.rows() if row[-1] == 1}
        assert not given_too & {row[:-1] for row in taken}  # nothing comes and goes within an epoch


@settings(max_examples=40)
@given(sides, sides)
def test_a_lookup_sees_what_is_known_at_its_time(l_side: Any, r_side: Any) -> None:
    left, right = frames(l_side, "l"), frames(r_side, "r")
    sent = dict(feed(ColumnJoin(["k"], "lookup", "scope", right=RIGHT), events(left, right)))
    for t, frame in enumerate(left):
        known = pl.concat([pl.DataFrame(schema=RIGHT), *right[: t + 1]])
        got = sent.get((t,), pl.DataFrame())
        assert rows([((t,), got)]) == rows([((t,), frame.join(known, on="k", how="left"))])


@settings(max_examples=40)
@given(sides, sides, st.integers(0, 4), st.sampled_from(["inner", "semi"]))
def test_rollback_and_restore_go_on_as_if_nothing_had_happened(l_side: Any, r_side: Any, cut: int, how: Any) -> None:
    every = events(frames(l_side, "l"), frames(r_side, "r"))
    first, second = ColumnJoin(["k"], how, over="scope"), ColumnJoin(["k"], how, over="scope")
    wanted = feed(first, every, compact=False)
    f = Frontier.before([(cut,)])
    assert first.state is not None
    assert second.state is not None
    second.state.restore(first.state.snapshot(f, Frontier.empty(1)))
    first.state.keep(f)
    for operator in (first, second):
        again = feed(operator, [event for event in every if event[1] not in f])
        assert rows(again) == rows([(t, frame) for t, frame in wanted if t not in f])


def test_coded_and_plain_keys_meet_and_equal_names_get_a_suffix() -> None:
    left = pa.table({"k": pa.array(["a", "b"]).dictionary_encode(), "v": [1, 2]})
    right = pl.DataFrame({"k": ["b", "c"], "v": [3, 4]})
    [(_, joined)] = feed(ColumnJoin(["k"]), [(0, (0,), left), (1, (0,), right)])
    assert joined.to_dicts() == [{"k": "b", "v": 2, "v_right": 3}]


def test_scopes_do_not_mix() -> None:
    row = pl.DataFrame({"k": ["a"]})
    sent = feed(ColumnJoin(["k"], over="scope"), [(0, (0, 0), row), (1, (0, 2), row), (1, (1, 0), row)])
    assert [time for time, _ in sent] == [(0, 2)]


def test_errors_say_what_to_do() -> None:
    with pytest.raises(GraphError, match="outer"):
        ColumnJoin(["k"], "outer")  # type: ignore[arg-type]
    with pytest.raises(OperatorError, match="no key column 'k'; this batch has 'x'"):
        feed(ColumnJoin(["k"]), [(0, (0,), pl.DataFrame({"x": [1]}))])
    with pytest.raises(OperatorError, match="name them"):
        feed(ColumnJoin(["k"], "left", "time"), [(0, (0,), pl.DataFrame({"k": [1]}))])
    different = [(0, (0,), pl.DataFrame({"k": [1]})), (1, (0,), pl.DataFrame({"k": ["a"]}))]
    with pytest.raises(OperatorError, match="under test"):
        feed(ColumnJoin(["k"]), different)


@pytest.mark.parametrize("kind", [pl.Float64, pl.Float32])
@pytest.mark.parametrize("over", ["time", "scope"])
@pytest.mark.parametrize("size", [1, 5000])
def test_nan_meets_nan_and_zeros_meet(kind: Any, over: Any, size: int) -> None:
    nan = float("nan")
    left = pl.DataFrame({"k": [nan, -0.0, None], "l": [1, 2, 3]}, schema_overrides={"k": kind})
    right = pl.DataFrame({"k": [nan, 0.0, None] + [7.5] * size, "r": range(size + 3)}, schema_overrides={"k": kind})
    [(_, joined)] = feed(ColumnJoin(["k"], over=over), [(0, (0,), left), (1, (0,), right)])
    assert sorted(joined.select("l", "r").rows()) == [(1, 0), (2, 1)]


def test_no_way_to_say_a_join_gives_another_answer() -> None:
    """A running left join is refused where it is written: it would take rows back; the default is one for all verbs."""
    flow = Dataflow()
    left, right = flow.input("left").to_columns(), flow.input("right").to_columns()
    for build, why in (
        (lambda: left.join(right, on="k", how="left"), "take back its nulls"),
        (lambda: left.join(right, on="k", how="lookup", over="time"), "within a time it is how='left'"),
        (lambda: left.join(right, on="k", how="anti"), "an anti join that runs on would have to take back rows"),
        (lambda: left.join(right, on="k", how="outer"), "how='lookup', not 'outer'"),  # type: ignore[arg-type]
        (lambda: left.join(right, on=[]), "takes names of columns"),
        (lambda: left.join(right, on="k", changes=True), "others take nothing back"),
        (lambda: left.join(right, on="k", how="left", over="time", changes=True), "others take nothing back"),
        (lambda: left.join(right, on="k", how="anti", changes=True).distinct("k"), "cannot take back rows"),
        (
            lambda: left.join(right, on="k", how="anti", changes=True).agg(m=pl.col("k").median()),
            "out of which rows can be taken",
        ),
        (lambda: left.join_asof(right, on="k", strategy="last"), "join_asof has strategy='backward'"),  # type: ignore[arg-type]
        (lambda: left.join_asof(right, on=["k"]), "takes names of columns"),  # type: ignore[arg-type]
        (lambda: left.join_interval(right, "at", 5, 2), "two bounds of one kind, lower <= upper, not 5 and 2"),
        (lambda: left.join_interval(right, "at", 0, 2, by=[3]), "takes names of columns"),  # type: ignore[list-item]
    ):
        with pytest.raises(GraphError, match=rf"test_column_join\.py:\d+: .*{why}"):
            build()
    schema = {"k": pl.String, "r": pl.Int64}
    left.join(right, on="k").capture("inner rows")
    left.join(right, on="k", how="left", over="time", right=schema).capture("left rows")
    left.join(right, on="k", how="lookup", right=schema).capture("lookup rows")
    with Session(flow) as session:
        for epoch, (mine, theirs) in enumerate([(["a"], []), ([], [("a", 1)]), (["a"], [])]):
            if mine:
                session.input("left").send(pl.DataFrame({"k": mine}))
            if theirs:
                session.input("right").send(pl.DataFrame(theirs, schema=schema, orient="row"))
            for name in ("left", "right"):
                session.input(name).advance_to(epoch + 1)
        session.input("left").close()
        session.input("right").close()
        session.run()
        found = {
            name: [(time[0], row) for time, frame in session.captured(f"{name} rows") for row in frame.rows()]
            for name in ("inner", "left", "lookup")
        }
    assert found == {
        "inner": [(1, ("a", 1)), (2, ("a", 1))],
        "left": [(0, ("a", None)), (2, ("a", None))],
        "lookup": [(0, ("a", None)), (2, ("a", 1))],
    }
