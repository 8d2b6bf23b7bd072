"""Arrangements: whatever reads the one trace of a collection finds what it would find in a trace of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries import differential
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential import Collection, joins, operators
from libraries.differential.joins import Join
from libraries.differential.rows import split
from recovery.layout import lay_out
from recovery.policy import Lazy, LogHistory
from runtime.session.session import Session
from tests.libraries.differential.histories import Contents, check
from tests.libraries.differential.test_histories import (
    edges,
    grouped,
    histories,
    joined,
    odd_pairs,
    pairs,
    reachable,
    runs,
    strongly,
)
from timely.dataflow.plan import compile_plan
from timely.errors import GraphError
from timely.io import Iterable

few = settings(max_examples=settings.default.max_examples // 5)


def several(a: Collection, b: Collection) -> Collection:
    """A join, a join with itself, and groups, all of one trace; and a join of two."""
    shared, other = a.arrange(), b.arrange()
    mine = [
        shared.join(other, lambda key, one, two: ("both", key, one, two)),
        shared.join(shared, lambda key, one, two: ("self", key, one, two)),
        shared.count().map(lambda pair: ("count", *pair)),
        shared.distinct().map(lambda pair: ("distinct", *pair)),
        other.reduce(lambda key, group: [len(group)]).map(lambda pair: ("values", *pair)),
    ]
    return mine[0].concat(*mine[1:])


def _several(a: Contents, b: Contents) -> Contents:
    found: Counter[Any] = Counter()
    for (key, (one, two)), times in joined(a, b).items():
        found["both", key, one, two] += times
    for (key, (one, two)), times in joined(a, a).items():
        found["self", key, one, two] += times
    found.update(("count", key, sum(times for _, times in group)) for key, group in grouped(a).items())
    found.update(("distinct", *pair) for pair in a)
    found.update(("values", key, len(group)) for key, group in grouped(b).items())
    return dict(found)


@pytest.mark.parametrize("records", [pairs, odd_pairs], ids=["integers", "anything"])
@few
@given(data=st.data(), **runs)
def test_several_verbs_read_one_trace(records: Any, data: st.DataObject, path: int, workers: int, seed: int) -> None:
    check(several, _several, ["a", "b"], data.draw(histories("ab", records)), path, workers, seed)


def reached(edges: Collection) -> Collection:
    """Nodes that can be reached from node 0, and from node 1: two loops that read one trace from outside."""
    ahead = edges.arrange()

    def of(root: int) -> Collection:
        begin = edges.map_pairs(lambda a, b: a * 0 + root).distinct()
        return begin.iterate(lambda inner: ahead.join(inner, lambda a, b, _: b).concat(begin).distinct())

    return of(0).map(lambda node: (0, node)).concat(of(1).map(lambda node: (1, node)))


def _reached(held: Contents) -> Contents:
    return {(root, node): 1 for root in (0, 1) for node in reachable(held, {root: 1})} if held else {}


def strong(edges: Collection) -> Collection:
    """Edges inside of strongly connected components: traces of a loop that are read in a loop within it."""

    def same(inner: Collection) -> Collection:
        ahead = inner.map_pairs(lambda a, b: (b, a)).arrange()
        own = ahead.map_pairs(lambda a, b: (b, b)).distinct()
        least = own.iterate(
            lambda each: ahead.join(each, lambda a, b, label: (b, label), columns=True).concat(own).min()
        ).arrange()
        begins = ahead.join(least, lambda a, b, label: (b, (a, label)))
        ends = begins.join(least, lambda b, begin, label: (begin[0], b) if begin[1] == label else None)
        return ends.filter(lambda edge: edge is not None)

    return edges.distinct().iterate(lambda inner: same(same(inner)))


@pytest.mark.parametrize(("build", "oracle"), [(reached, _reached), (strong, strongly)], ids=["reach", "strong"])
@few
@given(epochs=histories("e", edges), **runs)
def test_loops_read_a_trace_from_outside(
    build: Any, oracle: Any, epochs: list[Any], path: int, workers: int, seed: int
) -> None:
    check(build, oracle, ["e"], epochs, path, workers, seed)


def kept(flow: Dataflow) -> list[int]:
    """The numbers of changes in the traces that a program keeps when it has been fed the same 40 pairs in 400 epochs."""
    with Session(flow) as session:
        given = differential.Input(session, "a")
        for epoch in range(400):
            given.change((epoch // 2 % 40, 0), 1 - 2 * (epoch % 2))
            given.advance_to(epoch + 1)
            session.step_until(lambda epoch=epoch: not session.step(0))
        return [
            len(trace)
            for runtime in session.worker.runtimes
            if isinstance(runtime.operator, operators.KeyedOperator)
            for trace in runtime.operator.traces
            if isinstance(trace, operators.Trace)
        ]


def test_a_shared_trace_is_kept_once_and_compacted_when_all_readers_are_past_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("libraries.differential.trace._RECENT", 8)
    flow = Dataflow()
    shared = differential.input_of(flow, "a").arrange()
    shared.join(shared).probe()
    shared.max().probe()
    found = kept(flow)
    assert len(found) == 2, "the arrangement's, and the results of max"
    assert max(found) < 40


def test_what_is_in_another_region_keeps_a_trace_of_its_own() -> None:
    flow = Dataflow()
    shared = differential.input_of(flow, "a").arrange()
    with flow.region("there", policy=Lazy(every=2)):
        shared.max(name="there")
    with flow.region("replayed", policy=LogHistory()):
        again = shared.map(lambda record: record).arrange()
        again.max(name="replayed")
    shared.max(name="here")
    reads = {name: flow.graph.node_named(name).reads for name in ("there", "replayed", "here")}
    assert reads == {"there": (), "replayed": (), "here": (shared.arrangement,)}


def test_a_reader_with_another_policy_is_refused() -> None:
    flow = Dataflow()
    source = flow.source("a", Iterable([(1, 2)]))
    counted = differential.from_records(source).arrange().max(name="counted")
    counted.stream.policy(LogHistory())
    with pytest.raises(GraphError, match=r"'counted'.*reads the state of.*'arrange-1'.*cannot have another policy"):
        lay_out(compile_plan(flow.graph))


@pytest.mark.parametrize("how", ["columns", "both at once", "records", "one by one"])
def test_joins_that_yield_within_one_heavy_key(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of pairs of one key: an event makes a bounded part of them, and others have their turn in between."""
    columns = how in ("columns", "both at once")
    size, new = (2000, 2000) if columns else (400, 30 if how == "one by one" else 400)
    flow = Dataflow("heavy")
    left, right = differential.input_of(flow, "left"), differential.input_of(flow, "right")
    met = left.join(right, lambda key, a, b: (a, b), columns=columns)
    sent, turns, events = list[int](), list[int](), list[int]()
    met.stream._stage("sizes", None, lambda batch: sent.append(split(batch)[2]) or batch).probe("met")
    flow.input("beside").map(lambda record: turns.append(len(sent))).probe("told")
    notified = Join.on_notify

    def counting(self: Join, ctx: Any, time: Any) -> None:
        notified(self, ctx, time)
        events.append(sum(split(batch)[2] for _, _, batch in ctx.out))

    monkeypatch.setattr(Join, "on_notify", counting)
    with Session(flow) as session:
        one, other = differential.Input(session, "left"), differential.Input(session, "right")
        other.columns([7] * size, range(size))
        if how != "both at once":
            one.advance_to(1)
            other.advance_to(1)
            session.step_until(lambda: session.probe("met").done(0))
        one.columns([7] * new, range(new))
        one.close()
        other.close()
        for turn in range(2):
            session.input("beside").send([turn])
            session.step(0)
        session.input("beside").close()
        session.run()
    most = joins.PAIRS if columns else joins.PAIRS_OF_RECORDS
    assert sum(sent) == size * new
    assert max(events) <= most
    assert len(events) >= size * new / most
    assert 0 < turns[1] < len(sent), "something else has its turn while not all has met"
