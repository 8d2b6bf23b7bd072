"""Bounded bytes and epochs in flight: sources wait for what is slow, loops never lock up, memory stays flat."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from runtime.run import run
from runtime.session.cluster import Cluster
from runtime.session.session import Session
from runtime.sources.limits import Limits
from timely.data.batch import Batch
from timely.errors import FalkirkError
from timely.io import Iterable, Memory
from timely.io.interface import Chunk, End, Position, Wait


class Greedy:
    """A source that gives as much as it is asked for: `chunks` chunks of `size` bytes, `each` chunks an epoch."""

    name = "greedy"

    def __init__(self, chunks: int, size: int, each: int = 1) -> None:
        self.chunks, self.size, self.each = chunks, size, each
        self.given = 0

    def partitions(self, worker: int, workers: int) -> Sequence[Greedy]:
        return [self] if worker == 0 else []

    def read(self) -> Chunk | Wait | End:
        if self.given == self.chunks:
            return End()
        self.given += 1
        return Chunk((self.given - 1) // self.each, [(self.given, b"x" * self.size)], self.given)

    def seek(self, position: Position) -> None: ...

    def ack(self, position: Position) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("epochs", [1, 3, 16])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_source_is_never_more_epochs_ahead_than_allowed(epochs: int, workers: int) -> None:
    source, sink = Greedy(60, 10), Memory()
    flow = Dataflow()
    stream = flow.source("in", source)
    stream.exchange(lambda r: r[0]).key_by(lambda r: r[0] % 3).count(over="time").records().exchange(repr).to(sink)
    probe = stream.exchange(lambda r: -r[0]).probe()
    cluster = Cluster(flow, workers, 7, Limits(epochs=epochs))
    ahead = []
    first = cluster.sessions[0]
    while not all(session.done for session in cluster.sessions):
        cluster.step()
        at, complete = first.worker.input_time(0), first.probe(probe).frontier
        if at is not None and complete:
            ahead.append(at[0] - complete[0][0])
            assert source.given <= first.worker.tracker.frontier(first.plan.probes[probe.node])[0][0] + epochs + 1
        if not any(cluster.in_flight.values()):
            cluster._sweep()
    assert max(ahead) <= epochs
    assert len(sink.records()) == 60


def test_one_epoch_in_flight_is_lock_step_and_still_ends() -> None:
    seen: list[Any] = []
    flow = Dataflow()
    flow.source("in", Iterable(range(20), batch=1, epoch_every=1)).inspect(lambda x: seen.append(("read", x))).key_by(
        lambda x: 0
    ).count(over="time").records().inspect(lambda kv: seen.append("counted")).capture()
    run(flow, limits=Limits(epochs=1))
    assert seen == [event for x in range(20) for event in (("read", x), "counted")]


@pytest.mark.parametrize("workers", [2, 3])
def test_a_worker_that_is_behind_makes_all_sources_pause(workers: int) -> None:
    """Worker 1 is given frames but no time: the source at worker 0 stops, and goes on when worker 1 has caught up."""
    source = Greedy(200, 1000, each=1000)
    flow = Dataflow()
    flow.source("in", source).broadcast().map(lambda r: r[0]).capture("out")
    cluster = Cluster(flow, workers, None, Limits(bytes=10_000))
    first, slow = cluster.sessions[0], cluster.sessions[1]

    def pass_frames() -> None:
        for pair, frames in cluster.in_flight.items():
            while frames:
                cluster._deliver(pair)

    slow.worker.run = lambda limit=0: False  # type: ignore[method-assign]
    for _ in range(100):
        first.step()
        pass_frames()
        slow.step()
        pass_frames()
    assert 0 in range(source.given), "it began"
    stopped_at = source.given
    assert stopped_at < 30
    assert slow.worker.queued_bytes <= 10_000 + 5_000
    assert first.worker.pressed_by == {1}
    del slow.worker.run
    cluster.run()
    assert source.given == 200
    assert first.worker.pressed_by == set()
    assert all(len([x for _, b in s.captured("out") for x in b]) == 200 for s in cluster.sessions)


@pytest.mark.parametrize("seed", range(4))
def test_pressure_in_a_loop_locks_nothing_up(seed: int) -> None:
    """A loop carries far more than may be queued: sources pause, the loop itself never does."""
    flow = Dataflow()

    def body(inner: Any) -> Any:
        return inner.flat_map(lambda r: [(r[0] - 1, n, r[2]) for n in range(2)] if r[0] else []).exchange(
            lambda r: r[1:]
        )

    records = [(6, n, b"x" * 200) for n in range(12)]
    flow.source("in", Iterable(records, batch=1, epoch_every=2)).iterate(body).map(lambda r: r[0]).capture("out")
    cluster = Cluster(flow, 3, seed, Limits(epochs=2, bytes=1_000))
    cluster.run(limit=200_000)
    assert sum(len(batch) for _, batch in cluster.captured("out")) == 12 * sum(2**k for k in range(1, 7))


class SlowSink:
    """Takes its time for every write, and keeps nothing."""

    def open(self, worker: int, workers: int) -> SlowSink:
        return self

    def write(self, epoch: int, batch: Batch) -> None:
        time.sleep(0.002 * len(batch))

    def commit(self, epoch: int) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


def test_memory_stays_flat_when_a_sink_is_slow() -> None:
    """A hundred megabytes of one epoch through a slow sink in another process, two megabytes in flight."""
    size, chunks, allowed = 250_000, 400, 2_000_000

    def build() -> Dataflow:
        flow = Dataflow()
        flow.source("in", Greedy(chunks, size, each=chunks)).exchange(lambda r: r[0] % 10).to(SlowSink())
        return flow

    def drive(session: Session) -> tuple[int, int]:
        most, before = 0, 0
        while not session.done:
            session.step(0.2)
            link: Any = session._link
            most = max(most, session.worker.queued_bytes + link.unsent)
            before = before or resident()
        return most, resident() - before

    result = run(build, workers=2, drive=drive, limits=Limits(bytes=allowed))
    assert result.stats[0].records == chunks
    assert sum(stats.written for stats in result.stats.values()) == chunks
    for most, grown in result.returned.values():
        assert most < 2 * allowed + 4 * size
        assert grown < 40 << 20, f"{grown >> 20} MB more than at the start"


def resident() -> int:
    """Bytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_slow_sink_in_this_process_holds_the_source_back() -> None:
    given_at_write: list[int] = []
    source = Greedy(50, 10)

    class Watching(SlowSink):
        def write(self, epoch: int, batch: Batch) -> None:
            given_at_write.append(source.given - epoch)

    flow = Dataflow()
    flow.source("in", source).to(Watching())
    run(flow, limits=Limits(epochs=3))
    assert max(given_at_write) <= 4


def test_a_source_that_has_nothing_to_read_does_not_keep_the_others_from_being_read() -> None:
    class Dry(Greedy):
        def read(self) -> Chunk | Wait | End:
            self.given += 1
            return Wait(0.001) if self.given < 5 else End()

    flow = Dataflow()
    busy = Greedy(10, 10)
    flow.source("dry", Dry(0, 0)).concat(flow.source("busy", busy)).capture("out")
    result = run(flow)
    assert sum(len(batch) for _, batch in result.captured("out")) == 10


def test_partitions_are_read_in_step() -> None:
    """The partition that is furthest behind is read first: no epoch waits for a partition that is far ahead."""
    order: list[int] = []

    def noting(index: int) -> Iterator[int]:
        for x in range(10):
            order.append(index)
            yield x

    flow = Dataflow()
    parts = [noting(0), noting(1), noting(2)]
    flow.source("in", Iterable(partitioned=parts, batch=1, epoch_every=1)).capture()
    run(flow)
    for n in range(0, 30, 3):
        assert sorted(order[n : n + 3]) == [0, 1, 2]


def test_a_partition_that_goes_back_in_epochs_is_refused() -> None:
    class Backwards(Greedy):
        def read(self) -> Chunk | Wait | End:
            self.given += 1
            return Chunk(3 - self.given, [1], self.given)

    flow = Dataflow()
    flow.source("in", Backwards(2, 1)).capture()
    with pytest.raises(FalkirkError, match=r"source 'in' .*partition greedy went back from epoch 2 to 1"):
        run(flow)
