"""The data that all open pages share: the newest view of the job, drawings, the timeline, charts. In the server's thread.

A page that is slow misses nothing but steps in between: each takes the newest view when it has sent the last one, and gets
what has changed since then. So nobody waits for it, and nothing is queued for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from monitor.coordination.supervision import TimelineEvent
from monitor.web.cut_times import CutTimes
from monitor.web.fold import FoldGroup, Folding, fold, group_tree
from monitor.web.graph_page import graph_page
from monitor.web.recent_events import ROUTINE, RecentEvents
from monitor.web.view import FIELDS, Observation, Row, View, changes
from recovery.layout import Layout

CHART_SECONDS = 1.0
MOST_POINTS = 900
BEAT_SECONDS = 1.0
"""A page hears something at least so often: else it takes the monitor for dead."""

_MOST_DRAWINGS = 24
_MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class Drawn:
    """One way of folding the job, and its picture."""

    folding: Folding
    page: dict[str, Any]


class Hub:
    """See the module. `publish` and `happened` are called in the thread of the event loop, like everything else here.

    `looked` is called when others look than before.
    """

    def __init__(self, looked: Callable[[], None] = lambda: None) -> None:
        self._looked = looked
        self.layout: Layout | None = None
        self.view: View | None = None
        self.tree: FoldGroup | None = None
        self._keys: frozenset[str] = frozenset()
        self.viewers = 0
        self._streams = 0
        """Pages that are open; others who look do not stay."""
        self.closely: dict[object, int] = {}
        """The operators that pages look at closely, by page."""
        self.events = RecentEvents()
        self.points: deque[dict[str, Any]] = deque(maxlen=MOST_POINTS)
        self.cut_times = CutTimes()
        self._changed = asyncio.Event()
        self._drawn: OrderedDict[tuple[frozenset[str], frozenset[str]], asyncio.Task[Drawn]] = OrderedDict()
        self._rows: OrderedDict[tuple[int, tuple[tuple[int, ...], ...], str], list[Row]] = OrderedDict()

    def know(self, layout: Layout) -> None:
        """The layout of the job; before that there is nothing to draw."""
        self.layout = layout
        self.view = View(layout)
        self.tree = group_tree(layout)
        self._keys = frozenset(group.key for group in (self.tree, *self.tree.groups()))
        self._drawn.clear()
        self._wake()

    def publish(self, observation: Observation) -> None:
        """A newer observation."""
        if self.view is None:
            return
        self.view.update(observation)
        due = not self.points or observation.at >= self.points[-1]["at"] + CHART_SECONDS
        if due and (self._streams or not observation.live):
            self.points.append({"at": round(observation.at, 2), **self.view.totals()})
        self._wake()

    def happened(self, events: Iterable[TimelineEvent]) -> None:
        """Events for the timeline."""
        for event in events:
            self.events.add(event)
            self.cut_times.happened(event)
        self._wake()

    async def fresh(self, seconds: float) -> None:
        """Wait until all workers have said how they are doing from now on, at most so long. To be called while looking."""
        began = self.view.observation.at if self.view is not None and self.view.observation is not None else 0.0
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._heard_since(began):
                    await self._changed.wait()

    def _heard_since(self, began: float) -> bool:
        seen = self.view.observation if self.view is not None else None
        if seen is None:
            return False
        silent = [w for w in range(len(seen.workers)) if w not in seen.told or seen.told[w][0] <= began]
        return not seen.live or seen.verdict.state != "running" or all(w in seen.read for w in silent)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ------------------------------------------------------------------------------------------ drawings

    async def drawn(self, opened: frozenset[str], closed: frozenset[str]) -> Drawn:
        """The picture for a reader who has opened and folded these groups. Drawn in a thread, once."""
        layout, tree = self.layout, self.tree
        assert layout is not None
        assert tree is not None
        key = opened & self._keys, closed & self._keys
        task = self._drawn.get(key)
        if task is None:

            def make() -> Drawn:
                folding = fold(layout, tree, sorted(key[0]), sorted(key[1]))
                return Drawn(folding, graph_page(layout, folding))

            task = self._drawn[key] = asyncio.create_task(asyncio.to_thread(make))
            while len(self._drawn) > _MOST_DRAWINGS:
                self._drawn.popitem(last=False)
        self._drawn.move_to_end(key)
        return await asyncio.shield(task)

    def rows(self, folding: Folding, bars: str) -> list[Row]:
        """The rows of the newest view; computed once for all pages that show the same."""
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
    def looking(self, closely: int | None) -> Any:
        """Somebody has the page open, and looks closely at one operator."""
        token = object()
        self.viewers += 1
        if closely is not None:
            self.closely[token] = closely
        self._looked()
        try:
            yield
        finally:
            self.viewers -= 1
            self.closely.pop(token, None)
            self._looked()

    @contextmanager
    def streaming(self) -> Any:
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def stream(self, drawn: Drawn, bars: str, closely: int | None, since: int) -> AsyncIterator[dict[str, Any]]:
        """The changes for one page: at first everything, then the differences, at least once a second something."""
        rows: list[Row] | None = None
        workers: list[list[Any]] | None = None
        version = -1
        first = True
        with self.streaming(), self.looking(closely):
            while True:
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
                    now = view.workers()
                    if now != workers:
                        message["workers"] = workers = now
                events = self.events_after(since)
                if events:
                    since = events[-1]["n"]
                    message["events"] = events
                yield message
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), BEAT_SECONDS)

    def events_after(self, number: int) -> list[dict[str, Any]]:
        """The events of the timeline with greater numbers; `routine` are those that come with every cut."""
        found = self.events.after(number)
        return [
            {"n": n, "kind": event.kind, "at": round(event.at, 3), "routine": event.kind in ROUTINE, **event.data}
            for n, event in found
        ]
