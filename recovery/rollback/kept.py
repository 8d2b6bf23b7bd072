"""Messages that their sender keeps in memory, so that it need not go back when their receiver does.

A worker keeps what it sends to other workers until no failure can take the receiver back before it. After a failure a
living sender sends from here what a receiver lacks; what it does again is sent only to receivers that lack it
(`Suppression`), and kept in any case, for a receiver that fails later.

Memory is limited by a budget. Beyond it the oldest times go, so what is kept covers the times from a bound on
(`coverage`); before it today's rule holds, that a sender goes back with its receiver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from recovery.metadata import Bound, after, nothing
from timely.time import Time

M = TypeVar("M")

Channel: TypeAlias = tuple[int, int]
"""An edge and the worker that receives."""


@dataclass(slots=True, eq=False)
class Kept(Generic[M]):
    """A message with its event's time, its own, and its size in bytes."""

    event: Time
    time: Time
    size: int
    message: M
    gone: bool = False


class KeptMessages(Generic[M]):
    """The messages that one worker has sent and keeps.

    Args:
        depths: of each edge on which messages are kept, the coordinates of their times.
        budget: bytes.

    >>> kept = KeptMessages[str]({7: 1}, budget=5)
    >>> kept.keep((7, 0), (1,), (1,), 3, "a"); kept.keep((7, 0), (2,), (2,), 3, "b")
    >>> kept.coverage((7, 0)), [each.message for each in kept.wanted((7, 0), (0,))]
    ((2,), ['b'])
    """

    def __init__(self, depths: Mapping[int, int], budget: int) -> None:
        self._depths = depths
        self._budget = budget
        self._messages: dict[Channel, list[Kept[M]]] = {}
        self._coverage: dict[Channel, Bound] = {}
        self._oldest: list[tuple[Time, int, Channel, Kept[M]]] = []
        """A heap of all that is kept, and of some that is gone."""
        self._count = 0
        self.size = 0
        """Bytes that are kept; never more than the budget."""

    def keep(self, channel: Channel, event: Time, time: Time, size: int, message: M) -> None:
        """Keep a message, in the order of sending. If it is too old to be covered, it is not kept."""
        if time < self.coverage(channel):
            return
        kept = Kept(event, time, size, message)
        self._messages.setdefault(channel, []).append(kept)
        self._count += 1
        heappush(self._oldest, (time, self._count, channel, kept))
        self.size += size
        while self.size > self._budget:
            oldest, _, at, least = heappop(self._oldest)
            if not least.gone:
                self.forget(at, after(oldest))

    def coverage(self, channel: Channel) -> Bound:
        """The bound from which on everything that was sent is kept."""
        return self._coverage.get(channel) or nothing(self._depths[channel[0]])

    def forget(self, channel: Channel, before: Bound) -> None:
        """Keep nothing before a bound: the receiver will never go below it, or what came before is not known here."""
        if before > self.coverage(channel):
            self._coverage[channel] = before
            self._retain(channel, [each for each in self._messages.get(channel, ()) if each.time >= before])

    def undo(self, edge: int, bound: Bound) -> None:
        """The sender went back to `bound`: what later events sent on an edge is sent anew."""
        for channel, messages in self._messages.items():
            if channel[0] == edge:
                self._retain(channel, [each for each in messages if each.event < bound])

    def wanted(self, channel: Channel, target: Bound) -> Iterator[Kept[M]]:
        """The messages that a receiver lacks which comes back at `target`, in the order of sending."""
        return (each for each in self._messages.get(channel, ()) if each.time >= target)

    def _retain(self, channel: Channel, messages: list[Kept[M]]) -> None:
        stay = set(map(id, messages))
        for each in self._messages.get(channel, ()):
            if id(each) not in stay:
                each.gone = True
                self.size -= each.size
        self._messages[channel] = messages
        if len(self._oldest) > 64 and len(self._oldest) > 2 * sum(map(len, self._messages.values())):
            self._oldest = sorted(each for each in self._oldest if not each[3].gone)


class Suppression:
    """The work done again that receivers have: `[worker][processor]`, the bounds at which they came back last.

    One that stays at ⊤ in a decision still has what it came back with in the one before. So the bounds are part of every
    decision, cumulative: a worker that comes back later was not there.
    """

    def __init__(self, bounds: Sequence[Sequence[Bound]]) -> None:
        self.bounds = [list(each) for each in bounds]

    def decided(self, decision: Sequence[Sequence[Bound | None]]) -> None:
        """A decision is binding."""
        for mine, decided in zip(self.bounds, decision):
            mine[:] = [old if new is None else new for old, new in zip(mine, decided)]

    def has(self, worker: int, processor: int, time: Time) -> bool:
        """True if a processor has all messages at a time: nothing is sent to it there."""
        return time < self.bounds[worker][processor]

    def holds(self, worker: int, processor: int, bound: Bound) -> Bound:
        """The completed bound of a processor, and N̄(p, ⊤), where its frontier says `bound`.

        Its frontier goes back with those that do their work again. What it came back with it has completed all the same.
        """
        return max(bound, self.bounds[worker][processor])
