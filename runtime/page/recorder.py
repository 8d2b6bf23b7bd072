"""Writer of a job's history: a thread of the monitor.

Files are in `StoreFolder.history`. The monitor hands over references, once a second, and never waits. What goes
wrong here is said once; the job goes on, and the history as soon as it can. Nothing is synced: after a power cut the last
seconds may be missing.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from monitor.coordination.options import OptionsRecord
from monitor.coordination.records import KeptDecision, KeptEvent
from monitor.coordination.supervision import TimelineEvent
from monitor.history.archive import FACTS, NOW, Archive, spanned
from monitor.history.facts import Counters, Decided, Fact, Happening, OfWorker, Plan, encode
from monitor.history.files import COUNTERS, FACT, FRAMES, FULL, OPTIONS, RING_BYTES, Ring, framed, segments
from monitor.history.frames import Frame, pack
from monitor.history.options_at import pack_options
from monitor.web.cut_times import CutTimes
from monitor.web.recent_events import ROUTINE
from monitor.web.recording import frame_of
from monitor.web.view import Observation, View
from recovery.layout import Layout
from runtime.page.protocol import DifferenceWriter
from runtime.page.protocol import encode as encode_message

THREAD = "history"
"""Name of the recorder's thread, for tools that show processor time by thread."""

_MINUTE = 60_000
_FULL_MINUTES = 10
_AGAIN_SECONDS = 10.0
"""Pause after a failed write, in seconds."""
_MOST_WAITING = 120
"""Most waiting seconds and events; later ones are left out."""


@dataclass(frozen=True, slots=True)
class Second:
    """State of the job at the end of a second.

    `options` is None where they are those of the second before.
    """

    observation: Observation
    options: OptionsRecord | None


class HistoryRecorder:
    """Recorder of the job of `layout` in the `folder` of its history.

    Args:
        versions: of what runs the job, by name.
        say: gets what the user should know.
        bound: most bytes of packed minutes.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        layout: Layout,
        versions: dict[str, str],
        say: Callable[[str], None],
        bound: int = RING_BYTES,
    ) -> None:
        self._folder = Path(folder)
        self._layout, self._versions = layout, versions
        self._say = say
        self._bound = bound
        self._waiting: deque[Second | TimelineEvent | Decided] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._idle = False
        self._noted: set[str] = set()
        self._pause_until = 0.0
        self._begun = False
        self._plan = -1
        self._ring = Ring({}, bound)
        self._minute = -1
        self._frames: list[Frame] = []
        self._options: list[tuple[int, OptionsRecord]] = []
        self._last: tuple[int, OptionsRecord] | None = None
        self._view = View(layout)
        self._full: DifferenceWriter | None = None
        self._counters = Counters()
        self._events: Counter[str] = Counter()
        self._cuts = CutTimes()
        self._facts: list[Fact] = []
        """Facts still to be written."""
        self._thread = threading.Thread(target=self._run, name="falkirk-history", daemon=True)
        self._thread.start()

    def second(self, observation: Observation, options: OptionsRecord | None) -> None:
        """Record a second."""
        self._hand_over(Second(observation, options))

    def happened(self, event: TimelineEvent) -> None:
        """Record an event."""
        self._hand_over(event)

    def decided(self, at: float, decision: KeptDecision) -> None:
        """Record a decision."""
        self._hand_over(Decided(at, -1, decision))

    def wait(self) -> None:
        """Wait for all records to be written."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle and not self._waiting)

    def close(self, seconds: float = 2.0) -> None:
        """Write the rest, for at most so many seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _hand_over(self, item: Second | TimelineEvent | Decided) -> None:
        with self._changed:
            if isinstance(item, Second) and len(self._waiting) >= _MOST_WAITING:
                return
            self._waiting.append(item)
            self._changed.notify_all()

    # ------------------------------------------------------------------------------------------ its thread

    def _run(self) -> None:
        with suppress(OSError):
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(THREAD)
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._idle = True
                    self._changed.notify_all()
                    self._changed.wait()
                self._idle = False
                items = list(self._waiting)
                self._waiting.clear()
                closed = self._closed
            for item in items:
                if not self._begun and time.monotonic() >= self._pause_until:
                    self._contained(self._begin)
                if self._begun:
                    self._contained(partial(self._take, item))
            if closed and not items:
                return

    def _contained(self, work: Callable[[], None]) -> None:
        """Call `work` with its errors contained; each kind is noted once."""
        try:
            work()
        except OSError as error:
            self._pause_until = time.monotonic() + _AGAIN_SECONDS
            self._say_once(
                f"the history of the job cannot be written ({error.strerror or error}); the job goes on, and the history when "
                "it can"
            )
        except Exception as error:
            self._say_once(
                f"the history of the job misses something: {type(error).__name__}: {error}. The job goes on. This is a fault "
                "of Falkirk: please report it"
            )

    def _say_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            with suppress(OSError):
                self._say(text)

    def _begin(self) -> None:
        """Take up the history of earlier monitors, killed ones included."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        names = os.listdir(self._folder)
        self._ring = Ring({name: (self._folder / name).stat().st_size for name in segments(names)}, self._bound)
        archive = Archive()
        for name in (FACTS, NOW):
            if name in names:
                archive.take(name, (self._folder / name).read_bytes())
        for text in archive.problems.values():
            self._say_once(f"the history of the job: {text}")
        self._counters = archive.counters
        self._events = Counter(archive.counters.events)
        self._cuts = CutTimes(archive.counters.cuts)
        for plan, frames, options in archive.present():
            self._pack(plan, frames, options)
        last = max(archive.plans.values(), key=lambda plan: plan.number, default=None)
        self._plan = last.number if last is not None else -1
        if last is None or last.layout != self._layout or last.versions != self._versions:
            self._plan += 1
            self._write_fact(Plan(self._plan, time.time(), self._layout, self._versions))
        self._clear_now()
        self._begun = True

    def _take(self, item: Second | TimelineEvent | Decided) -> None:
        match item:
            case Second():
                self._record(item)
            case TimelineEvent():
                self._events[item.kind] += 1
                self._cuts.happened(item)
                if item.kind not in ROUTINE:
                    self._write_fact(Happening(KeptEvent(item.kind, item.at, item.data)))
            case Decided():
                self._write_fact(Decided(item.at, self._plan, item.decision))

    def _record(self, second: Second) -> None:
        seen = second.observation
        self._view.update(seen)
        self._count(seen)
        frame = frame_of(self._view, self._counters.read, self._counters.written)
        if frame.at // _MINUTE != self._minute:
            self._end_minute(frame.at)
        self._frames.append(frame)
        parts = [framed(FRAMES, spanned(self._plan, frame.at, frame.at, pack([frame], 1)))]
        if second.options is not None or not self._options:
            record = second.options or (self._last[1] if self._last is not None else None)
            if record is not None:
                self._last = frame.at, record
                self._options.append(self._last)
                parts.append(framed(OPTIONS, spanned(self._plan, frame.at, frame.at, pack_options([self._last], 1))))
        parts.append(framed(COUNTERS, encode(self._counters)))
        if time.monotonic() < self._pause_until:
            return
        self._append(NOW, b"".join(parts))
        if self._full is not None:
            data = zlib.compress(encode_message(self._full.next(seen)), 1)
            self._append(_full_name(self._minute), framed(FULL, spanned(self._plan, frame.at, frame.at, data)))

    def _count(self, seen: Observation) -> None:
        known = {worker: (samples.read, samples.written) for worker, (_, samples) in seen.samples.items()}
        for worker, (read, _) in seen.read.items():
            known.setdefault(worker, (read, 0))
        before = dict(enumerate(self._counters.workers))
        workers = tuple(
            before.get(w, OfWorker()).after(seen.workers[w].incarnation, *known[w])
            if w in known
            else before.get(w, OfWorker())
            for w in range(max(len(seen.low), len(before)))
        )
        self._counters = Counters(workers, dict(self._events), self._cuts.kept())

    def _end_minute(self, at: int) -> None:
        frames, options = self._frames, self._options
        self._minute, self._frames, self._options = at // _MINUTE, [], []
        self._full = DifferenceWriter()
        try:
            if frames:
                self._pack(self._plan, frames, options)
                self._clear_now()
        finally:
            old = _full_name(self._minute - _FULL_MINUTES)
            for name in os.listdir(self._folder):
                if name.startswith("full-") and name < old:
                    with suppress(FileNotFoundError):
                        os.unlink(self._folder / name)

    def _pack(self, plan: int, frames: list[Frame], options: list[tuple[int, OptionsRecord]]) -> None:
        """Write a packed minute to the ring."""
        data = framed(FRAMES, spanned(plan, frames[0].at, frames[-1].at, pack(frames)))
        if options:
            data += framed(OPTIONS, spanned(plan, options[0][0], options[-1][0], pack_options(options)))
        name, gone = self._ring.add(len(data))
        for old in gone:
            with suppress(FileNotFoundError):
                os.unlink(self._folder / old)
        try:
            self._append(name, data)
        except OSError:
            self._ring.next()
            raise

    def _clear_now(self) -> None:
        """Begin the file of the present minute anew, with the counters."""
        self._append(NOW, framed(COUNTERS, encode(self._counters)), os.O_TRUNC)

    def _write_fact(self, fact: Fact) -> None:
        self._facts.append(fact)
        waiting, self._facts = self._facts, []
        try:
            self._append(FACTS, b"".join(framed(FACT, encode(each)) for each in waiting))
        except OSError:
            self._facts = waiting[-_MOST_WAITING:]
            raise

    def _append(self, name: str, data: bytes, more: int = 0) -> None:
        """Append to a file; `more` are further flags of `os.open`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | more
        descriptor = os.open(self._folder / name, flags, 0o600)
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages behind a job."""
    found = {"python": platform.python_version()}
    for name in ("falkirk", "numpy", "polars", "pyarrow"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _full_name(minute: int) -> str:
    return f"full-{minute:012d}"
