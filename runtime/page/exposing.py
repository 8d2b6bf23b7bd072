"""Exposure of a running job, within a share of the monitor's time.

Part of the monitor, which alone has the options of all processors. A second in which no option changed costs a sum over
tables. Otherwise workers take turns: as many are solved as the share allows, the one solved longest ago first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from statistics import median

from monitor.coordination.coordinator import Coordinator
from monitor.coordination.records import KeptEvent
from monitor.coordination.supervision import TimelineEvent
from monitor.coordination.workers import JobPhase
from monitor.explain.exposure import MONITOR, Danger, Fate, Reduced, danger, fate
from monitor.explain.measured import Pace
from recovery.protocol import Observed

SHARE = 0.01
"""Most of the monitor's time, over many seconds."""
_MOST_AT_ONCE = 0.04
"""Limit of one look in seconds; no further worker is solved after it."""
_REMEMBERED = 8
"""Number of newest rollbacks with counted times."""


class RestoreTimes:
    """Measured times from a failure until all run again: of workers, and of monitors."""

    def __init__(self, events: Iterable[KeptEvent | TimelineEvent] = ()) -> None:
        self._workers: dict[bool, list[float]] = {True: [], False: []}
        """Seconds, by True for take-overs by mates of all failed workers."""
        self._monitors: list[float] = []
        self._replaced: float | None = None
        for event in events:
            self.take(event)

    def take(self, event: KeptEvent | TimelineEvent) -> None:
        """Apply the next event of the timeline."""
        if event.kind == "restored" and "rollback" in event.data:
            rollback = event.data["rollback"]
            mates = {each[0] for each in rollback.get("mates", ())}
            taken = bool(mates) and mates >= set(rollback["failed"])
            self._workers[taken] = [*self._workers[taken][1 - _REMEMBERED :], sum(rollback["phases"].values())]
        if event.kind == "monitor":
            self._replaced = event.at
        elif event.kind in ("resumed", "restored") and self._replaced is not None:
            self._monitors = [*self._monitors[1 - _REMEMBERED :], event.at - self._replaced]
            self._replaced = None

    @property
    def of_takeover(self) -> float | None:
        """Median of the newest take-overs by mates, in seconds; None before one."""
        return median(self._workers[True]) if self._workers[True] else None

    @property
    def of_other(self) -> float | None:
        """Median of the newest restarts from the store, in seconds; None before one."""
        return median(self._workers[False]) if self._workers[False] else None

    def of_worker(self, mate: bool) -> float | None:
        """Median for a worker with a following mate, or without one.

        While that was not measured, the median of the other kind.
        """
        found = (self.of_takeover, self.of_other) if mate else (self.of_other, self.of_takeover)
        return found[0] if found[0] is not None else found[1]

    @property
    def of_monitor(self) -> float | None:
        """Median from the start of a monitor that takes another's place until it leads."""
        return median(self._monitors) if self._monitors else None


class Exposing:
    """Exposure of the job of `coordinator`.

    Args:
        coordinator: of the job.
        events: of its timeline so far.
        clock: gives seconds of processor time.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        events: Iterable[KeptEvent] = (),
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self.times = RestoreTimes(events)
        self._reduced: Reduced | None = None
        self._fates: dict[int, tuple[int, Fate]] = {}
        """Fate of each worker, with the version of the options behind it."""
        self._generation = -1
        self._allowed = 0.0
        """Seconds of processor time left to spend; below 0: overspent."""

    def look(
        self,
        samples: Mapping[int, tuple[float, Observed]],
        seconds: float,
        paces: Mapping[int, Pace],
        followed: Collection[int] = (),
    ) -> tuple[Danger, ...]:
        """Cost of each death now; () while the job does not run.

        `samples`: the last observation of each worker; `seconds`: since the last look; `paces`: of workers since they were
        observed; `followed`: workers whose mates follow them.
        """
        leads = self._coordinator
        if leads.phase is not JobPhase.RUNNING:
            return ()
        if leads.generation != self._generation:
            self._generation = leads.generation
            self._fates.clear()
        current = {w: sample for w, (_, sample) in samples.items() if sample.generation == leads.generation}
        began = self._clock()
        self._allowed = min(self._allowed + seconds * SHARE, _MOST_AT_ONCE)
        if len(current) == leads.layout.workers and self._allowed > 0:
            self._solve(current, began)
        found = []
        for w in range(leads.layout.workers):
            restore = self.times.of_worker(w in followed)
            known = w in self._fates
            found.append(
                danger(w, self._fates[w][1], current, restore, paces) if known else Danger(w, None, None, restore)
            )
        self._allowed -= self._clock() - began
        return (*found, Danger(MONITOR, 0, 0.0, self.times.of_monitor, 0))

    def _solve(self, current: Mapping[int, Observed], began: float) -> None:
        leads = self._coordinator
        if self._reduced is None:
            self._reduced = Reduced(leads.layout)
        options, decision = leads.options, leads.decision
        held = decision.returned() if decision is not None else ()
        for worker in sorted(range(leads.layout.workers), key=lambda w: self._fates[w][0] if w in self._fates else -1):
            if worker in self._fates and self._fates[worker][0] == options.version:
                break
            self._fates[worker] = options.version, fate(self._reduced, options, [worker], current, held)
            if self._clock() - began >= min(self._allowed, _MOST_AT_ONCE):
                break

    def expected(self, found: Iterable[Danger]) -> dict[int, tuple[Danger, Fate]]:
        """Costs and fates of the death of each worker, as far as known."""
        return {each.who: (each, self._fates[each.who][1]) for each in found if each.who in self._fates}
