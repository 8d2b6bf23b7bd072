"""Work of a loop that would be done again after a failure: outside sets of times, by that outside lexicographic prefixes.

Several epochs go round a loop at once: nodes of a random graph that are reached from each epoch's own roots, spread over the
workers in each iteration. At random moments of a seeded schedule each worker asks what of its work in the loop is complete. A
prefix keeps the times before the first incomplete one. A set keeps all times that nothing incomplete leads to (Falkirk Wheel,
section 3.5, allows any downward-closed one). The value is the work outside the sets by the work outside the prefixes.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from common import arguments, report

import falkirk
from runtime.session.cluster import Cluster
from timely.operators.base import Context, Operator
from timely.progress.tracker import frontier_at
from timely.time import Time, leq
from timely.worker import restoring

EPOCHS = 10
IN_FLIGHT = 4
SEEDS = 6
SAMPLED = 0.05
"""Share of moments at which workers are asked."""


class Counted(Operator):
    """Counts the records of each time, and passes them on."""

    repeats_over = "record"
    keeps_batches = True

    def __init__(self, done: dict[int, Counter[Time]]) -> None:
        self._done = done

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self._done.setdefault(ctx.worker, Counter())[time] += len(batch)
        ctx.send(batch)


def build(nodes: int, seed: int, done: dict[int, Counter[Time]]) -> falkirk.Dataflow:
    """Nodes that are reached from the roots of each epoch, each once."""
    chance = random.Random(seed)
    edges = [[chance.randrange(nodes) for _ in range(2)] for _ in range(nodes)]
    flow = falkirk.Dataflow("reach")

    def body(reached):  # type: ignore[no-untyped-def]
        new = (
            reached.exchange(lambda node: node)
            .unary("counted", lambda: Counted(done), stateful=False)
            .distinct(over="scope")
        )
        return new.flat_map(edges.__getitem__), new

    flow.input("roots").iterate(body).probe("done")
    return flow


def incomplete(cluster: Cluster, worker: int) -> list[Time]:
    """The least times at which something may still come to the loop's operator on a worker."""
    of = cluster.sessions[worker].worker
    (runtime,) = (each for each in of.runtimes if each.processor.node.name == "counted")
    arrivals = cluster.plan.arrivals[runtime.processor.nodes[0].index]
    local = [time if len(time) == 2 else (time[0], 0) for _, time in restoring.look(of)]
    return [*frontier_at(of.tracker, tuple((at, to) for at, all_ in arrivals.items() for to in all_)), *local]


def lost(nodes: int, workers: int, seed: int) -> tuple[int, int]:
    """The work outside prefixes, and outside sets, over all moments of a run."""
    done: dict[int, Counter[Time]] = {}
    cluster = Cluster(build(nodes, seed, done), workers, seed)
    inputs = [session.input("roots") for session in cluster.sessions]
    probe = cluster.sessions[0].probe("done")
    chance = random.Random(seed)
    fed = complete = prefixes = sets = 0
    while complete < EPOCHS:
        while complete < fed and probe.done((complete,)):
            complete += 1
        if fed < EPOCHS and fed - complete < IN_FLIGHT:
            fed += 1
            for roots in inputs:
                roots.send([chance.randrange(nodes) for _ in range(3)])
                roots.advance_to(fed) if fed < EPOCHS else roots.close()
        cluster.step()
        if fed < IN_FLIGHT or chance.random() > SAMPLED:
            continue
        for worker, of_time in done.items():
            times = incomplete(cluster, worker)
            first = min(times, default=(EPOCHS, 0))
            prefixes += sum(count for time, count in of_time.items() if time >= first)
            sets += sum(count for time, count in of_time.items() if any(leq(least, time) for least in times))
    return prefixes, sets


def main() -> None:
    args = arguments()
    found = [lost(args.size, args.workers, seed) for seed in range(SEEDS)]
    report(sum(sets for _, sets in found) / sum(prefixes for prefixes, _ in found))


if __name__ == "__main__":
    main()
