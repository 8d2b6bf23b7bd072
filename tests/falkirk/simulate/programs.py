"""Programs for the simulation: each shape that recovery must bring through. Sources are small and deterministic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import polars as pl

from libraries.columns import agg
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import AtLeastOnce, Batch, Eager, Ephemeral, Lazy, LogHistory, Snapshot
from timely.data.routing import stable_hash
from timely.dataflow.graph import Output
from timely.dataflow.wire import Loop, add_feedback
from timely.io import Batches, Callback, Chunk, End, Iterable, Memory, Partition, Wait
from timely.io.interface import Position
from timely.operators.base import Capability, Context, Operator
from timely.operators.window_shapes import Epochs, Session
from timely.state import KeyedState, Parts, TimedBatches
from timely.time import END, INF, Time


def words(flow: Dataflow, epoch: int = 5, batch: int = 3, size: int = 50) -> Stream:
    """Two partitions of words, several chunks an epoch."""
    first = [f"w{(i * i * 7) % 11}" for i in range(size)]
    second = [f"w{(i * 5) % 13}" for i in range(size - 7)]
    return flow.source("in", Iterable(partitioned=[first, second], batch=batch, epoch_every=epoch))


def acyclic() -> Dataflow:
    """Running counts behind an exchange."""
    flow = Dataflow("acyclic")
    words(flow).key_by(lambda w: w).count(name="count").records().capture("out")
    return flow


def loop() -> Dataflow:
    """Every number goes round until it is small; the loop's state is distinct, and a total runs on behind it."""
    flow = Dataflow("loop")
    numbers = [(i * 37) % 101 for i in range(40)]
    source = flow.source("in", Iterable(partitioned=[numbers, numbers[::-1]], batch=4, epoch_every=8))
    rounds = source.iterate(
        lambda inner: inner.map(lambda x: x // 2).filter(bool).exchange(by=lambda x: x).distinct(name="new"),
        name="halve",
    )
    rounds.capture("rounds")
    rounds.key_by(lambda x: x % 5).count(name="count").records().capture("out")
    return flow


def nested_loop() -> Dataflow:
    """A loop in a loop."""
    flow = Dataflow("nested")
    numbers = list(range(1, 25))
    source = flow.source("in", Iterable(partitioned=[numbers, numbers[3:]], batch=3, epoch_every=6))

    def outer(stream: Stream) -> Stream:
        inside = stream.iterate(
            lambda inner: inner.map(lambda x: x - 3).filter(lambda x: x > 0).exchange(by=lambda x: x % 3), name="inner"
        )
        return inside.map(lambda x: x // 2).filter(bool).distinct(name="once")

    out = source.iterate(outer, name="outer")
    out.key_by(lambda x: x).count(name="count").records().capture("out")
    return flow


def long_loop() -> Dataflow:
    """Few epochs of many iterations in a region that logs its outputs: cuts fall between iterations, too.

    The loop has state that runs on over its iterations, exchanges, and messages that skip iterations.
    """
    flow = Dataflow("long loop")
    numbers = [(i * 37) % 101 for i in range(24)]

    def rounds(inner: Stream) -> tuple[Stream, Stream]:
        less = inner.map(lambda n: n - 2).filter(lambda n: n > 0).exchange(by=lambda n: n)
        skip = less.unary("skip", _Delay, notifies=False)
        seen = skip.key_by(lambda n: n % 7).count(name="seen").records()
        return skip.distinct(name="once"), seen

    with flow.region("loop", policy=Lazy(every=0.1, log_outputs=True)):
        source = flow.source("in", Iterable(partitioned=[numbers, numbers[::-1]], batch=4, epoch_every=12))
        found = source.iterate(rounds, name="down")
    found.capture("rounds")
    found.key_by(lambda pair: pair[0]).max(name="most").records().capture("out")
    return flow


def fed_loop() -> Dataflow:
    """A long loop with a loop in it, behind an ephemeral front and a logged region, with a history inside."""
    flow = Dataflow("fed loop")
    numbers = [(i * 29) % 61 for i in range(20)]
    with flow.region("front", policy=Ephemeral()):
        source = flow.source("in", Iterable(partitioned=[numbers, numbers[5:]], batch=3, epoch_every=10))
        front = source.map(lambda n: n + 1).exchange(by=lambda n: n % 4)
    with flow.region("other", policy=Lazy(every=0.3, log_outputs=True)):
        doubled = front.map(lambda n: (n % 3, n)).keyed().sum(name="sums").records().map(lambda pair: pair[1] % 50)

    def outer(stream: Stream) -> Stream:
        inside = stream.iterate(
            lambda inner: inner.map(lambda x: x - 9).filter(lambda x: x > 0).exchange(by=lambda x: x % 3), name="inner"
        )
        best = inside.key_by(lambda x: x % 5).max(name="best").policy(LogHistory(every=0.1, log_outputs=True))
        return best.records().map(lambda pair: pair[1] - 1).filter(lambda x: x > 0)

    with flow.region("loop", policy=Lazy(every=0.1, log_outputs=True)):
        rounds = front.concat(doubled).iterate(outer, name="outer", limit=12)
    rounds.key_by(lambda x: x).count(name="count").records().capture("out")
    return flow


def two_loops() -> Dataflow:
    """A loop that feeds an output and another loop, each cut between its iterations; the other keeps and exchanges nothing."""
    flow = Dataflow("two loops")
    numbers = [(i * 41) % 83 for i in range(24)]

    def down(inner: Stream) -> Stream:
        return inner.map(lambda n: n - 3).filter(lambda n: n > 0).exchange(by=lambda n: n).distinct(name="less")

    def halve(inner: Stream) -> Stream:
        return inner.map(lambda n: n // 2).filter(bool)

    with flow.region("first", policy=Lazy(every=0.1, log_outputs=True)):
        source = flow.source("in", Iterable(partitioned=[numbers, numbers[::-1]], batch=4, epoch_every=12))
        first = source.iterate(down, name="downs")
    with flow.region("second", policy=Lazy(every=0.1, log_outputs=True)):
        second = first.concat(source).iterate(halve, name="halves")
    second.key_by(lambda n: n % 9).count(name="count").records().capture("out")
    first.capture("downs-out")
    return flow


def pipelined_loop() -> Dataflow:
    """Small epochs go round a long loop at once, on workers that exchange in each iteration: what is complete is no prefix.

    There is state that runs on over iterations, a history, and messages that skip iterations.
    """
    flow = Dataflow("pipelined loop")
    numbers = [(i * 37) % 59 for i in range(24)]

    def rounds(inner: Stream) -> Stream:
        less = inner.map(lambda n: n - 3).filter(lambda n: n > 0).exchange(by=lambda n: n)
        skip = less.unary("skip", _Delay, notifies=False).distinct(name="once")
        most = skip.key_by(lambda n: n % 3).max(name="most").policy(LogHistory(every=0.05, log_outputs=True)).records()
        return skip.concat(most.map(lambda pair: pair[1] - 1).filter(lambda n: n > 0))

    with flow.region("loop", policy=Lazy(every=0.05, log_outputs=True)):
        source = flow.source("in", Iterable(partitioned=[numbers, numbers[::-1]], batch=3, epoch_every=3))
        found = source.iterate(rounds, name="down")
    found.key_by(lambda n: n % 9).count(name="count").records().capture("out")
    return flow


class AtIteration(Operator):
    """Each record with the iteration at which it came."""

    repeats_over = "record"

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.send([(record, time[-1]) for record in batch])


Roads = list[tuple[int, int, int]]
"""From where, to where, and how long."""


def distances(start: Stream, roads: Roads) -> Stream:
    """(place, distance) of all places that can be reached: each length has a loop, whose delay it is."""
    flow, loops = start.graph, []
    scope = flow.add_scope("roads", start.scope)
    inside = start.enter(scope)
    for length in sorted({length for _, _, length in roads}):
        node = add_feedback(flow, scope, None, f"after {length}", length)
        loops.append((length, Loop(flow, node.index)))
        inside = inside.concat(Stream(flow, scope, (Output(node.index),)))
    reached = inside.exchange(by=lambda place: place).distinct(name="reached")
    for length, loop in loops:
        ways = {at: [to for begin, to, each in roads if (begin, each) == (at, length)] for at, _, _ in roads}
        reached.flat_map(lambda place, ways=ways: ways.get(place, [])).connect_loop(loop)
    return reached.unary("at", AtIteration, notifies=False, stateful=False).leave()


ROADS: Roads = [(n, (n * 7 + length * 11) % 40, length) for n in range(40) for length in (2, 3, 5) if (n + length) % 3]


def delayed_loops() -> Dataflow:
    """Loops of delay 2, 3 and 5 in one scope, cut between iterations: what is sent crosses several cuts."""
    flow = Dataflow("delayed loops")
    with flow.region("loop", policy=Lazy(every=0.05, log_outputs=True)):
        source = flow.source("in", Iterable(partitioned=[[0, 9, 30, 4], [17, 23, 8, 12]], batch=1, epoch_every=1))
        found = distances(source, ROADS)
    found.key_by(lambda pair: pair[1] % 4).count(name="count").records().capture("out")
    found.capture("distances")
    return flow


def mixed() -> Dataflow:
    """An ephemeral front, a logged batch region, a lazily saved one, a full history, and outputs of each."""
    flow = Dataflow("mixed")
    with flow.region("front", policy=Ephemeral()):
        source = words(flow).map(lambda w: (w, len(w)))
    with flow.region("batch", policy=Batch(log_outputs=True)):
        per_epoch = source.keyed().sum(over="time", name="per_epoch").records()
    with flow.region("lazy", policy=Lazy(every=2)):
        running = per_epoch.keyed().sum(name="totals").records()
    with flow.region("history", policy=LogHistory(every=3)):
        best = running.keyed().max(name="best").records()
    per_epoch.capture("epochs")
    running.capture("running")
    best.capture("out")
    return flow


def logged_exchange() -> Dataflow:
    """Regions that log what they send to other workers, in a chain: the exchange is on the border itself."""
    flow = Dataflow("logged")
    source = words(flow)
    with flow.region("first", policy=Lazy(every=1, log_outputs=True)):
        counts = source.key_by(lambda w: w).count(name="first_count").records().map(lambda pair: pair[1] % 4)
    with flow.region("second", policy=Lazy(every=3, log_outputs=True)):
        lengths = counts.exchange(by=lambda n: n).key_by(lambda n: n).count(name="second_count").records()
        lengths = lengths.map(lambda pair: pair[1] % 3)
    with flow.region("third", policy=Lazy(every=0.3)):
        totals = lengths.exchange(by=lambda n: n).key_by(lambda n: n).count(name="third_count").records()
    counts.capture("counts")
    totals.capture("out")
    return flow


class Gathering(Operator):
    """Keeps the records of an epoch in the order in which they come, until it is over; and something by key for ever."""

    def __init__(self) -> None:
        self._now = TimedBatches()
        self._kept = KeyedState()
        self.state = Parts(self._now, self._kept)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self._now.add(time, batch)
        ctx.notify_at()

    def gathered(self, time: Time) -> list[Any]:
        """The records of the epoch that is over."""
        return [value for batch in self._now.pop(time) for value in batch]


class Arrivals(Gathering):
    """Says at the end of an epoch what came of each key from each partition, in the order in which it came."""

    def on_notify(self, ctx: Context, time: Time) -> None:
        came: dict[tuple[int, int], list[int]] = {}
        for key, partition, number in self.gathered(time):
            came.setdefault((key, partition), []).append(number)
        ctx.send([(*where, tuple(numbers)) for where, numbers in sorted(came.items())])


def _tagged(flow: Dataflow, size: int = 48, epoch: int = 8, keys: int = 5) -> Stream:
    """Three partitions of (key, partition, number), read one by one."""
    parts = [[(n * (n + at) % keys, at, n) for n in range(size)] for at in range(3)]
    return flow.source("in", Iterable(partitioned=parts, batch=1, epoch_every=epoch))


def order_of_logs() -> Dataflow:
    """Messages sent again to another worker: every edge in the order of sending, behind a region and between epochs."""
    flow = Dataflow("order of logs")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        front = _tagged(flow).map(lambda record: record)
    with flow.region("back", policy=Lazy(every=2)):
        arrivals = front.exchange(by=lambda record: record[0]).unary("arrivals", Arrivals)
        arrivals.capture("orders")
        arrivals.key_by(lambda record: record[1]).count(name="count").records().capture("out")
    return flow


def one_way() -> Dataflow:
    """Behind a quick region that logs, long loops, each worker for itself: where one dies, others refuse and keep messages."""
    flow = Dataflow("one way")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        front = _tagged(flow, size=60, epoch=4).filter(lambda record: record[2] // 4 % 3 == 0)
    with flow.region("back", policy=Lazy(every=4)):
        arrivals = front.exchange(by=lambda record: record[0]).unary("arrivals", Arrivals)
        steps = arrivals.map(lambda record: (record[0], record[1], 12 + record[2][0] % 7))
        steps.iterate(_countdown, name="down").capture("out")
    arrivals.capture("orders")
    return flow


def _countdown(inner: Stream) -> Stream:
    return inner.map(lambda record: (*record[:2], record[2] - 3)).filter(lambda record: record[2] > 0)


class InOrder(Gathering):
    """Sends the records of an epoch in the order in which they came, with a chain of all epochs before."""

    def on_notify(self, ctx: Context, time: Time) -> None:
        values = self.gathered(time)
        link = stable_hash((self._kept.read(time).get(0), *values))
        self._kept.write(time, {0: link})
        ctx.send([(link, *values)])


def ordered_histories() -> Dataflow:
    """Histories that are replayed in order, from one sender to the next; they give way to state where they are long."""
    flow = Dataflow("ordered histories")
    numbers = [(i * i * 3 + i) % 97 for i in range(70)]
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        source = flow.source("in", Iterable(numbers, batch=1, epoch_every=4)).map(lambda x: x + 1)
    with flow.region("middle", policy=LogHistory(every=2, log_outputs=True)):
        links = source.exchange(by=lambda x: 1).unary("first", InOrder)
    with flow.region("back", policy=LogHistory(every=4)):
        links.flat_map(list).exchange(by=lambda x: 0).unary("second", InOrder).capture("out")
    return flow


class _Ahead(Operator):
    """Sends every third record at once into the epoch after the next."""

    repeats_over = "time"

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for record in batch:
            if record[2] % 3:
                ctx.send([record])
            else:
                ctx.send_at((time[0] + 2,), [record])


def order_ahead() -> Dataflow:
    """The same of messages into later epochs: on an edge that logs these only, and on one that logs all."""
    flow = Dataflow("order ahead")
    with flow.region("front", policy=Lazy(every=1)):
        ahead = _tagged(flow, size=36, epoch=6).unary("ahead", _Ahead, notifies=False)
        ahead.exchange(by=lambda record: record[0]).unary("here", Arrivals).capture("orders")
    with flow.region("middle", policy=Lazy(every=1, log_outputs=True)):
        again = ahead.unary("again", _Ahead, notifies=False)
    with flow.region("back", policy=Lazy(every=3)):
        arrivals = again.exchange(by=lambda record: record[0]).unary("there", Arrivals)
        arrivals.capture("more orders")
        arrivals.key_by(lambda record: record[1]).count(name="count").records().capture("out")
    return flow


class _Later(Gathering):
    """Says two epochs later how many records an epoch had: its requests reach into the future."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        super().on_batch(ctx, port, time, batch)
        ctx.notify_at((time[0] + 2,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        if size := len(self.gathered(time)):
            self._kept.write(time, {time[0] + 2: size})
        due = self._kept.read(time).get(time[0])
        if due:
            ctx.send([(time[0], due)])


def future() -> Dataflow:
    """Notifications and messages into later epochs."""
    flow = Dataflow("future")
    source = words(flow)
    source.exchange(by=lambda w: 0).unary("later", _Later).capture("out")
    windows = source.key_by(lambda w: w).window(Epochs(3)).count(name="three_epochs")
    windows.records().capture("windows")
    return flow


def sessions() -> Dataflow:
    """Event-time windows with late records, which close when the input is over."""
    flow = Dataflow("sessions")
    events = [(i * 7) % 40 + i // 2 for i in range(45)]
    source = flow.source("in", Iterable(partitioned=[events, events[5:30]], batch=4, epoch_every=6))
    windows = source.key_by(lambda t: t % 3).window(Session(gap=4), time=lambda t: t, lateness=6)
    windows.count(name="sizes").records().capture("out")
    windows.late().records().capture("late")
    return flow


def joined() -> Dataflow:
    """A running join of two streams, one of them a slow one."""
    flow = Dataflow("joined")
    left = words(flow, epoch=4, size=30).map(lambda w: (w, 1)).keyed()
    right = flow.source("right", Iterable([(f"w{i}", i) for i in range(13)], batch=2, epoch_every=3)).keyed()
    left.join(right, name="join").records().capture("out")
    return flow


def sinks() -> Dataflow:
    """Exactly-once sinks: of running counts, and of what goes round in a loop; beside a capture."""
    flow = Dataflow("sinks")
    source = words(flow)
    counts = source.key_by(lambda w: w).count(name="count").records()
    counts.to(Memory(), name="counts")
    long = source.map(len).iterate(lambda inner: inner.map(lambda n: n - 1).filter(bool).exchange(by=lambda n: n))
    long.key_by(lambda n: n).count(over="time", name="lengths").records().to(Memory(), name="lengths_out")
    counts.capture("out")
    return flow


def repeating() -> Dataflow:
    """An at-least-once output in an ephemeral region, and one behind state."""
    flow = Dataflow("repeating")
    source = words(flow, epoch=4, batch=2)
    with flow.region("front", policy=Ephemeral()):
        source.exchange(by=lambda w: w).map(str.upper).to(Callback(lambda epoch, batch: None), name="shouted")
    counts = source.key_by(lambda w: w).count(name="count").records()
    counts.to(Callback(lambda epoch, batch: None), name="told")
    return flow


class Numbered(Gathering):
    """Numbers the records of each key in order, for ever, at the end of an epoch."""

    def on_notify(self, ctx: Context, time: Time) -> None:
        of = self._kept.read(time)
        out: list[Any] = []
        numbers: dict[Any, int] = {}
        for record in sorted(self.gathered(time)):
            numbers[record[0]] = numbers.get(record[0], of.get(record[0], 0)) + 1
            out.append((record, numbers[record[0]]))
        self._kept.write(time, numbers)
        ctx.send(out)


def eager() -> Dataflow:
    """A region that is committed epoch by epoch and alone, with an output inside, and what is behind it, on all workers."""
    flow = Dataflow("eager")
    with flow.region("orders", policy=Eager()):
        numbered = _tagged(flow, epoch=3, size=24).map(lambda r: (r[1], r[0])).unary("number", Numbered)
        numbered.capture("inside")
    numbered.key_by(lambda pair: pair[0][1]).count(name="count").records().capture("out")
    numbered.to(Callback(lambda epoch, batch: None), name="told")
    return flow


def eager_in_between() -> Dataflow:
    """Eager regions fed by two others and by each other, that feed two more; every policy is there."""
    flow = Dataflow("eager in between")
    with flow.region("front", policy=Batch()):
        source = words(flow, size=30).map(lambda w: (w, len(w)))
    with flow.region("lengths", policy=Lazy(every=2)):
        lengths = source.keyed().sum(name="lengths").records()
    with flow.region("ephemeral", policy=Ephemeral()):
        other = flow.source("other", Iterable([f"w{i % 6}" for i in range(30)], batch=2, epoch_every=4))
    with flow.region("once", policy=Batch()):
        pairs = other.map(lambda w: (w, 1))
    with flow.region("first", policy=Eager()):
        first = lengths.concat(pairs).exchange(by=lambda pair: pair[0]).unary("number", Numbered)
        first.capture("numbered")
    with flow.region("second", policy=Eager()):
        second = first.map(lambda numbered: numbered[1]).key_by(lambda n: n % 5).count(name="second").records()
        second.to(Memory(), name="kept")
    with flow.region("later", policy=LogHistory(every=3)):
        most = second.concat(first.map(lambda numbered: (numbered[1] % 5, 1))).keyed().max(name="most").records()
    most.capture("mosts")
    with flow.region("epochs", policy=Batch(log_outputs=True)):
        each = second.key_by(lambda pair: pair[1] % 3).count(over="time", name="each").records()
    each.capture("out")
    return flow


def _frames(epochs: int, keys: int, name: str) -> list[pl.DataFrame]:
    return [
        pl.DataFrame(
            {"k": [f"k{(at * at + row) % keys}" for row in range(9)], name: [at * 10 + row for row in range(9)]},
            schema={"k": pl.String, name: pl.Int64},
        )
        for at in range(epochs)
    ]


def columns() -> Dataflow:
    """Totals of columns, within epochs and over all of them."""
    flow = Dataflow("columns")
    frames = flow.columns("in", Batches(_frames(24, 7, "v"), per_epoch=2))
    totals = {"n": agg.count(), "total": agg.sum("v"), "most": agg.max("v")}
    frames.group_by("k").agg(over="scope", name="running", **totals).capture("out")
    with flow.region("batch", policy=Batch(log_outputs=True)):
        each = frames.group_by("k").agg(over="time", name="each", **totals)
    each.to(Memory(), name="epochs")
    return flow


def column_join() -> Dataflow:
    """Two sources of columns, joined over all that came before, with rows that are taken back, and with the nearest."""
    flow = Dataflow("column join")
    left = flow.columns("left", Batches(_frames(16, 11, "l"), per_epoch=2))
    right = flow.columns("right", Batches(_frames(6, 13, "r"), per_epoch=1))
    left.join(right, on="k", over="scope", name="join").capture("out")
    changes = left.join(right, on="k", how="left", changes=True, right={"k": pl.String, "r": pl.Int64}, name="changes")
    changes.group_by("k").agg(n=agg.count(), total=agg.sum("l"), name="sums").capture("totals")
    pairs, late, _ = left.join_interval(
        right.select("k", l=pl.col("r")), "l", -20, 30, by="k", lateness=40, name="interval"
    )
    pairs.capture("pairs")
    late.capture("late")
    nearest = right.select("k", l=pl.col("r") * 2, r=pl.col("r"))
    left.join_asof(nearest, on="l", by="k", name="asof", right={"k": pl.String, "l": pl.Int64, "r": pl.Int64}).capture(
        "near"
    )
    return flow


def sparse() -> Dataflow:
    """Most epochs are empty where the state is, and most workers have no partition at all."""
    flow = Dataflow("sparse")
    source = flow.source("in", Iterable(range(90), batch=2, epoch_every=5))
    rare = source.filter(lambda n: n % 17 == 0).exchange(by=lambda n: n)
    rare.key_by(lambda n: n % 2).sum(name="sum").records().capture("out")
    rare.distinct(over="time").to(Memory(), name="seen")
    return flow


class _Slow(Operator):
    """Has each record looked at by a job outside the worker."""

    repeats_over = "time"

    repeats = True

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for word in batch:
            ctx.start(lambda word=word: (word, len(word)))

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        ctx.send([result])


def jobs() -> Dataflow:
    """Work that leaves the worker and comes back as events."""
    flow = Dataflow("jobs")
    slow = words(flow, size=30).exchange(by=lambda w: w).unary("slow", _Slow, holds=True)
    slow.key_by(lambda found: found[1]).count(name="count").records().capture("out")
    slow.distinct(name="new").to(Memory(), name="seen")
    return flow


class _Delay(Operator):
    """Sends what comes to a later time: here and there by two epochs, or by as many iterations of a loop."""

    repeats_over = "time"

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for later in (0, 2):
            part = [x for x in batch if hash_of(x) % 3 == later]
            ctx.send_at((*time[:-1], time[-1] + later), part)
        ctx.send([x for x in batch if hash_of(x) % 3 == 1])


def hash_of(x: Any) -> int:
    """The same in every process."""
    return sum(map(ord, str(x)))


def delayed() -> Dataflow:
    """Messages into later epochs and later iterations, over exchanges and without, from regions of several policies."""
    flow = Dataflow("delayed")
    source = words(flow)
    later = source.exchange(by=lambda w: w).unary("later", _Delay, notifies=False)
    later.key_by(lambda w: w).count(name="count").records().capture("out")
    with flow.region("batch", policy=Batch(log_outputs=True)):
        again = later.unary("again", _Delay, notifies=False)
    again.to(Memory(), name="twice")
    numbers = again.map(len).map(lambda n: 7 * n)

    def rounds(inner: Stream) -> Stream:
        less = inner.map(lambda n: n - 3).filter(lambda n: n > 0)
        return less.unary("skip", _Delay, notifies=False).exchange(by=lambda n: n)

    numbers.iterate(rounds, name="down").key_by(lambda n: n % 5).count(name="all").records().capture("rounds")
    return flow


class _Words(Gathering):
    """Sends the records of an epoch when it is over."""

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.send(sorted(self.gathered(time)))


class _Ticks(_Words):
    """Asks in each epoch for the end of the next: it acts on the ends of epochs that bring it nothing."""

    def on_notify(self, ctx: Context, time: Time) -> None:
        super().on_notify(ctx, time)
        if time[0] < _UNSTEADY_EPOCHS:
            ctx.notify_at((time[0] + 1,))


class _Blocks(Gathering):
    """Sends the records of four epochs in the last of them, asking for that whenever something comes."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        super().on_batch(ctx, port, time, batch)
        ctx.notify_at((self.due(time),))

    @staticmethod
    def due(time: Time) -> int:
        return time[0] // 4 * 4 + 3

    def on_notify(self, ctx: Context, time: Time) -> None:
        due = self.due(time)
        records = self._kept.read(time).get(due, []) + self.gathered(time)
        if time[0] < due:
            self._kept.write(time, {due: sorted(records)})
        else:
            ctx.send(sorted(records))


def unsteady_key() -> Callable[[Any], int]:
    """Some records go to one worker, the next ones to another: never the same ones when something is done again."""
    asked = count()
    return lambda _: next(asked) // 4 % 7


_UNSTEADY_EPOCHS = 24
_UNSTEADY = "another worker gets them"


def _restless(flow: Dataflow) -> Stream:
    """Few records an epoch, from a front that sends them elsewhere whenever it is done again."""
    numbers = [i * i for i in range(2 * _UNSTEADY_EPOCHS)]
    with flow.region("front", policy=Ephemeral(), nondeterministic=_UNSTEADY):
        return flow.source("in", Iterable(numbers, batch=1, epoch_every=2)).map(lambda n: n)


def unsteady() -> Dataflow:
    """Records go elsewhere whenever it is done again; what comes of them in the end stays the same."""
    flow = Dataflow("unsteady")
    front = _restless(flow)
    with flow.region("middle", policy=Lazy(every=1, log_outputs=True)):
        each = front.exchange(by=unsteady_key()).unary("each", _Ticks)
    each.exchange(by=lambda n: n % 5).key_by(lambda n: n % 3).count(name="count").records().capture("out")
    return flow


def unsteady_blocks() -> Dataflow:
    """The same, with requests for later epochs that come in any order, and in no other way again."""
    flow = Dataflow("unsteady blocks")
    front = _restless(flow)
    with flow.region("middle", policy=Lazy(every=3, log_outputs=True)):
        blocks = front.exchange(by=unsteady_key()).unary("blocks", _Blocks)
    blocks.key_by(lambda n: n % 3).count(name="count").records().capture("out")
    return flow


def unsteady_loop() -> Dataflow:
    """The same in a loop, whose operators are notified of early iterations of an epoch before late ones of another."""
    flow = Dataflow("unsteady loop")
    numbers = [(i * 37) % 41 for i in range(24)]
    source = flow.source("in", Iterable(partitioned=[numbers, numbers[::-1], numbers[5:]], batch=2, epoch_every=4))

    def rounds(inner: Stream) -> Stream:
        less = inner.map(lambda n: n - 4).filter(lambda n: n > 0)
        return less.exchange(by=unsteady_key()).nondeterministic(_UNSTEADY).unary("gather", _Words)

    with flow.region("loop", policy=Lazy(every=2)):
        found = source.iterate(rounds, name="down")
    found.key_by(lambda n: n % 5).count(name="count").records().capture("out")
    return flow


class _AtTheEnd(Gathering):
    """Lets numbers go round until they are small, and says when the loop is over how many came and how large they were."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        super().on_batch(ctx, port, time, batch)
        ctx.notify_at((*time[:-1], INF))

    def on_notify(self, ctx: Context, time: Time) -> None:
        seen = self._kept.read(time)
        totals = {key: seen.get(key, (0, 0)) for key in range(3)}
        if time[-1] == INF:
            ctx.send([(key, *total) for key, total in totals.items() if any(total)], port=1)
            return
        numbers = self.gathered(time)
        for n in numbers:
            total, number = totals[n % 3]
            totals[n % 3] = (total + n, number + 1)
        self._kept.write(time, {key: total for key, total in totals.items() if any(total)})
        ctx.send([n - 5 for n in numbers if n > 5])


def loop_end() -> Dataflow:
    """A notification of the end of a loop, on its cycle: its results leave, and nothing goes round any more."""
    flow = Dataflow("loop end")
    numbers = [(i * 37) % 61 for i in range(36)]
    source = flow.source("in", Iterable(partitioned=[numbers, numbers[::-1]], batch=3, epoch_every=6))

    def rounds(inner: Stream) -> tuple[Stream, Stream]:
        ends = inner.exchange(by=lambda n: n % 3).unary("end", _AtTheEnd, outputs=2)
        return ends, ends.output(1)

    ends = source.iterate(rounds, name="down")
    ends.capture("ends")
    ends.key_by(lambda pair: pair[1] % 3).count(name="count").records().capture("out")
    return flow


class Holds(Operator):
    """Says two epochs later what an epoch had, by capabilities that are kept, moved on, and found again after a rollback."""

    repeats_over = "time"

    repeats = True

    def __init__(self) -> None:
        self._now = TimedBatches()
        self._due = KeyedState()
        self.state = Parts(self._now, self._due)
        self._kept: dict[Time, list[Capability]] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        if time[0] == END:  # nothing comes two epochs later
            ctx.send(batch)
        elif len(self._now.add(time, batch)) == 1:
            self._keep(ctx, ctx.retain((time[0] + 1,)))
            ctx.notify_at()

    def _keep(self, ctx: Context, capability: Capability) -> None:
        self._kept.setdefault(capability.time, []).append(capability)
        ctx.notify_at(capability.time)

    def on_notify(self, ctx: Context, time: Time) -> None:
        due = self._due.read(time).get(time[0])
        if new := [word for batch in self._now.pop(time) for word in batch]:
            self._due.write(time, {time[0] + 2: sorted(new)})
        kept = self._kept.pop(time, [])
        if due:
            capability = kept.pop()
            capability.send(due)
            capability.drop()
        for capability in kept:
            capability.downgrade((time[0] + 1,))
            self._keep(ctx, capability)

    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        assert not self._kept
        for capability in capabilities:
            self._kept.setdefault(capability.time, []).append(capability)


class _Remembers(Operator):
    """The same in attributes: for full histories."""

    repeats_over = "time"

    repeats = True

    def __init__(self) -> None:
        self._words: dict[Time, list[Any]] = {}
        self._kept: dict[Time, Capability] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        due = (time[0] + 2,)
        self._words.setdefault(due, []).extend(batch)
        if due not in self._kept:
            self._kept[due] = ctx.retain(due)
            ctx.notify_at(due)

    def on_notify(self, ctx: Context, time: Time) -> None:
        capability = self._kept.pop(time)
        capability.send(sorted(self._words.pop(time)))
        capability.drop()


def capabilities() -> Dataflow:
    """Capabilities that are kept from one epoch to later ones."""
    flow = Dataflow("capabilities")
    source = words(flow)
    source.exchange(by=lambda w: w).unary("holds", Holds, holds=True).to(Memory(), name="later")
    history = source.exchange(by=len).unary("remembers", _Remembers, holds=True).policy(LogHistory(every=2))
    history.key_by(lambda w: w).count(name="count").records().capture("out")
    return flow


class _Sums(Operator):
    """Adds up what an epoch brings in attributes, and all of it in `state`; looks words up in a cache."""

    repeats_over = "time"

    transient = ("lengths",)

    def __init__(self) -> None:
        self.lengths: dict[str, int] = {}
        self.totals = KeyedState()
        self.state = self.totals
        self.now: dict[Time, int] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for word in batch:
            self.lengths.setdefault(word, len(word))
            self.now[time] = self.now.get(time, 0) + self.lengths[word]
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        total = self.totals.read(time).get("all", 0) + self.now.pop(time)
        self.totals.write(time, {"all": total})
        ctx.send([total])


class _Buffers(Operator):
    """Keeps what comes at a time in an attribute until the time is complete, and no longer."""

    repeats_over = "time"

    def __init__(self) -> None:
        self._of: dict[Time, list[Any]] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self._of.setdefault(time, []).extend(batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.send(sorted(self._of.pop(time)))


def buffers() -> Dataflow:
    """Attributes that are empty between times, of an operator without state."""
    flow = Dataflow("buffers")
    source = words(flow, batch=2)
    source.exchange(by=lambda w: w).unary("buffer", _Buffers).capture("words")
    with flow.region("batch", policy=Batch()):
        source.exchange(by=len).unary("pure", _Buffers, stateful=False).capture("again")
    source.exchange(by=lambda w: 0).unary("sums", _Sums).policy(Lazy(every=2)).capture("out")
    return flow


class Clocked:
    """Partitions of numbers that cut epochs by a clock: done again they differ, unless somebody knows where they ended."""

    rereadable = True

    def __init__(
        self, parts: Sequence[Sequence[Any]], seconds: float, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._parts, self._seconds, self._clock = parts, seconds, clock

    def with_clock(self, clock: Callable[[], float]) -> Clocked:
        """The same by another clock."""
        return Clocked(self._parts, self._seconds, clock)

    def partitions(self, worker: int, workers: int) -> list[Partition]:
        """One part after the other goes to the next worker."""
        parts = enumerate(self._parts)
        return [_ClockedPart(n, part, self._seconds, self._clock) for n, part in parts if n % workers == worker]


_OVER = 1_000


def _place(position: Position) -> tuple[int, int]:
    if position is None:
        return 0, 0
    assert isinstance(position, list)
    epoch, at = position
    assert isinstance(epoch, int)
    assert isinstance(at, int)
    return epoch, at


class _ClockedPart:
    """Position: [epoch, numbers read]. Each epoch takes so many seconds, from the first read on."""

    def __init__(self, number: int, part: Sequence[Any], seconds: float, clock: Callable[[], float]) -> None:
        self.name = f"part-{number}"
        self._part, self._seconds, self._clock = part, seconds, clock
        self._epoch = self._at = 0
        self._ends = clock() + seconds

    def read(self) -> Chunk | Wait | End:
        """A number or two, or the end of an epoch."""
        if self._at >= len(self._part):
            return End()
        if self._clock() >= self._ends:
            self._epoch += 1
            self._ends = self._clock() + self._seconds
            return Chunk(self._epoch, None, [self._epoch, self._at])
        return self._chunk(len(self._part))

    def _chunk(self, end: int) -> Chunk:
        begin, self._at = self._at, min(self._at + 2, end)
        over = self._at == len(self._part)  # in whichever epoch
        return Chunk(self._epoch, list(self._part[begin : self._at]), [_OVER if over else self._epoch, self._at])

    def read_until(self, position: Position) -> Chunk | Wait | End:
        """The same, up to a position."""
        epoch, end = _place(position)
        if end > len(self._part):
            return End()
        if self._at + 2 >= end:
            self._epoch = epoch
        return self._chunk(end)

    def seek(self, position: Position) -> None:
        """Go on where an epoch ended; the next one begins now."""
        self._epoch, self._at = _place(position)
        self._ends = self._clock() + self._seconds

    def ack(self, position: Position) -> None:
        """Numbers are kept."""

    def close(self) -> None:
        """Nothing is open."""


class _Both(Gathering):
    """Says in the end of each number in which epochs it came on either way: whatever these are, they must be the same ones."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self._numbers = range(numbers)

    def on_notify(self, ctx: Context, time: Time) -> None:
        if time == (INF,):
            seen = self._kept.read(time)
            ways = [(n, seen.get((n, 0)), seen.get((n, 1))) for n in self._numbers]
            ctx.send([(n, len(one), one == two) for n, one, two in ways if one or two])
            return
        seen = self._kept.read(time)
        new: dict[tuple[int, int], list[int]] = {}
        for n, way in self.gathered(time):
            new.setdefault((n, way), list(seen.get((n, way), []))).append(time[0])
        self._kept.write(time, new)
        ctx.notify_at((INF,))


def by_the_clock() -> Dataflow:
    """Epochs that a clock cuts: each number comes on two ways, over exchanges, once and in one and the same epoch."""
    flow = Dataflow("by the clock")
    parts = [range(0, 25), range(25, 50), range(50, 60)]
    numbers = flow.source("in", Clocked(parts, 0.05))
    totals = numbers.key_by(lambda n: n % 7).count(name="running").records().flat_map(lambda _: [])
    one = numbers.exchange(by=lambda n: n // 2).map(lambda n: (n, 0))
    two = numbers.map(lambda n: (n, 1), name="second way")
    both = one.concat(two).concat(totals).exchange(by=lambda pair: pair[0]).unary("both", lambda: _Both(60))
    both.capture("out")
    return flow


def sent_again() -> Dataflow:
    """Two sources that send again in the current epoch, one by the clock; totals, a history and a logged region behind."""
    flow = Dataflow("sent again")
    parts = [[(n * 7 + part) % 50 for n in range(36)] for part in range(2)]
    with flow.region("front", policy=AtLeastOnce()):
        numbers = flow.source("in", Iterable(partitioned=parts, batch=2, epoch_every=4)).map(lambda n: n + 100)
        ticks = flow.source("ticks", Clocked([range(0, 20), range(20, 40)], 0.05)).filter(lambda n: n % 4)
        numbers.concat(ticks).to(Callback(lambda epoch, batch: None), name="front-told")
    numbers.concat(ticks).map(lambda n: n).exchange(by=str).to(Memory(), name="all")
    steady = flow.source("steady", Iterable(range(1000, 1030), epoch_every=3)).exchange(by=lambda n: n)
    numbers.map(lambda n: (n % 7, n)).keyed().sum(name="sums").records().capture("totals")
    with flow.region("once", policy=Lazy(every=2, log_outputs=True)):
        once = numbers.concat(steady).map(lambda n: n).distinct(name="once")
    once.key_by(lambda n: n % 5).count(name="count").policy(LogHistory(every=3)).records().capture("counts")
    once.to(Memory(), name="numbers")
    numbers.exchange(by=str).capture("out")
    return flow


def snapshots() -> Dataflow:
    """Two regions with snapshots, one behind the other: with a loop, exchanges, outputs and two parts that nothing joins."""
    flow = Dataflow("snapshots")
    with flow.region("first", policy=Snapshot(every=2)):
        first = words(flow).key_by(lambda w: w).count(name="first_count").records()
        first.to(Memory(), name="inside")
        numbers = flow.source("numbers", Iterable(range(40, 0, -1), batch=3, epoch_every=5)).exchange(by=lambda n: n)
        numbers.iterate(lambda inner: inner.map(lambda n: n // 2).filter(bool).distinct(name="new")).capture("rounds")
    with flow.region("front", policy=Ephemeral()):
        front = flow.source("front", Iterable(range(45), batch=2, epoch_every=5)).map(lambda n: (n % 4, n))
    with flow.region("now", policy=Eager()):
        booked = flow.source("orders", Iterable(range(30), epoch_every=4)).map(lambda n: (n % 4, -n), name="booked")
    with flow.region("second", policy=Snapshot(every=0.3)):
        pairs = first.map(lambda pair: (pair[1] % 4, pair[1]), name="fold").concat(front, booked)
        totals = pairs.keyed().sum(name="totals").records()
    totals.keyed().max(name="best").policy(LogHistory(every=3)).records().capture("most")
    totals.capture("out")
    return flow


PROGRAMS: dict[str, Callable[[], Dataflow]] = {
    "long loop": long_loop,
    "fed loop": fed_loop,
    "two loops": two_loops,
    "acyclic": acyclic,
    "loop": loop,
    "nested_loop": nested_loop,
    "mixed": mixed,
    "logged_exchange": logged_exchange,
    "order_of_logs": order_of_logs,
    "order_ahead": order_ahead,
    "one_way": one_way,
    "ordered_histories": ordered_histories,
    "future": future,
    "sessions": sessions,
    "joined": joined,
    "sinks": sinks,
    "repeating": repeating,
    "columns": columns,
    "column_join": column_join,
    "sparse": sparse,
    "unsteady": unsteady,
    "unsteady_blocks": unsteady_blocks,
    "unsteady_loop": unsteady_loop,
    "loop_end": loop_end,
    "jobs": jobs,
    "delayed": delayed,
    "capabilities": capabilities,
    "buffers": buffers,
    "eager": eager,
    "eager_in_between": eager_in_between,
    "by the clock": by_the_clock,
    "sent again": sent_again,
    "snapshots": snapshots,
}
