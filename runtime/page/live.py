"""Running job as shown on its page: part of the monitor, beside the coordinator.

The page itself is a process of its own. A failure here is noted once; the monitor goes on, without a page if it must.
"""

from __future__ import annotations

import os
import selectors
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from monitor.coordination.records import KeptEvent
from monitor.coordination.supervision import TimelineEvent
from runtime.page.client import PageClient
from runtime.page.protocol import Serve
from runtime.page.watched import EVERY_SECONDS, SECOND, WatchedJob

_MOST_FAILURES = 10


class LivePage:
    """Source of the page's observations and answers in a running job.

    Args:
        selector: where the monitor waits.
        listener: where browsers connect.
        serve: what the page is to know first.
        job: what is known of the job.
        say: gets what the user should know; and the kind of event that it is on the timeline, or "".
        before: events that an earlier monitor has noted.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        serve: Serve,
        job: WatchedJob,
        say: Callable[[str, str], None],
        before: Iterable[KeptEvent] = (),
    ) -> None:
        self._page = PageClient(selector, listener, serve, job, say)
        self._say = say
        self._failures: set[str] = set()
        self._job = job
        self._events: list[TimelineEvent] = [TimelineEvent(kept.kind, kept.at, kept.data) for kept in before]
        self._due = self._sample_due = float("-inf")

    @property
    def viewers(self) -> int:
        """Number of open pages."""
        return self._page.viewers

    def happened(self, event: TimelineEvent) -> None:
        """Queue an event for the timeline."""
        self._events.append(event)

    def turn(self, at_once: bool = False) -> None:
        """Publish an observation if one is due; `at_once`: in any case."""
        now = self._job.clock()
        if now < self._due and not at_once:
            return
        self._due = now + EVERY_SECONDS
        with self._contained():
            self._show(now, at_once)

    def _show(self, now: float, at_once: bool) -> None:
        self._page.turn()
        if self._events:
            events, self._events = self._events, []
            self._page.happened(events)
        if self._page.viewers:
            self._job.look(now, sampled=False, closely=self._page.closely)
        if self._page.viewers or at_once or now >= self._sample_due:
            self._sample_due = now + SECOND
            self._page.publish(self._job.observe())

    def finish(self) -> None:
        """Show the end of the job, then end the page."""
        with self._contained():
            self.turn(at_once=True)
            self._page.finish()

    def close(self) -> None:
        """Stop serving."""
        self._page.close()

    @contextmanager
    def _contained(self) -> Iterator[None]:
        """Context suppressing errors; each is noted once."""
        try:
            yield
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            failure = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
            if failure not in self._failures and len(self._failures) < _MOST_FAILURES:
                self._failures.add(failure)
                self._say(
                    f"the page cannot show all: {failure}. The job goes on. This is a fault of Falkirk: please report it",
                    "",
                )
