"""Job at rest as shown on its page: read from the journals of its store.

The journals stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from monitor.coordination.options import Options
from monitor.coordination.records import OWNER, KeptEvent, Record, SavedJob, decode_record
from monitor.coordination.supervision import TimelineEvent
from monitor.explain.verdict import Judge, Verdict
from monitor.explain.what_if import restart
from monitor.web.questions import OVER_POLICIES, Done, WrongQuestion
from monitor.web.view import Observation, WorkerView
from recovery.checkpoint.reading import read_checkpoints
from recovery.errors import NoSolutionError
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import NEVER
from recovery.place import Place, places
from recovery.protocol import END, ROWS, Observed
from recovery.store.identity import store_id
from recovery.store.interface import Store
from recovery.store.reading import survey
from timely.errors import FalkirkError

_AT = {name: number for number, name in enumerate(ROWS)}


class KeptJob:
    """Job at rest; see `monitor.web.questions.JobState`.

    `verdict`: on it; None for that of its events.
    """

    def __init__(self, layout: Layout, options: Options, saved: SavedJob, verdict: Verdict | None = None) -> None:
        self.layout, self.saved = layout, saved
        self.options = options
        self.samples: dict[int, tuple[float, Observed]] = {}
        self.happened = tuple(TimelineEvent(kept.kind, kept.at, kept.data) for kept in saved.events)
        self.newest = max((event.at for event in saved.events), default=0.0)
        self.verdict = verdict or judge_of(saved).verdict(False, self.newest)

    def observe(self) -> Observation:
        """Observation of the job at its last recorded state."""
        decision = self.saved.decision
        return Observation(
            at=self.newest or time.time(),
            phase="finished" if self.saved.finished else "not running",
            generation=decision.generation if decision is not None else 0,
            low=self.options.watermarks,
            completed=tuple(
                tuple(min(cuts[worker][0], NEVER) for cuts in self.options.last_cuts())
                for worker in range(self.layout.workers)
            ),
            workers=tuple(WorkerView("not running", -1, 0) for _ in places(self.layout.workers)),
            samples=dict(self.samples),
            verdict=self.verdict,
            live=False,
        )

    settings: ClassVar[dict[str, str]] = {}

    def act(self, what: str, place: Place) -> str:
        """Refuse an order: nothing runs."""
        raise WrongQuestion("the job is over: there is nothing to carry out an order", 503)

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        """Rollback frontiers of a restart.

        All workers are without memory now, whichever are named.
        """
        try:
            done(restart(self.options))
        except NoSolutionError as error:
            raise WrongQuestion(str(error), 409) from error

    def if_policies(self, policies: Mapping[str, str], done: Callable[[Layout | str], None]) -> None:
        """Refuse the question: nobody has the program."""
        raise WrongQuestion(OVER_POLICIES, 503)

    def compared(self, policies: Mapping[str, str], layout: Layout) -> dict[str, Any]:
        """Refuse the question: nothing is measured."""
        raise WrongQuestion(OVER_POLICIES, 503)


class RecordedJob(KeptJob):
    """Job read from its store.

    Raises FalkirkError if there is no job in it, or its files are damaged.
    """

    def __init__(self, store: Store) -> None:
        identity, layout, saved = read_job(store)
        decided = saved.decision.bounds if saved.decision is not None else None
        super().__init__(layout, Options(layout, saved.watermarks, decided), saved)
        self.identity = identity
        for worker in range(self.layout.workers):
            recorder = WorkerRecorder(self.layout, worker)
            checkpoints = read_checkpoints(store, identity, self.layout, worker, recorder)
            xis = tuple(saved.checkpoint.xi for saved in checkpoints.saved())
            wrong = self.options.join(worker, xis)
            if wrong is not None:
                raise FalkirkError(wrong)
            self.samples[worker] = self.newest, self._numbers(worker, recorder)

    def _numbers(self, worker: int, recorder: WorkerRecorder) -> Observed:
        """Observation of a worker at rest: newest checkpoints, and logs.

        All else is unknown, which is -1; so is `kept_from`, for nobody has memory.
        """
        table = np.full((len(ROWS), len(self.layout.processors)), -1, dtype=np.int64)
        table[[_AT["logged"], _AT["logged_bytes"]]] = 0
        for p in range(len(self.layout.processors)):
            flat = self.options.topology.flat(p, worker)
            chain = self.options.chains[flat]
            bound = max(chain[-1][0] if chain else (), self.options.low(flat))
            table[_AT["epoch"], p] = min(bound[0], END)
            table[_AT["inner"], p] = min(bound[1], END) if len(bound) > 1 else 0
        sender = {edge.edge: edge.source for edge in self.layout.edges}
        for (edge, _), entries in recorder.logs.items():
            table[_AT["logged"], sender[edge]] += len(entries)
            table[_AT["logged_bytes"], sender[edge]] += sum(memoryview(entry.payload).nbytes for entry in entries)
        generation = self.saved.decision.generation if self.saved.decision is not None else 0
        return Observed(Place(worker), generation, table.tobytes(), 0, 0, None)


def judge_of(saved: SavedJob) -> Judge:
    """Verdict on a job by its journal; earlier versions journaled no end."""
    judge = Judge(saved.events)
    if saved.finished:
        judge.take(KeptEvent("finished", judge.last))
    return judge


def read_job(store: Store) -> tuple[bytes, Layout, SavedJob]:
    """Id, layout and monitor's records of the job in a store.

    Raises FalkirkError if there is none.
    """
    identity = store_id(store)
    saved = read_saved(store, identity) if identity is not None else SavedJob()
    if saved.layout is None or identity is None:
        raise FalkirkError("there is no job in that store yet: it is empty, or no worker has ever joined")
    return identity, saved.layout, saved


def read_saved(store: Store, identity: bytes) -> SavedJob:
    """The records of the monitor of a store."""
    newest: dict[object, Record] = {}
    for number, (_, sections) in enumerate(survey(store, OWNER, identity).read()):
        for place, section in enumerate(sections):
            newest[number, place] = decode_record(section.head)
    return SavedJob.of(newest.values())
