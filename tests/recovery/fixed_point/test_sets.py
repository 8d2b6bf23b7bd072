"""Bounds that are no prefixes: the algebra of sets, the solvers against the literal fixed point and brute force."""

from __future__ import annotations

import itertools
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.fixed_point.incremental import Report, WatermarkSolver
from recovery.fixed_point.solve import (
    AnyFrontier,
    CheckpointChain,
    PhysicalEdge,
    Restorable,
    last_within,
    solution,
    solve,
)
from recovery.metadata import (
    MORE,
    Bound,
    at_cut,
    cut_within,
    everything,
    holds,
    image,
    inverse,
    meet,
    nothing,
    prefix,
    project,
    steps,
    to_frontier,
    union,
    within,
)
from tests.recovery.fixed_point import literal, times
from tests.recovery.fixed_point.systems import (
    Graph,
    bound,
    graph,
    keeping,
    literal_system,
    of_frontier,
    random_set,
    satisfied,
    survivors,
    with_sets,
)
from timely.time import INF, Frontier, Summary

seeds = st.integers(0, 2**40)
few = settings(max_examples=max(4, settings().max_examples // 5))
TIMES = [(e, i) for e in range(7) for i in (*range(7), INF)]


def test_who_keeps_nothing_goes_back_to_a_set_only_where_it_can() -> None:
    made = (3, 7, MORE, 5)
    edge = PhysicalEdge(0, 1, Summary.identity(2))
    sender = CheckpointChain([(made, (nothing(2),))])
    for sets, expected in ((True, made), (False, (3, 7))):
        assert solve([], [AnyFrontier(made, sets)]) == [expected]
        assert solve([edge], [sender, AnyFrontier(everything(2), sets)]) == [made, expected]


@given(seeds)
def test_the_last_of_rising_sets_within_another_is_found(seed: int) -> None:
    """Behind it, in the order of tuples, there may be any number that are no part of it."""
    random = Random(seed)
    options = [nothing(2)]
    for _ in range(6):
        wider = union(options[-1], random_set(random, 2, 4))
        if wider != options[-1]:
            options.append(wider)
    most = random_set(random, 2, 4)
    assert last_within(options, most) == max(at for at, each in enumerate(options) if within(each, most))


def deep(random: Random) -> Bound:
    """A set of times of three coordinates."""
    return at_cut(random_set(random, 2, 4), 3) if random.random() < 0.5 else _three(random)


def _three(random: Random) -> Bound:
    flat = random_set(random, 2, 4)
    made = [(*step, random.randrange(4)) for step in steps(flat)]
    made = [made[0], *(min(step, (step[0], *before[1:])) for before, step in itertools.pairwise(made))]
    return meet(at_cut(flat, 3), tuple(at for n, step in enumerate(made) for at in ((MORE, *step[1:]) if n else step)))


@given(seeds)
def test_sets_are_what_the_general_frontiers_say(seed: int) -> None:
    random = Random(seed)
    for _ in range(10):
        a, b = (random_set(random, 2, 4) for _ in range(2))
        f, g = to_frontier(a), to_frontier(b)
        assert [holds(a, time) for time in TIMES] == [time in f for time in TIMES]
        assert within(a, b) == (f <= g)
        assert to_frontier(meet(a, b)) == f & g
        assert to_frontier(union(a, b)) == f | g
        assert not within(a, b) or a <= b  # the order of tuples extends inclusion
        assert of_frontier(f) == a
        assert within(prefix(a), a)
        assert not within((*prefix(a)[:-1], prefix(a)[-1] + 1), a)


@given(seeds)
def test_sets_of_deeper_times_too(seed: int) -> None:
    random = Random(seed)
    a, b = deep(random), deep(random)
    f, g = to_frontier(a), to_frontier(b)
    every = [(e, i, j) for e in range(7) for i in (*range(6), INF) for j in (*range(5), INF)]
    assert [holds(a, time) for time in every] == [time in f for time in every]
    assert within(a, b) == (f <= g)
    assert to_frontier(meet(a, b)) == f & g
    assert within(a, union(a, b))
    assert within(b, union(a, b))
    assert within(at_cut(cut_within(a, 2), 3), a)


SUMMARIES = [
    Summary.identity(2),
    Summary.feedback(2),
    Summary.feedback(2, by=2),
    Summary.egress(2),
    Summary.ingress(1),
    Summary.ingress(2),
    Summary.egress(3),
    Summary.feedback(3),
    Summary(2, (1,), (0,)),
    Summary(2, (1, 0), ()),
    Summary.egress(2).then(Summary.ingress(1)),
]


@given(seeds, st.sampled_from(SUMMARIES))
def test_projections_are_safe_and_monotone_and_inverses_exact(seed: int, summary: Summary) -> None:
    random = Random(seed)
    for _ in range(10):
        a, b = (deep(random) if summary.depth == 3 else random_set(random, summary.depth, 4) for _ in range(2))
        b = union(a, b)
        assert to_frontier(project(summary, a)) <= times.projection(summary, to_frontier(a))
        assert within(project(summary, a), project(summary, b))
        assert times.image(summary, to_frontier(a)) <= times.maximal_times(to_frontier(image(summary, a)))
        into = deep(random) if summary.result_depth == 3 else random_set(random, summary.result_depth, 4)
        assert to_frontier(inverse(summary, into)) <= times.preimage(summary, to_frontier(into))
        assert within(inverse(summary, into), inverse(summary, union(into, project(summary, b))))
        if summary.depth == 1 or (summary.depth == 2 == summary.result_depth and summary.add[:1] == (0,)):
            assert to_frontier(inverse(summary, into)) == times.preimage(summary, to_frontier(into))
        if summary.depth == 2 == summary.result_depth and summary.add[:1] == (0,):
            named = range(prefix(a)[0] + len(steps(a)))  # epochs after those it has nothing of
            exact = times.projection(summary, to_frontier(a))
            assert all(holds(project(summary, a), t) == (t in exact) for t in TIMES if t[0] in named)


def equals_the_literal(
    g: Graph, processors: list[Restorable], repeats: list[Bound] | None = None, exact: bool = True
) -> bool:
    """True if the solution has a set that is no prefix. Unless `exact`, it may keep less than the literal one."""
    system = literal_system(g, processors, repeats, sets=True)
    found, expected = solution(g.edges, processors, None, repeats), literal.greatest(system)
    frontiers = [
        None if f is None else of_frontier(f) for f in expected.frontiers if f is None or isinstance(f, Frontier)
    ]
    if exact:
        assert found.frontiers == frontiers
        assert found.notifications == [of_frontier(f) for f in expected.notifications if isinstance(f, Frontier)]
    assert all(best is None or (f is not None and within(f, best)) for f, best in zip(found.frontiers, frontiers))
    assert satisfied(found.frontiers, found.notifications, system) == []
    return any(f is not None and MORE in f for f in found.frontiers)


@given(seeds)
@few
def test_equals_the_literal_fixed_point(seed: int) -> None:
    random = Random(seed)
    g = graph(random, random.randrange(1, 5), inner=True)
    equals_the_literal(g, with_sets(random, g, live=True))


@given(seeds, st.booleans())
@few
def test_equals_the_literal_fixed_point_where_survivors_keep_what_they_have(seed: int, whole: bool) -> None:
    random = Random(seed)
    g, _, repeats = survivors(random, graph(random, random.randrange(1, 5), inner=True))
    processors = [keeping(random, g, p, each, whole) for p, each in enumerate(with_sets(random, g, live=True))]
    # What is no longer kept at a few of the epochs only is taken not to be kept of any that came behind them.
    equals_the_literal(g, processors, repeats, exact=whole)


def test_solutions_have_sets_that_are_no_prefixes() -> None:
    found = 0
    for seed in range(100):
        random = Random(seed)
        g = graph(random, 2, inner=True)
        found += equals_the_literal(g, with_sets(random, g, live=True))
    assert found > 8


@given(seeds)
@few
def test_no_consistent_choice_keeps_more(seed: int) -> None:
    random = Random(seed)
    g = graph(random, random.randrange(1, 4), inner=True)
    processors = with_sets(random, g, live=False)
    if not all(isinstance(each, CheckpointChain) for each in processors):
        return
    system = literal_system(g, processors, sets=True)
    found = solve(g.edges, processors)
    for choice in itertools.product(*([o.frontier for o in processor.options] for processor in system.processors)):
        frontiers = list(choice)
        if literal.violations(system, literal.Choice(frontiers, [f for f in frontiers if f is not None])):
            continue
        assert all(best is not None and within(of_frontier(f), best) for f, best in zip(choice, found))  # type: ignore[arg-type]


@given(seeds, st.booleans())
def test_low_watermarks_equal_the_solution_from_scratch_after_every_report(seed: int, many: bool) -> None:
    random = Random(seed)
    g = graph(random, random.randrange(11, 16) if many else random.randrange(1, 6), inner=True)
    everywhere = with_sets(random, g, live=False)
    to_come: list[list[Report]] = []
    for p, each in enumerate(everywhere):
        if isinstance(each, CheckpointChain):
            to_come.append([(p, at, lost) for at, lost in each.options])
        else:
            bounds = sorted({bound(random, g.depths[p], 3) for _ in range(3)} - {nothing(g.depths[p])})
            to_come.append([(p, at, ()) for at in bounds])
    kinds = [(depth, isinstance(each, CheckpointChain)) for depth, each in zip(g.depths, everywhere)]
    watermarks = WatermarkSolver(kinds, g.edges)
    done: list[list[Report]] = [[] for _ in to_come]
    while any(to_come):
        batch = []
        for p in random.sample([p for p, left in enumerate(to_come) if left], 1):
            batch.append(to_come[p].pop(0))
            done[p].append(batch[-1])
        before = watermarks.values()
        watermarks.tick(batch)
        now: list[Restorable] = [
            CheckpointChain([(at, lost) for _, at, lost in each], g.depths[p])
            if kinds[p][1]
            else AnyFrontier(each[-1][1] if each else nothing(g.depths[p]))
            for p, each in enumerate(done)
        ]
        assert watermarks.values() == solve(g.edges, now)
        assert all(map(within, before, watermarks.values()))
        if random.random() < 0.2:
            watermarks = WatermarkSolver(kinds, g.edges, start=watermarks.values())
            assert watermarks.tick([each for of_one in done for each in of_one]) == []
