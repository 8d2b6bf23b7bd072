"""As-of joins of columns, against Polars' on all rows that have come."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.timely.operators.fake_context import feed
from timely.errors import OperatorError
from timely.operators.asof_join import AsofJoin
from timely.time import Frontier

rows = st.lists(st.tuples(st.none() | st.sampled_from("ab"), st.integers(-5, 20)), max_size=6)
sides = st.lists(rows, min_size=1, max_size=5)


def frames(side: list[Any], name: str, instants: bool = False) -> list[pl.DataFrame]:
    """One frame a time, every row with a number of its own."""
    numbers = iter(range(1000))
    schema = {"k": pl.String, "at": pl.Int64, name: pl.Int64}
    made = [pl.DataFrame([(k, at, next(numbers)) for k, at in each], schema=schema, orient="row") for each in side]
    return [frame.with_columns(pl.from_epoch("at", "s")) for frame in made] if instants else made


@settings(max_examples=40)
@given(
    l_side=sides,
    r_side=sides,
    by=st.sampled_from([(), ("k",)]),
    strategy=st.sampled_from(["backward", "forward", "nearest"]),
    tolerance=st.none() | st.integers(0, 6),
    over=st.sampled_from(["scope", "time"]),
    instants=st.booleans(),
    cut=st.none() | st.integers(0, 5),
)
def test_each_row_finds_what_polars_finds(
    l_side: Any, r_side: Any, by: Any, strategy: Any, tolerance: Any, over: Any, instants: bool, cut: Any
) -> None:
    """Also by an operator that was restored at some epoch."""
    left, right = frames(l_side, "l", instants), frames(r_side, "r", instants)
    tolerance = dt.timedelta(seconds=tolerance) if instants and tolerance is not None else tolerance
    kind = dict(right[0].schema)

    def new() -> AsofJoin:
        return AsofJoin("at", by, strategy, tolerance, over, kind)

    events: list[Any] = [(0, (t,), f) for t, f in enumerate(left)] + [(1, (t,), f) for t, f in enumerate(right)]
    events = [event for event in events if len(event[2])]
    operator = new()
    if cut is None:
        sent = feed(operator, events)
    else:
        f = Frontier.before([(cut,)])
        sent = feed(operator, [event for event in events if event[1] in f], compact=False)
        restored = new()
        assert operator.state is not None
        assert restored.state is not None
        restored.state.restore(operator.state.snapshot(f, Frontier.empty(1)))
        sent += feed(restored, [event for event in events if event[1] not in f])
    found = {time[0]: frame.rows() for time, frame in sent}
    for t, frame in enumerate(left):
        there = right[: t + 1] if over == "scope" else right[t : t + 1]
        there = [each.sort(each.columns) for each in there]  # of rows at one place the last by content counts
        known = pl.concat([right[0].clear(), *there]).sort("at", maintain_order=True)
        wanted = frame.sort("at", maintain_order=True).join_asof(
            known, on="at", by=by or None, strategy=strategy, tolerance=tolerance, check_sortedness=False
        )
        assert found.get(t, []) == wanted.rows()


@pytest.mark.parametrize("strategy", ["backward", "forward", "nearest"])
def test_keys_of_one_hash_are_told_apart(strategy: Any) -> None:
    """Texts of one length with one CRC-32 have one hash."""
    from timely.data.codec.hashing import stable_hash

    a, b = "plumless", "buckeroo"
    assert stable_hash(a) == stable_hash(b)
    right = pl.DataFrame({"k": [a, b] * 30, "at": range(60), "r": range(60)})
    left = pl.DataFrame({"k": [b, a, a], "at": [20, 21, 59]})
    [(_, found)] = feed(AsofJoin("at", ["k"], strategy), [(1, (0,), right), (0, (0,), left)])
    assert found.rows() == left.join_asof(right, on="at", by="k", strategy=strategy, check_sortedness=False).rows()


def test_errors_say_what_to_do() -> None:
    frame = pl.DataFrame({"at": [1.0, float("nan")], "k": ["a", "b"]})
    with pytest.raises(OperatorError, match="NaN have no place in the order of 'at': filter such rows out"):
        feed(AsofJoin("at"), [(1, (0,), frame)])
    with pytest.raises(OperatorError, match="'k' is String"):
        feed(AsofJoin("k"), [(1, (0,), frame)])
    with pytest.raises(OperatorError, match=r"join_asof\(..., right="):
        feed(AsofJoin("at"), [(0, (0,), frame.head(1))])
