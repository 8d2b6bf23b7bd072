"""A page that is asked without a socket: the application itself, in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import Message

from monitor.web.app import Access, History, Shown, make_app
from monitor.web.hub import Hub
from monitor.web.questions import Question, WrongQuestion, answer
from tests.monitor.web.standing import StandingJob


@dataclass(frozen=True)
class ReportedProgress:
    """An answer. `parts`: of a stream, as they came."""

    status: int
    headers: dict[str, str]
    parts: Sequence[bytes]

    @property
    def content(self) -> bytes:
        return b"".join(self.parts)

    @property
    def value(self) -> Any:
        """The JSON."""
        return json.loads(self.content)

    @property
    def messages(self) -> list[Any]:
        """The messages of a stream of events."""
        return [json.loads(part.removeprefix(b"data: ")) for part in self.parts if part]


class Page:
    """The page of a made-up job, or of one that no worker has joined yet. To be used in a running event loop."""

    def __init__(self, job: StandingJob | None, token: str = "", history: History | None = None) -> None:
        self.hub = Hub()
        self.job = job
        if job is not None:
            self.hub.know(job.layout)
            self.hub.publish(job.observe())
        self.app = make_app([Shown("made-up", "made up", "/nowhere", self.hub, self._ask, history)], Access(token))

    async def _ask(self, question: Question) -> bytes:
        assert self.job is not None
        replies: list[bytes | WrongQuestion] = []
        answer(self.job, question, replies.append, self.hub.publish)
        (reply,) = replies
        if isinstance(reply, WrongQuestion):
            raise reply
        return reply

    async def get(
        self, path: str, body: bytes = b"", method: str = "GET", parts: int = 1, moves: bool = False, **headers: str
    ) -> ReportedProgress:
        """The answer; of a stream the first `parts`, between which the job `moves`. `_` in the name of a header is "-"."""
        route, _, query = path.partition("?")
        given = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(route),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
            "server": ("localhost", 80),
        }
        begun: list[Message] = []
        found: list[bytes] = []
        over, asked = asyncio.Event(), [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if asked:
                return asked.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)
                return
            if not over.is_set():
                found.append(message.get("body", b""))
            if not message.get("more_body") or len(found) == parts:
                over.set()
            elif moves and self.job is not None:
                self.hub.publish(self.job.step())

        await self.app(scope, receive, send)
        return ReportedProgress(
            begun[0]["status"], {n.decode(): v.decode("latin-1") for n, v in begun[0]["headers"]}, found
        )


def ask(
    page: StandingJob | None, path: str, token: str = "", history: History | None = None, **more: Any
) -> ReportedProgress:
    """One question to a page of its own."""

    async def run() -> ReportedProgress:
        return await Page(page, token, history).get(path, **more)

    return asyncio.run(run())
