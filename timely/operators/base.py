"""Base class of operators, and the context of an event.

The context has everything that an operator may do while it handles an event.

An *event* is the delivery of a batch or of a notification. During an event at time t an operator may send at t or
later, ask for a notification at t or later, and keep a capability for t or later. Sends are *disciplined*: a kept
capability is used only in an event at its own time. That is what makes the path summaries of the graph the largest safe
edge projections for rollback (Falkirk Wheel, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from timely.data.batch import Batch
from timely.data.span import Span
from timely.errors import OperatorError
from timely.operators.obligations import Declared
from timely.state.interface import State
from timely.time import INF, Frontier, Time, as_time, is_epoch, join, leq, visible


class Operator:
    """One operator on one worker. All state that outlives an event belongs in `state`.

    >>> class Latest(falkirk.Operator):
    ...     # The greatest number so far, whenever it rises.
    ...     def __init__(self):
    ...         self.state = falkirk.KeyedState()
    ...     def on_batch(self, ctx, port, time, batch):
    ...         best = self.state.read(time).get("best")
    ...         if best is None or max(batch) > best:
    ...             self.state.write(time, {"best": max(batch)})
    ...             ctx.send([max(batch)])
    >>> flow = falkirk.Dataflow()
    >>> numbers = flow.source("numbers", falkirk.Iterable([3, 2, 5], epoch_every=1))
    >>> seen = numbers.unary("latest", Latest).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [3]), ((2,), [5])]
    """

    state: State | None = None
    transient: Collection[str] = ()
    """Names of attributes safe to lose at any time, such as those of a cache.

    Losing them changes no result. After a rollback they are as they were when the operator was made.
    """
    spans: bool = False
    """True if it handles several times in one pass (`on_span`, `on_notify_several`)."""
    undoes_spans: bool = False
    """True if its state can be rolled back to each of the times of a span.

    Then it takes spans under recovery, too.
    """
    converges: bool = False
    """True if the last output of a key is of all its input, in whatever epochs."""
    repeats: bool = False
    """True if an operator with jobs or capabilities repeats its records on replay.

    A time done again gives the same records then, those of its jobs too. An operator without jobs and capabilities
    is taken to do that, as far as `repeats_over` says.
    """
    repeats_over: Declared = "batch"
    """Granularity of deterministic output: "record", "time" or "batch".

    The output is the same for the same records in any batches and order ("record"), in any batches and order within
    a time ("time"), or only for the same batches in the same order ("batch"). A value holds for all inputs, a tuple
    has one for each. An exchange, a log or a queue divides a time that is done again into other batches: behind it
    only an operator that declares "record" or "time" repeats, and lets others keep what they had of it.
    """
    keeps_batches: bool = False
    """True if each input batch gives at most one output batch, at once.

    Its output is divided as its input is.
    """
    one_batch: bool = False
    """True if each time gives at most one batch, in an order set by its records."""
    moves_by_key: bool = False
    """True if state is kept by the key of the exchange in front.

    Then its state goes with the keys when a job has another number of workers. It may be notified of a time that other
    keys asked for.
    """
    stays: str = ""
    """Reason against another number of workers, as the end of a sentence; "" for none."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        """Handle a batch at `time` on input `port`."""
        raise NotImplementedError(f"{type(self).__name__} needs a method on_batch(self, ctx, port, time, batch)")

    def on_notify(self, ctx: Context, time: Time) -> None:
        """Handle the completion of `time`: nothing at or before it can arrive any more."""
        if type(self).on_watermark is Operator.on_watermark:  # which comes after notifications, where nobody goes back
            raise NotImplementedError(
                f"{type(self).__name__} asks for notifications and needs a method on_notify(self, ctx, time)"
            )

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        """Handle batches of several times on `port`, as by `on_batch` of each in turn.

        Called only for operators with `spans`, and under recovery only for those with `undoes_spans`. They send at
        the times of their events.
        """
        for time, batch in span.parts():
            ctx.time = time
            self.on_batch(ctx, port, time, batch)

    def on_notify_several(self, ctx: Context, times: Sequence[Time]) -> None:
        """Handle the completion of all `times`, as by `on_notify` of each in turn.

        Called as `on_span` is.
        """
        for time in times:
            ctx.time = time
            self.on_notify(ctx, time)

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        """Handle `result` of a job given to `ctx.start` at `time`."""
        raise NotImplementedError(
            f"{type(self).__name__} starts jobs and needs a method on_result(self, ctx, time, result)"
        )

    def on_watermark(self, frontier: Frontier) -> None:
        """Handle a frontier of complete times, never to be rolled back.

        `state` may merge them, and does.

        With recovery this comes as the low-watermark rises; without, after the notifications of an operator that has `state`.
        """
        if self.state is not None:
            self.state.compact(frontier)

    def read(self, operators: Sequence[Operator]) -> None:
        """Receive the operators of this worker with state read by this one (`Node.reads`).

        After a rollback they may be others.

        All that they sent it at a time is in their state when that time is complete here; more may be, too. They may merge of
        it what lies before times for which their readers may still ask: that is between them.
        """

    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        """Handle a rollback: `capabilities` were kept by events that still count.

        They are for times that are still to come.

        Keep them as before; `state` has been restored. They cannot be used before an event at their time.
        """


class JobContext(Protocol):
    """Driver services for a job started with `context=True`.

    The job runs outside the worker.
    """

    @property
    def durable(self) -> bool:
        """True if `folder` outlives the processes of the job.

        Files announced to another worker must then be synced first.
        """

    @property
    def stopped(self) -> bool:
        """True if nobody waits for the result any more.

        The job had better end soon, by an exception.
        """

    def folder(self, name: str, living: bool = False) -> Path:
        """Folder for files, the same for all workers; made if it is missing.

        `name` may have parts: "a/b".

        A `living` one is empty whenever the job is started: what is in it counts while some of its processes live.
        """

    def report(self, what: str, done: int = 0, total: int = 0) -> None:
        """Report the progress of the job to observers."""

    def note(self, text: str) -> None:
        """Tell the user something, once.

        It is shown on the console, and among the events of a job with a store.
        """


class Engine(Protocol):
    """Worker interface used by the contexts of its operators."""

    def request(self, op: int, event: Time, time: Time, again: bool = False) -> None: ...

    def hold(self, op: int, time: Time, diff: int, own: bool = False) -> None: ...

    def start(self, op: int, time: Time, job: Callable[..., Any], context: bool, own: bool = False) -> None: ...

    def keeps(self, op: int, event: Time, time: Time) -> None: ...


class Capability:
    """Right to send at `time`, kept beyond the event that gave it.

    Until dropped it holds every frontier downstream.

    Use it in an event at its own time: typically a notification that was asked for with it.

    >>> class Batched(falkirk.Operator):
    ...     # Two batches of a time as one: what came is sent with a capability that was kept.
    ...     def __init__(self):
    ...         self.held = None
    ...     def on_batch(self, ctx, port, time, batch):
    ...         if self.held is None:
    ...             self.held = (ctx.retain(), batch)
    ...         else:
    ...             capability, first = self.held
    ...             capability.send(first + batch)
    ...             capability.drop()
    ...             self.held = None
    >>> flow = falkirk.Dataflow()
    >>> items = flow.source("items", falkirk.Iterable([1, 2], batch=1))
    >>> seen = items.unary("batched", Batched, holds=True).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [1, 2])]
    """

    __slots__ = ("_ctx", "_own", "_who", "time")

    def __init__(self, ctx: Context, time: Time) -> None:
        self._ctx: Context | None = ctx
        self._who = ctx
        self.time = time
        self._own = ctx.time == time  # kept in an event at its own time, which is done again if that is rolled back
        ctx.engine.hold(ctx.op, time, +1, self._own)

    @classmethod
    def again(cls, ctx: Context, time: Time) -> Capability:
        """Capability already counted by the engine."""
        capability = cls.__new__(cls)
        capability._ctx, capability.time, capability._own = ctx, time, False
        capability._who = ctx
        return capability

    def __repr__(self) -> str:
        return f"Capability({visible(self.time)})" if self._ctx else "Capability(dropped)"

    def _live(self) -> Context:
        if self._ctx is None:
            raise OperatorError(
                f"operator {self._who.name!r} ({self._who.site}) used a capability for {visible(self.time)} that it had "
                "dropped; retain another one in a later event"
            )
        return self._ctx

    def delayed(self, time: Time) -> Capability:
        """A second capability, for `time` >= this one's."""
        ctx = self._live()
        time = ctx.check_later(self.time, time, "delay a capability")
        return Capability(ctx, time)

    def downgrade(self, time: Time) -> None:
        """Restrict the capability to times >= `time`."""
        ctx = self._live()
        time = ctx.check_later(self.time, time, "downgrade a capability")
        own = ctx.time == time
        ctx.engine.hold(ctx.op, time, +1, own)
        ctx.engine.hold(ctx.op, self.time, -1, self._own)
        self.time, self._own = time, own

    def drop(self) -> None:
        """Give the capability back. Dropping it again does nothing."""
        if self._ctx is not None:
            self._ctx.engine.hold(self._ctx.op, self.time, -1, self._own)
            self._ctx = None

    def start(self, job: Callable[..., Any], context: bool = False) -> None:
        """`Context.start` at the time of this capability, in any event.

        For jobs that wait for each other.
        """
        ctx = self._live()
        ctx.engine.start(ctx.op, self.time, job, context, self._own)

    def send(self, batch: Batch, port: int = 0) -> None:
        """Send at the capability's time, in an event at that time."""
        ctx = self._live()
        if ctx.time != self.time:
            raise OperatorError(
                f"operator {ctx.name!r} ({ctx.site}) used a capability for {visible(self.time)} in an event at "
                f"{visible(ctx.time)}; "
                f"ask for a notification at {visible(self.time)} and send there"
            )
        ctx.send(batch, port)


class Context:
    """Interface of an operator to the engine; `time` is that of the present event.

    >>> class Later(falkirk.Operator):
    ...     # Each record an epoch later.
    ...     def on_batch(self, ctx, port, time, batch):
    ...         ctx.send_at((time[0] + 1,), batch)
    >>> flow = falkirk.Dataflow()
    >>> seen = flow.source("items", falkirk.Iterable(["a"])).unary("later", Later, stateful=False).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((1,), ['a'])]
    """

    __slots__ = ("engine", "name", "op", "out", "pending", "site", "spans", "time", "worker", "workers")

    def __init__(self, engine: Engine, op: int, name: str, site: object, worker: int, workers: int) -> None:
        self.engine = engine
        self.op = op
        self.name = name
        self.site = site
        self.worker = worker
        self.workers = workers
        self.time: Time = ()
        self.out: list[tuple[int, Time, Batch]] = []
        self.spans: list[Span] = []
        """Spans sent on output 0 by `on_span` and `on_notify_several`."""
        self.pending: dict[Time, Time] = {}
        """Requested notifications, each with the least event time of its requests.

        Times are compared as tuples.
        """

    def send(self, batch: Batch, port: int = 0) -> None:
        """Send `batch` at the event's own time. An empty batch is dropped."""
        try:
            some = len(batch)
        except TypeError:
            raise TypeError(
                f"send takes a batch: a list of records, a Polars frame or an Arrow table, not {type(batch).__name__}"
            ) from None
        if some:
            self.out.append((port, self.time, batch))

    def send_at(self, time: Time, batch: Batch, port: int = 0) -> None:
        """Send `batch` at `time` >= the event's time.

        Records sent later than `END` are sent at `END`.
        """
        if type(time) is tuple and any(isinstance(at, int) and at > INF for at in time):
            time = tuple(min(at, INF) for at in time)
        time = self.check_later(self.time, time, "send")
        if len(batch):
            self.out.append((port, time, batch))

    def notify_at(self, time: Time | None = None) -> None:
        """Ask for a notification when `time` (default: the event's own) is complete.

        Asking twice is asking once.
        """
        if time is None:
            time = self.time
        elif time is not self.time:
            time = self.check_later(self.time, time, "ask for a notification")
        first = self.pending.get(time)
        if first is None:
            self.pending[time] = self.time
            self.engine.request(self.op, self.time, time)
        elif self.time < first:
            self.pending[time] = self.time
            self.engine.request(self.op, self.time, time, again=True)

    def retain(self, time: Time | None = None) -> Capability:
        """Keep the right to send at `time` (default: the event's own) beyond this event."""
        if time is None:
            time = self.time
        else:
            time = self.check_later(self.time, time, "retain a capability")
        return Capability(self, time)

    def start(self, job: Callable[..., Any], time: Time | None = None, context: bool = False) -> None:
        """Have the driver run `job` and give its result to `on_result` at `time`.

        `time` is held open meanwhile.

        With `context`, it is called with a `JobContext`: a folder for files, and whom to tell how far it is.
        """
        if time is None:
            time = self.time
        else:
            time = self.check_later(self.time, time, "start a job")
        self.engine.start(self.op, time, job, context)

    def keeps_for(self, time: Time) -> Time:
        """Register a change of the state kept under `time`.

        See `timely.state.interface.Event`.
        """
        if not self.time:
            raise OperatorError(
                f"operator {self.name!r} ({self.site}) can keep nothing in `state` in on_restore, nor take it out"
            )
        time = self._time(self.time, time, "keep state")
        if min(time) < 0:
            raise OperatorError(f"operator {self.name!r} ({self.site}) cannot keep state at {time}: times begin with 0")
        self.engine.keeps(self.op, self.time, time)
        return time

    def check_later(self, now: Time, time: Time, what: str) -> Time:
        """Validated `time`, in plain numbers and >= `now`.

        `END` is a name for users; no message and no checkpoint carries it.

        Raises OperatorError for one that is not >= `now`, or for which nothing is left to wait.
        """
        time = self._time(now, time, what)
        if not leq(now, time):
            raise OperatorError(
                f"operator {self.name!r} ({self.site}) cannot {what} at {visible(time)} from {visible(now)}: "
                f"times never go back{_where_back(now, time) if len(now) > 1 and time > now else ''}"
            )
        if max(time) > INF:
            raise OperatorError(
                f"operator {self.name!r} ({self.site}) cannot {what} later than {visible(now)}: nothing comes after END, which "
                "is when all input is over. Where `time[0] < falkirk.END` does not hold, do now what was to be done later"
            )
        return time

    def _time(self, now: Time, time: object, what: str) -> Time:
        """Validated `time`, in plain numbers.

        Raises OperatorError unless it is a time of as many coordinates as `now` has.
        """
        if is_epoch(time) and len(now) == 1:
            return time
        try:
            return as_time(time, len(now))
        except ValueError as error:
            raise OperatorError(f"operator {self.name!r} ({self.site}) cannot {what} at {time!r}: {error}") from None


def _where_back(now: Time, time: Time) -> str:
    """Error text on the product order: no coordinate of a time may go back."""
    back = next(at for at in range(len(now)) if time[at] < now[at])
    was, wanted = visible(now)[back], visible(time)[back]
    return (
        f" in any coordinate, and coordinate {back} would, from {was} to {wanted}. A later one in front does not make up for "
        "it: coordinates of a scope count from the start of the job, and do not begin again with an epoch. The first time that "
        f"follows both is {visible(join(now, time))}"
    )


class _Restoring:
    """Engine while an operator is restored: every request is an error.

    Progress has not begun yet.
    """

    def __init__(self, ctx: Context) -> None:
        self._error = OperatorError(
            f"operator {ctx.name!r} ({ctx.site}) can only keep its capabilities in on_restore; give them back, and ask for "
            "notifications, in an event"
        )

    def request(self, op: int, event: Time, time: Time, again: bool = False) -> None:
        raise self._error

    def hold(self, op: int, time: Time, diff: int, own: bool = False) -> None:
        raise self._error

    def start(self, op: int, time: Time, job: Callable[..., Any], context: bool, own: bool = False) -> None:
        raise self._error

    def keeps(self, op: int, event: Time, time: Time) -> None:
        raise self._error


def notify_of(ctx: Context, times: Sequence[Time]) -> None:
    """Ask for a notification at each of `times`, delivered together in a span."""
    for time in times:
        ctx.time = time
        ctx.notify_at()


def give_back(operator: Operator, ctx: Context, held: Iterable[tuple[Time, int]]) -> None:
    """Give a restored operator its capabilities: times, each with a count."""
    engine, ctx.engine = ctx.engine, _Restoring(ctx)
    ctx.time = ()
    operator.on_restore(ctx, [Capability.again(ctx, time) for time, count in held for _ in range(count)])
    ctx.engine = engine
    ctx.out.clear()
