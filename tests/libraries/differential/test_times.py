"""Changes whose times are not ordered: what they do together is seen where they meet, and nowhere before."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from libraries import differential
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential import Collection, joins, operators, reducers
from libraries.differential import trace as trace_module
from libraries.differential.rows import NOTHING, as_pairs, rows_of, summed
from libraries.differential.trace import Trace
from runtime.session.session import Session
from tests.libraries.differential.histories import path
from tests.timely.operators.fake_context import FakeContext
from timely.time import Frontier, Time

__all__ = ["path"]


def in_scope(build: Any, events: list[tuple[str, Time, list[tuple[Any, int]]]]) -> dict[Time, dict[Any, int]]:
    """The output of a program in scopes as deep as the times of `events`, at each time, fed by hand in this order.

    `events` name the inputs "a" and "b"; each is told that nothing more comes before the next time of its own.
    """
    flow = Dataflow()
    scope = None
    for _ in events[0][1][1:]:
        scope = flow.scope(parent=scope)
    inputs = [differential.from_changes(flow.input(name, scope)) for name in ("a", "b")]
    out = build(*inputs).changes().capture("out")
    with Session(flow) as session:
        for name, time, changes in events:
            node = session.plan.graph.node_named(name).index
            session.worker.feed(node, time, changes)
        for name in ("a", "b"):
            session.input(name).close()
        session.run()
        found: dict[Time, dict[Any, int]] = {}
        for time, batch in session.captured(out):
            found.setdefault(time, {}).update(dict(batch))
        return found


def test_a_change_at_1_0_and_one_at_0_3_make_work_at_1_3(path: int) -> None:
    found = in_scope(lambda a, b: a.min().concat(b), [("a", (1, 0), [(("k", 5), 1)]), ("a", (0, 3), [(("k", 3), 1)])])
    assert found == {(1, 0): {("k", 5): 1}, (0, 3): {("k", 3): 1}, (1, 3): {("k", 5): -1}}


def test_a_join_of_a_change_at_1_0_with_one_at_0_3_is_at_1_3(path: int) -> None:
    found = in_scope(lambda a, b: a.join(b), [("a", (1, 0), [(("k", 5), 1)]), ("b", (0, 3), [(("k", 3), 1)])])
    assert found == {(1, 3): {("k", (5, 3)): 1}}


THREE = [("a", (0, 0, 5), [(("k", 5), 1)]), ("a", (0, 1, 0), [(("k", 7), 1)]), ("a", (1, 0, 2), [(("k", 3), 1)])]
"""In the order of time by which they are told, each is before the next; but no two of them are ordered."""


def test_of_three_coordinates_what_is_first_in_their_total_order_is_not_seen_where_it_is_not_before(path: int) -> None:
    """As in strongly connected components: the prefix of (0, 1, 0) in the total order has (0, 0, 5), what is ≤ it has not."""
    assert in_scope(lambda a, b: a.min().concat(b), THREE) == {
        (0, 0, 5): {("k", 5): 1},
        (0, 1, 0): {("k", 7): 1},
        (0, 1, 5): {("k", 7): -1},
        (1, 0, 2): {("k", 3): 1},
        (1, 0, 5): {("k", 5): -1},
        (1, 1, 2): {("k", 7): -1},
        (1, 1, 5): {("k", 7): 1},
    }


def test_a_join_at_three_coordinates_is_where_both_are_there(path: int) -> None:
    events = [THREE[0], ("b", (0, 1, 0), [(("k", "x"), 1)]), ("b", (1, 0, 2), [(("k", "y"), 1)])]
    assert in_scope(lambda a, b: a.join(b), events) == {
        (0, 1, 5): {("k", (5, "x")): 1},
        (1, 0, 5): {("k", (5, "y")): 1},
    }


def test_neither_of_two_changes_makes_anything_and_both_do(path: int) -> None:
    """f(a) = f(b) = 0, f(a + b) ≠ 0."""
    found = in_scope(
        lambda a, b: a.threshold(lambda n: int(n >= 2)).concat(b),
        [("a", (1, 0), [("k", 1)]), ("a", (0, 3), [("k", 1)])],
    )
    assert found == {(1, 3): {"k": 1}}


@pytest.mark.parametrize("early", [True, False])
def test_three_changes_of_which_any_two_make_nothing(path: int, early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work at the time at which all three meet is found although there is none where two of them do."""
    monkeypatch.setattr(reducers.Threshold, "early", early)
    times = [(2, 0), (1, 1), (0, 2)]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)):
        found = in_scope(
            lambda a, b: a.threshold(lambda n: int(n >= 3)).concat(b), [("a", times[i], [("k", 1)]) for i in order]
        )
        assert found == {(2, 2): {"k": 1}}


def test_work_is_found_for_what_came_not_for_what_is_left_of_it(path: int) -> None:
    """A removal at (1, 0) takes away all that is there; (0, 3) still meets it at (1, 3)."""
    found = in_scope(
        lambda a, b: a.count().concat(b),
        [("a", (0, 0), [("k", 1)]), ("a", (0, 3), [("k", 1)]), ("a", (1, 0), [("k", -1)])],
    )
    assert found == {
        (0, 0): {("k", 1): 1},
        (0, 3): {("k", 1): -1, ("k", 2): 1},
        (1, 0): {("k", 1): -1},
        (1, 3): {("k", 1): 2, ("k", 2): -1},
    }


def test_a_join_sees_what_is_on_its_way_though_what_it_keeps_looks_empty(path: int) -> None:
    found = in_scope(
        lambda a, b: a.join(b, lambda k, x, y: (x, y)),
        [
            ("b", (0, 0), [(("k", 1), 1)]),
            ("b", (1, 0), [(("k", 1), -1)]),
            ("a", (0, 2), [(("k", 7), 1)]),
        ],
    )
    assert found == {(0, 2): {(7, 1): 1}, (1, 2): {(7, 1): -1}}


def test_a_loop_is_left_with_nothing_pending(path: int) -> None:
    """Nothing is left to be done, and no key is kept for a time that is over."""
    flow = Dataflow()
    edges = differential.input_of(flow, "edges")
    nodes = edges.map_pairs(lambda a, b: (a, a)).distinct()
    edges.iterate(lambda inner: inner.semijoin(nodes).distinct(), limit=50).capture("out")
    with Session(flow) as session:
        given = differential.Input(session, "edges")
        for epoch in range(6):
            given.insert((epoch % 3, epoch))
            if epoch > 2:
                given.remove((epoch % 3, epoch - 3))
            given.advance_to(epoch + 1)
        given.close()
        session.run()
        assert session.worker.pending() == []
        kept = [
            part.size().rows
            for runtime in session.worker.runtimes
            for part in getattr(runtime.operator.state, "parts", ())
            if type(part).__name__ in ("Pending", "TimedBatches")
        ]
        assert len(kept) >= 4
        assert not any(kept)


def test_a_long_history_of_one_key_is_not_read_again_and_again() -> None:
    """A value that changes in every epoch: what is kept of it does not grow, and neither does what is read."""
    flow = Dataflow()
    differential.input_of(flow, "values").max().capture("out")
    with Session(flow) as session:
        given = differential.Input(session, "values")
        (reduce,) = (r.operator for r in session.worker.runtimes if isinstance(r.operator, operators.Reduce))
        most = 0
        for epoch in range(2_000):
            given.upsert("key", epoch)
            given.advance_to(epoch + 1)
            session.step()
            (key,) = reduce.values.codes(["key"], (epoch,)).tolist()
            most = max(most, *(len(each.changes(key)) for each in reduce.traces))
        given.close()
        session.run()
    assert most < 50


def test_large_runs_merge_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No push merges much more than a few times what it brings; in the end there are few runs, and all is in them."""
    merged: list[int] = []

    def counted(columns: Any, diff: Any, runs: bool = False) -> Any:
        merged.append(len(diff))
        return summed(columns, diff, runs)

    monkeypatch.setattr(trace_module, "_SOME", 0)
    monkeypatch.setattr(trace_module, "_AT_ONCE", 200)
    monkeypatch.setattr(trace_module, "summed", counted)
    trace, rng = Trace(), np.random.default_rng(7)
    most, there = 0, Counter[tuple[int, int]]()
    for epoch in range(150):
        (key, value), diff = summed([rng.integers(0, 500, 40), rng.integers(0, 3, 40)], np.ones(40, np.int64))
        there.update(dict(zip(zip(key.tolist(), value.tolist(), strict=True), diff.tolist(), strict=True)))
        merged.clear()
        trace.add(key, value, (epoch,), diff)
        trace.compact(Frontier.before([(epoch + 1,)]))
        most = max(most, sum(merged))
    assert 500 < most <= 1500 < len(there) + 500
    assert trace.size().runs <= 9
    history = trace.history(np.arange(500))
    found: Counter[tuple[int, int]] = Counter()
    for of, one, by in zip(history.key.tolist(), history.value.tolist(), history.diff.tolist(), strict=True):
        found[of, one] += by
    assert found == there


def test_values_and_changes_that_are_gone_take_no_room() -> None:
    """Texts that come and go: what is kept is flat."""
    flow = Dataflow()
    texts = differential.input_of(flow, "texts")
    texts.count().join(texts.max()).capture("out")
    with Session(flow) as session:
        given = differential.Input(session, "texts")
        sizes = []
        for epoch in range(60):
            for n in range(300):
                given.insert((f"{epoch}-{n}", f"value {epoch}"))
                if epoch:
                    given.remove((f"{epoch - 1}-{n}", f"value {epoch - 1}"))
            given.advance_to(epoch + 1)
            session.step()
            sizes.append(max(r.operator.state.size().rows for r in session.worker.runtimes if r.operator.state))
        given.close()
        session.run()
    assert max(sizes[30:]) <= 1.1 * max(sizes[:30])
    assert max(sizes) < 30_000


def test_compaction_keeps_each_sum_that_can_still_be_asked_for(path: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many changes at times of two coordinates; merged and compacted, they come to the same at every later time."""
    monkeypatch.setattr(trace_module, "_AT_ONCE", 1 << 20)
    trace = Trace()
    entries = [(k % 3, (k * 7) % 4, (k % 5, (k * 3) % 6), 1 - 2 * (k % 2)) for k in range(400)]
    for key, value, time, diff in entries:
        trace.add_one(key, value, time, diff)
    frontier = Frontier.before([(5, 2), (6, 0)])
    trace.compact(frontier)
    key, value, _, diff = entries[0]
    for _ in range(3):  # so that runs merge
        rows = rows_of([key], [value], [diff])
        trace.add(rows.key, rows.value, (5, 2), rows.diff)
        entries.append((key, value, (5, 2), diff))
        trace.history(rows.key)
    asked = [(5, i) for i in range(2, 8)] + [(6, i) for i in range(8)] + [(9, 9)]
    for time in asked:
        want: dict[tuple[int, int], int] = {}
        for key, value, at, by in entries:
            if all(a <= b for a, b in zip(at, time, strict=True)):
                want[key, value] = want.get((key, value), 0) + by
        got: dict[tuple[int, int], int] = {}
        for key in range(3):
            for value, at, by in trace.changes(key):
                if all(a <= b for a, b in zip(at, time, strict=True)):
                    got[key, value] = got.get((key, value), 0) + by
        assert {k: n for k, n in want.items() if n} == {k: n for k, n in got.items() if n}
    assert len(trace) < 100


def test_what_is_rolled_back_leaves_what_was_saved_and_nothing_else() -> None:
    trace = Trace()
    for k in range(300):
        trace.add_one(k % 7, k, (k % 10, 0), 1)
    upto = Frontier.lexicographic((4, 9))
    saved = trace.snapshot(upto, Frontier.empty(2))
    trace.keep(upto)
    other = Trace()
    other.restore(saved)
    for key in range(7):
        want = sorted((k, (k % 10, 0), 1) for k in range(300) if k % 7 == key and k % 10 <= 4)
        assert sorted(trace.changes(key)) == want
        assert sorted(other.changes(key)) == want
    more = trace.snapshot(Frontier.top(2), upto)
    assert more == []


def test_a_stream_of_changes_is_a_stream(path: int) -> None:
    flow = Dataflow()
    changes = differential.input_of(flow, "a").distinct().changes()
    assert isinstance(changes, Stream)
    assert isinstance(differential.from_changes(changes), Collection)
    assert NOTHING < -(1 << 62)


@pytest.mark.parametrize("how", ["restored", "rolled back"])
def test_work_that_waits_for_a_later_time_outlives_a_checkpoint(path: int, how: str) -> None:
    """At (1, 0) it was found that there is work at (1, 3), and then all of iteration 1 and what follows was lost."""
    for make, ports, want in (
        (lambda: operators.Reduce(reducers.Extreme(False)), (0, 0), [(("k", 5), -1)]),
        (lambda: joins.Join(lambda key, a, b: (a, b), False), (0, 1), [((3, 5), 1)]),
    ):
        operator: Any = make()
        ctx: Any = FakeContext()
        for port, time, value in ((ports[0], (0, 3), 3), (ports[1], (1, 0), 5)):
            ctx.time = time
            operator.on_batch(ctx, port, time, [(("k", value), 1)])
            operator.on_notify(ctx, time)
        assert (1, 3) in ctx.asked
        upto = Frontier.lexicographic((1, 0))
        saved = operator.state.snapshot(upto, Frontier.empty(2))
        if how == "restored":
            operator = make()
            operator.state.restore(saved)
        else:
            ctx.time = (1, 3)
            operator.on_notify(ctx, (1, 3))
            operator.state.keep(upto)
        ctx.time, ctx.sent = (1, 3), []
        operator.on_notify(ctx, (1, 3))
        assert [(time, as_pairs(batch)) for time, batch in ctx.sent] == [((1, 3), want)]


@pytest.mark.parametrize("first", [(0, 3), (1, 0)])
def test_work_is_left_out_only_for_what_no_rollback_can_part(first: Time) -> None:
    """A greater value at (1, 0) and at (0, 3) leaves the least one at (1, 3) as it is.

    If (0, 3) comes last, (1, 0) may be rolled back without it, and come again as something else: then there may be work.
    """
    operator = operators.Reduce(reducers.Extreme(False))
    ctx: Any = FakeContext()
    for time in ((0, 0), first, (1, 0) if first == (0, 3) else (0, 3)):
        ctx.time = time
        operator.on_batch(ctx, 0, time, [(("k", 10 * time[0] + time[1]), 1)])
        operator.on_notify(ctx, time)
    assert ctx.sent == [((0, 0), [(("k", 0), 1)])]
    assert ((1, 3) in ctx.asked) == (first == (1, 0))
