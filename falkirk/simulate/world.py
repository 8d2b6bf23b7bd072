"""A whole job in one thread: workers, links, stores, the monitor, and everything that can go wrong, drawn from a seed.

The workers' sessions, the agents, the journals and the coordinator are the ones of production; only the network, the
clock and the disk are simulated. The same seed gives the same run, event by event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from falkirk.simulate.faults import Faults
from falkirk.simulate.outside import Outside
from falkirk.simulate.parts import SimulatedDisk
from monitor.coordinator import Coordinator
from monitor.effects import Event, Fail, Fence, Finished, Persist, Respawn, Send, Settings
from monitor.records import Record as Kept
from monitor.records import Saved, decode_record, encode_record, slot
from recovery.layout import lay_out
from recovery.protocol import ToMonitor, ToWorker, decode_to_monitor, decode_to_worker, encode_message
from recovery.session import RecoverableSession
from recovery.store.journal import Journal
from recovery.store.reading import take_over
from recovery.store.segments import Section
from timely.batch import Batch
from timely.dataflow import Dataflow
from timely.drivers.inputs import Limits
from timely.drivers.wire_format import decode_frame, encode_frame
from timely.errors import FalkirkError
from timely.graph import Graph
from timely.messages import Frame
from timely.order import Time
from timely.plan import compile_plan

STORE_ID = b"simulated-store!"


class Lost(FalkirkError):
    """The simulated job did not do what it must."""


class _Killed(BaseException):
    """A process dies in the midst of its turn."""


class _Link:
    """The links of one process of a worker."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.unsent = 0

    def send(self, worker: int, frame: Frame) -> None:
        self._world.at_io()
        self._world.carry(self._process, worker, frame)
        self._world.at_io()

    def poll(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        frames, self._process.frames = self._process.frames, []
        return frames

    def close(self) -> None:
        self._process.frames.clear()

    abandon = close


class _MonitorLink:
    def __init__(self, process: Process) -> None:
        self._process = process

    def send(self, message: ToMonitor) -> None:
        if self._process.connected:
            self._process.to_monitor.append(encode_message(message))

    def poll(self) -> tuple[list[ToWorker], bool]:
        process = self._process
        messages, process.heard = process.heard, []
        anew, process.anew = process.anew, False
        return messages, anew

    def files(self) -> list[int]:
        return []

    def close(self) -> None:
        self._process.connected = False


class _Store:
    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def put(self, name: str, parts: Sequence[Any]) -> None:
        self._world.at_io()
        self._world.disk.begin(self._process.owner, name, parts)
        self._world.at_io()

    def delete(self, name: str) -> None:
        self._world.at_io()
        self._world.disk.remove(name)
        self._world.at_io()

    def take_done(self) -> list[tuple[str, Exception | None]]:
        return self._world.disk.take_done(self._process.owner)

    def files(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


@dataclass(eq=False)
class Process:
    """One process of a worker."""

    worker: int
    incarnation: int
    session: RecoverableSession | None = None
    connected: bool = True
    """To the monitor."""
    anew: bool = False
    frames: list[Frame] = field(default_factory=list)
    heard: list[ToWorker] = field(default_factory=list)
    to_monitor: deque[bytes] = field(default_factory=deque)
    from_monitor: deque[bytes] = field(default_factory=deque)

    @property
    def owner(self) -> tuple[int, int]:
        return self.worker, self.incarnation


class World:
    """One simulated job.

    Args:
        build: makes the dataflow, anew for every process.
        workers: how many.
        seed: of all chance.
        faults: what may go wrong, and how often.
        outside: where sinks and captures lead; None for a new one.
    """

    def __init__(
        self,
        build: Callable[[], Dataflow],
        workers: int,
        seed: int,
        faults: Faults | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.workers = workers
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.now = 0.0
        self.outside = Outside()
        self.disk = SimulatedDisk(self.random, self.faults)
        self.log: list[tuple[float, str, dict[str, Any]]] = []
        self.failure: str | None = None
        self.finished = False
        self.killed = 0
        self._build = build
        self._limits = limits or Limits(epochs=4)
        self._processes: list[Process | None] = [None] * workers
        self._incarnations = 0
        self._starts: list[tuple[float, int]] = []
        self._flights: dict[tuple[Process, Process], deque[bytes]] = {}
        self._coordinator: Coordinator | None = None
        self._monitor_journal: Journal | None = None
        self._monitor_owner = (-1, 0)
        self._tickets: dict[str, int] = {}
        self._persisting: int | None = None
        self._restart_monitor = 0.0

    # Running

    def run(self, limit: int = 200_000) -> None:
        """Run to the end. Raises Lost when the job fails, or nothing moves any more."""
        self._start_monitor()
        for _ in range(limit):
            if self.finished and all(process is None for process in self._processes):
                return
            if self.failure is not None:
                raise Lost(self.failure)
            self.step()
        raise Lost(f"the job is not done after {limit} steps:\n{self.explain()}")

    def step(self) -> None:
        """One thing happens."""
        self.now += self.random.expovariate(1.0) * 0.002
        self._faults()
        self._start_due()
        self.disk.advance(self.now)
        actions: list[Callable[[], None]] = []
        for process in self._processes:
            if process is not None:
                actions.append(lambda process=process: self._turn(process))  # type: ignore[misc]
                if process.to_monitor and self._coordinator is not None and process.connected:
                    actions.append(lambda process=process: self._tell_monitor(process))  # type: ignore[misc]
                if process.from_monitor:
                    actions.append(lambda process=process: self._tell_worker(process))  # type: ignore[misc]
        for pair, frames in self._flights.items():
            if frames:
                actions.append(lambda pair=pair: self._deliver(pair))  # type: ignore[misc]
        if self._coordinator is not None:
            actions.append(self._tick)
        if actions:
            self.random.choice(actions)()

    def _turn(self, process: Process) -> None:
        session = process.session
        if session is None:
            self._open(process)
            return
        try:
            session.step()
        except _Killed:
            self.kill(process.worker)
            return
        if session.done and not process.to_monitor and self.finished:
            session.close()
            self._processes[process.worker] = None
            self._cut_off(process)

    def _open(self, process: Process) -> None:
        """A process begins: it fences its journal, reads it, and joins."""
        owner = f"worker-{process.worker:03d}"
        journal, found, _ = take_over(self.disk, owner, STORE_ID, process.incarnation)
        flow = self._build()
        plan = compile_plan(flow.graph, self.workers)
        layout = lay_out(plan)
        self.outside.adopt(flow)
        process.session = RecoverableSession(
            plan,
            layout,
            process.worker,
            process.incarnation,
            _Link(self, process) if self.workers > 1 else None,
            _MonitorLink(process),
            _Store(self, process),
            journal,
            list(found.read()),
            limits=self._limits,
            clock=lambda: self.now,
            on_capture=self._captures(process, plan.graph),
        )

    # The network

    def carry(self, process: Process, worker: int, frame: Frame) -> None:
        """A frame leaves a process for another worker."""
        target = self._processes[worker]
        if self._processes[process.worker] is not process or target is None:
            return
        parts = encode_frame(frame)
        data = b"".join(bytes(part) for part in parts)
        self._flights.setdefault((process, target), deque()).append(data)

    def _deliver(self, pair: tuple[Process, Process]) -> None:
        data = self._flights[pair].popleft()
        pair[1].frames.append(decode_frame(memoryview(data)[4:]))

    def _tell_monitor(self, process: Process) -> None:
        assert self._coordinator is not None
        message = decode_to_monitor(process.to_monitor.popleft())
        self._coordinator.hear(message, self.now, process.incarnation)
        self._carry_out()

    def _tell_worker(self, process: Process) -> None:
        process.heard.append(decode_to_worker(process.from_monitor.popleft()))

    def _cut_off(self, process: Process) -> None:
        for pair in [pair for pair in self._flights if process in pair]:
            if pair[0] is process:
                continue  # what it sent is on its way
            del self._flights[pair]

    # The monitor

    def _start_monitor(self) -> None:
        self._incarnations += 1
        self._monitor_owner = (-1, self._incarnations)
        journal, found, _ = take_over(self.disk, "monitor", STORE_ID, self._incarnations)
        self._kept: dict[Any, Section] = {}
        records: list[Kept] = []
        self._events = 0
        for meta, sections in found.read():
            keys = []
            for section in sections:
                record = decode_record(section.head)
                records.append(record)
                keys.append(self._keep(record, section))
            journal.recovered(meta, sections, keys)
        journal.resume()
        settings = Settings(
            workers=self.workers,
            awaited=tuple(
                sorted(
                    {process.worker for process in self._processes if process is not None}
                    | {worker for _, worker in self._starts}
                )
            ),
            join_seconds=20.0,
            pause_seconds=8.0,
            restore_seconds=20.0,
            heartbeat_seconds=6.0,
            attempts=10_000,
        )
        self._monitor_journal = journal
        self._tickets.clear()
        self._coordinator = Coordinator(self.now, Saved.of(records), settings)
        for process in self._processes:
            if process is not None and process.session is not None:
                process.connected = True
                process.anew = True
                process.to_monitor.clear()
                process.from_monitor.clear()
                process.heard.clear()
        self._carry_out()

    def _kill_monitor(self) -> None:
        self.disk.crash(self._monitor_owner)
        self._coordinator = None
        self._restart_monitor = self.now + self.random.random()
        for process in self._processes:
            if process is not None:
                process.connected = False
                process.to_monitor.clear()
                process.from_monitor.clear()
        self.log.append((self.now, "monitor killed", {}))

    def _tick(self) -> None:
        assert self._coordinator is not None
        for name, error in self.disk.take_done(self._monitor_owner):
            assert error is None, error
            assert self._monitor_journal is not None
            for old in self._monitor_journal.stored(name):
                self.disk.remove(old)
            self._coordinator.stored(self._tickets.pop(name), self.now)
        self._coordinator.tick(self.now)
        self._carry_out()

    def _carry_out(self) -> None:
        assert self._coordinator is not None
        for effect in self._coordinator.take():
            match effect:
                case Send(worker, message):
                    process = self._processes[worker]
                    if process is not None and process.connected:
                        process.from_monitor.append(encode_message(message))
                case Persist(ticket, records):
                    self._persist(ticket, records)
                case Respawn(worker):
                    self._starts.append((self.now + self.random.random() * 0.2, worker))
                case Fence(worker, incarnation, reason):
                    process = self._processes[worker]
                    if process is not None and incarnation in (-1, process.incarnation):
                        self.log.append((self.now, "fenced", {"worker": worker, "reason": reason}))
                        self._remove(process)
                case Event(kind, _, data):
                    self.log.append((self.now, kind, data))
                case Finished():
                    self.finished = True
                case Fail(reason):
                    self.failure = reason

    def _persist(self, ticket: int, records: tuple[Kept, ...]) -> None:
        journal = self._monitor_journal
        assert journal is not None
        for record in records:
            section = Section(encode_record(record))
            journal.add(self._keep(record, section), section)
        for key in journal.carry():
            journal.add(key, self._kept[key])
        sealed = journal.seal()
        assert sealed is not None
        self._tickets[sealed[0]] = ticket
        self.disk.begin(self._monitor_owner, *sealed)

    def _keep(self, record: Kept, section: Section) -> str:
        key = slot(record)
        if key is None:
            self._events += 1
            key = f"event-{self._events}"
        self._kept[key] = section
        return key

    def _captures(self, process: Process, graph: Graph) -> Callable[[int, Time, Batch], None]:
        publish = self.outside.captures(process.worker, graph)

        def capture(node: int, time: Time, batch: Batch) -> None:
            self.at_io()
            publish(node, time, batch)
            self.at_io()

        return capture

    # Faults

    def at_io(self) -> None:
        """A process is about to do something that others can see, or has just done it."""
        if self.now < self.faults.until and self.random.random() < self.faults.kill_at_io:
            raise _Killed

    def _faults(self) -> None:
        draw = self.random.random
        faults = self.faults
        if self._coordinator is None and self.now >= self._restart_monitor:
            self._start_monitor()
        if self.now >= faults.until or self.finished:
            return
        if draw() < faults.kill_worker:
            self.kill(self.random.randrange(self.workers))
        if self._coordinator is not None and draw() < faults.kill_monitor:
            self._kill_monitor()

    def kill(self, worker: int) -> bool:
        """`kill -9`. False if there was no such process."""
        process = self._processes[worker]
        if process is None:
            return False
        self.killed += 1
        self.log.append((self.now, "killed", {"worker": worker, "incarnation": process.incarnation}))
        self._remove(process)
        if self._coordinator is not None:
            self._coordinator.lost(worker, process.incarnation, self.now, "killed")
            self._carry_out()
        return True

    def _remove(self, process: Process) -> None:
        self.disk.crash(process.owner)
        self._processes[process.worker] = None
        self._cut_off(process)

    def _start_due(self) -> None:
        due = [start for start in self._starts if start[0] <= self.now]
        self._starts = [start for start in self._starts if start[0] > self.now]
        for _, worker in due:
            if self._processes[worker] is None:
                self._incarnations += 1
                self._processes[worker] = Process(worker, self._incarnations)

    def explain(self) -> str:
        """What everybody waits for."""
        lines = [f"{self.now:.3f}: monitor {self._coordinator.phase if self._coordinator else 'dead'}"]
        for process in self._processes:
            if process is None:
                continue
            session = process.session
            if session is None:
                lines.append(f"worker {process.worker}: starting")
                continue
            agent = session.agent
            lines.append(
                f"worker {process.worker}/{process.incarnation}: {agent.phase.name} round {agent.round} generation "
                f"{agent.worker.generation} awaits {agent.worker.awaited} completed {agent._completed} "
                f"low {agent.low[process.worker]} done {agent.worker.done} pending {agent.worker.pending()[:3]}"
            )
        lines += [f"  {at:.3f} {kind} {data}" for at, kind, data in self.log[-20:]]
        return "\n".join(lines)
