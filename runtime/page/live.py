"""Running job as shown to its followers: a part of the monitor.

Pages are processes of their own. A failure here is noted once; the monitor goes on, without followers if it must.
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
from recovery.layout import Layout
from runtime.page.followers import Followers
from runtime.page.watched import EVERY_SECONDS, SECOND, WatchedJob

_MOST_FAILURES = 10


class LivePage:
    """Source of observations and answers for the followers of a running job.

    Args:
        selector: where the monitor waits.
        listener: where followers connect.
        layout: of the job.
        job: what is known of it.
        say: gets what the user should know.
        before: events that an earlier monitor has noted.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        layout: Layout,
        job: WatchedJob,
        say: Callable[[str], None],
        before: Iterable[KeptEvent] = (),
    ) -> None:
        self._followers = Followers(selector, listener, layout, job)
        self._say = say
        self._failures: set[str] = set()
        self._job = job
        self._events: list[TimelineEvent] = [TimelineEvent(kept.kind, kept.at, kept.data) for kept in before]
        self._due = self._sample_due = float("-inf")

    @property
    def viewers(self) -> int:
        """Number of open pages."""
        return self._followers.viewers

    def happened(self, event: TimelineEvent) -> None:
        """Queue an event for the timeline."""
        self._events.append(event)

    def turn(self) -> None:
        """Publish an observation if one is due."""
        now = self._job.clock()
        if now < self._due:
            return
        self._due = now + EVERY_SECONDS
        with self._contained():
            self._show(now)

    def _show(self, now: float) -> None:
        if self._events:
            events, self._events = self._events, []
            self._followers.happened(events)
        if self._followers.viewers:
            self._job.look(now, sampled=False, closely=self._followers.closely)
        idle = bool(len(self._followers)) and now >= self._sample_due
        if idle:
            self._sample_due = now + SECOND
        if idle or self._followers.viewers:
            self._followers.publish(self._job.observe(), idle)

    def finish(self) -> None:
        """Show the end of the job, then leave the followers."""
        with self._contained():
            self._show(self._job.clock())
            self._followers.finish(self._job.observe())

    def close(self) -> None:
        """Leave the followers."""
        self._followers.close()

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
                    f"the page cannot show all: {failure}. The job goes on. This is a fault of Falkirk: please report it"
                )
