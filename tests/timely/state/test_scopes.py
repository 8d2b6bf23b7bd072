"""States that run on: versions, rollback, checkpoints and compaction, for records and for column totals alike."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.kernels.added import ungrouped
from libraries.columns.kernels.rows import KeyedFrame
from libraries.columns.state import RowsState, TotalsState
from timely.data.batch import as_polars
from timely.data.routing import shard_of, stable_hash
from timely.data.span import Span
from timely.state import KeyedState
from timely.state.interface import without_past
from timely.time import INF, Frontier, Time

Rows = list[tuple[str, int | None]]
PARTS = agg.parts_of({"n": agg.count(), "top": agg.max("v"), "low": agg.min("v"), "s": agg.sum("v")})


def rows_table(rows: Rows) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.string()), "v": pa.array([v for _, v in rows], pa.int64())})


class Keyed:
    """KeyedState under test: rows are written as updates, None removes."""

    def __init__(self) -> None:
        self.state = KeyedState()

    def put(self, time: Time, rows: Rows) -> None:
        self.state.write(time, {k: v for k, v in rows if v is not None})
        self.state.remove(time, [k for k, v in rows if v is None])

    def read(self, outer: Time) -> Any:
        return dict(self.state.read((*outer, 0)))


class Column:
    """TotalsState under test: rows are added up."""

    def __init__(self) -> None:
        self.state = TotalsState(["k"], PARTS)

    def put(self, time: Time, rows: Rows) -> None:
        if rows:
            self.state.add(time, [ungrouped(rows_table(rows), ["k"], PARTS)])

    def read(self, outer: Time) -> Any:
        # The totals of all keys are what a full checkpoint of a copy would hold last.
        totals: dict[str, Any] = {}
        for run in self.state.snapshot(Frontier.top(len(outer) + 1), Frontier.empty(len(outer) + 1)):
            if run.time[:-1] == outer:
                totals.update({row["k"]: row for row in run.batch.to_pylist()})
        return totals


class Rowwise:
    """RowsState under test: rows are kept."""

    def __init__(self) -> None:
        self.state = RowsState(["k"])

    def put(self, time: Time, rows: Rows) -> None:
        if rows:
            self.state.append(time, KeyedFrame(as_polars(rows_table(rows)), ["k"]))

    def read(self, outer: Time) -> Any:
        held = self.state.rows((*outer, INF))
        every = [row for frame, _ in held.between(0, len(held)) for row in frame.rows()]
        met = held.meet(KeyedFrame(pl.DataFrame({"k": list("abcdefz")}), ["k"]), by_row=True)
        assert every == ([] if met is None else pl.DataFrame(met.columns).rows())  # each is found by its key
        return every


class RowsTogether(Rowwise):
    """The same, where rows of several times of a scope are added together."""

    def __init__(self) -> None:
        self._state = RowsState(["k"])
        self._waiting: list[tuple[Time, pl.DataFrame]] = []

    @property
    def state(self) -> RowsState:
        waiting, self._waiting = self._waiting, []
        for _, parts in groupby(waiting, lambda part: part[0][:-1]):
            span = Span.of(list(parts))
            self._state.append(span.times[-1], KeyedFrame(span, ["k"]))
        return self._state

    def put(self, time: Time, rows: Rows) -> None:
        if self._waiting and self._waiting[-1][0][:-1] == time[:-1] and time < self._waiting[-1][0]:
            self.state.append(time, KeyedFrame(as_polars(rows_table(rows)), ["k"]))
        if rows:
            self._waiting.append((time, as_polars(rows_table(rows))))


KINDS: list[Callable[[], Any]] = [Keyed, Column, Rowwise, RowsTogether]
kinds = pytest.mark.parametrize("kind", KINDS)

rows_lists = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(-9, 9)), max_size=5, unique_by=lambda row: row[0]
)
times = st.tuples(st.integers(0, 3), st.integers(0, 5))
histories = st.dictionaries(times, rows_lists, max_size=10).map(lambda d: sorted(d.items()))
frontiers = st.lists(times, max_size=3).map(lambda ts: Frontier.before(ts, 2))
OUTERS = [(e,) for e in range(4)]
EMPTY, FIRST = Frontier.empty(2), Frontier.before([(0, 1)])


def play(kind: Callable[[], Any], history: list[tuple[Time, Rows]]) -> Any:
    subject = kind()
    for time, rows in history:
        subject.put(time, rows)
    return subject


def view(subject: Any, outers: list[Time] = OUTERS) -> list[Any]:
    return [subject.read(outer) for outer in outers]


@kinds
@settings(max_examples=40)
@given(history=histories, more=histories, f=frontiers)
def test_keep_is_as_if_dropped_times_had_never_been(kind: Any, history: Any, more: Any, f: Frontier) -> None:
    inside = [(t, rows) for t, rows in history if t in f]
    later = [(t, rows) for t, rows in more if t not in f]
    subject = play(kind, history)
    subject.state.keep(f)
    assert view(subject) == view(play(kind, inside))
    for time, rows in later:
        subject.put(time, rows)
    assert view(subject) == view(play(kind, inside + later))


@kinds
@settings(max_examples=40)
@given(history=histories, f=frontiers)
def test_without_a_past_a_state_is_one_that_is_compacted_at_once(kind: Any, history: Any, f: Frontier) -> None:
    compacted, subject = kind(), kind()
    assert without_past(subject.state)
    for time, rows in history:
        compacted.put(time, rows)
        compacted.state.compact(Frontier.lexicographic(time))
        subject.put(time, rows)
        if any(rows):
            assert subject.state.size().runs == len(subject.state._scopes)  # what is there, and no change of it
            with pytest.raises(ValueError, match="older versions are gone"):
                subject.state.keep(Frontier.before([(time[0], 0)]))
    for outer in {time[:-1] for time, _ in history}:
        there = compacted.state._scopes.get(outer)
        if there is not None:
            assert subject.read(outer) == compacted.read(outer)
    subject.state.compact(f)
    assert not any((*outer, INF) in f for outer in subject.state._scopes)


@kinds
def test_without_a_past_no_state_is_written_before_what_it_has(kind: Any) -> None:
    subject = kind()
    without_past(subject.state)
    subject.put((0, 3), [("a", 1)])
    with pytest.raises(ValueError, match="was written at"):
        subject.put((0, 2), [("a", 1)])


@kinds
@settings(max_examples=40)
@given(history=histories, f=frontiers)
def test_restored_snapshot_equals_keep(kind: Any, history: Any, f: Frontier) -> None:
    subject, restored = play(kind, history), kind()
    restored.put((0, 0), [("z", 5)])
    restored.state.restore(subject.state.snapshot(f, EMPTY))
    subject.state.keep(f)
    alive = [outer for outer in OUTERS if (*outer, INF) not in f]  # nothing can ask for the others any more
    assert view(restored, alive) == view(subject, alive)


@kinds
@settings(max_examples=40)
@given(history=histories, chain=st.lists(frontiers, max_size=3), compactions=st.lists(st.booleans(), max_size=3))
def test_incremental_snapshots_add_up_to_the_full_one(
    kind: Any, history: Any, chain: list[Frontier], compactions: list[bool]
) -> None:
    steps = sorted((f for f in chain if (3, INF) not in f), key=lambda f: sum(t in f for t, _ in history))
    subject, saved, after = play(kind, history), [], EMPTY
    full = kind()
    last = Frontier.before([(3, INF)])
    full.state.restore(subject.state.snapshot(last, EMPTY))
    for f in [*steps, last]:
        if not all(t in f for t, _ in history if t in after):
            continue
        saved += subject.state.snapshot(f, after)
        after = f
        if compactions and compactions.pop() and f is not last:
            alive = [outer for outer in OUTERS if (*outer, INF) not in f]
            before = view(subject, alive)
            subject.state.compact(f)
            assert view(subject, alive) == before
    restored = kind()
    restored.state.restore(saved)
    assert view(restored, [(3,)]) == view(full, [(3,)])


@kinds
@settings(max_examples=40)
@given(history=histories, ends=st.lists(st.integers(0, 3), max_size=3, unique=True).map(sorted), more=histories)
def test_increments_absorbed_one_by_one_are_as_restored_together(
    kind: Any, history: Any, ends: list[int], more: Any
) -> None:
    subject, absorbed, saved, after = play(kind, history), kind(), [], EMPTY
    for end in ends:
        f = Frontier.before([(end + 1, 0)])
        runs = subject.state.snapshot(f, after)
        for run in runs:
            absorbed.state.absorb([run])
        absorbed.state.compact(f)
        saved, after = saved + runs, f
    restored = kind()
    restored.state.restore(saved)
    alive = [outer for outer in OUTERS if (*outer, INF) not in after]
    assert view(absorbed, alive) == view(restored, alive)
    for each in (absorbed, restored):
        for time, rows in more:
            if time not in after:
                each.put(time, rows)
    assert view(absorbed, alive) == view(restored, alive)


@kinds
@settings(max_examples=40)
@given(history=histories, more=histories, f=frontiers, g=frontiers)
def test_compact_changes_nothing_that_is_readable_beyond_it(
    kind: Any, history: Any, more: Any, f: Frontier, g: Frontier
) -> None:
    beyond = Frontier.before([m for m in g.antichain if m not in f], 2)
    if not all(t in beyond for t, _ in history if t in f):
        return
    alive = [outer for outer in OUTERS if (*outer, INF) not in f]
    plain, compacted = play(kind, history), play(kind, history)
    compacted.state.compact(f)
    assert view(compacted, alive) == view(plain, alive)
    for subject in (plain, compacted):
        subject.state.keep(beyond)
        for time, rows in more:
            if time not in beyond and time not in f:
                subject.put(time, rows)
    assert view(compacted, alive) == view(plain, alive)


@kinds
def test_scopes_that_are_over_are_dropped(kind: Any) -> None:
    subject = play(kind, [((e, i), [("a", i)]) for e in range(3) for i in range(3)])
    subject.state.compact(Frontier.before([(2, 1)]))
    assert view(subject, [(0,), (1,)]) == view(kind(), [(0,), (1,)])
    assert subject.read((2,)) == play(kind, [((2, i), [("a", i)]) for i in range(3)]).read((2,))


@kinds
def test_going_back_behind_compaction_is_refused(kind: Any) -> None:
    subject = play(kind, [((0, i), [("a", i)]) for i in range(8)])
    subject.state.compact(Frontier.before([(0, 6)]))
    with pytest.raises(ValueError, match="compact"):
        subject.state.keep(Frontier.before([(0, 3)]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_in_the_past_is_refused(kind: Any) -> None:
    subject = play(kind, [((0, 5), [("a", 1)])])
    with pytest.raises(ValueError, match="complete"):
        subject.put((0, 3), [("b", 1)])


@kinds
def test_size_falls_to_what_compaction_leaves(kind: Any) -> None:
    subject = play(kind, [((0, i), [("a", i), ("b", i)]) for i in range(50)])
    before = subject.state.size()
    subject.state.compact(Frontier.before([(0, 50)]))
    after = subject.state.size()
    assert before.runs == 50
    assert after.runs <= 6
    assert 2 <= after.rows <= before.rows
    assert after.bytes > 0


def test_snapshot_carries_the_shard_of_each_key() -> None:
    for kind in (Column, Rowwise):
        [run] = play(kind, [((0, 0), [("a", 1), ("b", 2)])]).state.snapshot(FIRST, EMPTY)
        assert run.batch["shard()"].to_pylist() == [shard_of(stable_hash(k)) for k in ("a", "b")]
    [run] = play(Keyed, [((0, 0), [("a", 1)])]).state.snapshot(FIRST, EMPTY)
    assert run.batch == [(shard_of(stable_hash("a")), "a", 1)]


@given(
    st.lists(st.tuples(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.integers(0, 3), st.booleans()), max_size=8)
)
def test_shards_are_those_of_the_keys_also_of_ids_that_were_given_to_others(
    steps: list[tuple[list[str], int, bool]],
) -> None:
    """Keys come, the state is saved or not, and what was added last is taken back."""
    subject, at = Column(), 0
    for keys, back, saved in steps:
        subject.put((0, at), [(key, 1) for key in keys])
        at += 1
        if saved:
            for run in subject.state.snapshot(Frontier.before([(0, at)]), EMPTY):
                assert run.batch["shard()"].to_pylist() == [
                    shard_of(stable_hash(k)) for k in run.batch["k"].to_pylist()
                ]
        if back:
            at = max(0, at - back)
            subject.state.keep(Frontier.before([(0, at)]))
