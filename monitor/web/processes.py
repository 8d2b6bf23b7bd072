"""HTTP addresses about processes of a job: stacks, samples, lines that they wrote, and errors.

Stacks are for pages with a token, as orders are: to make them takes a moment of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from monitor.explain.errors import errors_of
from monitor.web.hub import Hub
from timely.errors import FalkirkError

_T = TypeVar("_T")

MOST_LINES = 2000
"""Most lines of output in one answer."""

_SAMPLES_SECONDS = 1.0
"""Longest use of an answer with samples, in seconds, for all pages."""

_MOST_AT_ONCE = 2
"""Most questions to processes in work at a time."""

_NONE = "a job that is not followed here has no processes, and no output of them"


class Processes(Protocol):
    """Processes of a job, on this host; asked in any thread. Methods raise FalkirkError in words."""

    def stacks(self, place: str) -> Sequence[Any]:
        """Stacks of the processes at a place, such as worker-1 or monitor."""

    def samples(self) -> Sequence[Any]:
        """Samples of the last minute, of each process."""

    def places(self) -> Sequence[str]:
        """Places with lines of output."""

    def lines(self, place: str, since: int, most: int) -> Sequence[Any]:
        """Last lines of output of a place with greater numbers than `since`."""


class ProcessPages:
    """Addresses about the processes of one job; `acts`: the page has a token."""

    def __init__(self, hub: Hub, processes: Processes | None, acts: bool) -> None:
        self._hub, self._processes, self._acts = hub, processes, acts
        self._asking = asyncio.Semaphore(_MOST_AT_ONCE)
        self._samples: tuple[float, asyncio.Future[Any]] | None = None

    def routes(self) -> Sequence[BaseRoute]:
        """Addresses below that of the job."""
        return [
            Route("/api/stacks/{place}", self.stacks, methods=["POST"]),
            Route("/api/samples", self.samples),
            Route("/api/logs", self.logs),
            Route("/api/logs/{place}", self.log),
            Route("/api/errors", self.errors),
        ]

    async def stacks(self, request: Request) -> Response:
        if not self._acts:
            raise HTTPException(403, "only a page with a token shows stacks; in a terminal, falkirk stacks STORE does")
        place = request.path_params["place"]
        return _json({"stacks": await self._ask(lambda processes: processes.stacks(place))})

    async def samples(self, request: Request) -> Response:
        now = asyncio.get_running_loop().time()
        if self._samples is None or now - self._samples[0] >= _SAMPLES_SECONDS:
            self._samples = now, asyncio.ensure_future(self._ask(lambda processes: processes.samples()))
        return _json({"processes": await asyncio.shield(self._samples[1])})

    async def logs(self, request: Request) -> Response:
        return _json({"places": await self._ask(lambda processes: processes.places())})

    async def log(self, request: Request) -> Response:
        since = request.query_params.get("since") or "0"
        if not (since.isascii() and since.isdecimal()) or len(since) > 15:
            raise HTTPException(400, "since is a number, of at most 15 digits")
        place = request.path_params["place"]
        return _json({"lines": await self._ask(lambda processes: processes.lines(place, int(since), MOST_LINES))})

    async def errors(self, request: Request) -> Response:
        if self._hub.layout is None:
            raise HTTPException(503, "no worker has joined yet")
        return _json({"errors": errors_of(self._hub.events, self._hub.layout)})

    async def _ask(self, question: Callable[[Processes], _T]) -> _T:
        if self._processes is None:
            raise HTTPException(404, _NONE)
        try:
            async with self._asking:
                return await asyncio.to_thread(question, self._processes)
        except FalkirkError as error:
            raise HTTPException(503, str(error)) from error


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
