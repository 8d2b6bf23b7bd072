"""The page by HTTP: files, JSON, a stream of what changes, metrics. docs/page.md documents every address.

Reading only: nothing that is asked here changes the job. At loopback the `Host` of a request must be loopback too, so that no
other site can lead a browser here under a name of its own; elsewhere every request must carry the token.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitor.web.fold import Group
from monitor.web.hub import Hub
from monitor.web.metrics import CONTENT_TYPE, metrics
from monitor.web.questions import Ask, Questions, WrongQuestion
from monitor.web.view import BARS

PAGE = Path(__file__).with_name("page")
COOKIE = "falkirk-token"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_MOST_ASKED = 65_536


@dataclass(frozen=True, slots=True)
class Access:
    """Who may look: with `token`, whoever has it, from anywhere; without, whoever comes by a loopback name."""

    token: str = ""


def make_app(hub: Hub, ask: Ask, access: Access, title: str) -> Starlette:
    """The application. `ask(question)` answers a question about the job where the job's state is."""
    pages = _Pages(hub, ask, title)
    routes = [
        Route("/", pages.index),
        Route("/page/{name}", pages.file),
        Route("/api/job", pages.job),
        Route("/api/graph", pages.graph),
        Route("/api/events", pages.events),
        Route("/api/timeline", pages.timeline),
        Route("/api/charts", pages.charts),
        Route("/api/operator/{operator:int}", pages.operator),
        Route("/api/processor/{operator:int}/{worker:int}", pages.processor),
        Route("/api/why/{operator:int}/{worker:int}", pages.why),
        Route("/api/whatif", pages.whatif, methods=["POST"]),
        Route("/metrics", pages.metrics),
    ]
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: _refused,
        WrongQuestion: _wrong,
    }
    return Starlette(routes=routes, middleware=[Middleware(_Guard, access=access)], exception_handlers=handlers)


class _Pages:
    def __init__(self, hub: Hub, ask: Ask, title: str) -> None:
        self._hub = hub
        self._questions = Questions(ask)
        self._title = title

    # Files

    async def index(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def file(self, request: Request) -> Response:
        path = PAGE / request.path_params["name"]
        if path.parent != PAGE or path.suffix not in _TYPES or not path.is_file():
            raise HTTPException(404, "there is no such file")
        return FileResponse(path, media_type=_TYPES[path.suffix])

    # The job as a whole

    async def job(self, request: Request) -> Response:
        self._known()
        hub = self._hub
        layout, tree = hub.layout, hub.tree
        assert layout is not None
        assert tree is not None
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
                "tree": _tree(tree),
                "bars": BARS,
            }
        )

    async def graph(self, request: Request) -> Response:
        self._known()
        drawn = await self._hub.drawn(*_folds(request.query_params))
        of: dict[int, int] = {member: node for node, members in enumerate(drawn.folding.nodes) for member in members}
        return _json({**drawn.page, "of": [of[p] for p in range(len(of))], "open": sorted(drawn.folding.open)})

    async def events(self, request: Request) -> Response:
        self._known()
        query = request.query_params
        bars = query.get("bars", BARS[0])
        if bars not in BARS:
            raise HTTPException(400, f"bars is one of {', '.join(BARS)}")
        closely = _number(query, "closely")
        since = _number(query, "since") or 0
        drawn = await self._hub.drawn(*_folds(query))

        async def lines() -> AsyncIterator[bytes]:
            async for message in self._hub.stream(drawn, bars, closely, since):
                yield b"data: " + msgspec.json.encode(message) + b"\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def timeline(self, request: Request) -> Response:
        return _json({"events": self._hub.events_after(_number(request.query_params, "since") or 0)})

    async def charts(self, request: Request) -> Response:
        return _json({"points": list(self._hub.points)})

    async def metrics(self, request: Request) -> Response:
        return Response(metrics(await self._questions.observation(), self._hub), media_type=CONTENT_TYPE)

    # One processor

    async def operator(self, request: Request) -> Response:
        return _json(await self._questions.operator(request.path_params["operator"]))

    async def processor(self, request: Request) -> Response:
        return _json(await self._questions.processor(request.path_params["operator"], request.path_params["worker"]))

    async def why(self, request: Request) -> Response:
        with self._hub.looking(request.path_params["operator"]):
            return _json(await self._questions.why(request.path_params["operator"], request.path_params["worker"]))

    async def whatif(self, request: Request) -> Response:
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            raise HTTPException(415, "ask with application/json")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_ASKED:
                raise HTTPException(413, "too long a question")
        try:
            failed = msgspec.json.decode(body, type=dict[str, list[str]])["failed"]
        except (msgspec.DecodeError, KeyError) as error:
            raise HTTPException(400, 'ask {"failed": ["worker:1", "processor:NAME@1"]}') from error
        return _json(await self._questions.whatif(failed))

    def _known(self) -> None:
        if self._hub.layout is None:
            raise HTTPException(503, "no worker has joined yet")


def _tree(group: Group) -> dict[str, Any]:
    children = [_tree(child) if isinstance(child, Group) else child for child in group.children]
    return {"key": group.key, "label": group.label, "kind": group.kind, "children": children}


def _folds(query: QueryParams) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(query.getlist("open")), frozenset(query.getlist("close"))


def _number(query: QueryParams, name: str) -> int | None:
    text = query.get(name, "")
    if text and not text.isdecimal():
        raise HTTPException(400, f"{name} is a number")
    return int(text) if text else None


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _refused(request: Request, error: HTTPException) -> Response:
    return _json({"error": error.detail}, error.status_code)


async def _wrong(request: Request, error: WrongQuestion) -> Response:
    return _json({"error": str(error)}, error.status)


class _Guard:
    """Lets in whoever may look, and puts the headers on that keep a page to itself."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._token = access.token

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
        if origin is not None and urlsplit(origin).netloc != host:
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
            response.set_cookie(COOKIE, asked, httponly=True, samesite="strict")
            return response
        if self._fits(request.cookies.get(COOKIE, "")) or self._fits(_bearer(request.headers)):
            return None
        return _json({"error": "open the address that was printed, with its ?token=..."}, 401)

    def _fits(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())


def _bearer(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else ""


def _name(host: str) -> str:
    """A Host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
