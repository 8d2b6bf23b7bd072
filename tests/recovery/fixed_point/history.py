"""M̄, N̄ and D̄ of a history H(p)@f, as a processor would record them (*Falkirk Wheel*, section 3.4 and Figure 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.recovery.fixed_point.literal import Met, Option
from tests.recovery.fixed_point.times import MaximalTimes
from timely.time import Frontier, Time


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that an event sent: its time is in the receiver's domain."""

    edge: int
    time: Time
    logged: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """A message delivered on an edge, or, without one, a notification; and what it made the processor send."""

    time: Time
    edge: int | None = None
    sent: tuple[Sent, ...] = ()


def option_of(history: Sequence[Event], f: Frontier | None) -> Option:
    """The option of rolling back to f (None: ⊤): the least frontiers with all that events in f delivered and discarded."""
    kept = [event for event in history if f is None or event.time in f]
    notified = [event.time for event in kept if event.edge is None]
    delivered = ((event.edge, event.time) for event in kept if event.edge is not None)
    discarded = ((sent.edge, sent.time) for event in kept for sent in event.sent if not sent.logged)
    depth = len(history[0].time) if f is None or f.depth is None else f.depth
    return Option(f, MaximalTimes.of(notified, depth), _by_edge(delivered), _by_edge(discarded))


def _by_edge(times: Iterable[tuple[int, Time]]) -> dict[int, Met]:
    found: dict[int, list[Time]] = {}
    for edge, time in times:
        found.setdefault(edge, []).append(time)
    return {edge: MaximalTimes.of(each) for edge, each in found.items()}
