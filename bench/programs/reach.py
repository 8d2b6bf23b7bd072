"""A result over a random graph while edges are replaced, a thousand an epoch: median milliseconds an epoch.

Without `--part`: the nodes that can be reached from ten roots. `strong`: strongly connected components. `pagerank`: ranks in
units of 1e-4, while one edge is replaced an epoch. `triangles`, and `k_core` for k = 3; with `_from_nothing` all of it anew,
by SciPy and by NumPy, after the last epoch. Both count what there is in the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from common import arguments, report

import falkirk
from falkirk import Dataflow, Session, differential, graph

_EPOCHS, _REPLACED = 20, 1000

Ids = npt.NDArray[np.int64]


def build(part: str) -> Dataflow:
    """The program."""
    flow = Dataflow(part or "reach")
    edges, roots = differential.input_of(flow, "edges"), differential.input_of(flow, "roots")
    if part == "strong":
        found = graph.strong_components(edges)
    elif part == "pagerank":
        found = graph.pagerank(edges, unit=1e-4)
    elif part == "triangles":
        found = graph.triangles(edges)
    elif part == "k_core":
        found = graph.k_core(edges, 3)
    else:
        found = graph.reach(edges, roots)
    if part in ("triangles", "k_core"):
        found.capture("out")
    found.probe("done")
    return flow


def drive(session: Session, nodes: int, replaced: int) -> list[float]:
    """Milliseconds that each epoch takes; every worker replaces its share of the edges."""
    rng = np.random.default_rng(7)
    begin, end = rng.integers(0, nodes, 2 * nodes), rng.integers(0, nodes, 2 * nodes)
    given, roots, done = (
        differential.Input(session, "edges"),
        differential.Input(session, "roots"),
        session.probe("done"),
    )
    mine = slice(session.index, None, session.workers)
    given.columns(begin[mine], end[mine])
    if session.index == 0:
        roots.columns(np.arange(10))
    roots.close()
    given.advance_to(1)
    session.step_until(lambda: done.done(0))
    times: list[float] = []
    for epoch in range(1, _EPOCHS + 1):
        chosen = rng.choice(2 * nodes, replaced, replace=False)
        new = rng.integers(0, nodes, replaced), rng.integers(0, nodes, replaced)
        started = time.perf_counter()
        given.columns(begin[chosen[mine]], end[chosen[mine]], -1)
        given.columns(new[0][mine], new[1][mine])
        given.advance_to(epoch + 1)
        session.step_until(lambda epoch=epoch: done.done(epoch))
        times.append((time.perf_counter() - started) * 1e3)
        begin[chosen], end[chosen] = new
    given.close()
    return sorted(times)


def simple(begin: Ids, end: Ids, nodes: int) -> tuple[Ids, Ids]:
    """Each edge once, from the lesser node to the greater."""
    both = np.unique(np.minimum(begin, end)[begin != end] * nodes + np.maximum(begin, end)[begin != end])
    return both // nodes, both % nodes


def triangles(begin: Ids, end: Ids, nodes: int) -> int:
    """The number of triangles."""
    from scipy.sparse import coo_array

    begin, end = simple(begin, end, nodes)
    ahead = coo_array((np.ones(len(begin), np.int64), (begin, end)), (nodes, nodes)).tocsr()
    return int((ahead @ ahead).multiply(ahead).sum())


def core(begin: Ids, end: Ids, nodes: int) -> int:
    """The number of nodes of the 3-core."""
    begin, end = simple(begin, end, nodes)
    while True:
        count = np.bincount(begin, minlength=nodes) + np.bincount(end, minlength=nodes)
        stay = (count[begin] >= 3) & (count[end] >= 3)
        if stay.all():
            return int((count >= 3).sum())
        begin, end = begin[stay], end[stay]


def from_nothing(count: Callable[[Ids, Ids, int], int], nodes: int) -> tuple[float, int]:
    """Milliseconds to count all after the last epoch, and the count."""
    rng = np.random.default_rng(7)
    begin, end = rng.integers(0, nodes, 2 * nodes), rng.integers(0, nodes, 2 * nodes)
    for _ in range(_EPOCHS):
        chosen = rng.choice(2 * nodes, _REPLACED, replace=False)
        begin[chosen], end[chosen] = rng.integers(0, nodes, _REPLACED), rng.integers(0, nodes, _REPLACED)
    started = time.perf_counter()
    found = count(begin, end, nodes)
    return (time.perf_counter() - started) * 1e3, found


def main() -> None:
    args = arguments()
    if args.part.endswith("_from_nothing"):
        milliseconds, found = from_nothing(triangles if args.part.startswith("triangles") else core, args.size)
        report(milliseconds, check=found)
        return
    result = falkirk.run(
        build(args.part),
        workers=args.workers,
        drive=partial(drive, nodes=args.size, replaced=1 if args.part == "pagerank" else _REPLACED),
    )
    times = result.returned[0]
    counted = args.part in ("triangles", "k_core")
    more = {"check": len(differential.snapshot(result.captured("out")))} if counted else {}
    report(times[len(times) // 2], **more)


if __name__ == "__main__":
    main()
