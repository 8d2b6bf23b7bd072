"""Histories of reports: after each of them the low-watermarks are what is found from scratch."""

from __future__ import annotations

from random import Random

from recovery.fixed_point.incremental import Report, WatermarkSolver
from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, Restorable, solve
from recovery.metadata import nothing
from tests.recovery.fixed_point import literal
from tests.recovery.fixed_point.ceilings import check
from tests.recovery.fixed_point.systems import (
    Graph,
    as_bounds,
    ascending,
    changing_owners,
    graph,
    literal_system,
    losing,
    options,
)


def reports_of(random: Random, g: Graph, chains: list[bool], largest: int) -> list[list[Report]]:
    """The reports of each processor, in order."""
    found: list[list[Report]] = []
    for p, depth in enumerate(g.depths):
        if chains[p]:
            found.append([(p, b, discards) for b, discards in options(random, g, p, 5, largest)])
        else:
            bounds = sorted(set(ascending(random, depth, 4, largest)) - {nothing(depth)})
            found.append([(p, b, ()) for b in bounds])
    return found


def restorables(g: Graph, chains: list[bool], done: list[list[Report]]) -> list[Restorable]:
    return [
        CheckpointChain([(b, discards) for _, b, discards in each], g.depths[p])
        if chains[p]
        else AnyFrontier(each[-1][1] if each else nothing(g.depths[p]))
        for p, each in enumerate(done)
    ]


def run_history(
    seed: int,
    compiled: bool,
    with_literal: bool,
    fewest: int = 1,
    most: int = 6,
    moving: bool = False,
    lossy: float = 0.0,
) -> None:
    """Report in any order, some twice, alone or in batches, and start anew from what is known in between.

    `lossy`: part of the edges on which nothing is made again. `moving`: some processors are those of one operator on several
    workers.

    `fewest`, `most`: processors. Only among more than ten does a single report look for another witness first.
    """
    random = Random(seed)
    g = graph(random, random.randrange(fewest, most + 1), epochs_only=compiled)
    if lossy:
        g = losing(random, g, lossy)
    if moving:
        g = changing_owners(random, g)
    chains = [random.random() < 0.6 for _ in g.depths]
    kinds = list(zip(g.depths, chains))
    to_come = reports_of(random, g, chains, 3 if with_literal else random.choice([3, 8, 40]))
    done: list[list[Report]] = [[] for _ in to_come]
    watermarks = WatermarkSolver(kinds, g.edges, compiled=compiled)
    first = True
    while any(to_come):
        batch: list[Report] = []
        for _ in range(random.choice([1, 1, 2, 6])):
            left = [p for p, each in enumerate(to_come) if each]
            if not left:
                break
            p = random.choice(left)
            done[p].append(to_come[p].pop(0))
            batch.append(done[p][-1])
            if random.random() < 0.2:
                batch.append(random.choice(done[p]) if chains[p] else done[p][-1])
        before = watermarks.values()
        changed = watermarks.tick(batch)
        check(watermarks._forest, first)
        first = False
        now = restorables(g, chains, done)
        expected = solve(g.edges, now)
        assert watermarks.values() == expected
        assert sorted(changed) == [(p, b) for p, b in enumerate(watermarks.values()) if b != before[p]]
        assert all(b >= was for b, was in zip(watermarks.values(), before))
        if with_literal:
            assert expected == as_bounds(literal.greatest(literal_system(g, now)))
        if random.random() < 0.2:
            watermarks = WatermarkSolver(kinds, g.edges, start=watermarks.values(), compiled=compiled)
            assert watermarks.tick([each for of_one in done for each in of_one if of_one]) == []
            assert watermarks.values() == expected
