"""Timeline of a job: events in order of time, with numbers for the journal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from monitor.coordination.records import KeptEvent, Value
from monitor.coordination.supervision import TimelineEvent
from monitor.explain.verdict import Judge
from recovery.incomplete import Gap
from recovery.layout import Layout
from timely.time import FINITE


def gap_event(layout: Layout, gap: Gap) -> dict[str, Value]:
    """Data of a gap's event: the output, and its incomplete epochs.

    `last` is None where they never end; `first` is None where only the end of all input is incomplete.
    """
    first = gap.begin if gap.begin < FINITE else None
    last = gap.end - 1 if gap.end <= FINITE else None
    return {"output": layout.processors[gap.processor].name, "first": first, "last": last}


class Timeline:
    """Timeline of a job, after the events that its journal holds already."""

    def __init__(self, saved: Sequence[KeptEvent]) -> None:
        self.judge = Judge(saved)
        """Verdict on the job, by its timeline so far."""
        self._kept = max((event.n for event in saved), default=0)
        self._last = max((event.at for event in saved), default=-math.inf)

    def event(self, kind: str, data: dict[str, Value], now: float) -> TimelineEvent:
        """Next event, not earlier than the one before it.

        Also where an earlier monitor's clock was ahead.
        """
        self._last = max(now, self._last)
        event = TimelineEvent(kind, self._last, data)
        self.judge.take(event)
        return event

    def kept(self, kind: str, data: dict[str, Value], now: float) -> KeptEvent:
        """Record of an event for the journal, with the next number."""
        self._kept += 1
        return KeptEvent(kind, max(now, self._last), data, self._kept)
