"""Windows over keyed streams.

`keyed.window(Tumbling(60), time=lambda v: v.at)` and its verbs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from timely.dataflow.graph import Node
from timely.dataflow.wire import Wire, check_at_root, check_callable, check_combine, naming_options
from timely.errors import GraphError, user_site
from timely.operators.base import Operator
from timely.operators.channels import PIPELINE, Broadcast, Channel, Exchange
from timely.operators.keyed import PLUS, Combine, checked, combine_known, greatest, least, pairs_of, starting
from timely.operators.watermark import LATE, ON_TIME, WATERMARKS, RecordLateness, RecordTimes
from timely.operators.window_shapes import Epochs, Length, Session, Sliding, Tumbling, Window, behind
from timely.operators.windows import (
    EpochWindows,
    EventWindows,
    WindowAggregate,
    collecting,
    combining,
    counting,
    folding,
    parts_of,
    reducing,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # that of Python 3.11 has no default

    K = TypeVar("K", bound=Wire, default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K", bound=Wire)

__all__ = ["Epochs", "Session", "Sliding", "Tumbling", "Window", "Windowed"]


def add_judge(
    stream: Wire,
    name: str,
    times: Callable[[], Operator],
    lateness: Callable[[], Operator],
    channel: Channel = PIPELINE,
    verbs: tuple[object, object] = (None, None),
) -> Node:
    """Add the operator to split off late rows, behind one to share event times.

    Event times are sent to all workers.

    Args:
        stream: the rows.
        name: of the windows.
        times: makes the operator whose outputs are the rows, and the greatest event times.
        lateness: makes the one that gives what is on time, what is late, and the watermarks.
        channel: the way of the rows between the two.
        verbs: description of either, for compilers to other engines.
    """
    of_times, of_lateness = verbs
    seen = stream._attach(
        "event_times", f"{name}-times", factory=times, outputs=2, notifies=True, stateful=True, verb=of_times
    )
    return stream._of(seen, 0)._attach(
        "lateness",
        f"{name}-lateness",
        channel,
        others=[(stream._of(seen, 1), Broadcast())],
        factory=lateness,
        outputs=3,
        notifies=True,
        stateful=True,
        verb=of_lateness,
    )


def split_late(keyed: K, time: Callable[[Any], Any], lateness: Length | None, name: str | None) -> tuple[K, K, K]:
    """The pairs on time, the late ones, and the watermarks: see `Keyed.split_late`."""
    check_callable(time, "split_late(time=)")
    check_at_root(keyed, "split_late() counts epochs and event time")
    datetimes = isinstance(lateness, dt.timedelta)
    allowed = check_lateness(lateness, datetimes)
    judge = add_judge(
        keyed,
        name if name is not None else keyed.graph.fresh_name("split_late"),
        lambda: RecordTimes(time, datetimes),
        lambda: RecordLateness(behind, allowed),
        Exchange(),
    )
    on_time = keyed._of(judge, ON_TIME)._stage(
        "untimed", None, lambda batch: [(key, value) for key, _, value in batch], repeats_over="record"
    )
    return on_time, keyed._of(judge, LATE), keyed._of(judge, WATERMARKS)


_no_over = naming_options(over="a window is complete by itself, when the watermark passes its end")


class Windowed(Generic[K]):
    """Keyed stream cut into windows; see `Keyed.window`.

    Each verb gives a keyed stream of ((key, window), result), one record for each window of a key that is not empty, when
    the window closes. Several verbs on one `Windowed` share the work of finding out what is late.

    Event time: `time(value)` gives a number, or a datetime where lengths are timedeltas; windows are aligned to 0 or to the
    beginning of 1970 (aware datetimes in UTC). When an epoch is complete, the *watermark* is the greatest event time so far
    on any worker, minus `lateness`; windows that end at it or before it close. A record is *late* when a window that it
    belongs to has closed before its epoch. It is in `late()` then, once, and misses the windows that have closed, but not
    those that are still open, as the later ones of `Sliding` windows may be. (For sessions: late is what lies before the
    watermark, and a late record is in no session.) So every window is exactly that of the records that came before it closed,
    whatever the number of workers.

    When the input ends, all windows close. Their results have the time (END,), which comes after every epoch.
    """

    def __init__(
        self,
        keyed: K,
        shape: Tumbling | Sliding | Session | Epochs,
        time: Callable[[Any], Any] | None = None,
        lateness: Length | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(shape, Tumbling | Sliding | Session | Epochs):
            raise GraphError(f"{user_site()}: window() takes Tumbling, Sliding, Session or Epochs, not {shape!r}")
        check_at_root(keyed, "window() counts epochs and event time")
        self._keyed = keyed
        self._shape = shape
        self._name = name if name is not None else keyed.graph.fresh_name("window")
        self._judge: Node | None = None
        if isinstance(shape, Epochs):
            check_no_event_time(shape, time, lateness)
            return
        if time is None:
            raise GraphError(f"{user_site()}: {shape} needs the event time: window({shape}, time=lambda value: ...)")
        check_callable(time, "window(time=)")
        datetimes = isinstance(shape.length, dt.timedelta)
        allowed = check_lateness(lateness, datetimes)
        self._judge = add_judge(
            keyed,
            self._name,
            lambda: RecordTimes(time, datetimes),
            lambda: RecordLateness(shape.lateness(), allowed),
        )

    def late(self) -> K:
        """Records (key, value) too late for at least one of their windows.

        Each once, at its own epoch.

        Raises:
            GraphError: the windows are of epochs, for which no record is late.

        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12), ("ann", 2)], epoch_every=1)
        >>> clicks = flow.source("clicks", given).keyed()
        >>> tens = clicks.window(falkirk.Tumbling(10), time=lambda at: at)
        >>> seen = tens.late().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((3,), [('ann', 2)])]
        """
        if self._judge is None:
            raise no_row_is_late(self._shape)
        return self._keyed._of(self._judge, LATE)

    @_no_over
    def count(self, name: str | None = None) -> K:
        """Number of records.

        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12), ("ann", 2)], epoch_every=1)
        >>> clicks = flow.source("clicks", given).keyed()
        >>> tens = clicks.window(falkirk.Tumbling(10), time=lambda at: at)
        >>> seen = tens.count().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((2,), [(('ann', Window(start=0, end=10)), 2)]), ((END,), [(('ann', Window(start=10, end=20)), 1)])]
        """
        return self._aggregate("count", name, counting())

    @_no_over
    def sum(self, name: str | None = None) -> K:
        """The sum of the values; of floats the exact sum, rounded once.

        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12), ("ann", 2)], epoch_every=1)
        >>> clicks = flow.source("clicks", given).keyed()
        >>> tens = clicks.window(falkirk.Tumbling(10), time=lambda at: at)
        >>> seen = tens.sum().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((2,), [(('ann', Window(start=0, end=10)), 5)]), ((END,), [(('ann', Window(start=10, end=20)), 12)])]
        """
        return self._aggregate("sum", name, reducing(PLUS))

    @_no_over
    def min(self, name: str | None = None) -> K:
        """The least value.

        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12), ("ann", 2)], epoch_every=1)
        >>> clicks = flow.source("clicks", given).keyed()
        >>> tens = clicks.window(falkirk.Tumbling(10), time=lambda at: at)
        >>> seen = tens.min().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((2,), [(('ann', Window(start=0, end=10)), 1)]), ((END,), [(('ann', Window(start=10, end=20)), 12)])]
        """
        return self._aggregate("min", name, reducing(least))

    @_no_over
    def max(self, name: str | None = None) -> K:
        """The greatest value.

        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12), ("ann", 2)], epoch_every=1)
        >>> clicks = flow.source("clicks", given).keyed()
        >>> tens = clicks.window(falkirk.Tumbling(10), time=lambda at: at)
        >>> seen = tens.max().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((2,), [(('ann', Window(start=0, end=10)), 4)]), ((END,), [(('ann', Window(start=10, end=20)), 12)])]
        """
        return self._aggregate("max", name, reducing(greatest))

    @_no_over
    def reduce(self, combine: Combine, name: str | None = None, *, any_order: bool = False) -> K:
        """Values of each window combined by `combine(a, b)`.

        They are taken epoch by epoch, in an epoch by event time, then by content.

        `any_order` as for `Keyed.reduce`. Where a record joins two sessions, their totals are combined, the earlier first.

        Raises:
            GraphError: `combine` is no function.

        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12), ("ann", 2)], epoch_every=1)
        >>> clicks = flow.source("clicks", given).keyed()
        >>> tens = clicks.window(falkirk.Tumbling(10), time=lambda at: at)
        >>> seen = tens.reduce(lambda a, b: a * b).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((2,), [(('ann', Window(start=0, end=10)), 4)]), ((END,), [(('ann', Window(start=10, end=20)), 12)])]
        """
        check_combine(combine, "reduce")
        known = combine_known(combine, any_order)
        if known is None:
            return self._aggregate("reduce", name, combining(checked(combine)))
        return self._aggregate("reduce", name, reducing(checked(known) if known is combine else known))

    @_no_over
    def fold(
        self,
        start: Callable[[], Any] | Any,
        step: Combine,
        merge: Combine | None = None,
        name: str | None = None,
    ) -> K:
        """One accumulator a window: `step(accumulator, value)`, beginning with `start`.

        `start` is a value, or a function that makes one; `step` changes no accumulator.

        Values are taken epoch by epoch, in an epoch by event time, and where that is equal in an order of their own that
        every run agrees on. Session windows need `merge(earlier, later)`, as two of them may become one.

        Raises:
            GraphError: `step` or `merge` is no function, or the windows are sessions and there is no `merge`.

        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12), ("ann", 2)], epoch_every=1)
        >>> clicks = flow.source("clicks", given).keyed()
        >>> tens = clicks.window(falkirk.Tumbling(10), time=lambda at: at)
        >>> seen = tens.fold("at", lambda so_far, at: f"{so_far} {at}").capture("out")
        >>> falkirk.run(flow).captured("out")
        [((2,), [(('ann', Window(start=0, end=10)), 'at 1 4')]), ((END,), [(('ann', Window(start=10, end=20)), 'at 12')])]
        """
        check_callable(step, "fold")
        if merge is not None:
            check_callable(merge, "fold(merge=)")
        elif isinstance(self._shape, Session):
            raise GraphError(
                f"{user_site()}: fold over session windows needs merge=function of two accumulators, as a record may join "
                "two sessions; or collect() the values and fold the list"
            )
        if callable(start):
            check_callable(start, "fold(start=)")
        return self._aggregate("fold", name, folding(starting(start), step, merge))

    @_no_over
    def collect(self, name: str | None = None) -> K:
        """List of the values of each window, by event time.

        Where event times are equal, in an order that every run agrees on.

        >>> flow = falkirk.Dataflow()
        >>> given = falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12), ("ann", 2)], epoch_every=1)
        >>> clicks = flow.source("clicks", given).keyed()
        >>> tens = clicks.window(falkirk.Tumbling(10), time=lambda at: at)
        >>> seen = tens.collect().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((2,), [(('ann', Window(start=0, end=10)), [1, 4])]), ((END,), [(('ann', Window(start=10, end=20)), [12])])]
        """
        return self._aggregate("collect", name, collecting())

    def _aggregate(self, verb: str, name: str | None, aggregate: WindowAggregate) -> K:
        keyed, shape, judge = self._keyed, self._shape, self._judge
        chosen = name if name is not None else keyed.graph.fresh_name(f"{self._name}-{verb}")
        if isinstance(shape, Epochs):
            epochs = shape
            factory: Callable[[], Operator] = lambda: EpochWindows(epochs, aggregate)  # noqa: E731
            channel = Exchange(prepare=pairs_of)
            return keyed._of(keyed._attach("window", chosen, channel, factory=factory, notifies=True, stateful=True))
        assert judge is not None
        event_shape = shape
        # Whether a record is late, each worker knows: what goes to the worker of its key is what windows get of all of a batch.
        node = keyed._of(judge, ON_TIME)._attach(
            "window",
            chosen,
            Exchange(combine=parts_of(event_shape, aggregate)),
            others=[(keyed._of(judge, WATERMARKS), PIPELINE)],
            factory=lambda: EventWindows(event_shape, aggregate),
            notifies=True,
            stateful=True,
        )
        return keyed._of(node)


def check_no_event_time(shape: Epochs, time: object, lateness: object) -> None:
    """Refuse event time with windows of epochs; raises GraphError."""
    if time is not None or lateness is not None:
        raise GraphError(f"{user_site()}: {shape} goes by epochs: it takes no time= and no lateness=")


def no_row_is_late(shape: object) -> GraphError:
    """Error for `late()` of windows of epochs."""
    return GraphError(f"{user_site()}: no record is late for {shape}: epochs wait for all of theirs")


def check_lateness(lateness: Any, datetimes: bool) -> Length:
    """`lateness`, or 0 for None; refused if not in the unit of the windows."""
    if lateness is None:
        return dt.timedelta(0) if datetimes else 0
    fits = isinstance(lateness, dt.timedelta) if datetimes else isinstance(lateness, int | float)
    if datetimes and lateness == 0 and not fits:
        return dt.timedelta(0)
    if not fits:
        raise GraphError(
            f"{user_site()}: lateness={lateness!r}, but the windows have "
            f"{'timedeltas' if datetimes else 'numbers'} as lengths: give it in the same unit"
        )
    if not lateness >= type(lateness)(0):
        raise GraphError(f"{user_site()}: lateness says how long to wait, so it is 0 or more, not {lateness!r}")
    return lateness  # type: ignore[no-any-return]
