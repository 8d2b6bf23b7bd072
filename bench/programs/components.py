"""Connected components of a random graph: the first answer in seconds, or the median milliseconds that a changed edge takes.

`--part change`: with half as many edges again as nodes many are outside of the largest component, so that edges that come and
go merge and split components. `--part numpy`: the first answer by hand, labels spread in NumPy until nothing changes.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from common import arguments, percentile, report

import falkirk
from falkirk import Dataflow, Session, differential, graph

_CHANGES = 400


def build() -> Dataflow:
    """The program."""
    flow = Dataflow("components")
    graph.components(differential.input_of(flow, "edges")).probe("done")
    return flow


def edges(nodes: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random edges."""
    rng = np.random.default_rng(7)
    return rng.integers(0, nodes, count), rng.integers(0, nodes, count)


def first(session: Session, nodes: int) -> float:
    """Seconds until the components are known; each worker feeds its share of the edges."""
    begin, end = (column[session.index :: session.workers] for column in edges(nodes, 5 * nodes))
    given, done = differential.Input(session, "edges"), session.probe("done")
    started = time.perf_counter()
    given.columns(begin, end)
    given.advance_to(1)
    session.step_until(lambda: done.done(0))
    seconds = time.perf_counter() - started
    given.close()
    return seconds


def change(session: Session, nodes: int) -> list[float]:
    """Milliseconds that each change takes, the least first: worker 0 takes an edge away, or gives one that was taken."""
    begin, end = edges(nodes, 3 * nodes // 2)
    given, done = differential.Input(session, "edges"), session.probe("done")
    if session.index:
        given.close()
        return []
    given.columns(begin, end)
    given.advance_to(1)
    session.step_until(lambda: done.done(0))
    times: list[float] = []
    chosen = np.random.default_rng(8).integers(0, len(begin), _CHANGES)
    for number in range(2 * _CHANGES):
        edge = int(chosen[number // 2])
        started = time.perf_counter()
        given.change((int(begin[edge]), int(end[edge])), number % 2 * 2 - 1)
        given.advance_to(number + 2)
        session.step_until(lambda epoch=number + 1: done.done(epoch))
        times.append((time.perf_counter() - started) * 1e3)
    given.close()
    return sorted(times[20:])


def by_hand(nodes: int) -> float:
    """Seconds that spreading the least label takes in NumPy."""
    begin, end = edges(nodes, 5 * nodes)
    started = time.perf_counter()
    label = np.arange(nodes)
    source, target = np.concatenate([begin, end]), np.concatenate([end, begin])
    while True:
        least = label.copy()
        np.minimum.at(least, target, label[source])
        if (least == label).all():
            return time.perf_counter() - started
        label = least


def main() -> None:
    args = arguments()
    if args.part == "numpy":
        report(by_hand(args.size))
        return
    drive = partial(change if args.part == "change" else first, nodes=args.size)
    result = falkirk.run(build(), workers=args.workers, drive=drive)
    if args.part == "change":
        times = result.returned[0]
        report(percentile(times, 0.5), p90=round(percentile(times, 0.9), 3), most=round(times[-1], 3))
    else:
        report(max(result.returned.values()))


if __name__ == "__main__":
    main()
