"""Recovery driver of a worker: joins agent, store and monitor to a `Session`.

It feeds the agent events, carries out effects, and asks nothing. What it must know, such as that the worker may run, comes as
an effect (`Run`, `Halt`, `Save`, `Throttle`), which holds until the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from recovery.agent.agent import Agent
from recovery.agent.effects import (
    Acknowledge,
    Delete,
    Effect,
    Fail,
    Halt,
    Hold,
    LetGo,
    Perform,
    Put,
    ReadBefore,
    Report,
    Rewind,
    Run,
    Save,
    Saved,
    SendFrame,
    Throttle,
)
from recovery.agent.events import (
    Connected,
    EpochsEnded,
    Event,
    FromMonitor,
    Held,
    MateBegan,
    MateEnded,
    PieceDue,
    Received,
    Stood,
    Stored,
    TurnEnded,
    for_the_engine,
)
from recovery.agent.state import AGENT
from recovery.checkpoint.checkpoints import PIECE_ROWS
from recovery.checkpoint.pace import Pace
from recovery.checkpoint.records import SourcePosition
from recovery.epoch_ends import EpochEnds
from recovery.protocol import Observe, ToMonitor, ToWorker
from recovery.store.interface import Buffer
from runtime.recovery.observer import Observer
from runtime.session.session import Session
from runtime.sources.positions import PartitionPosition
from timely.data.messages import Frame
from timely.errors import FalkirkError
from timely.worker import restoring

TURN, TURN_SECONDS, _CHUNK = 10_000, 0.02, 8
"""Bounds of a turn in events and in seconds, and events between looks at the time."""

_HEARTBEAT_SECONDS = 0.25
ATTEND_SECONDS, _MOST_TURNS = 0.02, 16
"""Bounds between two rounds of recovery work in a busy worker: seconds and turns."""


class MonitorLink(Protocol):
    """Connection to the monitor; while it is down, sent messages are dropped."""

    def send(self, message: ToMonitor) -> None:
        """Send a message; never blocks."""

    def poll(self) -> tuple[list[ToWorker], bool]:
        """Received messages, and True if the connection is new since the last call."""

    def files(self) -> list[int]:
        """File descriptors to wait for."""

    def close(self) -> None:
        """Close the connection."""


class StoreClient(Protocol):
    """Asynchronous writes to the store, in order.

    `spent`: processor seconds for them so far.
    """

    spent: float

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Start writing a blob."""

    def delete(self, name: str) -> None:
        """Start deleting a blob."""

    def take_done(self) -> list[tuple[str, Exception | None]]:
        """Puts finished since the last call, in order, each with its error or None."""

    def files(self) -> list[int]:
        """File descriptors to wait for."""

    def close(self) -> None:
        """Finish pending operations, and close."""


class MateLink(Protocol):
    """Connection to the worker's mate, if it has one."""

    def hold(self, name: str, parts: Sequence[Buffer]) -> None:
        """Send a segment to be kept in memory; never blocks."""

    def let_go(self, name: str) -> None:
        """Send an order to drop a segment."""

    def poll(self) -> list[MateBegan | MateEnded | Held]:
        """Events since the last call."""

    def files(self) -> list[int]:
        """File descriptors to wait for."""

    def close(self) -> None:
        """Close the connection."""


class RecoveryDriver:
    """Recovery of a session's worker, as a `runtime.session.session.Participant`.

    `spent` gives the processor seconds used by the calling thread; `say` gets notes for the user.
    """

    def __init__(
        self,
        session: Session,
        agent: Agent,
        monitor: MonitorLink,
        store: StoreClient,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        say: Callable[[str], None] = lambda text: None,
        attend_seconds: float = ATTEND_SECONDS,
        turn: int = TURN,
        mate: MateLink | None = None,
    ) -> None:
        self.agent = agent
        self._mate = mate
        self.done = self.paused = self.pressed = False
        """Last values from the agent: see `runtime.session.session.Participant`."""
        self._runs = self._begins = False
        """From `Run` to `Halt`; from `Run` until the engine has begun its generation."""
        self._generation: int | None = None
        """Generation of the last `Run`; None: there was none yet."""
        self._save: Save | None = None
        """Pieces of cuts to make; None: there are none."""
        self._saved = 0
        """Rows saved so far."""
        self._writing = False
        """True while a segment is on its way to the store."""
        self._commits = any(group.eager for group in agent.layout.groups)
        """True if some groups are cut without the monitor, whenever the worker is quiet."""
        self._session = session
        self._worker = session.worker
        self._monitor = monitor
        self._store = store
        self._clock = clock
        nodes = session.plan.graph.of_kind("source")
        self._sources = {node.index: source for node, source in zip(nodes, session.sources, strict=True)}
        self._node_of = {session.plan.of_node[node]: node for node in self._sources}
        keeps = any(edge.kept for edge in agent.layout.edges)
        self._telling = [(p, self._sources[n]) for p, n in self._node_of.items() if keeps and self._sources[n].tells]
        """Sources with epoch ends to report to other workers, by processor."""
        self._pace, self._spent = Pace(), spent
        self._saving = 0.0
        """Processor seconds for pieces of cuts so far."""
        self._observer = Observer(agent, session, clock, say, lambda: (self._saving, store.spent))
        self._turn = turn
        self._attend_seconds, self._attends_at, self._turns_left = attend_seconds, 0.0, 0
        self._attends, self._began = False, 0.0
        """State of the present turn: True if it does recovery work, and its start time."""
        self._worked = 0.0
        """Seconds of work since the last `TurnEnded`."""
        self._joined = False
        self._stands = False
        """True while it is to be reported how far the sources have begun."""

    @property
    def _running(self) -> bool:
        """True if the worker may run: no rollback or drain is under way."""
        return self._runs and self._worker.awaited <= {AGENT}

    def begin(self) -> bool:
        """Start a turn: handle events from monitor and store; True if there were any."""
        self._worker.acting = None
        self._began = self._clock()
        self._attends = self._is_due(self._began)
        if not self._attends:
            return False
        if self._running:  # in a round nobody knows what is complete
            spent = self._spent()
            for source in self._sources.values():
                source.measure(spent)
        events = self._hear()
        if events:
            self._tell(*events)
        return bool(events)

    def receive(self, frame: Frame) -> None:
        """Handle a frame of another worker, by the agent where it concerns recovery."""
        if for_the_engine(frame, self._generation):
            self._worker.receive(frame)
        else:
            self._tell(Received(frame))

    def resume(self) -> bool:
        """True if the worker may run: no rollback or drain is under way."""
        if not self._running:
            return False
        if self._begins:
            self._begins = False
            self._worker.awaited.discard(AGENT)
            restoring.resume(self._worker)
        return True

    def work(self) -> bool:
        """Run the worker for a bounded time; True if nothing is left to do.

        It may be in a loop for hours, and other workers wait for its frames.
        """
        worker, began, left = self._worker, self._clock(), self._turn
        if self._telling:
            self._tell_ends()
        while not (quiet := worker.run(min(left, _CHUNK))):
            left -= _CHUNK
            if worker.telling or left <= 0 or self._clock() - began >= TURN_SECONDS:
                break
        worker.acting = None
        self._worked += self._clock() - began
        return quiet

    def _tell_ends(self) -> None:
        """Report epoch ends, before any frame shows these epochs as complete."""
        index = self._worker.index
        taken = ((p, source.take_ends()) for p, source in self._telling)
        samples = tuple(
            EpochEnds(index, p, ends.begin, ends.upto, tuple(ends.partitions.items()), ends.local_only)
            for p, ends in taken
            if ends is not None
        )
        if samples:
            self._tell(EpochsEnded(samples))

    def end(self, quiet: bool, busy: bool) -> bool:
        """Finish a turn: save pieces of cuts, report progress; False if it was idle."""
        now = self._clock()
        if busy:
            self._pace.worked(now - self._began)
        if self._save is None:
            self._pace.over()
        elif not self._pace.puts_off(self._due_in(now)):
            # For as long as this turn may last.
            every = self._save.every or 1.0
            self._pace.make(now, every, lambda: self._save is not None, self._piece, self._clock, self._spent)
            self._attends = busy = True
        if self._attends or (self._commits and quiet and busy and not self._writing):  # a commit can begin
            worked, self._worked = self._worked, 0.0
            began = self._spent() if self._commits else 0.0
            busy = self._tell(TurnEnded(quiet, worked)) or busy
            if self._commits:  # it may have been one
                self._saving += self._spent() - began
            if self._save is not None and self._save.at_once:
                self._piece(PIECE_ROWS)
            observed = self._observer.turn()
            if observed is not None:
                self._monitor.send(observed)
                busy = True
        if busy or not quiet:
            return True
        self._turns_left = 0  # before it rests, it attends, and after that
        return not self._attends

    def rest(self) -> tuple[list[int], float]:
        """File descriptors to wait for while at rest, and the longest wait in seconds."""
        if self._commits:
            self._turns_left = 0  # what wakes it may be that a commit is durable
        mate = [] if self._mate is None else self._mate.files()
        return [*self._monitor.files(), *self._store.files(), *mate], _HEARTBEAT_SECONDS

    def close(self) -> None:
        """Close monitor link and store after the end, when all is written."""
        self._monitor.close()
        self._store.close()
        if self._mate is not None:
            self._mate.close()

    def abort(self) -> None:
        """Disconnect after a failure; the job can resume from durable state."""
        self._monitor.close()

    def _is_due(self, now: float) -> bool:
        """True if this turn does recovery work: events, reports, storing.

        None of that is wanted each turn, and it costs 0.1 ms where large batches push its code out of the caches: several per
        cent of a turn. A worker at rest, or in a round, does it always.
        """
        if self._turns_left and now < self._attends_at and self._running:
            self._turns_left -= 1
            return False
        self._turns_left, self._attends_at = _MOST_TURNS, now + self._attend_seconds
        return True

    def _hear(self) -> list[Event]:
        """Events from the store and the monitor."""
        events: list[Event] = []
        for name, error in self._store.take_done():
            if error is not None:
                raise error
            self._writing = False
            events.append(Stored(name))
        if self._mate is not None:
            events += self._mate.poll()
        if self._stands:
            self._stands = False
            events.append(Stood(self._begun()))
        messages, anew = self._monitor.poll()
        if anew or not self._joined:
            self._joined = True
            events.append(Connected())
        for message in messages:
            events.append(FromMonitor(message))
            if isinstance(message, Observe):
                self._observer.hear(message)
        return events

    def _due_in(self, now: float) -> float | None:
        """Seconds until a source can be read; None if unknown."""
        wakes = [source.waits(self._session.limits)[0] for source in self._session.sources]
        return min((wake - now for wake in wakes if wake is not None), default=None)

    def _piece(self, rows: int) -> int:
        """Make a piece of about `rows` rows; returns its number of rows."""
        before, wanted, began = self._saved, () if self._save is None else self._save.sources, self._spent()
        self._tell(PieceDue(rows, {(p, epoch): self._positions(p, epoch) for p, epoch in wanted}))
        self._saving += self._spent() - began
        return self._saved - before

    def _tell(self, *events: Event) -> bool:
        """Pass events to the agent and carry out its effects; True if there are any."""
        effects = self.agent.step(self._clock(), *events)
        self._carry_out(effects)
        return bool(effects)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Report(message):
                    self._monitor.send(message)
                case SendFrame(place, frame):
                    self._session.send(place, frame)
                case Put(name, parts):
                    self._writing = True
                    self._store.put(name, parts)
                case Delete(name):
                    self._store.delete(name)
                case Hold(name, parts):
                    assert self._mate is not None
                    self._mate.hold(name, parts)
                case LetGo(name):
                    assert self._mate is not None
                    self._mate.let_go(name)
                case Perform(requests):
                    self._session.carry_out(requests)
                case Acknowledge(node, epoch):
                    self._sources[node].acknowledge(epoch)
                case Rewind(sources):
                    self._runs, self._generation = False, None
                    for source, (start, positions, ends, least) in sources.items():
                        known = None if positions is None else _places(positions)
                        samples = (least, None) if ends is None else (ends.upto, dict(ends.partitions))
                        self._sources[source].rewind(start, known, *samples)
                    self._session.stop_void()
                case ReadBefore(epoch):
                    self._stands = epoch is None
                    until = self._begun() if epoch is None else epoch
                    for driver in self._sources.values():
                        driver.until = until
                case Save():
                    self._save = effect
                case Saved(rows, over):
                    self._saved += rows
                    if over:
                        self._save = None
                case Throttle(here, everywhere):
                    self.paused, self.pressed = here, everywhere
                case Run(generation):
                    self._runs, self._begins, self._generation, self.done = True, True, generation, False
                case Halt(done):
                    self._runs, self.done = False, done
                case Fail(reason):
                    raise FalkirkError(reason)

    def _begun(self) -> int:
        """First epoch not begun by any source of this worker."""
        return max((source.begun() for source in self._sources.values()), default=0)

    def _positions(self, processor: int, epoch: int) -> tuple[SourcePosition, ...]:
        return tuple(
            SourcePosition(found.partition, found.position, found.ended, found.before, found.fingerprint)
            for found in self._sources[self._node_of[processor]].positions(epoch)
        )


def _places(positions: Iterable[SourcePosition]) -> dict[str, PartitionPosition]:
    return {
        p.partition: PartitionPosition(p.partition, p.position, p.ended, p.before, p.fingerprint) for p in positions
    }
