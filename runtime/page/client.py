"""Client of the page process: the monitor's side, which restarts it when it ends.

The monitor never waits for it. While it does not read, it gets no newer observation. What it sends is treated as
data.
"""

from __future__ import annotations

import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from monitor.coordination.supervision import TimelineEvent
from monitor.web.questions import Act, JobState, WrongQuestion, answer
from monitor.web.recent_events import RecentEvents
from monitor.web.view import Observation
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

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
"""Seconds between the end of a page and the next start: first, and at most.

The pause doubles each time.
"""
_LONG_LIFE = 60.0
_NO_TOKEN = "only a page with a token takes orders: give --ui-host ADDRESS, and open the address that is printed"
_LEAVE_SECONDS = 2.0


class PageClient:
    """Client of the process with the web page of `job`, served at `listener`.

    Args:
        selector: where the monitor waits.
        serve: what the page is to know first.
        say: gets what the user should know, and the kind of the event that it is on the timeline.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        serve: Serve,
        job: JobState,
        say: Callable[[str, str], None],
    ) -> None:
        self._selector = selector
        self._listener = listener
        self._serve = serve
        self._job = job
        self._say = say
        self._events = RecentEvents()
        self._pause = _FIRST_PAUSE
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._due = self._began = 0.0
        self._looking = Looking(0, ())
        self._begin()

    @property
    def viewers(self) -> int:
        """Number of open pages."""
        return self._looking.viewers

    @property
    def closely(self) -> tuple[int, ...]:
        """Operators observed closely by some viewer."""
        return tuple(p for p in self._looking.closely if 0 <= p < len(self._serve.layout.processors))

    @property
    def pid(self) -> int | None:
        """Process id of the page, while it runs."""
        return self._process.pid if self._process is not None else None

    def happened(self, events: Iterable[TimelineEvent]) -> None:
        """Send events for the timeline."""
        events = list(events)
        for event in events:
            self._events.add(event)
        self._tell(Passed(tuple(events)))

    def publish(self, observation: Observation) -> None:
        """Send a newer observation, unless the page has not read the one before."""
        if self._sock is not None and not self._out:
            self._tell(self._sent.next(observation))

    def turn(self) -> None:
        """Restart an ended page process, if its pause is over."""
        if self._sock is None and time.monotonic() >= self._due:
            self._begin()

    def finish(self) -> None:
        """Let the page show its last state to viewers, then end it."""
        if self.viewers and self._sock is not None and self._process is not None:
            with suppress(OSError):
                self._sock.settimeout(_LEAVE_SECONDS)
                self._sock.sendall(self._out)
                self._sock.shutdown(socket.SHUT_WR)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LEAVE_SECONDS)
        self.close()

    def close(self) -> None:
        """End the page process for good."""
        self._end()
        self._due = float("inf")

    # Its process

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._buffer = bytearray()
        self._out = bytearray()
        self._sent = DifferenceWriter()
        try:
            sock, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "runtime.page.process", str(theirs.fileno()), str(self._listener.fileno())],
                    pass_fds=[theirs.fileno(), self._listener.fileno()],
                    stdin=subprocess.DEVNULL,
                )
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror or error}")
            return
        sock.setblocking(False)
        self._sock = sock
        self._selector.register(sock, selectors.EVENT_READ, self._ready)
        self._tell(self._serve)
        self._tell(Passed(tuple(self._events)))

    def _end(self) -> str:
        """End the page process if it still runs; returns a description of its end."""
        self._looking = Looking(0, ())
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None
        process, self._process = self._process, None
        if process is None:
            return "has ended"
        try:
            code = process.wait(0.1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_LEAVE_SECONDS)
            return "was ended"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _fail(self, how: str) -> None:
        """Note the end of the page process, and schedule its restart."""
        if time.monotonic() > self._began + _LONG_LIFE:
            self._pause = _FIRST_PAUSE
        self._due = time.monotonic() + self._pause
        text = f"the process of the page {how}; the job goes on, and the page is served again in {self._pause:g} s"
        self._say(text, "page")
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    # What is said

    def _tell(self, message: ToPage) -> None:
        if self._sock is not None:
            self._out += frame(encode(message))
            self._push()

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
        if self._sock is None:
            return []
        if events & selectors.EVENT_WRITE:
            self._push()
        if events & selectors.EVENT_READ:
            self._read()
        return []

    def _read(self) -> None:
        assert self._sock is not None
        if not take_in(self._sock, self._buffer):
            self._fail(self._end())
            return
        try:
            said = [FROM_PAGE.decode(each) for each in cut(self._buffer)]
        except ProtocolError as error:
            self._end()
            self._fail(f"said what is no message ({error})")
            return
        for message in said:
            match message:
                case Looking():
                    self._looking = message
                case PageQuestion(number, Act()) if not self._serve.token:
                    self._reply(self._sock, number, WrongQuestion(_NO_TOKEN, 403))
                case PageQuestion(number, question):
                    answer(self._job, question, partial(self._reply, self._sock, number), self.publish)

    def _reply(self, asker: socket.socket, number: int, found: bytes | WrongQuestion) -> None:
        if self._sock is not asker:
            return  # it was asked by a page that is gone
        if isinstance(found, WrongQuestion):
            self._tell(PageAnswer(number, error=str(found), status=found.status))
        else:
            self._tell(PageAnswer(number, found))
