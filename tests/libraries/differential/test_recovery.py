"""Collections in jobs that fail: in simulation and for real, what comes out is what comes out without failures."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest

from falkirk import differential, graph
from falkirk.simulate.simulation import Simulation, report
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential import Collection, joins, lookups
from libraries.differential.trace import Trace
from libraries.differential.values import Values
from recovery.policy import Ephemeral, Lazy, LogHistory
from tests.falkirk.simulate.test_unrepeatable_sources import Clients, Job
from tests.libraries.differential.histories import handled
from tests.libraries.differential.test_histories import distances, labels, reachable, reached, strong
from tests.support.profile import effort, tries
from timely.io import Iterable


def edges(flow: Dataflow, nodes: int = 7, size: int = 40, text: bool = False) -> Collection:
    """Edges that come and go, in two partitions."""
    chance, there, changes = Random(7), list[Any](), list[Any]()
    for _ in range(size):
        if there and chance.random() < 0.45:
            changes.append((there.pop(chance.randrange(len(there))), -1))
        else:
            edge = (chance.randrange(nodes), chance.randrange(nodes))
            there.append((f"n{edge[0]}", f"n{edge[1]}") if text else edge)
            changes.append((there[-1], 1))
    parts = [changes[::2], changes[1::2]]
    return differential.from_changes(flow.source("edges", Iterable(partitioned=parts, batch=3, epoch_every=6)))


def least_labels() -> Dataflow:
    """Connected components of named nodes: values are in stores of their own."""
    flow = Dataflow("least labels")
    given = edges(flow, text=True)
    both = given.concat(given.map(lambda edge: (edge[1], edge[0])))
    nodes = both.map(lambda edge: (edge[0], edge[0])).distinct()
    nodes.iterate(
        lambda inner: both.join(inner, lambda node, other, label: (other, label)).concat(nodes).min()
    ).capture("out")
    return flow


def steps() -> Dataflow:
    """Steps from a node, with all that came in full histories."""
    flow = Dataflow("steps")
    given = edges(flow)
    root = given.map_pairs(lambda a, b: a * 0).distinct()
    with flow.region("loop", policy=LogHistory(every=0.2)):
        found = distances(given, root)
    found.count(name="count").capture("out")
    return flow


def strong_parts() -> Dataflow:
    """A loop of loops."""
    flow = Dataflow("strong parts")
    strong(edges(flow, nodes=5, size=24)).capture("out")
    return flow


def cut_between_iterations() -> Dataflow:
    """Few epochs, cut between iterations of their loop."""
    flow = Dataflow("cut between iterations")
    with flow.region("loop", policy=Lazy(every=0.1, log_outputs=True)):
        given = edges(flow, nodes=12, size=48)
        found = labels(given)
    found.capture("out")
    return flow


def shared_trace() -> Dataflow:
    """One trace of named edges, read by a loop, by groups and by a join that takes several events for a time."""
    flow = Dataflow("shared trace")
    ahead = edges(flow, text=True).arrange()
    nodes = ahead.map(lambda edge: edge[1]).distinct()
    labels = nodes.map(lambda node: (node, node)).iterate(
        lambda inner: ahead.join(inner, lambda node, other, label: (other, label)).concat(inner).min()
    )
    ahead.join(ahead, lambda node, a, b: (a, b)).count().join(labels).capture("out")
    ahead.count(name="count").capture("counts")
    return flow


def dense_parts() -> Dataflow:
    """Lookups of a delta join and a loop of counts, which share traces within a region and have their own in another."""
    flow = Dataflow("dense parts")
    given = edges(flow, nodes=6)
    graph.k_core(given, 2).capture("core")
    graph.triangles(given).capture("triangles")
    with flow.region("replayed", policy=LogHistory(every=0.2)):
        found = graph.triangles(given)
    found.map(lambda each: (each[0], each)).count(name="count").capture("out")
    return flow


PROGRAMS: dict[str, Callable[[], Dataflow]] = {
    each.__name__: each
    for each in (least_labels, steps, strong_parts, cut_between_iterations, shared_trace, dense_parts)
}


def heavy() -> Dataflow:
    """Joins of named edges by few keys, one with a shared trace."""
    flow = Dataflow("heavy")
    ahead = edges(flow, nodes=3, text=True).arrange()
    two = ahead.join(ahead.map(lambda edge: (edge[1], edge[0])), lambda node, a, b: (a, b))
    two.join(ahead, lambda _, a, b: (a, b)).capture("out")
    differential.delta_join((ahead, "ab"), (ahead, "bc"), (ahead, "ca")).capture("triangles")
    return flow


@cache
def simulation(name: str, workers: int) -> Simulation:
    return Simulation(PROGRAMS[name], workers)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_comes_out_after_any_faults_is_what_comes_out_without(name: str) -> None:
    for seed in range(tries(3 if name in ("shared_trace", "dense_parts") else effort(3, 9, 9))):
        workers = 1 + seed % 3
        failure = simulation(name, workers).run(seed)
        if failure is not None:
            pytest.fail(report(simulation(name, workers).shrink(failure), f"{name}, seed {seed}"), pytrace=False)


def test_joins_that_take_several_events_for_a_time_are_rolled_back_in_the_midst_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (joins, lookups):
        monkeypatch.setattr(module, "PAIRS_OF_RECORDS", 5)
        monkeypatch.setattr(module, "FEW", 3)
    simulated = Simulation(heavy, 2)
    for seed in range(tries(2)):
        failure = simulated.run(seed)
        if failure is not None:
            pytest.fail(report(simulated.shrink(failure), f"heavy, seed {seed}"), pytrace=False)


@pytest.mark.check
def test_columns_of_lookups_are_rolled_back_in_the_midst_of_a_time() -> None:
    with handled(-1):
        simulated = Simulation(dense_parts, 2)
        for seed in range(tries(3)):
            failure = simulated.run(seed)
            if failure is not None:
                pytest.fail(report(simulated.shrink(failure), f"dense parts, seed {seed}"), pytrace=False)


class Reached(Job):
    """Edges of a path, each sent until it is acknowledged and then never again; nodes that are reached from the first."""

    def __init__(self, workers: int, seed: int) -> None:
        super().__init__(workers, seed, ("kill", "network"))
        for i, client in enumerate(self.clients):
            client.requests = [f"{n}-{n + 1}" for n in range(i, 36, 3)]

    def build(self) -> Dataflow:
        flow = Dataflow("reached")
        with flow.region("front", policy=Ephemeral()):
            source = flow.source("in", Clients(self.clients)).map(lambda request: tuple(map(int, request.split("-"))))
        with flow.region("back", policy=Lazy(every=2)):
            given = differential.from_records(source)
            root = given.map_pairs(lambda a, b: a * 0).distinct()
            reached(given, root).capture("out")
        return flow

    def run(self) -> None:
        """Raises AssertionError if a node was not reached."""
        self.world.run()
        changes = [(time, list(batch)) for (_, _, time), batch in self.world.outside.exactly.items()]
        found = differential.snapshot(changes)
        sent = [
            *(client.requests if client.connections == 1 else client.acknowledged for client in self.clients),
        ]
        want = reachable({tuple(map(int, edge.split("-"))): 1 for edges in sent for edge in edges}, {0: 1})
        assert found.items() >= want.items(), f"{sorted(want.keys() - found)} are not reached"


def test_an_edge_after_a_restore_meets_what_the_loop_knew_of_a_source_that_cannot_be_read_again() -> None:
    restored = 0
    for seed in range(tries(8)):
        job = Reached(1 + seed % 2, seed)
        job.run()
        restored += sum(client.connections > 1 and len(client.acknowledged) > 4 for client in job.clients)
    assert restored > 4


LOST = {
    "values": (Values, "snapshot"),
    "changes": (Trace, "snapshot"),
}


@pytest.mark.parametrize("what", LOST)
def test_a_checkpoint_that_forgets_something_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, method = LOST[what]
    monkeypatch.setattr(kind, method, lambda self, upto, after: [])
    monkeypatch.setattr(kind, "pieces", lambda self, upto, after, rows: iter(()))
    simulated = [Simulation(PROGRAMS[name], 1) for name in ("least_labels", "cut_between_iterations")]
    with handled(-1):
        assert any(each.run(seed) is not None for seed in range(12) for each in simulated)
