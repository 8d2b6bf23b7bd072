"""The calls of the engine to recovery: every event at every processor's border, inside scheduling units too, in order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from runtime.session.session import Session
from tests.timely.feeding import feed_in_turn
from timely.data.batch import Batch
from timely.data.messages import Message
from timely.dataflow.plan import compile_plan
from timely.io import Memory
from timely.operators.base import Capability, Context, Operator
from timely.operators.stateless import Stateless
from timely.time import Time, leq
from timely.worker.worker import Worker


class Notes:
    """A recorder that writes down what it hears, batches copied."""

    logged = shipping = keeping = frozenset[int]()

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def delivered(self, processor: int, port: int, time: Time, batch: Batch) -> None:
        self.events.append(("delivered", processor, port, time, list(batch)))

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
        self.events.append(("sent", processor, port, event, time, list(batch)))

    def requested(self, processor: int, event: Time, time: Time) -> None:
        self.events.append(("requested", processor, event, time))

    def notified(self, processor: int, time: Time) -> None:
        self.events.append(("notified", processor, time))

    def resulted(self, processor: int, time: Time, result: Any) -> None:
        self.events.append(("resulted", processor, time, result))

    def held(self, processor: int, event: Time, time: Time, diff: int) -> None:
        self.events.append(("held", processor, event, time, diff))

    def started(self, processor: int, event: Time, time: Time) -> None:
        pass

    def kept_state(self, processor: int, event: Time, time: Time) -> None:
        self.events.append(("kept_state", processor, event, time))

    def completed(self, processor: int) -> None:
        self.events.append(("completed", processor))

    def shipped(self, receiver: int, message: Message) -> None:
        raise AssertionError("no edge is logged")

    def kept(self, edge: int, event: Time, time: Time, batch: Batch) -> None:
        raise AssertionError("no edge is logged")

    def taken(self, sender: int, message: Message) -> bool:
        raise AssertionError("no edge is logged")

    def of(self, processor: int) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[1] == processor]


def program() -> Dataflow:
    """A fused chain, state, a loop, a fork and a join, a sink: every kind of border."""
    flow = Dataflow()
    numbers = flow.input("in").map(lambda x: x + 1, name="a").filter(lambda x: x % 4, name="b")
    sums = numbers.key_by(lambda x: x % 3, name="keys").sum(name="sum").records()
    looped = numbers.iterate(lambda i: i.map(lambda x: x // 2).filter(bool).distinct(name="new"), name="loop")
    both = looped.map(lambda x: (x, x)).keyed().join(sums.keyed(), name="join")
    both.records().to(Memory(), name="out")
    sums.probe("end")
    return flow


def recorded(epochs: list[list[int]], workers: int = 1, seed: int = 0) -> tuple[Cluster, list[Notes]]:
    cluster = Cluster(program(), workers, seed)
    notes = [Notes() for _ in range(workers)]
    for session, recorder in zip(cluster.sessions, notes):
        session.worker._recorder = recorder
    feed_in_turn(cluster, epochs)
    return cluster, notes


epochs_ = st.lists(st.lists(st.integers(0, 40), max_size=5), min_size=1, max_size=3)


@given(epochs_, st.sampled_from([1, 2, 3]), st.integers(0, 99))
@settings(max_examples=40)
def test_what_is_sent_on_an_edge_is_what_is_delivered_from_it(epochs: list[list[int]], workers: int, seed: int) -> None:
    cluster, notes = recorded(epochs, workers, seed)
    plan = cluster.plan
    sent: Counter[Any] = Counter()
    delivered: Counter[Any] = Counter()
    for note in notes:
        for event in note.events:
            if event[0] == "sent":
                for route in plan.processors[event[1]].routes[event[2]]:
                    sent.update((route.processor, route.port, event[4], record) for record in event[5])
            elif event[0] == "delivered":
                delivered.update((event[1], event[2], event[3], record) for record in event[4])
    combined = plan.of_node[plan.graph.node_named("sum").index]
    for (processor, port, time, record), count in (sent - delivered).items():
        assert processor == combined, f"{count} of {record} at {time} never arrived at port {port}"
    for (processor, port, time, record), count in (delivered - sent).items():
        assert processor == combined, f"{count} of {record} at {time} came to port {port} from nowhere"
    assert sum(delivered.values()) or not any(epochs)


@given(epochs_, st.sampled_from([1, 2]), st.integers(0, 99))
@settings(max_examples=40)
def test_notifications_are_requested_once_before_and_after_them_nothing_comes(
    epochs: list[list[int]], workers: int, seed: int
) -> None:
    cluster, notes = recorded(epochs, workers, seed)
    for note in notes:
        for processor in cluster.plan.processors:
            asked: Counter[Time] = Counter()
            over: list[Time] = []
            for event in note.of(processor.index):
                match event:
                    case ("requested", _, at, time):
                        assert leq(at, time)
                        asked[time] += 1
                        assert asked[time] == 1
                    case ("notified", _, time):
                        assert asked[time] == 1
                        assert time not in over
                        over.append(time)
                    case ("delivered", _, _, time, batch):
                        assert batch
                        assert not any(leq(time, end) for end in over), "a batch at a complete time"
                    case ("sent", _, _, at, time, batch):
                        assert batch
                        assert len(at) != len(time) or leq(at, time)
            assert sorted(asked) == sorted(over)


@given(epochs_, st.integers(0, 99))
@settings(max_examples=30)
def test_history_delivered_again_makes_a_fresh_operator_send_the_same(epochs: list[list[int]], seed: int) -> None:
    """The needs of a full log: the notes of one processor alone determine what it sent."""
    cluster, notes = recorded(epochs, 2, seed)
    for note in notes:
        for processor in cluster.plan.processors:
            node = processor.node
            if node.stages:
                operator: Operator = Stateless(processor.stages)
            elif node.factory is not None:
                operator = node.factory()
            else:
                continue
            history = note.of(processor.index)
            ctx = Context(_NoEngine(), processor.index, node.name, node.site, 0, 1)
            again: list[tuple[Any, ...]] = []
            for event in history:
                if event[0] == "delivered":
                    ctx.time = event[3]
                    operator.on_batch(ctx, event[2], event[3], list(event[4]))
                elif event[0] == "notified":
                    ctx.pending.pop(event[2])
                    ctx.time = event[2]
                    operator.on_notify(ctx, event[2])
                again += [(port, ctx.time, time, list(batch)) for port, time, batch in ctx.out]
                ctx.out.clear()
            assert again == [event[2:] for event in history if event[0] == "sent"], node.name


class _NoEngine:
    def request(self, op: int, event: Time, time: Time) -> None: ...

    def hold(self, op: int, time: Time, diff: int, own: bool = False) -> None: ...

    def start(self, op: int, time: Time, job: Any) -> None: ...


def test_every_border_inside_a_unit_is_heard_and_fused_chains_are_one() -> None:
    cluster, (note,) = recorded([[1, 6]])
    names = {processor.index: processor.node.name for processor in cluster.plan.processors}
    has_receivers = [(event[0], names[event[1]]) for event in note.events]
    assert has_receivers[:2] == [("sent", "in"), ("delivered", "b")]
    assert ("delivered", "loop-enter") in has_receivers
    assert ("delivered", "loop-feedback") in has_receivers
    assert ("delivered", "out") in has_receivers
    assert ("notified", "out") in has_receivers
    assert not any(name == "a" for _, name in has_receivers)


def test_events_of_operators_with_state_are_followed_by_completed() -> None:
    cluster, (note,) = recorded([[1, 2, 3], [4]])
    stateful = {
        runtime.processor.index for runtime in cluster.sessions[0].worker.runtimes if runtime.operator.state is not None
    }
    assert stateful
    for processor in cluster.plan.processors:
        kinds = [event[0] for event in note.of(processor.index)]
        events = sum(kind in ("delivered", "notified") for kind in kinds)
        assert kinds.count("completed") == (events if processor.index in stateful else 0)
        open_event = False
        for kind in kinds:
            if kind in ("delivered", "notified"):
                assert not (open_event and processor.index in stateful)
                open_event = True
            elif kind == "completed":
                open_event = False


def test_capabilities_are_heard_of() -> None:
    class Keeper(Operator):
        def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
            self.kept: Capability = ctx.retain((4,))
            ctx.notify_at((4,))

        def on_notify(self, ctx: Context, time: Time) -> None:
            self.kept.downgrade((6,))
            self.kept.drop()

    flow = Dataflow()
    flow.input("in").unary("keeper", Keeper, holds=True).capture()
    notes = Notes()
    with Session(flow, worker=Worker(compile_plan(flow.graph), recorder=notes)) as session:
        session.input("in").send([1])
        session.input("in").close()
        session.run()
        keeper = session.plan.of_node[flow.graph.node_named("keeper").index]
    held = [event[2:] for event in notes.events if event[0] == "held" and event[1] == keeper]
    assert held == [((0,), (4,), 1), ((4,), (6,), 1), ((4,), (4,), -1), ((4,), (6,), -1)]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_recorder_changes_nothing(workers: int) -> None:
    epochs = [[3, 9, 27], [], [12, 3]]

    def outcome(listen: bool) -> Any:
        cluster = Cluster(program(), workers, 5)
        sink = next(node.sink for node in cluster.plan.graph.nodes if node.sink is not None)
        assert isinstance(sink, Memory)
        for session in cluster.sessions:
            session.worker._recorder = Notes() if listen else None
        for epoch, records in enumerate(epochs):
            cluster.sessions[0].input("in").send(records)
            for session in cluster.sessions:
                session.input("in").advance_to(epoch + 1)
        for session in cluster.sessions:
            session.input("in").close()
        cluster.run()
        return sink.batches, cluster.traffic

    assert outcome(True) == outcome(False)


def test_messages_are_numbered_on_every_physical_edge_and_keep_the_time_of_their_event() -> None:
    class Ahead(Operator):
        def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
            for record in list[Any](batch):
                ctx.send_at((time[0] + record % 3,), [record])

    flow = Dataflow()
    flow.input("in").exchange(lambda x: x).unary("ahead", Ahead).exchange(lambda x: -x).capture()
    cluster = Cluster(flow, 3, 1)
    seen: dict[tuple[int, int, int], list[Any]] = {}
    deliver = cluster._deliver

    def noting(pair: tuple[int, int]) -> None:
        for message in cluster.in_flight[pair][0].messages:
            seen.setdefault((message.edge, *pair), []).append(message)
        deliver(pair)

    cluster._deliver = noting  # type: ignore[method-assign]
    for epoch in range(6):
        for session in cluster.sessions:
            session.input("in").send(list(range(20)))
            session.input("in").advance_to(epoch + 1)
            session.step()
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()
    assert len(seen) == 12
    for (edge, *_), messages in seen.items():
        assert [message.number for message in messages] == list(range(1, len(messages) + 1))
        ahead = {message.time[0] - message.event[0] for message in messages}
        assert (ahead == {0}) == (edge == min(key[0] for key in seen))


def test_results_of_jobs_are_heard_of_before_what_they_cause() -> None:
    class Asker(Operator):
        def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
            ctx.start(lambda: 1)

        def on_result(self, ctx: Context, time: Time, result: Any) -> None:
            ctx.send([result])

    flow = Dataflow()
    flow.input("in").unary("asker", Asker, holds=True).capture()
    notes = Notes()
    with Session(flow, worker=Worker(compile_plan(flow.graph), recorder=notes)) as session:
        session.input("in").send([1])
        session.input("in").close()
        session.run()
        asker = session.plan.of_node[flow.graph.node_named("asker").index]
    kinds = [event[0] for event in notes.of(asker) if event[0] != "held"]
    assert len(kinds) == 3, f"a delivery, a result, a send; but only {kinds}"


def test_without_recovery_an_operator_keeps_no_versions_and_with_it_all_that_may_be_asked_for() -> None:
    def running(recorder: Notes | None) -> int:
        flow = Dataflow()
        flow.input("in").key_by(lambda n: n % 3).count().capture()
        plan = compile_plan(flow.graph)
        worker = Worker(plan, recorder=recorder)
        for epoch in range(20):
            worker.feed(0, (epoch,), [epoch])
            worker.advance(0, (epoch + 1,))
            worker.run()
        [state] = [runtime.operator.state for runtime in worker.runtimes if runtime.node.kind == "count"]
        assert state is not None
        return state.size().runs

    assert running(None) == 1
    assert running(Notes()) == 20
