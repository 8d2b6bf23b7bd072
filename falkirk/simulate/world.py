"""Simulated job in one thread: workers, network, stores, monitor, seeded faults.

The workers' sessions, the agents, the journals and the coordinator are the ones of production; only the network, the
clock and the disk are simulated. The same seed gives the same run, event by event.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from math import inf
from random import Random
from typing import Any

from msgspec.structs import replace

from falkirk.simulate.checks import Checks
from falkirk.simulate.disk import SimulatedDisk
from falkirk.simulate.faults import CALM_DISK, KINDS, MOST_WORKERS, Fault, Injector, disk_faults
from falkirk.simulate.in_place import watched
from falkirk.simulate.mates import SimulatedMate, SimulatedMates
from falkirk.simulate.monitor_process import MONITOR, SimulatedMonitor
from falkirk.simulate.outside import Outside, Violation
from falkirk.simulate.process import (
    Killed,
    Process,
    SimulatedAgent,
    SimulatedLink,
    SimulatedMateLink,
    SimulatedMonitorLink,
    SimulatedPool,
    SimulatedStore,
    WritesAtIO,
)
from monitor.coordination.coordinator import Settings
from monitor.coordination.effects import Answered, Effect, Fail, Finished, Persist, Send
from monitor.coordination.events import Asked, Began, Event, FromWorker
from monitor.coordination.supervision import Fence, Lost, Respawn, Saving, TimelineEvent
from monitor.explain.what_if import PATIENCE_SECONDS, targets
from recovery.agent.state import WorkerPhase
from recovery.checkpoint.checkpoints import MOST_EVENTS
from recovery.checkpoint.following import Taken
from recovery.layout import Layout, lay_out
from recovery.memory.channels import KEPT_BYTES
from recovery.metadata import at_epoch, within
from recovery.moving.refusals import CannotMove, HalfWritten
from recovery.place import Place, journal_of, places
from recovery.protocol import Join, ToWorker, decode_to_monitor, decode_to_worker, encode_message
from recovery.store.interface import AlreadyThere, StoreCorrupt, StoreError
from recovery.store.reading import last_writer, take_over
from recovery.store.segments import segment_name
from runtime.folders.workspace import Workspace
from runtime.links.frames import decode_frame, encode_frame
from runtime.page.recorded import read_saved
from runtime.recovery.driver import ATTEND_SECONDS, TURN, RecoveryDriver
from runtime.session.session import Session
from runtime.sources.limits import Limits
from runtime.supervisor.moving import Around, publish, settle
from timely.data.messages import Effect as OutputEffect
from timely.data.messages import Frame
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.plan import Plan, compile_plan
from timely.worker.worker import Worker

STORE_ID = b"simulated-store!"
_STEP_SECONDS = 0.002
_AFTER_FULL = 0.1


class JobStuck(Violation):
    """Raised if the simulated job is stuck, or has given up."""


NO_ANSWERS = ("cannot be answered", "cannot answer", "does not answer as it should")
"""Phrases to mark an answer of the monitor as an error."""


class World:
    """Simulated job.

    Args:
        build: makes the dataflow, anew for every process.
        workers: how many.
        seed: of all chance.
        kinds: of faults that may be drawn; none for a run without failures.
        script: exactly these faults in place of drawn ones.
        mates: 1 for a mate of each worker, which may die as well.
    """

    def __init__(
        self,
        build: Callable[[], Dataflow],
        workers: int,
        seed: int,
        kinds: Collection[str] = tuple(KINDS),
        script: Sequence[Fault] | None = None,
        mates: int = 0,
    ) -> None:
        self.workers = self._wanted = workers
        """Number of workers now, and after the next start of the job."""
        self.moves = 0
        """Number of moves to another number of workers."""
        self.savepoints = 0
        """Number of stops at savepoints."""
        self._saving = False
        """True from the request for a savepoint to the stop of the job."""
        self._undisturbed = False
        """True if no round of rollback has begun since the request."""
        self._saved: int | None = None
        """Epoch of the present savepoint, until the next start."""
        self.mates = SimulatedMates(self._mate, workers, seed) if mates else None
        self.mates_held = 0
        """Number of segments brought along by mates, in memory only."""
        self.now = 0.0
        self.steps = 0
        self.outside = Outside()
        self.checks = Checks()
        self.injector = Injector(seed, workers, kinds, script)
        self.log: list[tuple[float, str, dict[str, Any]]] = []
        self.failure: str | None = None
        self.finished = False
        self.answers: list[Answered] = []
        self.curious = 0.0
        """Probability per step of a question to predict the death of a worker."""
        self._curious = Random(f"questions {seed}")
        self._questions = 0
        self._asked: dict[int, float] = {}
        self._random = Random(f"schedule {seed}")
        self._digest = blake2b(digest_size=16)
        self._build = build
        self._calm = not kinds and script is None
        # Simulated time passes as if all of it were processor time: only some read ahead by that, or none would read far.
        self._limits = Limits(epochs=self._random.choice((1, 4, 16)), seconds=0.02 if seed % 8 == 6 else inf)
        self._patience = self._random.choice((0.5, 1.0, 4.0))
        self._attend_seconds = ATTEND_SECONDS if seed % 8 == 7 else 0.0  # the less often, the fewer orders of events
        self._events = {3: 1, 5: 20}.get(seed % 8, TURN)
        self._telling = Random(f"telling {seed}")
        self._tells = {1: 1.0, 6: 0.3}.get(seed % 8, 0.0)
        """Probability of treating other workers as waiting at a notification."""
        self._most_events = {4: 3, 6: 12}.get(seed % 8, MOST_EVENTS)
        self._kept_bytes = {1: 0, 2: 4_000, 5: 20_000}.get(seed % 8, KEPT_BYTES)
        self._piece_rows = {2: 1, 7: 3}.get(seed % 8)
        """Rows of a piece of a cut; None: the default of production."""
        self._small = self._random.choice((256, 2048, 1 << 16))
        self._hurry = self._random.choice((1.0, 0.1, 0.01))
        disk = Random(f"disk {seed}")
        bad = self.injector.at("start", 0.0)
        self.disk = SimulatedDisk(disk, lambda: self.now, disk_faults(disk) if bad else CALM_DISK)
        self._files = Workspace(durable=True)  # real files: they outlive simulated processes as they are
        self._processes: dict[Place, Process | None] = dict.fromkeys(places(workers))
        self._zombies: list[Process] = []
        self._incarnations = 0
        self._last: dict[int, Process] = {}
        """Newest process with a journal, by worker."""
        self._starts: list[tuple[float, Place]] = []
        self._flights: dict[tuple[Process, Process], deque[bytes]] = {}
        self._stalled: dict[Any, float] = {}
        self._monitor: SimulatedMonitor | None = None
        self._monitor_at = 0.0
        self._troubled = False
        self._exhaustive = script is not None
        self._given: Counter[int] = Counter()
        """Count of outgoing effects by process, to tell crash points apart."""
        self._tried: dict[int, Hashable] = {}

    # Running

    def run(self, limit: int = 300_000) -> None:
        """Run the job to its end.

        Raises:
            Violation: when something happens that must not, or the job does not end.
            FalkirkError: of the program itself.
        """
        while not (self.finished and all(process is None for process in self._processes.values())):
            if self.failure is not None:
                raise JobStuck(self.failure)
            if self.steps >= limit:
                raise JobStuck(f"the job is not done after {limit} steps:\n{self.explain()}")
            self.step()
        for process in self._zombies:
            self._bury(process)
        self.outside.check_acknowledged()

    @property
    def processes(self) -> list[Process]:
        """Current processes, without those given up."""
        return [process for process in self._processes.values() if process is not None]

    def step(self) -> None:
        """Take one random action."""
        self.steps += 1
        self.now += self._random.expovariate(1.0) * _STEP_SECONDS
        self._strike()
        self._start_due()
        self.disk.advance(self.now)
        actions = self._actions()
        if actions:
            chosen = actions[int(self._random.random() * len(actions))]
            chosen()

    def _actions(self) -> list[Callable[[], None]]:
        actions: list[Callable[[], None]] = []
        stalled = self._stalled
        for process in self.processes + self._zombies:
            if ("worker", process.worker) not in stalled:
                actions.append(partial(self._turn, process))
            actions += [partial(process.finish_job, at) for at in range(len(process.jobs))]
            if ("monitor", process.worker) not in stalled:
                if process.to_monitor and self._monitor is not None and process.connected:
                    actions.append(partial(self._tell_monitor, process))
                if process.from_monitor:
                    actions.append(partial(self._tell_worker, process))
        for pair, frames in self._flights.items():
            if frames and ("link", pair[0].worker, pair[1].worker) not in stalled:
                actions.append(partial(self._deliver, pair))
        if self._monitor is not None:
            actions.append(self._tick)
        if self.mates is not None:
            actions.append(partial(self.mates.turn, lambda worker: self._processes.get(Place(worker))))
        return actions

    def _mortal(self, *who: int) -> list[int]:
        """Crash candidates, without those of an unchanged outcome.

        See `Moment`.
        """
        if not self._exhaustive:
            return []
        found = []
        for each in who:
            met = self._met_by_death(each)
            if self._tried.get(each) != met:
                self._tried[each] = met
                found.append(each)
        return found

    def _met_by_death(self, who: int) -> Hashable:
        """Counts of all events not interchangeable with a death of `who`.

        All else happens in its own memory, which is gone, or to others, who would do it in the same way if it were dead.
        """
        monitor = None if self._monitor is None else self._monitor.owner
        if who == MONITOR:
            return monitor, self._given[who], self.disk.changes[monitor]
        process = self._processes[Place(who)]
        owner = None if process is None else process.owner
        changes = 0 if self._monitor is None else self._monitor.changes
        return monitor, changes, owner, self._given[who], self.disk.changes[owner], self.outside.changes

    def note(self, kind: str, **data: Any) -> None:
        """Log an event."""
        self.log.append((self.now, kind, data))
        self._digest.update(repr((self.now, kind, data)).encode())

    @property
    def digest(self) -> str:
        """Digest of all events; equal for equal runs."""
        both = self._digest.copy()
        both.update(self.outside.digest.digest())
        return both.hexdigest()

    # Workers

    def _turn(self, process: Process) -> None:
        if process.session is None:
            self._given[process.worker] += 1
            self._open(process)
            return
        session = process.session
        try:
            session.step()
            session.worker.check()
            self.checks.turned(process)
            if self.mates is not None:
                self.mates.turned(process)
        except Killed:
            self._kill(process, "killed at I/O")
            return
        except StoreError as error:
            self._store_failed(process, error)
            return
        if process.zombie_until is not None:
            return
        self.checks.size(process, self.disk)
        if session.done and not process.to_monitor and self.finished:
            self.checks.ended(process)
            session.close()
            self._processes[process.place] = None
            self._cut_off(process)

    def _store_failed(self, process: Process, error: StoreError) -> None:
        """Handle a store failure: end a given-up process, otherwise stop the job."""
        self.note("store failed", worker=process.worker, incarnation=process.incarnation, error=str(error))
        if process.zombie_until is not None:
            self._bury(process)
        elif isinstance(error, AlreadyThere | StoreCorrupt):
            raise Violation(f"{process.place}, who was never given up: {error}") from error
        else:
            self._stop_job(self.disk.full_until)

    def _open(self, process: Process) -> None:
        """Start a worker's process: fence and read its journal, and join the job."""
        owner = journal_of(process.worker, self.layout.number)
        writer = last_writer(self.disk, owner, STORE_ID)
        journal, found, warnings = take_over(self.disk, owner, STORE_ID, process.incarnation)
        for warning in warnings:
            self.note("warning", text=warning)
        for name in found.leftovers:
            self.disk.begin_delete(process.owner, name)
        journal.small, journal.idle_release = self._small, 4 * self._small
        mate = self.mates.take(process.worker) if self.mates is not None else None
        plan = self._plan() if mate is None else mate.plan
        if not self._follows(process, mate):
            self.checks.memory.clear()
        taken = Taken({}, {}, []) if mate is None else mate.following.take_over(writer)
        self.mates_held += len(taken.held)
        try:
            of = self._current_layout(plan), process.place, process.incarnation
            agent = SimulatedAgent(plan, *of, journal, found.read(taken.segments), held=taken.held)
            agent.checkpoints.ahead = taken.loaded
            agent.checkpoints.most_events = self._most_events

            def recovery(session: Session) -> RecoveryDriver:
                process.recovery = RecoveryDriver(
                    session,
                    agent,
                    SimulatedMonitorLink(process),
                    SimulatedStore(self.disk, process.owner, lambda: self.at_io(process.worker)),
                    clock=lambda: self.now,
                    spent=lambda: self.now,
                    attend_seconds=self._attend_seconds,
                    turn=self._events,
                    mate=SimulatedMateLink(process, lambda: self.at_io(process.worker)),
                )
                return process.recovery

            process.session = Session(
                plan,
                process.worker,
                SimulatedLink(self, process) if self.workers > 1 else None,
                self._limits,
                agent.worker,
                clock=lambda: self.now,
                on_capture=self.outside.captures(process.worker, plan.graph, self),
                workspace=self._files,
                recovery=recovery,
            )
            agent.worker.late = lambda: self._telling.random() < self._tells
        except Killed:
            self._kill(process, "killed at I/O")
            return
        assert process.recovery is not None
        agent.recorder.shipments.budget = self._kept_bytes
        if self._piece_rows is not None:
            process.recovery._pace.rows = self._piece_rows
        process.session._outputs._pool = SimulatedPool(process)  # type: ignore[assignment]
        self.checks.watch(process, process.recovery)
        numbers = list(found.newest.needed_numbers()) if found.newest is not None else []
        self.checks.watch_outputs(process, segment_name(found.owner, numbers[-1]) if numbers else None)

    def _follows(self, process: Process, mate: SimulatedMate | None) -> bool:
        """True if a process takes the place of one whose mate had all, with that."""
        before, self._last[process.worker] = self._last.get(process.worker), process
        had = before is not None and before.recovery is not None and before.recovery.agent.reports.holding.complete
        return had and mate is not None and mate.was is before

    def _mate(self, worker: int, kept: int) -> SimulatedMate:
        plan = self._plan()
        return SimulatedMate(self.disk, plan, self._current_layout(plan), worker, STORE_ID, kept)

    def _current_layout(self, plan: Plan) -> Layout:
        return replace(self._layout(plan), number=self.layout.number)

    def _plan(self, workers: int | None = None) -> Plan:
        graph = self.outside.isolated(self._build().graph, self)
        return compile_plan(watched(graph) if self._calm else graph, workers or self.workers)

    @cached_property
    def layout(self) -> Layout:
        """The layout of the job."""
        return self._layout(self._plan())

    def _move(self, workers: int) -> None:
        """Move the job at rest to another number of workers; any write may be the last.

        Raises Killed.
        """

        def publishes(worker: Worker, effects: list[OutputEffect]) -> None:
            captured = self.outside.captures(worker.index, worker.plan.graph, self)
            publish(worker, effects, captured, self._files)

        self.outside.forget_shares()
        plan = self._plan(workers)
        around = Around(self._layout, self._next_incarnation, publishes, None, self.now)
        store = WritesAtIO(self.disk, lambda: self.at_io(0))
        try:
            settle(store, STORE_ID, plan, self._layout(plan), around, may_move=True)
        finally:
            self._adopt(workers)

    def _adopt(self, workers: int) -> None:
        """Go on with the number of workers in the store, `workers` if nothing is there."""
        saved = read_saved(self.disk, STORE_ID)
        if saved.layout is not None:
            workers = saved.layout.workers
        if workers == self.workers:
            return
        self.moves += 1
        number = 0 if saved.layout is None else saved.layout.number
        if saved.watermarks is not None:
            self.checks.resized(saved.watermarks[0])
            self.outside.resized()
        self.note("resized", workers=workers, layout=number)
        self.workers, self.layout = workers, replace(self._layout(self._plan(workers)), number=number)
        self._processes = dict.fromkeys(places(workers))
        self.injector.resize(workers)
        if self.mates is not None:
            self.mates.die(workers)

    def _next_incarnation(self) -> int:
        self._incarnations += 1
        return self._incarnations

    def _layout(self, plan: Plan) -> Layout:
        """Layout with shorter checkpoint intervals under some seeds.

        Simulated jobs are short.

        Without the folders of the program's files, or the lengths of paths would change what a seed does.
        """
        layout = lay_out(plan)
        processors = tuple(replace(info, site=os.path.basename(info.site)) for info in layout.processors)
        groups = tuple(
            replace(
                group,
                seconds=group.seconds * self._hurry,
                durable=None if group.durable is None else group.durable * self._hurry,
            )
            if group.seconds is not None
            else group
            for group in layout.groups
        )
        return replace(layout, processors=processors, groups=groups, promises=())

    # The network

    def carry(self, process: Process, place: Place, frame: Frame) -> None:
        """Carry a frame from a process to that at another place."""
        target = self._processes[place]
        now = self._processes[process.place]
        if target is None or (now is not process and now is not None):
            return  # its links are those of the process that took its place
        data = b"".join(bytes(part) for part in encode_frame(frame))
        self._digest.update(data)
        self._given[process.worker] += 1
        self._flights.setdefault((process, target), deque()).append(data)

    def _deliver(self, pair: tuple[Process, Process]) -> None:
        data = self._flights[pair].popleft()
        pair[1].frames.append(decode_frame(memoryview(data)[4:]))

    def _tell_monitor(self, process: Process) -> None:
        data = process.to_monitor.popleft()
        self._digest.update(data)
        message = decode_to_monitor(data)
        self.checks.answered(process, message)
        process.joined = process.joined or isinstance(message, Join)
        self._tell(FromWorker(message, process.incarnation))

    def _tell_worker(self, process: Process) -> None:
        self._given[MONITOR] += 1
        data = process.from_monitor.popleft()
        self._digest.update(data)
        message = decode_to_worker(data)
        self.checks.on_message(process, message)
        process.inbox.append(message)

    def _cut_off(self, process: Process) -> None:
        # What it had sent is on its way; what it was sent is lost.
        for pair in [pair for pair in self._flights if pair[1] is process]:
            del self._flights[pair]

    # The monitor

    def _start_monitor(self) -> None:
        if self._wanted != self.workers and not self._saving:  # the former workers are on their way to a savepoint
            try:
                self._move(self._wanted)
            except HalfWritten as error:
                if self._saved is not None:
                    raise Violation(f"after a savepoint: {error}") from error
                self.note("goes on to a savepoint", workers=self.workers, why=str(error))
                self._saving = True
            except CannotMove as error:
                self.note("stays", workers=self._wanted, why=str(error))
                self._wanted = self.workers
            except Killed:
                self.note("killed while it moved", workers=self._wanted)
                self._wanted = self._random.randint(1, MOST_WORKERS)
                self._monitor_at = self.now + self._random.random() * 0.5
                return
        self._saved = None
        self._incarnations += 1
        there = {process.place for process in self.processes}
        patience = self._patience
        settings = Settings(
            awaited=tuple(sorted(there | {place for _, place in self._starts})),
            join_seconds=4 * patience,
            pause_seconds=2 * patience,
            restore_seconds=4 * patience,
            heartbeat_seconds=1.5 * patience,
            attempts=10_000,
        )
        self._monitor = SimulatedMonitor(
            self.disk, STORE_ID, self._incarnations, self.layout, settings, self.now, self.checks
        )
        self.note("monitor started", incarnation=self._incarnations)
        for process in self.processes:
            process.disconnect()
            process.inbox.clear()
            self.checks.connected_anew(process)
            process.connected = process.anew = True
        self._tell(Began())
        self._ask_to_save()

    def _kill_monitor(self, delay: float) -> None:
        if self._monitor is None:
            return
        self.disk.crash(self._monitor.owner)
        self._monitor = None
        self.checks.memory.clear()  # what keeps nothing has completed is known to it alone
        self._asked.clear()
        self._monitor_at = self.now + delay
        for process in self.processes:
            process.disconnect()
        self.note("monitor killed")

    def _tick(self) -> None:
        assert self._monitor is not None
        try:
            effects = self._monitor.tick(self.now)
        except AlreadyThere as error:
            raise Violation(f"the only monitor: {error}") from error
        except StoreError as error:
            self.note("store failed", worker="monitor", error=str(error))
            self._stop_job(self.disk.full_until)
            return
        self._carry_out(effects)

    def _tell(self, *events: Event) -> None:
        """Pass an event to the monitor, if there is one."""
        if self._monitor is not None:
            self._carry_out(self._monitor.step(self.now, *events))

    def _carry_out(self, effects: list[Effect]) -> None:
        monitor = self._monitor
        assert monitor is not None
        for effect in effects:
            if self.injector.at("monitor io", self.now, self._troubled, mortal=self._mortal(MONITOR)):
                self._kill_monitor(self._random.random() * 0.5)
                return
            match effect:
                case Send(place, message):
                    self._send(place, message)
                case Persist(ticket, records):
                    monitor.write(ticket, records)
                case Respawn(place):
                    self._starts.append((self.now + self._random.random() * 0.2, place))
                case Fence(place, incarnation, reason):
                    self._fence(place, incarnation, reason)
                case TimelineEvent(kind, _, data):
                    self.note(kind, **data)
                    if kind == "gap":
                        self.outside.declare(data["output"], data["first"], data["last"])
                    if kind == "stopped":
                        self._saved = data["epoch"]
                    self._undisturbed = self._undisturbed and kind != "round"
                    if kind in ("round", "restored"):
                        self._troubled = kind == "round"
                case Finished():
                    self.checks.finished()
                    self.finished = True
                    self._end_joining()
                case Fail() if self._saved is not None:
                    self._stop_at_savepoint(self._saved)
                    return
                case Fail(reason):
                    self.failure = reason
                case Answered(number, answer):
                    self.answers.append(effect)
                    self._asked.pop(number, None)
                    if isinstance(answer, str) and any(text in answer for text in NO_ANSWERS):
                        raise Violation(f"a question was answered with an error: {answer}")
            self._given[MONITOR] += not isinstance(effect, Send | TimelineEvent)  # a message is lost until it is heard

    def _send(self, place: Place, message: ToWorker) -> None:
        self.checks.on_order(message)
        process = self._processes[place]
        if process is not None and process.joined:  # one that was not heard yet is another than is meant
            self.checks.asked(process, message)
            process.from_monitor.append(encode_message(message))

    def _fence(self, place: Place, incarnation: int, reason: str) -> None:
        process = self._processes[place]
        if process is None or incarnation not in (-1, process.incarnation):
            return
        self.note("fenced", **place.fields, incarnation=process.incarnation, reason=reason)
        if "cannot be: " in reason:
            raise Violation(f"{place}, which does what it should, was given up: {reason}")
        self.checks.given_up(process, reason)
        living_on = self.injector.at("fence", self.now, worker=place.worker)
        if living_on:
            self._let_wander(process, living_on[0].seconds)
        else:
            self._bury(process)

    def _let_wander(self, process: Process, seconds: float) -> None:
        """Give a process up, but let it run on for a while."""
        if process.session is None:
            self._bury(process)
            return
        self._processes[process.place] = None
        process.disconnect()
        process.zombie_until = self.now + seconds
        self._zombies.append(process)

    def _give_up(self, process: Process, seconds: float) -> None:
        """Cut the connection to a process, and so have it taken for dead."""
        self.note("given up", worker=process.worker, incarnation=process.incarnation)
        self._let_wander(process, seconds)
        self._tell(Lost(process.place, process.incarnation, "given up"))

    # Faults

    def at_io(self, worker: int) -> None:
        """Possible crash point at an externally visible action.

        Raises Killed.
        """
        if self.injector.at("io", self.now, worker=worker, mortal=self._mortal(worker)):
            raise Killed

    def _strike(self) -> None:
        if self._monitor is None and self.now >= self._monitor_at:
            self._start_monitor()
        if self._stalled:
            self._stalled = {what: until for what, until in self._stalled.items() if until > self.now}
        for zombie in [zombie for zombie in self._zombies if (zombie.zombie_until or 0.0) <= self.now]:
            self._bury(zombie)
        if self.finished:
            return
        if self.curious and self._curious.random() < self.curious:
            self._ask(self._curious.randrange(self.workers))
        there = [process.worker for process in self.processes]
        mortal = self._mortal(*there, *([] if self._monitor is None else [MONITOR]))
        for fault in self.injector.at("step", self.now, self._troubled, there=there, mortal=mortal):
            process = self._processes.get(Place(fault.worker))  # there may be fewer workers now
            if fault.what == "kill" and process is not None:
                self._kill(process, "killed")
            elif fault.what == "kill monitor":
                self._kill_monitor(self._random.random())
            elif fault.what == "kill job":
                self._stop_job(self.now)
            elif fault.what == "workers":
                self._stop_job(self.now)
                self._wanted = fault.other
            elif fault.what == "savepoint" and self._monitor is not None and not self._saving:
                self._saving = self._undisturbed = True
                self._ask_to_save()
            elif fault.what == "give up" and process is not None:
                self._give_up(process, fault.seconds)
            elif fault.seconds and fault.what != "give up":
                what: dict[str, Any] = {
                    "stall link": ("link", fault.worker, fault.other),
                    "stall worker": ("worker", fault.worker),
                    "cut off": ("monitor", fault.worker),
                }
                self._stalled[what[fault.what]] = self.now + fault.seconds
                self.note(fault.what, worker=fault.worker, other=fault.other, seconds=round(fault.seconds, 3))

    def _ask(self, worker: int) -> None:
        """Ask for a prediction of the death of `worker`.

        Earlier questions to this monitor must have been answered.
        """
        late = [number for number, at in self._asked.items() if self.now > at + 2 * PATIENCE_SECONDS]
        if late:
            raise Violation(f"question {late[0]} is not answered")
        if self._monitor is not None:
            self._questions += 1
            self._asked[self._questions] = self.now
            layout = self._monitor.coordinator.layout
            self._tell(Asked(self._questions, targets(layout, [f"worker:{worker}"])))

    def _kill(self, process: Process, how: str) -> None:
        """Kill a process as by `kill -9`."""
        self.note(how, worker=process.worker, incarnation=process.incarnation)
        given_up = process.zombie_until is not None
        self._bury(process)
        if not given_up:
            self._tell(Lost(process.place, process.incarnation, how))

    def _bury(self, process: Process) -> None:
        """Remove a dead process; its messages and writes under way may still arrive."""
        self.disk.crash(process.owner)
        if self._processes[process.place] is process:
            self._processes[process.place] = None
        self._zombies = [zombie for zombie in self._zombies if zombie is not process]
        process.disconnect()
        self._cut_off(process)
        if process.session is not None:
            process.session.abort()

    def _ask_to_save(self) -> None:
        if self._saving:
            self._tell(Saving("the simulation", inf))

    def _stop_at_savepoint(self, epoch: int) -> None:
        """Stop the job at the savepoint `epoch`, which is checked."""
        saved = read_saved(self.disk, STORE_ID)
        for worker, bounds in enumerate(saved.watermarks or ()):  # there are none before the first cut
            for info, low in zip(self.layout.processors, bounds):
                if info.chain and not within(at_epoch(epoch, info.depth), low):
                    raise Violation(f"{info.name!r} of worker {worker} is at {low}, before the savepoint {epoch}")
        begun = max((s.begun() for p in self.processes if p.session is not None for s in p.session.sources), default=0)
        if self._undisturbed and begun > epoch:
            raise Violation(f"epochs up to {begun} were begun, and will be read again from {epoch} on")
        self.savepoints += 1
        self._stop_job(self.now)
        self._saved = epoch

    def _stop_job(self, until: float) -> None:
        """End all processes, and restart the job a little after `until`."""
        self.note("job stopped")
        self._saving = self._undisturbed = False
        self._saved = None
        self._files.begin()
        self.checks.begin()
        for process in self.processes + self._zombies:
            self._bury(process)
        if self.mates is not None:
            self.mates.die(self.workers)
        self._starts.clear()
        self._flights.clear()
        self._kill_monitor(0.0)
        self._monitor_at = max(until, self.now) + _AFTER_FULL + self._random.random() * 0.5

    def _end_joining(self) -> None:
        """End replacements of released workers, as the supervisor does at the end."""
        self._starts.clear()
        for process in self.processes:
            if process.recovery is None or process.recovery.agent.phase is WorkerPhase.JOINING:
                self.note("ended", **process.place.fields, incarnation=process.incarnation)
                self._bury(process)

    def _start_due(self) -> None:
        due = [start for start in self._starts if start[0] <= self.now]
        if not due:
            return
        self._starts = [start for start in self._starts if start[0] > self.now]
        for _, place in due:
            if self._processes[place] is None:
                self._incarnations += 1
                self._processes[place] = Process(place, self._incarnations)
                self.note("started", **place.fields, incarnation=self._incarnations)

    def explain(self) -> str:
        """Report of the state of every process, for stuck jobs."""
        phase = self._monitor.coordinator.phase if self._monitor is not None else "dead"
        lines = [f"{self.now:.3f}: monitor {phase}"]
        for process in self.processes:
            if process.recovery is None:
                lines.append(f"{process.place}: starting")
                continue
            agent = process.recovery.agent
            lines.append(
                f"{process.place}/{process.incarnation}: {agent.phase.name} round {agent.round} generation "
                f"{agent.worker.generation} awaits {agent.worker.awaited} low {agent.low[process.worker]} done "
                f"{agent.worker.done} pending {agent.worker.pending()[:3]}"
            )
        return "\n".join(lines)
