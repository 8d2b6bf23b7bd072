"""An independent judge of notifications: knows everything that is outstanding anywhere in a cluster.

It computes path summaries on the logical graph by itself, looks into every queue of every worker and every frame in
flight, and checks at each delivered notification that nothing outstanding could still lead to its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runtime.session.cluster import Cluster
from timely.dataflow.graph import Graph
from timely.time import Summary, Time, leq, minimal_summaries
from timely.worker.worker import Worker

Paths = dict[tuple[int, int], tuple[Summary, ...]]


def paths_of(graph: Graph) -> Paths:
    """Minimal summaries of all paths, of at least one edge, from an event at a node to an arrival at a node's input."""
    steps = [(edge.source.node, edge.target.node, graph.nodes[edge.source.node].shift) for edge in graph.edges]
    paths: Paths = {}
    for begin, end, shift in steps:
        paths[begin, end] = minimal_summaries([*paths.get((begin, end), ()), shift])
    changed = True
    while changed:
        changed = False
        for middle, end, shift in steps:
            for begin in range(len(graph.nodes)):
                summaries = paths.get((begin, middle), ())
                known = paths.get((begin, end), ())
                better = minimal_summaries([*known, *(s.then(shift) for s in summaries)])
                if set(better) != set(known):
                    paths[begin, end] = better
                    changed = True
    return paths


class Oracle:
    """Watches one cluster; use as a context manager around its run. `checked` counts the notifications judged."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.paths = paths_of(cluster.plan.graph)
        self.held: dict[tuple[int, Time], int] = {}
        self.checked = 0

    def outstanding(self) -> Iterator[tuple[int, Time, str, int | None]]:
        """(node, time, what, worker where it will arrive) of everything that may still cause events."""
        plan = self.cluster.plan
        for session in self.cluster.sessions:
            worker = session.worker
            for node, time in worker.input_times.items():
                if time is not None:
                    yield node, time, "input", None
                    for nth, at in enumerate(time[:-1]):  # it may go on there, whatever the coordinates behind
                        yield node, (*time[:nth], at + 1, *[0] * len(time[nth + 1 :])), "input", None
            for processor, time in worker.pending():
                yield plan.processors[processor].node.index, time, "notification", None
            for runtime in worker.runtimes:
                for _, time in runtime.mail:
                    yield runtime.processor.nodes[0].index, time, "queue", worker.index
            for receiver, waiting in worker._outbox._waiting.items():
                for edge, _, time in waiting:
                    yield plan.graph.edges[edge].target.node, time, "outbox", receiver
        frames = [(pair[1], frame) for pair, frames in self.cluster.in_flight.items() for frame in frames]
        frames += [(receiver, frame) for receiver, link in enumerate(self.cluster._links) for frame in link.inbox]
        for receiver, frame in frames:
            for message in frame.messages:
                yield plan.graph.edges[message.edge].target.node, message.time, "frame in flight", receiver
        for (processor, time), count in self.held.items():
            if count:
                yield plan.processors[processor].node.index, time, "capability", None

    def judge(self, worker: Worker, processor: int, time: Time) -> None:
        """Fail if anything outstanding can lead to `time` at the processor."""
        self.checked += 1
        node = self.cluster.plan.processors[processor].node.index
        graph = self.cluster.plan.graph
        for origin, at, what, arrives in self.outstanding():
            early = any(leq(summary(at), time) for summary in self.paths.get((origin, node), ()))
            if origin == node and arrives == worker.index:
                early = early or leq(at, time)
            assert not early, (
                f"worker {worker.index} notified {graph.nodes[node]} of {time}, but there is a {what} of "
                f"{graph.nodes[origin]} at {at}"
            )

    @contextmanager
    def watching(self) -> Iterator[Oracle]:
        """Judge every notification while inside."""
        notify, several, hold = Worker._notify, Worker._notify_several, Worker.hold
        oracle = self

        def judged(self: Worker, runtime: Any, time: Time) -> None:
            oracle.judge(self, runtime.processor.index, time)
            notify(self, runtime, time)

        def judged_together(self: Worker, runtime: Any, times: list[Time]) -> None:
            for time in times:
                oracle.judge(self, runtime.processor.index, time)
            several(self, runtime, times)

        def counted(self: Worker, op: int, time: Time, diff: int, own: bool = False) -> None:
            oracle.held[op, time] = oracle.held.get((op, time), 0) + diff
            hold(self, op, time, diff, own)

        Worker._notify, Worker.hold = judged, counted  # type: ignore[method-assign]
        Worker._notify_several = judged_together  # type: ignore[method-assign]
        try:
            yield self
        finally:
            Worker._notify, Worker.hold = notify, hold  # type: ignore[method-assign]
            Worker._notify_several = several  # type: ignore[method-assign]
