"""The rollback fixed point as a dataflow, against the literal one and the monitor's, as reports come and processors die."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries import differential
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential import Collection
from libraries.differential.rollback import forms, frontiers
from recovery.fixed_point.solve import CheckpointChain, Live, PhysicalEdge, Restorable, solution
from runtime.session.session import Session
from tests.libraries.differential.histories import PATHS, Change, handled, run
from tests.recovery.fixed_point import literal
from tests.recovery.fixed_point.histories import reports_of, restorables
from tests.recovery.fixed_point.systems import (
    Graph,
    as_bounds,
    graph,
    keeping,
    lexicographic,
    literal_system,
    restorable,
    sending_anew,
)
from timely.time import Frontier, Summary

some = settings(max_examples=settings().max_examples // 4)
runs = {"seed": st.integers(0, 2**40), "path": st.sampled_from(PATHS), "workers": st.integers(1, 3)}


def compared(
    random: Random, g: Graph, states: list[list[Restorable]], path: int, workers: int, literally: bool
) -> None:
    """Go from one state of all processors to the next, an epoch each, and compare after each."""
    epochs: list[list[Change]] = []
    before: set[tuple[int, tuple[object, ...]]] = set()
    for state in states:
        now = {(p, form) for p, each in enumerate(state) for form in forms(each, g.depths[p])}
        gone, come = sorted(before - now, key=repr), sorted(now - before, key=repr)
        epochs.append([*(("p", each, -1) for each in gone), *(("p", each, 1) for each in come)])
        before = now

    def build(processors: Collection) -> Collection:
        return frontiers(processors, g.edges)

    with handled(path):
        found = run(build, ["p"], epochs, workers, random.randrange(1000))
    for state, got in zip(states, found, strict=True):
        right = solution(g.edges, state)
        expected = {
            (p, (bound, at is None)): 1
            for p, (at, bound) in enumerate(zip(right.frontiers, right.notifications, strict=True))
        }
        assert got == expected
        if literally:
            choice = literal.greatest(literal_system(g, state))
            assert [None if live else bound for _, (bound, live) in sorted(got)] == as_bounds(choice)
            assert [bound for _, (bound, _) in sorted(got)] == [
                lexicographic(f) for f in choice.notifications if isinstance(f, Frontier)
            ]


@some
@given(**runs)
def test_low_watermarks_are_those_of_the_monitor_after_any_reports(seed: int, path: int, workers: int) -> None:
    random = Random(seed)
    g = graph(random, random.randrange(1, 7))
    chains = [random.random() < 0.6 for _ in g.depths]
    to_come = reports_of(random, g, chains, random.choice([3, 8, 40]))
    done: list[list[tuple[int, tuple[int, ...], tuple[tuple[int, ...], ...]]]] = [[] for _ in to_come]
    states = [restorables(g, chains, done)]
    while any(to_come):
        for _ in range(random.choice([1, 1, 3])):
            p = random.choice([p for p, each in enumerate(to_come) if each] or [0])
            if to_come[p]:
                done[p].append(to_come[p].pop(0))
        states.append(restorables(g, chains, done))
    compared(random, g, states, path, workers, literally=False)


@some
@given(**runs)
def test_decisions_are_those_of_figure_6_whoever_dies_and_comes_back(seed: int, path: int, workers: int) -> None:
    random = Random(seed)
    g = sending_anew(random, graph(random, random.randrange(1, 6)))
    marked = Graph(g.depths, [replace(edge, suppressed=edge.source != edge.target) for edge in g.edges])

    def another(p: int) -> Restorable:
        """Perhaps one that keeps what it sent."""
        return keeping(random, marked, p, restorable(random, g, p, live=True))

    states = [[another(p) for p in range(len(g.depths))]]
    for _ in range(3):
        p = random.randrange(len(g.depths))
        states.append([another(q) if q == p else each for q, each in enumerate(states[-1])])
    compared(random, g, states, path, workers, literally=True)


def test_who_lives_keeps_what_came_from_who_lives_however_far_that_one_may_be_notified() -> None:
    """The second has been notified up to what the first, who died, comes back to; all that it sent stays with the third."""
    same = Summary.identity(1)
    g = Graph([1] * 3, [PhysicalEdge(0, 1, same), PhysicalEdge(1, 2, same)])
    second = Live((3,), {0: (3,)}, (2,), ((0,), (0,)), (True, True))
    third = Live((3,), {1: (5,)}, (2,), ((0,), (0,)), (True, True))
    state = [CheckpointChain([((3,), ((0,), (0,)))], 1), second, third]
    assert solution(g.edges, state).frontiers == [(3,), None, None]
    compared(Random(1), g, [state], PATHS[1], 1, literally=True)


def test_a_report_changes_what_follows_from_it_and_nothing_else() -> None:
    """Of fifty processors in pairs one reports: it can come back to more, and its neighbour is not held back any more."""
    flow = Dataflow()
    pairs = [PhysicalEdge(p, p + 1, Summary.identity(1)) for p in range(0, 50, 2)]
    out = frontiers(differential.input_of(flow, "p"), pairs).capture("out")
    with Session(flow) as session:
        given = differential.Input(session, "p")
        for p in range(50):
            given.insert_all((p, form) for form in forms(CheckpointChain([((1 + p % 2,), ())], 1), 1))
        given.advance_to(1)
        given.insert((8, ("chain", (2,), ())))
        given.close()
        session.run()
        changes = {epoch: dict(batch) for (epoch,), batch in session.captured(out) if epoch == 1}
    assert changes == {
        1: {(8, ((1,), False)): -1, (8, ((2,), False)): 1, (9, ((0,), False)): -1, (9, ((2,), False)): 1}
    }


@pytest.mark.soak
@given(**runs)
def test_larger_dataflows(seed: int, path: int, workers: int) -> None:
    random = Random(seed)
    g = graph(random, random.randrange(7, 20))
    states = [[restorable(random, g, p, live=True) for p in range(len(g.depths))] for _ in range(3)]
    compared(random, g, states, path, workers, literally=False)
