"""Lead of a job with a store: runs a monitor, and relays messages to and from it.

It has no part in recovery itself. The monitor says when a worker is to be replaced; a monitor that dies is replaced at once.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from msgspec.msgpack import encode
from msgspec.structs import replace

from monitor.coordination.supervision import (
    Busy,
    Fence,
    Happened,
    Lost,
    Mates,
    MateView,
    Note,
    Noted,
    ProgramFailed,
    Respawn,
    Saving,
    Stopping,
    TimelineEvent,
)
from recovery.guarantees.notes import notes_of
from recovery.layout import lay_out
from recovery.place import Place
from recovery.store.address import StoreAddress, Where
from runtime.control import (
    FROM_CHILD,
    PAGE_SOCKET,
    Beat,
    CapturedBatch,
    CaughtUp,
    Control,
    Followed,
    FromChild,
    Over,
    Propose,
    Stats,
    Unable,
    Watch,
)
from runtime.folders.scratch import Scratch, for_sockets
from runtime.folders.workspace import Workspace
from runtime.page.address import UNIX, PageSocket, open_door
from runtime.page.launched import LaunchedPage
from runtime.processes.standalone_monitor import NoMonitor, connect, socket_of
from runtime.program import Program
from runtime.sources.limits import Limits
from runtime.supervisor.moving import Around, publish, settle
from runtime.supervisor.other_policies import proposed
from runtime.supervisor.placement import LocalWorkers, Open, Task
from runtime.supervisor.processes import MONITOR, Child, Children
from runtime.supervisor.result import error_of
from runtime.supervisor.starting import JobSaved
from runtime.supervisor.store import JobStore, address_file
from timely.data.batch import Batch
from timely.data.codec import encode_batch
from timely.dataflow.functions import functions_of
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError, WorkerLost
from timely.time import Time

_TICK_SECONDS = 0.25

_AWAY_SECONDS = 0.5
"""Seconds between two attempts to reach a standalone monitor while it is away."""

_NOTE_SECONDS = 1.0
"""Seconds for the monitor to record the error that ends the job."""

_SHORT_LIVES, _SHORT_SECONDS, _FAILED_SECONDS = 10, 2.0, 60.0
"""Limits on short lives of a monitor: number in a row, seconds each.

The third applies to one that failed for a reason of its own, which may take longer to come to the same end again.
"""

OnEvent = Callable[[str, float, dict[str, Any]], None]


class Monitored:
    """`runtime.supervisor.supervisor.Lead` of a job with a store.

    See `Job` for the arguments. What it opens is closed with `resources`.
    """

    def __init__(
        self,
        resources: ExitStack,
        program: Program,
        plan: Plan,
        store: Where,
        limits: Limits,
        on_event: OnEvent | None,
        note: Callable[[str], None],
        heartbeat_timeout: float,
        monitor: Where | None,
        page: PageSocket | None,
        place: Open,
        accept: Collection[str],
        on_capture: Callable[[int, CapturedBatch], None],
        mates: int,
    ) -> None:
        self.over: Over | None = None
        self.error: FalkirkError | None = None
        self._layout = replace(lay_out(plan), functions=functions_of(plan.graph))
        self._graph = plan.graph
        self._accept = tuple(plan.graph.node_named(name).name for name in accept)
        for text in notes_of(plan.graph, mates=mates > 0):
            note(text)
        self._on_event = on_event
        self._pids: dict[Place, int] = {}
        self._mates_told: tuple[MateView, ...] = ()
        """Mates as last reported to the monitor."""
        self._note = note
        self._monitor: Child | None = None
        self._monitor_began = float("-inf")
        self._short_lives = 0
        self._last_failure = ""
        """Trace of the last internal failure of a monitor."""
        self._apart = socket_of(monitor) if monitor is not None else None
        self._away_until: float | None = None
        self._noted_by = float("-inf")
        self._saving: tuple[str, float] | None = None
        """Requester and deadline (monotonic seconds) of the savepoint under way."""
        self._saved_epoch: int | None = None
        """Epoch of the savepoint, once all before it is saved and published."""
        self._saved = self._must_save = self.asked_to_save = False
        self._busy: set[Place] = set()
        """Places of processes in a long turn, as last reported to the monitor."""
        self._stats: dict[Place, Stats] = {}
        self._store = JobStore(resources, StoreAddress.of(store), note)
        private = str(resources.enter_context(closing(Scratch("job", for_sockets()))).path)
        self.children = resources.enter_context(
            Children(plan.workers, heartbeat_timeout, private, self._store.folder.logs)
        )
        files = self._store.folder.files
        Workspace(files).begin()
        around = Around(
            lambda plan: replace(lay_out(plan), functions=functions_of(plan.graph)),
            self._store.incarnation,
            lambda worker, effects: publish(
                worker,
                effects,
                partial(_captured, on_capture, worker.index),
                Workspace(files, note=note),
                self._store.id.hex(),
            ),
            Workspace(files, durable=True, note=note),
            time.time(),
            self._accept,
            note,
        )
        may_move = place is LocalWorkers
        self._layout = settle(self._store.blobs, self._store.id, plan, self._layout, around, may_move)
        self._store.layout = self._layout.number
        self._task = Task(program, plan.workers, limits, self._store.id.hex(), files, store=self._store, mates=mates)
        self.place = place(self.children, self._task, note)
        resources.callback(self.place.close)
        self._door = resources.enter_context(closing(open_door(os.path.join(private, PAGE_SOCKET))))
        resources.enter_context(address_file(f"{UNIX}{self._door.getsockname()}", self._store.folder.page))
        self.page = None
        if page is not None:
            self.page = resources.enter_context(closing(LaunchedPage(page, self._store.address, note)))
        if self._apart is not None:
            sock, pid = connect(self._apart)
            self._watch(self.children.meet(MONITOR, Control(sock, FROM_CHILD), pid))
        else:
            self._start_monitor()
        self.place.begin()
        self._tell_processes()

    def _tell_processes(self) -> None:
        """Write the process id of each local worker to the event log."""
        for place, child in sorted(self.place.workers.items()):
            if self._on_event is not None and child.pid > 0 and self._pids.get(place) != child.pid:
                self._pids[place] = child.pid
                self._on_event("process", time.time(), {**place.fields, "pid": child.pid})

    def hear(self, child: Child, message: FromChild) -> None:
        """Handle decisions of the monitor, and failures of any process."""
        match message:
            case Respawn(place):
                if self.place.needed(place) and self._monitor is not None:
                    self._monitor.tell(Happened("takeover", place.fields))
                self._tell_processes()
            case Fence(place, incarnation, reason) if self.over is None:
                self._lose(self.place.fenced(place, incarnation, reason))
            case TimelineEvent(kind, at, data):
                if kind == "restored":
                    self.place.restored()
                if kind == "stopped":
                    self._saved_epoch = data.get("epoch")
                if kind == "unsaved" and self._saving is not None:
                    self._saving = None
                    if self._must_save:
                        self.error = self.error or FalkirkError(data["why"])
                    self._store.refuse_stop(data["why"])
                if self._on_event is not None:
                    self._on_event(kind, at, data)
            case CaughtUp(place, seconds):
                self.place.caught_up(child, seconds)
                if self._monitor is not None:
                    fields = {"worker": place.worker, "seconds": round(seconds, 3), "pid": child.pid}
                    self._monitor.tell(Happened("mate", fields))
            case Followed():
                self.place.followed(child, message)
            case Beat(busy, doing, processor, name) if child.place is not None:
                self._tell_busy(child.place, busy, processor, name, doing)
            case Stats() if child.place is not None:
                self._stats[child.place] = message
            case Propose() if self._monitor is not None:
                self._monitor.tell(proposed(self._graph, self._layout, message))
            case Over() if self._saved_epoch is not None:
                self._saved = True
            case Over():
                self.over = self.over or message
            case Note(text) if child.place is not None and self._monitor is not None:
                self._monitor.tell(Noted(child.place, text))
            case Unable() if child is self._monitor and not message.known:
                self._note_failure(message)
            case Unable(_, text) if child.place is None and child.mate_of is not None:
                self._note(f"the mate of worker {child.mate_of} fails: {text}")
            case Unable() if self.error is None:
                self._fail(child, message)

    def gone(self, child: Child) -> None:
        """Handle the end of a process."""
        if child is not self._monitor:
            losses = self.place.gone(child)
            # A hung process was noted before; the end of one started elsewhere is reported there.
            if self.over is None and self.error is None and not child.hung and child.process is not None:
                for loss in losses:
                    self._note(f"{loss.place}: {loss.reason}; another process takes its place")
            self._lose(losses)
            return
        self._monitor = None
        if self.over is None and self.error is None:
            if self._apart is not None:
                self._miss_monitor()
            else:
                self._start_monitor(f"the monitor {child.how_it_ended()}, and another one takes its place")

    def turn(self) -> None:
        """Do timed work; raises the job's fatal error, or JobStopped."""
        if self.page is not None:
            self.page.turn()
        if self.error is not None:
            self._let_it_be_noted()
            raise self.error
        if self._saved:
            text = (
                f"all before epoch {self._saved_epoch} is saved and published; run it again, and it goes on from there"
            )
            raise JobSaved(text)
        if self.over is None:
            seconds = self._store.check_stop()
            if seconds is not None:
                self.asked_to_save = True
                self.save("falkirk stop --savepoint", seconds)
            if self._away_until is not None and time.monotonic() >= self._away_until:
                self._meet_monitor()
            for child, seconds in self.children.silent():
                if child.place is not None:
                    self._tell_busy(child.place, seconds, -1, "", f"a process that {child.pulse.excuse}")
            self._lose(self.place.turn())
            self._tell_mates()

    def stopped(self, by: str) -> None:
        """Ask the monitor to journal a stop of the job `by` somebody."""
        if self._monitor is not None and self.over is None and self.error is None and not self._saved:
            self._monitor.tell(Stopping(by))
            self._noted_by = time.monotonic() + _NOTE_SECONDS
            self._let_it_be_noted()

    def save(self, by: str, seconds: float) -> None:
        """Have the job stop at a savepoint within `seconds`, or go on."""
        if self._saving is None:
            self._saving = by, time.monotonic() + seconds
            self._ask_to_save()

    def save_or_fail(self, by: str, seconds: float) -> None:
        """Have the job stop at a savepoint within `seconds`, or fail."""
        self._must_save = True
        self.save(by, seconds)

    def _ask_to_save(self) -> None:
        if self._saving is not None and self._monitor is not None:
            by, until = self._saving
            self._monitor.tell(Saving(by, max(0.0, until - time.monotonic())))

    def finish(self) -> None:
        """Remove the files of operators' jobs after the end."""
        shutil.rmtree(self._store.folder.files, ignore_errors=True)
        if self.over is not None and self.over.before:
            self._note(
                f"the job of the store {self._store.address} was finished by an earlier run: there is nothing left to do"
            )

    def _lose(self, losses: list[Lost]) -> None:
        """Report lost worker processes to the monitor, which decides."""
        for loss in losses:
            if self._monitor is not None and self.over is None:
                self._monitor.tell(loss)

    def _fail(self, child: Child, failure: Unable) -> None:
        """Record a worker's or the monitor's fatal error, to end the job.

        That of a spare does not, and a lost connection is another worker's error.
        """
        if child is self._monitor:
            self.error = error_of(failure, "the monitor")
        elif child.place is not None and failure.kind != WorkerLost.__name__:
            self.error = error_of(failure, str(child.place))
            if self._monitor is not None:
                self._monitor.tell(ProgramFailed(child.place, str(self.error), failure.processor, failure.trace))
                self._noted_by = time.monotonic() + _NOTE_SECONDS

    def _let_it_be_noted(self) -> None:
        """Give the monitor time to record the job's error; the error is the same without."""
        while self._monitor is not None and self.over is None and time.monotonic() < self._noted_by:
            if self._monitor in self.children.wait(_TICK_SECONDS):
                answers = self._monitor.control.read()
                for message in answers:
                    if isinstance(message, TimelineEvent):
                        self.hear(self._monitor, message)
                if self._monitor.control.ended or any(isinstance(message, Over) for message in answers):
                    return

    def _tell_mates(self) -> None:
        """Report mates to the monitor, if anything is new."""
        views = self.place.mate_views
        if self._monitor is None or self._monitor.control.ended:
            return
        for lost in self.place.take_lost_mates():
            self._monitor.tell(lost)
        if views != self._mates_told:
            self._mates_told = views
            self._monitor.tell(Mates(views))

    def _tell_busy(self, place: Place, seconds: float, processor: int, name: str, where: str) -> None:
        """Report long turns of processes to the monitor, and their ends."""
        long = seconds >= self.children.liveness.timeout
        if self._monitor is None or (not long and place not in self._busy):
            return
        (self._busy.add if long else self._busy.discard)(place)
        stats = self._stats.get(place)
        totals = (stats.records, stats.read_epoch, True) if stats is not None else (0, None, False)
        self._monitor.tell(Busy(place, seconds if long else 0.0, processor, name, where, *totals))

    # The monitor

    def _note_failure(self, failure: Unable) -> None:
        """Note an internal failure of the monitor, which is replaced."""
        if failure.trace != self._last_failure:
            self._last_failure = failure.trace
            self._note(
                "the monitor failed, and is replaced; the job goes on. This is a fault of Falkirk: please report it.\n"
                f"{failure.trace}"
            )

    def _start_monitor(self, instead: str = "") -> None:
        now = time.monotonic()
        short = _FAILED_SECONDS if self._last_failure else _SHORT_SECONDS
        self._short_lives = self._short_lives + 1 if now - self._monitor_began < short else 0
        if self._short_lives >= _SHORT_LIVES:
            why = f"; it said last:\n{self._last_failure}" if self._last_failure else ""
            self.error = WorkerLost(
                f"the monitor has died {_SHORT_LIVES} times in a row, each within {short:.0f} s of its start; what is "
                f"in the store is safe: run the job again{why}"
            )
            return
        self._monitor_began = now
        self._watch(self.children.start(MONITOR, []), instead)

    def _meet_monitor(self) -> None:
        """Connect to the standalone monitor, if it is there."""
        assert self._apart is not None
        try:
            sock, pid = connect(self._apart)
        except NoMonitor:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            return
        self._note(f"the monitor at {self._apart} is there again")
        self._away_until = None
        instead = f"the monitor at {self._apart} was away, and is there again"
        self._watch(self.children.meet(MONITOR, Control(sock, FROM_CHILD), pid), instead)

    def _miss_monitor(self) -> None:
        self._note(
            f"the monitor at {self._apart} has gone: until it is started again (falkirk monitor {self._store.address}) the "
            "job goes on, but saves and acknowledges nothing, and a worker that dies comes back only then"
        )
        self._away_until = time.monotonic() + _AWAY_SECONDS

    def _watch(self, monitor: Child, instead: str = "") -> None:
        self._monitor = monitor
        self._busy.clear()
        self._mates_told = ()
        watch = Watch(
            self._store.address,
            self._store.incarnation(),
            encode(self._layout),
            tuple(sorted(self.place.workers)),
            self.children.beat_seconds,
            self.place.token,
            self._accept,
            self._task.copies,
            instead,
        )
        monitor.tell(watch, [self.place.listener, self._door])
        self._ask_to_save()


def _captured(on_capture: Callable[[int, CapturedBatch], None], worker: int, node: int, at: Time, batch: Batch) -> None:
    header, payload = encode_batch(batch)
    on_capture(worker, CapturedBatch(node, at, header, b"".join(payload)))
