"""The state of windows: checkpoints, shards, and the cost of windows that stay open."""

from __future__ import annotations

from itertools import pairwise
from operator import add
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import calls
from timely.data.codec import decode, encode
from timely.dataflow.windows import Session, Sliding, Tumbling
from timely.operators.windows import (
    EventWindows,
    OpenWindows,
    WindowAggregate,
    collecting,
    counting,
    parts_of,
    reducing,
)
from timely.time import INF, Frontier, Time, visible

END = visible((INF,))

shapes = st.one_of(
    st.builds(Tumbling, st.integers(1, 8)),
    st.integers(1, 8).flatmap(lambda n: st.builds(Sliding, st.just(n), st.integers(1, n))),
    st.builds(Session, st.integers(1, 6)),
)


class Recording:
    """A context that keeps what an operator sends."""

    name, site = "windows", "here.py:1"

    def __init__(self) -> None:
        self.time: Time = ()
        self.sent: list[tuple[Time, Any]] = []

    def send(self, batch: Any, port: int = 0) -> None:
        self.sent += [(self.time, record) for record in batch]

    def notify_at(self, time: Time | None = None) -> None:
        """The test delivers every notification itself."""


def epoch_of(operator: EventWindows, time: Time, records: list[Any], mark: int | None) -> list[tuple[Time, Any]]:
    ctx: Any = Recording()
    ctx.time = time
    if records:
        operator.on_batch(ctx, 0, time, records)
    if mark is not None:
        operator.on_batch(ctx, 1, time, [mark])
    operator.on_notify(ctx, time)
    return sorted(ctx.sent, key=repr)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 9)), max_size=8), max_size=6),
    shapes,
    st.integers(0, 5),
    st.sampled_from(["restore", "keep"]),
)
def test_windows_go_on_from_a_checkpoint_as_if_nothing_had_happened(
    epochs: list[list[Any]], shape: Any, cut: int, how: str
) -> None:
    marks = [min(10 * epoch, 60) for epoch in range(len(epochs))]
    epochs = [[x for x in batch if x[1] >= (marks[e - 1] if e else 0)] for e, batch in enumerate(epochs)]
    steps = [((epoch,), batch, marks[epoch]) for epoch, batch in enumerate(epochs)] + [(END, [], None)]
    cut = min(cut, len(epochs))
    frontier = Frontier.before([(cut,)])

    whole = EventWindows(shape, collecting())
    expected = [epoch_of(whole, *step) for step in steps]

    first = EventWindows(shape, collecting())
    upto = len(steps) if how == "keep" else cut
    assert [epoch_of(first, *step) for step in steps[:upto]] == expected[:upto]
    assert first.state is not None
    if how == "restore":
        runs = first.state.snapshot(frontier, Frontier.empty(1))
        carried = [(run.time, decode(encode(run.batch)), run.part) for run in runs]
        assert [run.batch for run in runs] == [batch for _, batch, _ in carried]
        first = EventWindows(shape, collecting())
        assert first.state is not None
        first.state.restore(runs)
    else:
        first.state.keep(frontier)
    assert [epoch_of(first, *step) for step in steps[cut:]] == expected[cut:]


@given(
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(st.sampled_from(["a", "b", 1.0, float("nan")]), st.integers(0, 40), st.integers(-9, 9)),
                max_size=8,
            ),
            st.lists(st.integers(0, 3), max_size=3),
            st.integers(0, 40),
        ),
        max_size=6,
    ),
    shapes,
    st.sampled_from([(counting(), len), (reducing(add), sum), (reducing(max), max)]),
)
def test_records_may_be_combined_before_they_travel(
    epochs: list[tuple[list[Any], list[int], int]], shape: Any, aggregate: tuple[WindowAggregate, Any]
) -> None:
    """In whatever pieces, which other workers read from bytes; late ones, too, which are for windows that have not closed."""
    parts = parts_of(shape, aggregate[0])
    assert parts_of(shape, collecting()) is None
    if parts is None:
        assert isinstance(shape, Session)
        return
    whole, pieces = EventWindows(shape, collecting()), EventWindows(shape, aggregate[0])
    mark = -1
    for number, (records, cuts, upto) in enumerate(epochs):
        mark = max(mark, upto)
        ctx: Any = Recording()
        ctx.time = (number,)
        bounds = sorted({0, *(min(cut, len(records)) for cut in cuts), len(records)})
        for first, last in pairwise(bounds):
            piece = records[first:last]
            combined = parts(piece)
            assert len({(repr(key), start) for key, start, _, _ in combined}) == len(combined)
            pieces.on_batch(ctx, 0, ctx.time, decode(encode(combined)) if first % 2 == 0 else piece)
        pieces.on_batch(ctx, 1, ctx.time, [mark])
        pieces.on_notify(ctx, ctx.time)
        expected = [
            (at, (slot, aggregate[1](values))) for at, (slot, values) in epoch_of(whole, ctx.time, records, mark)
        ]
        assert sorted(ctx.sent, key=repr) == sorted(expected, key=repr)


def test_an_open_window_is_kept_in_the_shard_of_its_key() -> None:
    from timely.data.routing import shard_of, stable_hash

    state = OpenWindows()
    for start in range(20):
        state.put(("key", start), start + 1, "")
    state.commit((0,))
    (run,) = state.snapshot(Frontier.top(1), Frontier.empty(1))
    assert {record[0] for record in run.batch} == {shard_of(stable_hash("key"))}


def test_closed_windows_leave_nothing_behind() -> None:
    operator = EventWindows(Tumbling(10), counting())
    assert operator.state is not None
    for epoch in range(5):
        epoch_of(operator, (epoch,), [("a", 10 * epoch, 0)], 10 * epoch)
        operator.state.compact(Frontier.lexicographic((epoch,)))
    assert operator.state.size().rows == 1
    epoch_of(operator, END, [], None)
    operator.state.compact(Frontier.top(1))
    assert operator.state.size().rows == 0


@pytest.mark.parametrize("shape", [Tumbling(10), Session(10)], ids=repr)
def test_an_epoch_costs_its_records_and_not_the_windows_that_are_open(shape: Any) -> None:
    def calls_of_an_epoch(opened: int) -> int:
        operator = EventWindows(shape, counting())
        epoch_of(operator, (0,), [("a", 10 * number, 0) for number in range(10, opened)], 5)
        assert operator.state is not None
        operator.state.compact(Frontier.lexicographic((0,)))
        return calls(lambda: epoch_of(operator, (1,), [("a", 55, 0), ("b", 52, 0)], 80))

    assert calls_of_an_epoch(10_000) <= calls_of_an_epoch(100) + 20  # The heap of ends is a little deeper.


def test_an_aggregate_of_collected_values_copies_each_only_a_few_times() -> None:
    aggregate: WindowAggregate = collecting()
    chunks = aggregate.add(aggregate.add(_absent(), [(0, 0)]), [(1, 1)])
    for number in range(2, 1000):
        chunks = aggregate.add(chunks, [(number, number)])
    assert len(chunks) <= 11
    assert aggregate.finish(chunks) == list(range(1000))


def _absent() -> Any:
    from timely.data.absent import ABSENT

    return ABSENT
