"""Changes of 10,000 rows that meet millions of arranged ones: median milliseconds a change.

`--part numpy`: the rows of each key found by binary search in one sorted array.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from common import arguments, report

import falkirk
from falkirk import Dataflow, Session, differential

_KEYS, _CHANGE, _EPOCHS = 1_000_000, 10_000, 30


def build() -> Dataflow:
    """The program."""
    flow = Dataflow("join")
    left, right = differential.input_of(flow, "left"), differential.input_of(flow, "right")
    left.join(right, lambda key, a, b: (a, b), columns=True).probe("done")
    return flow


def drive(session: Session, rows: int) -> list[float]:
    """Milliseconds that each change takes; every worker feeds its share."""
    rng = np.random.default_rng(7)
    left, right, done = differential.Input(session, "left"), differential.Input(session, "right"), session.probe("done")
    mine = slice(session.index, None, session.workers)
    right.columns(rng.integers(0, _KEYS, rows)[mine], np.arange(rows)[mine])
    right.close()
    left.advance_to(1)
    session.step_until(lambda: done.done(0))
    times: list[float] = []
    for epoch in range(1, _EPOCHS + 1):
        keys = rng.integers(0, _KEYS, _CHANGE)
        started = time.perf_counter()
        left.columns(keys[mine], np.arange(_CHANGE)[mine])
        left.advance_to(epoch + 1)
        session.step_until(lambda epoch=epoch: done.done(epoch))
        times.append((time.perf_counter() - started) * 1e3)
    left.close()
    return sorted(times)


def by_hand(rows: int) -> list[float]:
    """The same in NumPy, without anything that keeps it up to date."""
    rng = np.random.default_rng(7)
    keys = rng.integers(0, _KEYS, rows)
    order = np.argsort(keys)
    keys, values = keys[order], np.arange(rows)[order]
    times: list[float] = []
    for _ in range(_EPOCHS):
        wanted, value = rng.integers(0, _KEYS, _CHANGE), np.arange(_CHANGE)
        started = time.perf_counter()
        order = np.argsort(wanted)
        wanted, value = wanted[order], value[order]
        begin, end = keys.searchsorted(wanted), keys.searchsorted(wanted, "right")
        counts = end - begin
        mine = np.repeat(value, counts)
        found = values[np.arange(counts.sum()) + np.repeat(begin - (np.cumsum(counts) - counts), counts)]
        times.append((time.perf_counter() - started) * 1e3)
        assert len(mine) == len(found)
    return sorted(times)


def main() -> None:
    args = arguments()
    if args.part == "numpy":
        times = by_hand(args.size)
    else:
        times = falkirk.run(build(), workers=args.workers, drive=partial(drive, rows=args.size)).returned[0]
    report(times[len(times) // 2])


if __name__ == "__main__":
    main()
