"""Explanations: input records sufficient to derive an output record.

The program is run with all that it is given, in one epoch, and once more with what is known to be needed, at first with
nothing. As long as that does not give the record as often as it should, the changes of the record are followed backwards, from
operator to operator, at the times at which they happened: what a join sent comes of the pairs that met there and then, the
result of a group of all changes of its key until then, anything else of the same record. Changes are followed as far as
the two runs differ. All inputs at which that ends are needed: so what was lacking is found, and also what kept something away
that must not be there. Each round finds an input record that was not known, or all is as it should be.

(After Chothia et al., *Explaining outputs in modern data analytics*, VLDB 2016, who do that by a dataflow beside the program.)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential.collection import Collection, from_changes
from libraries.differential.joins import Join
from libraries.differential.lookups import Lookup
from libraries.differential.operators import Arrange, Consolidate, Reduce
from libraries.differential.reducers import Distinct, Threshold
from libraries.differential.rows import as_pairs, of_key
from runtime.session.session import Session
from timely.dataflow.graph import Node, Output
from timely.dataflow.wire import Capture
from timely.errors import GraphError, user_site
from timely.operators.borders import Enter, Feedback, Leave
from timely.operators.stateless import Stateless
from timely.time import Time, join, leq

Contents = Mapping[Any, int] | Iterable[Any]
"""Multiplicity of each record; or the records themselves."""

Held = dict[str, dict[Any, int]]
"""Multiplicity of each record, by input."""

Change = tuple[int, Any, Time]
"""Change sent by a node: node, record, time."""


def explain(program: Callable[..., Collection], given: Mapping[str, Contents], record: Any) -> Held:
    """Input records sufficient for `program` to derive `record`.

    They derive it as often as all that is `given`.

    `program` takes a collection for each entry of `given`, in that order. An entry has the records of an input, or how
    often each is there, as `snapshot` tells it for an epoch. The program runs in this process, two times or more, and
    all that its operators send is kept meanwhile. What is found is enough; it need not be the least that is.

    Raises:
        KeyError: for a record that the program does not make.
        GraphError: for a program with operators that are not those of collections.

    >>> from falkirk import differential, graph
    >>> given = {"edges": [(1, 2), (2, 3), (1, 4), (5, 3)], "roots": [1]}
    >>> differential.explain(graph.reach, given, 3)
    {'edges': {(1, 2): 1, (2, 3): 1}, 'roots': {1: 1}}
    """
    whole = {name: dict(held) if isinstance(held, Mapping) else dict(Counter(held)) for name, held in given.items()}
    taped = _Program(program, list(whole))
    right = taped.run(whole)
    times = right.result().get(record, 0)
    if not times:
        raise KeyError(f"the program does not make {record!r:.200}, so there is nothing to explain")
    needed: Held = {name: {} for name in whole}
    found = taped.run(needed)
    while found.result().get(record, 0) != times:
        lacking = [(name, each) for name, each in right.roots(record, found) if each not in needed[name]]
        assert lacking, "two runs that differ have got different inputs"
        for name, each in lacking:
            needed[name][each] = whole[name][each]
        found = taped.run(needed)
    return needed


class _Program:
    """Dataflow of a program with the outputs of all its operators captured."""

    def __init__(self, program: Callable[..., Collection], names: list[str]) -> None:
        self.flow = Dataflow("explained")
        self.names = names
        streams = [self.flow.input(name) for name in names]
        self.inputs = {stream.outputs[0].node: name for stream, name in zip(streams, names, strict=True)}
        made = program(*map(from_changes, streams))
        if not isinstance(made, Collection):
            raise GraphError(
                f"{user_site()}: explain takes a function that gives a collection, not {type(made).__name__}"
            )
        graph = self.flow.graph
        self.nodes = [node for node in graph.nodes if node.outputs]
        self.behind = {
            node.index: [(edge.source.node, edge.target.port) for edge in edges]
            for node, edges in zip(graph.nodes, graph.incoming(), strict=True)
        }
        self.operators = {node.index: self._operator(node) for node in self.nodes}
        self.ends = [output.node for output in made.stream.outputs]
        self.tapes: dict[int, Capture] = {}
        for node in self.nodes:
            scope = node.scope
            if node.kind == "leave":
                assert scope.parent is not None
                scope = scope.parent
            self.tapes[node.index] = Stream(graph, scope, (Output(node.index),)).capture(f"tape {node.index}")

    def _operator(self, node: Node) -> Any:
        if node.stages:
            return Stateless(node.stages)
        operator = node.factory() if node.factory is not None else None
        known = (Reduce, Join, Lookup, Consolidate, Arrange, Enter, Leave, Feedback)
        if node.index not in self.inputs and not isinstance(operator, known):
            raise GraphError(f"explain follows the operators of collections; the {node} is another one")
        return operator

    def run(self, held: Held) -> _Run:
        """Run the program on these contents."""
        with Session(self.flow) as session:
            for name in self.names:
                handle = session.input(name)
                handle.send(list(held[name].items()))
                handle.close()
            session.run()
            return _Run(self, {node: session.captured(tape) for node, tape in self.tapes.items()})


class _Run:
    """Changes of one run, by sending node, record and time."""

    def __init__(self, program: _Program, captured: Mapping[int, Iterable[tuple[Time, Any]]]) -> None:
        self._program = program
        self._sent: dict[int, dict[Any, dict[Time, int]]] = {}
        self._of_key: dict[tuple[int, int], dict[Any, list[Any]]] = {}
        self._made_of: dict[int, dict[Any, list[Any]]] = {}
        for node, batches in captured.items():
            sent: defaultdict[Any, dict[Time, int]] = defaultdict(dict)
            for time, batch in batches:
                for record, by in as_pairs(batch):
                    sent[record][time] = sent[record].get(time, 0) + by
            self._sent[node] = dict(sent)

    def result(self) -> dict[Any, int]:
        """Final multiplicity of each output record."""
        found: Counter[Any] = Counter()
        for node in self._program.ends:
            for record, changes in self._sent[node].items():
                found[record] += sum(changes.values())
        return found

    def by(self, change: Change) -> int:
        """Difference of a change; 0 if there is none."""
        node, record, time = change
        return self._sent[node].get(record, {}).get(time, 0)

    def roots(self, record: Any, other: _Run) -> Iterator[tuple[str, Any]]:
        """Input records in the derivation of a difference of `record` between two runs."""
        waiting: list[Change] = []
        for node in self._program.ends:
            times = self._sent[node].get(record, {}).keys() | other._sent[node].get(record, {}).keys()
            waiting += [(node, record, time) for time in times]
        seen = set(waiting)
        while waiting:
            change = waiting.pop()
            if self.by(change) == other.by(change):
                continue
            if (name := self._program.inputs.get(change[0])) is not None:
                yield name, change[1]
                continue
            for cause in chain(self._causes(*change), other._causes(*change)):
                if cause not in seen:
                    seen.add(cause)
                    waiting.append(cause)

    def _causes(self, node: int, record: Any, time: Time) -> Iterator[Change]:
        """Possible causes in this run of a change of `record` at `time` at a node."""
        operator, behind = self._program.operators[node], self._program.behind[node]
        if isinstance(operator, Join | Lookup):
            yield from self._pairs(node, operator, record, time)
            return
        for source, _ in behind:
            sent = self._sent[source]
            if isinstance(operator, Reduce):
                without_match = isinstance(operator.reducer, Distinct | Threshold)
                for each in [record] if without_match else self._records_of(node, 0, of_key(record)[0]):
                    yield from ((source, each, at) for at in sent.get(each, ()) if leq(at, time))
            elif isinstance(operator, Stateless):
                yield from ((source, each, time) for each in self._made(node, operator).get(record, ()) if each in sent)
            elif isinstance(operator, Enter):
                yield source, record, time[:-1]
            elif isinstance(operator, Leave):
                yield from ((source, record, at) for at in sent.get(record, ()) if at[:-1] == time)
            elif isinstance(operator, Feedback):
                yield source, record, (*time[:-1], time[-1] - 1)
            else:
                yield source, record, time

    def _records_of(self, node: int, port: int, key: Any) -> list[Any]:
        """Records of a key received at a port."""
        if (found := self._of_key.get((node, port))) is None:
            found = self._of_key[node, port] = defaultdict(list)
            sources = [source for source, at in self._program.behind[node] if at == port]
            for record in dict.fromkeys(record for source in sources for record in self._sent[source]):
                found[of_key(record)[0]].append(record)
        return found.get(key, [])

    def _made(self, node: int, operator: Stateless) -> dict[Any, list[Any]]:
        """Inputs of a stateless operator by the record derived from them."""
        if (found := self._made_of.get(node)) is None:
            found = self._made_of[node] = defaultdict(list)
            (stage,) = self._program.flow.graph.nodes[node].stages
            sources = [source for source, _ in self._program.behind[node]]
            for record in dict.fromkeys(record for source in sources for record in self._sent[source]):
                for made, _ in as_pairs(stage.apply([(record, 1)])):
                    found[made].append(record)
        return found

    def _pairs(self, node: int, operator: Join | Lookup, record: Any, time: Time) -> Iterator[Change]:
        """Changes of pairs joined into `record` at `time`."""
        if (found := self._made_of.get(node)) is None:
            found = self._made_of[node] = defaultdict(list)
            asks: Any = operator.question if isinstance(operator, Lookup) else None
            nothing = operator.nothing if isinstance(operator, Join) else None
            select: Any = operator.select if isinstance(operator, Join) else asks.met
            left = dict.fromkeys(
                r for source, port in self._program.behind[node] if not port for r in self._sent[source]
            )
            for one in left:
                key, pair = (one[asks.key], False) if asks else of_key(one)
                value = one if asks else one[1] if pair else nothing
                for other in self._records_of(node, 1, key):
                    found[select(key, value, other[1] if of_key(other)[1] else nothing)].append((one, other))
        for one, other in found.get(record, ()):
            changes = [
                [
                    (source, each, at)
                    for source, to in self._program.behind[node]
                    if to == port
                    for at in self._sent[source].get(each, ())
                    if leq(at, time)
                ]
                for port, each in enumerate((one, other))
            ]
            for left_change in changes[0]:
                for right_change in changes[1]:
                    if join(left_change[2], right_change[2]) == time:
                        yield left_change
                        yield right_change
