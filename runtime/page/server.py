"""The page's server: a thread of its own with an event loop, beside whoever knows the job.

What it is to show is handed over by reference. What it asks is put into a queue, and `wake` is readable then.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn

from monitor.coordination.supervision import TimelineEvent
from monitor.web.app import Access, make_app
from monitor.web.bounded import BACKLOG, BoundedProtocol
from monitor.web.hub import Hub
from monitor.web.questions import JobState, Question, Reply, WrongQuestion, answer
from monitor.web.view import Observation
from recovery.layout import Layout

_LINGER_SECONDS = 0.1
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 15.0
_MOST_ASKED = 4
"""Questions at a time: each costs whoever knows the job some of its time."""


class PageServer:
    """Serves at `listener`, a listening socket, from the start until the process ends.

    `wake` is readable when questions wait, or when others look at the job than before.
    """

    def __init__(self, listener: socket.socket, access: Access, title: str) -> None:
        self.wake, self._bell = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._bell, False)
        self._questions: queue.SimpleQueue[tuple[Question, Reply]] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._troubled)
        self.hub = self._loop.run_until_complete(_make_hub(self._ring))
        self._asking = asyncio.Semaphore(_MOST_ASKED)
        config = uvicorn.Config(
            make_app(self.hub, self._ask, access, title),
            http=BoundedProtocol,
            backlog=BACKLOG,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="page", daemon=True)
        self._thread.start()

    @property
    def viewers(self) -> int:
        """Number of open pages."""
        return self.hub.viewers

    @property
    def closely(self) -> tuple[int, ...]:
        """The operators that somebody looks at closely."""
        return tuple(sorted(set(self.hub.closely.copy().values())))

    def know(self, layout: Layout) -> None:
        """The layout of the job."""
        self._call(self.hub.know, layout)

    def publish(self, observation: Observation) -> None:
        """Something newer to show."""
        self._call(self.hub.publish, observation)

    def happened(self, events: Sequence[TimelineEvent]) -> None:
        """Events for the timeline."""
        self._call(self.hub.happened, tuple(events))

    def linger(self) -> None:
        """Wait a moment, so that open pages hear of what was published before this process is ended."""
        if self.viewers:
            passed = threading.Event()
            self._call(self._loop.call_later, _LINGER_SECONDS, passed.set)
            passed.wait(3 * _LINGER_SECONDS)

    def asked(self) -> list[tuple[Question, Reply]]:
        """The questions that wait. A reply may be given at any time, in any thread."""
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._questions.get_nowait())
        return found

    def answer(self, job: JobState) -> None:
        """Answer what was asked, here and now."""
        for question, reply in self.asked():
            answer(job, question, reply, self.publish)

    def close(self) -> None:
        """Stop serving; open pages see the connection end."""
        self._server.should_exit = True
        self._thread.join(3.0)

    async def _ask(self, question: Question) -> bytes:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS), self._asking:
                future: asyncio.Future[bytes] = self._loop.create_future()
                self._questions.put((question, partial(self._call, _settle, future)))
                self._ring()
                return await future
        except TimeoutError:
            raise WrongQuestion("the monitor is busy, and does not answer: ask again", 503) from None

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._bell, b"?")

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        with suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def _look(self, listener: socket.socket) -> None:
        """Stop listening where the job has shut the socket, which this process has as well: else the loop would spin."""
        if listener.fileno() < 0:
            return  # it has been closed here
        poll = select.poll()
        poll.register(listener, 0)  # that it is shut is told in any case
        if not poll.poll(0):
            self._loop.call_later(_LOOK_SECONDS, self._look, listener)
            return
        for server in self._server.servers:
            server.close()

    def _troubled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell of what failed in the loop itself, unless it is `accept` at a socket that was shut: `_look` will find that."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno == errno.EINVAL):
            loop.default_exception_handler(context)

    def _run(self, listener: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._look, listener)
        try:
            self._loop.run_until_complete(self._server.serve(sockets=[listener]))
        finally:
            self._loop.close()


async def _make_hub(looked: Callable[[], None]) -> Hub:
    return Hub(looked=looked)


def _settle(future: asyncio.Future[bytes], found: bytes | WrongQuestion) -> None:
    if future.done():
        return
    if isinstance(found, WrongQuestion):
        future.set_exception(found)
    else:
        future.set_result(found)
