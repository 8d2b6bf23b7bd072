"""Workers that are taken back: to where they are, to the end of an epoch, processor by processor; the output is the same.

The tests are the driver: they feed, deliver frames in any legal order, and keep what memory and a log would hold. What an
output has of epochs that are done again is void.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Eager
from tests.timely.worker import test_worker as programs
from tests.timely.worker.test_recorder import Notes
from timely.data.batch import Batch
from timely.data.messages import Captured, Frame, Message
from timely.dataflow.plan import Plan, compile_plan
from timely.errors import OperatorError
from timely.io import Iterable
from timely.operators.base import Capability, Context, Operator
from timely.operators.channels import Exchange
from timely.state import KeyedState, Parts, TimedBatches
from timely.state.interface import Run, Runs
from timely.time import Frontier, Time
from timely.worker import restoring
from timely.worker.restoring import Orders, ResentBatch, RestoredProcessor
from timely.worker.worker import Worker

EPOCHS = 5
SOAK = os.environ.get("FALKIRK_TEST_PROFILE") == "soak"


class Memory(Notes):
    """The memory that recovery has of a worker: requests, capabilities, and every message between workers or within one."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.shipping = frozenset(e.index for e in plan.graph.edges if plan.spreads(e))  # type: ignore[misc]
        self.asked: list[tuple[int, Time, Time]] = []
        self.capabilities: list[tuple[int, Time, Time, int]] = []
        self.log: list[tuple[int, Message]] = []
        self.own: list[ResentBatch] = []

    def requested(self, processor: int, event: Time, time: Time) -> None:
        self.asked.append((processor, event, time))

    def held(self, processor: int, event: Time, time: Time, diff: int) -> None:
        self.capabilities.append((processor, event, time, diff))

    def shipped(self, receiver: int, message: Message) -> None:
        self.log.append((receiver, message))

    def kept(self, edge: int, event: Time, time: Time, batch: Batch) -> None:
        self.own.append(ResentBatch(edge, event, time, batch))

    def back(self, epoch: int) -> None:
        """Forget what events of that epoch, and of later ones, have done."""
        self.asked = [each for each in self.asked if before(each[1], epoch)]
        self.capabilities = [each for each in self.capabilities if before(each[1], epoch)]
        self.log = [each for each in self.log if before(each[1].event, epoch)]
        self.own = [each for each in self.own if before(each.event, epoch)]

    def requests(self, processor: int, epoch: int) -> tuple[tuple[Time, Time], ...]:
        return tuple(
            (event, time)
            for p, event, time in self.asked
            if p == processor and before(event, epoch) and not before(time, epoch)
        )

    def held_at(self, processor: int, epoch: int) -> tuple[tuple[Time, int], ...]:
        counts: Counter[Time] = Counter()
        for p, event, time, diff in self.capabilities:
            if p == processor and before(event, epoch) and not before(time, epoch):
                counts[time] += diff
        return tuple((time, count) for time, count in sorted(counts.items()) if count)


def before(time: Time, epoch: int) -> bool:
    return not time or time[0] < epoch


def upto(epoch: int, depth: int) -> Frontier:
    return Frontier.before([(epoch,) + (0,) * (depth - 1)], depth)


class Driven:
    """The workers of a program, with what each worker reads in each epoch."""

    def __init__(self, build: Callable[[Stream], Stream], workers: int, seed: int) -> None:
        flow = Dataflow(build.__name__)
        build(flow.input("in")).capture("out")
        self.plan = compile_plan(flow.graph, workers)
        self.random = Random(seed)
        self.memories = [Memory(self.plan) for _ in range(workers)]
        self.workers = [Worker(self.plan, w, self.memories[w]) for w in range(workers)]
        (self.node,) = (node.index for node in self.plan.graph.of_kind("input"))
        of_records = Random(seed)
        self.records = [[[] for _ in range(workers)] for _ in range(EPOCHS)]  # type: list[list[list[int]]]
        for epoch in self.records:
            for _ in range(of_records.randrange(7)):
                epoch[of_records.randrange(workers)].append(of_records.randrange(60))
        self.fed = [(0, 0)] * workers
        """Of each worker the epoch and the record that come next."""
        self.frames: dict[tuple[int, int], list[Frame]] = defaultdict(list)
        self.out: list[list[tuple[Time, Any]]] = [[] for _ in range(workers)]
        self.generation = 0
        self.low = 0
        """A worker that came back by a snapshot goes back no further: nothing is known of it epoch by epoch."""

    # What happens by itself

    def act(self) -> bool:
        """Something that can happen. False if nothing can."""
        ways = [pair for pair, frames in self.frames.items() if frames]
        at = self.random.randrange(len(ways) + 2 * len(self.workers))
        if at < len(ways):
            self.workers[ways[at][1]].receive(self.frames[ways[at]].pop(0))
            return True
        w = (at - len(ways)) // 2
        if (at - len(ways)) % 2 and self.workers[w].input_time(self.node) is not None and not self.workers[w].awaited:
            self.feed(w)
            return True
        return self.turn(w) or bool(ways)

    def feed(self, w: int) -> None:
        worker, (epoch, number) = self.workers[w], self.fed[w]
        if epoch == EPOCHS:
            worker.advance(self.node, None)
        elif number < len(self.records[epoch][w]):
            worker.feed(self.node, (epoch,), [self.records[epoch][w][number]])
            self.fed[w] = epoch, number + 1
        else:
            worker.advance(self.node, (epoch + 1,))
            self.fed[w] = epoch + 1, 0

    def turn(self, w: int) -> bool:
        worker = self.workers[w]
        quiet = worker.run(self.random.choice([1, 3, 1000]))
        self.send(w, worker.take_frames(quiet, pressed=self.random.random() < 0.2))
        self.look(w)
        return not quiet

    def look(self, w: int) -> None:
        """Take what has come out."""
        for each in self.workers[w].take_effects():
            assert isinstance(each, Captured)
            self.out[w] += [(each.time, record) for record in each.batch]
        self.workers[w].check()

    def send(self, w: int, frames: dict[int, Frame]) -> None:
        for to, frame in frames.items():
            self.frames[w, to].append(frame)

    def finish(self) -> Counter[tuple[Time, Any]]:
        """All that comes out."""
        for _ in range(200_000):
            self.act()
            if not any(self.frames.values()) and all(
                worker.done and worker.input_time(self.node) is None for worker in self.workers
            ):
                break
        else:
            raise AssertionError("it does not end")
        return Counter(each for out in self.out for each in out)

    # A round

    def drain(self) -> None:
        """All stop; what is on its way arrives."""
        for w, worker in enumerate(self.workers):
            self.look(w)
            self.send(w, worker.take_frames(restoring.quiet(worker)))
        for (_, to), frames in self.frames.items():
            while frames:
                self.workers[to].receive(frames.pop(0))

    def begin(self, orders: list[Orders]) -> None:
        """Carry out a decision on all workers; their first frames arrive in any order."""
        firsts = []
        for w, worker in enumerate(self.workers):
            peers = set(range(len(self.workers))) - {w}
            firsts += [(to, frame) for to, frame in restoring.rewind(worker, orders[w]).items()]
            assert worker.awaited == peers
            assert not peers or worker.run(), "nothing is handled before all first frames are here"
        assert len(firsts) == len(self.workers) * (len(self.workers) - 1)
        self.random.shuffle(firsts)
        for to, frame in firsts:
            assert not frame.pressed
            self.workers[to].receive(frame)
        for worker in self.workers:
            assert not worker.awaited
            assert not worker.pressed_by
            restoring.resume(worker)
            worker.check()

    def anew(self) -> None:
        """A generation in which all stay where they are."""
        self.drain()
        self.generation += 1
        self.begin(
            [
                Orders(self.generation, {}, lambda *_: True, {self.node: worker.input_time(self.node)})
                for worker in self.workers
            ]
        )

    def complete(self) -> int:
        """The epochs before this one are complete everywhere."""
        least = EPOCHS
        for w, worker in enumerate(self.workers):
            least = min(least, self.fed[w][0])
            for runtime in worker.runtimes:
                least = min([least, *(time[0] for _, time in runtime.mail), *(t[0] for t in runtime.ctx.pending)])
        return least

    def back(self, epoch: int) -> None:
        """All go back to the end of an epoch, each processor in one of the ways in which it can."""
        self.generation += 1
        self.low = epoch
        orders = []
        for w, worker in enumerate(self.workers):
            memory = self.memories[w]
            restored, fresh = {}, set[int]()
            for p, runtime in enumerate(worker.runtimes):
                f, state = upto(epoch, runtime.processor.node.shift.depth), runtime.operator.state
                runs, way = None, self.random.choice(["memory", "store", "fresh"])
                if state is not None and way == "store":
                    runs = Runs.of(state.snapshot(f, Frontier.empty(f.depth)))
                if way == "fresh" or state is None or runtime.node.holds:
                    fresh.add(p)
                restored[p] = RestoredProcessor(f, runs, memory.requests(p, epoch), memory.held_at(p, epoch))
            memory.back(epoch)
            orders.append(
                Orders(
                    self.generation,
                    restored,
                    lambda *_: False,
                    {self.node: (epoch,)},
                    [each for each in memory.own if not before(each.time, epoch)],
                    [(to, each) for to, each in memory.log if not before(each.time, epoch)],
                    frozenset(fresh),
                )
            )
            self.fed[w] = epoch, 0
            self.out[w] = [each for each in self.out[w] if before(each[0], epoch)]
        self.begin(orders)


class Later(Operator):
    """Sends what came two epochs later, when that is complete: what it keeps is in its state, and it keeps capabilities."""

    def __init__(self) -> None:
        self.now, self.records = TimedBatches(), KeyedState()
        self.state = Parts(self.now, self.records)
        self.kept: dict[Time, Capability] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self.now.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        if time in self.kept:
            ctx.send(self.records.read(time)[time])
            self.kept.pop(time).drop()
        if batches := self.now.pop(time):
            later = (time[0] + 2,)
            self.records.write(time, {later: sorted(record for batch in batches for record in batch)})
            self.kept[later] = ctx.retain(later)
            ctx.notify_at(later)

    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        assert not self.kept
        self.kept = {capability.time: capability for capability in capabilities}
        assert len(self.kept) == len(capabilities)


class Ahead(Operator):
    """Sends each record at once, for the next epoch but one."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        ctx.send_at((time[0] + 2,), batch)


class Shelf(Operator):
    """Keeps what has come at each time that is complete, for those that read it."""

    def __init__(self) -> None:
        self.now, self.records = TimedBatches(), KeyedState()
        self.state = Parts(self.now, self.records)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self.now.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        records = sorted(record for batch in self.now.pop(time) for record in batch)
        self.records.write(time, {time: records})
        ctx.send([len(records)])


class Reader(Operator):
    """Sends what the shelf before it has of each time of which it hears."""

    def read(self, operators: Sequence[Operator]) -> None:
        (self.shelf,) = operators

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(self.shelf, Shelf)
        ctx.send(self.shelf.records.read(time)[time])


def later(s: Stream) -> Stream:
    kept = s.unary("later", Later, Exchange(key=lambda x: x), holds=True)
    return kept.key_by(lambda x: x % 3).sum(over="time").records().map(lambda kv: kv[1])


def ahead(s: Stream) -> Stream:
    sent = s.unary("ahead", Ahead, stateful=False).exchange(lambda x: x)
    return sent.key_by(lambda x: x % 3).sum().records().map(lambda kv: kv[1] % 50)


def looped(s: Stream) -> Stream:
    """A loop of which no result depends on the order in which batches come, and sums of all epochs behind it."""
    out = s.iterate(lambda inner: inner.map(lambda x: x // 2).filter(bool).exchange(lambda x: x).distinct(over="time"))
    return out.key_by(lambda x: x % 2).sum(over="time").records().map(lambda kv: kv[1])


def shelved(s: Stream) -> Stream:
    shelf = s.exchange(lambda x: x).unary("shelf", Shelf)
    read = shelf.unary("reader", Reader, stateful=False)
    read._change("reads", reads=(shelf.outputs[0].node,))
    return read


STAY = [*(p for p in programs.PROGRAMS if p is not programs.running), later, ahead, shelved]
"""Those whose outputs of a time do not depend on the order in which epochs come to an operator."""
RETURN = [
    programs.line,
    programs.nested_loops,
    programs.there_and_back,
    programs.diamond,
    later,
    ahead,
    looped,
    shelved,
]


def alone(build: Callable[[Stream], Stream], workers: int, seed: int) -> Counter[tuple[Time, Any]]:
    """The output if nothing happens."""
    return Driven(build, workers, seed).finish()


@pytest.mark.parametrize("build", STAY, ids=lambda each: each.__name__)
@given(st.integers(0, 10_000))
@settings(max_examples=2000 if SOAK else 10)
def test_a_generation_in_which_all_stay_changes_nothing(build: Callable[[Stream], Stream], seed: int) -> None:
    workers = 1 + seed % 3
    driven = Driven(build, workers, seed)
    for _ in range(4):
        for _ in range(driven.random.randrange(60)):
            driven.act()
        driven.anew()
    assert driven.finish() == alone(build, workers, seed)


@pytest.mark.parametrize("build", RETURN, ids=lambda each: each.__name__)
@given(st.integers(0, 10_000))
@settings(max_examples=2000 if SOAK else 10)
def test_epochs_that_are_taken_back_and_done_again_come_out_as_if_nothing_had_happened(
    build: Callable[[Stream], Stream], seed: int
) -> None:
    workers = 2 + seed % 2 if build is ahead else 1 + seed % 3  # within a worker nothing is logged
    driven = Driven(build, workers, seed)
    for _ in range(4):
        for _ in range(driven.random.randrange(80)):
            driven.act()
        driven.drain()
        driven.back(driven.random.randint(driven.low, driven.complete()))
    assert driven.finish() == alone(build, workers, seed)


def one_exchange() -> tuple[Worker, int, int]:
    """A worker of two, with an edge to a processor that all workers send to: (worker, edge, processor)."""
    flow = Dataflow("one exchange")
    flow.input("in").distinct(name="new").capture("out")
    plan = compile_plan(flow.graph, 2)
    (edge,) = (edge for edge in plan.graph.edges if plan.spreads(edge))
    return Worker(plan, 0, Memory(plan)), edge.index, plan.of_node[edge.target.node]


def test_of_what_waits_stays_what_recovery_says_by_edge_and_sender_and_both_times() -> None:
    worker, edge, p = one_exchange()
    asked = []

    def keeps(of: int, sender: int, event: Time, time: Time) -> bool:
        asked.append((of, sender, event, time))
        return sender == 1 and event == (2,)

    for sender, event in ((0, 1), (1, 2), (1, 1), (1, 2)):
        worker._enqueue(p, 0, (3,), (edge, sender, (event,), [sender, event]))
    restoring.rewind(worker, Orders(1, {}, keeps, {}))
    assert asked == [(edge, 0, (1,), (3,)), (edge, 1, (2,), (3,)), (edge, 1, (1,), (3,)), (edge, 1, (2,), (3,))]
    assert worker.runtimes[p].mail == {(0, (3,)): [(edge, 1, (2,), [1, 2])] * 2}
    worker.check()


def test_what_comes_at_the_bound_of_a_gate_or_later_waits_in_front_of_it_again() -> None:
    flow = Dataflow("gated")
    with flow.region("front", policy=Eager()):
        numbers = flow.source("in", Iterable([1])).map(abs)
    numbers.capture("out")
    plan = compile_plan(flow.graph, 2)
    worker = Worker(plan, 0, Memory(plan))
    (gate,) = worker.gates
    worker.open(gate, (2,))
    (edge,) = (edge.index for edge in plan.graph.edges if plan.of_node[edge.target.node] == gate)
    for epoch in (1, 2, 3):
        worker._enqueue(gate, 0, (epoch,), (edge, 0, (epoch,), [epoch]))
    frames = restoring.rewind(worker, Orders(1, {}, lambda *_: True, {}))
    worker.check()
    assert [time for *_, time in worker._gated] == [(2,), (3,)]
    place = plan.processors[gate].place
    assert {time for at, time, count in frames[1].progress if at == place and count > 0} >= {(2,), (3,)}


def test_of_several_events_that_asked_for_a_notification_the_first_counts() -> None:
    """If that is taken back, and not before, nobody has asked."""
    worker, _, p = one_exchange()
    for order in ((1, 3), (3, 1)):
        asked = tuple(((event,), (9,)) for event in order)
        restored = RestoredProcessor(upto(4, 1), None, asked)
        restoring.rewind(worker, Orders(1, {p: restored}, lambda *_: True, {}))
        assert worker.runtimes[p].ctx.pending == {(9,): (1,)}


class Bells(Operator):
    """Asks for a notification at each number that comes."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for number in batch:
            ctx.notify_at((number,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.send([time[0]])


def test_of_what_is_not_complete_when_all_have_started_the_least_comes_first() -> None:
    """The others stay in order if something was complete: none waits for a later one."""
    flow = Dataflow("bells")
    flow.input("in").unary("bells", Bells).capture("out")
    plan = compile_plan(flow.graph, 1)
    memory = Memory(plan)
    worker = Worker(plan, 0, memory)
    (node,) = (node.index for node in plan.graph.of_kind("input"))
    worker.feed(node, (0,), [1, 5, 2, 6, 7, 3, 4])
    worker.run(1000)
    worker.advance(node, (2,))
    restoring.rewind(worker, Orders(1, {}, lambda *_: True, {node: (2,)}))
    restoring.resume(worker)
    for epoch in range(3, 9):
        worker.run(1000)
        rung = [each.batch for each in worker.take_effects() if isinstance(each, Captured)]
        assert rung == [[epoch - 2]]
        worker.advance(node, (epoch,))


def test_state_of_an_operator_that_has_none_now_is_refused() -> None:
    worker, _, p = one_exchange()
    (source,) = (q for q, each in enumerate(worker.plan.processors) if each.node.kind == "input")
    state = worker.runtimes[p].operator.state
    assert state is not None
    runs = Runs.of([Run((1,), [1])])
    restored = RestoredProcessor(upto(4, 1), runs)
    with pytest.raises(OperatorError, match=r"'in' .* had state when it was saved, and has none now"):
        restoring.rewind(worker, Orders(1, {source: restored}, lambda *_: True, {}))


def test_another_recorder_hears_from_then_on() -> None:
    worker, _, _ = one_exchange()
    first, second = worker._recorder, Memory(worker.plan)
    (node,) = (node.index for node in worker.plan.graph.of_kind("input"))
    worker.feed(node, (0,), [1])
    restoring.listen(worker, second)
    worker.feed(node, (0,), [2])
    assert isinstance(first, Memory)
    told = [[each[-1] for each in memory.events if each[0] == "sent"] for memory in (first, second)]
    assert told == [[[1]], [[2]]]


def test_capabilities_are_told_in_the_order_of_processors_and_times() -> None:
    worker, _, _ = one_exchange()
    worker.held = {(2, (1,)): 1, (1, (5,)): 2, (1, (4,)): 1}
    assert restoring.holding(worker) == [(1, (4,)), (1, (5,)), (2, (1,))]


def test_an_input_in_a_scope_is_seeded_with_all_that_it_may_still_send() -> None:
    flow = Dataflow()
    flow.input("in", flow.scope("parts")).exchange(abs).capture()
    plan = compile_plan(flow.graph, 2)
    first, second = Worker(plan, 0), Worker(plan, 1)
    node = plan.graph.node_named("in").index
    orders = [Orders(1, {}, lambda *_: True, {node: time}) for time in ((1, 2), None)]
    seeds = [restoring.rewind(worker, each) for worker, each in zip((first, second), orders, strict=True)]
    assert sorted((time, count) for _, time, count in seeds[0][1].progress) == [((1, 2), 1), ((2, 0), 1)]
    assert not seeds[1][0].progress
    second.receive(seeds[0][1])
    first.receive(seeds[1][0])
    first.advance(node, (2, 3))
    first.advance(node, None)
    second.receive(first.take_frames(quiet=True)[1])
    assert first.done
    assert second.done
