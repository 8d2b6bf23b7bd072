"""Gates: where they stand, what waits in front of one, and who knows that it does."""

from __future__ import annotations

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import lay_out
from recovery.memory.recorder import WorkerRecorder
from recovery.policy import Eager, Lazy
from runtime.session.cluster import Cluster
from runtime.session.session import Session
from timely.dataflow.plan import compile_plan
from timely.io import Iterable
from timely.worker.worker import Worker


def doubled(exchanged: bool = False) -> Dataflow:
    flow = Dataflow("doubled")
    with flow.region("eager", policy=Eager()):
        twice = flow.source("in", Iterable(range(6), batch=1, epoch_every=2)).map(lambda n: 2 * n, name="twice")
        if exchanged:
            twice = twice.exchange(by=lambda n: n, name="spread")
    twice.key_by(lambda n: 0, name="one").sum(over="time", name="sum").records().capture("out")
    twice.capture("all")
    return flow


def gates(flow: Dataflow) -> list[tuple[str, str]]:
    """The nodes in front of each gate, and behind it."""
    nodes = flow.graph.nodes
    found = []
    for gate in flow.graph.of_kind("gate"):
        before = [nodes[e.source.node].name for e in flow.graph.edges if e.target.node == gate.index]
        found += [(*before, nodes[e.target.node].name) for e in flow.graph.edges if e.source.node == gate.index]
    return found


def test_what_leaves_a_region_or_its_worker_passes_one_gate() -> None:
    assert gates(doubled()) == [("twice", "one"), ("twice", "all")]
    assert len(list(doubled().graph.of_kind("gate"))) == 1
    assert gates(doubled(exchanged=True)) == [("twice", "spread"), ("spread", "one"), ("spread", "all")]
    flow = Dataflow()
    with flow.region("lazy", policy=Lazy(log_outputs=True)):
        inside = flow.source("in", Iterable([1]))
    inside.capture("out")
    assert gates(flow) == []


def test_without_recovery_gates_stand_open() -> None:
    with Session(doubled(exchanged=True)) as session:
        session.run()
        assert session.captured("out") == [((0,), [(0, 2)]), ((1,), [(0, 10)]), ((2,), [(0, 18)])]


@pytest.mark.parametrize("workers", [1, 2])
def test_without_recovery_loops_may_be_in_a_gated_region_and_lead_out_of_it(workers: int) -> None:
    def build(policy: object) -> Dataflow:
        flow = Dataflow("halves")
        with flow.region("all", policy=policy):
            source = flow.source("in", Iterable(range(40), epoch_every=10))
            halves = source.iterate(lambda inner: inner.map(lambda n: n // 2).filter(bool).exchange(by=lambda n: n))
        halves.key_by(lambda n: n).count(name="count").records().capture("out")
        return flow

    found = []
    for policy in (Eager(), Lazy()):
        cluster = Cluster(build(policy), workers, None)
        cluster.run()
        found.append(sorted(pair for _, batch in cluster.captured("out") for pair in batch))
    assert found[0] == found[1]


class Run:
    """One worker with a recorder, fed by hand."""

    def __init__(self) -> None:
        plan = compile_plan(doubled().graph, 1)
        layout = lay_out(plan)
        self.worker = Worker(plan, 0, WorkerRecorder(layout, 0), staged=())
        (self.gate,) = self.worker.gates
        self.source = next(plan.graph.of_kind("source")).index

    def epoch(self, at: int, *records: int) -> None:
        self.worker.feed(self.source, (at,), list(records))
        self.worker.advance(self.source, (at + 1,))
        self.ran()

    def ran(self) -> None:
        assert self.worker.run()
        self.worker.check()

    def out(self) -> list[tuple[str, object]]:
        nodes = self.worker.plan.graph.nodes
        return [(nodes[e.node].name, e.batch) for e in self.worker.take_effects()]  # type: ignore[union-attr]


def test_batches_wait_in_front_of_a_gate_and_hold_the_frontier_behind_it() -> None:
    run = Run()
    run.epoch(0, 1, 2)
    run.epoch(1, 3)
    assert run.out() == []
    assert run.worker.epochs_in_flight(run.source) == 2
    run.worker.open(run.gate, (1,))
    run.ran()
    assert run.out() == [("all", [2, 4]), ("out", [(0, 6)])]
    assert run.worker.epochs_in_flight(run.source) == 1
    run.worker.open(run.gate, (2,))
    run.ran()
    assert run.out() == [("all", [6]), ("out", [(0, 6)])]


def test_what_comes_to_an_open_gate_passes_at_once() -> None:
    run = Run()
    run.worker.open(run.gate, (1,))
    run.epoch(0, 1)
    assert run.out() == [("all", [2]), ("out", [(0, 2)])]
    run.worker.feed(run.source, (1,), [1])
    run.worker.feed(run.source, (1,), [2])
    run.ran()
    assert run.out() == []
    run.worker.open(run.gate, (2,))
    run.ran()
    assert run.out() == [("all", [2, 4])]
    assert not run.worker.done


def test_a_worker_is_not_done_while_something_waits_at_a_gate() -> None:
    run = Run()
    run.worker.feed(run.source, (0,), [1])
    run.worker.advance(run.source, None)
    run.ran()
    assert not run.worker.done
    run.worker.open(run.gate, (1,))
    run.ran()
    assert run.worker.done


@pytest.mark.parametrize(
    ("workers", "shut"),
    [(1, {("spread", "gate-2")}), (3, {("twice", "gate-1"), ("gate-1", "spread"), ("spread", "gate-2")})],
)
def test_gates_within_a_region_shut_where_something_is_exchanged(workers: int, shut: set[tuple[str, str]]) -> None:
    layout = lay_out(compile_plan(doubled(exchanged=True).graph, workers))
    names = [info.name for info in layout.processors]
    assert {(names[edge.source], names[edge.target]) for edge in layout.edges if edge.logged} == shut
