"""A simulated process of the monitor: the production coordinator and its journal."""

from __future__ import annotations

from falkirk.simulate.checks import Checks
from falkirk.simulate.disk import SimulatedDisk
from falkirk.simulate.outside import Violation
from falkirk.simulate.process import SimulatedStore
from monitor.coordination.coordinator import Coordinator, Settings
from monitor.coordination.effects import Effect
from monitor.coordination.events import Event, Stored, Ticked
from monitor.coordination.records import KeptDecision, KeptFinished, KeptWatermarks, Record
from recovery.layout import Layout
from runtime.processes.monitor_journal import MonitorJournal

MONITOR = -1
"""Worker number of the monitor."""


class SimulatedMonitor:
    """One incarnation of the monitor."""

    def __init__(
        self,
        disk: SimulatedDisk,
        store_id: bytes,
        incarnation: int,
        layout: Layout,
        settings: Settings,
        now: float,
        checks: Checks,
    ) -> None:
        self.owner = (MONITOR, incarnation)
        self._checks = checks
        self.changes = 0
        """Number of changes of the coordinator by anything but the clock."""
        self._records: dict[int, tuple[Record, ...]] = {}
        client = SimulatedStore(disk, self.owner, lambda: None)
        self._journal = MonitorJournal(disk, store_id, incarnation, client)
        saved = self._journal.saved
        found: list[Record] = [saved.decision] if isinstance(saved.decision, KeptDecision) else []
        if saved.watermarks is not None:
            found.append(KeptWatermarks(saved.watermarks))
        if saved.finished:
            found.append(KeptFinished())
        checks.durable(tuple(found))
        self.coordinator = Coordinator(layout, saved, settings, now)

    def write(self, ticket: int, records: tuple[Record, ...]) -> None:
        """Begin to write records durably. Raises Violation if another write is under way."""
        if self._records:
            raise Violation(f"the monitor begins write {ticket} before {min(self._records)} is durable")
        self._records[ticket] = records
        self._journal.write(ticket, records)

    def tick(self, now: float) -> list[Effect]:
        """Advance the clock; returns the effects.

        Raises StoreError if something could not be written.
        """
        events: list[Event] = []
        for ticket in self._journal.written():
            self._checks.durable(self._records.pop(ticket))
            events.append(Stored(ticket))
        return self.step(now, *events, Ticked())

    def step(self, now: float, *events: Event) -> list[Effect]:
        """Pass events to the coordinator; returns the effects.

        Raises InvariantBroken if an invariant fails.
        """
        effects = self.coordinator.step(now, *events)
        if effects or events != (Ticked(),):  # time that passes without an effect changes nothing else
            self.changes += 1
            self.coordinator.check()
        return effects
