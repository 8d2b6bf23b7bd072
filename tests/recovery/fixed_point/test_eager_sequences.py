"""The cuts of eager regions as what they are in *Falkirk Wheel*: frontiers of sequence numbers (section 2.1).

The literal fixed point is given such processors with a count for each in-edge, and φ as it was recorded: of an epoch into such
a region, how many messages that made; of a cut out of it, which epochs were over (section 3.2). Every edge carries at least
one message an epoch, that it is over. The production solver is given the same by epochs, and must decide the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.fixed_point.incremental import WatermarkSolver
from recovery.fixed_point.solve import CheckpointChain, Live, PhysicalEdge, Restorable, Solution, solution
from recovery.metadata import Bound, to_frontier
from tests.recovery.fixed_point import literal
from tests.recovery.fixed_point.literal import ALL, DELIVERED, DISCARDED
from tests.recovery.fixed_point.test_solve import largest_notifications
from tests.recovery.fixed_point.times import SequenceFrontier
from timely.time import INF, Frontier, Summary

EPOCHS = 4
SAME = Summary.identity(1)


@dataclass(frozen=True)
class Job:
    """A dataflow without loops, some of whose processors are in eager regions, and what happened in its epochs."""

    edges: list[PhysicalEdge]
    eager: list[bool]
    logged: list[bool]
    """By edge. What enters or leaves an eager region is."""
    sent: list[list[int]]
    """By edge: how many messages it had carried when each epoch began, and after the last."""
    saved: list[list[int]]
    """By processor: the epochs before which it made a checkpoint, ascending."""
    alive: list[bool]


def job(random: Random, most: int = 5) -> Job:
    count = random.randrange(2, most + 1)
    eager = [random.random() < 0.5 for _ in range(count)]
    edges: list[PhysicalEdge] = []
    logged: list[bool] = []
    ports = [0] * count
    for target in range(1, count):
        for source in random.sample(range(target), min(target, random.randrange(1, 3))):
            edges.append(PhysicalEdge(source, target, SAME, ports[source]))
            ports[source] += 1
            logged.append(eager[source] != eager[target] or random.random() < 0.4)
    sent = [[0, *accumulate(random.randrange(1, 4) for _ in range(EPOCHS))] for _ in edges]
    saved = [sorted(random.sample(range(1, EPOCHS + 1), random.randrange(EPOCHS + 1))) for _ in range(count)]
    return Job(edges, eager, logged, sent, saved, [random.random() < 0.3 for _ in range(count)])


def by_epochs(of: Job) -> Solution:
    """The decision of the production solver."""
    processors: list[Restorable] = []
    for p, saved in enumerate(of.saved):
        logs = tuple(of.logged[e] for e, edge in enumerate(of.edges) if edge.source == p)
        if of.alive[p]:
            now = (EPOCHS,)
            delivered = {d: now for d, edge in enumerate(of.edges) if edge.target == p}
            processors.append(Live(now, delivered, now, tuple((0,) if log else now for log in logs), logs))
        else:
            options = [((at,), tuple((0,) if log else (at,) for log in logs)) for at in saved]
            processors.append(CheckpointChain(options, 1))
    return solution(of.edges, processors)


def in_edges(of: Job, p: int) -> list[int]:
    """The edges into p. What reads its input itself counts that, on an edge of its own."""
    return [d for d, edge in enumerate(of.edges) if edge.target == p] or [-1]


def frontier(of: Job, p: int, at: int) -> Any:
    """The times of processor p before epoch `at`."""
    if not of.eager[p]:
        return to_frontier((at,))
    return SequenceFrontier.of({d: at if d < 0 else of.sent[d][at] for d in in_edges(of, p)})


def by_numbers(of: Job) -> literal.System:
    """The same where eager processors count messages: as the paper has it."""
    into: list[list[int]] = [[d for d in in_edges(of, p) if d >= 0] for p in range(len(of.eager))]

    def on(e: int, at: int, others: int) -> Any:
        """The times of one edge before epoch `at`, in the domain of its receiver; of its other edges all or none."""
        p = of.edges[e].target
        if not of.eager[p]:
            return to_frontier((at,))
        return SequenceFrontier.of({d: of.sent[d][at] if d == e else others for d in in_edges(of, p)})

    made = []
    for p, saved in enumerate(of.saved):
        out = [e for e, edge in enumerate(of.edges) if edge.source == p]

        def option(at: int, top: bool = False, p: int = p, out: list[int] = out) -> literal.Option:
            known = [e for e in out if of.eager[p] or of.eager[of.edges[e].target]]
            return literal.Option(
                None if top else frontier(of, p, at),
                frontier(of, p, 0) if of.eager[p] else to_frontier((at,)),  # there are no notifications in it
                {d: on(d, at, 0) for d in into[p]},
                {e: on(e, at, 0) for e in out if not of.logged[e]},
                {} if top else {e: on(e, at, INF) for e in known},
            )

        if of.alive[p]:
            options = [*map(option, range(EPOCHS + 1)), option(EPOCHS, top=True)]
        else:
            options = [option(0), *map(option, saved)]
        everything = SequenceFrontier.top(in_edges(of, p)) if of.eager[p] else Frontier.top(1)
        made.append(literal.Processor(options, everything, not of.alive[p], {d: on(d, EPOCHS, 0) for d in into[p]}))
    edges = [
        literal.Edge(e.source, e.target, None if of.eager[e.source] or of.eager[e.target] else SAME) for e in of.edges
    ]
    return literal.System(made, edges)


def as_epochs(of: Job, choice: literal.Choice) -> list[Bound | None]:
    """The chosen frontiers by the epochs that they hold."""
    found: list[Bound | None] = []
    for f in choice.frontiers:
        if f is None:
            found.append(None)
        elif isinstance(f, SequenceFrontier):
            edge, count = f.counts[0]
            found.append(((list(range(EPOCHS + 1)) if edge < 0 else of.sent[edge]).index(count),))
        else:
            assert f.antichain
            found.append(f.antichain[0])
    return found


def epochs_within(of: Job, p: int, times: literal.TimeSet) -> int:
    """The epoch before which all times of processor p are among these, and not all of it are."""
    return max(at for at in range(EPOCHS + 1) if literal.within(frontier(of, p, at), times))


@given(st.integers(0, 2**40))
def test_cuts_at_epochs_are_frontiers_of_sequence_numbers(seed: int) -> None:
    for offset in range(4):
        of = job(Random(seed + offset))
        system, found = by_numbers(of), by_epochs(of)
        choice = literal.greatest(system)
        assert literal.violations(system, choice) == []
        assert as_epochs(of, choice) == found.frontiers
        for p, (f_n, bound) in enumerate(zip(choice.notifications, found.notifications)):
            assert epochs_within(of, p, f_n) == min(bound[0], EPOCHS)


@given(st.integers(0, 2**40))
@settings(max_examples=settings().max_examples // 4)
def test_no_consistent_choice_of_sequence_numbers_keeps_more(seed: int) -> None:
    """Of all options, each with the largest f_n that goes with them."""
    of = job(Random(seed), most=4)
    system, found = by_numbers(of), by_epochs(of).frontiers
    consistent = 0
    for choice in product(*(processor.options for processor in system.processors)):
        frontiers = [option.frontier for option in choice]
        f_n = largest_notifications(system, frontiers)
        if literal.violations(system, literal.Choice(frontiers, f_n)):
            continue
        consistent += 1
        for p, (f, best) in enumerate(zip(frontiers, found)):
            assert best is None or (f is not None and literal.within(f, frontier(of, p, best[0])))
    assert consistent


@given(st.integers(0, 2**40))
def test_low_watermarks_of_cuts_are_those_of_sequence_numbers_after_every_report(seed: int) -> None:
    """All have failed: what the literal fixed point finds of what was reported so far."""
    random = Random(seed)
    whole = job(random)
    ports = [sorted(edge.port for edge in whole.edges if edge.source == p) for p in range(len(whole.eager))]
    watermarks = WatermarkSolver([(1, True)] * len(whole.eager), whole.edges)
    reports = [(p, at) for p, saved in enumerate(whole.saved) for at in saved]
    random.shuffle(reports)
    order = iter(sorted(reports, key=lambda report: report[1]) if random.random() < 0.5 else by_processor(reports))
    saved: list[list[int]] = [[] for _ in whole.eager]
    for p, at in order:
        saved[p].append(at)
        logs = {edge.port: whole.logged[e] for e, edge in enumerate(whole.edges) if edge.source == p}
        watermarks.report(p, (at,), tuple((0,) if logs[port] else (at,) for port in ports[p]))
        of = replace(whole, saved=saved, alive=[False] * len(saved))
        assert watermarks.values() == as_epochs(of, literal.greatest(by_numbers(of)))


def by_processor(reports: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The reports, those of each processor ascending, and mixed as they are."""
    left = {p: sorted(at for q, at in reports if q == p) for p, _ in reports}
    return [(p, left[p].pop(0)) for p, _ in reports]


@pytest.mark.parametrize("constraint", [DELIVERED, DISCARDED])
def test_between_domains_each_constraint_is_needed(constraint: str) -> None:
    for seed in range(500):
        of = job(Random(seed))
        choice = literal.greatest(by_numbers(of), ALL - {constraint})
        if any(of.eager) and as_epochs(of, choice) != by_epochs(of).frontiers:
            return
    raise AssertionError(f"nobody missed {constraint}")
