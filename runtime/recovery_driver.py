"""The driver of a worker's half of recovery: it takes part in the turns of a `Session`, with a store and a monitor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from recovery.agent import Agent
from recovery.backpressure import Backpressure
from recovery.checkpoint.pace import Pace
from recovery.checkpoint.records import SourcePosition
from recovery.layout import Layout
from recovery.protocol import ToMonitor, ToWorker
from recovery.store.interface import Buffer
from recovery.store.journal import Journal
from recovery.store.segments import Section, SegmentMeta
from runtime.inputs import Limits, PartitionPosition
from runtime.observer import Observer
from runtime.session import Session
from timely.data.messages import Frame
from timely.dataflow.plan import Plan

TURN, TURN_SECONDS, _CHUNK = 10_000, 0.02, 8
"""A turn is over after so many batches and notifications, or so long a time; that is looked at after every so many."""

_HEARTBEAT_SECONDS = 0.25
ATTEND_SECONDS, _MOST_TURNS = 0.02, 16
"""A busy worker minds recovery after so many seconds, and after so many turns at the latest."""


class MonitorLink(Protocol):
    """The connection to the monitor. While there is none, what is sent is dropped: `Agent.join` says it all again."""

    def send(self, message: ToMonitor) -> None:
        """Pass a message on. Never blocks."""

    def poll(self) -> tuple[list[ToWorker], bool]:
        """The messages that have come, and whether the connection is new since the last call: then the worker joins again."""

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
    """Recovery of worker `index`, whose job survives its death. See `runtime.session.Participant`.

    `journal` and `segments` come from `recovery.store.reading.take_over`; `limits` as for `Session`; `spent`
    tells the seconds of processor time that the calling thread has used; `say` gets what the user should know.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        index: int,
        incarnation: int,
        monitor: MonitorLink,
        store: StoreClient,
        journal: Journal,
        segments: Iterable[tuple[SegmentMeta, list[Section]]] = (),
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        say: Callable[[str], None] = lambda text: None,
        patience: float = 10.0,
        attend_seconds: float = ATTEND_SECONDS,
        turn: int = TURN,
    ) -> None:
        self.agent = Agent(plan, layout, index, incarnation, journal, self._positions)
        self.worker = self.agent.worker
        self.paused = self.pressed = False
        self._plan = plan
        self._monitor = monitor
        self._store = store
        self._segments = segments
        self._clock = clock
        self._say = say
        self._backlog = Backpressure(self.agent, (limits or Limits()).bytes, patience, clock())
        self._pace, self._spent = Pace(), spent
        self._turn = turn
        self._attend_seconds, self._attends_at, self._turns_left = attend_seconds, 0.0, 0
        self._attends, self._began = False, 0.0
        """Of the present turn: whether it minds recovery, and when it began."""

    def open(self, session: Session) -> None:
        """Take over what earlier incarnations of the worker wrote."""
        self._session = session
        self._observer = Observer(self.agent, session, self._clock, say=self._say)
        sources = self._plan.graph.of_kind("source")
        self._by_node = {node.index: source for node, source in zip(sources, session.sources, strict=True)}
        self.agent.open(self._segments)
        self._segments = ()

    @property
    def done(self) -> bool:
        """True if the job is over, on all workers, and nobody will go back."""
        return self.agent.done

    def begin(self) -> bool:
        """A turn begins: hear the monitor and the store, go back if they say so. True if there was anything."""
        self.worker.acting = None
        self._began = self._clock()
        self._attends = self._is_due(self._began)
        if not self._attends:
            return False
        busy = self._hear()
        # Before the journal says that what was released is not needed any more.
        busy = self._session.carry_out() or busy
        self._rewind()
        for node, source in self._by_node.items():
            source.settle(self.agent.source_low(node))
        return self._flush() or busy

    def receive(self, frame: Frame) -> None:
        """A frame of another worker."""
        self.agent.receive(frame)

    def resume(self) -> bool:
        """True if the worker may work: not in a round."""
        if not self.agent.running:
            return False
        self.agent.resume()
        self.paused = self._backlog.is_full(self._began) or self._backlog.is_late(self._began)
        self.pressed = self._backlog.full
        return True

    def work(self) -> bool:
        """Let the worker work, but not for long: it may be in a loop for hours, and others wait for it. True if it is done."""
        worker, recorder, began = self.worker, self.agent.recorder, self._clock()
        records, left = recorder.records, self._turn
        while not (quiet := worker.run(min(left, _CHUNK))):
            left -= _CHUNK
            if left <= 0 or self._clock() - began >= TURN_SECONDS:
                break
        worker.acting = None
        if recorder.records != records:
            self.agent.worked += self._clock() - began
        return quiet

    def end(self, quiet: bool, busy: bool) -> bool:
        """A turn ends: make pieces of cuts, say how far the worker is. False if it was idle, so that it may rest."""
        agent, now = self.agent, self._clock()
        if busy:
            self._pace.worked(now - self._began)
        if not agent.saving:
            self._pace.over()
        elif not self._pace.puts_off(self._due_in(now)):
            now = self._save(now)
            self._attends = busy = True
        if self._attends:
            agent.turn(quiet, now)
            self._observer.turn()
            busy = self._flush() or busy
        if busy or not quiet:
            return True
        self._turns_left = 0  # before it rests, it attends, and after that
        return not self._attends

    def rest(self) -> tuple[list[int], float]:
        """The files to wait for, and seconds after which there is something to do in any case."""
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

    def _hear(self) -> bool:
        busy = False
        for name, error in self._store.take_done():
            busy = True
            if error is not None:
                raise error
            for old in self.agent.stored(name):
                self._store.delete(old)
        messages, anew = self._monitor.poll()
        if anew:
            self.agent.join()
            busy = True
        for message in messages:
            self.agent.hear(message)
            self._observer.hear(message)
            busy = True
        if messages:
            self._backlog.heard(self._clock())
        self.agent.check()
        return busy

    def _due_in(self, now: float) -> float | None:
        """Seconds until a source can be read; None: nobody knows."""
        wakes = [source.waits(self._session.limits)[0] for source in self._session.sources]
        return min((wake - now for wake in wakes if wake is not None), default=None)

    def _save(self, began: float) -> float:
        """Make pieces of cuts, for as long as this turn may last; the time after that."""
        agent = self.agent
        every = agent.cut_every or 1.0
        return self._pace.make(began, every, lambda: agent.saving, self._piece, self._clock, self._spent)

    def _piece(self, rows: int) -> int:
        checkpoints = self.agent.checkpoints
        checkpoints.piece_rows, before = rows, checkpoints.saved_rows
        self.agent.save()
        return checkpoints.saved_rows - before

    def _rewind(self) -> None:
        rewound, self.agent.rewound = self.agent.rewound, {}
        for node, (epoch, positions) in rewound.items():
            known = (
                None
                if positions is None
                else {
                    p.partition: PartitionPosition(p.partition, p.position, p.ended, p.before, p.fingerprint)
                    for p in positions
                }
            )
            self._by_node[node].rewind(epoch, known)
        self._session.stop_void()

    def _flush(self) -> bool:
        """Send and store what the agent wants sent and stored."""
        agent = self.agent
        busy = bool(agent.frames)
        self._session.send(agent.frames)
        agent.frames.clear()
        busy = self._report() or busy
        sealed = agent.seal()
        if sealed is not None:
            self._store.put(*sealed)
            busy = True
        return self._report() or busy

    def _report(self) -> bool:
        """Send what the agent says to the monitor. True if it says anything."""
        messages = self.agent.messages
        if not messages:
            return False
        for message in messages:
            self._monitor.send(message)
        messages.clear()
        return True

    def _positions(self, processor: int, epoch: int) -> tuple[SourcePosition, ...]:
        source = self._by_node[self._plan.processors[processor].node.index]
        return tuple(
            SourcePosition(found.partition, found.position, found.ended, found.before, found.fingerprint)
            for found in source.positions(epoch)
        )
