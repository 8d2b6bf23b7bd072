"""A simulated process of the monitor: the production coordinator and its journal."""

from __future__ import annotations

from falkirk.simulate.checks import Checks
from falkirk.simulate.disk import SimulatedDisk
from falkirk.simulate.process import SimulatedStore
from monitor.coordination.coordinator import Coordinator
from monitor.coordination.effects import Effect, Settings
from monitor.coordination.records import KeptDecision, KeptWatermarks, Record
from runtime.processes.monitor_journal import MonitorJournal

MONITOR = -1
"""In place of a worker's number."""


class SimulatedMonitor:
    """One incarnation of the monitor."""

    def __init__(
        self, disk: SimulatedDisk, store_id: bytes, incarnation: int, now: float, settings: Settings, checks: Checks
    ) -> None:
        self.owner = (MONITOR, incarnation)
        self._checks = checks
        self._records: dict[int, tuple[Record, ...]] = {}
        client = SimulatedStore(disk, self.owner, lambda: None)
        self._journal = MonitorJournal(disk, store_id, incarnation, client)
        saved = self._journal.saved
        found: list[Record] = [saved.decision] if isinstance(saved.decision, KeptDecision) else []
        if saved.watermarks is not None:
            found.append(KeptWatermarks(saved.watermarks))
        checks.durable(tuple(found))
        self.coordinator = Coordinator(now, saved, settings)

    def write(self, ticket: int, records: tuple[Record, ...]) -> None:
        """Begin to write records durably."""
        self._records[ticket] = records
        self._journal.write(ticket, records)

    def tick(self, now: float) -> None:
        """Time has passed. Raises StoreError if something could not be written."""
        for ticket in self._journal.written():
            self._checks.durable(self._records.pop(ticket))
            self.coordinator.stored(ticket, now)
        self.coordinator.tick(now)

    def take(self) -> list[Effect]:
        """Take the effects to carry out."""
        return self.coordinator.take()
