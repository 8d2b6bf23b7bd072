"""Supervisor of a job: watches its processes, gathers results, to the job's end.

What differs between jobs is a `Lead`, which decides (with a store: what the monitor says; without: all begin and end
together), and a `Placement`, which starts and ends the processes of workers. When the supervisor dies, all others
end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol

from monitor.coordination.supervision import Note, TimelineEvent
from recovery.store.address import Where
from runtime.control import Beat, CapturedBatch, FromChild, Over, Quit, Returned, Stats, Unable
from runtime.host_limits import check_workers
from runtime.program import Program
from runtime.session.job import Drive, OnStats, Result, explaining
from runtime.sources.limits import Limits
from runtime.supervisor.placement import LocalWorkers, Open, Placement
from runtime.supervisor.processes import MONITOR, Child, Children
from runtime.supervisor.result import Gathered
from runtime.supervisor.starting import JobSaved, JobStopped
from runtime.supervisor.together import Together
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError, WorkerLost

if TYPE_CHECKING:
    from runtime.page.address import PageSocket

_TICK_SECONDS = 0.25
_END_SECONDS = 30.0
"""Seconds for workers to exit after the end: sinks are closed then."""

_SAVE_SECONDS = 600.0
"""Seconds for former workers to come to one epoch."""

HEARTBEAT_TIMEOUT = 10.0
"""Default time-out of heartbeats in a job with a store, in seconds."""


class Lead(Protocol):
    """Decision-maker of a job: start of workers, reaction to lost processes, end."""

    children: Children
    over: Over | None
    """End of the job."""
    error: FalkirkError | None
    """Fatal error of the job."""

    @property
    def place(self) -> Placement:
        """Placement of the workers."""

    def hear(self, child: Child, message: FromChild) -> None:
        """Handle a message of a process."""

    def gone(self, child: Child) -> None:
        """Handle the end of a process: by itself or as hung, last messages read."""

    def turn(self) -> None:
        """Called several times a second; raises the error that ends the job."""

    def stopped(self, by: str) -> None:
        """Note a stop `by` Ctrl-C, a signal or falkirk stop, before processes end."""

    def finish(self) -> None:
        """Remove temporary files after the end of the job."""


class Job:
    """One run of a job on worker processes.

    Args:
        program: what every worker builds.
        workers: how many.
        store: its address. It is made if it is missing, and must be empty, or that of this job. None: there is no store, and no
            argument below but `drive`.
        limits: as for `runtime.run.run`.
        on_event: called with (kind, time, data) for everything that happens to the job
            (`monitor.coordination.effects.TimelineEvent`).
        on_note: called with what the user should know, in words.
        heartbeat_timeout: a process that gives no sign of life for so many seconds is replaced.
        monitor: where a monitor listens that is a process apart (`runtime.processes.standalone_monitor`); None: one is started.
        page: where browsers connect, if the monitor is to serve its page; None: only programs that look into the store find it.
        place: opens the placement of the workers: processes of this host, unless something else is said.
        drive: feeds the inputs by hand, on every worker, in a job without a store.
        accept: operators whose functions may be others than those that wrote the store.
        mates: processes that follow each worker, to take over from it: 0 or 1.

    Raises:
        GraphError: for a program that recovery cannot bring through.
        StoreBusy: if another job uses the store; other StoreErrors if it is none, or cannot be written.
    """

    def __init__(
        self,
        program: Program,
        workers: int,
        store: Where | None = None,
        limits: Limits | None = None,
        on_event: Callable[[str, float, dict[str, object]], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        monitor: Where | None = None,
        page: PageSocket | None = None,
        place: Open = LocalWorkers,
        drive: Drive | None = None,
        accept: Collection[str] = (),
        mates: int = 0,
    ) -> None:
        check_workers(workers)
        flow = program.build()
        plan = compile_plan(flow.graph, workers)
        self.note = on_note or (lambda text: print(f"note: {text}", file=sys.stderr))
        self._gathered = Gathered(flow, whole=store is not None)
        with ExitStack() as resources:
            self._lead: Lead
            if store is None:
                self._lead = Together(resources, program, workers, limits or Limits(), self.note, drive)
            else:
                from recovery.moving.refusals import HalfWritten  # the modules of recovery: 0.2 s of a start
                from runtime.supervisor.monitored import Monitored

                def lead() -> Lead:
                    return Monitored(
                        *(resources, program, plan, store, limits or Limits(), on_event, self.note),
                        *(heartbeat_timeout, monitor, page, place, accept, self._gathered.capture, mates),
                    )

                try:
                    self._lead = lead()
                except HalfWritten as half:
                    resources.close()
                    former = partial(Job, program, half.before, store, limits, on_event, self.note, heartbeat_timeout)
                    self._go_on_to_savepoint(former(monitor, place=place, accept=accept, mates=mates), half.before)
                    self._lead = lead()
            self._resources = resources.pop_all()
        self.children = self._lead.children

    def _go_on_to_savepoint(self, former: Job, workers: int) -> None:
        """Run the job with its former workers, up to a savepoint of all."""
        from runtime.supervisor.monitored import Monitored

        assert isinstance(former._lead, Monitored)
        self.note(f"some of {workers} worker(s) have saved more than others: they go on until all have saved the same")
        former._lead.save_or_fail("the change of workers", _SAVE_SECONDS)
        try:
            former.run()
        except JobSaved:
            if former._lead.asked_to_save:
                raise
        self._gathered.take(former._gathered)

    @property
    def place(self) -> Placement:
        """Placement of the workers."""
        return self._lead.place

    @property
    def over(self) -> Over | None:
        """End of the job, once it has come."""
        return self._lead.over

    @property
    def stats(self) -> dict[int, Stats]:
        """Latest statistics of each worker."""
        return self._gathered.stats

    @property
    def pids(self) -> list[int]:
        """Process ids of the present workers, those at work before copies."""
        processes = self.place.workers
        return [processes[place].pid for place in sorted(processes, key=lambda place: (place.copy, place.worker))]

    def explain(self) -> None:
        """Make every worker print its report of pending work, on its standard error."""
        for child in self.place.workers.values():
            if child.ready:
                child.explain()

    def run(self, on_stats: OnStats | None = None) -> Result:
        """Run the job to its end.

        With a store, captured batches that an earlier run has handed over are not handed over again.

        Raises the error of a worker that failed (a function of the program, a sink, the store), FalkirkError with the reason
        when the job cannot go on, WorkerLost when that is the loss of a process, and JobStopped when it was asked to stop.
        """
        try:
            with explaining(self.explain):
                self._see_through(on_stats)
        except (KeyboardInterrupt, JobStopped) as stop:
            by = "falkirk stop" if isinstance(stop, JobStopped) else str(stop) or "Ctrl-C"
            self._lead.stopped(by)
            raise
        finally:
            self._resources.close()
        if on_stats is not None and self.stats:
            on_stats(self.stats)
        self._lead.finish()
        return self._gathered.result()

    def close(self) -> None:
        """End all processes, as they are.

        `run` does so at its end.
        """
        self._resources.close()

    def _see_through(self, on_stats: OnStats | None) -> None:
        while self.over is None:
            self.turn(_TICK_SECONDS)
            if on_stats is not None and self.stats:
                on_stats(self.stats)
        if self.over.reason is not None:
            raise (WorkerLost if self.over.lost else FalkirkError)(self.over.reason)
        self.place.tell(Quit())
        deadline = time.monotonic() + _END_SECONDS
        while not self.place.left() and time.monotonic() < deadline:
            self.turn(_TICK_SECONDS)
        if self._lead.error is not None:
            raise self._lead.error

    def turn(self, seconds: float) -> None:
        """Wait up to `seconds` for messages, and handle them; `run` does so all the time."""
        children = self.children
        for child in children.wait(seconds):
            if child in children.all:  # not ended by what another one said
                self._hear(child, child.control.read())
        for child in children.hung():
            if child in children.all:
                met = child.module == MONITOR and child.process is None
                self.note(f"{_name(child)} {child.hung}; it is {'asked again' if met else 'replaced'}")
                self._gone(child)
        for child, seconds in children.silent():
            if children.liveness.worth_telling(child.pulse, seconds, first=1.0):
                text = f"{_name(child)} has given no sign of life for {seconds:.0f} s, but it {child.pulse.excuse}"
                self.note(f"{text}. It is not replaced")
                self._lead.hear(child, Note(text))
        for child in list(children.all):
            if child in children.all and children.over(child):
                self._gone(child)
        self._lead.turn()

    def _hear(self, child: Child, messages: list[FromChild]) -> None:
        for message in messages:
            match message:
                case Beat(busy, doing):
                    if self.children.liveness.worth_telling(child.pulse, busy):
                        what = doing or "something of its own"
                        self.note(f"{_name(child)} has been busy for {busy:.0f} s with {what}")
                case Stats():
                    child.ready = True
                    if child.place is not None and child.place.at_work:  # what a copy does is done by that one, too
                        self._gathered.hear(child.place.worker, child.incarnation, message)
                case CapturedBatch() if child.place is not None:
                    self._gathered.capture(child.place.worker, message)
                case Returned(value) if child.place is not None:
                    self._gathered.returns(child.place.worker, value)
                case TimelineEvent("gap", _, gap):
                    self._gathered.gap(**gap)
                case Note(text):
                    self.note(text)
                case Unable():
                    child.failed = True
            self._lead.hear(child, message)

    def _gone(self, child: Child) -> None:
        self._hear(child, self.children.end(child))
        self._lead.gone(child)


def _name(child: Child) -> str:
    if child.module == MONITOR:
        return "the monitor"
    if child.place is not None:
        return str(child.place)
    return "a spare process" if child.mate_of is None else f"the mate of worker {child.mate_of}"
