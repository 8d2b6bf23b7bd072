"""Execution plan of a worker: validation, fusion, order, and progress graph.

A *processor* is an operator on a worker; a chain of stateless operators is fused into one. With one worker, exchanges
carry nothing and need no place of their own; with several, every exchange is a place where messages may be in flight.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from timely.dataflow.graph import Edge, Graph, Node, Scope
from timely.dataflow.local_exchanges import standing_open, staying
from timely.errors import GraphError
from timely.operators.channels import PIPELINE, Broadcast
from timely.operators.exchange_check import checking_factory, checking_stage
from timely.operators.stateless import Stage
from timely.progress.tracker import Arc, ProgressGraph, Rank
from timely.time import Summary, minimal_summaries

Origins = dict[int, tuple[Summary, ...]]
"""Minimal path summaries to one point of the graph, by place of origin."""


_Child = tuple[int, str]
"""A node ("node") or a scope ("scope") within a scope, by its index."""


class Way(IntEnum):
    """Delivery mode of a batch along a route."""

    PUSH = 0
    QUEUE = 1
    EXCHANGE = 2
    BROADCAST = 3


@dataclass(frozen=True, slots=True)
class Route:
    """Edge as seen by a worker: target processor and port, way, and place.

    Messages in flight are counted at the place.
    """

    edge: Edge
    way: Way
    processor: int
    port: int
    place: int | None


@dataclass(frozen=True, slots=True)
class Processor:
    """Unit of execution on a worker; `nodes` has several for a fused chain.

    Name and policy are those of the last.
    """

    index: int
    nodes: tuple[Node, ...]
    rank: Rank
    routes: tuple[tuple[Route, ...], ...]
    watch: int | None
    place: int | None

    @property
    def node(self) -> Node:
        return self.nodes[-1]

    @property
    def follower(self) -> Route | None:
        """Route to the only consumer of its only output, if called directly."""
        if len(self.routes) == 1 and len(self.routes[0]) == 1 and self.routes[0][0].way == Way.PUSH:
            return self.routes[0][0]
        return None

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(stage for node in self.nodes for stage in node.stages)


@dataclass(frozen=True, slots=True)
class Plan:
    """Execution plan of a graph, equal on all workers."""

    graph: Graph
    workers: int
    processors: tuple[Processor, ...]
    of_node: dict[int, int]
    topology: ProgressGraph
    place_names: tuple[str, ...]
    probes: dict[int, int]
    """Watch of each probe, by node index."""
    ends: dict[int, tuple[int, ...]]
    """Watches of the final points of each source's or input's records, by node index."""
    arrivals: tuple[Origins, ...]
    """Possible origins of messages to a node's inputs, by node index."""
    stays: frozenset[int] = frozenset()
    """Indices of exchanges without movement: see `timely.dataflow.local_exchanges`."""
    standing_open: frozenset[int] = frozenset()
    """Permanently open gates, by node index: see `timely.dataflow.local_exchanges`."""

    def spreads(self, edge: Edge) -> bool:
        """True if `edge` leads from every worker to every worker."""
        return edge.channel != PIPELINE and edge.index not in self.stays

    def upstream(self, processor: int) -> frozenset[int]:
        """Processors upstream of `processor`, and itself."""
        found, todo = {processor}, [processor]
        while todo:
            target = todo.pop()
            for each in self.processors:
                if each.index not in found and any(
                    route.processor == target for routes in each.routes for route in routes
                ):
                    found.add(each.index)
                    todo.append(each.index)
        return frozenset(found)

    def sharers(self, processor: Processor) -> int:
        """Number of workers sharing a processor's input of one time."""
        head = processor.nodes[0].index
        return 1 if any(self.graph.edges[edge].target.node == head for edge in self.stays) else self.workers


def compile_plan(graph: Graph, workers: int = 1) -> Plan:
    """Check `graph` and lay it out for `workers` workers.

    Raises GraphError for a cycle that advances no time, a feedback that nobody connected, or an empty graph.
    """
    _check_feedback(graph)
    ranks = _ranks(graph)
    chains, of_node = _fuse(graph)
    stays = staying(graph, workers)
    incoming = [[edge for edge in edges if workers == 1 or edge.index in stays] for edges in graph.incoming()]
    chains = [(_checked(chain[0], incoming[chain[0].index]), *chain[1:]) for chain in chains]
    places = _Places(graph, workers, ranks, stays)
    arrivals = places.arrivals()
    watches: dict[tuple[tuple[int, Summary], ...], int] = {}

    def watch(node: Node) -> int:
        reach = tuple((place, s) for place, summaries in sorted(arrivals[node.index].items()) for s in summaries)
        return watches.setdefault(reach, len(watches))

    outgoing = graph.outgoing()
    processors = []
    for index, chain in enumerate(chains):
        head, last = chain[0], chain[-1]
        routes: list[list[Route]] = [[] for _ in range(last.outputs)]
        for edge in outgoing[last.index]:
            target = graph.nodes[edge.target.node]
            if target.kind == "probe":
                continue
            way = _way(edge, target, workers == 1 or edge.index in stays)
            routes[edge.source.port].append(
                Route(edge, way, of_node[target.index], edge.target.port, places.of_edge.get(edge.index))
            )
        processors.append(
            Processor(
                index,
                chain,
                ranks[last.index],
                tuple(map(tuple, routes)),
                watch(head) if last.notifies else None,
                places.of_node.get(last.index),
            )
        )
    probes = {node.index: watch(node) for node in graph.of_kind("probe")}
    ends = {node.index: _ends(graph, node, outgoing, watch) for node in graph.of_kind("source", "input")}
    arcs = places.arcs(arrivals)
    topology = ProgressGraph(places.depths, places.ranks, arcs, [list(reach) for reach in watches])
    return Plan(
        graph,
        workers,
        tuple(processors),
        of_node,
        topology,
        tuple(places.names),
        probes,
        ends,
        tuple(arrivals),
        stays,
        standing_open(graph, workers, stays),
    )


def _way(edge: Edge, target: Node, stays: bool) -> Way:
    if target.kind in ("feedback", "gate"):
        return Way.QUEUE
    if edge.channel == PIPELINE or stays:
        return Way.PUSH
    return Way.BROADCAST if isinstance(edge.channel, Broadcast) else Way.EXCHANGE


def _check_feedback(graph: Graph) -> None:
    if not graph.nodes:
        raise GraphError(
            f"{graph.root.site}: the dataflow {graph.name!r} has no operators: begin with flow.source(...) or flow.input(...)"
        )
    incoming = graph.incoming()
    for node in graph.of_kind("feedback"):
        if not incoming[node.index]:
            raise GraphError(f"nothing is connected to the {node}: call connect_loop with the stream that goes round")


def _ranks(graph: Graph) -> list[Rank]:
    """Topological rank of every node, scope by scope, ignoring edges of feedbacks."""
    members: dict[Scope, TopologicalSorter[_Child]] = {scope: TopologicalSorter() for scope in graph.scopes}
    for node in graph.nodes:
        members[node.scope].add((node.index, "node"))
    for scope in graph.scopes[1:]:
        assert scope.parent is not None
        members[scope.parent].add((scope.index, "scope"))
    for edge in graph.edges:
        source, target = graph.nodes[edge.source.node], graph.nodes[edge.target.node]
        if source.kind == "feedback":
            continue
        mine, theirs = source.scope.path(), target.scope.path()
        inner = len(mine) - (source.kind == "leave"), len(theirs) - (target.kind == "enter")  # borders cross over
        common = 0
        while common < min(inner) and mine[common] is theirs[common]:
            common += 1
        begin = (mine[common].index, "scope") if common < len(mine) else (source.index, "node")
        end = (theirs[common].index, "scope") if common < len(theirs) else (target.index, "node")
        members[mine[common - 1]].add(end, begin)
    positions: dict[_Child, int] = {}
    for scope in graph.scopes:
        level = members[scope]
        try:
            level.prepare()
        except CycleError as error:
            raise GraphError(_cycle_message(graph, scope, error.args[1])) from None
        ready = sorted(level.get_ready())
        count = itertools.count()
        while ready:  # of those that may come next, the one that was added to the dataflow first
            child = heappop(ready)
            positions[child] = next(count)
            level.done(child)
            for each in level.get_ready():
                heappush(ready, each)
    return [
        (
            *(positions[scope.index, "scope"] for scope in node.scope.path()[1:]),
            positions[node.index, "node"],
        )
        for node in graph.nodes
    ]


def _cycle_message(graph: Graph, scope: Scope, cycle: Sequence[_Child]) -> str:
    """Error message for a cycle; its first member is repeated at the end."""

    def name(child: _Child) -> str:
        index, kind = child
        if kind == "scope":
            return f"scope {graph.scopes[index].name!r} ({graph.scopes[index].site})"
        return str(graph.nodes[index])

    steps = " -> ".join(name(begin) for begin in cycle[:-1])
    return (
        f"in {scope}, this cycle advances no time, so nothing on it could ever be complete: {steps} -> (the first); "
        "send the stream back through iterate() or feedback(), whose loop counter advances"
    )


def _fuse(graph: Graph) -> tuple[list[tuple[Node, ...]], dict[int, int]]:
    """Chains of stateless nodes to be fused.

    Nothing else is in between; never across a region, a policy, a scope or an exchange.
    """
    incoming, outgoing = graph.incoming(), graph.outgoing()
    follower: dict[int, Node] = {}
    for node in graph.nodes:
        if not node.stages or len(outgoing[node.index]) != 1:
            continue
        edge = outgoing[node.index][0]
        after = graph.nodes[edge.target.node]
        if (
            after.stages
            and len(incoming[after.index]) == 1
            and edge.channel == PIPELINE
            and (after.scope, after.region, after.policy) == (node.scope, node.region, node.policy)
        ):
            follower[node.index] = after
    followers = {node.index for node in follower.values()}
    chains: list[tuple[Node, ...]] = []
    of_node: dict[int, int] = {}
    for node in graph.nodes:
        if node.kind == "probe" or node.index in followers:
            continue
        chain = [node]
        while chain[-1].index in follower:
            chain.append(follower[chain[-1].index])
        for member in chain:
            of_node[member.index] = len(chains)
        chains.append(tuple(chain))
    return chains, of_node


def _checked(node: Node, incoming: list[Edge]) -> Node:
    """`node` with a check of its input for the codec, if no exchange encodes it."""
    channels = {edge.target.port: edge.channel for edge in incoming if edge.channel != PIPELINE}
    if not channels:
        return node
    if node.stages:
        return replace(node, stages=(checking_stage(node.stages[0], channels[0]), *node.stages))
    if node.factory is not None:
        what = f"{node.kind} {node.name!r}"
        return replace(node, factory=checking_factory(node.factory, what, node.site, channels))
    return node


def _ends(graph: Graph, start: Node, outgoing: list[list[Edge]], watch: Callable[[Node], int]) -> tuple[int, ...]:
    """Watches of all final points of records downstream of `start`."""
    seen = {start.index}
    todo = deque([start])
    ends: set[int] = set()
    while todo:
        node = todo.popleft()
        if not outgoing[node.index] and node is not start:
            ends.add(watch(node))
        for edge in outgoing[node.index]:
            if edge.target.node not in seen:
                seen.add(edge.target.node)
                todo.append(graph.nodes[edge.target.node])
    return tuple(sorted(ends))


class _Places:
    """Numbering of places, and path summaries from them to every node."""

    def __init__(self, graph: Graph, workers: int, ranks: list[Rank], stays: frozenset[int]) -> None:
        self._graph = graph
        self._outgoing = graph.outgoing()
        self.of_edge: dict[int, int] = {}
        self.of_node: dict[int, int] = {}
        self.depths: list[int] = []
        self.ranks: list[Rank] = []
        self.names: list[str] = []
        if workers > 1:
            for edge in graph.edges:
                target = graph.nodes[edge.target.node]
                if edge.channel != PIPELINE and target.kind != "probe" and edge.index not in stays:
                    self.of_edge[edge.index] = self._add(
                        target.scope.depth, ranks[target.index], f"exchange to {target}"
                    )
        for node in graph.nodes:
            outside = node.kind in ("source", "input")
            waits = workers > 1 and node.notifies and self._outgoing[node.index]
            if outside or node.holds or waits or node.kind == "gate":
                self.of_node[node.index] = self._add(node.scope.depth, ranks[node.index], str(node))

    def _add(self, depth: int, rank: Rank, name: str) -> int:
        self.depths.append(depth)
        self.ranks.append(rank)
        self.names.append(name)
        return len(self.names) - 1

    def arrivals(self) -> list[Origins]:
        """Summaries of all paths to each node's inputs, as a fixed point."""
        arrivals: list[Origins] = [{} for _ in self._graph.nodes]
        todo = deque(node.index for node in self._graph.nodes)
        waiting = set(todo)
        while todo:
            index = todo.popleft()
            waiting.discard(index)
            leaving = self._departures(index, arrivals)
            for edge in self._outgoing[index]:
                target = edge.target.node
                place = self.of_edge.get(edge.index)
                coming: Origins = leaving if place is None else {place: (Summary.identity(self.depths[place]),)}
                if _absorb(arrivals[target], coming) and target not in waiting:
                    waiting.add(target)
                    todo.append(target)
        return arrivals

    def arcs(self, arrivals: list[Origins]) -> list[Arc]:
        """Edges between places, for progress tracking."""
        arcs = []
        for index, place in self.of_node.items():
            arcs += [Arc(before, place, s) for before, summaries in arrivals[index].items() for s in summaries]
        for edge_index, place in self.of_edge.items():
            leaving = self._departures(self._graph.edges[edge_index].source.node, arrivals)
            arcs += [Arc(before, place, s) for before, summaries in leaving.items() for s in summaries]
        return arcs

    def _departures(self, index: int, arrivals: list[Origins]) -> Origins:
        node = self._graph.nodes[index]
        if index in self.of_node:
            return {self.of_node[index]: (Summary.identity(node.scope.depth),)}
        if node.kind not in ("enter", "leave", "feedback"):
            return arrivals[index]
        return {
            place: minimal_summaries([s.then(node.shift) for s in summaries])
            for place, summaries in arrivals[index].items()
        }


def _absorb(known: Origins, coming: Origins) -> bool:
    changed = False
    for place, summaries in coming.items():
        before = known.get(place, ())
        after = minimal_summaries([*before, *summaries])
        if set(after) != set(before):
            known[place] = after
            changed = True
    return changed
