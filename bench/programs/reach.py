"""A result over a random graph while edges are replaced, a thousand an epoch: median milliseconds an epoch.

Without `--part`: the nodes that can be reached from ten roots. `strong`: strongly connected components. `pagerank`: ranks in
units of 1e-4, while one edge is replaced an epoch.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from common import arguments, report

import falkirk
from falkirk import Dataflow, Session, differential, graph

_EPOCHS, _REPLACED = 20, 1000


def build(part: str) -> Dataflow:
    """The program."""
    flow = Dataflow(part or "reach")
    edges, roots = differential.input_of(flow, "edges"), differential.input_of(flow, "roots")
    if part == "strong":
        found = graph.strong_components(edges)
    elif part == "pagerank":
        found = graph.pagerank(edges, unit=1e-4)
    else:
        found = graph.reach(edges, roots)
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


def main() -> None:
    args = arguments()
    result = falkirk.run(
        build(args.part),
        workers=args.workers,
        drive=partial(drive, nodes=args.size, replaced=1 if args.part == "pagerank" else _REPLACED),
    )
    times = result.returned[0]
    report(times[len(times) // 2])


if __name__ == "__main__":
    main()
