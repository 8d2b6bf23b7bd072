"""The page among those who mean no good: all that is asked has an answer in words, and no job suffers by it."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitor.web import bounded
from runtime.page.address import open_page
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.monitor.web.programs import example_layout
from tests.monitor.web.serving import ask, end_page, get, page_of, serving, streaming, when_ready
from tests.monitor.web.standing import StandingJob
from tests.runtime.job_under_test import GATE, build, check
from tests.support.beside import run_beside
from tests.support.processes import monitor_pid
from tests.support.profile import effort

ENDS_A_JOB = "/api/events?closely=18446744073709551616"
"""It once did."""

POST = b"POST /api/whatif HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

# Requests


def host(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


def reported(url: str, request: bytes, seconds: float = 20.0) -> bytes:
    """The answer to these bytes, up to the end of the connection or of the first event."""
    with socket.create_connection(host(url), timeout=seconds) as sock:
        found = b""
        with suppress(ConnectionError):
            sock.sendall(request)
            while data := sock.recv(1 << 16):
                found += data
                if b"text/event-stream" in found:
                    break
        return found


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with serving(StandingJob(example_layout("mixed_policies"))) as url:
        yield url


numbers = st.one_of(
    st.integers(-2, 12).map(str),
    st.sampled_from(
        ["18446744073709551616", "9223372036854775808", "1" * 5000, "1e9", "nan", "²", "٣", "0x1", "+1", " 1", "-0", ""]
    ),
)
texts = st.one_of(
    numbers, st.text(max_size=20), st.sampled_from(["circle", "busy", "../app.py", "index.html", "\0", "a" * 3000])
)
paths = st.one_of(
    st.builds("/api/operator/{}".format, texts),
    st.builds("/api/processor/{}/{}".format, texts, texts),
    st.builds("/api/why/{}/{}".format, texts, numbers),
    st.builds("/page/{}".format, texts),
    st.sampled_from(
        [
            "/",
            "/api/job",
            "/api/graph",
            "/api/events",
            "/api/timeline",
            "/api/charts",
            "/api/whatif",
            "/api/act",
            "/api/processes",
            "/metrics",
        ]
    ),
    st.text(max_size=20).map("/{}".format),
)
names = st.one_of(st.sampled_from(["open", "close", "bars", "closely", "since", "token"]), st.text(max_size=5))
queries = st.lists(st.tuples(names, texts), max_size=5)
headers = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "origin",
                "cookie",
                "authorization",
                "content-type",
                "content-length",
                "transfer-encoding",
                "range",
                "upgrade",
                "connection",
                "expect",
                "if-none-match",
                "accept-encoding",
                "x",
            ]
        ),
        st.one_of(
            st.sampled_from(
                [
                    "http://[",
                    "application/json",
                    "bytes=0-1,2-",
                    "bytes=9999999-",
                    "chunked",
                    "websocket",
                    "100-continue",
                    "Bearer \xff",
                    "falkirk-0=\xff;;=",
                    "0",
                    "-1",
                    "99999999999999999999",
                ]
            ),
            st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
        ),
    ),
    max_size=3,
)
methods = st.one_of(
    st.just("GET"), st.sampled_from(["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "X"])
)
bodies = st.one_of(
    st.just(b""),
    st.binary(max_size=30),
    st.recursive(
        st.one_of(
            st.none(),
            st.integers(),
            st.text(max_size=9),
            st.sampled_from(["worker:0", "worker:²", "worker:99", "count@²"]),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.one_of(st.just("failed"), st.text(max_size=4)), inner, max_size=3),
        ),
    ).map(lambda value: json.dumps(value).encode()),
    st.just(b"[" * 50_000),
    st.just(json.dumps({"failed": ["worker:0"] * 5000}).encode()),
)


@settings(max_examples=effort(100, 400, 4_000), deadline=None)
@given(methods, paths, queries, headers, bodies)
@example("GET", "/api/events", [("closely", "18446744073709551616")], [], b"")
@example("GET", "/api/timeline", [("since", "1" * 5000)], [], b"")
@example("GET", "/api/job", [], [("origin", "http://[")], b"")
@example("POST", "/api/whatif", [], [("content-type", "application/json")], b'{"failed": ["worker:\xc2\xb2"]}')
@example("POST", "/api/act", [], [("content-type", "application/json")], b'{"what": "restart", "worker": 1e99}')
@example("GET", "/page/" + "a" * 3000, [], [], b"")
@example("GET", "/api/processor/0/0/", [], [], b"")
def test_whatever_is_asked_is_answered_in_words(
    page: str, method: str, path: str, query: list[tuple[str, str]], given_headers: list[tuple[str, str]], body: bytes
) -> None:
    target = quote(path, safe="/") + "?" * bool(query) + "&".join(f"{quote(a)}={quote(b)}" for a, b in query)
    lines = [f"{method} {target} HTTP/1.1", f"host: {urlsplit(page).netloc}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in given_headers]
    if method == "POST" and not any(name in ("content-length", "transfer-encoding") for name, _ in given_headers):
        lines.append(f"content-length: {len(body)}")
    answer = reported(page, "\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    if not answer:
        assert any(name in ("content-length", "transfer-encoding", "expect") for name, _ in given_headers)
        return  # it waited for what did not come
    head, _, content = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert status in (100, 200, 206, 304, 400, 401, 403, 404, 405, 408, 413, 415, 416, 503), (status, content)
    if status == 503:
        assert b"no worker" in content
    if status >= 400 and b"application/json" in head and method != "HEAD":
        assert json.loads(content)["error"]
    assert ask(page, "/api/job")["name"]


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.binary(min_size=1, max_size=200),
        st.sampled_from(
            [
                b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9000 + b"\r\n",
                b"GET /" + b"a" * 200_000,
                POST + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
            ]
        ),
    )
)
def test_what_is_no_http_ends_its_connection(page: str, data: bytes) -> None:
    with socket.create_connection(host(page), timeout=120) as sock, suppress(OSError):  # it may be hung up on meanwhile
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass
    assert ask(page, "/api/job")["name"]


# Connections


def test_connections_are_never_more_than_the_most_and_the_idle_ones_make_room(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MOST_CONNECTIONS", 10)
    with ExitStack() as stack, streaming(page, "/api/events") as messages:
        next(messages)
        idle = [stack.enter_context(socket.create_connection(host(page), timeout=120)) for _ in range(100)]
        for _ in range(5):
            assert get(page, "/api/job")[0] == 200
        assert next(messages)  # who looks is not put out
        ended = 0
        for sock in idle[:80]:
            with suppress(ConnectionError):
                assert sock.recv(1) == b""
            ended += 1
        assert ended == 80


def test_who_takes_too_long_to_ask_is_hung_up_on(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "ASK_SECONDS", 0.4)
    monkeypatch.setattr("monitor.web.app.BODY_SECONDS", 0.4)

    def drip(sock: socket.socket, data: bytes) -> bytes:
        """The answer of somebody who is sent a byte at a time."""
        sock.settimeout(0.05)
        deadline = time.monotonic() + 120
        with suppress(ConnectionError):
            while time.monotonic() < deadline:
                with suppress(TimeoutError):
                    return sock.recv(1 << 16)
                sock.sendall(data[:1])
                data = data[1:] or b"x"
        return b""

    with socket.create_connection(host(page)) as silent, socket.create_connection(host(page)) as slow:
        assert drip(slow, b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 10_000) == b""
        silent.settimeout(120)
        assert silent.recv(1) == b""
    with socket.create_connection(host(page), timeout=120) as again:  # also for the second request
        again.sendall(b"GET /api/charts HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"]}"):
            answer += again.recv(1 << 16)
        assert drip(again, b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 10_000) == b""
    with socket.create_connection(host(page), timeout=120) as poster:
        poster.sendall(
            b"POST /api/whatif HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
        )
        assert b" 408 " in drip(poster, b"{" * 9000)


def test_who_does_not_take_what_is_sent_is_hung_up_on(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "STALL_SECONDS", 0.3)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with sock:
        sock.connect(host(page))
        sock.settimeout(120)
        for _ in range(400):  # requests without an end, and no answer is read
            try:
                sock.sendall(b"GET /api/graph HTTP/1.1\r\nhost: localhost\r\n\r\n")
            except OSError:
                break
            time.sleep(0.02)
        else:
            raise AssertionError("it was never hung up on")
    assert ask(page, "/api/job")["name"]


# A job


@contextmanager
def most_files(count: int) -> Iterator[None]:
    """Limit the open files of processes that are started inside to this many above this process's own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    mine = max(int(fd) for fd in os.listdir("/proc/self/fd"))  # the limit is one on numbers
    resource.setrlimit(resource.RLIMIT_NOFILE, (mine + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def page_pid(job: Job) -> int:
    """The process of its page."""
    while True:
        found = page_of(job)
        if found is not None:
            return found
        time.sleep(0.05)


def attack(url: str, over: threading.Event) -> None:
    """Everything at once, in a bounded number."""
    with ExitStack() as stack:

        def call(request: bytes = b"") -> None:
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            with suppress(OSError):
                sock.connect(host(url))
            if request:
                sock.setblocking(True)
                sock.settimeout(0.5)
                with suppress(OSError):
                    sock.sendall(request)

        for at in range(2000):
            call()
            if at % 100 == 0:
                call(b"GET /api/job HTTP/1.1\r\nhost: loc")
                call(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
                call(f"GET {ENDS_A_JOB} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                call(b"GET /" + b"a" * 100_000)
                call(POST + b"content-length: 99\r\n\r\n{")
                with suppress(OSError), socket.create_connection(host(url), timeout=0.5) as aborted:
                    aborted.sendall(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
            if over.is_set():
                return
        over.wait(1)


@pytest.mark.check
def test_a_job_whose_page_is_attacked_ends_with_the_right_answer(tmp_path: Path) -> None:
    notes: list[str] = []
    records = 3000
    with closing(open_page("words", port=0)) as door:
        program = Program(flow=build, args={"folder": str(tmp_path), "records": records, "gated": True})
        with most_files(120):
            job = Job(program, 2, tmp_path / "store", on_note=notes.append, page=door)
        before = os.listdir("/proc/self/fd")
        over = threading.Event()

        def strike() -> None:
            when_ready(door.url, "/api/job")
            monitor = monitor_pid(job)
            assert monitor is not None
            status, _, answer = get(door.url, ENDS_A_JOB)
            assert status == 400, answer
            files = len(os.listdir(f"/proc/{monitor}/fd"))
            attack(door.url, over)
            assert len(os.listdir(f"/proc/{monitor}/fd")) <= files + 2  # they are the page's, and not the monitor's
            when_ready(door.url, "/api/job")  # it has got over it
            first = page_pid(job)
            os.kill(first, signal.SIGKILL)
            assert when_ready(door.url, "/api/job")["name"] == "words"
            assert page_pid(job) != first
            assert monitor_pid(job) == monitor
            with streaming(door.url, "/api/events") as messages:
                next(message for message in messages if message.get("rows"))
            (tmp_path / GATE).touch()

        try:
            result = run_beside(job.run, strike)
        finally:
            over.set()
            end_page(job)
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 4
    check(tmp_path, records, result.captured("counts"))
    lost = [note for note in notes if any(word in note for word in ("killed", "failed", "ended", "hung"))]
    assert [note for note in lost if "page" not in note] == []  # a slow machine may be noted
    assert sum("was killed by SIGKILL" in note for note in notes) == 1


@pytest.mark.check
@pytest.mark.parametrize("who", ["monitor", "nobody"])
def test_a_page_that_is_looked_at_outlives_its_monitor_and_its_job(tmp_path: Path, who: str) -> None:
    with closing(open_page("words", port=0)) as door:
        program = Program(flow=build, args={"folder": str(tmp_path), "records": 1500, "gated": True})
        job = Job(program, 1, tmp_path / "store", on_note=lambda text: None, page=door)
        kinds: list[str] = []

        def strike() -> None:
            when_ready(door.url, "/api/job")
            first = page_pid(job)
            with streaming(door.url, "/api/events") as messages:
                next(messages)
                if who == "monitor":
                    pid = monitor_pid(job)
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
                (tmp_path / GATE).touch()
                for message in messages:
                    kinds.extend(event["kind"] for event in message.get("events", ()))
                    if not message.get("live", True):
                        break
            assert page_pid(job) == first

        run_beside(job.run, strike)
        assert kinds[-1] == "finished"
        assert kinds.count("monitor") == (who == "monitor")
        assert ask(door.url, "/api/verdict")["state"] == "ended"
        end_page(job)
