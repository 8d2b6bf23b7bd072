"""Pages for tests: of a job that runs, and of one that is made up; and what a page's server says."""

from __future__ import annotations

import http.client
import json
import select
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from monitor.web.app import Access
from runtime.page.address import open_page
from runtime.page.server import PageServer
from runtime.program import Program
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.supervisor import Job
from tests.monitor.web.standing import StandingJob
from tests.runtime.job_under_test import build
from tests.support.stores import beside


@contextmanager
def serving(job: StandingJob, token: str = "", moves: bool = True) -> Iterator[str]:
    """The address of a page of a made-up job, which moves while somebody looks."""
    with closing(open_page("made up", port=0)) as page:
        server = PageServer(page.listener, Access(token), page.title)
        server.know(job.layout)
        server.happened(job.events)
        server.publish(job.observe())
        over = threading.Event()

        def answer() -> None:
            while not over.is_set():
                select.select([server.wake], [], [], 0.1)
                server.answer(job)
                if moves and server.viewers:
                    server.publish(job.step())

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield page.url
        finally:
            over.set()
            thread.join()
            server.close()


@contextmanager
def running(
    folder: Path, workers: int = 2, monitor: Path | None = None, flow: Any = build, token: str = "", **args: Any
) -> Iterator[tuple[str, Job]]:
    """The address of the page of a job with real processes that goes on until the end of the block.

    `monitor`: of one that was started apart; `flow`: another program, with its arguments; `token`: of its page.
    """
    with closing(replace(open_page("words", port=0), token=token)) as page:
        if flow is build:
            args = {"records": 10**7, "per_second": 2000, **args}
        program = Program(flow=flow, args={"folder": str(folder), **args})
        job = Job(program, workers, folder / "store", on_note=lambda text: None, monitor=monitor, page=page)
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
        if problems:
            raise problems[0]


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
