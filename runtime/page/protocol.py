"""Messages between a monitor and whoever looks at its job, over a unix socket.

MessagePack, each behind its length. An observation goes as its differences from the one before, so that cost follows
change.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from monitor.coordination.supervision import MateView, TimelineEvent
from monitor.explain.exposure import Danger
from monitor.explain.verdict import UNJUDGED, Verdict
from monitor.web.questions import Question
from monitor.web.view import Gone, Observation, WorkerView
from recovery.layout import Layout
from recovery.metadata import Bound
from recovery.protocol import Observed
from timely.data.codec.typed import Typed


class Serve(msgspec.Struct, tag=True, frozen=True):
    """To the page, first: layout of the job."""

    layout: Layout


class Passed(msgspec.Struct, tag=True, frozen=True):
    """To the page: events for the timeline."""

    events: tuple[TimelineEvent, ...]


class Seen(msgspec.Struct, tag=True, frozen=True):
    """To the page: changes of the `Observation`.

    `low`, `samples` and `gone` have the workers that differ from the last one.
    """

    at: float
    phase: str
    generation: int
    completed: tuple[tuple[int, ...] | None, ...]
    workers: tuple[tuple[str, int, int], ...]
    low: dict[int, tuple[Bound, ...]]
    samples: dict[int, tuple[float, Observed]]
    verdict: Verdict = UNJUDGED
    live: bool = True
    read: dict[int, tuple[int, int | None]] = {}
    exposure: tuple[Danger, ...] = ()
    gone: dict[int, Gone] = {}
    mates: tuple[MateView, ...] = ()


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
        self._samples: dict[int, tuple[float, Observed]] = {}
        self._gone: dict[int, Gone] = {}

    def next(self, observation: Observation) -> Seen:
        """Message with the changes since the last observation."""
        before, self._low = self._low, observation.low
        samples, self._samples = self._samples, dict(observation.samples)
        known, self._gone = self._gone, dict(observation.gone)
        return Seen(
            observation.at,
            observation.phase,
            observation.generation,
            observation.completed,
            tuple((status.presence, status.incarnation, status.failures) for status in observation.workers),
            {w: low for w, low in enumerate(observation.low) if w >= len(before) or low is not before[w]},
            {w: sample for w, sample in observation.samples.items() if sample is not samples.get(w)},
            observation.verdict,
            observation.live,
            dict(observation.read),
            observation.exposure,
            {w: gone for w, gone in observation.gone.items() if gone is not known.get(w)},
            observation.mates,
        )


class DifferenceReader:
    """Decoder for `DifferenceWriter`.

    What did not differ stays the same object.
    """

    def __init__(self) -> None:
        self._low: dict[int, tuple[Bound, ...]] = {}
        self._samples: dict[int, tuple[float, Observed]] = {}
        self._gone: dict[int, Gone] = {}

    def next(self, seen: Seen) -> Observation:
        """Observation restored from its changes."""
        self._low |= seen.low
        self._samples |= seen.samples
        self._gone |= seen.gone
        return Observation(
            seen.at,
            seen.phase,
            seen.generation,
            tuple(self._low[w] for w in range(len(self._low))),
            seen.completed,
            tuple(WorkerView(*status) for status in seen.workers),
            dict(self._samples),
            seen.verdict,
            seen.live,
            seen.read,
            seen.exposure,
            dict(self._gone),
            seen.mates,
        )
