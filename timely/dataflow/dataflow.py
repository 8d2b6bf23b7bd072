"""`Dataflow`: builder of dataflow programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from timely.dataflow.draw import mermaid
from timely.dataflow.graph import Graph, Node, Output, Region, Scope
from timely.dataflow.stream import Stream
from timely.dataflow.wire import Loop, add_feedback, add_input, check_reason
from timely.errors import GraphError, user_site
from timely.io.interface import Source

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # that of Python 3.11 has no default

    S_co = TypeVar("S_co", bound=Stream, default=Stream, covariant=True)
else:
    from typing import TypeVar

    S_co = TypeVar("S_co", bound=Stream, covariant=True)


class Dataflow(Generic[S_co]):
    """Dataflow program under construction.

    >>> flow = falkirk.Dataflow("greeting")
    >>> greetings = flow.input("names").map(lambda name: f"Hello, {name}").capture()

    Every worker builds the same one, so building must not depend on chance, time, or the worker.
    """

    _streams: ClassVar[type[Any]] = Stream
    """Kind of its streams: `S_co`, a subclass where a library adds verbs."""

    def __init__(self, name: str = "dataflow") -> None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"{user_site()}: Dataflow takes its name, a text of one character or more, not {name!r}")
        self.graph = Graph(name)

    @property
    def name(self) -> str:
        return self.graph.name

    def source(self, name: str, source: Source) -> S_co:
        """Stream read from `source`; its positions are stored under the name.

        So they are found again after a restart.

        Raises:
            GraphError: `source` is none, or the name is taken.

        >>> flow = falkirk.Dataflow()
        >>> words = flow.source("words", falkirk.Iterable(["to", "be"])).capture("seen")
        >>> falkirk.run(flow).captured("seen")
        [((0,), ['to', 'be'])]
        """
        if not hasattr(source, "partitions") or isinstance(source, type):
            raise GraphError(
                f"{user_site()}: source({name!r}) takes a source, for example Csv(path); {source!r} is none"
            )
        node = self.graph.add_node("source", self.graph.root, name, source=source, inputs=0)
        return self._stream(self.graph.root, node)

    def input(self, name: str, scope: Scope | None = None) -> S_co:
        """Stream fed by hand, through `Session.input(name)`.

        In a nested scope its times have a coordinate for each scope, the slow epoch first: (slow, fast).

        Raises:
            GraphError: the name is taken, or `scope` is none, or in a loop.

        >>> flow = falkirk.Dataflow()
        >>> doubled = flow.input("numbers").map(lambda n: 2 * n).capture("doubled")
        >>> with falkirk.Session(flow) as session:
        ...     numbers = session.input("numbers")
        ...     numbers.send([4])
        ...     numbers.advance_to(1)
        ...     numbers.send([5])
        ...     numbers.close()
        ...     session.run()
        ...     session.captured("doubled")
        [((0,), [8]), ((1,), [10])]
        """
        if scope is not None and not isinstance(scope, Scope):
            raise GraphError(
                f"{user_site()}: an input is fed by hand, and takes no {type(scope).__name__}: say source(name, ...) for "
                "records, or columns(name, ...)"
            )
        scope = scope or self.graph.root
        node = add_input(self.graph, scope, name)
        return self._stream(scope, node)

    def scope(self, name: str | None = None, parent: Scope | None = None) -> Scope:
        """Add a nested scope, for a loop made by hand or for sub-batches.

        See `Stream.enter`.

        Raises:
            GraphError: the name is taken within `parent`.

        >>> flow = falkirk.Dataflow()
        >>> inner = flow.scope("batches")
        >>> items = flow.source("items", falkirk.Iterable([(0, "a"), (1, "b"), (1, "c")]))
        >>> counts = items.enter(inner, at=lambda item: item[0]).map(lambda item: ("n", 1)).keyed().sum(over="time").leave()
        >>> seen = counts.capture("counts")
        >>> falkirk.run(flow).captured("counts")
        [((0,), [('n', 1)]), ((0,), [('n', 2)])]
        """
        return self.graph.add_scope(name, parent or self.graph.root)

    def feedback(
        self, scope: Scope, limit: int | None = None, name: str | None = None, *, delay: int = 1
    ) -> tuple[Loop, S_co]:
        """Loop made by hand: its open end, and its stream, `delay` iterations later.

        A scope may have several loops. With delays that are lengths, iterations are distances: what comes first to a place is
        there at the iteration of its distance.

        Raises:
            GraphError: `scope` is the root scope, or `limit` or `delay` below 1.

        >>> flow = falkirk.Dataflow()
        >>> scope = flow.scope("halving")
        >>> loop, round_again = flow.feedback(scope)
        >>> numbers = flow.source("numbers", falkirk.Iterable([20])).enter(scope).concat(round_again)
        >>> odd, even = numbers.branch(lambda n: n % 2)
        >>> even.map(lambda n: n // 2).connect_loop(loop)
        >>> result = odd.leave().capture("odd")
        >>> falkirk.run(flow).captured("odd")
        [((0,), [5])]
        """
        node = add_feedback(self.graph, scope, limit, name, delay)
        return Loop(self.graph, node.index), self._stream(scope, node)

    @contextmanager
    def region(self, name: str, policy: object = None, nondeterministic: str | None = None) -> Iterator[Region]:
        """Put the operators added inside into one region, with one policy.

        `nondeterministic`: the reason why they may send something else when they do a time again. Then whoever is behind them
        does that time again too.

        Raises:
            GraphError: the name is taken, or the reason empty.

        >>> flow = falkirk.Dataflow()
        >>> words = flow.source("words", falkirk.Iterable(["a", "b", "a"]))
        >>> with flow.region("counts", policy=falkirk.Lazy(every=0.5)):
        ...     counts = words.key_by(str).count()
        >>> seen = counts.capture("counts")
        >>> falkirk.run(flow).captured("counts")
        [((0,), [('a', 2), ('b', 1)])]
        """
        if nondeterministic is not None:
            check_reason(nondeterministic)
        if not isinstance(name, str) or not name:
            raise GraphError(f"{user_site()}: the name of a region is a text of one character or more, not {name!r}")
        if isinstance(policy, str | int | float | list | tuple | dict | type):
            raise GraphError(
                f"{user_site()}: region({name!r}, policy=...) takes a policy, such as falkirk.Lazy(every=1.0) or "
                f"falkirk.Eager(), not {policy!r}"
            )
        region = Region(name, policy, nondeterministic, gated=bool(getattr(policy, "gated", False)))
        self.graph.enter_region(region)
        try:
            yield region
        finally:
            self.graph.leave_region()

    def _stream(self, scope: Scope, node: Node) -> S_co:
        stream: S_co = self._streams(self.graph, scope, (Output(node.index),))
        return stream

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart: scopes as boxes, exchanges as thick arrows.

        >>> flow = falkirk.Dataflow()
        >>> seen = flow.source("numbers", falkirk.Iterable([1])).map(abs).capture("seen")
        >>> print(flow.mermaid().splitlines()[0])
        flowchart LR
        """
        return mermaid(self.graph)

    def _repr_html_(self) -> str:
        return f'<pre class="mermaid">{escape(self.mermaid())}</pre>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The graph for notebooks, as Mermaid, HTML and plain text."""
        return {"text/vnd.mermaid": self.mermaid(), "text/html": self._repr_html_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, {len(self.graph.nodes)} operators)"
