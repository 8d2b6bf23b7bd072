"""A loop: how long does each number take to come down to 1?

Take a number. If it is even, halve it; if it is odd, triple it and add one; and again. Nobody knows a number that never
comes down to 1 this way (Collatz, 1937), but some take their time.

    falkirk run examples/loop.py
    falkirk run examples/loop.py -w 2 --arg upto=50000

How the loop works: `iterate` makes a scope of its own, in which times have one more coordinate: (epoch, iteration). What
the body returns first goes round again, one iteration later; what it returns second leaves, and is of its epoch again.
The loop has finished an epoch when nothing of it goes round any more. The engine notices that by itself: nobody counts
iterations, no worker waits for the others at the end of each, and the next epoch may be in the loop at the same time.
Only `max` behind the loop, which has to see all of an epoch, is told when it has.
"""

from __future__ import annotations

import falkirk
from falkirk import Dataflow, Stream

Walk = tuple[int, int, int]
"""(where it started, where it is, steps so far)"""


def build(upto: int = 10_000) -> Dataflow:
    """Walks from 1, 2, ... `upto`; prints the longest one."""
    flow = Dataflow("loop")
    numbers = falkirk.Iterable(partitioned=[range(1, upto + 1, 2), range(2, upto + 1, 2)])
    walks = flow.source("numbers", numbers).map(lambda n: (n, n, 0), name="begin").iterate(step, name="walking")
    steps = walks.map(lambda walk: (walk[0], walk[2]), name="steps")
    steps.capture("lengths")

    longest = steps.key_by(lambda _: "longest").map_values(lambda pair: (pair[1], -pair[0])).max(over="time")
    longest.values().map(lambda best: f"{-best[1]:,} takes {best[0]} steps to come down to 1").to(falkirk.Console())
    return flow


def step(walks: Stream) -> tuple[Stream, Stream]:
    """The body of the loop: one step for those that are not at 1 yet; the others leave."""
    home, away = walks.branch(lambda walk: walk[1] == 1, name="home")
    return away.map(onward, name="onward"), home


def onward(walk: Walk) -> Walk:
    """One step."""
    start, n, steps = walk
    return start, (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
