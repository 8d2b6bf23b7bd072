"""Web server of the page: a thread with an event loop of its own.

Observations are handed over by reference. Questions go into a queue, and make `wake` readable.
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
from monitor.web.app import Access, History, make_app
from monitor.web.bounded import BACKLOG, BoundedProtocol
from monitor.web.hub import Hub
from monitor.web.questions import JobState, Question, Reply, WrongQuestion, answer
from monitor.web.view import Observation
from recovery.layout import Layout

_LINGER_SECONDS = 0.1
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 15.0
_MOST_ASKED = 4
"""Maximum number of questions in work at a time.

Each costs the monitor some of its time.
"""


class PageServer:
    """Web server at the socket `listener`, from its creation on.

    It runs until `close`, or the end of the process.

    `wake` is readable when questions wait, or when others look at the job than before.
    """

    def __init__(self, listener: socket.socket, access: Access, title: str, history: History | None = None) -> None:
        self.wake, self._bell = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._bell, False)
        self._questions: queue.SimpleQueue[tuple[Question, Reply]] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._troubled)
        self.hub = self._loop.run_until_complete(_make_hub(self._ring))
        self._asking = asyncio.Semaphore(_MOST_ASKED)
        config = uvicorn.Config(
            make_app(self.hub, self._ask, access, title, history),
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
        """Operators observed closely by some viewer."""
        return tuple(sorted(set(self.hub.closely.copy().values())))

    def know(self, layout: Layout) -> None:
        """Set the layout of the job."""
        self._call(self.hub.know, layout)

    def publish(self, observation: Observation) -> None:
        """Show a newer observation."""
        self._call(self.hub.publish, observation)

    def happened(self, events: Sequence[TimelineEvent]) -> None:
        """Show events in the timeline."""
        self._call(self.hub.happened, tuple(events))

    def linger(self) -> None:
        """Wait a moment for open pages to get the last state, before the process ends."""
        if self.viewers:
            passed = threading.Event()
            self._call(self._loop.call_later, _LINGER_SECONDS, passed.set)
            passed.wait(3 * _LINGER_SECONDS)

    def asked(self) -> list[tuple[Question, Reply]]:
        """Take the waiting questions.

        A reply may be given at any time, in any thread.
        """
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._questions.get_nowait())
        return found

    def answer(self, job: JobState) -> None:
        """Answer the waiting questions at once."""
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
        """Stop listening once the job has shut the shared socket, or the loop would spin."""
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
        """Report errors of the loop itself, except `accept` at a shut socket.

        `_look` finds that.
        """
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
