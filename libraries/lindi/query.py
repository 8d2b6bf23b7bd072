"""Base of queries over records and over columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Self, TypeVar

from recovery.policy import Batch as BatchPolicy
from timely.data.batch import Batch, concat
from timely.dataflow.wire import Capture, Probe, Wire, check_callable
from timely.errors import GraphError, user_site
from timely.io.interface import Sink
from timely.operators.base import Context, Operator
from timely.operators.channels import Exchange
from timely.state import Parts, TimedBatches
from timely.time import Time

EachTimeFunction = Callable[..., Batch]
"""Function of each input's batch, or None for an input without data."""


class EachTime(Operator):
    """Applies `function` to all data of a time, once."""

    repeats_over = "time"

    def __init__(self, inputs: int, function: EachTimeFunction) -> None:
        self._held = tuple(TimedBatches() for _ in range(inputs))
        self._function = function
        self.state = Parts(*self._held)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._held[port].add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        came = [each.pop(time) for each in self._held]
        ctx.send(self._function(*(concat(batches) if batches else None for batches in came)))


W = TypeVar("W", bound=Wire)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Base(Generic[W]):
    """Query: a stream, each time computed separately."""

    stream: W

    def __post_init__(self) -> None:
        self.stream._check_read(type(self).__name__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stream!r})"

    def concat(self, *others: Self) -> Self:
        """All output of this query and `others`.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> mine = lindi.Query(flow.source("mine", falkirk.Iterable([1, 2])))
        >>> theirs = lindi.Query(flow.source("theirs", falkirk.Iterable([2, 3])))
        >>> seen = mine.concat(theirs).capture("out")
        >>> sorted(record for _, batch in falkirk.run(flow).captured("out") for record in batch)
        [1, 2, 2, 3]
        """
        return replace(self, stream=self.stream.concat(*(each.stream for each in others)))

    def iterate(self, body: Callable[[Self], Self], limit: int | None = None, name: str | None = None) -> Self:
        """Feed the output of `body` back into it, and give all rounds' records.

        Until there are none, or `limit` times.

        Raises:
            GraphError: `body` is no function, or returns what it did not make of its argument; `limit` is below 1.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([5])))
        >>> seen = items.iterate(lambda n: n.where(lambda n: n > 3).select(lambda n: n - 1)).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [4]), ((0,), [3])]
        """
        check_callable(body, "iterate")
        return replace(
            self, stream=self.stream.iterate(lambda inner: body(replace(self, stream=inner)).stream, limit, name)
        )

    def logged(self) -> Self:
        """Copy of the query with logged output.

        A failure downstream then repeats nothing of this step, or upstream of it.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([1, 2])))
        >>> seen = items.select(lambda n: n + 1).logged().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [2, 3])]
        """
        return replace(self, stream=self.stream.policy(BatchPolicy(log_outputs=True)))

    def capture(self, name: str | None = None) -> Capture:
        """Give every batch, with its time, to whoever runs the dataflow.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([1])))
        >>> seen = items.select(abs).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [1])]
        """
        return self.stream.capture(name)

    def probe(self, name: str | None = None) -> Probe:
        """Watch the progress of the query."""
        return self.stream.probe(name)

    def to(self, sink: Sink, name: str | None = None, require: str | None = None) -> None:
        """Write the query's output to `sink`, epoch by epoch.

        `require` as for streams: what failures may do to it.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> lindi.Query(flow.source("items", falkirk.Iterable([1, 2]))).count().to(falkirk.Console())
        >>> result = falkirk.run(flow)
        0: 2
        """
        self.stream.to(sink, name, require)

    def _each_time(self, kind: str, name: str | None, channel: Exchange, function: EachTimeFunction) -> Self:
        return replace(
            self,
            stream=self.stream.unary(
                name or self.stream.graph.fresh_name(kind),
                partial(EachTime, 1, function),
                channel,
                stateful=False,
                kind=kind,
            ),
        )

    def _both(
        self, kind: str, name: str | None, other: Any, channels: tuple[Exchange, Exchange], function: EachTimeFunction
    ) -> Self:
        if type(other) is not type(self):
            raise GraphError(f"{user_site()}: {kind} takes another {type(self).__name__}, not {type(other).__name__}")
        return replace(
            self,
            stream=self.stream.binary(
                other.stream,
                name or self.stream.graph.fresh_name(kind),
                partial(EachTime, 2, function),
                *channels,
                stateful=False,
                kind=kind,
            ),
        )
