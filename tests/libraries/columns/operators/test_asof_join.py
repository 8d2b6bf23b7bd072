"""As-of joins of columns, against Polars' on all rows that have come."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.operators.joins.asof import AsofChanges, AsofJoin
from tests.timely.operators.fake_context import feed
from timely.errors import OperatorError
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
    """Also by an operator that was restored at some epoch. At one place, rows of a time are in the order of their content."""
    left, right = frames(l_side, "l", instants), frames(r_side, "r", instants)
    tolerance = dt.timedelta(seconds=tolerance) if instants and tolerance is not None else tolerance
    kind = dict(right[0].schema)

    def new() -> AsofJoin:
        return AsofJoin("at", by, strategy, tolerance, kind, over=over)

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
        there = [each.sort("at", "k", "r") for each in (right[: t + 1] if over == "scope" else right[t : t + 1])]
        known = pl.concat([right[0].clear(), *there]).sort("at", maintain_order=True)
        wanted = frame.sort("at", maintain_order=True).join_asof(
            known, on="at", by=by or None, strategy=strategy, tolerance=tolerance, check_sortedness=False
        )
        assert found.get(t, []) == wanted.rows()


def added_up(sent: list[Any]) -> list[Counter[Any]]:
    """The rows that there are after each time, of ten."""
    there: Counter[Any] = Counter()
    found = []
    for at in range(10):
        for time, batch in sent:
            if time == (at,):
                for *row, sign in batch.rows():
                    there[tuple(row)] += sign
        assert not -there
        found.append(+there)
    return found


@settings(max_examples=60)
@given(
    l_side=sides,
    r_side=sides,
    by=st.sampled_from([(), ("k",)]),
    strategy=st.sampled_from(["backward", "forward", "nearest"]),
    tolerance=st.none() | st.integers(0, 6),
    kind=st.sampled_from([pl.Int64, pl.Float64, pl.Datetime("us"), pl.Int8]),
    cut=st.integers(0, 5),
)
def test_changes_add_up_to_what_polars_finds_in_all_rows_so_far(
    l_side: Any, r_side: Any, by: Any, strategy: Any, tolerance: Any, kind: Any, cut: int
) -> None:
    """Also by an operator that was restored at some epoch, and by one that went back to it."""
    left, right = (
        [f.with_columns(pl.col("at").cast(kind)) for f in frames(s, n)] for s, n in ((l_side, "l"), (r_side, "r"))
    )
    if tolerance is not None and kind == pl.Datetime("us"):
        tolerance = dt.timedelta(microseconds=tolerance)
    schema = dict(right[0].schema)

    def new() -> AsofChanges:
        return AsofChanges("at", by, strategy, tolerance, schema)

    events: list[Any] = [(0, (t,), f) for t, f in enumerate(left)] + [(1, (t,), f) for t, f in enumerate(right)]
    events = [event for event in events if len(event[2])]
    wanted = []
    for t in range(10):
        there = [each.sort("at", "k", "r") for each in right[: t + 1]]
        known = pl.concat([right[0].clear(), *there]).sort("at", maintain_order=True)
        mine = pl.concat([left[0].clear(), *left[: t + 1]]).sort("at", maintain_order=True)
        found = mine.join_asof(
            known, on="at", by=by or None, strategy=strategy, tolerance=tolerance, check_sortedness=False
        )
        wanted.append(Counter(found.rows()))
    f = Frontier.before([(cut,)])
    first, restored = new(), new()
    sent = feed(first, events, compact=False)
    assert added_up(sent) == wanted
    before = [each for each in sent if each[0] in f]
    assert first.state is not None
    assert restored.state is not None
    restored.state.restore(first.state.snapshot(f, Frontier.empty(1)))
    first.state.keep(f)
    for operator in (first, restored):
        assert added_up(before + feed(operator, [event for event in events if event[1] not in f])) == wanted


@pytest.mark.parametrize("strategy", ["backward", "forward", "nearest"])
def test_changes_tell_keys_of_one_hash_apart(strategy: Any) -> None:
    a, b = "plumless", "buckeroo"
    right = pl.DataFrame({"k": [a, b] * 30, "at": range(60), "r": range(60)}).sample(60, shuffle=True, seed=3)
    left = pl.DataFrame({"k": [b, a, a, b] * 15, "at": range(60)})
    for size in (1, 7, 60):
        events: list[Any] = [(0, (0,), left)]
        events += [(1, (1 + n // size,), right[n : n + size]) for n in range(0, 60, size)]
        operator = AsofChanges("at", ["k"], strategy, None, dict(right.schema))
        there: Counter[Any] = Counter()
        for _, batch in feed(operator, events):
            for *row, sign in batch.rows():
                there[tuple(row)] += sign
        wanted = left.join_asof(right.sort("at"), on="at", by="k", strategy=strategy, check_sortedness=False)
        assert +there == Counter(wanted.rows())


@pytest.mark.parametrize("strategy", ["backward", "forward", "nearest"])
def test_a_right_row_costs_the_left_rows_beside_it(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    nearest = AsofChanges._nearest

    def counted(self: AsofChanges, time: Any, rows: pl.DataFrame) -> pl.DataFrame:
        looked.append(len(rows))
        return nearest(self, time, rows)

    monkeypatch.setattr(AsofChanges, "_nearest", counted)
    left = pl.DataFrame({"at": range(1000)})
    right = pl.DataFrame({"at": range(0, 1000, 10), "r": range(100)})
    late = [pl.DataFrame({"at": [at], "r": [at]}) for at in range(5, 1000, 100)]
    events: list[Any] = [(0, (0,), left), (1, (0,), right), *((1, (1 + n,), each) for n, each in enumerate(late))]
    events += [(1, (20,), right)]
    feed(AsofChanges("at", (), strategy), events)
    assert looked[0] == 1000
    assert max(looked[1:-2]) <= 11
    assert max(looked[-2:]) <= 1000


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
    for kind in (AsofJoin, AsofChanges):
        with pytest.raises(OperatorError, match=r"join_asof\(..., right="):
            feed(kind("at"), [(0, (0,), frame.head(1))])
