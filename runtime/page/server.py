"""Web server of a page: one event loop for its browsers and its jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from monitor.web.app import Access, make_app
from monitor.web.bounded import BACKLOG, BoundedProtocol
from runtime.page.address import PageSocket
from runtime.page.followed import JobAtRest

UNSEEN_SECONDS = 30.0
"""Seconds from the last job's end to the end of a page nobody ever opened."""

SEEN_SECONDS = 180.0
"""Seconds without a request until the end of a page without a running job.

A tab that is hidden asks once a minute.
"""

_LOOK_SECONDS = 0.5


async def serve(jobs: Sequence[JobAtRest], page: PageSocket, stays: bool = True) -> None:
    """Serve the page of `jobs`.

    It ends when it is cancelled; if it does not `stay`, also some time after the last job has ended and nobody looks.
    """
    async with serving(jobs, page) as asked:
        while stays or not asked.is_forgotten(any(job.live for job in jobs)):
            await asyncio.sleep(_LOOK_SECONDS)


@contextlib.asynccontextmanager
async def serving(jobs: Sequence[JobAtRest], page: PageSocket) -> AsyncIterator[Asked]:
    """Serve a page of `jobs`, and follow them, within a context."""
    asked = Asked(make_app([job.shown for job in jobs], Access(page.token)))
    config = uvicorn.Config(
        asked,
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
    server = _Server(config)
    tasks = [asyncio.create_task(job.run()) for job in jobs]
    tasks.append(asyncio.create_task(server.serve(sockets=[page.listener])))
    try:
        yield asked
    finally:
        server.should_exit = True
        for task in tasks[:-1]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Server(uvicorn.Server):
    """Server without signal handlers of its own."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


class Asked:
    """Application with the time of its last request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open = 0
        self._ever = False
        self._last = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open += 1
        self._ever = True
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1
            self._last = time.monotonic()

    def is_forgotten(self, live: bool) -> bool:
        """True if nobody has asked for long; time counts while no job is `live`."""
        if live or self._open:
            self._last = time.monotonic()
        return time.monotonic() > self._last + (SEEN_SECONDS if self._ever else UNSEEN_SECONDS)
