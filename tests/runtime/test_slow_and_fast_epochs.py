"""Inputs by hand whose times are (slow, fast): their frontiers, what they complete, and how they are misused."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.verbs.dataflow import Dataflow
from runtime.run import run
from runtime.session.cluster import Cluster
from runtime.session.explain import report
from runtime.session.handles import InputHandle
from runtime.session.session import Session
from tests.timely.worker.oracle import Oracle, paths_of
from timely.dataflow.draw import mermaid
from timely.errors import GraphError, OperatorError
from timely.operators.base import Context, Operator
from timely.progress.tracker import Tracker
from timely.time import END, INF, Time, minimal


class Ends(Operator):
    """Says when each (slow, fast) of its records is complete, and each slow epoch: by (slow, END)."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.notify_at()
        ctx.notify_at((*time[:-1], INF))

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.send([time])


def clicks() -> Dataflow:
    """Clicks by (day, hour): the count of each hour, of each day, and when each of them is complete."""
    flow = Dataflow("clicks")
    hours = flow.input("clicks", flow.scope("hours"))
    hours.key_by(str).count(over="time", name="of the hour").capture("hours")
    hours.unary("ends", Ends).capture("ends")
    hours.probe("inside")
    days = hours.leave().key_by(str).count(over="time", name="of the day")
    days.capture("days")
    days.probe("outside")
    return flow


def test_hours_are_complete_one_by_one_and_a_day_with_all_of_them() -> None:
    with Session(clicks()) as session:
        handle, inside, outside = session.input("clicks"), session.probe("inside"), session.probe("outside")
        handle.send(["a", "b", "a"])
        session.step()
        assert (inside.frontier, session.captured("hours")) == (((0, 0),), [])
        handle.advance_to((0, 3))
        handle.send(["a"])
        session.step()
        assert inside.frontier == ((0, 3), (1, 0))
        assert outside.frontier == ((0,),)
        assert [inside.done(time) for time in ((0, 2), (0, 3), (0, END), (1, 0), 0)] == [True, *[False] * 4]
        assert session.captured("hours") == [((0, 0), [("a", 2), ("b", 1)])]
        assert session.captured("ends") == [((0, 0), [(0, 0)])]
        assert session.captured("days") == []
        handle.advance_to((1, 0))
        session.step()
        assert inside.frontier == ((1, 0),)
        assert [inside.done(time) for time in ((0, 3), (0, END), 0, (1, 0))] == [True, True, True, False]
        assert session.captured("hours")[1:] == [((0, 3), [("a", 1)])]
        assert session.captured("ends")[1:] == [((0, 3), [(0, 3)]), ((0, END), [(0, INF)])]
        assert session.captured("days") == [((0,), [("a", 3), ("b", 1)])]
        handle.advance_to((4, 7))
        handle.send(["c"])
        session.step()
        assert (inside.frontier, outside.frontier) == (((4, 7), (5, 0)), ((4,),))
        handle.close()
        session.run()
        assert (inside.frontier, outside.frontier) == ((), ())
        assert session.captured("days")[1:] == [((4,), [("c", 1)])]


def test_totals_that_run_on_begin_anew_with_each_slow_epoch() -> None:
    flow = Dataflow()
    rows = flow.input("rows", flow.scope("parts")).to_columns()
    rows.group_by("k").agg(n=agg.sum("v")).to_records().capture("out")
    with Session(flow) as session:
        handle = session.input("rows")
        for time, value in (((0, 0), 1), ((0, 1), 2), ((1, 0), 4), ((1, 3), 8)):
            handle.advance_to(time)
            handle.send(pl.DataFrame({"k": ["a"], "v": [value]}))
        handle.close()
        session.run()
        seen = [(time, row["n"]) for time, rows in session.captured("out") for row in rows]
        assert seen == [((0, 0), 1), ((0, 1), 3), ((1, 0), 4), ((1, 3), 12)]


def test_a_loop_within_a_fast_epoch() -> None:
    flow = Dataflow()
    parts = flow.input("in", flow.scope("parts"))
    out = parts.iterate(lambda inner: inner.filter(lambda n: n > 1).map(lambda n: n // 2))
    out.key_by(lambda n: 0).count(over="time").values().capture("out")
    with Session(flow) as session:
        handle = session.input("in")
        handle.send([8])
        handle.advance_to((0, 1))
        handle.send([2])
        session.step()
        assert session.captured("out") == [((0, 0), [3])]
        handle.close()
        session.run()
        assert session.captured("out") == [((0, 0), [3]), ((0, 1), [1])]


@pytest.mark.parametrize(
    ("from_", "to", "why"),
    [
        ((0, 3), (0, 2), r"cannot advance to \(0, 2\): it is at \(0, 3\), and times compare coordinate by coordinate"),
        ((1, 0), (0, 9), r"it is at \(1, 0\), .*, the first one first: go on to \(1, 1\), or to \(2, 0\)"),
        ((0, 3), 1, r"times must have 2 coordinates here"),
        ((0, 3), (0, 3, 0), r"times must have 2 coordinates here, and \(0, 3, 0\) has 3"),
        ((0, 3), (0, -1), r"the coordinates of a time begin with 0"),
        ((0, 3), (0, END), r"cannot advance to \(0, END\): END comes when the input is closed"),
        ((0, 3), (END, 0), r"cannot advance to \(END, 0\): END comes when the input is closed"),
        ((0, 3), "later", r"a time is a tuple"),
    ],
)
def test_an_impossible_advance_is_explained_and_changes_nothing(from_: Time, to: Any, why: str) -> None:
    with Session(clicks()) as session:
        handle, inside = session.input("clicks"), session.probe("inside")
        handle.advance_to(from_)
        session.step()
        before = inside.frontier
        with pytest.raises(OperatorError, match=why):
            handle.advance_to(to)
        session.step()
        assert (handle.time, inside.frontier) == (from_, before)
        handle.close()
        session.run()


def test_what_is_passed_or_closed_takes_nothing_more() -> None:
    flow = clicks()
    with Session(flow) as session:
        handle = session.input("clicks")
        node = session.plan.graph.node_named("clicks").index
        handle.advance_to((1, 2))
        for passed in ((1, 1), (0, 7)):
            with pytest.raises(OperatorError, match=r"cannot send at .*: it is at \(1, 2\), and times compare"):
                session.worker.feed(node, passed, ["x"])
        session.worker.feed(node, (2, 0), ["x"])
        handle.close()
        handle.close()
        with pytest.raises(OperatorError, match="'clicks' is closed"):
            handle.send(["x"])
        with pytest.raises(OperatorError, match=r"cannot advance to \(3, 0\): it is at its end"):
            handle.advance_to((3, 0))
        session.run()
        assert session.captured("hours") == [((2, 0), [("x", 1)])]


def test_an_input_and_a_loop_are_not_in_one_scope() -> None:
    flow = Dataflow()
    loop = flow.scope("loop")
    flow.feedback(loop, name="again")
    with pytest.raises(
        GraphError, match=r"the input 'in' cannot be in the loop of the feedback 'again' .*: times in a loop"
    ):
        flow.input("in", loop)
    with pytest.raises(GraphError, match="the input 'in' cannot be in the loop"):
        flow.input("in", flow.scope("within", loop))
    parts = flow.scope("parts")
    flow.input("in", flow.scope("finer", parts))
    with pytest.raises(GraphError, match=r"no loop can be in parts, where the input 'in' .* is: times in a loop"):
        flow.feedback(parts)
    flow.feedback(flow.scope("inner loop", parts))  # a loop beside the input, which enters it


def test_what_holds_a_frontier_back_tells_the_position_from_later_epochs() -> None:
    with Session(clicks()) as session:
        handle = session.input("clicks")
        handle.send(["a"])
        handle.advance_to((2, 5))
        session.step()
        held = {(hold.what, hold.time) for hold in session.explain("of the hour")}
        assert held == {("the position", (2, 5)), ("a later epoch", (3, 0))}
        handle.send(["a"])
        session.step()
        text = report(session.worker)
        assert "input 'clicks' is at (2, 5)" in text
        assert "waits for (2, END) to be complete" in text
        handle.close()
        session.run()


def test_the_input_is_drawn_in_its_scope() -> None:
    lines = [line.strip() for line in mermaid(clicks().graph).splitlines()]
    begin = next(i for i, line in enumerate(lines) if line.startswith("subgraph") and "hours" in line)
    end = lines.index("end", begin)
    assert any('(["clicks<br/><i>input</i>"])' in line for line in lines[begin:end])


def lasting(handle: InputHandle, slow: int, work: Any) -> None:
    """Three fast epochs of a slow one, with `work` after each."""
    for fast in range(3):
        handle.advance_to((slow, fast))
        handle.send([slow, fast])
        work()


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_a_worker_in_an_earlier_slow_epoch_holds_the_others_back(seed: int | None) -> None:
    cluster = Cluster(clicks(), 2, seed)
    ahead, behind = (session.input("clicks") for session in cluster.sessions)
    with Oracle(cluster).watching():
        lasting(ahead, 0, cluster.quiesce)
        ahead.advance_to((2, 1))
        lasting(behind, 0, cluster.quiesce)
        assert {session.probe("inside").frontier for session in cluster.sessions} == {((0, 2), (1, 0))}
        assert {session.probe("outside").frontier for session in cluster.sessions} == {((0,),)}
        assert cluster.captured("days") == []
        assert {time for time, _ in cluster.captured("hours")} == {(0, 0), (0, 1)}
        behind.advance_to((1, 0))
        cluster.quiesce()
        assert {session.probe("inside").frontier for session in cluster.sessions} == {((1, 0),)}
        assert {time for time, _ in cluster.captured("hours")} == {(0, 0), (0, 1), (0, 2)}
        assert {time for time, _ in cluster.captured("days")} == {(0,)}
        behind.advance_to((1, 4))
        cluster.quiesce()
        # (2, 0) of the one behind: it may still be in any slow epoch from 1 on when the one ahead is in the second.
        assert {session.probe("inside").frontier for session in cluster.sessions} == {((1, 4), (2, 0))}
        behind.close()
        cluster.quiesce()
        assert {session.probe("inside").frontier for session in cluster.sessions} == {((2, 1), (3, 0))}
        ahead.close()
        cluster.run()
    days = Counter({record: n for _, batch in cluster.captured("days") for record, n in batch})
    assert days == Counter(str(n) for n in [0, 0, 0, 1, 0, 2] * 2)


def depths(flow: Dataflow, depth: int) -> Any:
    scope = None
    for _ in range(depth - 1):
        scope = flow.scope(parent=scope)
    return scope


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_frontiers_are_those_of_all_times_that_may_still_be_sent(data: st.DataObject) -> None:
    """Against brute force: each time of a small grid from the position of an input on, along each path to a probe."""
    workers, depth = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 3))
    flow = Dataflow()
    scope = depths(flow, depth)
    fed = flow.input("a", scope)
    stream = fed.concat(flow.input("b", scope)).exchange(lambda x: x)
    stream.probe("inside")
    stream.key_by(lambda x: x).count(over="time").capture("counts")
    stream.iterate(lambda inner: inner.map(lambda x: x // 2).filter(bool).exchange(lambda x: x)).probe("looped")
    while depth > 1:
        stream, depth = stream.leave(), depth - 1
    flow.input("root").concat(stream).probe("outside")
    cluster = Cluster(flow, workers, data.draw(st.integers(0, 99)))
    assert isinstance(cluster.sessions[0].worker.tracker, Tracker), "the static one is for epochs only"
    graph, paths = flow.graph, paths_of(flow.graph)
    grid = list(itertools.product(range(4), repeat=scope.depth))
    targets = st.none() | st.tuples(*[st.integers(0, 2)] * scope.depth)
    moves = st.tuples(st.integers(0, workers - 1), st.sampled_from("ab"), targets)
    sent: Counter[tuple[Time, int]] = Counter()
    with Oracle(cluster).watching():
        for worker, name, to in data.draw(st.lists(moves, max_size=12)):
            handle = cluster.sessions[worker].input(name)
            if handle.time is None or data.draw(st.booleans()):
                continue
            handle.send([sum(handle.time)])
            sent[handle.time, sum(handle.time)] += 1
            if to is None:
                handle.close()
            elif to >= handle.time:
                handle.advance_to(to)
            cluster.step() if data.draw(st.booleans()) else cluster.quiesce()
        cluster.quiesce()
        for probe in ("inside", "looped", "outside"):
            node = graph.node_named(probe).index
            may = [
                summary(time)
                for name in ("a", "b", "root")
                for session in cluster.sessions
                if (now := session.input(name).time) is not None
                for time in (grid if name != "root" else [(n,) for n in range(4)])
                if time >= now
                for summary in paths.get((graph.node_named(name).index, node), ())
            ]
            for session in cluster.sessions:
                assert session.probe(probe).frontier == minimal(may)
        for session in cluster.sessions:
            for name in ("a", "b", "root"):
                session.input(name).close()
        cluster.run()
    counted = Counter({(time, key): n for time, batch in cluster.captured("counts") for key, n in batch})
    assert counted == sent


def drive(session: Session) -> list[Time]:
    """Both workers feed the same two slow epochs, each from where the other is not, and look at what is over."""
    handle, inside = session.input("clicks"), session.probe("inside")
    seen = []
    for slow in range(2):
        for fast in range(session.index, session.index + 2):
            handle.advance_to((slow, fast))
            handle.send([(slow, fast)])
        handle.advance_to((slow + 1, 0))
        session.step_until(partial(inside.done, (slow, END)))
        seen += inside.frontier
    handle.close()
    session.run()
    return seen


def test_two_processes_hand_in_their_slow_epochs_together() -> None:
    result = run(clicks, workers=2, drive=drive)
    fed = [(slow, fast) for slow in range(2) for fast in (0, 1, 1, 2)]
    hours = Counter({(time, key): n for time, batch in result.captured("hours") for key, n in batch})
    assert hours == Counter((time, str(time)) for time in fed)
    days = Counter({(time, key): n for time, batch in result.captured("days") for key, n in batch})
    assert days == Counter((time[:1], str(time)) for time in fed)
    for seen in result.returned.values():
        assert all(time >= (1, 0) for time in seen)


def test_the_same_schedule_of_three_workers_counts_the_same() -> None:
    """Random inputs over workers and times: each count is that of all records of its (slow, fast), or of its slow epoch."""
    for seed in range(8):
        random = Random(seed)
        cluster = Cluster(clicks(), 3, seed)
        hours: Counter[tuple[Time, str]] = Counter()
        with Oracle(cluster).watching():
            for _ in range(40):
                session = random.choice(cluster.sessions)
                handle = session.input("clicks")
                assert handle.time is not None
                slow, fast = handle.time
                record = random.choice("abc")
                handle.send([record])
                hours[handle.time, record] += 1
                handle.advance_to(random.choice([(slow, fast), (slow, fast + 1), (slow, fast + 3), (slow + 1, 0)]))
                for _ in range(random.randrange(5)):
                    cluster.step()
            for session in cluster.sessions:
                session.input("clicks").close()
            cluster.run()
        days: Counter[tuple[Time, str]] = Counter()
        for (time, record), n in hours.items():
            days[time[:1], record] += n
        for name, expected in (("hours", hours), ("days", days)):
            assert Counter({(t, k): n for t, batch in cluster.captured(name) for k, n in batch}) == expected
        ends = [record for _, batch in cluster.captured("ends") for record in batch]
        assert set(ends) == {time for time, _ in hours} | {(time[0], INF) for time, _ in hours}
