"""Logical dataflow graph: nodes, ports, scopes and regions of the program.

Every worker builds the same graph from the same program. Nothing here runs; `timely.dataflow.plan` turns a graph into what a
worker executes. Times have one coordinate for each scope that surrounds a node, the root scope's epoch first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from timely.errors import GraphError, Site, user_site
from timely.io.interface import Sink, Source
from timely.operators.base import Operator
from timely.operators.borders import Gate
from timely.operators.channels import PIPELINE, Channel
from timely.operators.stateless import Stage
from timely.time import Summary


def captured_as(name: str) -> str:
    """Node name of a capture `name`, if another operator has that name."""
    return f"{name} (capture)"


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Nested part of the graph; times inside it have `depth` coordinates.

    The depth of the root scope is 1.

    >>> flow = falkirk.Dataflow()
    >>> inner = flow.scope("inner")
    >>> print(flow.scope("innermost", inner))
    inner/innermost
    """

    index: int
    name: str
    parent: Scope | None
    depth: int
    site: Site

    def path(self) -> list[Scope]:
        """Scopes from the root to this one."""
        above = self.parent.path() if self.parent else []
        return [*above, self]

    def __str__(self) -> str:
        return "/".join(scope.name for scope in self.path()[1:]) or "the root scope"


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Named part of the program with one fault-tolerance policy.

    The engine carries the policy but does not look into it.

    >>> flow = falkirk.Dataflow()
    >>> with flow.region("front", policy=falkirk.Ephemeral()) as front:
    ...     words = flow.source("words", falkirk.Iterable(["a"]))
    >>> front.name, front.policy
    ('front', Ephemeral())
    """

    name: str
    policy: object = None
    nondeterministic: str | None = None
    """Reason for declaring all its operators nondeterministic; see `Node`."""
    gated: bool = False
    """True if its outputs pass gates (`timely.operators.borders`), opened by recovery."""


@dataclass(frozen=True, slots=True)
class Output:
    """Output port of a node, the start of edges."""

    node: int
    port: int = 0


@dataclass(frozen=True, slots=True)
class Input:
    """Input port of a node, the end of edges."""

    node: int
    port: int = 0


Factory = Callable[[], Operator]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator, source, sink, probe, or border of a scope.

    `kind` is what the user would call it ("map", "count", "source", "enter", ...). Exactly one of `factory`, `stages`,
    `source`, `sink` is set, except for inputs and probes, which have none. `shift` is the path summary from inputs to
    outputs. `notifies` and `holds` say whether the operator may ask for notifications, or keep capabilities and jobs; `ahead`
    that events may reach into later times: by messages, requests and capabilities that outlive a checkpoint.
    """

    index: int
    name: str
    kind: str
    scope: Scope
    site: Site
    shift: Summary
    region: Region | None = None
    policy: object = None
    inputs: int = 1
    outputs: int = 1
    factory: Factory | None = None
    stages: tuple[Stage, ...] = ()
    source: Source | None = None
    sink: Sink | None = None
    stateful: bool = False
    notifies: bool = False
    holds: bool = False
    ahead: bool = False
    nondeterministic: str | None = None
    """Reason for possibly different output on replay of a time; None: deterministic."""
    reads: tuple[int, ...] = ()
    """Nodes of the same worker with state read directly by this one (`Operator.read`)."""
    require: str | None = None
    """Least guarantee demanded of this sink by the program; None: any."""
    verb: object = None
    """Description of a library's stateful verb, for compilers to other engines."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} ({self.site})"


@dataclass(frozen=True, slots=True)
class Edge:
    """Connection from an output port to an input port, with its channel."""

    index: int
    source: Output
    target: Input
    channel: Channel = PIPELINE


@dataclass(slots=True)
class Graph:
    """Graph under construction; nodes and edges are only ever added.

    Nodes may be given another policy, be declared nondeterministic, and be given more outputs.
    """

    name: str
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    _schemas: dict[Output, Any] = field(default_factory=dict)
    """Schemas of column streams by output, or functions that infer them on demand."""
    _names: dict[str, Node] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _region_stack: list[Region] = field(default_factory=list)
    _gates: dict[tuple[Output, Region | None], Node] = field(default_factory=dict)
    _passed: dict[int, dict[Region, int]] = field(default_factory=dict)
    """Most gates on one path to a node behind a gated region, by node and region."""

    def __post_init__(self) -> None:
        self.scopes.append(Scope(0, "root", None, 1, user_site()))

    @property
    def root(self) -> Scope:
        return self.scopes[0]

    @property
    def region(self) -> Region | None:
        """Region of newly added nodes."""
        return self._region_stack[-1] if self._region_stack else None

    def schema_of(self, output: Output) -> Any:
        """Schema of a stream of columns, or None if unknown.

        See `libraries.columns.schemas.inference`.
        """
        schema = self._schemas.get(output)
        if callable(schema):
            schema = self._schemas[output] = schema()
        return schema

    def set_schema(self, output: Output, schema: Any) -> None:
        """Set a stream's schema, or a function that infers it on demand.

        Inference may have to look at all batches.
        """
        self._schemas[output] = schema

    def add_scope(self, name: str | None, parent: Scope) -> Scope:
        """A new scope inside `parent`."""
        if any(scope.name == name and scope.parent is parent for scope in self.scopes):
            raise GraphError(f"{user_site()}: there is a scope {name!r} in {parent} already; give another name")
        scope = Scope(len(self.scopes), name or self.fresh_name("scope"), parent, parent.depth + 1, user_site())
        self.scopes.append(scope)
        return scope

    def add_node(self, kind: str, scope: Scope, name: str | None = None, **traits: Any) -> Node:
        """A new node; its name, given or made from `kind`, is unique in the graph.

        Raises GraphError when the name is taken, naming both places.
        """
        site = user_site()
        if name is not None and (not isinstance(name, str) or not name):
            raise GraphError(f"{site}: the name of the {kind} is a text of one character or more, not {name!r}")
        if name is not None and name in self._names and (kind == "capture") != (self._names[name].kind == "capture"):
            name = self._beside_a_capture(kind, name)
        if name is not None and name in self._names:
            raise GraphError(
                f"{site}: the name {name!r} is already that of the {self._names[name]}; names are how operators are "
                "found again after a restart, so each must be unique: pass another name="
            )
        name = name if name is not None else self.fresh_name(kind)
        traits.setdefault("shift", Summary.identity(scope.depth))
        region = traits.setdefault("region", self.region)
        traits.setdefault("policy", region.policy if region else None)
        traits.setdefault("nondeterministic", region.nondeterministic if region else None)
        node = Node(len(self.nodes), name, kind, scope, site, **traits)
        self.nodes.append(node)
        self._names[name] = node
        return node

    def _beside_a_capture(self, kind: str, name: str) -> str:
        """Name of a new node beside a capture of the same name, which is renamed.

        The one is asked for by its name, and the other found again by it: that one keeps it, and nobody knows of it.
        """
        if kind == "capture":
            return captured_as(name)
        capture = self._names[name]
        renamed = replace(capture, name=captured_as(name))
        self.nodes[capture.index] = self._names[renamed.name] = renamed
        del self._names[name]
        return name

    def change(self, first: int, last: int, **traits: Any) -> None:
        """Set traits of the nodes `first` to `last` with the policy and region of `last`."""
        before = self.nodes[last]
        for node in self.nodes[first : last + 1]:
            if node.region is before.region and node.policy is before.policy:
                self.nodes[node.index] = self._names[node.name] = replace(node, **traits)

    def add_output(self, index: int) -> Output:
        """Add an output port to a node."""
        node = self.nodes[index]
        self.nodes[index] = self._names[node.name] = replace(node, outputs=node.outputs + 1)
        return Output(index, node.outputs)

    def add_edge(self, source: Output, target: Input, channel: Channel = PIPELINE) -> Edge:
        """Add an edge, through a gate if it leaves a gated region or worker.

        A gate comes in front of an exchange within a gated region, too.

        So does one within such a region that leads past a gate: what comes by the other way waits until all in front of that
        gate is persisted at its time, which can only be if what meets it is not persisted together with that.
        """
        source = self._gated(source, target, channel)
        edge = Edge(len(self.edges), source, target, channel)
        self.edges.append(edge)
        region = self.nodes[target.node].region
        if self._pass_on(source.node, target.node) and region is not None and region.gated:
            for each in self.edges:
                if each.target.node == target.node:
                    self.edges[each.index] = replace(each, source=self._gated(each.source, each.target, each.channel))
        return self.edges[edge.index]

    def _gated(self, source: Output, target: Input, channel: Channel) -> Output:
        """Start of an edge from `source`: itself, or a gate behind it."""
        begin, end = self.nodes[source.node], self.nodes[target.node]
        region = begin.region
        if region is None or not region.gated:
            return source
        crosses = end.region is not region or channel != PIPELINE
        if not crosses and self._gates_before(end, region) <= self._gates_before(begin, region):
            return source
        return self._through_gate(source, begin, end)

    def _gates_before(self, node: Node, region: Region) -> int:
        """The most gates behind nodes of `region` that one way to `node` passes."""
        return self._passed.get(node.index, {}).get(region, 0)

    def _pass_on(self, source: int, target: int) -> bool:
        """Propagate gate counts along an edge; True if any count rises."""
        before = self._passed.get(source)
        if before is None:
            return False
        known = self._passed.setdefault(target, {})
        higher = {region: count for region, count in before.items() if count > known.get(region, 0)}
        known.update(higher)
        return bool(higher)

    def _through_gate(self, source: Output, begin: Node, end: Node) -> Output:
        """Output of a gate behind `source`, in the region of `end`.

        Between two gated regions the gate has no region.
        """
        assert begin.region is not None
        gate = self._gates.get((source, end.region))
        if gate is None:
            of: dict[str, Any] = {"region": end.region}
            if end.region is not None and end.region.gated:
                of = {"region": None, "policy": end.region.policy}
            scope = begin.scope.parent if begin.kind == "leave" else begin.scope
            assert scope is not None
            gate = self._gates[source, end.region] = self.add_node("gate", scope, factory=Gate, **of)
            self.edges.append(Edge(len(self.edges), source, Input(gate.index)))
            self._passed[gate.index] = {
                **self._passed.get(source.node, {}),
                begin.region: 1 + self._gates_before(begin, begin.region),
            }
        return Output(gate.index)

    def enter_region(self, region: Region) -> None:
        """Nodes added from now on belong to `region`."""
        if any(r.name == region.name for r in self.regions):
            raise GraphError(f"{user_site()}: there is a region {region.name!r} already; each needs a name of its own")
        self.regions.append(region)
        self._region_stack.append(region)

    def leave_region(self) -> None:
        """Nodes added from now on belong to the region around."""
        self._region_stack.pop()

    def node_named(self, name: str) -> Node:
        """The node called `name`; GraphError lists the names there are."""
        if name not in self._names:
            raise GraphError(
                f"there is no operator {name!r} in {self.name!r}; there are: {', '.join(sorted(self._names))}"
            )
        return self._names[name]

    def outgoing(self) -> list[list[Edge]]:
        """Outgoing edges of each node, by node index."""
        result: list[list[Edge]] = [[] for _ in self.nodes]
        for edge in self.edges:
            result[edge.source.node].append(edge)
        return result

    def incoming(self) -> list[list[Edge]]:
        """Incoming edges of each node, by node index."""
        result: list[list[Edge]] = [[] for _ in self.nodes]
        for edge in self.edges:
            result[edge.target.node].append(edge)
        return result

    def of_kind(self, *kinds: str) -> Iterator[Node]:
        """The nodes of the given kinds, in the order in which they were made."""
        return (node for node in self.nodes if node.kind in kinds)

    def fresh_name(self, kind: str) -> str:
        """Unused node name made from `kind`, the same in each run of the program."""
        while True:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind}-{self._counts[kind]}"
            if name not in self._names:
                return name
