"""Running job as shown on its page: part of the monitor, beside the coordinator.

The page itself is a process of its own. Nothing is gathered while no page is open: then workers are not asked, and a
turn costs one comparison. A failure here is noted once; the monitor goes on, without a page if it must.
"""

from __future__ import annotations

import os
import selectors
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from monitor.coordination.coordinator import Coordinator
from monitor.coordination.effects import Answered
from monitor.coordination.events import Asked
from monitor.coordination.options import Options
from monitor.coordination.records import KeptEvent
from monitor.coordination.supervision import Busy, TimelineEvent
from monitor.explain.verdict import OVER
from monitor.explain.what_if import targets
from monitor.web.questions import Done
from monitor.web.view import Observation, WorkerView
from recovery.protocol import Observe, Observed, ToWorker
from runtime.page.client import PageClient
from runtime.page.protocol import Serve

EVERY_SECONDS = 0.25
_MOST_FAILURES = 10
_ASK_SECONDS = 1.0
_LEASE_SECONDS = 3.0
"""Duration of a worker's observations after one request, in seconds.

A monitor that has died sends no more requests.
"""


class LivePage:
    """Source of the page's observations and answers in a running job.

    Args:
        selector: where the monitor waits.
        listener: where browsers connect.
        serve: what the page is to know first.
        coordinator: of the job.
        ask: passes a question on to it.
        send: passes a message on to a worker.
        clock: gives seconds since 1970, and does not go back.
        say: gets what the user should know; and the kind of event that it is on the timeline, or "".
        before: events that an earlier monitor has noted.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        serve: Serve,
        coordinator: Coordinator,
        ask: Callable[[Asked], None],
        send: Callable[[int, ToWorker], None],
        clock: Callable[[], float],
        say: Callable[[str, str], None],
        before: Iterable[KeptEvent] = (),
    ) -> None:
        self._page = PageClient(selector, listener, serve, self, say)
        self._say = say
        self._failures: set[str] = set()
        self._coordinator = coordinator
        self._ask = ask
        self._send = send
        self._clock = clock
        self._questions: dict[int, Done] = {}
        self._asked_so_far = 0
        self._told: dict[int, tuple[float, Observed]] = {}
        self._events: list[TimelineEvent] = [TimelineEvent(kept.kind, kept.at, kept.data) for kept in before]
        self._busy: dict[int, Busy] = {}
        self._due = self._ask_due = float("-inf")
        self._asked: tuple[int, ...] = ()

    def hear(self, message: Observed) -> None:
        """Store a worker's observation."""
        self._told[message.worker] = self._clock(), message

    def hear_busy(self, message: Busy) -> None:
        """Take the last known numbers of a worker in a long turn."""
        self._busy[message.worker] = message

    def answered(self, effect: Answered) -> None:
        """Deliver the coordinator's answer to a question."""
        with self._contained():
            done = self._questions.pop(effect.number, None)
            if done is not None:
                done(effect.answer)

    def happened(self, event: TimelineEvent) -> None:
        """Queue an event for the timeline."""
        self._events.append(event)

    def turn(self, at_once: bool = False) -> None:
        """Publish an observation if one is due; `at_once`: in any case."""
        now = self._clock()
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
        if not self._page.viewers and not at_once:
            self._ask_due = float("-inf")
            return
        closely = tuple(dict.fromkeys((*self._page.closely, *self._coordinator.standstill.closely)))
        if now >= self._ask_due or closely != self._asked:
            self._ask_due, self._asked = now + _ASK_SECONDS, closely
            for status in self._coordinator.workers:
                self._send(status.worker, Observe(EVERY_SECONDS, _LEASE_SECONDS, closely))
        self._page.publish(self.observe())

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

    # For questions (`monitor.web.questions.JobState`)

    @property
    def options(self) -> Options:
        return self._coordinator.options

    @property
    def told(self) -> dict[int, tuple[float, Observed]]:
        return self._told

    def observe(self) -> Observation:
        """Observation of the job at this moment."""
        coordinator = self._coordinator
        verdict = coordinator.judge.verdict(True, self._clock())
        gone = "gone" if verdict.state in OVER else None
        return Observation(
            at=self._clock(),
            phase=coordinator.phase.value,
            generation=coordinator.generation,
            low=coordinator.low_watermarks,
            completed=tuple(
                None if upto is None else tuple(cut[0] for cut in upto) for upto in coordinator.options.upto
            ),
            workers=tuple(
                WorkerView(gone or status.presence.value, status.incarnation, status.failures)
                for status in coordinator.workers
            ),
            told=dict(self._told),
            verdict=verdict,
            read={w: (each.read, each.newest) for w, each in self._busy.items() if each.known},
        )

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        """Ask for the consequences of failures; `done` gets the answer later."""
        places = targets(self._coordinator.layout, failed)
        self._asked_so_far += 1
        self._questions[self._asked_so_far] = done
        self._ask(Asked(self._asked_so_far, places))
