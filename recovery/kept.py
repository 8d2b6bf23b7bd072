"""Messages that their sender keeps in memory, so that it need not go back when their receiver does.

A worker keeps what it sends to other workers until no failure can take the receiver back before it. After a failure a
living sender sends from here what a receiver lacks; what it does again is sent only to receivers that lack it
(`Suppression`), and kept in any case, for a receiver that fails later. The share of an exchange that stays on its worker is
kept until it is complete there: nobody in front of an exchange goes back with who drops an epoch behind it.

Memory is limited by a budget. Beyond it the oldest times go, so what is kept covers the times from a bound on
(`coverage`); before it today's rule holds, that a sender goes back with its receiver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from recovery.metadata import Bound, after, holds, nothing, union, within
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
        self.budget = budget
        self._messages: dict[Channel, list[Kept[M]]] = {}
        self._coverage: dict[Channel, Bound] = {}
        self.size = 0
        """Bytes that are kept; never more than the budget."""

    def keep(self, channel: Channel, event: Time, time: Time, size: int, message: M) -> None:
        """Keep a message, in the order of sending. If it is too old to be covered, it is not kept."""
        coverage = self._coverage.get(channel)
        if coverage is not None and holds(coverage, time):
            return
        self._messages.setdefault(channel, []).append(Kept(event, time, size, message))
        self.size += size
        if self.size > self.budget:
            self._make_room()

    def _make_room(self) -> None:
        """Let the oldest times go, until some room is left: so that this is not done for each message."""
        excess = self.size - self.budget * 3 // 4
        for time, size in sorted((each.time, each.size) for messages in self._messages.values() for each in messages):
            if excess <= 0:
                break
            excess, last = excess - size, time
        for channel, messages in self._messages.items():
            old = [each.time for each in messages if each.time <= last]
            if old:
                self.forget(channel, after(max(old)))

    def coverage(self, channel: Channel) -> Bound:
        """The bound from which on everything that was sent is kept."""
        return self._coverage.get(channel) or nothing(self._depths[channel[0]])

    def sizes(self) -> Iterator[tuple[Channel, int, int]]:
        """Of each channel the number of messages that are kept, and their bytes."""
        for channel, messages in self._messages.items():
            yield channel, len(messages), sum(each.size for each in messages)

    def forget(self, channel: Channel, before: Bound) -> None:
        """Keep nothing before a bound: the receiver will never go below it, or what came before is not known here."""
        covered = self.coverage(channel)
        if not within(before, covered):
            self._coverage[channel] = before = union(before, covered)
            self._drop(channel, [each for each in self._messages.get(channel, ()) if holds(before, each.time)])

    def undo(self, edge: int, bound: Bound) -> None:
        """The sender went back to `bound`: what later events sent on an edge is sent anew."""
        for channel, messages in self._messages.items():
            if channel[0] == edge:
                self._drop(channel, [each for each in messages if not holds(bound, each.event)])

    def wanted(self, channel: Channel, target: Bound) -> Iterator[Kept[M]]:
        """The messages that a receiver lacks which comes back at `target`, in the order of sending."""
        return (each for each in self._messages.get(channel, ()) if not holds(target, each.time))

    def _drop(self, channel: Channel, gone: list[Kept[M]]) -> None:
        """Give up some messages of a channel, which are in the order in which they are kept."""
        messages = self._messages.get(channel, [])
        self.size -= sum(each.size for each in gone)
        if gone == messages[: len(gone)]:  # the oldest, as nearly always
            del messages[: len(gone)]
        else:
            dropped = set(map(id, gone))
            messages[:] = [each for each in messages if id(each) not in dropped]


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
        return holds(self.bounds[worker][processor], time)
