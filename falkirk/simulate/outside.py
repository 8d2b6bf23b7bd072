"""The world beyond the sinks of a simulated job: what it has seen cannot be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timely.batch import Batch
from timely.dataflow import Dataflow
from timely.errors import FalkirkError
from timely.graph import Graph
from timely.order import Time


class Contradiction(FalkirkError):
    """Something was published twice, with different content."""


class Outside:
    """Collects what captures give. What comes again must be what came before."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, int, Time], list[Any]] = {}
        self.repeated = 0

    def adopt(self, flow: Dataflow) -> None:
        """A process has built its own copy of the program."""

    def captures(self, worker: int, graph: Graph) -> Callable[[int, Time, Batch], None]:
        """What a worker's session calls for each captured batch."""

        def take(node: int, time: Time, batch: Batch) -> None:
            self.publish(graph.nodes[node].name, worker, time, list(batch))

        return take

    def publish(self, name: str, worker: int, time: Time, records: list[Any]) -> None:
        """One time of one output of one worker, whole."""
        key = (name, worker, time)
        content = sorted(records, key=repr)
        if key in self.seen:
            self.repeated += 1
            if self.seen[key] != content:
                raise Contradiction(f"{key} was {self.seen[key]!r:.300} and is now {content!r:.300}")
        self.seen[key] = content

    def result(self, name: str) -> dict[Time, list[Any]]:
        """All that an output gave, by time, of all workers."""
        found: dict[Time, list[Any]] = {}
        for (output, _, time), content in self.seen.items():
            if output == name:
                found.setdefault(time, []).extend(content)
        return {time: sorted(content, key=repr) for time, content in sorted(found.items())}
