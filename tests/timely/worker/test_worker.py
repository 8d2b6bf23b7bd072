"""Whole dataflows on seeded clusters: every notification is judged by an oracle, every output compared with one worker's."""

from __future__ import annotations

import datetime as dt
import operator
import os
from collections import Counter
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.timely.worker.oracle import Oracle
from timely.data.batch import Batch, as_polars
from timely.data.routing import shard_of, stable_hash, worker_of_shard
from timely.dataflow.plan import compile_plan
from timely.errors import OperatorError
from timely.io import Batches, Iterable
from timely.operators.base import Capability, Context, Operator
from timely.operators.channels import Exchange
from timely.operators.keyed import Reduce
from timely.state import TimedBatches
from timely.time import INF, Frontier, Time
from timely.worker.worker import Worker


class Delayed(Operator):
    """Keeps records of a time until it is complete, then sends them at that time and at a later one; with capabilities."""

    def __init__(self, by: int) -> None:
        self._by = by
        self._kept: dict[Time, tuple[Capability, list[Any]]] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        later = (*time[:-1], time[-1] + self._by)
        if later not in self._kept:
            self._kept[later] = (ctx.retain(later), [])
            ctx.notify_at(later)
        self._kept[later][1].extend(batch)

    def on_notify(self, ctx: Context, time: Time) -> None:
        capability, records = self._kept.pop(time)
        capability.send(records)
        capability.drop()


def line(s: Stream) -> Stream:
    return s.key_by(lambda x: x % 5).count(over="time").records().map(lambda kv: kv[0] + kv[1])


def running(s: Stream) -> Stream:
    return s.key_by(lambda x: x % 3).sum().records().map(lambda kv: kv[1] % 50).exchange(lambda x: x)


def loop(s: Stream) -> Stream:
    return s.iterate(lambda inner: inner.map(lambda x: x // 2).filter(lambda x: x > 0).exchange(lambda x: x))


def loop_with_notifications(s: Stream) -> Stream:
    def body(inner: Stream) -> tuple[Stream, Stream]:
        best = inner.key_by(lambda x: x % 4).max().records().map(lambda kv: kv[1])
        return best.map(lambda x: x - 3).filter(lambda x: x > 0), best

    return s.iterate(body)


def nested_loops(s: Stream) -> Stream:
    def outer(o: Stream) -> Stream:
        inner = o.iterate(lambda i: i.map(lambda x: x - 7).filter(lambda x: x > 0).exchange(lambda x: x + 1), limit=4)
        return inner.key_by(lambda x: x % 2).min(over="time").records().map(lambda kv: kv[1] // 2).filter(bool)

    return s.iterate(outer, limit=5)


def delays(s: Stream) -> Stream:
    return s.unary("delayed", lambda: Delayed(2), Exchange(key=lambda x: x), holds=True).distinct(over="time")


def there_and_back(s: Stream) -> Stream:
    """Effects of a worker's notification come back to it through others: at the same time."""
    first = s.key_by(lambda x: x % 7).count(over="time").records().map(lambda kv: kv[0] * 3 + kv[1])
    moved = first.exchange(lambda x: x + 1).map(lambda x: x + 1).exchange(lambda x: x % 3)
    return moved.key_by(lambda x: x % 2).sum(over="time").records().map(lambda kv: kv[1])


def diamond(s: Stream) -> Stream:
    low, high = s.branch(lambda x: x < 20)
    joined = low.key_by(lambda x: x % 4).join(high.key_by(lambda x: x % 4), over="time")
    return joined.records().map(lambda kv: kv[1][0] * 100 + kv[1][1]).concat(s.broadcast().map(lambda x: -x))


PROGRAMS = [line, running, loop, loop_with_notifications, nested_loops, delays, there_and_back, diamond]


def feed(cluster: Cluster, seed: int, epochs: int) -> None:
    """Random input, split at random over the workers; between inputs the cluster takes random steps."""
    random = Random(seed)
    total = [[random.randrange(60) for _ in range(random.randrange(6))] for _ in range(epochs)]
    for epoch, records in enumerate(total):
        for record in records:
            cluster.sessions[random.randrange(len(cluster.sessions))].input("in").send([record])
        for session in random.sample(cluster.sessions, len(cluster.sessions)):
            session.input("in").advance_to(epoch + 1)
            for _ in range(random.randrange(4)):
                cluster.step()
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()


def outputs(program: Any, workers: int, seed: int) -> Counter[tuple[Time, Any]]:
    flow = Dataflow(program.__name__)
    capture = program(flow.input("in")).capture("out")
    cluster = Cluster(flow, workers, seed)
    oracle = Oracle(cluster)
    with oracle.watching():
        feed(cluster, seed, epochs=5)
    assert all(not runtime.mail for session in cluster.sessions for runtime in session.worker.runtimes)
    result: Counter[tuple[Time, Any]] = Counter()
    for time, batch in cluster.captured(capture):
        assert isinstance(batch, list)
        result.update((time, record) for record in batch)
    assert oracle.checked or not result or program is loop
    return result


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@given(st.integers(0, 10_000))
@settings(max_examples=5000 if os.environ.get("FALKIRK_TEST_PROFILE") == "soak" else 12)
def test_any_schedule_of_any_number_of_workers_gives_one_workers_output(program: Any, seed: int) -> None:
    alone = outputs(program, 1, seed)
    workers = 2 + seed % 3
    several = outputs(program, workers, seed)
    if program is diamond:  # what is broadcast arrives once a worker
        several = Counter({k: n // workers if k[1] <= 0 and n % workers == 0 else n for k, n in several.items()})
    assert several == alone


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@given(st.integers(0, 10_000))
@settings(max_examples=1000 if os.environ.get("FALKIRK_TEST_PROFILE") == "soak" else 6)
def test_what_goes_straight_to_its_follower_comes_in_the_order_of_the_general_way(program: Any, seed: int) -> None:
    def events(straight: bool) -> list[tuple[str, Time, Any]]:
        flow = Dataflow(program.__name__)
        program(flow.input("in")).probe("end")
        cluster = Cluster(flow, 1 + seed % 2, seed)
        seen: list[tuple[str, Time, Any]] = []
        for runtime in (runtime for session in cluster.sessions for runtime in session.worker.runtimes):
            if not straight:
                runtime.follower, runtime.has_receivers = None, True
            runtime.operator = Watched(runtime.operator, runtime.node.name, seen)
        feed(cluster, seed, epochs=4)
        return seen

    assert events(straight=True) == events(straight=False) != []


class Watched(Operator):
    """Another operator, whose events are noted."""

    def __init__(self, inner: Operator, name: str, seen: list[tuple[str, Time, Any]]) -> None:
        self._inner, self._name, self._seen = inner, name, seen
        self.state = inner.state

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._seen.append((f"{self._name} {ctx.worker} {port}", time, list(batch)))
        self._inner.on_batch(ctx, port, time, batch)

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._seen.append((f"{self._name} {ctx.worker}", time, None))
        self._inner.on_notify(ctx, time)


def test_an_output_that_is_not_there_is_an_error_though_nobody_listens_to_the_only_one() -> None:
    class Wrong(Operator):
        def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
            ctx.notify_at()

        def on_notify(self, ctx: Context, time: Time) -> None:
            ctx.send(["lost"], port=1)

    flow = Dataflow("wrong")
    flow.input("in").unary("wrong", Wrong).probe("end")
    session = Cluster(flow, 1).sessions[0]
    session.input("in").send([1])
    session.input("in").close()
    with pytest.raises(OperatorError, match="sent on output 1, but it has 1"):
        session.run()


def test_the_same_seed_gives_the_same_run() -> None:
    def traffic(seed: int) -> tuple[int, int, int]:
        flow = Dataflow("again")
        nested_loops(flow.input("in")).capture("out")
        cluster = Cluster(flow, 3, seed)
        feed(cluster, 5, epochs=4)
        return cluster.traffic.frames, cluster.traffic.messages, cluster.traffic.updates

    assert traffic(1) == traffic(1)
    assert len({traffic(seed) for seed in range(5)}) > 1


class EndOfLoop(Operator):
    """Counts the records of a whole loop, and learns when it is over."""

    def __init__(self, seen: list[tuple[Time, int]]) -> None:
        self._seen = seen
        self._count: Counter[Time] = Counter()

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._count[time[:-1]] += len(batch)
        ctx.notify_at((*time[:-1], INF))
        ctx.send(batch)

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._seen.append((time, self._count.pop(time[:-1])))


def test_a_notification_at_infinity_says_that_a_loop_is_over() -> None:
    seen: list[tuple[Time, int]] = []
    flow = Dataflow("end of loop")
    flow.input("in").iterate(
        lambda i: i.map(lambda x: x - 1).filter(lambda x: x > 0).unary("end", lambda: EndOfLoop(seen))
    ).capture("out")
    cluster = Cluster(flow, 1, 0)
    session = cluster.sessions[0]
    for epoch, start in enumerate((3, 10)):
        session.input("in").send([start])
        session.input("in").advance_to(epoch + 1)
        session.step()
        assert seen[-1] == ((epoch, INF), start - 1)
    session.input("in").close()
    cluster.run()
    assert len(seen) == 2


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_traffic_grows_with_what_changed_not_with_what_exists(workers: int) -> None:
    def updates(idle: int) -> int:
        flow = Dataflow("traffic")
        s = flow.input("in")
        quiet = s.filter(lambda x: x < 0)
        for _ in range(idle):
            quiet = quiet.key_by(lambda x: x).count().records()
        line(s.concat(quiet.filter(lambda x: False))).capture("out")
        cluster = Cluster(flow, workers, None)
        for epoch in range(10):
            cluster.sessions[0].input("in").send(list(range(20)))
            for session in cluster.sessions:
                session.input("in").advance_to(epoch + 1)
            cluster.quiesce()
        return cluster.traffic.updates

    assert updates(40) == updates(0)


def owned_by(worker: int, workers: int, make: Any) -> Any:
    """The first of make(0), make(1), ... whose key belongs to `worker`."""
    return next(v for v in map(make, range(10_000)) if worker_of_shard(shard_of(stable_hash(v)), workers) == worker)


def test_a_notification_waits_for_what_its_own_worker_has_just_sent_away() -> None:
    """Worker 0 learns at once that both of its notifications are complete; the first sends work that returns to the second.

    The second must wait for it, although nothing outside this worker held it when both became complete.
    """
    to = [owned_by(worker, 3, lambda i: i) for worker in range(3)]
    through_zero = owned_by(2, 3, lambda i: (i, to[0], to[0]))
    through_one = owned_by(0, 3, lambda i: (i, to[1], to[0]))
    flow = Dataflow("away and back")
    first = flow.input("in").distinct(over="time")
    back = first.exchange(lambda r: r[1]).exchange(lambda r: r[2])
    seen = (
        back.map(lambda r: (0, 1)).keyed().unary("gather", lambda: Reduce(operator.add, running=False)).capture("seen")
    )
    cluster = Cluster(flow, 3, seed=None)
    zero, _, two = cluster.sessions

    def deliver(begin: int, end: int) -> None:
        while cluster.in_flight[begin, end]:
            cluster._deliver((begin, end))
        cluster.sessions[end].step()

    with Oracle(cluster).watching():
        zero.input("in").send([through_one])
        two.input("in").send([through_zero])
        for session in cluster.sessions:
            session.input("in").advance_to(1)
            session.step()
        deliver(0, 2)
        deliver(1, 2)
        deliver(2, 0)
        assert cluster.plan.processors[zero.worker.pending()[-1][0]].node.name == "gather"
        deliver(1, 0)
        for session in cluster.sessions:
            session.input("in").close()
        cluster.run()
    assert sorted(cluster.captured(seen)) == [((0,), [(0, 2)])]


class Watermarked(Operator):
    """Has state, and notes the epochs that it is told will never be rolled back."""

    def __init__(self, told: list[int]) -> None:
        self.state = TimedBatches()
        self._told = told

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert time[0] not in self._told, "what comes now was said to be over"
        ctx.notify_at()

    def on_watermark(self, frontier: Frontier) -> None:
        self._told.append(max(epoch for epoch in range(9) if (epoch,) in frontier))


@pytest.mark.parametrize("workers", [1, 2])
def test_without_recovery_an_operator_is_told_that_what_is_complete_is_over(workers: int) -> None:
    told: list[int] = []
    flow = Dataflow("watermarks")
    stream = flow.source("in", Iterable(range(6), batch=1, epoch_every=1)).exchange(lambda x: 0)
    stream.unary("watermarked", lambda: Watermarked(told)).capture("out")
    Cluster(flow, workers, 1).run()
    assert told == [0, 1, 2, 3, 4, 5]


class Twice(Operator):
    """Sends every batch on two outputs, and then both once more."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        for round_ in "ab":
            for output in (0, 1):
                ctx.send([f"{round_}{output}:{x}" for x in batch], output)


def test_what_an_event_sends_is_handled_in_the_order_in_which_it_was_sent() -> None:
    flow, handled = Dataflow("order"), []
    twice = flow.source("in", Iterable(range(2), batch=1)).unary("twice", Twice, outputs=2)
    for output, names in ((0, "xy"), (1, "z")):
        for name in names:
            twice.output(output).inspect(lambda record, name=name: handled.append(name + record)).capture(name)
    Cluster(flow, 1, None).run()
    assert handled == [f"{name}{r}{0 if name in 'xy' else 1}:{x}" for x in (0, 1) for r in "ab" for name in "xyz"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda worker: worker._ready.pop(),
        lambda worker: worker.runtimes[-1].ctx.pending.update({(99,): (0,)}),
        lambda worker: setattr(worker, "queued_bytes", worker.queued_bytes + 1),
        lambda worker: worker.held.update({(0, (0,)): -1}),
        lambda worker: worker.jobs.update({0: (0, (0,))}),
        lambda worker: worker._stack.append(None),
    ],
    ids=["a lost batch", "a lost notification", "bytes", "a capability", "a job", "the stack"],
)
def test_a_worker_notices_that_an_invariant_is_broken(damage: Any) -> None:
    flow = Dataflow("invariants")
    numbers = flow.input("in")
    numbers.exchange(lambda x: x).map(lambda x: (x, x)).keyed().sum().capture("out")
    worker = Worker(compile_plan(flow.graph, 2))
    worker.feed(0, (0,), [1, 2, 3])
    worker.check()
    damage(worker)
    with pytest.raises(AssertionError):
        worker.check()


@pytest.mark.parametrize("workers", [1, 2, 3])
@given(st.integers(0, 2**30))
@settings(max_examples=20)
def test_batches_of_other_types_that_wait_together_are_handled_one_by_one(workers: int, seed: int) -> None:
    """Whatever meets at the input of a loop, or in a message: each batch keeps its types."""
    utc = pl.DataFrame({"id": [8, 5], "x": [dt.datetime(2024, 1, 1)] * 2}).with_columns(
        pl.col("x").dt.replace_time_zone("UTC")
    )
    berlin = utc.with_columns(pl.col("x").dt.convert_time_zone("Europe/Berlin"))
    flow = Dataflow("loop")
    rows = flow.columns("a", Batches([utc, berlin, utc], per_epoch=3))
    flow.columns("b", Batches([utc, utc], per_epoch=2))
    halves = rows.iterate(lambda q: q.filter(pl.col("id") > 1).with_columns(id=pl.col("id") // 2).exchange("id"))
    out = halves.capture("out")
    cluster = Cluster(flow, workers, seed=seed)
    cluster.run()
    found = sorted(
        (row[0], str(row[1].tzinfo)) for _, batch in cluster.captured(out) for row in as_polars(batch).rows()
    )
    ids = [each for n in (8, 5) for each in ((4, 2, 1) if n == 8 else (2, 1))]
    assert found == sorted([(each, "UTC") for each in ids * 2] + [(each, "Europe/Berlin") for each in ids])
