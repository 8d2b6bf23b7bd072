"""A large made-up job that stands still, or moves when it is told to: what the page is given by a monitor, without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from monitor.coordination.options import Options
from monitor.coordination.supervision import TimelineEvent
from monitor.explain.exposure import Danger
from monitor.explain.measured import Window
from monitor.explain.policy import compare
from monitor.explain.verdict import Judge
from monitor.explain.what_if import restart
from monitor.web.questions import Done, WrongQuestion
from monitor.web.view import Observation, WorkerView
from recovery.layout import Layout
from recovery.metadata import Bound, at_epoch
from recovery.place import Place
from recovery.protocol import ROWS, Observed
from runtime.control import Propose
from runtime.supervisor.other_policies import proposed
from timely.dataflow.graph import Graph


class StandingJob:
    """See `monitor.web.questions.JobState`. `step` moves all frontiers, and some counters of some operators."""

    def __init__(self, layout: Layout, seed: int = 7) -> None:
        self.layout = layout
        self.options = Options(layout)
        self.samples: dict[int, tuple[float, Observed]] = {}
        self._random = np.random.default_rng(seed)
        self._tables = np.zeros((layout.workers, len(ROWS), len(layout.processors)), dtype=np.int64)
        self.at = 1000.0
        self.epoch = 0
        self.low: tuple[tuple[Bound, ...], ...] = self.options.watermarks
        self.events = [TimelineEvent("began", 999.0, {"workers": layout.workers})]
        self.happens("restored", generation=1, seconds=1.0, start=True)
        self.live = True
        self.exposure: tuple[Danger, ...] = ()
        self.read: dict[int, tuple[int, int | None]] = {}
        self.graph: Graph | None = None
        self.window = Window(layout)

    @property
    def settings(self) -> dict[str, str]:
        return {"store": "made up"}

    def act(self, what: str, place: Place) -> str:
        raise WrongQuestion("nothing runs", 503)

    def happens(self, kind: str, **data: Any) -> None:
        """Something for the timeline, now."""
        self.events.append(TimelineEvent(kind, self.at, data))

    def step(self, seconds: float = 0.25) -> Observation:
        """A moment later."""
        self.at += seconds
        self.epoch += 3
        shape = self._tables.shape[0], self._tables.shape[2]
        slower = self._random.integers(0, 3, shape)
        self._tables[:, ROWS.index("epoch")] = self.epoch - slower
        self._tables[:, ROWS.index("taken")] += self._random.integers(0, 1000, shape)
        self._tables[:, ROWS.index("sent")] += self._random.integers(0, 1000, shape)
        self._tables[:, ROWS.index("busy")] += self._random.integers(0, 20_000, shape)
        self._tell()
        if self.epoch % 6 == 0:
            safe = tuple(at_epoch(max(0, self.epoch - 5), info.depth) for info in self.layout.processors)
            self.low = tuple((*safe,) for _ in range(self.layout.workers))  # each anew, as the monitor makes them
        return self.observe()

    def tell(self, **numbers: int) -> None:
        """All operators of all workers tell these numbers, by the names of `ROWS`."""
        for name, number in numbers.items():
            self._tables[:, ROWS.index(name)] = number
        self._tell()

    def _tell(self) -> None:
        for worker in range(self.layout.workers):
            numbers = self._tables[worker].tobytes()
            reported = Observed(Place(worker), 1, numbers, self.epoch * 1000, 0, self.epoch, (0.01, 0.02))
            self.samples[worker] = self.at, reported

    def observe(self) -> Observation:
        views = tuple(WorkerView("alive", worker, 0) for worker in range(self.layout.workers))
        completed: tuple[Any, ...] = tuple((self.epoch,) * len(self.layout.groups) for _ in range(self.layout.workers))
        verdict = Judge(self.events).verdict(self.live, self.at)
        reported = completed, views, dict(self.samples), verdict, self.live, dict(self.read)
        return Observation(self.at, "running", 1, self.low, *reported, exposure=self.exposure)

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        done(restart(self.options))

    def if_policies(self, policies: Mapping[str, str], done: Callable[[Layout | str], None]) -> None:
        if self.graph is None:
            raise WrongQuestion("nobody here has the program", 503)
        found = proposed(self.graph, self.layout, Propose(1, dict(policies)))
        done(found.error or msgspec.msgpack.decode(found.layout, type=Layout))

    def compared(self, policies: Mapping[str, str], layout: Layout) -> dict[str, Any]:
        samples = {worker: reported for worker, (_, reported) in self.samples.items()}
        return compare(policies, layout, self.options, samples, self.window.rates(), self.exposure)
