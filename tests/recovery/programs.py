"""Programs for the simulation: each shape that recovery must bring through. Sources are small and deterministic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from recovery.policies import Batch, Ephemeral, Lazy, LogHistory
from timely.dataflow import Dataflow
from timely.io import Batches, Callback, Iterable, Memory
from timely.operators import agg
from timely.operators.base import Context, Operator
from timely.operators.window_shapes import Epochs, Session
from timely.order import Time
from timely.state import KeyedState, Parts, TimedBatches
from timely.stream import Stream


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
    """Regions that log what they send to other workers, in a chain."""
    flow = Dataflow("logged")
    source = words(flow)
    with flow.region("first", policy=Lazy(every=1, log_outputs=True)):
        counts = source.key_by(lambda w: w).count(name="first_count").records()
    with flow.region("second", policy=Lazy(every=3, log_outputs=True)):
        lengths = counts.key_by(lambda pair: pair[1] % 4).count(name="second_count").records()
    with flow.region("third", policy=Lazy(every=0.3)):
        totals = lengths.key_by(lambda pair: pair[1] % 3).count(name="third_count").records()
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
        each = frames.group_by("k").agg(name="each", **totals)
    each.to(Memory(), name="epochs")
    return flow


def column_join() -> Dataflow:
    """Two sources of columns, joined over all that came before."""
    flow = Dataflow("column join")
    left = flow.columns("left", Batches(_frames(16, 11, "l"), per_epoch=2))
    right = flow.columns("right", Batches(_frames(6, 13, "r"), per_epoch=1))
    left.join(right, on="k", over="scope", name="join").capture("out")
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


PROGRAMS: dict[str, Callable[[], Dataflow]] = {
    "acyclic": acyclic,
    "loop": loop,
    "nested_loop": nested_loop,
    "mixed": mixed,
    "logged_exchange": logged_exchange,
    "future": future,
    "sessions": sessions,
    "joined": joined,
    "sinks": sinks,
    "repeating": repeating,
    "columns": columns,
    "column_join": column_join,
    "sparse": sparse,
    "jobs": jobs,
}
