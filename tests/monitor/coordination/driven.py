"""A coordinator that is driven one event at a time, checked after each, and whose effects are taken when a test wants them."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.coordination.coordinator import Coordinator, Settings
from monitor.coordination.effects import Effect
from monitor.coordination.events import Asked, Began, Event, FromWorker, Stored, Ticked
from monitor.coordination.records import SavedJob
from monitor.coordination.supervision import Lost, ProgramFailed
from recovery.layout import Layout
from recovery.place import Place
from recovery.protocol import ToMonitor


class DrivenCoordinator(Coordinator):
    """See the module."""

    def __init__(self, layout: Layout, saved: SavedJob | None, settings: Settings, now: float = 0.0) -> None:
        super().__init__(layout, saved, settings, now)
        self._given: list[Effect] = []
        self.happens(Began(), now)

    def happens(self, event: Event, now: float) -> None:
        self._given += self.step(now, event)
        self.check()

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        given, self._given = self._given, []
        return given

    def hear(self, message: ToMonitor, now: float, incarnation: int | None = None) -> None:
        self.happens(FromWorker(message, incarnation), now)

    def lost(self, worker: int, incarnation: int, now: float, reason: str) -> None:
        self.happens(Lost(Place(worker), incarnation, reason), now)

    def broke(self, worker: int, text: str, now: float) -> None:
        self.happens(ProgramFailed(Place(worker), text), now)

    def tick(self, now: float) -> None:
        self.happens(Ticked(), now)

    def ask(self, number: int, failed: Iterable[tuple[int, int]], now: float) -> None:
        self.happens(Asked(number, tuple(failed)), now)

    def stored(self, ticket: int, now: float | None = None) -> None:
        self.happens(Stored(ticket), self._now if now is None else now)
