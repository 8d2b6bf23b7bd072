"""The page's server beside a monitor: a thread of its own with an event loop, so that the monitor waits for no browser.

What it is to show is handed over by reference; what it asks is put into a queue, and answered by the monitor between two
messages.
"""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import uvicorn

from monitor.effects import Event
from monitor.web.app import Access, make_app
from monitor.web.hub import Hub
from monitor.web.questions import JobState
from monitor.web.view import Observation
from recovery.layout import Layout

T = TypeVar("T")

_SETTLE_SECONDS = 0.1
_Question = tuple[Callable[[JobState], Any], "asyncio.Future[Any]"]


class PageServer:
    """Serves at `listener`, a listening socket, from the start until the process ends.

    `wake` is readable when questions wait for `answer`.
    """

    def __init__(self, listener: socket.socket, access: Access, title: str) -> None:
        self.wake, self._bell = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._bell, False)
        self._questions: queue.SimpleQueue[_Question] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self.hub = self._loop.run_until_complete(_make_hub())
        config = uvicorn.Config(
            make_app(self.hub, self._ask, access, title),
            http="h11",
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
        """How many pages are open."""
        return self.hub.viewers

    @property
    def closely(self) -> tuple[int, ...]:
        """The operators that somebody looks at closely."""
        return tuple(sorted(set(self.hub.closely.values())))

    def know(self, layout: Layout) -> None:
        """The layout of the job."""
        self._call(self.hub.know, layout)

    def publish(self, observation: Observation) -> None:
        """Something newer to show."""
        self._call(self.hub.publish, observation)

    def happened(self, events: Sequence[Event]) -> None:
        """Events for the timeline."""
        self._call(self.hub.happened, tuple(events))

    def settle(self) -> None:
        """Wait a moment, so that open pages hear of what was published before this process is ended."""
        if self.viewers:
            passed = threading.Event()
            self._call(self._loop.call_later, _SETTLE_SECONDS, passed.set)
            passed.wait(3 * _SETTLE_SECONDS)

    def answer(self, job: JobState) -> None:
        """Answer what was asked. Called by the monitor, in its own thread."""
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)
        while True:
            try:
                question, future = self._questions.get_nowait()
            except queue.Empty:
                return
            try:
                answer = question(job)
            except Exception as error:
                self._call(_fail, future, error)
            else:
                self._call(_succeed, future, answer)

    def close(self) -> None:
        """Stop serving; open pages see the connection end."""
        self._server.should_exit = True
        self._thread.join(3.0)

    def _ask(self, question: Callable[[JobState], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._questions.put((question, future))
        with suppress(BlockingIOError):
            os.write(self._bell, b"?")
        return asyncio.wait_for(future, 10.0)

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        with suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def _run(self, listener: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._server.serve(sockets=[listener]))
        finally:
            self._loop.close()


async def _make_hub() -> Hub:
    return Hub()


def _succeed(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
