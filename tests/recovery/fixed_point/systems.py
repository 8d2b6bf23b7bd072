"""Random dataflows over bounds, and the same as systems of the literal fixed point."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, Live, PhysicalEdge, Restorable
from recovery.metadata import (
    Bound,
    depth_of,
    everything,
    leaving_out,
    nothing,
    of_steps,
    project,
    to_frontier,
    union,
    within,
)
from tests.recovery.fixed_point import literal, times
from timely.time import INF, Frontier, Summary

PORTS = 2
LARGEST = 3
"""Coordinates of random bounds are this large at most, or INF."""


@dataclass(frozen=True)
class Graph:
    """Depths of the processors' times, and edges that fit them."""

    depths: list[int]
    edges: list[PhysicalEdge]


def graph(random: Random, processors: int, epochs_only: bool = False, inner: bool = False) -> Graph:
    """Edges anywhere, so there are cycles of every kind: with and without feedback, and through other scopes.

    `inner`: most of it is in a loop.
    """
    depths = [1 if epochs_only else random.choice([1, 2, 2, *[2] * 9 * inner]) for _ in range(processors)]
    port_depths: dict[tuple[int, int], int] = {}
    edges = []
    for _ in range(random.randrange(2 * processors + 1)):
        source, target = random.randrange(processors), random.randrange(processors)
        port = random.randrange(PORTS)
        if port_depths.setdefault((source, port), depths[target]) != depths[target]:
            continue
        steps = {
            (1, 1): [Summary.identity(1)],
            (2, 2): [Summary.identity(2), Summary.feedback(2), Summary.feedback(2, by=2)],
            (1, 2): [Summary.ingress(1)],
            (2, 1): [Summary.egress(2)],
        }
        edges.append(PhysicalEdge(source, target, random.choice(steps[depths[source], depths[target]]), port))
    return Graph(depths, edges)


def port_depths(g: Graph, p: int) -> list[int]:
    """The depth of the times that leave p by each port."""
    found = [1] * PORTS
    for edge in g.edges:
        if edge.source == p and not edge.same:
            found[edge.port] = edge.summary.result_depth
    return found


def bound(random: Random, depth: int, largest: int = LARGEST) -> Bound:
    """Any bound, of some only rarely."""
    if random.random() < 0.05:
        return everything(depth)
    inner = [
        INF if random.random() < 0.1 else random.choice([0, random.randrange(largest + 1)]) for _ in range(depth - 1)
    ]
    return (random.randrange(largest + 1), *inner)


def ascending(random: Random, depth: int, count: int, largest: int = LARGEST) -> list[Bound]:
    """Bounds that may repeat."""
    return sorted(bound(random, depth, largest) for _ in range(count))


def options(
    random: Random, g: Graph, p: int, most: int = 4, largest: int = LARGEST
) -> list[tuple[Bound, tuple[Bound, ...]]]:
    """The reports that a chain may make: bounds ascend, discards do not descend; some ports log."""
    bounds = sorted(set(ascending(random, g.depths[p], random.randrange(most + 1), largest)) - {nothing(g.depths[p])})
    ports = [
        [nothing(depth)] * len(bounds) if random.random() < 0.4 else ascending(random, depth, len(bounds), largest)
        for depth in port_depths(g, p)
    ]
    return [(each, discards) for each, *discards in zip(bounds, *ports) for discards in [tuple(discards)]]


def restorable(random: Random, g: Graph, p: int, live: bool) -> Restorable:
    """A processor that failed, or, if `live`, perhaps did not."""
    depth = g.depths[p]
    kind = random.randrange(3 if live else 2)
    if kind == 0:
        return AnyFrontier(bound(random, depth))
    if kind == 1:
        return CheckpointChain(options(random, g, p), depth)
    upto = bound(random, depth)
    incoming = [d for d, edge in enumerate(g.edges) if edge.target == p]
    logs = tuple(random.random() < 0.4 for _ in range(PORTS))
    # What is discarded grows with the frontier: at ⊤ at least what it is at the largest from memory, ↓σ(upto).
    discards = [bound(random, at) for at in port_depths(g, p)]
    for edge in g.edges:
        if edge.source == p and not edge.same:
            discards[edge.port] = max(discards[edge.port], image(edge.summary, upto))
    return Live(
        upto,
        {d: max(bound(random, depth), upto) for d in incoming if random.random() < 0.8},
        max(bound(random, depth), upto),
        tuple(nothing(len(each)) if log else each for each, log in zip(discards, logs)),
        logs,
    )


def survivors(random: Random, g: Graph) -> tuple[Graph, list[Restorable], list[Bound]]:
    """A graph in which some edges are suppressed, processors some of which keep messages, and what they repeat."""
    edges = [replace(e, suppressed=e.source != e.target and random.random() < 0.7) for e in g.edges]
    g = Graph(g.depths, edges)
    processors = [keeping(random, g, p, restorable(random, g, p, live=True)) for p in range(len(g.depths))]
    repeats = [random.choice([nothing, everything, lambda depth: bound(random, depth)])(depth) for depth in g.depths]
    return g, processors, repeats


def sending_anew(random: Random, g: Graph) -> Graph:
    """The same graph, where some processors send anew what they do again."""
    anew = {p for p in range(len(g.depths)) if random.random() < 0.4}
    return Graph(g.depths, [replace(e, anew=e.source in anew and e.source != e.target) for e in g.edges])


def changing_owners(random: Random, g: Graph) -> Graph:
    """The same graph, where some processors are those of one operator on several workers, and come back to one bound."""
    edges = list(g.edges)
    for depth in (1, 2):
        of_depth = [p for p, each in enumerate(g.depths) if each == depth]
        random.shuffle(of_depth)
        while len(of_depth) > 1 and random.random() < 0.8:
            first, *others = (of_depth.pop() for _ in range(random.randrange(2, len(of_depth) + 1)))
            for other in others:
                edges += [
                    PhysicalEdge(a, b, Summary.identity(depth), same=True) for a, b in ((first, other), (other, first))
                ]
    return Graph(g.depths, edges)


def losing(random: Random, g: Graph, part: float = 0.5) -> Graph:
    """The same graph, where of some edges the source makes nothing again once it has failed."""
    return Graph(g.depths, [replace(e, lossy=random.random() < part) for e in g.edges])


def keeping(random: Random, g: Graph, p: int, processor: Restorable, whole: bool = False) -> Restorable:
    """The same; if it is alive, it keeps on some edges all that it sent, or, unless `whole`, all but what it sent up to some
    bound.
    """
    if not isinstance(processor, Live):
        return processor
    kept = {
        e: image(
            edge.summary,
            random.choice([nothing, nothing if whole else lambda depth: bound(random, depth)])(g.depths[p]),
        )
        for e, edge in enumerate(g.edges)
        if edge.source == p and edge.suppressed and random.random() < 0.8
    }
    return replace(processor, kept=kept)


def image(summary: Summary, g: Bound) -> Bound:
    """The least bound that holds ↓σ(g), by trying all."""
    reached = times.image(summary, to_frontier(g))
    return next(b for b in every_bound(summary.result_depth) if reached <= to_frontier(b))


def every_bound(depth: int) -> list[Bound]:
    """Every bound that can come up, ascending: feedback adds to the largest."""
    axis = [*range(LARGEST + 9), INF]
    return [
        *sorted(itertools.product(axis[:-1], *[axis] * (depth - 1))),
        (INF,) + (0,) * (depth - 1),
        everything(depth),
    ]


def random_set(random: Random, depth: int, largest: int) -> Bound:
    """Any set, often not a prefix: up to three epochs, none further than the one before."""
    if depth == 1 or random.random() < 0.3:
        return tuple(largest if at == INF else at for at in bound(random, depth, largest))
    first = random.randrange(largest)
    iterations = sorted((random.randrange(largest + 1) for _ in range(random.randrange(1, 4))), reverse=True)
    return of_steps([(first + at, iteration) for at, iteration in enumerate(iterations)])


def growing(random: Random, depth: int, count: int, largest: int) -> list[Bound]:
    """Sets, each of which holds the one before."""
    return list(itertools.accumulate((random_set(random, depth, largest) for _ in range(count)), union))


def with_sets(random: Random, g: Graph, live: bool) -> list[Restorable]:
    """Processors of which chains have persisted any sets, and what is alive has completed any."""
    return [_with_sets(random, g, p, live) for p in range(len(g.depths))]


def _with_sets(random: Random, g: Graph, p: int, live: bool) -> Restorable:
    depth = g.depths[p]
    kind = random.randrange(4 if live else 3)
    if kind == 0:
        return AnyFrontier(bound(random, depth, 2))
    if kind < 3:
        bounds = [each for each in dict.fromkeys(growing(random, depth, random.randrange(4), 2)) if any(each)]
        ports = [
            [nothing(at)] * len(bounds) if random.random() < 0.5 else growing(random, at, len(bounds), 2)
            for at in port_depths(g, p)
        ]
        return CheckpointChain(list(zip(bounds, zip(*ports))), depth)
    upto = random_set(random, depth, 2)
    incoming = [d for d, edge in enumerate(g.edges) if edge.target == p]
    logs = tuple(random.random() < 0.4 for _ in range(PORTS))
    discards = [random_set(random, at, 2) for at in port_depths(g, p)]
    for edge in g.edges:
        if edge.source == p and not edge.same:
            discards[edge.port] = union(discards[edge.port], image(edge.summary, upto))
    return Live(
        upto,
        {d: union(random_set(random, depth, 2), upto) for d in incoming if random.random() < 0.8},
        union(random_set(random, depth, 2), upto),
        tuple(nothing(depth_of(each)) if log else each for each, log in zip(discards, logs)),
        logs,
    )


def every_set(depth: int) -> list[Bound]:
    """Every set that can come up where coordinates are 2 at most, in the order of tuples, which extends inclusion."""
    if depth == 1:
        return every_bound(1)
    columns = [
        sizes
        for count in range(1, 5)
        for sizes in itertools.combinations_with_replacement(range(_HIGHEST, -1, -1), count)
        if count == 1 or sizes[-1]
    ]
    found = (
        of_steps([(first + at, size) for at, size in enumerate(sizes)])
        for first in range(5)
        for sizes in columns
        if first + len(sizes) <= 4 or len(sizes) == 1
    )
    return sorted({*found, *((first, INF) for first in range(5)), everything(2)})


_HIGHEST = 8


def of_frontier(f: Frontier) -> Bound:
    """The bound of a set that one can say."""
    assert f.depth is not None
    return leaving_out(f.antichain, f.depth)


def literal_system(
    g: Graph, processors: Sequence[Restorable], repeats: Sequence[Bound] | None = None, sets: bool = False
) -> literal.System:
    """The same with every option written out. With `sets`, bounds need not be prefixes, and φ is that of the solver."""
    made = []
    for p, processor in enumerate(processors):
        depth = g.depths[p]
        incoming = [d for d, edge in enumerate(g.edges) if edge.target == p]
        outgoing = [(e, edge) for e, edge in enumerate(g.edges) if edge.source == p and not edge.same]

        def option(at: Bound, discarded: dict[int, literal.Met], incoming: list[int] = incoming) -> literal.Option:
            f = to_frontier(at)
            return literal.Option(f, f, dict.fromkeys(incoming, f), discarded)

        found: list[literal.Option] = []
        held: dict[int, literal.Met] = {}
        if isinstance(processor, CheckpointChain):
            found.append(option(nothing(depth), {}))
            for at, discards in processor.options:
                found.append(option(at, {e: to_frontier(discards[edge.port]) for e, edge in outgoing}))
        else:
            logs = processor.logs if isinstance(processor, Live) else (False,) * PORTS
            for at in every_set(depth) if sets and isinstance(processor, Live) else every_bound(depth):
                if within(at, processor.upto):
                    f = to_frontier(at)
                    lost: dict[int, literal.Met] = {
                        e: times.image(edge.summary, f) for e, edge in outgoing if not logs[edge.port]
                    }
                    found.append(option(at, lost))
        if isinstance(processor, Live):
            held = dict.fromkeys(incoming, to_frontier(processor.upto))
            found.append(
                literal.Option(
                    None,
                    to_frontier(processor.notified),
                    {d: to_frontier(at) for d, at in processor.delivered.items()},
                    {e: to_frontier(processor.discards[edge.port]) for e, edge in outgoing},
                )
            )
        gone = {
            e: times.maximal_times(to_frontier(at))
            for e, at in (processor.kept.items() if isinstance(processor, Live) else ())
        }
        again = None if repeats is None else to_frontier(repeats[p])
        failed = not isinstance(processor, Live)
        if failed:
            unasked = {e for e, edge in outgoing if edge.lossy}
            found = [
                replace(each, discarded={e: lost for e, lost in each.discarded.items() if e not in unasked})
                for each in found
            ]
        made.append(literal.Processor(found, Frontier.top(depth), failed, held, gone, again))
    edges = [literal.Edge(e.source, e.target, e.summary, e.suppressed, e.anew) for e in g.edges]
    if not sets:
        return literal.System(made, edges)
    return literal.System(made, edges, lambda summary, f: to_frontier(project(summary, of_frontier(f))))


def lexicographic(f: Frontier) -> Bound:
    """The bound of the largest lexicographic prefix within f."""
    assert f.depth is not None
    return min(f.antichain, default=everything(f.depth))


def as_bounds(choice: literal.Choice) -> list[Bound | None]:
    """The frontiers of the literal fixed point, which are prefixes here."""
    return [None if f is None else lexicographic(f) for f in choice.frontiers if f is None or isinstance(f, Frontier)]


def satisfied(frontiers: list[Bound | None], notifications: list[Bound], system: literal.System) -> list[str]:
    """The constraint that the choice of bounds violates."""
    return literal.violations(
        system,
        literal.Choice(
            [None if b is None else to_frontier(b) for b in frontiers], [to_frontier(b) for b in notifications]
        ),
    )
