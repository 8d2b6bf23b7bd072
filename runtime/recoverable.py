"""A worker with recovery and its driver: the engine's `Session`, with a store and a monitor beside its links."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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
from runtime.links.interface import Link
from runtime.observer import Observer
from runtime.session import Session
from runtime.workspace import Workspace
from timely.data.batch import Batch
from timely.dataflow.plan import Plan
from timely.io.waiting import wait_readable
from timely.time import Time

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


class RecoverableSession(Session):
    """Worker `index`, whose job survives its death.

    `journal` and `segments` come from `recovery.store.reading.take_over`; `limits` as for `Session`; `spent`
    tells the seconds of processor time that the calling thread has used; `say` gets what the user should know.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        index: int,
        incarnation: int,
        link: Link | None,
        monitor: MonitorLink,
        store: StoreClient,
        journal: Journal,
        segments: Iterable[tuple[SegmentMeta, list[Section]]] = (),
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        on_capture: Callable[[int, Time, Batch], None] | None = None,
        say: Callable[[str], None] = lambda text: None,
        workspace: Workspace | None = None,
        job: str | None = None,
        patience: float = 10.0,
        attend_seconds: float = ATTEND_SECONDS,
        turn: int = TURN,
    ) -> None:
        self.agent = Agent(plan, layout, index, incarnation, journal, self._positions)
        self._backlog = Backpressure(self.agent, (limits or Limits()).bytes, patience, clock())
        self._monitor = monitor
        self._store = store
        self._pace, self._spent = Pace(), spent
        self._turn = turn
        self._paused = False
        """Sources wait for the monitor, or for the store."""
        self._attend_seconds, self._attends_at, self._turns_left = attend_seconds, 0.0, 0
        super().__init__(
            plan,
            index,
            link,
            limits,
            worker=self.agent.worker,
            clock=clock,
            on_capture=on_capture,
            workspace=workspace,
            job=job,
        )
        self._observer = Observer(self.agent, self, clock, say=say)
        self._by_node = {
            node.index: source for node, source in zip(plan.graph.of_kind("source"), self.sources, strict=True)
        }
        self.agent.open(segments)

    @property
    def done(self) -> bool:
        return self.agent.done and not self.worker.effects

    def step(self, block: float | None = 0.0) -> bool:
        """One turn, as `Session.step`; between turns it hears of the monitor and of the store."""
        if self._stop is not None:
            raise self._stop
        agent, worker, link = self.agent, self.worker, self._link
        worker.acting = None
        start = self._clock()
        attends, busy = self._attends(start), False
        if attends:
            busy = self._hear()
            self._publish()
        if link is not None:
            for frame in link.poll(0):
                agent.receive(frame)
                busy = True
        if attends:
            self._rewind()
            for node, source in self._by_node.items():
                source.settle(agent.source_low(node))
            self._flush()
        quiet, pressed = True, False
        if agent.running:
            agent.resume()
            busy = self._work(start) or busy
            if link is not None:
                pressed = worker.queued_bytes + link.unsent > self.limits.bytes or self._backlog.full
            began, records = self._clock(), agent.recorder.records
            quiet = self._run(began)
            worker.acting = None
            if agent.recorder.records != records:
                agent.worked += self._clock() - began
        busy = self._publish() or busy
        if agent.running and link is not None:
            for peer, frame in worker.take_frames(quiet, pressed).items():
                link.send(peer, frame)
                busy = True
        now = self._clock()
        if busy:
            self._pace.worked(now - start)
        if not agent.saving:
            self._pace.over()
        elif not self._pace.puts_off(self._due_in(now)):
            now = self._save(now)
            attends = busy = True
        if attends:
            agent.turn(quiet, now)
            self._observer.turn()
            busy = self._flush() or busy
        if busy or not quiet:
            return True
        if not attends:
            self._turns_left = 0  # before it rests, it attends
            return True
        if block != 0.0 and not self.done:
            self._sleep(block, pressed or bool(worker.pressed_by) or self._paused)
            self._turns_left = 0
        return False

    def _run(self, began: float) -> bool:
        """Let the worker work, but not for long: it may be in a loop for hours, and others wait for it. True if it is done."""
        left = self._turn
        while not self.worker.run(min(left, _CHUNK)):
            left -= _CHUNK
            if left <= 0 or self._clock() - began >= TURN_SECONDS:
                return False
        return True

    def _attends(self, now: float) -> bool:
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
        wakes = [source.waits(self.limits)[0] for source in self.sources]
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

    def _publish(self) -> bool:
        """Carry out what the worker asks for; before the journal says that what it released is not needed any more."""
        if not self.worker.effects:
            return False
        self._outputs.carry_out(self.worker.take_effects())
        return True

    def _work(self, now: float) -> bool:
        """Read sources, and give results of jobs to the worker."""
        worker, busy = self.worker, False
        crowded = worker.queued_bytes + (self._link.unsent if self._link is not None else 0) > self.limits.bytes
        self._paused = self._backlog.is_full(now) or self._backlog.is_late(now)
        if not self._paused and not crowded and not worker.pressed_by:
            for source in self.sources:
                if source.pump(self.limits):
                    busy = True
        if self._outputs.jobs and self._outputs.take_results():
            busy = True
        return busy

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
        self._outputs.stop_void()

    def _flush(self) -> bool:
        """Send and store what the agent wants sent and stored."""
        agent = self.agent
        busy = bool(agent.frames or agent.messages)
        if self._link is not None:
            for peer, frame in agent.frames:
                self._link.send(peer, frame)
        agent.frames.clear()
        for message in agent.messages:
            self._monitor.send(message)
        agent.messages.clear()
        sealed = agent.seal()
        if sealed is not None:
            self._store.put(*sealed)
            busy = True
        for message in agent.messages:
            self._monitor.send(message)
            busy = True
        agent.messages.clear()
        return busy

    def _positions(self, processor: int, epoch: int) -> tuple[SourcePosition, ...]:
        source = self._by_node[self.plan.processors[processor].node.index]
        return tuple(
            SourcePosition(found.partition, found.position, found.ended, found.before, found.fingerprint)
            for found in source.positions(epoch)
        )

    def _sleep(self, block: float | None, paused: bool) -> None:
        files = [*self._monitor.files(), *self._store.files()]
        until = self._clock() + _HEARTBEAT_SECONDS
        if self.agent.running:
            for source in () if paused else self.sources:
                wake, more = source.waits(self.limits)
                files += more
                if wake is not None:
                    until = min(until, wake)
        left = max(0.0, until - self._clock())
        block = left if block is None else min(block, left)
        if self._outputs.jobs:
            files.append(self._wake_file())
            if self._outputs.jobs_done():
                return
        if self._link is not None:
            for frame in self._link.poll(block, files):
                self.agent.receive(frame)
        else:
            wait_readable(files, block)
        self._drain_wake()

    def close(self) -> None:
        """End the job here."""
        super().close()
        self._monitor.close()
        self._store.close()

    def abort(self) -> None:
        """Give up: leave no partial output. What is durable stays, and the job can go on from it."""
        super().abort()
        with suppress(Exception):  # the first error is the one to report
            self._monitor.close()
