"""Base of all streams: place in the graph, and verbs for batches of any kind."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, ClassVar, NoReturn, ParamSpec, Self, TypeVar

import polars as pl
import pyarrow as pa

from timely.data.batch import Batch
from timely.dataflow.graph import Factory, Graph, Input, Node, Output, Scope
from timely.errors import FalkirkError, GraphError, OperatorError, error_text, shown, user_site
from timely.io.interface import Sink
from timely.operators.base import Operator
from timely.operators.borders import Enter, Feedback, Leave
from timely.operators.channels import PIPELINE, Broadcast, Channel, Gather
from timely.operators.faults import fault_of, fault_of_state
from timely.operators.obligations import RepeatsOver, obligations
from timely.operators.stateless import Stage
from timely.time import Summary
from timely.time.times import FINITE

DESCENDING = "the greatest come first, and with reverse=True the least"

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W", bound="Wire")


def check_callable(function: object, verb: str, many: bool = False) -> None:
    """Refuse a non-function, or a function without results.

    The error names the line where it was given.

    Args:
        verb: to which it was given.
        many: it gives several values, so it may be a generator function.
    """
    if not callable(function):
        hint = ""
        if isinstance(function, pl.Expr):
            hint = "; expressions are for columns: to_columns() turns records into such"
        kind = type(function).__name__
        raise GraphError(f"{user_site()}: {verb} takes a function, not {shown(function, 80)} ({kind}){hint}")
    called: Any = function
    while isinstance(called, partial):
        called = called.func
    if not isinstance(called, type) and not inspect.isroutine(called):
        called = called.__call__
    name = getattr(called, "__qualname__", type(function).__name__)
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise GraphError(
            f"{user_site()}: {verb} takes a function that returns its result, and {name} is declared with async def: nobody "
            "awaits what it gives. Declare it with def, or await it inside one by asyncio.run(...)"
        )
    if inspect.isgeneratorfunction(called) and not many:
        hint = (
            "; flat_map takes a function that yields several records"
            if verb in ("map", "map_values", "attempt")
            else ""
        )
        raise GraphError(
            f"{user_site()}: {verb} takes a function that returns one result, and {name} yields: what it gives is a generator. "
            f"Return the result{hint}"
        )


def check_arity(function: Callable[..., Any], verb: str, takes: tuple[str, ...]) -> None:
    """Refuse a function not callable with the arguments `takes`.

    The error names the line where it was given.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some in C do not say what they take
        return
    try:
        signature.bind(*takes)
    except TypeError as error:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise GraphError(
            f"{user_site()}: {verb} takes a function of ({', '.join(takes)}), and {name}{signature} does not fit: {error}"
        ) from None


_OF_MANY: dict[object, str] = {
    sum: "for sums say sum()",
    len: "for the number of values say count()",
    list: "for all values say fold([], lambda so_far, value: [*so_far, value])",
    sorted: "for all values in order fold them into a list, and map_values(sorted)",
    any: "for one that is true say reduce(lambda a, b: a or b)",
    all: "for all that are true say reduce(lambda a, b: a and b)",
}
"""Advice for functions of many values, often passed instead of one of two."""


def check_combine(function: object, verb: str) -> None:
    """Refuse a function not meant to combine two values.

    The error names the line where it was given.
    """
    check_callable(function, verb)
    if (instead := _OF_MANY.get(function)) is not None:
        name = getattr(function, "__name__", "")
        raise GraphError(
            f"{user_site()}: {verb} takes a function of two values, and {name} takes all of them: {instead}"
        )


def check_at_root(stream: Wire, what: str) -> None:
    """Refuse a stream in a nested scope.

    `what` describes the verb, for the message.
    """
    if stream.scope.depth != 1:
        raise GraphError(f"{user_site()}: {what}, but this stream is in {stream.scope}: leave() first")


def check_reason(reason: str) -> None:
    """Refuse an invalid reason, at the line of the call."""
    if not isinstance(reason, str) or not reason:
        raise GraphError(f"{user_site()}: a reason is a text of one character or more, not {reason!r}")


def _checked_factory(factory: Factory, verb: str, name: str) -> Factory:
    """`factory`, wrapped to report the user's line if it makes no operator."""
    site = user_site()
    if isinstance(factory, Operator):
        kind = type(factory).__name__
        raise GraphError(
            f"{site}: {verb} takes what makes an operator, as each worker needs one of its own: give {kind}, not {kind}()"
        )
    check_callable(factory, verb)

    def make() -> Operator:
        try:
            operator = factory()
        except FalkirkError:
            raise
        except Exception as error:
            raise OperatorError(f"the factory of {verb} {name!r} ({site}) failed: {error_text(error)}") from error
        if not isinstance(operator, Operator):
            raise OperatorError(f"the factory of {verb} {name!r} ({site}) made {operator!r}, which is not an Operator")
        if fault := fault_of(type(operator)) or fault_of_state(operator):
            raise OperatorError(f"{verb} {name!r} ({site}): {fault}")
        return operator

    return make


@dataclass(frozen=True, slots=True)
class Probe:
    """Point of the dataflow with observable progress: see `Session.probe`.

    >>> flow = falkirk.Dataflow()
    >>> flow.input("items").probe("done")
    Probe(name='done', node=1)
    """

    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Capture:
    """Point of the dataflow with batches readable by the program.

    See `Result.captured`.

    >>> flow = falkirk.Dataflow()
    >>> flow.source("items", falkirk.Iterable([1])).capture("seen")
    Capture(name='seen', node=1)
    """

    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Loop:
    """Open end of a loop made with `Dataflow.feedback`.

    Close it with `stream.connect_loop(loop)`.

    >>> flow = falkirk.Dataflow()
    >>> loop, round_again = flow.feedback(flow.scope("halving"))
    >>> round_again.filter(lambda n: n > 1).map(lambda n: n // 2).connect_loop(loop)
    """

    graph: Graph
    node: int


_HINTS = {
    **dict.fromkeys(
        ("select", "with_columns", "group_by", "to_records"),
        "that is a verb of columns: turn records into columns by to_columns(), and pairs into records by records() before",
    ),
    **dict.fromkeys(
        ("map", "flat_map", "attempt", "distinct", "to_columns"),
        "that is a verb of records: turn columns into records by to_records(), and pairs by records()",
    ),
    **dict.fromkeys(
        ("reduce", "sum", "min", "max", "count", "fold", "process", "window", "map_values", "values"),
        "that is a verb of pairs (key, value): make them by key_by(...), or say keyed() if records are pairs already",
    ),
}
"""Advice for verbs of other kinds of stream."""


def no_attribute(of: object, name: str, hint: str | None) -> AttributeError:
    """Error for a missing attribute, with advice unless its name begins with `_`."""
    if name.startswith("_"):
        hint = None
    elif (alike := _alike(name, type(of))) is not None:
        hint = f"it is called {alike} here"
    advice = f"; {hint}" if hint else ""
    return AttributeError(f"{type(of).__name__!r} object has no attribute {name!r}{advice}", name=name, obj=of)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _alike(name: str, kind: type) -> str | None:
    """Verb of `kind` meant by another library's spelling: groupBy, withColumns."""
    plain = name.replace("_", "").lower().rstrip("s")
    verbs = [verb for verb in dir(kind) if not verb.startswith("_")]
    return next((verb for verb in verbs if verb.replace("_", "").rstrip("s") == plain), None)


def naming_options(**hints: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator to refuse unknown options, with the user's line.

    Options that are often meant come with a hint.
    """

    def decorate(verb: Callable[P, R]) -> Callable[P, R]:
        options = [
            name
            for name, each in inspect.signature(verb).parameters.items()
            if name != "self" and each.kind != each.VAR_KEYWORD
        ]

        shown_as = verb.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @wraps(verb)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in options:
                    hint = hints.get(name) or f"it has {', '.join(options)}"
                    raise GraphError(f"{user_site()}: {shown_as}() has no option {name}=: {hint}")
            return verb(*args, **kwargs)

        return called

    return decorate


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Wire:
    """Stream of batches: its source output ports, all in one scope.

    There are several after `concat`.

    `first` is the first node of the verb that made it, where that added more than the operator whose output this is.
    """

    graph: Graph
    scope: Scope
    outputs: tuple[Output, ...]
    first: int | None = None

    _hints: ClassVar[Mapping[str, str]] = {}
    """Advice for verbs missing on this kind of stream."""

    def __repr__(self) -> str:
        names = ", ".join(self.graph.nodes[output.node].name for output in self.outputs)
        return f"{type(self).__name__}({names})"

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, name, self._hints.get(name) or _HINTS.get(name) or _HINTS.get(_snake(name)))

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a stream has no records while the program is built: say what to do with each by map(function) or "
            "inspect(function), or capture(name) it, run the dataflow, and read result.captured(name)"
        )

    # Building blocks

    def _attach(
        self,
        kind: str,
        name: str | None,
        channel: Channel = PIPELINE,
        scope: Scope | None = None,
        others: Sequence[tuple[Wire, Channel]] = (),
        **traits: Any,
    ) -> Node:
        """Add a node with this stream as input port 0, and `others` as those after it."""
        self._check_read(kind)
        node = self.graph.add_node(kind, scope or self.scope, name, inputs=1 + len(others), **traits)
        for port, (stream, way) in enumerate(((self, channel), *others)):
            stream._connect(node, port, way)
        return node

    def _check_read(self, verb: str) -> None:
        """Refuse a verb unable to interpret the rows of this stream.

        All that reads a stream comes by here, for its own stream and for others: a kind of stream whose rows are not just rows
        refuses whatever it does not itself give to verbs.

        Raises:
            GraphError: with the user's line.
        """

    def _connect(self, node: Node, port: int, channel: Channel = PIPELINE) -> None:
        self._check_read(node.kind)
        for output in self.outputs:
            self.graph.add_edge(output, Input(node.index, port), channel)

    def _of(self, node: Node, port: int = 0, schema: Any = None) -> Self:
        """Stream of the same kind from `port` of `node`.

        `schema`: of columns, if known.
        """
        output = Output(node.index, port)
        if schema is not None:
            self.graph.set_schema(output, schema)
        return replace(self, scope=node.scope, outputs=(output,), first=None)

    @property
    def schema(self) -> pl.Schema | None:
        """Columns and their Polars types, or None if unknown or not of columns.

        They are known where a source or `to_columns` says them, and behind verbs that do not call functions of the user's.
        """
        found, *others = [self.graph.schema_of(output) for output in self.outputs]
        return found if all(each == found for each in others) else None

    def _stage(
        self,
        kind: str,
        name: str | None,
        apply: Callable[[Batch], Batch],
        each: Callable[[Any], Any] | None = None,
        channel: Channel = PIPELINE,
        schema: Any = None,
        **traits: Any,
    ) -> Self:
        """Add a stateless step.

        `schema` of its output, if known; `traits` are those of its `Stage`.
        """
        site = user_site()
        chosen = name if name is not None else self.graph.fresh_name(kind)
        stage = Stage(chosen, kind, site, apply, each, **traits)
        return self._of(self._attach(kind, chosen, channel, stages=(stage,)), schema=schema)

    def _same_scope(self, other: Wire, verb: str) -> None:
        """Refuse to combine streams of different dataflows or scopes."""
        if not isinstance(other, Wire):
            raise GraphError(
                f"{user_site()}: {verb} takes another stream, not {type(other).__name__}; make a stream of it first: "
                "flow.columns(name, Batches([frame])) or flow.source(name, Iterable(records))"
            )
        if other.graph is not self.graph:
            raise GraphError(f"{user_site()}: {verb} of streams of two dataflows; build both in one Dataflow")
        if other.scope is not self.scope:
            raise GraphError(
                f"{user_site()}: {verb} of a stream in {self.scope} with one in {other.scope}; their times do not "
                "compare: use enter(scope) or leave() first"
            )
        for stream in (self, other):
            stream._check_read(verb)

    # Verbs

    def map_batches(
        self, function: Callable[[Any], Batch], name: str | None = None, *, repeats_over: RepeatsOver = "batch"
    ) -> Self:
        """Replace every batch by `function(batch)`.

        It returns a list for a list, a frame or table for a frame or table.

        The division of a time's records into batches is not fixed, and differs when the time is done again.
        `repeats_over="record"` declares that `function` gives the same in whatever batches they come, as one that handles each
        by itself does.
        Undeclared, survivors of a failure go back with it, and an output that is told at once promises less
        (docs/guarantees.md); whole times come from `sort(..., over="time")` or a Lindi query.

        Raises:
            GraphError: `function` is no function, or `repeats_over` is none of "record", "time" and "batch".

        >>> flow = falkirk.Dataflow()
        >>> result = flow.source("items", falkirk.Iterable([3, 1, 2])).map_batches(sorted).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [1, 2, 3])]
        """
        check_callable(function, "map_batches")
        obligations(repeats_over, 1, f"map_batches ({user_site()})")

        def apply(batch: Batch) -> Batch:
            result = function(batch)
            if not isinstance(result, list | pl.DataFrame | pa.Table):
                raise TypeError(
                    f"it must return a list of records, a Polars frame or an Arrow table, not {type(result).__name__}"
                )
            return result

        return self._stage("map_batches", name, apply, repeats_over=repeats_over)

    def concat(self, *others: Self) -> Self:
        """Merge this stream and `others`; order between them is not kept.

        Raises:
            GraphError: one of `others` is no stream, is of another dataflow, or in another scope.

        >>> flow = falkirk.Dataflow()
        >>> one, two = flow.source("one", falkirk.Iterable([1])), flow.source("two", falkirk.Iterable([2]))
        >>> result = one.concat(two).capture("out")
        >>> sorted(falkirk.run(flow).captured("out"))
        [((0,), [1]), ((0,), [2])]
        """
        for other in others:
            self._same_scope(other, "concat")
        outputs = self.outputs + tuple(o for other in others for o in other.outputs)
        return replace(self, outputs=outputs, first=None)

    def policy(self, policy: object) -> Self:
        """Give this stream's operator its own fault-tolerance policy.

        It takes the place of its region's.

        After `iterate` that is the whole loop, but for what was given another policy inside. The stateless steps that some
        verbs put in front of their operator, as `count` does, stay as they are. The engine carries policies and does not
        look into them.

        Raises:
            GraphError: the stream comes from several operators, after `concat`.

        >>> flow = falkirk.Dataflow()
        >>> words = flow.source("words", falkirk.Iterable(["a", "a"])).key_by(str)
        >>> seen = words.count().policy(falkirk.LogHistory()).capture("counts")
        >>> falkirk.run(flow).captured("counts")
        [((0,), [('a', 2)])]
        """
        own = copy(policy)  # operators with one and the same object belong together: nothing is logged between them
        self._change("policy", policy=own)
        return self

    def nondeterministic(self, reason: str) -> Self:
        """Declare this stream's operator nondeterministic, with the reason.

        It may send something else when it does a time again.

        Then whoever is behind it does that time again too. Regions take such a reason as well.

        Raises:
            GraphError: `reason` is empty, or the stream comes from several operators.

        >>> import random
        >>> flow = falkirk.Dataflow()
        >>> sampled = flow.source("items", falkirk.Iterable(range(9))).filter(lambda _: random.random() < 0.5)
        >>> seen = sampled.nondeterministic("a random sample").capture("some")
        >>> len(falkirk.run(flow).captured("some")) <= 1
        True
        """
        check_reason(reason)
        self._change("nondeterministic", nondeterministic=reason)
        return self

    def _change(self, verb: str, **traits: Any) -> None:
        """Change traits of this stream's operator."""
        if len(self.outputs) != 1:
            raise GraphError(
                f"{user_site()}: {verb}() of {self}, which come from several operators: give each of them its own before "
                "concat, or put them into a region"
            )
        last = self.outputs[0].node
        self.graph.change(last if self.first is None else self.first, last, **traits)

    def broadcast(self, name: str | None = None) -> Self:
        """Send every batch to every worker.

        >>> flow = falkirk.Dataflow()
        >>> result = flow.source("limits", falkirk.Iterable([10])).broadcast().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [10])]
        """
        return self._stage(
            "broadcast", name, _unchanged, channel=Broadcast(), schema=self.schema, repeats_over="record"
        )

    def unary(
        self,
        name: str,
        factory: Factory,
        channel: Channel = PIPELINE,
        *,
        outputs: int = 1,
        notifies: bool = True,
        holds: bool = False,
        stateful: bool = True,
        kind: str = "unary",
    ) -> Self:
        """Custom operator; `factory()` makes its `Operator` on each worker.

        That is a `timely.operators.base.Operator`.

        `notifies` and `holds` declare that it may ask for notifications, and may retain capabilities or start jobs;
        `stateful=False`, that nothing it does at a time matters to what it does at later ones.
        With several `outputs`, `output(n)` gives the streams of the other ports. `kind` is what it is called in the graph.

        Raises:
            GraphError: `factory` is an operator, or no function.

        >>> class Longest(falkirk.Operator):
        ...     def __init__(self):
        ...         self.state = falkirk.TimedValues()
        ...     def on_batch(self, ctx, port, time, batch):
        ...         longest = self.state.at(time)
        ...         longest["word"] = max([longest.get("word", ""), *batch], key=len)
        ...         ctx.notify_at()
        ...     def on_notify(self, ctx, time):
        ...         ctx.send([self.state.pop(time)["word"]])
        >>> flow = falkirk.Dataflow()
        >>> words = flow.source("words", falkirk.Iterable(["a", "abc", "ab"], batch=1))
        >>> seen = words.unary("longest", Longest).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), ['abc'])]
        """
        factory = _checked_factory(factory, "unary", name)
        return self._of(
            self._attach(
                kind,
                name,
                channel,
                factory=factory,
                outputs=outputs,
                notifies=notifies,
                holds=holds,
                stateful=stateful,
                ahead=stateful,
            )
        )

    def binary(
        self,
        other: Wire,
        name: str,
        factory: Factory,
        channel: Channel = PIPELINE,
        other_channel: Channel = PIPELINE,
        *,
        outputs: int = 1,
        notifies: bool = True,
        holds: bool = False,
        stateful: bool = True,
        kind: str = "binary",
    ) -> Self:
        """A custom operator with two inputs: this stream on port 0, `other` on port 1.

        Raises:
            GraphError: `factory` is an operator, or no function; `other` is of another dataflow, or in another scope.

        >>> class Tagged(falkirk.Operator):
        ...     def on_batch(self, ctx, port, time, batch):
        ...         ctx.send([("right" if port else "left", item) for item in batch])
        >>> flow = falkirk.Dataflow()
        >>> left, right = flow.source("left", falkirk.Iterable([1])), flow.source("right", falkirk.Iterable([2]))
        >>> seen = left.binary(right, "tagged", Tagged, stateful=False).capture("out")
        >>> sorted(falkirk.run(flow).captured("out"))
        [((0,), [('left', 1)]), ((0,), [('right', 2)])]
        """
        factory = _checked_factory(factory, "binary", name)
        self._same_scope(other, "binary")
        node = self._attach(
            kind,
            name,
            channel,
            others=[(other, other_channel)],
            factory=factory,
            outputs=outputs,
            notifies=notifies,
            holds=holds,
            stateful=stateful,
            ahead=stateful,
        )
        return self._of(node)

    def output(self, port: int) -> Self:
        """Stream of another output port of the same operator.

        Raises:
            GraphError: the operator has no such port.

        >>> flow = falkirk.Dataflow()
        >>> even, odd = flow.source("items", falkirk.Iterable([1, 2, 3])).branch(lambda n: n % 2 == 0)
        >>> seen = even.output(1).capture("odd")
        >>> falkirk.run(flow).captured("odd")
        [((0,), [1, 3])]
        """
        (output,) = self.outputs
        node = self.graph.nodes[output.node]
        if not 0 <= port < node.outputs:
            raise GraphError(f"{user_site()}: the {node} has outputs 0 to {node.outputs - 1}, not {port}")
        return self._of(node, port)

    def probe(self, name: str | None = None) -> Probe:
        """Add a probe of the progress of this stream.

        >>> flow = falkirk.Dataflow()
        >>> done = flow.input("items").map(print).probe()
        >>> with falkirk.Session(flow) as session:
        ...     items, progress = session.input("items"), session.probe(done)
        ...     items.send(["first"])
        ...     items.advance_to(1)
        ...     session.step_until(lambda: progress.done((0,)))
        ...     items.close()
        first
        """
        node = self._attach("probe", name, outputs=0)
        return Probe(node.name, node.index)

    def capture(self, name: str | None = None) -> Capture:
        """Deliver every batch with its time to the program.

        >>> flow = falkirk.Dataflow()
        >>> seen = flow.source("items", falkirk.Iterable(["a"])).capture("seen")
        >>> falkirk.run(flow).captured(seen)
        [((0,), ['a'])]
        """
        node = self._attach("capture", name, outputs=0)
        return Capture(name or node.name, node.index)

    @naming_options(
        region="a sink is in the region inside of which to() is called: with flow.region(name): stream.to(sink)"
    )
    def to(self, sink: Sink, name: str | None = None, require: str | None = None) -> None:
        """Write the stream to `sink`, epoch by epoch.

        `require`: what failures may do to it at most: "precise" (nothing), "repeating", "convergent", "divergent" or "gap". A
        program that cannot promise that is refused before it starts, as is one without a store (docs/guarantees.md).

        Raises:
            GraphError: `sink` is none, or the stream is in a nested scope.

        >>> flow = falkirk.Dataflow()
        >>> flow.source("items", falkirk.Iterable(["a", "b"])).to(falkirk.Console())
        >>> result = falkirk.run(flow)
        0: a
        0: b
        """
        if not hasattr(sink, "open") or isinstance(sink, type):
            raise GraphError(f"{user_site()}: to() takes a sink, for example FileSink(folder); {sink!r} is none")
        if self.scope.depth != 1:
            raise GraphError(
                f"{user_site()}: a sink takes whole epochs, but this stream is in {self.scope}: leave() first"
            )
        stream = self
        if getattr(sink, "one_writer", False):
            name = name or self.graph.fresh_name("sink")
            stream = self._stage(
                "gather", f"{name}-gather", _unchanged, channel=Gather(name=name), repeats_over="record"
            )
        stream._attach("sink", name, outputs=0, sink=sink, require=require, notifies=True, stateful=True)

    # Scopes

    def enter(self, scope: Scope, at: Callable[[Any], int] | None = None, name: str | None = None) -> Self:
        """This stream inside `scope`, at coordinate 0 or at `at(record)`.

        That must count from the start of the job.

        Raises:
            GraphError: `scope` is none, or not directly inside that of the stream; `at` is no function, or
                it is of columns.

        >>> flow = falkirk.Dataflow()
        >>> scope = flow.scope("by tens")
        >>> numbers = flow.source("numbers", falkirk.Iterable([3, 14, 15])).enter(scope, at=lambda n: n // 10)
        >>> sums = numbers.key_by(lambda n: n // 10).sum(over="time").leave().capture("sums")
        >>> falkirk.run(flow).captured("sums")
        [((0,), [(0, 3)]), ((0,), [(1, 29)])]
        """
        if not isinstance(scope, Scope):
            raise GraphError(f"{user_site()}: enter takes a scope made with flow.scope(name), not {scope!r}")
        if scope.parent is not self.scope:
            raise GraphError(
                f"{user_site()}: a stream in {self.scope} cannot enter {scope}, which is inside {scope.parent}; "
                "enter scopes one by one"
            )
        if at is not None:
            check_callable(at, "enter(at=)")
            if self.schema is not None:
                raise GraphError(
                    f"{user_site()}: enter(at=) takes records, and these are columns: use to_records() before"
                )
        shift = Summary.ingress(self.scope.depth)
        node = self._attach("enter", name, scope=scope, shift=shift, factory=lambda: Enter(at))
        return self._of(node, schema=self.schema)

    def leave(self, name: str | None = None) -> Self:
        """Move this stream to the parent scope: one coordinate less.

        Raises:
            GraphError: the stream is in the root scope.

        >>> flow = falkirk.Dataflow()
        >>> inside = flow.source("numbers", falkirk.Iterable([1, 2])).enter(flow.scope("inner")).map(lambda n: n + 1)
        >>> outside = inside.leave().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [2, 3])]
        """
        parent = self.scope.parent
        if parent is None:
            raise GraphError(f"{user_site()}: this stream is in the root scope, which cannot be left")
        node = self._attach("leave", name, shift=Summary.egress(self.scope.depth), factory=Leave)
        return replace(self._of(node, schema=self.schema), scope=parent)

    def connect_loop(self, loop: Loop) -> None:
        """Send this stream round `loop`.

        It comes out of the loop's stream one iteration later, or its `delay`.

        Raises:
            GraphError: `loop` is of another dataflow or scope, or connected already.

        >>> flow = falkirk.Dataflow()
        >>> scope = flow.scope("countdown")
        >>> loop, again = flow.feedback(scope)
        >>> numbers = flow.source("start", falkirk.Iterable([2])).enter(scope).concat(again)
        >>> numbers.filter(lambda n: n > 0).map(lambda n: n - 1).connect_loop(loop)
        >>> seen = numbers.leave().capture("seen")
        >>> [batch for _, batch in falkirk.run(flow).captured("seen")]
        [[2], [1], [0]]
        """
        node = self.graph.nodes[loop.node] if loop.graph is self.graph else None
        if node is None:
            raise GraphError(f"{user_site()}: connect_loop with a loop of another dataflow; build both in one Dataflow")
        if node.scope is not self.scope:
            raise GraphError(f"{user_site()}: a stream in {self.scope} cannot go round the loop of {node.scope}")
        if loop.node in {edge.target.node for edge in self.graph.edges}:
            raise GraphError(f"{user_site()}: the {node} is connected already; concat the streams first")
        self._connect(node, 0)

    def iterate(
        self, body: Callable[[Self], Self | tuple[Self, Self]], limit: int | None = None, name: str | None = None
    ) -> Self:
        """Run `body` in a loop until no records are fed back, or for `limit` iterations.

        `body` is given what enters and what comes round, as one stream in a scope of its own; it returns the stream that
        goes round again, or a pair (again, out). What leaves the loop is `out`; by default all that goes round.
        The user's obligation: that the stream which goes round ends by itself, or `limit`.

        Raises:
            GraphError: `body` is no function, or returns a stream that is not inside of the loop; `limit` is below 1.

        >>> flow = falkirk.Dataflow()
        >>> edges = {1: [2], 2: [3], 3: [1]}
        >>> start = flow.source("start", falkirk.Iterable([1]))
        >>> seen = start.iterate(lambda nodes: nodes.distinct().flat_map(edges.get), limit=10).capture("reached")
        >>> sorted({node for _, batch in falkirk.run(flow).captured("reached") for node in batch})
        [1, 2, 3]
        """
        check_callable(body, "iterate")
        scope = self.graph.add_scope(name, self.scope)
        back = add_feedback(self.graph, scope, limit, f"{scope.name}-feedback")
        again = replace(self, scope=scope, outputs=(Output(back.index),), first=None)
        result = body(self.enter(scope, name=f"{scope.name}-enter").concat(again))
        if isinstance(result, tuple) and len(result) != 2:
            raise GraphError(
                f"{user_site()}: the body of iterate() returns the stream that goes round again, or a pair (again, out), not "
                f"{len(result)} of them"
            )
        round_again, out = result if isinstance(result, tuple) else (result, result)
        for stream in (round_again, out):
            if not isinstance(stream, Wire) or stream.scope is not scope:
                raise GraphError(
                    f"{user_site()}: the body of iterate() must return a stream that it made from its argument"
                )
        round_again._connect(back, 0)
        return replace(out.leave(name=f"{scope.name}-leave"), first=back.index)


def view(stream: Wire, kind: type[W]) -> W:
    """The same stream, with the verbs of `kind`."""
    return kind(stream.graph, stream.scope, stream.outputs, stream.first)


def add_feedback(graph: Graph, scope: Scope, limit: int | None, name: str | None, delay: int = 1) -> Node:
    """A feedback node in `scope`, not yet connected."""
    if scope.depth < 2:
        raise GraphError(f"{user_site()}: a loop needs a scope of its own: flow.scope(name), or stream.iterate(body)")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise GraphError(f"{user_site()}: a loop's limit is a number of iterations from 1 up, not {limit!r}")
    if not isinstance(delay, int) or isinstance(delay, bool) or not 1 <= delay < FINITE:
        raise GraphError(
            f"{user_site()}: a loop's delay is a number of iterations from 1 up, by which what goes round is later, not "
            f"{delay!r}"
        )
    for fed in graph.of_kind("input"):
        if scope in fed.scope.path():
            raise GraphError(f"{user_site()}: no loop can be in {scope}, where the {fed} is: {_FEED_OUTSIDE}")
    shift = Summary.feedback(scope.depth, delay)
    return graph.add_node("feedback", scope, name, shift=shift, factory=lambda: Feedback(limit, delay))


_FEED_OUTSIDE = "times in a loop count its iterations, so feed it from outside, by enter(scope)"


def add_input(graph: Graph, scope: Scope, name: str) -> Node:
    """A new input in `scope`; GraphError if that is in a loop."""
    for loop in graph.of_kind("feedback"):
        if loop.scope in scope.path():
            raise GraphError(f"{user_site()}: the input {name!r} cannot be in the loop of the {loop}: {_FEED_OUTSIDE}")
    return graph.add_node("input", scope, name, inputs=0)


def _unchanged(batch: Batch) -> Batch:
    return batch
