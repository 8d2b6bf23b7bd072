"""A record that goes round a loop whose body only counts it down, in µs an iteration.

With several workers the body sends it to the next worker in every iteration.
"""

from __future__ import annotations

import time
from functools import partial

from common import arguments, report

import falkirk
from falkirk import Dataflow, Session
from timely.data.routing import shard_of, stable_hash, worker_of_shard


def key_of(worker: int, workers: int) -> int:
    """The least integer whose state is kept by `worker`."""
    key = 0
    while worker_of_shard(shard_of(stable_hash(key)), workers) != worker:
        key += 1
    return key


def build(workers: int) -> Dataflow:
    """Records are counters; each goes round until it is zero."""
    keys = [key_of(worker, workers) for worker in range(workers)]
    flow = Dataflow("loop")

    def body(counters):  # type: ignore[no-untyped-def]
        if workers > 1:
            counters = counters.exchange(lambda left: keys[left % workers])
        again, done = counters.map(lambda left: left - 1).branch(lambda left: left > 0)
        return again, done

    flow.input("counters").iterate(body).probe("done")
    return flow


def drive(session: Session, iterations: int, loops: int) -> list[float]:
    """Worker 0 sends a counter an epoch and waits for the loop to end; returns the µs an iteration of each epoch."""
    counters = session.input("counters")
    if session.index != 0:
        counters.close()
        return []
    done = session.probe("done")
    times: list[float] = []
    for epoch in range(loops):
        start = time.perf_counter()
        counters.send([iterations])
        counters.advance_to(epoch + 1)
        session.step_until(lambda epoch=epoch: done.done(epoch))
        times.append((time.perf_counter() - start) * 1e6 / iterations)
    counters.close()
    return times


def main() -> None:
    args = arguments()
    drive_it = partial(drive, iterations=args.size, loops=6)
    result = falkirk.run(build(args.workers), workers=args.workers, drive=drive_it)
    times = sorted(result.returned[0][1:])
    report(times[len(times) // 2])


if __name__ == "__main__":
    main()
