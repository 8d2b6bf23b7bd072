"""Checkpoints in the memory of a worker's mate, and when they become durable.

What is not durable yet is in two memories: the worker's own (`Journal.waiting`), so that it can be made durable at any time,
and that of its mate (`Journal.mirror`), which takes the worker's place. A cut counts for W₁ once the mate has it, for W once it
is durable. Without a mate each cut is made durable at once.
"""

from __future__ import annotations

from recovery.agent.effects import Hold, LetGo
from recovery.agent.state import AgentState, WorkerPhase
from recovery.metadata import everything
from recovery.protocol import Durable, Mate
from recovery.store.journal import Journal

HELD = "held"
"""Owner of the segments in a mate's memory."""


class Holding:
    """Cuts of a worker on their way to its mate, and to the store."""

    def __init__(self, own: AgentState) -> None:
        self._own = own
        self.waiting: list[Durable] = []
        """Reports of cuts in memory only."""
        self.gathered: list[Durable] = []
        """Reports waiting for the next segment to be in the mate's memory."""
        self.sealed: list[Durable] = []
        """Reports waiting for the segment now being sent."""
        self.complete = False
        """True if the mate has all earlier checkpoints, too."""
        self._flushed_at = float("-inf")
        self._seconds = min((group.durable for group in own.layout.groups if group.durable is not None), default=None)

    @property
    def pending(self) -> bool:
        """True if a report waits for the mate."""
        return bool(self.gathered or self.sealed)

    def takes(self, message: Durable) -> bool:
        """Take the report of a cut with leave to wait; False for any other."""
        group = self._own.layout.groups[message.group]
        if group.durable is None:
            return False
        self.waiting.append(message)
        if self._own.journal.mirror is not None:
            self.gathered.append(message)
        return True

    def due(self) -> bool:
        """True if waiting cuts are to be made durable now."""
        own = self._own
        if not (self.waiting or own.journal.waiting) or own.phase not in (WorkerPhase.RUNNING, WorkerPhase.DRAINING):
            return False
        if own.cutting:
            return False  # its report, which is to come, tells of all of it
        if own.noted != own.checkpoints.generation:
            return False  # the job waits for that to be noted, and this may be large
        assert self._seconds is not None
        ended = any(each.at == everything(own.layout.groups[each.group].depth) for each in self.waiting)
        return own.journal.mirror is None or ended or own.now - self._flushed_at >= self._seconds

    def flush(self) -> list[Durable]:
        """Move all waiting sections to the next segment; return their reports."""
        self._own.journal.flush()
        self._flushed_at = self._own.now
        waiting, self.waiting = self.waiting, []
        return waiting

    # ------------------------------------------------------------------------------------------ the mate

    def begin(self) -> None:
        """Begin to send to a new mate, first all that is not durable."""
        self.end()
        own = self._own
        if self._seconds is not None:
            own.journal.mirrored(Journal.fresh(HELD, own.journal.store_id, own.incarnation))
            self.gathered += self.waiting

    def end(self) -> None:
        """End the connection to a mate."""
        self._own.journal.mirrored(None)
        if self.complete:
            self._own.report(Mate(self._own.place, False))
        self.complete = False
        self.gathered, self.sealed = [], []

    def write(self) -> list[Durable]:
        """Send the next segment to the mate; return reports without need of one."""
        mirror = self._own.journal.mirror
        if mirror is None or mirror.in_flight is not None:
            return []
        gathered, self.gathered = self.gathered, []
        segment = mirror.seal()
        if segment is None:
            self._all_there()
            return gathered
        self.sealed = gathered
        self._own.effects.append(Hold(*segment))
        return []

    def held(self, name: str) -> list[Durable]:
        """Record a segment as in the mate's memory; returns the reports of it."""
        mirror = self._own.journal.mirror
        if mirror is None or mirror.in_flight != name:
            return []  # of an earlier mate
        self._own.effects += map(LetGo, mirror.stored(name))
        self._all_there()
        sealed, self.sealed = self.sealed, []
        return sealed

    def _all_there(self) -> None:
        if not self.complete:
            self.complete = True
            self._own.report(Mate(self._own.place, True))
