"""The cost of operators that have nothing to do, and of what workers say to each other.

`--part idle`: `--size` keyed counts behind a branch that never passes anything, beside a live one: µs an epoch, for 10,
100, ... of them, and the slope between the least and the most. `--part workers`: messages and progress updates an epoch
for 1, 2, 4, ... workers (up to `--size`, at most 64) in the seeded in-memory driver.
"""

from __future__ import annotations

import time

from common import arguments, report

import falkirk
from falkirk import Dataflow, Session
from runtime.session.cluster import Cluster


def build(idle: int) -> Dataflow:
    """A live keyed count, and `idle` ones in chains of ten that no record ever reaches."""
    flow = Dataflow("scale")
    never, live = flow.input("records").branch(lambda record: record < 0)
    live.key_by(lambda record: record).count().probe("counted")
    for chain in range(-(-idle // 10)):
        stream = never
        for link in range(min(10, idle - 10 * chain)):
            name = f"idle_{chain}_{link}"
            stream = stream.key_by(lambda record: record).count(name=name).values()
        stream.probe()
    return flow


def drive(session: Session, epochs: int) -> list[float]:
    """Worker 0 sends a record an epoch and waits for it; returns the µs of each epoch."""
    records = session.input("records")
    if session.index != 0:
        records.close()
        return []
    counted = session.probe("counted")
    times: list[float] = []
    for epoch in range(epochs):
        start = time.perf_counter()
        records.send([epoch % 64])
        records.advance_to(epoch + 1)
        session.step_until(lambda epoch=epoch: counted.done(epoch))
        times.append((time.perf_counter() - start) * 1e6)
    records.close()
    return times


def microseconds_an_epoch(idle: int, workers: int) -> float:
    """The median over epochs of one record each."""
    epochs = max(50, min(2000, 200_000 // idle))
    result = falkirk.run(build(idle), workers=workers, drive=lambda session: drive(session, epochs))
    times = sorted(result.returned[0])
    return times[len(times) // 2]


def idle_operators(most: int, workers: int) -> None:
    """Print a figure for each size, and the slope."""
    sizes = sorted({size for size in (10, 100, 1000, 10_000) if size < most} | {most})
    found = {size: microseconds_an_epoch(size, workers) for size in sizes}
    for size, microseconds in found.items():
        report(microseconds, system=f"falkirk_idle_{size}", unit="us/epoch")
    if len(sizes) > 1:
        slope = (found[sizes[-1]] - found[sizes[0]]) / (sizes[-1] - sizes[0])
        report(slope, system="falkirk_idle_slope", unit="us/epoch/operator")


def talk(most: int) -> None:
    """Print messages and progress updates an epoch: every worker sends 64 records with 64 keys."""
    epochs = 10
    workers = 1
    while workers <= most:
        flow = Dataflow("talk")
        flow.input("records").key_by(lambda record: record).count().probe("counted")
        cluster = Cluster(flow, workers, seed=7)
        for epoch in range(epochs):
            for session in cluster.sessions:
                session.input("records").send(list(range(64)))
                session.input("records").advance_to(epoch + 1)
            cluster.quiesce()
        messages, updates = cluster.traffic.messages / epochs, cluster.traffic.updates / epochs
        report(messages, system="falkirk_messages", unit="messages/epoch", workers=workers)
        report(updates, system="falkirk_progress_updates", unit="updates/epoch", workers=workers)
        workers *= 2


def main() -> None:
    args = arguments()
    if args.part == "workers":
        talk(min(64, args.size))
    else:
        idle_operators(args.size, args.workers)


if __name__ == "__main__":
    main()
