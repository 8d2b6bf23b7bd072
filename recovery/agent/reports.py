"""Reports of a worker to its monitor, and their journal segments."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from recovery.agent.effects import Delete, Put
from recovery.agent.holding import Holding
from recovery.agent.state import AgentState, WorkerPhase
from recovery.metadata import Xi, at_cut
from recovery.protocol import Completed, Durable, Flushed, Join, Released, Restored, ToMonitor

HEARTBEAT_SECONDS = 0.5
"""Longest time between two progress reports of a worker, in seconds."""

ITERATION_SECONDS = 0.1
"""Time between reports of completed iterations by a worker busy in a loop."""

REPORT_SECONDS = 0.02
"""Shortest time between reports of a quiet worker that has come further."""


class Reports:
    """Reports of a worker; most wait until their segment is durable."""

    def __init__(self, own: AgentState) -> None:
        self._own = own
        self.holding = Holding(own)
        self.gathered: list[ToMonitor] = []
        """Reports waiting for the next segment to be durable."""
        self.sealed: list[ToMonitor] = []
        """Reports waiting for the segment now being written."""
        self._reported_at = float("-inf")
        self._made: dict[int, float] = {}
        """Time of each group's last made cut."""
        self._size = 0
        """Bytes of the segment last written."""
        self.segments = self.bytes = 0
        """Segments written, and their bytes."""
        self.durable = self._put_at = 0.0
        """Seconds until these were durable, all together, and the time of the last put."""
        self._flushed: tuple[Xi, ...] = ()
        """Checkpoints in memory only, until the next segment is durable."""
        self._joins_when_noted = False
        self._kept_here: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Channels within this worker, by group and depth of the receiver.

        The receiver lives as long as the sender, so messages that it has completed need not be kept.
        """
        for edge in own.layout.edges:
            if edge.kept:
                target = own.layout.processors[edge.target]
                self._kept_here.setdefault((target.group, target.depth), []).append((edge.edge, own.index))
        self._busy_seconds = ITERATION_SECONDS if own.completion.within_epochs else HEARTBEAT_SECONDS

    # ------------------------------------------------------------------------------------------ joining

    def join(self) -> None:
        """Announce this worker to a monitor once its newest decision is durable.

        The monitor rests later rounds on it: the next process of this worker must not be found not to know it.
        """
        own = self._own
        if own.checkpoints.generation > own.noted:
            self._joins_when_noted = own.alive  # without memory, what it has to say then is that it joins
            return
        own.report(self.joining(own.alive, own.phase in (WorkerPhase.DRAINING, WorkerPhase.DRAINED)))
        self._reported_at = float("-inf")  # it has not heard how far this worker is; what was complete stays so
        if own.phase == WorkerPhase.RELEASED:
            own.report(Released(own.place))

    def joining(self, alive: bool, paused: bool) -> Join:
        """Announcement of this worker, with the options of its store."""
        own = self._own
        generation, durable = own.checkpoints.generation, own.checkpoints.durable()
        mate = self.holding.complete  # what was said of it before counts only for those that had joined
        # What a living worker without a mate has in memory only is on its way to the store.
        held = own.checkpoints.in_memory() if not alive else own.checkpoints.in_mate() if mate else ()
        return Join(own.place, own.incarnation, generation, alive, own.layout, durable, paused, held, mate)

    # ------------------------------------------------------------------------------------------ completion

    def completed(self, quiet: bool) -> bool:
        """Report completion after a turn, if due; True if it is due and quiet."""
        waited = self._own.now - self._reported_at
        if quiet and (self._own.eager or waited >= REPORT_SECONDS):
            self._report_completed()
            return True
        if waited >= self._busy_seconds:
            self._report_completed(busy=True)  # for long: alive, and perhaps further in a loop
        return False

    def _report_completed(self, busy: bool = False) -> None:
        own = self._own
        upto = own.completion.of_groups(busy)
        if upto != own.completion.reported:
            for (group, depth), channels in self._kept_here.items():
                complete = at_cut(upto[group], depth)
                for channel in channels:
                    own.recorder.shipments.forget(channel, complete)
        if upto != own.completion.reported or own.now - self._reported_at >= HEARTBEAT_SECONDS:
            own.completion.reported = upto
            self._reported_at = own.now
            own.report(Completed(own.place, own.worker.generation, upto))

    # ------------------------------------------------------------------------------------------ the store

    def gather(self, message: ToMonitor) -> None:
        """Report a message once its segment is durable, or in the mate's memory."""
        if isinstance(message, Durable):
            self._made[message.group] = self._own.now
            if self.holding.takes(message):
                return
        self.gathered.append(message)

    def waits_for_store(self) -> bool:
        """True if something is on its way to the store, or waits for it."""
        return bool(self.gathered) or self._own.journal.in_flight is not None or self.holding.pending

    def write(self) -> None:
        """Write the next segment, if there is a reason and none is in flight."""
        journal, checkpoints = self._own.journal, self._own.checkpoints
        self._send(self.holding.write(), held=True)
        if self.holding.due():
            self._flushed += self._own.checkpoints.in_memory()
            self.gathered += self.holding.flush()
        if journal.in_flight is not None or not (journal.restless or self.gathered):
            return
        checkpoints.carry()
        if journal.due:
            checkpoints.published.save()
        segment = journal.seal()
        gathered, self.gathered = self.gathered, []
        if segment is not None:
            if self._flushed:
                flushed, self._flushed = self._flushed, ()
                gathered = [Flushed(self._own.place, self._own.worker.generation, flushed), *gathered]
            self.sealed = gathered
            self._size = sum(memoryview(part).nbytes for part in segment[1])
            self.segments, self.bytes = self.segments + 1, self.bytes + self._size
            self._put_at = self._own.now
            self._own.effects.append(Put(*segment))
        else:  # what they tell of was durable before
            self._send(gathered)

    def stored(self, name: str) -> list[Durable]:
        """Record a durable segment; return its cuts, to release before `send_sealed`."""
        self._own.effects += map(Delete, self._own.journal.stored(name))
        self.durable += self._own.now - self._put_at
        self._own.checkpoints.forget_decisions()
        return [report for report in self.sealed if isinstance(report, Durable)]

    def send_sealed(self) -> None:
        """Send the reports of the durable segment."""
        sealed, self.sealed = self.sealed, []
        self._send(sealed, self._size)

    def held(self, name: str) -> None:
        """Send the reports of a segment in the mate's memory."""
        self._send(self.holding.held(name), held=True)

    def _send(self, reports: Sequence[ToMonitor], size: int = 0, held: bool = False) -> None:
        own = self._own
        for report in reports:
            if isinstance(report, Durable):
                taken = own.now - self._made.get(report.group, own.now)
                report = replace(report, written=taken, size=size, held=held)
            own.report(report)
            if isinstance(report, Restored | Join):
                own.noted = report.generation
                own.run()
        if self._joins_when_noted and not held:
            self._joins_when_noted = False
            self.join()
