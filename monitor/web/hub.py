"""Data shared by all open pages: view of the job, drawings, timeline, charts.

All of it lives in the server's thread.

A page that is slow misses nothing but steps in between: each takes the newest view when it has sent the last one, and gets
what has changed since then. So nobody waits for it, and nothing is queued for it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from monitor.coordination.supervision import TimelineEvent
from monitor.explain.exposure import Danger
from monitor.web.cut_times import CutTimes
from monitor.web.fold import FoldGroup, Folding, fold, group_tree
from monitor.web.graph_page import graph_page
from monitor.web.recent_events import ROUTINE, RecentEvents
from monitor.web.spacetime import OpenCuts, RowPlace, row_places
from monitor.web.view import FIELDS, Observation, Row, View, changes
from recovery.layout import Layout

CHART_SECONDS = 1.0
MOST_POINTS = 900
BEAT_SECONDS = 1.0
"""Longest silence towards a page, before it takes the monitor for dead."""

_MOST_DRAWINGS = 24
_MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class Drawn:
    """Folding of the job, and its picture in both directions."""

    folding: Folding
    page: dict[str, Any]
    """Picture from top down."""
    across: dict[str, Any]
    """Picture from left to right."""
    rows: list[RowPlace]
    """Operators and groups of them down the space-time picture."""


class Hub:
    """Shared data of all pages.

    See the module. `publish` and `happened` are called in the thread of the event loop, like everything else here.

    `looked` is called when others look than before.
    """

    def __init__(self, looked: Callable[[], None] = lambda: None) -> None:
        self._looked = looked
        self.layout: Layout | None = None
        self.view: View | None = None
        self.tree: FoldGroup | None = None
        self.plan = ""
        """Fingerprint of the layout, for pages to notice another one."""
        self._keys: frozenset[str] = frozenset()
        self.viewers = 0
        self.streams = 0
        """Open pages, without other viewers."""
        self.closely: dict[object, int] = {}
        """Operators under close observation, by viewer."""
        self.lost = False
        """True while the job's monitor does not answer: what is shown is old."""
        self.events = RecentEvents()
        self.points: deque[dict[str, Any]] = deque(maxlen=MOST_POINTS)
        self.cut_times = CutTimes()
        self.open_cuts = OpenCuts()
        self._changed = asyncio.Event()
        self._drawn: OrderedDict[tuple[frozenset[str], frozenset[str]], asyncio.Task[Drawn]] = OrderedDict()
        self._rows: OrderedDict[tuple[int, tuple[tuple[int, ...], ...], str], list[Row]] = OrderedDict()

    def know(self, layout: Layout) -> None:
        """Set the layout of the job; before that there is nothing to draw.

        Streams of another one end: their drawings are void.
        """
        if layout == self.layout:
            return
        self.layout = layout
        self.view = View(layout)
        self.tree = group_tree(layout)
        self.plan = f"{zlib.crc32(msgspec.msgpack.encode(layout)):08x}"
        self._keys = frozenset(group.key for group in (self.tree, *self.tree.groups()))
        self._drawn.clear()
        self._rows.clear()
        self._wake()

    def publish(self, observation: Observation) -> None:
        """Publish a newer observation."""
        if self.view is None:
            return
        self.view.update(observation)
        due = not self.points or observation.at >= self.points[-1]["at"] + CHART_SECONDS
        if due and (self.streams or not observation.live):
            self.points.append({"at": round(observation.at, 2), **self.view.totals()})
        self._wake()

    def happened(self, events: Iterable[TimelineEvent]) -> None:
        """Add events to the timeline."""
        for event in events:
            self.events.add(event)
            self.cut_times.happened(event)
            self.open_cuts.happened(event)
        self._wake()

    def lose(self, lost: bool) -> None:
        """Note silence of the monitor, or its end."""
        if lost != self.lost:
            self.lost = lost
            self._wake()

    def forget(self) -> None:
        """Forget all events: another job is at the same address."""
        self.layout = self.view = self.tree = None
        self.events, self.cut_times, self.open_cuts = RecentEvents(), CutTimes(), OpenCuts()
        self.points.clear()
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ------------------------------------------------------------------------------------------ drawings

    async def drawn(self, opened: frozenset[str], closed: frozenset[str]) -> Drawn:
        """Picture for a reader's opened and folded groups, drawn in a thread, once."""
        layout, tree = self.layout, self.tree
        assert layout is not None
        assert tree is not None
        key = opened & self._keys, closed & self._keys
        task = self._drawn.get(key)
        if task is None:

            def make() -> Drawn:
                folding = fold(layout, tree, sorted(key[0]), sorted(key[1]))
                down, across = (graph_page(layout, folding, across) for across in (False, True))
                return Drawn(folding, down, across, row_places(layout, folding))

            task = self._drawn[key] = asyncio.create_task(asyncio.to_thread(make))
            while len(self._drawn) > _MOST_DRAWINGS:
                self._drawn.popitem(last=False)
        self._drawn.move_to_end(key)
        return await asyncio.shield(task)

    def rows(self, folding: Folding, bars: str) -> list[Row]:
        """Rows of the newest view, computed once for all pages with the same folding."""
        assert self.view is not None
        key = self.view.version, folding.nodes, bars
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = self.view.rows(folding, bars)
            while len(self._rows) > _MOST_ROWS:
                self._rows.popitem(last=False)
        return found

    # ------------------------------------------------------------------------------------------ streams

    @contextmanager
    def looking(self, *closely: int) -> Any:
        """Count an open page, with some operators under close observation."""
        tokens = {object(): operator for operator in closely}
        self.viewers += 1
        self.closely.update(tokens)
        self._looked()
        try:
            yield
        finally:
            self.viewers -= 1
            for token in tokens:
                self.closely.pop(token, None)
            self._looked()

    @contextmanager
    def streaming(self) -> Any:
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    async def stream(
        self, drawn: Drawn, bars: str, closely: Sequence[int], since: int
    ) -> AsyncIterator[dict[str, Any]]:
        """Stream of changes for one page: everything at first, then differences.

        Something is sent at least once a second.
        """
        rows: list[Row] | None = None
        workers: list[list[Any]] | None = None
        exposure: tuple[Danger, ...] = ()
        version = -1
        lost = False
        first = True
        layout = self.layout
        with self.streaming(), self.looking(*closely):
            while self.layout is layout:
                changed = self._changed
                view = self.view
                message: dict[str, Any] = {}
                if first:
                    message["fields"] = FIELDS
                    first = False
                if view is not None and view.observation is not None and view.version != version:
                    version = view.version
                    seen = view.observation
                    after = self.rows(drawn.folding, bars)
                    message.update(
                        at=round(seen.at, 3),
                        phase=seen.phase,
                        live=seen.live,
                        verdict=seen.verdict.as_json(),
                        generation=seen.generation,
                        totals=view.totals(),
                    )
                    message["rows"] = changes(rows, after)
                    rows = after
                    if seen.exposure != exposure:
                        exposure = seen.exposure
                        message["exposure"] = [each.as_json() for each in exposure]
                    now = view.workers()
                    if now != workers:
                        message["workers"] = workers = now
                events = self.events_after(since)
                if events:
                    since = events[-1]["n"]
                    message["events"] = events
                if lost != self.lost:
                    message["lost"] = lost = self.lost
                yield message
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), BEAT_SECONDS)

    def events_after(self, number: int) -> list[dict[str, Any]]:
        """Timeline events with greater numbers; `routine` for those of every cut."""
        found = self.events.after(number)
        return [
            {"n": n, "kind": event.kind, "at": round(event.at, 3), "routine": event.kind in ROUTINE, **event.data}
            for n, event in found
        ]
