"""Messages between a monitor and its page process, over a unix socket.

MessagePack, each behind its length. An observation goes as its differences from the one before, so that cost follows
change.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from monitor.coordination.supervision import TimelineEvent
from monitor.explain.verdict import UNJUDGED, Verdict
from monitor.web.questions import Question
from monitor.web.view import Observation, WorkerView
from recovery.layout import Layout
from recovery.metadata import Bound
from recovery.protocol import Observed
from timely.data.codec.typed import Typed


class Serve(msgspec.Struct, tag=True, frozen=True):
    """To the page, first: title, access token, layout, folder of the history."""

    title: str
    token: str
    layout: Layout
    history: str = ""


class Passed(msgspec.Struct, tag=True, frozen=True):
    """To the page: events for the timeline."""

    events: tuple[TimelineEvent, ...]


class Seen(msgspec.Struct, tag=True, frozen=True):
    """To the page: changes of the `Observation`.

    `low` and `told` have the workers that differ from the last one.
    """

    at: float
    phase: str
    generation: int
    completed: tuple[tuple[int, ...] | None, ...]
    workers: tuple[tuple[str, int, int], ...]
    low: dict[int, tuple[Bound, ...]]
    told: dict[int, tuple[float, Observed]]
    verdict: Verdict = UNJUDGED
    live: bool = True
    read: dict[int, tuple[int, int | None]] = {}


class PageAnswer(msgspec.Struct, tag=True, frozen=True):
    """To the page: answer to a question, or an error with an HTTP status."""

    number: int
    answer: bytes = b""
    error: str = ""
    status: int = 200


class Looking(msgspec.Struct, tag=True, frozen=True):
    """From the page: number of viewers, and operators they observe closely."""

    viewers: int
    closely: tuple[int, ...]


class PageQuestion(msgspec.Struct, tag=True, frozen=True):
    """From the page: a question."""

    number: int
    question: Question


ToPage: TypeAlias = Serve | Passed | Seen | PageAnswer
FromPage: TypeAlias = Looking | PageQuestion

TO_PAGE: Typed[ToPage] = Typed("what the monitor tells its page", ToPage)
FROM_PAGE: Typed[FromPage] = Typed("what a page tells its monitor", FromPage)
encode = msgspec.msgpack.Encoder().encode


class DifferenceWriter:
    """Encoder of observations as differences from the last one sent."""

    def __init__(self) -> None:
        self._low: tuple[tuple[Bound, ...], ...] = ()
        self._told: dict[int, tuple[float, Observed]] = {}

    def next(self, observation: Observation) -> Seen:
        """Message with the changes since the last observation."""
        before, self._low = self._low, observation.low
        told, self._told = self._told, dict(observation.told)
        return Seen(
            observation.at,
            observation.phase,
            observation.generation,
            observation.completed,
            tuple((status.presence, status.incarnation, status.failures) for status in observation.workers),
            {w: low for w, low in enumerate(observation.low) if w >= len(before) or low is not before[w]},
            {w: said for w, said in observation.told.items() if said is not told.get(w)},
            observation.verdict,
            observation.live,
            dict(observation.read),
        )


class DifferenceReader:
    """Decoder for `DifferenceWriter`.

    What did not differ stays the same object.
    """

    def __init__(self) -> None:
        self._low: dict[int, tuple[Bound, ...]] = {}
        self._told: dict[int, tuple[float, Observed]] = {}

    def next(self, seen: Seen) -> Observation:
        """Observation restored from its changes."""
        self._low |= seen.low
        self._told |= seen.told
        return Observation(
            seen.at,
            seen.phase,
            seen.generation,
            tuple(self._low[w] for w in range(len(self._low))),
            seen.completed,
            tuple(WorkerView(*status) for status in seen.workers),
            dict(self._told),
            seen.verdict,
            seen.live,
            seen.read,
        )
