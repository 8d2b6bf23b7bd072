"""Streams of pairs (key, value), and the verbs that bring equal keys together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Self

from timely.data.batch import Batch
from timely.dataflow.windows import Windowed, split_late
from timely.dataflow.wire import Wire, check_arity, check_callable, check_combine, view
from timely.errors import GraphError, user_site
from timely.operators.base import Operator
from timely.operators.channels import Exchange
from timely.operators.keyed import (
    PLUS,
    Combine,
    Fold,
    KeyedJoin,
    OrderedReduce,
    Reduce,
    combine_known,
    combiner,
    greatest,
    least,
    pairs_of,
    starting,
)
from timely.operators.process import KeyedProcess, Process
from timely.operators.shaping import check_result
from timely.operators.window_shapes import Epochs, Length, Session, Sliding, Tumbling

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # that of Python 3.11 has no default

    S_co = TypeVar("S_co", bound=Wire, default=Any, covariant=True)
else:
    from typing import TypeVar

    S_co = TypeVar("S_co", bound=Wire, covariant=True)

Over = Literal["time", "scope"]


def check_over(over: str, verb: str) -> bool:
    """True for over="scope", False for over="time"; others are refused."""
    if over not in ("time", "scope"):
        raise GraphError(
            f"{user_site()}: {verb}(over={over!r}): over is 'time' (each time by itself) or 'scope' (running along the "
            "innermost coordinate)"
        )
    return over == "scope"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Keyed(Wire, Generic[S_co]):
    """Stream of pairs (key, value).

    Keys are hashable, and of a type that the codec carries.

    `over` says how long the state of a verb lives: "scope" (the default), it runs on along the innermost coordinate,
    which in the root scope means over all epochs so far, and what comes out when a time is complete is the keys that are
    new or whose totals changed, with their totals; "time", each time by itself.

    NaN is one key, whatever the number of workers, and so are 0.0 and -0.0.
    """

    of: type[S_co] = field(kw_only=True)
    """Kind of its streams of records."""

    def reduce(
        self, combine: Combine, over: Over = "scope", name: str | None = None, *, any_order: bool = False
    ) -> Self:
        """One value a key, combined by `combine(a, b)`.

        The total so far is combined with the values of a time, in an order by their content.

        `any_order` declares that `combine` gives the same, to the last digit, in whatever order and grouping values come, as
        exact arithmetic does and floats do not. Then each worker combines its own values before they travel. It is known of
        `max`, `min` and `operator.add`.

        Raises:
            GraphError: `combine` is no function, or `over` is neither "scope" nor "time".

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])).keyed()
        >>> result = pairs.reduce(lambda a, b: a * b).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 12), ('b', 5)])]
        """
        check_combine(combine, "reduce")
        known = combine_known(combine, any_order)
        if known is not None:
            return self._reduce("reduce", known, over, name)
        running = check_over(over, "reduce")
        return self._keyed_operator("reduce", name, Exchange(prepare=pairs_of), lambda: OrderedReduce(combine, running))

    def sum(self, over: Over = "scope", name: str | None = None) -> Self:
        """Sum of the values of each key; of floats, the exact sum rounded once.

        So it does not depend on their order.

        Raises:
            GraphError: `over` is neither "scope" nor "time".

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])).keyed()
        >>> result = pairs.sum(over="time").capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 7), ('b', 5)])]
        """
        return self._reduce("sum", PLUS, over, name)

    def min(self, over: Over = "scope", name: str | None = None) -> Self:
        """Least value of each key; NaN loses against any number.

        Raises:
            GraphError: `over` is neither "scope" nor "time".

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])).keyed()
        >>> result = pairs.min().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 3), ('b', 5)])]
        """
        return self._reduce("min", least, over, name)

    def max(self, over: Over = "scope", name: str | None = None) -> Self:
        """Greatest value of each key; NaN loses against any number.

        Raises:
            GraphError: `over` is neither "scope" nor "time".

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])).keyed()
        >>> result = pairs.max().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 4), ('b', 5)])]
        """
        return self._reduce("max", greatest, over, name)

    def count(self, over: Over = "scope", name: str | None = None) -> Self:
        """The number of records of each key.

        Raises:
            GraphError: `over` is neither "scope" nor "time".

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("a", 4)], epoch_every=1)).keyed()
        >>> result = pairs.count().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 1)]), ((1,), [('a', 2)])]
        """
        ones = self._stage("ones", None, lambda batch: [(key, 1) for key, _ in pairs_of(batch)], repeats_over="record")
        return ones._reduce("count", PLUS, over, name)

    def fold(
        self,
        start: Callable[[], Any] | Any,
        step: Combine,
        over: Over = "scope",
        name: str | None = None,
        *,
        order_by: Callable[[Any], Any] | None = None,
    ) -> Self:
        """One accumulator a key: `step(accumulator, value)`, beginning with `start`.

        `start` is a value, or a function that makes one.

        `step` returns the new accumulator and must not change the old one. A list, dict or set that it returns as it was
        given counts as changed.

        The values of one time come in the order of `order_by(value)`, such as when something happened; those that are equal in
        it, and all without it, in an order by their content, which for numbers and text is their own. The order in which
        they arrived is not kept: it is another one after a failure.

        Raises:
            GraphError: `step` is no function, or `over` is neither "scope" nor "time".

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 4), ("b", 5), ("a", 3)])).keyed()
        >>> result = pairs.fold(list, lambda so_far, n: [*so_far, n]).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', [3, 4]), ('b', [5])])]
        """
        check_callable(step, "fold")
        if order_by is not None:
            check_callable(order_by, "fold(order_by=)")
        if callable(start):
            check_callable(start, "fold(start=)")
        make = starting(start)
        running = check_over(over, "fold")
        return self._keyed_operator(
            "fold", name, Exchange(prepare=pairs_of), lambda: Fold(make, step, running, order_by)
        )

    def process(
        self,
        function: Process,
        on_timer: Process | None = None,
        name: str | None = None,
        *,
        order_by: Callable[[Any], Any] | None = None,
    ) -> S_co:
        """Process each pair with `function(key, value, timers)`, with state and timers.

        The stream has the records that the function returns or yields.

        `timers.state` is what was kept of the key, `timers.set(epoch)` has `on_timer(key, epoch, timers)` called when that
        epoch is complete, and `timers.cancel(epoch)` takes that back (`falkirk.Timers`). Both functions return a list, yield,
        or return None; `on_timer` may set timers for later epochs. State and timers outlive failures, as other verbs' state.

        The functions are called when an epoch is complete: first for its records, key by key, then for the timers that are
        due at it. Keys come in the order of their content; the values of a key in that of `order_by(value)`, and those that are
        equal in it, or all without it, in the order of their content. When all input is over, the timers that are left fire,
        each at its epoch: one that sets the next one for ever keeps the job from ending. In a loop timers count iterations.

        Raises:
            GraphError: `function`, `on_timer` or `order_by` is no function, or takes other arguments.

        >>> def begin(order, event, timers):
        ...     # An order that is not paid within two epochs is late.
        ...     if event == "made":
        ...         timers.set(timers.epoch + 2)
        ...     elif event == "paid":
        ...         timers.state = "paid"
        >>> def check(order, epoch, timers):
        ...     if timers.state != "paid":
        ...         yield order, "is late"
        ...     timers.state = None
        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([(7, "made"), (8, "made"), (7, "paid")], epoch_every=1)
        >>> seen = flow.source("orders", given).keyed().process(begin, check).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((3,), [(8, 'is late')])]
        """
        check_callable(function, "process", many=True)
        check_arity(function, "process", ("key", "value", "timers"))
        if on_timer is not None:
            check_callable(on_timer, "process(on_timer=)", many=True)
            check_arity(on_timer, "process(on_timer=)", ("key", "epoch", "timers"))
        if order_by is not None:
            check_callable(order_by, "process(order_by=)")
        made = self._keyed_operator(
            "process", name, Exchange(prepare=pairs_of), lambda: KeyedProcess(function, on_timer, order_by)
        )
        return view(made, self.of)

    def join(self, other: Keyed[Any], over: Over = "scope", name: str | None = None) -> Self:
        """Pairs (key, (mine, theirs)) for all values with equal keys.

        So far, or (over="time") within a time.

        Raises:
            GraphError: `other` is not keyed, is of another dataflow, or in another scope; or `over` is neither "scope" nor
                "time".

        >>> flow = falkirk.Dataflow()
        >>> prices = flow.source("prices", falkirk.Iterable([("a", 3), ("b", 5)])).keyed()
        >>> names = flow.source("names", falkirk.Iterable([("a", "apple")])).keyed()
        >>> result = prices.join(names).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', (3, 'apple'))])]
        """
        if not isinstance(other, Keyed):
            raise GraphError(f"{user_site()}: join takes another keyed stream, made with key_by, not {other!r}")
        self._same_scope(other, "join")
        running = check_over(over, "join")
        channel = Exchange(prepare=pairs_of)
        others = [(other, channel)]
        factory = lambda: KeyedJoin(running)  # noqa: E731
        return self._of(
            self._attach("join", name, channel, others=others, factory=factory, notifies=True, stateful=True)
        )

    def window(
        self,
        shape: Tumbling | Sliding | Session | Epochs,
        time: Callable[[Any], Any] | None = None,
        lateness: Length | None = None,
        name: str | None = None,
    ) -> Windowed[Self]:
        """Cut the stream into windows of event time, or of epochs.

        Then ask for `count()`, `sum()`, ..., and `late()`.

        `time(value)` gives a value's event time; records may be `lateness` behind the greatest one seen.

        Raises:
            GraphError: `shape` is no window; the stream is in a loop or another nested scope; `time` is missing or no
                function, or `lateness` negative or not in the unit of the windows; either is given with windows of epochs.

        >>> flow = falkirk.Dataflow()
        >>> clicks = flow.source("clicks", falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12)])).keyed()
        >>> result = clicks.window(falkirk.Tumbling(10), time=lambda at: at).count().capture("out")
        >>> for _, batch in falkirk.run(flow).captured("out"):
        ...     for (who, window), n in batch:
        ...         print(who, window.start, window.end, n)
        ann 0 10 2
        ann 10 20 1
        """
        return Windowed(self, shape, time, lateness, name)

    def split_late(
        self, time: Callable[[Any], Any], lateness: Length | None = None, name: str | None = None
    ) -> tuple[Self, Self, S_co]:
        """Split into pairs on time, late pairs, and the watermark.

        For windows and timers of one's own.

        A pair is late if the event time of its value, `time(value)`, is before the watermark: the greatest event time of the
        epochs before, on all workers, minus `lateness` (a timedelta where event times are datetimes). Pairs come out at the
        worker of their key, at their own epoch when that is complete; the watermark at the epoch that moves it, the same on
        each worker. An operator that takes both sees them in either order, and may see those of a later epoch before it is
        notified of an earlier one: it holds what comes by its time, and acts when it is notified.

        Raises:
            GraphError: `time` is no function, `lateness` is negative or no length, or the stream is in a nested scope.

        >>> class Reminders(falkirk.Operator):
        ...     # Each key once the watermark is ten behind its first event.
        ...     def __init__(self):
        ...         self.due = falkirk.KeyedState()
        ...         self.pairs = falkirk.TimedBatches()
        ...         self.marks = falkirk.TimedValues()
        ...         self.state = falkirk.Parts(self.due, self.pairs, self.marks)
        ...     def on_batch(self, ctx, port, time, batch):
        ...         if port == 0:
        ...             self.pairs.add(time, batch)
        ...         else:
        ...             self.marks.at(time)["mark"] = batch[-1]
        ...         ctx.notify_at()
        ...     def on_notify(self, ctx, time):
        ...         due = self.due.read(time)
        ...         pairs = [pair for batch in self.pairs.pop(time) for pair in batch]
        ...         self.due.write(time, {key: at + 10 for key, at in pairs if key not in due})
        ...         for mark in self.marks.pop(time).values():
        ...             fired = [key for key, at in self.due.read(time).items() if at <= mark]
        ...             self.due.remove(time, fired)
        ...             ctx.send(sorted(fired))
        >>> flow = falkirk.Dataflow()
        >>> clicks = flow.source("clicks", falkirk.Iterable([("ann", 1), ("bob", 4), ("cy", 12)], epoch_every=1)).keyed()
        >>> on_time, late, watermarks = clicks.split_late(time=lambda at: at)
        >>> seen = on_time.binary(watermarks, "reminders", Reminders).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((2,), ['ann'])]
        """
        on_time, late, watermarks = split_late(self, time, lateness, name)
        return on_time, late, view(watermarks, self.of)

    def map_values(self, function: Callable[[Any], Any], name: str | None = None) -> Self:
        """Replace every value by `function(value)`; keys stay.

        Raises:
            GraphError: `function` is no function.

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])).keyed()
        >>> result = pairs.map_values(lambda n: n * 10).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 30), ('b', 50), ('a', 40)])]
        """
        check_callable(function, "map_values")

        def each(batch: Batch) -> Batch:
            found = [(key, function(value)) for key, value in pairs_of(batch)]
            check_result(found[0][1] if found else None)
            return found

        return self._stage("map_values", name, each, lambda pair: function(pair[1]), repeats_over="record")

    def values(self, name: str | None = None) -> S_co:
        """Values without their keys.

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])).keyed()
        >>> result = pairs.values().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [3, 5, 4])]
        """
        return view(
            self._stage("values", name, lambda batch: [value for _, value in pairs_of(batch)], repeats_over="record"),
            self.of,
        )

    def records(self) -> S_co:
        """The same stream as records, each a pair.

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])).keyed()
        >>> result = pairs.records().map(lambda pair: pair[0]).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), ['a', 'b', 'a'])]
        """
        return view(self, self.of)

    def exchange(self, name: str | None = None) -> Self:
        """Send pairs with equal keys to the same worker.

        >>> flow = falkirk.Dataflow()
        >>> pairs = flow.source("pairs", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])).keyed()
        >>> result = pairs.exchange().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 3), ('b', 5), ('a', 4)])]
        """
        return self._stage("exchange", name, pairs_of, channel=Exchange(prepare=pairs_of), repeats_over="record")

    def _reduce(self, kind: str, combine: Combine, over: Over, name: str | None) -> Self:
        running = check_over(over, kind)
        channel = Exchange(prepare=pairs_of, combine=combiner(combine))
        return self._keyed_operator(kind, name, channel, lambda: Reduce(combine, running))

    def _keyed_operator(self, kind: str, name: str | None, channel: Exchange, factory: Callable[[], Operator]) -> Self:
        return self._of(self._attach(kind, name, channel, factory=factory, notifies=True, stateful=True))
