"""The driver of a worker's half of recovery: it takes part in the turns of a `Session`, with a store and a monitor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from recovery.agent.agent import Agent
from recovery.agent.effects import (
    Acknowledge,
    AskPositions,
    Delete,
    Effect,
    Fail,
    Perform,
    Put,
    Report,
    Rewind,
    SendFrame,
)
from recovery.agent.events import (
    Connected,
    EpochsEnded,
    Event,
    GenerationBegun,
    Heard,
    PieceDue,
    PositionsFound,
    Received,
    Stored,
    TurnEnded,
)
from recovery.backpressure import Backpressure
from recovery.checkpoint.pace import Pace
from recovery.checkpoint.records import SourcePosition
from recovery.epoch_ends import EpochEnds
from recovery.protocol import ToMonitor, ToWorker
from recovery.store.interface import Buffer
from runtime.inputs import PartitionPosition
from runtime.observer import Observer
from runtime.session import Session
from timely.data.messages import Frame
from timely.errors import FalkirkError

TURN, TURN_SECONDS, _CHUNK = 10_000, 0.02, 8
"""A turn is over after so many batches and notifications, or so long a time; that is looked at after every so many."""

_HEARTBEAT_SECONDS = 0.25
ATTEND_SECONDS, _MOST_TURNS = 0.02, 16
"""A busy worker minds recovery after so many seconds, and after so many turns at the latest."""


class MonitorLink(Protocol):
    """The connection to the monitor. While there is none, what is sent is dropped."""

    def send(self, message: ToMonitor) -> None:
        """Pass a message on. Never blocks."""

    def poll(self) -> tuple[list[ToWorker], bool]:
        """The messages that have come, and whether the connection is new since the last call."""

    def files(self) -> list[int]:
        """The file descriptors to wait for."""

    def close(self) -> None:
        """Leave."""


class StoreClient(Protocol):
    """Writes to the store, one after the other, without making the worker wait."""

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Begin to write a blob."""

    def delete(self, name: str) -> None:
        """Begin to remove a blob."""

    def take_done(self) -> list[tuple[str, Exception | None]]:
        """The puts that have ended since the last call, in order."""

    def files(self) -> list[int]:
        """The file descriptors to wait for."""

    def close(self) -> None:
        """Finish what was begun."""


class RecoveryDriver:
    """Recovery of the worker of `session`, whose job survives its death. See `runtime.session.Participant`.

    `spent` tells the seconds of processor time that the calling thread has used; `say` gets what the user should know;
    `patience`: seconds for which the monitor may be silent.
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
        patience: float = 10.0,
        attend_seconds: float = ATTEND_SECONDS,
        turn: int = TURN,
    ) -> None:
        self.agent = agent
        self.paused = self.pressed = False
        self._session = session
        self._worker = agent.worker
        agent.recorder.shipments.budget = session.limits.bytes // 2
        self._monitor = monitor
        self._store = store
        self._clock = clock
        nodes = session.plan.graph.of_kind("source")
        self._sources = {node.index: source for node, source in zip(nodes, session.sources, strict=True)}
        self._node_of = {session.plan.of_node[node]: node for node in self._sources}
        keeps = any(edge.kept for edge in agent.layout.edges)
        self._telling = [(p, self._sources[n]) for p, n in self._node_of.items() if keeps and self._sources[n].tells]
        """Sources, by processor, whose epochs are cut by the clock, where others keep what comes of them."""
        self._observer = Observer(agent, session, clock, say=say)
        self._backpressure = Backpressure(agent, session.limits.bytes, patience, clock())
        self._pace, self._spent = Pace(), spent
        self._turn = turn
        self._attend_seconds, self._attends_at, self._turns_left = attend_seconds, 0.0, 0
        self._attends, self._began = False, 0.0
        """Of the present turn: whether it minds recovery, and when it began."""
        self._worked = 0.0
        self._joined = False

    @property
    def done(self) -> bool:
        """True if the job is over, on all workers, and nobody will go back."""
        return self.agent.done

    def begin(self) -> bool:
        """A turn begins: hear the monitor and the store, go back if they say so. True if there was anything."""
        self._worker.acting = None
        self._began = self._clock()
        self._attends = self._is_due(self._began)
        if not self._attends:
            return False
        if self.agent.running:  # in a round nobody knows what is complete
            spent = self._spent()
            for source in self._sources.values():
                source.measure(spent)
        events = self._hear()
        if events:
            self._tell(*events)
        return bool(events)

    def receive(self, frame: Frame) -> None:
        """A frame of another worker."""
        if self.agent.concerns(frame):
            self._tell(Received(frame))
        else:
            self._worker.receive(frame)

    def resume(self) -> bool:
        """True if the worker may work: not in a round."""
        if not self.agent.running:
            return False
        if self.agent.begins:
            self._tell(GenerationBegun())
        self.paused = self._backpressure.is_full(self._began) or self._backpressure.is_late(self._began)
        self.pressed = self._backpressure.full
        return True

    def work(self) -> bool:
        """Let the worker work, but not for long: it may be in a loop for hours, and others wait for it. True if it is done."""
        worker, recorder, began = self._worker, self.agent.recorder, self._clock()
        records, left = recorder.records, self._turn
        if self._telling:
            self._tell_ends()
        while not (quiet := worker.run(min(left, _CHUNK))):
            left -= _CHUNK
            if worker.telling or left <= 0 or self._clock() - began >= TURN_SECONDS:
                break
        worker.acting = None
        if recorder.records != records:
            self._worked += self._clock() - began
        return quiet

    def _tell_ends(self) -> None:
        """Tell where epochs have ended, before frames are sent that say that they have."""
        index = self._worker.index
        taken = ((p, source.take_ends()) for p, source in self._telling)
        told = tuple(
            EpochEnds(index, p, ends.begin, ends.upto, tuple(ends.partitions.items()), ends.alone)
            for p, ends in taken
            if ends is not None
        )
        if told:
            self._tell(EpochsEnded(told))

    def end(self, quiet: bool, busy: bool) -> bool:
        """A turn ends: make pieces of cuts, say how far the worker is. False if it was idle, so that it may rest."""
        agent, now = self.agent, self._clock()
        if busy:
            self._pace.worked(now - self._began)
        if not agent.saving:
            self._pace.over()
        elif not self._pace.puts_off(self._due_in(now)):
            self._save(now)
            self._attends = busy = True
        if self._attends or (agent.eager and quiet and busy and not agent.waits_for_store()):  # a commit can begin
            busy = self._tell(TurnEnded(quiet, self._worked)) or busy
            observed = self._observer.turn()
            if observed is not None:
                self._monitor.send(observed)
                busy = True
        if busy or not quiet:
            return True
        self._turns_left = 0  # before it rests, it attends, and after that
        return not self._attends

    def rest(self) -> tuple[list[int], float]:
        """The files to wait for, and seconds after which there is something to do in any case."""
        if self.agent.eager:
            self._turns_left = 0  # what wakes it may be that a commit is durable
        return [*self._monitor.files(), *self._store.files()], _HEARTBEAT_SECONDS

    def close(self) -> None:
        """The job is over: leave, when all is written."""
        self._monitor.close()
        self._store.close()

    def abort(self) -> None:
        """The job failed here. What is durable stays, and the job can go on from it."""
        self._monitor.close()

    def _is_due(self, now: float) -> bool:
        """True if this turn is one in which the worker minds recovery: hears, reports, stores.

        None of that is wanted each turn, and it costs 0.1 ms where large batches push its code out of the caches: several per
        cent of a turn. A worker at rest, or in a round, does it always.
        """
        if self._turns_left and now < self._attends_at and self.agent.running:
            self._turns_left -= 1
            return False
        self._turns_left, self._attends_at = _MOST_TURNS, now + self._attend_seconds
        return True

    def _hear(self) -> list[Event]:
        """The events that have come from outside."""
        events: list[Event] = []
        for name, error in self._store.take_done():
            if error is not None:
                raise error
            events.append(Stored(name))
        messages, anew = self._monitor.poll()
        if anew or not self._joined:
            self._joined = True
            events.append(Connected())
        for message in messages:
            events.append(Heard(message))
            self._observer.hear(message)
        if messages:
            self._backpressure.heard(self._clock())
        return events

    def _due_in(self, now: float) -> float | None:
        """Seconds until a source can be read; None: nobody knows."""
        wakes = [source.waits(self._session.limits)[0] for source in self._session.sources]
        return min((wake - now for wake in wakes if wake is not None), default=None)

    def _save(self, began: float) -> None:
        """Make pieces of cuts, for as long as this turn may last."""
        agent = self.agent
        every = agent.cut_every or 1.0
        self._pace.make(began, every, lambda: agent.saving, self._piece, self._clock, self._spent)

    def _piece(self, rows: int) -> int:
        before = self.agent.checkpoints.saved_rows
        self._tell(PieceDue(rows))
        return self.agent.checkpoints.saved_rows - before

    def _tell(self, *events: Event) -> bool:
        """Tell the agent, and carry out what follows. True if anything does."""
        effects = self.agent.step(self._clock(), *events)
        self._carry_out(effects)
        return bool(effects)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Report(message):
                    self._monitor.send(message)
                case SendFrame(worker, frame):
                    self._session.send(worker, frame)
                case Put(name, parts):
                    self._store.put(name, parts)
                case Delete(name):
                    self._store.delete(name)
                case Perform(requests):
                    self._session.carry_out(requests)
                case Acknowledge(node, epoch):
                    self._sources[node].acknowledge(epoch)
                case Rewind(sources):
                    for source, (start, positions, ends, least) in sources.items():
                        known = None if positions is None else _places(positions)
                        told = (least, None) if ends is None else (ends.upto, dict(ends.partitions))
                        self._sources[source].rewind(start, known, *told)
                    self._session.stop_void()
                case AskPositions(wanted):
                    self._tell(PositionsFound({p: self._positions(p, epoch) for p, epoch in wanted}))
                case Fail(reason):
                    raise FalkirkError(reason)

    def _positions(self, processor: int, epoch: int) -> tuple[SourcePosition, ...]:
        return tuple(
            SourcePosition(found.partition, found.position, found.ended, found.before, found.fingerprint)
            for found in self._sources[self._node_of[processor]].positions(epoch)
        )


def _places(positions: Iterable[SourcePosition]) -> dict[str, PartitionPosition]:
    return {
        p.partition: PartitionPosition(p.partition, p.position, p.ended, p.before, p.fingerprint) for p in positions
    }
