"""Messages that their sender keeps in memory, so that it need not go back when their receiver does.

A worker keeps what it sends to other workers until no failure can take the receiver back before it. After a failure a
living sender sends from here what a receiver lacks; what it does again is sent only to receivers that lack it
(`Suppression`), and kept in any case, for a receiver that fails later. The share of an exchange that stays on its worker is
kept until it is complete there: nobody in front of an exchange goes back with who drops an epoch behind it.

Memory is limited by a budget. Beyond it the oldest times go, so what is kept covers the times from a bound on
(`coverage`); before it today's rule holds, that a sender goes back with its receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from recovery.metadata import MORE, Bound, after, holds, nothing, prefix, union, within
from timely.time import Time

M = TypeVar("M", bound=tuple[Any, ...])
"""A message: a tuple that begins with its event's time and its own."""

SOONEST, LATEST = 0.02, 0.1
"""Seconds after which messages are weighed again, at least and at most."""

_CAUTION = 4
"""Messages may come this many times as fast as before until they are weighed again, and there is room for them still."""

Channel: TypeAlias = tuple[int, int]
"""An edge and the worker that receives."""


class KeptMessages(Generic[M]):
    """The messages that one worker has sent and keeps.

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
        """The number of messages of a channel, from the front, that are weighed."""
        self._coverage: dict[Channel, Bound] = {}
        self.most = 0
        """Bytes that the weighed messages take at most: what was forgotten since they were counted is still in it."""

    @property
    def size(self) -> int:
        """Bytes that are kept. O(messages)."""
        return sum(size for *_, size in self.sizes())

    def way(self, channel: Channel) -> Callable[[M], None]:
        """The function that keeps a message of a channel. It is to be called in the order of sending."""
        return self._messages.setdefault(channel, []).append

    def keep(self, channel: Channel, message: M) -> None:
        """Keep a message, in the order of sending."""
        self.way(channel)(message)

    def weigh(self) -> None:
        """Weigh what has been kept since the last time, but for what is too old to be covered: that goes.

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
        """Weigh, and the seconds until that is to be done again, if this is `seconds` after it was done last.

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
        """Count, and let the oldest times go until a quarter is free: so that this is not done for each message."""
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
        """The bound from which on everything that was sent is kept."""
        return self._coverage.get(channel) or nothing(self._depths[channel[0]])

    def sizes(self) -> Iterator[tuple[Channel, int, int]]:
        """Of each channel the number of messages that are kept, and their bytes."""
        for channel, messages in self._messages.items():
            yield channel, len(messages), self._size(channel[0], messages) if messages else 0

    def forget(self, channel: Channel, before: Bound) -> None:
        """Keep nothing before a bound: the receiver will never go below it, or what came before is not known here.

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
        """The sender went back to `bound`: what later events sent on an edge is sent anew."""
        for channel in self._messages:
            if channel[0] == edge:
                self._keep_only(channel, lambda message: holds(bound, message[0]))

    def wanted(self, channel: Channel, target: Bound) -> Iterator[M]:
        """The messages that a receiver lacks which comes back at `target`, in the order of sending."""
        messages = self._messages.get(channel, ())
        known = union(target, self.coverage(channel)) if messages else target
        return (message for message in messages if not holds(known, message[1]))

    def _keep_only(self, channel: Channel, stays: Callable[[M], bool]) -> None:
        """Give up all messages of a channel but those that stay."""
        messages = self._messages[channel]
        messages[:] = [message for message in messages if stays(message)]
        self._weighed[channel] = 0  # some of them are counted twice now; that they take no more remains true


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
