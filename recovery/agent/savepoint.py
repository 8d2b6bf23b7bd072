"""Savepoint on a worker: sources stand still until all before is safe."""

from __future__ import annotations

from recovery.agent.effects import ReadBefore
from recovery.agent.reports import Reports
from recovery.agent.state import AgentState, WorkerPhase
from recovery.metadata import NEVER, at_epoch, within
from recovery.protocol import Begun, ReadUntil, Settled


class WorkerSavepoint:
    """Order to stop reading, and the answers to it; a rollback makes it void."""

    def __init__(self, own: AgentState, reports: Reports) -> None:
        self._own = own
        self._reports = reports
        self._order: ReadUntil | None = None

    def order(self, order: ReadUntil) -> None:
        """Take an order; those of other generations are void."""
        own = self._own
        if order.generation == own.worker.generation and own.phase == WorkerPhase.RUNNING:
            self._order = order
            own.effects.append(ReadBefore(order.epoch))

    def stood(self, epoch: int) -> None:
        """Report the first epoch not begun by any source."""
        if self._holds():
            self._own.report(Begun(self._own.place, self._own.worker.generation, epoch))

    def look(self) -> None:
        """Report once all before the epoch of the order is safe and published."""
        own, order = self._own, self._order
        if order is None or order.epoch is None or order.epoch == NEVER or not self._holds():
            return
        if (
            not own.worker.effects
            and not own.cutting
            and not self._reports.waits_for_store()
            and self._safe(order.epoch)
        ):
            self._order = None
            own.report(Settled(own.place, own.worker.generation, order.epoch))

    def _holds(self) -> bool:
        return self._order is not None and self._order.generation == self._own.worker.generation

    def _safe(self, epoch: int) -> bool:
        own = self._own
        return all(
            within(at_epoch(epoch, info.depth), own.low[own.index][p])
            for p, info in enumerate(own.layout.processors)
            if info.chain
        )
