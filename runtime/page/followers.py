"""Followers of a running job: page processes and commands at its monitor.

The monitor never waits for them. One that does not read gets no newer observation, and is hung up on when too much waits
for it. What they send is treated as data.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from monitor.coordination.supervision import TimelineEvent
from monitor.web.questions import JobState, WrongQuestion, answer
from monitor.web.recent_events import RecentEvents
from monitor.web.view import Observation
from recovery.layout import Layout
from runtime.control import cut, frame, put_out, take_in
from runtime.page.protocol import (
    FROM_PAGE,
    DifferenceWriter,
    Looking,
    PageAnswer,
    PageQuestion,
    Passed,
    Serve,
    ToPage,
    encode,
)
from timely.errors import ProtocolError

MOST_FOLLOWERS = 32
"""Most followers of a job at a time; further ones are turned away."""

_MOST_WAITING = 64 << 20
"""Most bytes waiting for a follower."""
_LAST_SECONDS = 0.5
"""Longest wait, in seconds, for a follower to take the end of the job."""


class Followers:
    """Followers of `job`, connected by `listener`.

    Args:
        selector: where the monitor waits.
        layout: of the job, for them to know first.
    """

    def __init__(
        self, selector: selectors.BaseSelector, listener: socket.socket, layout: Layout, job: JobState
    ) -> None:
        self._selector = selector
        self._listener = listener
        self.layout = layout
        self.job = job
        self.events = RecentEvents()
        self._all: list[_Follower] = []
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._come)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def viewers(self) -> int:
        """Number of open pages."""
        return sum(each.looking.viewers for each in self._all)

    @property
    def closely(self) -> tuple[int, ...]:
        """Operators observed closely by some viewer."""
        asked = {p for each in self._all for p in each.looking.closely}
        return tuple(sorted(p for p in asked if 0 <= p < len(self.layout.processors)))

    def happened(self, events: Iterable[TimelineEvent]) -> None:
        """Send events for the timeline."""
        events = tuple(events)
        for event in events:
            self.events.add(event)
        for each in tuple(self._all):
            each.tell(Passed(events))

    def publish(self, observation: Observation, idle: bool) -> None:
        """Send a newer observation to viewers, unless they have not read the last.

        `idle`: to the others as well, for their metrics.
        """
        for each in tuple(self._all):
            if idle or each.looking.viewers:
                each.publish(observation)

    def finish(self, last: Observation) -> None:
        """Send the end of the job to all pages, then close their connections."""
        for each in tuple(self._all):
            each.finish(last)
        self.close()

    def close(self) -> None:
        """Close the connections of all pages, and the door for further ones."""
        for each in tuple(self._all):
            each.close()
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()

    def gone(self, follower: _Follower) -> None:
        """Forget a follower."""
        if follower in self._all:
            self._all.remove(follower)

    def _come(self, events: int) -> list[Any]:
        with suppress(OSError):  # it has left again, or there is no file for it
            while True:
                sock, _ = self._listener.accept()
                if len(self._all) >= MOST_FOLLOWERS:
                    sock.close()
                    return []
                self._all.append(_Follower(self, self._selector, sock))
        return []


class _Follower:
    """Connection of one page."""

    def __init__(self, all_of_them: Followers, selector: selectors.BaseSelector, sock: socket.socket) -> None:
        self.looking = Looking(0, ())
        self._all = all_of_them
        self._selector = selector
        self._sock: socket.socket | None = sock
        self._buffer, self._out = bytearray(), bytearray()
        self._sent = DifferenceWriter()
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, self._ready)
        self.tell(Serve(all_of_them.layout))
        self.tell(Passed(tuple(all_of_them.events)))

    def tell(self, message: ToPage) -> None:
        """Send a message, now or when it reads."""
        if self._sock is None:
            return
        self._out += frame(encode(message))
        if len(self._out) > _MOST_WAITING:
            self.close()
        else:
            self._push()

    def publish(self, observation: Observation) -> None:
        """Send a newer observation, unless something waits."""
        if self._sock is not None and not self._out:
            self.tell(self._sent.next(observation))

    def finish(self, last: Observation) -> None:
        """Send the last observation, for a moment even to who does not read, and leave."""
        if self._sock is not None:
            with suppress(OSError):
                self._sock.settimeout(_LAST_SECONDS)
                self._sock.sendall(self._out + frame(encode(self._sent.next(last))))
        self.close()

    def close(self) -> None:
        """Close the connection of this page."""
        sock, self._sock = self._sock, None
        if sock is not None:
            self._selector.unregister(sock)
            sock.close()
        self._all.gone(self)

    def _push(self) -> None:
        sock = self._sock
        assert sock is not None
        waited = bool(self._selector.get_key(sock).events & selectors.EVENT_WRITE)
        if not put_out(sock, self._out):  # gone: its end is read
            self._out.clear()
        if waited != bool(self._out):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
            self._selector.modify(sock, events, self._ready)

    def _ready(self, events: int) -> list[Any]:
        """Handle socket events in the monitor's loop; returns no messages of workers."""
        if self._sock is not None and events & selectors.EVENT_WRITE:
            self._push()
        if self._sock is not None and events & selectors.EVENT_READ:
            self._read()
        return []

    def _read(self) -> None:
        assert self._sock is not None
        if not take_in(self._sock, self._buffer):
            self.close()
            return
        try:
            sample = [FROM_PAGE.decode(each) for each in cut(self._buffer)]
        except ProtocolError:
            self.close()
            return
        for message in sample:
            match message:
                case Looking():
                    self.looking = message
                case PageQuestion(number, question):
                    answer(self._all.job, question, partial(self._reply, number), self._show)

    def _show(self, observation: Observation) -> None:
        self.tell(self._sent.next(observation))

    def _reply(self, number: int, found: bytes | WrongQuestion) -> None:
        if isinstance(found, WrongQuestion):
            self.tell(PageAnswer(number, error=str(found), status=found.status))
        else:
            self.tell(PageAnswer(number, found))
