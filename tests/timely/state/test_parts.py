"""State is saved in pieces while it goes on being written and compacted: what is saved is the state at the frontier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.kernels.added import grouped, ungrouped
from libraries.columns.kernels.parts import Part
from libraries.columns.kernels.rows import KeyedFrame
from libraries.columns.state import ExpiringTotals, RowsState, TotalsState
from timely.state import KeyedState, Parts
from timely.time import Frontier

Rows = list[tuple[str, int]]


class ByKey:
    """KeyedState under test; a negative value removes its key."""

    def __init__(self) -> None:
        self.state = KeyedState()

    def put(self, epoch: int, rows: Rows) -> None:
        self.state.write((epoch,), {key: value for key, value in rows if value >= 0})
        self.state.remove((epoch,), [key for key, value in rows if value < 0])

    def read(self) -> Any:
        return dict(self.state.read((0,)))


PARTS = [Part("sum", "v")]


class Added:
    """TotalsState under test."""

    def __init__(self) -> None:
        self.state = TotalsState(["k"], PARTS)

    def put(self, epoch: int, rows: Rows) -> None:
        table = pa.table({"k": [k for k, _ in rows], "sum(v)": pa.array([v for _, v in rows], pa.int64())})
        self.state.add((epoch,), [grouped(table, ["k"], PARTS)])

    def read(self) -> Any:
        runs = self.state.snapshot(Frontier.top(1), Frontier.empty(1))
        return {row["k"]: row["sum(v)"] for run in runs for row in run.batch.to_pylist()}  # type: ignore[union-attr]


class Expiring:
    """ExpiringTotals under test: a row is given up when as many epochs have passed as its value says."""

    def __init__(self) -> None:
        self.parts = agg.parts_of({"last": agg.max("at"), "sum": agg.sum("v")})
        self.state = ExpiringTotals(["k"], self.parts, "at")
        self.state.few = 2

    def put(self, epoch: int, rows: Rows) -> None:
        table = pa.table({"k": [k for k, _ in rows], "at": [epoch + v for _, v in rows], "v": [v for _, v in rows]})
        self.state.add((epoch,), [ungrouped(table, ["k"], self.parts)])
        self.state.expire((epoch,), epoch)

    def read(self) -> Any:
        runs = self.state.snapshot(Frontier.top(1), Frontier.empty(1))
        totals = {row.pop("k"): row for run in runs for row in run.batch.to_pylist()}  # type: ignore[union-attr]
        there = {key for key, row in totals.items() if row["values(at)"]}
        assert there == set(self.state.totals.index.keys(self.state.all())[0].to_pylist() if there else ())
        return {key: row for key, row in totals.items() if key in there}


class Kept:
    """RowsState under test."""

    def __init__(self) -> None:
        self.state = RowsState(["k"])

    def put(self, epoch: int, rows: Rows) -> None:
        frame = pl.DataFrame({"k": [k for k, _ in rows], "v": [v for _, v in rows]})
        self.state.append((epoch,), KeyedFrame(frame, ["k"]))

    def read(self) -> Any:
        held = self.state.rows((1 << 60,))
        return [row for frame, _ in held.between(0, len(held)) for row in frame.rows()]


rows = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(-2, 9)), min_size=1, max_size=6, unique_by=lambda row: row[0]
)


@pytest.mark.parametrize("kind", [ByKey, Added, Expiring, Kept])
@settings(max_examples=80)
@given(data=st.data(), epochs=st.lists(rows, min_size=2, max_size=9), size=st.integers(1, 5))
def test_pieces_hold_the_state_at_their_frontier(
    kind: Callable[[], Any], data: Any, epochs: list[Rows], size: int
) -> None:
    cut = data.draw(st.integers(1, len(epochs)), "cut")
    before = data.draw(st.integers(0, cut), "the cut before")
    written = data.draw(st.integers(cut, len(epochs)), "epochs written when saving begins")
    compacted = data.draw(st.integers(0, before), "compacted before")
    subject, expected = kind(), kind()
    for epoch in range(written):
        subject.put(epoch, epochs[epoch])
    for epoch in range(cut):
        expected.put(epoch, epochs[epoch])
    if compacted:
        subject.state.compact(Frontier.before([(compacted,)]))
    base = list(subject.state.pieces(Frontier.before([(before,)]), Frontier.empty(1), lambda: size)) if before else []
    saved = []
    for run in subject.state.pieces(Frontier.before([(cut,)]), Frontier.before([(before,)]), lambda: size):
        saved.append(run)
        if written < len(epochs) and data.draw(st.booleans(), "write on"):
            subject.put(written, epochs[written])
            written += 1
        if before and data.draw(st.booleans(), "compact"):
            subject.state.compact(Frontier.before([(before,)]))
    restored = kind()
    restored.state.restore([*base, *saved])
    assert restored.read() == expected.read()


@pytest.mark.parametrize("kind", [ByKey, Added, Expiring])
@settings(max_examples=80)
@given(data=st.data(), epochs=st.lists(rows, min_size=2, max_size=9), size=st.integers(1, 5))
def test_a_whole_state_is_saved_while_it_is_written(
    kind: Callable[[], Any], data: Any, epochs: list[Rows], size: int
) -> None:
    cut = data.draw(st.integers(1, len(epochs)), "cut")
    written = data.draw(st.integers(cut, len(epochs)), "epochs written when saving begins")
    subject, expected = kind(), kind()
    for epoch in range(written):
        subject.put(epoch, epochs[epoch])
    for epoch in range(cut):
        expected.put(epoch, epochs[epoch])
    subject.state.compact(Frontier.before([(data.draw(st.integers(1, cut), "compacted"),)]))
    saved = []
    for run in subject.state.pieces(Frontier.before([(cut,)]), Frontier.empty(1), lambda: size):
        saved.append(run)
        if written < len(epochs) and data.draw(st.booleans(), "write on"):
            subject.put(written, epochs[written])
            written += 1
    restored = kind()
    restored.state.restore(saved)
    assert restored.read() == expected.read()


@pytest.mark.parametrize("changed", [40, 30_000], ids=["sorted", "marked"])
def test_few_or_many_of_many_keys_are_saved_while_they_are_written(changed: int) -> None:
    random = np.random.default_rng(changed)
    keys = 300_000
    state, expected = TotalsState(["k"], PARTS), np.zeros(keys, np.int64)

    def put(epoch: int, ids: npt.NDArray[np.int64]) -> None:
        state.add((epoch,), [grouped(pa.table({"k": ids, "sum(v)": ids + epoch}), ["k"], PARTS)])

    put(0, np.arange(keys))
    base = state.snapshot(Frontier.before([(1,)]), Frontier.empty(1))
    expected += np.arange(keys)
    state.compact(Frontier.before([(1,)]))
    for epoch in (1, 2, 3):
        ids = np.sort(random.choice(keys, changed, replace=False))
        put(epoch, ids)
        if epoch < 3:
            expected[ids] += ids + epoch
    saved, sizes = [], iter([changed // 7, changed // 3] * 100)
    for run in state.pieces(Frontier.before([(3,)]), Frontier.before([(1,)]), lambda: next(sizes)):
        saved.append(run)
        put(3 + len(saved), np.sort(random.choice(keys, changed, replace=False)))
    assert len(saved) > 3
    restored = TotalsState(["k"], PARTS)
    restored.restore([*base, *saved])
    runs = restored.snapshot(Frontier.top(1), Frontier.empty(1))
    table = pa.concat_tables([run.batch for run in runs]).sort_by("k")
    assert np.array_equal(table["sum(v)"].to_numpy(), expected)


def test_pieces_are_small() -> None:
    state = Parts(KeyedState(), KeyedState())
    first = state.parts[0]
    assert isinstance(first, KeyedState)
    for epoch in range(50):
        first.write((epoch,), {f"{epoch}-{i}": i for i in range(20)})
    pieces = list(state.pieces(Frontier.before([(50,)]), Frontier.empty(1), lambda: 100))
    assert sum(len(run.batch) for run in pieces) == 1000
    assert all(len(run.batch) <= 120 for run in pieces)
