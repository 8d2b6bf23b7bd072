"""HTTP interface of the page: files, JSON, an event stream, and metrics.

docs/page.md documents every address.

Reading only: nothing that is asked here changes the job, and all that is asked is checked before it goes any further. At
loopback the `Host` of a request must be loopback too, so that no other site can lead a browser here under a name of its own;
elsewhere every request must carry the token.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitor.history.archive import Archive, Gone
from monitor.web.assets import asset
from monitor.web.bounded import BODY_SECONDS, most_connections
from monitor.web.graph_page import fits_better_across
from monitor.web.hub import Hub
from monitor.web.metrics import CONTENT_TYPE, metrics, metrics_of_all
from monitor.web.past import PastJob, comparison, course_of, overview, points_of
from monitor.web.processes import Processes, ProcessPages
from monitor.web.questions import (
    ACTS,
    Act,
    Ask,
    IfPolicies,
    OfJob,
    OfOperator,
    OfProcesses,
    OfProcessor,
    OfRestart,
    OfTimes,
    Question,
    WhatIf,
    Why,
    WrongQuestion,
)
from monitor.web.spacetime import KeptTimes, Restart, space_time
from monitor.web.view import BARS
from recovery.guarantees.promises import as_plain
from recovery.layout import Layout

_T = TypeVar("_T")

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_KEPT = "private, max-age=31536000, immutable"
"""Caching of files with a digest in their names."""

_MOST_ASKED = 65_536
_CHART_SECONDS = 180
_MOST_READING = 2
"""Most questions about the past in work at a time."""

_MOST_NAMES = 256
"""Most names of workers and operators in one question."""

_ANSWER_SECONDS = 2.0
"""Longest wait for a job in the list of jobs, in seconds."""

_NO_TOKEN = "only a page with a token takes orders: give --ui-host ADDRESS, and open the address that is printed"

_MOST_CLOSELY = 16
"""Most operators under close observation for one page."""

_TIMES_SECONDS = 0.9
"""Longest use of an answer about kept times, in seconds."""

_SOLVED_A_SECOND = 1000
"""Most processors in solutions of restarts a second, for all pages.

A solution costs the monitor some 10 µs a processor: so these take about a hundredth of its time.
"""

_MOST_DIGITS = 15
"""Most digits of a number in a question, exact in JavaScript too."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access right: by `token` from anywhere; without one, by a loopback name only."""

    token: str = ""


class History(Protocol):
    """History of the job, read in any thread."""

    def at(self, moment: int) -> PastJob:
        """Job at a moment, in milliseconds since 1970. Raises Gone."""

    def read(self, question: Callable[[Archive], _T]) -> _T:
        """Answer to a question about the archive as it is now."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Job on a page.

    `key` is its name in addresses, `store` that of its store for people. `ask(question)` answers a question about the job
    where the job's state is; `history` has its past, `processes` its processes.
    """

    key: str
    title: str
    store: str
    hub: Hub
    ask: Ask
    history: History | None = None
    processes: Processes | None = None


def make_app(jobs: Sequence[Shown], access: Access) -> Starlette:
    """Web application of a page: each job at `job/KEY/`.

    A single job is at `/` too; several are a list there.
    """
    site = _Site(jobs, bool(access.token))
    routes: list[BaseRoute] = [Route("/api/jobs", site.jobs)]
    for job in jobs:
        pages = _Pages(job, site)
        inner = Router(pages.routes(), redirect_slashes=False)
        routes += [Route(f"/job/{job.key}", site.with_slash), Mount(f"/job/{job.key}", app=inner)]
        if len(jobs) == 1:
            routes += pages.routes()
    if len(jobs) != 1:
        routes += [Route("/", site.list), Route("/page/{name}", _file), Route("/metrics", site.metrics)]
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: _refused,
        WrongQuestion: _wrong,
        Exception: _failed,
    }
    app = Starlette(routes=routes, middleware=[Middleware(_Guard, access=access)], exception_handlers=handlers)
    app.router.redirect_slashes = False  # an address with one `/` too many is 404, in words
    return app


class _Site:
    """All jobs of a page."""

    def __init__(self, jobs: Sequence[Shown], acts: bool) -> None:
        self._jobs = jobs
        self.acts = acts
        """True if orders are taken: only behind a token."""

    @property
    def several(self) -> bool:
        return len(self._jobs) != 1

    def check_room(self) -> None:
        if sum(job.hub.streams for job in self._jobs) >= most_connections() // 2:
            raise HTTPException(503, "too many have the page open")

    async def list(self, request: Request) -> Response:
        return _of_asset(request, "jobs.html")

    async def metrics(self, request: Request) -> Response:
        reported = metrics_of_all({job.key: job.hub for job in self._jobs}, time.time())
        return Response(reported, media_type=CONTENT_TYPE)

    async def with_slash(self, request: Request) -> Response:
        return RedirectResponse(f"{request.url.path}/", 307)

    async def jobs(self, request: Request) -> Response:
        return _json({"jobs": await asyncio.gather(*[_described(job) for job in self._jobs])})


async def _described(job: Shown) -> dict[str, Any]:
    """Row of the list of jobs; `error` where nobody answers."""
    error = ""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await job.ask(OfJob())
    except WrongQuestion as wrong:
        error = str(wrong)
    except TimeoutError:
        error = "the monitor does not answer"
    view, layout = job.hub.view, job.hub.layout
    seen = view.observation if view is not None else None
    return {
        "key": job.key,
        "name": layout.name if layout is not None else job.title,
        "store": job.store,
        "workers": layout.workers if layout is not None else None,
        "live": seen is not None and seen.live,
        "verdict": seen.verdict.as_json() if seen is not None else None,
        "error": error,
    }


class _Pages:
    """Pages of one job."""

    def __init__(self, job: Shown, site: _Site) -> None:
        self._hub = job.hub
        self._ask = job.ask
        self._title = job.title
        self._site = site
        self._history = job.history
        self._processes = ProcessPages(job.hub, job.processes, site.acts)
        self._earlier = Hub()
        """Drawings of the last plan of the past that is not the present one."""
        self._drawing: asyncio.Future[Any] | None = None
        """Drawing begun for a new browser."""
        self._reading = asyncio.Semaphore(_MOST_READING)
        self._asked: dict[type[Question], tuple[float, asyncio.Future[bytes]]] = {}
        """Shared questions of all pages, with their times."""

    def routes(self) -> Sequence[BaseRoute]:
        """All addresses of a job, below its own."""
        return [
            Route("/", self.index),
            Route("/page/{name}", _file),
            Route("/api/job", self.job),
            Route("/api/graph", self.graph),
            Route("/api/events", self.events),
            Route("/api/verdict", self.verdict),
            Route("/api/timeline", self.timeline),
            Route("/api/charts", self.charts),
            Route("/api/operator/{operator}", self.operator),
            Route("/api/processor/{operator}/{worker}", self.processor),
            Route("/api/why/{operator}/{worker}", self.why),
            Route("/api/whatif", self.whatif, methods=["POST"]),
            Route("/api/policies", self.policies, methods=["POST"]),
            Route("/api/spacetime", self.spacetime),
            Route("/api/processes", self.processes),
            Route("/api/act", self.act, methods=["POST"]),
            Route("/api/history", self.history),
            Route("/api/moment", self.moment),
            Route("/api/compare", self.compare),
            Route("/api/epoch/{epoch}", self.epoch),
            Route("/metrics", self.metrics),
            *self._processes.routes(),
        ]

    # Files

    async def index(self, request: Request) -> Response:
        if self._hub.layout is not None:  # the drawing is asked for next: begin with it
            self._drawing = asyncio.ensure_future(self._hub.drawn(frozenset(), frozenset()))
        return _of_asset(request, "index.html")

    # The job as a whole

    async def job(self, request: Request) -> Response:
        hub = await self._hub_at(await self._at(request))
        layout = _layout(hub)
        regions = sorted({(info.region, info.policy) for info in layout.processors if info.region is not None})
        return _json(
            {
                "name": layout.name,
                "title": self._title,
                "workers": layout.workers,
                "policies": sorted({info.policy for info in layout.processors}),
                "regions": [{"name": name, "policy": policy} for name, policy in regions],
                "groups": [{"every_epochs": group.epochs, "every_seconds": group.seconds} for group in layout.groups],
                "operators": [
                    {
                        "name": info.name,
                        "kind": info.kind,
                        "site": info.site,
                        "region": info.region,
                        "policy": info.policy,
                        "scope": info.scope,
                        "role": info.role,
                        "depth": info.depth,
                        "chain": info.chain,
                        "history": info.history,
                        "group": info.group,
                        "members": info.members,
                    }
                    for info in layout.processors
                ],
                "edges": [
                    {
                        "source": edge.source,
                        "target": edge.target,
                        "spread": edge.spread,
                        "logged": edge.logged,
                        "feedback": edge.feedback,
                    }
                    for edge in layout.edges
                ],
                "promises": [as_plain(promise) for promise in layout.promises],
                "tree": hub.tree,
                "bars": BARS,
                "several": self._site.several,
                "acts": (*ACTS, "stacks") if self._site.acts else (),
                "plan": hub.plan,
                "history": self._history is not None,
            }
        )

    async def graph(self, request: Request) -> Response:
        hub = await self._hub_at(await self._at(request))
        drawn = await hub.drawn(*_folds(request.query_params))
        of: dict[int, int] = {member: node for node, members in enumerate(drawn.folding.nodes) for member in members}
        room = request.query_params.get("room")
        sides = [_number(side, "a side of room") for side in room.split("x", 1)] if room else []
        if len(sides) == 1:
            raise HTTPException(400, "room is a width and a height: 1036x648")
        across = bool(sides) and fits_better_across(drawn.page, drawn.across, *sides)
        return _json(
            {
                **(drawn.across if across else drawn.page),
                "across": across,
                "of": [of[p] for p in range(len(of))],
                "open": sorted(drawn.folding.open),
            }
        )

    async def events(self, request: Request) -> Response:
        layout, query = _layout(self._hub), request.query_params
        bars = _bars(query)
        closely = [_number(asked, "closely") for asked in query.getlist("closely") if asked]
        if len(closely) > _MOST_CLOSELY:
            raise HTTPException(400, f"at most {_MOST_CLOSELY} operators are observed closely")
        if strange := [each for each in closely if each >= len(layout.processors)]:
            raise HTTPException(404, f"there is no operator {strange[0]}")
        since = _number(query.get("since") or "0", "since")
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        self._site.check_room()
        drawn = await self._hub.drawn(*_folds(query))

        async def lines() -> AsyncIterator[bytes]:
            async for message in self._hub.stream(drawn, bars, closely, since):
                yield b"data: " + msgspec.json.encode(message) + b"\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def verdict(self, request: Request) -> Response:
        past = await self._at(request)
        if past is not None:
            return _json(past.verdict.as_json())
        await self._ask(OfJob())
        seen = self._hub.view.observation if self._hub.view is not None else None
        if seen is None:
            raise HTTPException(503, "no worker has joined yet")
        return _json(seen.told())

    async def timeline(self, request: Request) -> Response:
        since = _number(request.query_params.get("since") or "0", "since")
        past = await self._at(request)
        events = self._hub.events_after(since) if past is None else [e for e in past.events() if e["n"] > since]
        return _json({"events": events})

    async def charts(self, request: Request) -> Response:
        if (text := request.query_params.get("at")) is not None:
            at = _number(text, "at")
            since = at - 1000 * _CHART_SECONDS
            return _json({"points": await self._read(lambda archive: points_of(archive, since, at, _CHART_SECONDS))})
        return _json({"points": list(self._hub.points)})

    async def metrics(self, request: Request) -> Response:
        return Response(metrics(self._hub, time.time()), media_type=CONTENT_TYPE)

    # Moments of the past

    async def history(self, request: Request) -> Response:
        query = request.query_params
        since, until = (_number(query[name], name) if query.get(name) else None for name in ("since", "until"))
        return _json(await self._read(lambda archive: overview(archive, since, until)))

    async def moment(self, request: Request) -> Response:
        past = await self._moment(_number(request.query_params.get("at") or "", "at"))
        hub = await self._hub_at(past)
        bars = _bars(request.query_params)
        drawn = await hub.drawn(*_folds(request.query_params))
        reported = await asyncio.to_thread(past.as_json, drawn.folding, bars)
        return _json({**reported, "plan": hub.plan})

    async def compare(self, request: Request) -> Response:
        one, other = [
            await self._moment(_number(request.query_params.get(name) or "", name)) for name in ("at", "with")
        ]
        return _json(await asyncio.to_thread(comparison, one, other))

    async def epoch(self, request: Request) -> Response:
        epoch = _part(request, "epoch")
        return _json(await self._read(lambda archive: course_of(archive, epoch)))

    async def _at(self, request: Request) -> PastJob | None:
        """Job at the moment of the request; None: now."""
        text = request.query_params.get("at")
        return None if text is None else await self._moment(_number(text, "at"))

    async def _moment(self, at: int) -> PastJob:
        history = self._known_history()
        try:
            async with self._reading:
                return await asyncio.to_thread(history.at, at)
        except Gone as error:
            raise HTTPException(404, str(error)) from error

    async def _read(self, question: Callable[[Archive], _T]) -> _T:
        history = self._known_history()
        try:
            async with self._reading:
                return await asyncio.to_thread(history.read, question)
        except Gone as error:
            raise HTTPException(404, str(error)) from error

    def _known_history(self) -> History:
        if self._history is None:
            raise HTTPException(404, "this job has no history: it has no store")
        return self._history

    async def _hub_at(self, past: PastJob | None) -> Hub:
        """Drawings of the job as it was."""
        if past is None or past.layout == self._hub.layout:
            _layout(self._hub)
            return self._hub
        if self._earlier.layout != past.layout:
            self._earlier = Hub()
            self._earlier.know(past.layout)
        return self._earlier

    # One processor

    async def operator(self, request: Request) -> Response:
        return await self._answered(request, OfOperator(_part(request, "operator")))

    async def processor(self, request: Request) -> Response:
        return await self._answered(request, OfProcessor(_part(request, "operator"), _part(request, "worker")))

    async def why(self, request: Request) -> Response:
        operator, worker = _part(request, "operator"), _part(request, "worker")
        epoch = _number(asked, "epoch") if (asked := request.query_params.get("epoch")) else None
        if "at" in request.query_params:
            return await self._answered(request, Why(operator, worker, epoch))
        with self._hub.looking(operator):
            return _answer(await self._ask(Why(operator, worker, epoch)))

    async def spacetime(self, request: Request) -> Response:
        layout = _layout(self._hub)
        drawn = await self._hub.drawn(*_folds(request.query_params))
        processors = len(layout.processors) * layout.workers
        kept = msgspec.json.decode(await self._kept(OfTimes(), _TIMES_SECONDS), type=KeptTimes)
        again = max(_TIMES_SECONDS, processors / _SOLVED_A_SECOND)
        restart = msgspec.json.decode(await self._kept(OfRestart(), again), type=Restart)
        view = self._hub.view
        if view is None or len(kept.of) != processors or len(restart.of) not in (0, processors):
            raise HTTPException(503, "the job is another one now: ask again")
        return _json(space_time(view, drawn.folding, drawn.rows, kept, restart, self._hub.open_cuts))

    async def _kept(self, question: Question, seconds: float) -> bytes:
        """Shared answer to a question of all pages, at most so many seconds old."""
        now = asyncio.get_running_loop().time()
        since, task = self._asked.get(type(question), (now, None))
        if task is None or now - since >= seconds:
            task = asyncio.ensure_future(self._ask(question))
            self._asked[type(question)] = now, task
        try:
            return await asyncio.shield(task)
        except WrongQuestion:
            self._asked.pop(type(question), None)
            raise

    async def _answered(self, request: Request, question: Question) -> Response:
        past = await self._at(request)
        if past is None:
            return _answer(await self._ask(question))
        async with self._reading:
            return _answer(await asyncio.to_thread(past.answer, question))

    async def whatif(self, request: Request) -> Response:
        _must_be_json(request)
        try:
            failed = msgspec.json.decode(await _body(request), type=dict[str, list[str]])["failed"]
        except (msgspec.DecodeError, KeyError, RecursionError, UnicodeDecodeError) as error:
            raise HTTPException(400, 'ask {"failed": ["worker:1", "processor:NAME@1"]}') from error
        if len(failed) > _MOST_NAMES:
            raise HTTPException(400, f"ask for at most {_MOST_NAMES} names at a time")
        return await self._answered(request, WhatIf(tuple(failed)))

    async def policies(self, request: Request) -> Response:
        _must_be_json(request)
        try:
            policies = msgspec.json.decode(await _body(request), type=dict[str, dict[str, str]])["policies"]
        except (msgspec.DecodeError, KeyError, RecursionError, UnicodeDecodeError) as error:
            raise HTTPException(400, 'ask {"policies": {"REGION": "Batch(log_outputs=True)"}}') from error
        if not 0 < len(policies) <= _MOST_NAMES:
            raise HTTPException(400, f"ask for the policies of at least one region, and at most {_MOST_NAMES}")
        past = await self._at(request)
        if past is None:
            return _answer(await self._ask(IfPolicies(policies)))
        layout = msgspec.msgpack.decode(await self._ask(IfPolicies(policies, plan=True)), type=Layout)
        return _json(await asyncio.to_thread(past.compared, policies, layout))

    async def processes(self, request: Request) -> Response:
        return _answer(await self._ask(OfProcesses()))

    async def act(self, request: Request) -> Response:
        if not self._site.acts:
            raise HTTPException(403, _NO_TOKEN)
        _must_be_json(request)
        try:
            act = msgspec.json.decode(await _body(request), type=_Order)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise HTTPException(400, f'say {{"what": one of {", ".join(ACTS)}, "worker": 1}}') from error
        return _answer(await self._ask(Act(act.what, act.worker, act.copy)))


def _layout(hub: Hub) -> Layout:
    if hub.layout is None:
        raise HTTPException(503, "no worker has joined yet")
    return hub.layout


def _bars(query: QueryParams) -> str:
    bars = query.get("bars", BARS[0])
    if bars not in BARS:
        raise HTTPException(400, f"bars is one of {', '.join(BARS)}")
    return bars


async def _file(request: Request) -> Response:
    return _of_asset(request, request.path_params["name"])


def _of_asset(request: Request, name: str) -> Response:
    found = asset(name)
    if found is None:
        raise HTTPException(404, "there is no such file")
    headers = {"cache-control": _KEPT} if found.kept else {}
    if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, headers={**headers, "content-encoding": "gzip"}, media_type=found.type)
    return Response(found.content, headers=headers, media_type=found.type)


class _Order(msgspec.Struct):
    """Body of an order."""

    what: str
    worker: int = -1
    copy: int = 0


def _must_be_json(request: Request) -> None:
    """Refuse other types, as a form of another site could send them."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise HTTPException(415, "ask with application/json")


async def _body(request: Request) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > _MOST_ASKED:
                    raise HTTPException(413, "too long a question")
    except TimeoutError:
        raise HTTPException(408, "the question did not come to its end", {"connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400, "the question did not come to its end") from None
    return body


def _folds(query: QueryParams) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(query.getlist("open")), frozenset(query.getlist("close"))


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise HTTPException(400, f"{name} is a number, of at most {_MOST_DIGITS} digits")
    return int(text)


def _part(request: Request, name: str) -> int:
    """Number in the path."""
    return _number(request.path_params[name], name)


def _answer(data: bytes) -> Response:
    return Response(data, media_type="application/json")


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _refused(request: Request, error: HTTPException) -> Response:
    response = _json({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _wrong(request: Request, error: WrongQuestion) -> Response:
    return _json({"error": str(error)}, error.status)


async def _failed(request: Request, error: Exception) -> Response:
    return _json({"error": f"this cannot be answered: {type(error).__name__}: {error}"}, 500)


class _Guard:
    """Access check, and security headers on every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._token = access.token
        self._cookie = cookie_of(access.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = {name.decode().lower() for name, _ in message["headers"]}
                message["headers"] += [
                    (name.encode(), value.encode()) for name, value in _HEADERS.items() if name not in headers
                ]
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        request = Request(scope)
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        if origin is not None and _place(origin) != host.lower():
            return _json({"error": "asked by another site"}, 403)
        if not self._token:
            if _name(host) in LOOPBACK:
                return None
            return _json({"error": f"this page is at loopback only, not at {_name(host)!r}"}, 403)
        asked = request.query_params.get("token")
        if asked is not None and self._fits(asked):
            kept = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
            url = request.url.replace(query="").include_query_params(**dict(kept)) if kept else request.url.path
            response = RedirectResponse(str(url), 303)
            response.set_cookie(self._cookie, asked, httponly=True, samesite="strict")
            return response
        if self._fits(request.cookies.get(self._cookie, "")) or self._fits(_bearer(request.headers)):
            return None
        return _json({"error": "open the address that was printed, with its ?token=..."}, 401)

    def _fits(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())


def cookie_of(token: str) -> str:
    """Cookie name, distinct for each page.

    Browsers send the cookies of all ports of a host.
    """
    return f"falkirk-{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def _bearer(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else ""


def _name(host: str) -> str:
    """Host without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def _place(origin: str) -> str | None:
    """Network location of a request's origin; None if invalid."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
