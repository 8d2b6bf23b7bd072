"""The production solver against the literal fixed point, brute force, and its own constraints."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import NoSolutionError
from recovery.fixed_point import descent
from recovery.fixed_point import solve as solving
from recovery.fixed_point.incremental import WatermarkSolver
from recovery.fixed_point.solve import (
    LIVE,
    AnyFrontier,
    CheckpointChain,
    Live,
    PhysicalEdge,
    Restorable,
    solution,
    solve,
)
from recovery.metadata import MORE, Bound, everything, nothing
from tests.recovery.fixed_point import literal
from tests.recovery.fixed_point.systems import (
    Graph,
    as_bounds,
    ascending,
    graph,
    image,
    keeping,
    lexicographic,
    literal_system,
    port_depths,
    restorable,
    satisfied,
    sending_anew,
    survivors,
)
from timely.time import Frontier, Summary

SAME = Summary.identity(1)
LOOP = Summary.identity(2)
BACK = Summary.feedback(2)
seeds = st.integers(0, 2**40)


def equals_the_literal(g: Graph, processors: list[Restorable], repeats: list[Bound] | None = None) -> None:
    system = literal_system(g, processors, repeats)
    found, expected = solution(g.edges, processors, None, repeats), literal.greatest(system)
    assert found.frontiers == as_bounds(expected)
    assert found.notifications == [lexicographic(f) for f in expected.notifications if isinstance(f, Frontier)]
    assert satisfied(found.frontiers, found.notifications, system) == []


@given(seeds)
def test_equals_the_literal_fixed_point(seed: int) -> None:
    random = Random(seed)
    for _ in range(5):
        g = graph(random, random.randrange(1, 7))
        processors = [restorable(random, g, p, live=True) for p in range(len(g.depths))]
        equals_the_literal(g, processors)


@given(seeds)
def test_equals_the_literal_fixed_point_where_survivors_keep_what_they_have(seed: int) -> None:
    random = Random(seed)
    for _ in range(5):
        g, processors, repeats = survivors(random, graph(random, random.randrange(1, 7)))
        equals_the_literal(g, processors, repeats)


@given(seeds)
def test_going_down_a_cycle_at_once_ends_where_going_round_it_does(seed: int) -> None:
    """A processor that does the same again ends it, too."""
    random = Random(seed)
    for _ in range(20):
        count = random.randrange(1, 4)
        edges = [
            replace(
                PhysicalEdge(random.randrange(count), random.randrange(count), random.choice([LOOP, BACK]), port),
                suppressed=random.random() < 0.8,
            )
            for port in range(random.randrange(2, 6))
        ]
        processors = [AnyFrontier((3, random.randrange(20, 60))) for _ in range(count)]
        repeats: list[Bound] = [(3, random.randrange(30)) if random.random() < 0.6 else (0, 0) for _ in range(count)]
        at_once = solution(edges, processors, None, repeats)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(solving._Descent, "_jump", lambda self, p: None)
            assert solution(edges, processors, None, repeats) == at_once


def test_a_survivor_goes_no_further_down_a_cycle_than_to_what_it_does_again_in_the_same_way() -> None:
    edges = [PhysicalEdge(0, 1, BACK, 0, suppressed=True), PhysicalEdge(0, 1, LOOP, 1, suppressed=True)]
    found = solution(edges, [AnyFrontier((3, 100)), AnyFrontier((3, 100))], None, [(3, 50), (0, 0)])
    assert found.frontiers == [(3, 49), (3, 50)]
    assert found.notifications == [(3, 50), (3, 50)]


def test_what_is_done_again_may_be_a_set_and_so_may_what_it_is_done_again_from() -> None:
    kept: Bound = (3, 7, MORE, 5)
    assert solution([], [CheckpointChain([(kept, ())])], None, [(0, 0)]).notifications == [kept]
    assert solution([], [CheckpointChain([(kept, ())])], None, [(3, 2, MORE, 2)]).frontiers == [kept]


@given(seeds, st.booleans())
def test_equals_the_literal_fixed_point_where_some_send_anew(seed: int, keep: bool) -> None:
    random = Random(seed)
    for _ in range(5):
        g = sending_anew(random, graph(random, random.randrange(1, 7)))
        repeats: list[Bound] | None = None
        if keep:
            g, processors, repeats = survivors(random, g)
        else:
            processors = [restorable(random, g, p, live=True) for p in range(len(g.depths))]
        equals_the_literal(g, processors, repeats)


@given(seeds, st.booleans())
def test_no_consistent_choice_keeps_more(seed: int, keep: bool) -> None:
    random = Random(seed)
    g = graph(random, random.randrange(1, 4), epochs_only=True)
    repeats: list[Bound] | None = None
    if keep:
        g, processors, repeats = survivors(random, g)
    else:
        processors = [restorable(random, g, p, live=True) for p in range(len(g.depths))]
    system = literal_system(g, processors, repeats)
    found = solve(g.edges, processors, None, repeats)
    options = [[(lexi(o.frontier), o.frontier) for o in processor.options] for processor in system.processors]
    for choice in itertools.product(*options):
        frontiers = [f for _, f in choice]
        if literal.violations(system, literal.Choice(frontiers, largest_notifications(system, frontiers))):
            continue
        for (bound, _), best in zip(choice, found):
            assert best is LIVE or (bound is not LIVE and bound <= best)


def lexi(f: literal.TimeSet | None) -> tuple[int, ...] | None:
    return lexicographic(f) if isinstance(f, Frontier) else None


def largest_notifications(system: literal.System, frontiers: list[literal.TimeSet | None]) -> list[literal.TimeSet]:
    """Of all f_n within f and the projections the largest: if that does not hold N̄, none does."""
    f_n = [
        processor.everything if f is None else literal.fixed_with(processor, f)
        for f, processor in zip(frontiers, system.processors)
    ]
    while True:
        new = list(f_n)
        for d, edge in enumerate(system.edges):
            new[edge.target] = literal.both(new[edge.target], system.project(d, f_n[edge.source]))
        if new == f_n:
            return f_n
        f_n = new


@given(seeds)
def test_the_low_watermark_lies_below_every_scenario(seed: int) -> None:
    random = Random(seed)
    g = graph(random, random.randrange(1, 6))
    reported: list[AnyFrontier | CheckpointChain] = []
    logging = []
    for p, depth in enumerate(g.depths):
        logs = tuple(random.random() < 0.4 for _ in port_depths(g, p))
        logging.append(logs)
        bounds = sorted(set(ascending(random, depth, 3)) - {nothing(depth)})
        if random.random() < 0.4:
            logging[p] = (False,) * len(logs)
            reported.append(AnyFrontier(bounds[-1] if bounds else nothing(depth)))
        else:
            reported.append(CheckpointChain([(b, lost(g, p, b, logs)) for b in bounds], depth))
    low = solve(g.edges, reported)
    for _ in range(8):
        scenario = []
        for p, depth in enumerate(g.depths):
            here = reported[p]
            if random.random() < 0.5:
                scenario.append(here)
                continue
            last = (
                here.upto if isinstance(here, AnyFrontier) else here.options[-1][0] if here.options else nothing(depth)
            )
            upto = max(last, *ascending(random, depth, 2))
            at_top = max(upto, *ascending(random, depth, 2))
            into = [d for d, edge in enumerate(g.edges) if edge.target == p]
            delivered = {d: max(at_top, *ascending(random, depth, 1)) for d in into}
            scenario.append(Live(upto, delivered, at_top, lost(g, p, at_top, logging[p]), logging[p], low[p]))
        promised = [each for each in low if each is not None]
        solve(g.edges, scenario, promised)  # raises if anything falls below
        repeats = [random.choice([nothing, everything])(depth) for depth in g.depths]
        ahead = Graph(g.depths, [replace(e, suppressed=e.source != e.target) for e in g.edges])
        kept = [keeping(random, ahead, p, each) for p, each in enumerate(scenario)]
        solve(ahead.edges, kept, promised, repeats)


def lost(g: Graph, p: int, bound: tuple[int, ...], logs: tuple[bool, ...]) -> tuple[tuple[int, ...], ...]:
    """D̄ at `bound`: ↓σ of it where nothing is logged."""
    found = [nothing(depth) for depth in port_depths(g, p)]
    for edge in g.edges:
        if edge.source == p and not logs[edge.port]:
            found[edge.port] = max(found[edge.port], image(edge.summary, bound))
    return tuple(found)


@given(seeds)
def test_jumping_down_cycles_ends_where_plain_descent_does(seed: int) -> None:
    random = Random(seed)
    size = random.randrange(1, 5)
    steps = [LOOP, BACK, Summary.feedback(2, by=3), Summary.egress(2).then(Summary.ingress(1)), Summary(2, (1,), (0,))]
    edges = [
        PhysicalEdge(random.randrange(size), random.randrange(size), random.choice(steps))
        for _ in range(random.randrange(9))
    ]
    processors = [AnyFrontier((random.randrange(4), random.randrange(60))) for _ in range(size)]
    found = solve(edges, processors)
    watermarks = WatermarkSolver([(2, False)] * size, edges)
    watermarks.tick((p, each.upto, ()) for p, each in enumerate(processors))
    patch = pytest.MonkeyPatch()
    with patch.context() as plain:
        plain.setattr(solving, "beneath", lambda steps, bound: bound)
        assert found == solve(edges, processors)
    assert watermarks.values() == found


def test_a_few_jumps_down_a_cycle_go_as_far_as_going_round_it_does() -> None:
    jumps = most = 0
    for seed in range(300):
        random = Random(seed)
        blocks = [
            [descent.Step(0, Summary.feedback(2, random.randrange(1, 5)), random.random() < 0.7)],
            [descent.Step(0, Summary.egress(2), False), descent.Step(0, Summary.ingress(1), False)],
            [descent.Step(0, Summary.ingress(1), True), descent.Step(0, Summary.egress(2), True)],
            [descent.Step(0, Summary(2, (random.randrange(1, 4), 0), ()), True)],
            [descent.Step(0, Summary(2, (1,), (random.randrange(5),)), True)],
        ]
        steps = [step for _ in range(random.randrange(1, 4)) for step in random.choice(blocks)]
        bound = lowest = (random.randrange(30), random.randrange(60))
        while True:
            once = lowest
            for step in steps:
                once = step(once)
            if once >= lowest:
                break
            lowest = once
        found = [bound]
        while (lower := descent.beneath(steps, found[-1])) < found[-1]:
            found.append(lower)
        assert found[-1] == lowest
        most = max(most, len(found) - 1)
        jumps += lowest < bound
    assert jumps > 100
    assert most == 2  # of up to thirty times round


def test_jumping_stops_where_the_cycle_does_not_decrease_any_more() -> None:
    steps = [descent.Step(0, Summary.feedback(2, 3), backwards=True), descent.Step(0, BACK, backwards=False)]
    assert descent.beneath(steps, (4, 1_000_000)) == (4, 1)
    assert descent.beneath(steps, (4, 1)) == (4, 1)


@pytest.mark.parametrize("others", [0, 30])
def test_a_loop_that_logs_nothing_does_not_descend_iteration_by_iteration(others: int) -> None:
    size = 2 + others
    edges = [*(PhysicalEdge(p, p + 1, LOOP) for p in range(size - 1)), PhysicalEdge(size - 1, 0, BACK)]
    processors = [AnyFrontier((7, 10**12 + p)) for p in range(size)]
    assert solve(edges, processors) == [(7, 0)] * size
    watermarks = WatermarkSolver([(2, False)] * size, edges)
    for p, each in enumerate(processors):
        watermarks.completed(p, each.upto)
    assert watermarks.values() == [(7, 0)] * size


def test_what_is_logged_for_later_times_holds_no_sender_back() -> None:
    """Its receiver keeps less than the iteration after, for which nothing was discarded if all such is logged."""
    receiver = CheckpointChain([((3, 5), ((0, 0),))])
    for discarding, kept in ((Summary.identity(2), (3, 5)), (None, (3, 4))):
        edge = PhysicalEdge(0, 1, BACK, discarding=discarding)
        assert solve([edge], [AnyFrontier((3, 9)), receiver]) == [kept, (3, 5)]


def test_survivors_stay_at_top_when_a_stateless_processor_between_them_had_handed_everything_on() -> None:
    source = Live((5,), {}, (5,), ((5,),), (False,))
    target = Live((5,), {1: (5,)}, (5,), (), ())
    edges = [PhysicalEdge(0, 1, SAME), PhysicalEdge(1, 2, SAME)]
    assert solve(edges, [source, AnyFrontier((5,)), target]) == [LIVE, (5,), LIVE]
    # The source had sent what q never reported as complete: it was in q's inbox, and must be sent again.
    source = Live((5,), {}, (5,), ((6,),), (False,))
    assert solve(edges, [source, AnyFrontier((5,)), target]) == [(5,), (5,), LIVE]


def test_no_solution_above_what_was_promised_is_an_error() -> None:
    edges = [PhysicalEdge(0, 1, SAME)]
    lost_everything = CheckpointChain([])
    with pytest.raises(NoSolutionError, match=r"processor 1 .* below its memory at \(3,\)"):
        solve(edges, [lost_everything, Live((5,), {0: (5,)}, (5,), (), (), floor=(3,))])
    with pytest.raises(NoSolutionError, match=r"processor 0 .* below its low-watermark at \(2,\)"):
        solve(edges, [lost_everything, CheckpointChain([])], [(2,), (0,)])
    assert solve(edges, [CheckpointChain([((2,), ())]), CheckpointChain([])], [(2,), (0,)]) == [(2,), (0,)]


def test_a_finished_processor_is_not_a_live_one() -> None:
    finished = CheckpointChain([(everything(1), (everything(1),))])
    # It has sent, and forgotten, everything; the live receiver surely holds only what is complete there.
    receiver = Live((4,), {0: (6,)}, (4,), (), ())
    assert solve([PhysicalEdge(0, 1, SAME)], [finished, receiver]) == [(0,), (0,)]
    finished = CheckpointChain([(everything(1), (nothing(1),))])
    assert solve([PhysicalEdge(0, 1, SAME)], [finished, receiver]) == [everything(1), LIVE]


def test_a_chain_without_edges_or_options_must_tell_its_depth() -> None:
    with pytest.raises(ValueError, match="time domain"):
        solve([], [CheckpointChain([])])
    assert solve([], [CheckpointChain([], depth=2)]) == [(0, 0)]
