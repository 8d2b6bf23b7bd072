"""Archive: the moments of a job, from the files of its history. Pure.

Names of files: `facts`, `now` (seconds of the present minute), `past-N` (packed minutes), `full-N` (a minute in full).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from monitor.coordination.options import Options, OptionsRecord
from monitor.coordination.records import KeptEvent
from monitor.explain.verdict import Judge, Verdict
from monitor.history.facts import COUNTERS_OF, FACT_OF, Counters, Decided, Happening, Plan
from monitor.history.files import COUNTERS, FACT, FRAMES, FULL, OPTIONS, records
from monitor.history.frames import MOST_FRAMES, Frame, unpack
from monitor.history.options_at import unpack_options
from recovery.layout import Layout
from timely.errors import FalkirkError, ProtocolError

FACTS, NOW = "facts", "now"

NEAR = 5000
"""Longest distance of two frames of a running job, in milliseconds.

After that its processes were gone.
"""

_T = TypeVar("_T")
_SPAN = struct.Struct("<Iqq")


def spanned(plan: int, first: int, last: int, data: bytes) -> bytes:
    """Bytes of a pack, with its plan's number and its time.

    First and last moment are in milliseconds since 1970.
    """
    return _SPAN.pack(plan, first, last) + data


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Pack of frames or options, with its time.

    First and last moment are in milliseconds since 1970.
    """

    first: int
    last: int
    plan: int
    data: bytes = field(compare=False)


@dataclass(frozen=True, slots=True)
class Moment:
    """Moment of the past.

    Attributes:
        at: milliseconds since 1970.
        plan: of the job then.
        frame: of that second.
        options: of that second; None if they are not known.
        options_at: time of these options, in milliseconds since 1970; None without them.
        events: before it, in order.
    """

    at: int
    plan: Plan
    frame: Frame
    options: Options | None
    options_at: int | None
    events: tuple[KeptEvent, ...]

    @property
    def age(self) -> int:
        """Milliseconds from the frame to the moment."""
        return self.at - self.frame.at

    @property
    def running(self) -> bool:
        """True if the processes of the job existed then."""
        return self.age < NEAR

    @property
    def layout(self) -> Layout:
        """Plan of the job then."""
        return self.plan.layout

    def verdict(self) -> Verdict:
        """Verdict on the job then."""
        return Judge(self.events).verdict(self.running, self.at / 1000)


class Gone(FalkirkError):
    """Moment outside the history."""


class Archive:
    """Moments, events and decisions of a job, of all files that it was given.

    Attributes:
        plans: by number.
        problems: sentences about what cannot be read.
    """

    def __init__(self) -> None:
        self.plans: dict[int, Plan] = {}
        self.events: list[KeptEvent] = []
        self.decisions: list[Decided] = []
        self.counters = Counters()
        self.problems: dict[str, str] = {}
        self._frames: dict[str, list[Span]] = {}
        self._options: dict[str, list[Span]] = {}
        self._full: dict[str, list[Span]] = {}

    def take(self, name: str, data: bytes) -> None:
        """Take the content of a file, in place of what it had before."""
        found, lost = records(data)
        self.forget(name)
        frames: list[Span] = []
        options: list[Span] = []
        full: list[Span] = []
        facts = []
        for record in found:
            try:
                if record.kind == COUNTERS:
                    self.counters = COUNTERS_OF.decode(record.data)
                elif record.kind == FACT:
                    facts.append(FACT_OF.decode(record.data))
                elif record.kind in (FRAMES, OPTIONS, FULL):
                    plan, first, last = _SPAN.unpack_from(record.data)
                    into = {FRAMES: frames, OPTIONS: options, FULL: full}[record.kind]
                    into.append(Span(first, last, plan, bytes(record.data[_SPAN.size :])))
            except (ProtocolError, struct.error):
                lost += len(record.data)
        if facts:
            self._take_facts(facts)
        for known, spans in ((self._frames, frames), (self._options, options), (self._full, full)):
            if spans:
                known[name] = spans
        if lost:
            self.problems[name] = f"{lost:,} bytes of {name} are damaged or not whole, and are left out"

    def forget(self, name: str) -> None:
        """Forget a file, now deleted."""
        for known in (self._frames, self._options, self._full):
            known.pop(name, None)
        self.problems.pop(name, None)

    def _take_facts(self, facts: Iterable[Plan | Happening | Decided]) -> None:
        self.plans, self.events, self.decisions = {}, [], []
        for fact in facts:
            match fact:
                case Plan():
                    self.plans[fact.number] = fact
                case Happening(event):
                    self.events.append(event)
                case Decided():
                    self.decisions.append(fact)
        self.events.sort(key=lambda event: event.at)

    # ------------------------------------------------------------------------------------------ moments

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last moment with a frame, in milliseconds; None if there is none."""
        spans = self._all(self._frames)
        return (spans[0].first, max(span.last for span in spans)) if spans else None

    def frames(self, since: int, until: int, most: int = 1000) -> list[Frame]:
        """Frames of a period, thinned evenly to about `most` of them."""
        spans = [span for span in self._all(self._frames) if span.last >= since and span.first <= until]
        every = max(1, -(-(min(until, spans[-1].last) - max(since, spans[0].first)) // (1000 * most))) if spans else 1
        found: list[Frame] = []
        for span in spans:
            if every > 60 and found and span.first < found[-1].at + every * 1000:
                continue
            for frame in self._unpacked(span, unpack):
                late = not found or frame.at >= found[-1].at + (every * 1000 if every > 1 else 1)
                if late and since <= frame.at <= until:
                    found.append(frame)
        return found

    def at(self, moment: int) -> Moment:
        """Moment of the last frame not later than `moment`, in milliseconds. Raises Gone."""
        spans = self._all(self._frames)
        if not spans:
            raise Gone("nothing of this job is recorded yet")
        place = bisect_right(spans, moment, key=lambda span: span.first)
        if not place:
            raise Gone("that moment is gone: the history of the job begins later")
        for span in reversed(spans[max(0, place - 3) : place]):
            frames = [frame for frame in self._unpacked(span, unpack) if frame.at <= moment]
            if not frames:
                continue
            plan = self.plans.get(span.plan)
            if plan is None:
                raise Gone("the plan of the job at that moment is not in its history: it is damaged")
            options, since = self._options_at(plan, moment)
            return Moment(moment, plan, frames[-1], options, since, self.events_before(moment))
        raise Gone("that moment cannot be read: its minutes in the history are damaged")

    def rises(self, since: int, until: int) -> list[int]:
        """Times of rises of the job's low-watermark, in milliseconds."""
        found, before = [], None
        for frame in self.frames(since, until, most=1 << 30):
            low = frame.number("low")
            if low is not None and before is not None and (before < low or low < 0 <= before):
                found.append(frame.at)
            before = low
        return found

    def last_within(self, name: str, epoch: int) -> tuple[Frame, Frame | None] | None:
        """Last frame with a number of the job at most `epoch`, and the next.

        None if there is none. The number `name` is an epoch that rises: `open`, `low` or `newest`. After a rollback it may
        rise twice; then this is one of both times.
        """
        spans = self._all(self._frames)

        def beyond(frame: Frame) -> bool:
            number = frame.number(name)
            return number is not None and not 0 <= number <= epoch

        def ends_beyond(span: Span) -> bool:
            frames = self._unpacked(span, unpack)
            return bool(frames) and beyond(frames[-1])

        place = bisect_left(spans, True, key=ends_beyond)
        near = [frame for span in spans[max(0, place - 1) : place + 2] for frame in self._unpacked(span, unpack)]
        within = [at for at, frame in enumerate(near) if not beyond(frame)]
        if not within:
            return None
        return near[within[-1]], near[within[-1] + 1] if within[-1] + 1 < len(near) else None

    def present(self) -> list[tuple[int, list[Frame], list[tuple[int, OptionsRecord]]]]:
        """Unpacked seconds, with their options, by plan."""
        found = []
        frames, options = self._frames.get(NOW, ()), self._options.get(NOW, ())
        for plan in sorted({span.plan for span in frames}):
            of = [frame for span in frames if span.plan == plan for frame in self._unpacked(span, unpack)]
            known = [each for span in options if span.plan == plan for each in self._unpacked(span, unpack_options)]
            for at in range(0, len(of), MOST_FRAMES):
                part = of[at : at + MOST_FRAMES]
                found.append((plan, part, [each for each in known if part[0].at <= each[0] <= part[-1].at]))
        return found

    def events_before(self, moment: int) -> tuple[KeptEvent, ...]:
        """Events until a moment, in milliseconds."""
        return tuple(self.events[: bisect_right(self.events, moment / 1000, key=lambda event: event.at)])

    def full_until(self, moment: int) -> list[tuple[int, bytes]]:
        """Full observations until `moment`, from the minute before its own on.

        Each minute begins with a whole one, later ones are differences. Empty if they are deleted already.
        """
        minutes = sorted(self._full.values(), key=lambda kept: kept[0].first)
        place = bisect_right(minutes, moment, key=lambda kept: kept[0].first)
        kept = [span for minute in minutes[max(0, place - 2) : place] for span in minute if span.first <= moment]
        if not kept or moment > kept[-1].first + NEAR:
            return []
        return [(span.first, span.data) for span in kept if span.plan == kept[-1].plan]

    def _options_at(self, plan: Plan, moment: int) -> tuple[Options | None, int | None]:
        spans = self._all(self._options)
        place = bisect_right(spans, moment, key=lambda span: span.first)
        for span in reversed(spans[max(0, place - 3) : place]):
            if span.plan != plan.number:
                continue
            known = [each for each in self._unpacked(span, unpack_options) if each[0] <= moment]
            if known:
                at, record = known[-1]
                options = self._options_of(plan, record)
                return options, at if options is not None else None
        return None, None

    def _options_of(self, plan: Plan, record: OptionsRecord) -> Options | None:
        try:
            return Options.of_record(plan.layout, record)
        except FalkirkError as error:
            self.problems["options"] = f"options of a moment cannot be read: {error}"
            return None

    def _unpacked(self, span: Span, read: Callable[[bytes], list[_T]]) -> list[_T]:
        try:
            return read(span.data)
        except ProtocolError as error:
            self.problems["pack"] = f"a minute of the history cannot be read: {error}"
            return []

    def _all(self, known: dict[str, list[Span]]) -> list[Span]:
        """Spans of all files in order.

        Seconds of `now` that are packed already are left out.
        """
        packed = sorted(span for name, spans in known.items() if name != NOW for span in spans)
        last = packed[-1].last if packed else -1
        return packed + [span for span in known.get(NOW, ()) if span.first > last]
