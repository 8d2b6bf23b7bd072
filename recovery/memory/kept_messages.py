"""Sent messages kept in the sender's memory, to spare it a rollback.

A worker keeps what it sends to other workers until no failure can take the receiver back before it. After a failure a
living sender sends from here what a receiver lacks; what it does again is sent only to receivers that lack it
(`Suppression`), and kept in any case, for a receiver that fails later. The share of an exchange that stays on its worker is
kept until it is complete there: no sender goes back only because a receiver behind the exchange drops an epoch.

Memory is limited by a budget. Beyond it the oldest times go, so what is kept covers the times from a bound on
(`coverage`); before it a sender goes back with its receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from recovery.metadata import MORE, Bound, after, holds, nothing, prefix, union, within
from timely.time import Time

M = TypeVar("M", bound=tuple[Any, ...])
"""Message: a tuple of its event's time, its own time, and more."""

SOONEST, LATEST = 0.02, 0.1
"""Shortest and longest seconds between two weighings of messages."""

_CAUTION = 4
"""Growth of the message rate, until the next weighing, with room for it."""

Channel: TypeAlias = tuple[int, int]
"""Edge and receiving worker."""


class KeptMessages(Generic[M]):
    """Messages sent by one worker and kept in memory, within a budget.

    A job sends many messages and seldom fails, so to keep one is to append it to a list (`way`). All else is done for many at
    once: `forget` drops whole times from the front, and `weigh`, to be called now and then, holds what is kept to the budget.

    Args:
        depths: of each edge on which messages are kept, the coordinates of their times.
        budget: bytes.
        size: the bytes of messages, one at least, on an edge to one worker, about.

    >>> def size(edge, messages):
    ...     return sum(len(text) for _, _, text in messages)
    >>> kept = KeptMessages[tuple[Time, Time, str]]({7: 1}, budget=5, size=size)
    >>> kept.keep((7, 0), ((1,), (1,), "abc")); kept.keep((7, 0), ((2,), (2,), "def")); kept.weigh()
    >>> kept.coverage((7, 0)), [each[2] for each in kept.wanted((7, 0), (0,))]
    ((2,), ['def'])
    """

    def __init__(self, depths: Mapping[int, int], budget: int, size: Callable[[int, Sequence[M]], int]) -> None:
        self._depths = depths
        self.budget = budget
        self._size = size
        self._messages: dict[Channel, list[M]] = {}
        self._weighed: dict[Channel, int] = {}
        """Number of weighed messages of a channel, from the front."""
        self._coverage: dict[Channel, Bound] = {}
        self.most = 0
        """Upper limit of the bytes of weighed messages.

        What was forgotten since they were counted is still in it.
        """

    @property
    def size(self) -> int:
        """Bytes of kept messages, in O(messages)."""
        return sum(size for *_, size in self.sizes())

    def way(self, channel: Channel) -> Callable[[M], None]:
        """Function to keep a message of a channel, to be called in order of sending."""
        return self._messages.setdefault(channel, []).append

    def keep(self, channel: Channel, message: M) -> None:
        """Keep a message, in the order of sending."""
        self.way(channel)(message)

    def weigh(self) -> None:
        """Weigh new messages; drop those before the coverage.

        Beyond the budget the oldest times go.
        """
        for channel, messages in self._messages.items():
            weighed = self._weighed.get(channel, 0)
            if weighed < len(messages):
                new = messages[weighed:]
                covered = self._coverage.get(channel)
                if covered is not None and (MORE in covered or min([each[1] for each in new]) < covered):
                    old = {time for time in {message[1] for message in new} if holds(covered, time)}
                    if old:
                        messages[weighed:] = new = [message for message in new if message[1] not in old]
                self.most += self._size(channel[0], new) if new else 0
                self._weighed[channel] = len(messages)
        if self.most > self.budget:
            self._make_room()

    def weigh_within(self, seconds: float) -> float:
        """Weigh, and return the seconds until the next weighing.

        The last one was `seconds` ago.

        What is forgotten before is never weighed, so it is done seldom while there is much room.

        >>> kept = KeptMessages[tuple[Time, Time, int]]({7: 1}, budget=1_000, size=lambda edge, m: sum(s for *_, s in m))
        >>> def sent(size):
        ...     kept.keep((7, 0), ((1,), (1,), size))
        ...     return kept.weigh_within(0.02)
        >>> sent(10), sent(90), sent(800)
        (0.1, 0.05, 0.02)
        """
        before = self.most
        self.weigh()
        room, come = self.budget - self.most, self.most - before
        if come <= 0:
            return SOONEST if come else LATEST  # less: there was no room
        return min(max(room / come * min(seconds, LATEST) / _CAUTION, SOONEST), LATEST)

    def _make_room(self) -> None:
        """Drop the oldest times until a quarter of the budget is free."""
        size = self._size
        found = [(message[1], size(c[0], [message])) for c, messages in self._messages.items() for message in messages]
        self.most = sum(weight for _, weight in found)
        room = self.budget * 3 // 4
        if self.most <= room:
            return
        last: Time = ()
        for time, weight in sorted(found):
            if self.most <= room and time != last:
                break
            self.most, last = self.most - weight, time
        for channel, messages in self._messages.items():
            old = [message[1] for message in messages if message[1] <= last]
            if old:
                self.forget(channel, after(max(old)))
                self._keep_only(channel, lambda message: message[1] > last)
            self._weighed[channel] = len(messages)

    def coverage(self, channel: Channel) -> Bound:
        """Lowest bound with all sent messages from there on kept."""
        return self._coverage.get(channel) or nothing(self._depths[channel[0]])

    def sizes(self) -> Iterator[tuple[Channel, int, int]]:
        """Number and bytes of the kept messages, by channel."""
        for channel, messages in self._messages.items():
            yield channel, len(messages), self._size(channel[0], messages) if messages else 0

    def forget(self, channel: Channel, before: Bound) -> None:
        """Drop messages before a bound.

        The receiver will never go below it, or what came before is not known here.

        Messages are in the order of sending, nearly that of times. What is sent before the bound but behind something that is
        still kept goes with that; nobody is given it.
        """
        covered = self._coverage.get(channel)
        if before == covered:
            return
        if covered is not None and not within(covered, before):
            if within(before, covered):
                return
            before = union(before, covered)
        self._coverage[channel] = before
        messages = self._messages.get(channel)
        if messages:
            gone, first, more = 0, prefix(before), MORE in before
            for message in messages:
                time = message[1]
                if time >= first and not (more and holds(before, time)):
                    break
                gone += 1
            del messages[:gone]
            self._weighed[channel] = max(self._weighed.get(channel, 0) - gone, 0)

    def undo(self, edge: int, bound: Bound) -> None:
        """Drop messages sent after `bound` on an edge: its sender went back and resends."""
        for channel in self._messages:
            if channel[0] == edge:
                self._keep_only(channel, lambda message: holds(bound, message[0]))

    def wanted(self, channel: Channel, target: Bound) -> Iterator[M]:
        """Messages missing at a receiver restored to `target`, in order of sending."""
        messages = self._messages.get(channel, ())
        known = union(target, self.coverage(channel)) if messages else target
        return (message for message in messages if not holds(known, message[1]))

    def _keep_only(self, channel: Channel, stays: Callable[[M], bool]) -> None:
        """Drop all messages of a channel except those that stay."""
        messages = self._messages[channel]
        messages[:] = [message for message in messages if stays(message)]
        self._weighed[channel] = 0  # some of them are counted twice now; that they take no more remains true


class Suppression:
    """Filter for resends: `[worker][processor]` holds times before its restored bound.

    One that stays at ⊤ in a decision still has what it came back with in the one before. So the bounds are part of every
    decision, cumulative: a worker that comes back later was not there.
    """

    def __init__(self, bounds: Sequence[Sequence[Bound]]) -> None:
        self.bounds = [list(each) for each in bounds]

    def decided(self, decision: Sequence[Sequence[Bound | None]]) -> None:
        """Apply a binding decision."""
        for mine, decided in zip(self.bounds, decision):
            mine[:] = [old if new is None else new for old, new in zip(mine, decided)]

    def has(self, worker: int, processor: int, time: Time) -> bool:
        """True if a processor has all messages at a time, so that none is resent."""
        return holds(self.bounds[worker][processor], time)
