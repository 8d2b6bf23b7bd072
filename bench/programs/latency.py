"""One record an epoch through a keyed count: from `send` until the probe says that the epoch is complete, in µs.

With two workers, each record's key belongs to the other worker.
"""

from __future__ import annotations

import time

from common import arguments, percentile, report

import falkirk
from falkirk import Dataflow, Session
from timely.data.routing import shard_of, stable_hash, worker_of_shard


def build() -> Dataflow:
    """A keyed count of what is sent by hand."""
    flow = Dataflow("latency")
    flow.input("records").key_by(lambda record: record).count().probe("counted")
    return flow


def keys_of(worker: int, workers: int, how_many: int) -> list[int]:
    """The first so many integers whose state is kept by `worker`."""
    keys: list[int] = []
    candidate = 0
    while len(keys) < how_many:
        if worker_of_shard(shard_of(stable_hash(candidate)), workers) == worker:
            keys.append(candidate)
        candidate += 1
    return keys


def drive(session: Session, epochs: int) -> list[float]:
    """Worker 0 sends and waits, epoch by epoch, and returns the µs of each; the others only serve."""
    records = session.input("records")
    if session.index != 0:
        records.close()
        return []
    keys = keys_of(session.workers - 1, session.workers, 64)
    counted = session.probe("counted")
    times: list[float] = []
    for epoch in range(epochs):
        start = time.perf_counter()
        records.send([keys[epoch % 64]])
        records.advance_to(epoch + 1)
        session.step_until(lambda epoch=epoch: counted.done(epoch))
        times.append((time.perf_counter() - start) * 1e6)
    records.close()
    return times


def main() -> None:
    args = arguments()
    warm_up = args.size // 10
    result = falkirk.run(build(), workers=args.workers, drive=lambda session: drive(session, warm_up + args.size))
    times = sorted(result.returned[0][warm_up:])
    report(percentile(times, 0.5), p99=percentile(times, 0.99))


if __name__ == "__main__":
    main()
