"""Pages for tests: of a job that runs, and of one that is made up; and what a page's server says."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from monitor.web.questions import Question, WrongQuestion, answer
from runtime.page.address import open_page
from runtime.page.followed import JobAtRest
from runtime.page.server import serving as serving_page
from runtime.program import Program
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.supervisor import Job
from tests.monitor.web.standing import StandingJob
from tests.runtime.job_under_test import build
from tests.support.stores import beside


class MadeUp(JobAtRest):
    """A made-up job on a page, which moves while somebody looks."""

    def __init__(self, job: StandingJob, moves: bool) -> None:
        super().__init__("made-up", "made up", "/nowhere")
        self._job, self._moves = job, moves
        self.hub.know(job.layout)
        self.hub.happened(job.events)
        self.hub.publish(job.observe())

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self._moves and self.hub.viewers:
                self.hub.publish(self._job.step())

    async def _answer(self, question: Question) -> bytes:
        reported: asyncio.Future[bytes | WrongQuestion] = asyncio.get_running_loop().create_future()
        answer(self._job, question, reported.set_result, self.hub.publish)
        found = await reported
        if isinstance(found, WrongQuestion):
            raise found
        return found


@contextmanager
def serving(*jobs: StandingJob, token: str = "", moves: bool = True) -> Iterator[str]:
    """The address of a page of made-up jobs."""
    with serving_all(lambda: [MadeUp(job, moves) for job in jobs], token) as url:
        yield url


@contextmanager
def serving_all(make: Callable[[], Sequence[JobAtRest]], token: str = "") -> Iterator[str]:
    """The address of a page, of jobs that are made in its event loop."""
    with closing(open_page("made up", port=0)) as page:
        page = replace(page, token=token)
        ready, over = threading.Event(), threading.Event()

        async def serve() -> None:
            async with serving_page(make(), page):
                ready.set()
                await asyncio.to_thread(over.wait)

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            assert ready.wait(120)
            yield page.url
        finally:
            over.set()
            thread.join()


@contextmanager
def running(
    folder: Path,
    workers: int = 2,
    monitor: Path | None = None,
    flow: Any = build,
    token: str = "",
    mates: int = 0,
    **args: Any,
) -> Iterator[tuple[str, Job]]:
    """The address of the page of a job with real processes that goes on until the end of the block.

    `monitor`: of one that was started apart; `flow`: another program, with its arguments; `token`: of its page.
    """
    with closing(replace(open_page("words", port=0), token=token)) as page:
        if flow is build:
            args = {"records": 10**7, "per_second": 2000, **args}
        program = Program(flow=flow, args={"folder": str(folder), **args})
        how = {"monitor": monitor, "page": page, "mates": mates}
        job = Job(program, workers, folder / "store", on_note=lambda text: None, **how)
        problems: list[BaseException] = []

        def run() -> None:
            try:
                job.run()
            except JobStopped:
                pass
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield page.url, job
        finally:
            beside(folder / "store").stop_request.touch()
            thread.join()
            end_page(job)
        if problems:
            raise problems[0]


def page_of(job: Job) -> int | None:
    """The process of the page that was started with a job."""
    page = getattr(job._lead, "page", None)
    return None if page is None else page.pid


def end_page(job: Job) -> None:
    """End the page that was started with a job, which would go on for a while."""
    pid = page_of(job)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def get(
    url: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=120)
    with closing(connection):
        given = dict(headers or {})
        if body is not None:
            given.setdefault("content-type", "application/json")
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), given)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def ask(url: str, path: str, body: Any = None) -> Any:
    """The JSON that is answered."""
    status, _, content = get(url, path, body)
    assert status == 200, content
    return json.loads(content)


def when_ready(url: str, path: str, body: Any = None, seconds: float = 120.0) -> Any:
    """The same, as soon as there is an answer."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask(url, path, body)
        except (AssertionError, OSError, http.client.HTTPException):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextmanager
def streaming(url: str, path: str) -> Iterator[Iterator[Any]]:
    """The messages of a stream of events, as they come."""
    connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=120)
    with closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200

        def messages() -> Iterator[Any]:
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

        yield messages()
