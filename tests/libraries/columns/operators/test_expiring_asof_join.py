"""As-of joins with a time to live: what they give is what Polars gives on all rows, and what they keep stays small."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from libraries.columns.operators.joins.asof import ExpiringAsofJoin
from tests.timely.operators.fake_context import FakeContext
from timely.data.codec.hashing import stable_hash
from timely.time import Frontier

STRATEGIES = ["backward", "forward", "nearest"]
ONE_HASH = ["plumless", "buckeroo"]
"""Texts of one length with one CRC-32: their hashes are equal."""
UNITS = {"number": None, "day": pl.Date(), **{unit: pl.Datetime(unit) for unit in ("ms", "us", "ns")}}  # type: ignore[arg-type]

REST = [pytest.param(*each, marks=pytest.mark.check) for each in ((0, None), (0, 3), (0, "3s"), (10, 3), (10, "3s"))]

rows = st.lists(st.tuples(st.none() | st.sampled_from([*ONE_HASH, "c"]), st.integers(-5, 20)), max_size=5)
sides = st.lists(st.tuples(rows, rows), min_size=1, max_size=9)


def frame(data: list[Any], name: str, epoch: int, kind: Any) -> pl.DataFrame:
    """Rows with a number of their own, and event times, in seconds or days where they are instants."""
    numbered = [(k, at, 10 * epoch + number) for number, (k, at) in enumerate(data)]
    made = pl.DataFrame(numbered, {"k": pl.String, "at": pl.Int64, name: pl.Int64}, orient="row")
    if kind is None:
        return made
    return made.with_columns(pl.from_epoch("at", "d" if kind == pl.Date else "s").cast(kind))


def in_number(mark: int, kind: Any) -> int:
    """A watermark as it comes: instants are in microseconds."""
    return mark if kind is None else mark * 1_000_000 * (86_400 if kind == pl.Date else 1)


def length_of(number: int | None, kind: Any) -> Any:
    if number is None or kind is None:
        return number
    return dt.timedelta(days=number) if kind == pl.Date else dt.timedelta(seconds=number)


class Driven:
    """The operator, epoch by epoch, with a low-watermark that follows."""

    def __init__(self, made: Any, lag: int) -> None:
        self.made, self.lag = made, lag
        self.operator: ExpiringAsofJoin = made()
        self.low = 0

    def epoch(self, epoch: int, left: pl.DataFrame, right: pl.DataFrame, mark: int | None) -> list[Any]:
        ctx: Any = FakeContext()
        ctx.time = (epoch,)
        for port, batch in enumerate((left, right, [] if mark is None else [mark])):
            if len(batch):
                self.operator.on_batch(ctx, port, (epoch,), batch)
        for time in ctx.asked:
            self.operator.on_notify(ctx, time)
        self.low = max(self.low, epoch + 1 - self.lag)
        self.operator.on_watermark(Frontier.before([(self.low,)]))
        return [row for _, found in ctx.sent for row in found.rows()]

    def go_back(self, epoch: int, saved: bool) -> None:
        """To before `epoch`, in place or by what was saved."""
        f, state = Frontier.before([(epoch,)]), self.operator.state
        assert state is not None
        if saved:
            runs = state.snapshot(f, Frontier.empty(1))
            self.operator = self.made()
            assert self.operator.state is not None
            self.operator.state.restore(runs)
        else:
            state.keep(f)
            self.operator._reached = []


@settings(max_examples=settings.default.max_examples * 2)
@given(
    fed=sides,
    by=st.sampled_from([(), ("k",)]),
    strategy=st.sampled_from(STRATEGIES),
    tolerance=st.none() | st.integers(0, 6),
    kind=st.sampled_from(list(UNITS.values())),
    allowed=st.integers(0, 4),
    lag=st.integers(0, 3),
    back=st.none() | st.tuples(st.integers(0, 8), st.integers(0, 3), st.booleans()),
)
@example(  # the row that the left one of epoch 1 finds is followed by one of epoch 2, which is taken back
    fed=[([("c", 10)], [("c", at) for at in range(4)]), ([("c", 5)], []), ([("c", 5)], [("c", 4), ("c", 4), ("c", 5)])],
    by=("k",),
    strategy="backward",
    tolerance=None,
    kind=None,
    allowed=5,
    lag=2,
    back=(3, 2, False),
)
@example(  # two at one place, in another order than that of their content
    fed=[([(None, 0)], [("plumless", 0), (None, 0)])],
    by=(),
    strategy="backward",
    tolerance=None,
    kind=None,
    allowed=0,
    lag=0,
    back=None,
)
def test_rows_on_time_find_what_polars_finds_among_all_rows(
    fed: Any, by: Any, strategy: Any, tolerance: Any, kind: Any, allowed: int, lag: int, back: Any
) -> None:
    """Also when the operator goes back, as far as nothing is settled, in place or to what was saved.

    Of right rows of one time at one place, Polars is given the order of their content: it is as good as any that they come in.
    """
    within = length_of(tolerance, kind)
    schema = dict(frame([], "r", 0, kind).schema)
    driven = Driven(lambda: ExpiringAsofJoin("at", by, strategy, within, schema), lag)
    marks: list[int | None] = [None]
    for left, _ in fed:
        reached = max((at for _, at in left), default=None)
        before = marks[-1]
        now = before if reached is None else reached - allowed
        marks.append(now if before is None else max(before, before if now is None else now))
    lefts, rights, in_order = [], [], []
    for epoch, (left, right) in enumerate(fed):
        bound = marks[epoch]
        lefts.append(frame([row for row in left if bound is None or row[1] >= bound], "l", epoch, kind))
        rights.append(frame(right, "r", epoch, kind))
        in_order.append(rights[-1].sort("k", "r"))
    epoch = 0
    while epoch < len(fed):
        moved = marks[epoch + 1] if marks[epoch + 1] != marks[epoch] else None
        mark = None if moved is None else in_number(moved, kind)
        found = driven.epoch(epoch, lefts[epoch], rights[epoch], mark)
        known = pl.concat(in_order[: epoch + 1]).sort("at", maintain_order=True)
        mine = lefts[epoch].sort("at", maintain_order=True)
        right_ = mine.join_asof(
            known, on="at", by=by or None, strategy=strategy, tolerance=within, check_sortedness=False
        )
        assert found == right_.rows()
        epoch += 1
        if back is not None and epoch == back[0]:
            epoch = max(driven.low, epoch - back[1])
            driven.go_back(epoch, saved=back[2])
            back = None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("lag", "tolerance"), [(10, None), *REST])
def test_what_is_kept_does_not_grow(strategy: Any, lag: int, tolerance: Any) -> None:
    """Two keys have rows in each epoch, two of one hash in one each."""
    assert len({stable_hash(text) for text in ONE_HASH}) == 1
    kind = None if tolerance != "3s" else pl.Datetime("ms")
    driven = Driven(lambda: ExpiringAsofJoin("at", ["k"], strategy, tolerance), lag)
    held = []
    for epoch in range(400):
        right = [*((key, epoch) for key in [*ONE_HASH, "c", "c"]), (f"once {epoch % 5}", 0)]
        driven.epoch(
            epoch, frame([("c", epoch)], "l", epoch, kind), frame(right, "r", epoch, kind), in_number(epoch, kind)
        )
        assert driven.operator.state is not None
        held.append(driven.operator.state.size().rows)
        if epoch in (150, 250):
            driven.go_back(epoch + 1, saved=epoch == 150)
    open_epochs = lag + 1 + (3 if tolerance is not None and strategy != "forward" else 0)
    # As many again that are not dropped yet, and those of a key in pieces of two lengths.
    assert max(held) <= 2 * 2 * 5 * (open_epochs + 2)
    assert max(held[300:]) <= max(held[:150])


@pytest.mark.parametrize(
    ("strategy", "tolerance", "kept"),
    [("backward", None, True), ("backward", 5, False), ("forward", None, False), ("nearest", 5, False)],
)
def test_a_key_that_has_gone_quiet_is_forgotten_where_nothing_can_find_it(
    strategy: Any, tolerance: Any, kept: bool
) -> None:
    driven = Driven(lambda: ExpiringAsofJoin("at", ["k"], strategy, tolerance), 0)
    quiet = [(f"quiet {number}", 0) for number in range(300)]
    for epoch in range(50):
        right = quiet if epoch == 0 else [("c", epoch)]
        driven.epoch(epoch, frame([("c", epoch)], "l", epoch, None), frame(right, "r", epoch, None), epoch)
    assert driven.operator.state is not None
    assert (driven.operator.state.size().rows > 250) == kept
