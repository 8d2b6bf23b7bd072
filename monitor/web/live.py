"""A running job for its page: lives in the monitor's thread, beside the coordinator.

Nothing is gathered while no page is open: then workers are not asked, and a turn costs one comparison.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from monitor.available import Available
from monitor.coordinator import Coordinator
from monitor.effects import Answered, Event
from monitor.records import KeptEvent
from monitor.web.app import Access
from monitor.web.questions import Done, WrongQuestion
from monitor.web.server import PageServer
from monitor.web.view import Observation, SeatView
from monitor.what_if import targets
from recovery.layout import Layout
from recovery.protocol import Observe, Observed, ToWorker

EVERY_SECONDS = 0.25
_ASK_SECONDS = 1.0
_LEASE_SECONDS = 3.0
"""Workers stop telling so long after they were last asked: a monitor that has died asks no more."""


class LivePage:
    """See the module. `send` passes a message on to a worker; `listener` is where browsers connect.

    `clock` gives seconds since 1970, and does not go back; `before` are events that an earlier monitor has noted.
    """

    def __init__(
        self,
        listener: socket.socket,
        access: Access,
        title: str,
        layout: Layout,
        coordinator: Coordinator,
        send: Callable[[int, ToWorker], None],
        clock: Callable[[], float],
        before: Iterable[KeptEvent] = (),
    ) -> None:
        self._server = PageServer(listener, access, title)
        self._coordinator = coordinator
        self._send = send
        self._clock = clock
        self._questions: dict[int, Done] = {}
        self._asked_so_far = 0
        self._told: dict[int, tuple[float, Observed]] = {}
        self._events: list[Event] = [Event(kept.kind, kept.at, kept.data) for kept in before]
        self._due = self._ask_due = float("-inf")
        self._asked: tuple[int, ...] = ()
        self._server.know(layout)

    @property
    def wake(self) -> int:
        """A file that is readable when the page has a question: then call `answer`."""
        return self._server.wake

    def answer(self, events: int) -> list[Any]:
        """Answer questions of the page."""
        self._server.answer(self)
        return []

    def hear(self, message: Observed) -> None:
        """What a worker says of how it is doing."""
        self._told[message.worker] = self._clock(), message

    def answered(self, effect: Answered) -> None:
        """The coordinator has the answer to a question."""
        done = self._questions.pop(effect.number, None)
        if done is not None:
            done(effect.answer)

    def happened(self, event: Event) -> None:
        """An event for the timeline."""
        self._events.append(event)

    def turn(self, at_once: bool = False) -> None:
        """Time may have passed. `at_once`: show everything now."""
        now = self._clock()
        if now < self._due and not at_once:
            return
        self._due = now + EVERY_SECONDS
        if self._events:
            self._server.happened(self._events)
            self._events = []
        if not self._server.viewers and not at_once:
            self._ask_due = float("-inf")
            return
        closely = self._server.closely
        if now >= self._ask_due or closely != self._asked:
            self._ask_due, self._asked = now + _ASK_SECONDS, closely
            for seat in self._coordinator.seats:
                self._send(seat.worker, Observe(EVERY_SECONDS, _LEASE_SECONDS, closely))
        observation = self.observe()
        if observation is not None:
            self._server.publish(observation)
        if at_once:
            self._server.settle()

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    # For questions (`monitor.web.questions.JobState`)

    @property
    def available(self) -> Available | None:
        return self._coordinator.available

    @property
    def told(self) -> dict[int, tuple[float, Observed]]:
        return self._told

    def observe(self) -> Observation | None:
        """The job as it is now."""
        coordinator = self._coordinator
        available = coordinator.available
        if available is None:
            return None
        return Observation(
            at=self._clock(),
            phase=coordinator.phase.value,
            generation=coordinator.generation,
            low=coordinator.low_watermarks,
            completed=tuple(None if upto is None else tuple(cut[0] for cut in upto) for upto in available.upto),
            seats=tuple(SeatView(seat.presence.value, seat.incarnation, seat.failures) for seat in coordinator.seats),
            told=dict(self._told),
        )

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        """What would happen if these failed; `done` is called with the answer when it is there."""
        layout = self._coordinator.layout
        if layout is None:
            raise WrongQuestion("no worker has joined yet", 503)
        places = targets(layout, failed)
        self._asked_so_far += 1
        self._questions[self._asked_so_far] = done
        self._coordinator.ask(self._asked_so_far, places, self._clock())
