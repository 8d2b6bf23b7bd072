"""`Dataflow`: where a program begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape

from timely.dataflow.columns import Columns
from timely.dataflow.draw import mermaid
from timely.dataflow.graph import Graph, Output, Region, Scope
from timely.dataflow.stream import Stream, view
from timely.dataflow.wire import add_feedback, check_reason
from timely.errors import GraphError, user_site
from timely.io.interface import Source


@dataclass(frozen=True, slots=True)
class Loop:
    """The open end of a loop made with `Dataflow.feedback`; close it with `stream.connect_loop(loop)`."""

    graph: Graph
    node: int


class Dataflow:
    """A dataflow program.

    >>> flow = Dataflow("greeting")
    >>> greetings = flow.input("names").map(lambda name: f"Hello, {name}").capture()

    Every worker builds the same one, so building must not depend on chance, time, or the worker.
    """

    def __init__(self, name: str = "dataflow") -> None:
        self.graph = Graph(name)

    @property
    def name(self) -> str:
        return self.graph.name

    def source(self, name: str, source: Source) -> Stream:
        """A stream of what `source` reads. The name is how its positions are found again after a restart."""
        if not hasattr(source, "partitions") or isinstance(source, type):
            raise GraphError(
                f"{user_site()}: source({name!r}) takes a source, for example Csv(path); {source!r} is none"
            )
        node = self.graph.add_node("source", self.graph.root, name, source=source, inputs=0)
        return Stream(self.graph, self.graph.root, (Output(node.index),))

    def columns(self, name: str, source: Source) -> Columns:
        """Like `source`, with the verbs over columns."""
        return view(self.source(name, source), Columns)

    def input(self, name: str, scope: Scope | None = None) -> Stream:
        """A stream fed by hand, through `Session.input(name)`; inside `scope` its times have that scope's coordinates."""
        scope = scope or self.graph.root
        node = self.graph.add_node("input", scope, name, inputs=0)
        return Stream(self.graph, scope, (Output(node.index),))

    def scope(self, name: str | None = None, parent: Scope | None = None) -> Scope:
        """A nested scope, for a loop made by hand or for sub-batches: see `Stream.enter`."""
        return self.graph.add_scope(name, parent or self.graph.root)

    def feedback(self, scope: Scope, limit: int | None = None, name: str | None = None) -> tuple[Loop, Stream]:
        """A loop made by hand: its open end, and the stream of what comes round, one iteration later."""
        node = add_feedback(self.graph, scope, limit, name)
        return Loop(self.graph, node.index), Stream(self.graph, scope, (Output(node.index),))

    @contextmanager
    def region(self, name: str, policy: object = None, nondeterministic: str | None = None) -> Iterator[Region]:
        """Put the operators that are added inside into one region, with one fault-tolerance policy.

        `nondeterministic`: the reason why they may send something else when they do a time again. Then whoever is behind them
        does that time again too.
        """
        if nondeterministic is not None:
            check_reason(nondeterministic)
        region = Region(name, policy, nondeterministic, gated=bool(getattr(policy, "gated", False)))
        self.graph.enter_region(region)
        try:
            yield region
        finally:
            self.graph.leave_region()

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart: scopes as boxes, exchanges as thick arrows."""
        return mermaid(self.graph)

    def _repr_html_(self) -> str:
        return f'<pre class="mermaid">{escape(self.mermaid())}</pre>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The graph for notebooks: those that know Mermaid draw it, the others print its text."""
        return {"text/vnd.mermaid": self.mermaid(), "text/html": self._repr_html_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, {len(self.graph.nodes)} operators)"
