"""Group commit: one durable write in flight, later records wait for the next."""

from __future__ import annotations

import math

from monitor.coordination.effects import Persist
from monitor.coordination.records import Record, slot


class GroupCommit:
    """Gathers records into writes, and returns those made durable."""

    def __init__(self) -> None:
        self._last_ticket = 0
        self._under_way: Persist | None = None
        self._waiting: list[Record] = []
        self._due = math.inf

    @property
    def unwritten(self) -> tuple[Record, ...]:
        """Records not known to be durable, in order."""
        return (*(self._under_way.records if self._under_way is not None else ()), *self._waiting)

    def add(self, record: Record, by: float = -math.inf) -> None:
        """Add `record` to the next write, due at `by`, or at once by default.

        One of its slot that waits is dropped: this one says all that it did.
        """
        self._due = min(self._due, by)
        here = slot(record)
        if here is not None:
            self._waiting = [each for each in self._waiting if slot(each) != here]
        self._waiting.append(record)

    def take(self, now: float) -> Persist | None:
        """Next write, if one is due `now` and none is in flight."""
        if self._under_way is not None or now < self._due:
            return None
        self._last_ticket += 1
        self._under_way = Persist(self._last_ticket, tuple(self._waiting))
        self._waiting, self._due = [], math.inf
        return self._under_way

    def stored(self, ticket: int) -> tuple[Record, ...]:
        """Records of write `ticket`, now durable; none if it is not in flight."""
        if self._under_way is None or self._under_way.ticket != ticket:
            return ()
        records, self._under_way = self._under_way.records, None
        return records
