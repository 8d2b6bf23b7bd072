"""Simulated cluster: workers in one thread, with a frame order drawn from a seed.

Frames arrive in any legal order.

For tests and for study: the same seed gives the same run, event by event. Frames of one worker to another stay in
order; everything else may overtake. It counts what crosses between workers. Jobs of operators run in threads, so when one
of them ends is not drawn from the seed.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from recovery.place import Place
from runtime.folders.workspace import Workspace
from runtime.session.session import Session
from runtime.sources.limits import Limits
from timely.data.batch import Batch
from timely.data.messages import Frame
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.plan import Plan, compile_plan
from timely.dataflow.wire import Capture
from timely.errors import FalkirkError
from timely.time import Time

_JOB_SECONDS = 0.001


@dataclass(slots=True)
class Traffic:
    """Counters of the traffic between workers."""

    frames: int = 0
    messages: int = 0
    updates: int = 0


class _MemoryLink:
    """Link of one worker in a `Cluster`.

    Sent frames wait in the cluster, delivered ones in `inbox`.
    """

    def __init__(self, cluster: Cluster, index: int) -> None:
        self._cluster = cluster
        self._index = index
        self.inbox: list[Frame] = []
        self.unsent = 0

    def send(self, place: Place, frame: Frame) -> None:
        traffic = self._cluster.traffic
        traffic.frames += 1
        traffic.messages += len(frame.messages)
        traffic.updates += len(frame.progress)
        self._cluster.in_flight[self._index, place.worker].append(frame)

    def poll(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        frames, self.inbox = self.inbox, []
        return frames

    def close(self) -> None:
        self.inbox.clear()

    abandon = close


class Cluster:
    """Simulated cluster of `workers` workers over one dataflow, in one thread.

    `seed` draws the schedule (None: round robin, every frame delivered at once).
    """

    def __init__(self, flow: Dataflow | Plan, workers: int, seed: int | None = 0, limits: Limits | None = None) -> None:
        self.plan = flow if isinstance(flow, Plan) else compile_plan(flow.graph, workers)
        self.traffic = Traffic()
        self.in_flight: dict[tuple[int, int], deque[Frame]] = {
            (a, b): deque() for a in range(workers) for b in range(workers) if a != b
        }
        self._random = Random(seed) if seed is not None else None
        self._links = [_MemoryLink(self, index) for index in range(workers)]
        self._now = 0.0
        workspace, job = Workspace(), uuid.uuid4().hex
        self.sessions = [
            Session(self.plan, index, self._links[index], limits, clock=lambda: self._now, workspace=workspace, job=job)
            for index in range(workers)
        ]

    def step(self) -> bool:
        """Run one random action: deliver a frame, or step a worker.

        False if no worker could do anything.
        """
        if self._random is None:
            return self._sweep()
        waiting = [pair for pair, frames in self.in_flight.items() if frames]
        choice = self._random.randrange(len(waiting) + len(self.sessions))
        if choice < len(waiting):
            self._deliver(waiting[choice])
            return True
        return self.sessions[choice - len(waiting)].step() or bool(waiting)

    def run(self, limit: int = 10_000_000) -> None:
        """Run until every worker is done.

        Raises FalkirkError when nothing moves any more, or after `limit` actions.
        """
        idle = 0
        for _ in range(limit):
            if all(session.done for session in self.sessions) and not any(self.in_flight.values()):
                return
            if self.step():
                idle = 0
                continue
            self._now += 0.001
            if any(session.jobs for session in self.sessions):
                time.sleep(_JOB_SECONDS)  # nothing can move before a job of an operator ends
                continue
            idle += 1
            if idle > 50 * len(self.sessions) + 1000 and not self._sweep():
                raise FalkirkError("no worker can do anything, but the job is not done:\n" + self.explain())
        raise FalkirkError(f"the job is not done after {limit} actions:\n{self.explain()}")

    def quiesce(self) -> None:
        """Deliver all frames and step all workers until nothing moves."""
        while self._sweep():
            pass

    def captured(self, capture: Capture | str) -> list[tuple[Time, Batch]]:
        """Batches of a capture, on all workers."""
        return [entry for session in self.sessions for entry in session.captured(capture)]

    def explain(self) -> str:
        """Report on pending work, on every worker."""
        from runtime.session.explain import report

        return "\n".join(report(session.worker) for session in self.sessions)

    def _deliver(self, pair: tuple[int, int]) -> None:
        self._links[pair[1]].inbox.append(self.in_flight[pair].popleft())

    def _sweep(self) -> bool:
        moved = False
        for pair, frames in self.in_flight.items():
            while frames:
                self._deliver(pair)
                moved = True
        for session in self.sessions:
            moved |= session.step()
        return moved
