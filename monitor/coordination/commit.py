"""Group commit: one durable write is under way at a time, and what comes meanwhile goes into the next together."""

from __future__ import annotations

from collections.abc import Callable

from monitor.coordination.effects import Persist
from monitor.coordination.records import Record, slot

Then = Callable[[], None]


class GroupCommit:
    """Gathers records. What depends on a record is done when the write that it was in has been acknowledged."""

    def __init__(self) -> None:
        self._last_ticket = 0
        self._under_way: tuple[int, list[Then]] | None = None
        self._waiting: list[tuple[Record, Then | None]] = []
        self._urgent = False

    def add(self, record: Record, then: Then | None = None) -> None:
        """Have `record` written as soon as may be. An unwritten one of its slot is dropped, with what depended on it."""
        self.add_some_time(record, then)
        self._urgent = True

    def add_some_time(self, record: Record, then: Then | None = None) -> None:
        """Have `record` written with whatever is written next."""
        here = slot(record)
        if here is not None:
            self._waiting = [each for each in self._waiting if slot(each[0]) != here]
        self._waiting.append((record, then))

    def take(self) -> Persist | None:
        """The next write, if none is under way and there is something to write."""
        if self._under_way is not None or not self._urgent:
            return None
        self._last_ticket += 1
        self._under_way = (self._last_ticket, [then for _, then in self._waiting if then is not None])
        write = Persist(self._last_ticket, tuple(record for record, _ in self._waiting))
        self._waiting, self._urgent = [], False
        return write

    def stored(self, ticket: int) -> list[Then]:
        """The actions that waited for write `ticket`, now durable; none if it is not under way."""
        if self._under_way is None or self._under_way[0] != ticket:
            return []
        then = self._under_way[1]
        self._under_way = None
        return then
