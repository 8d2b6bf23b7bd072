"""Questions to the page, and who may put them: the application without a socket, so that each question takes a millisecond."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from monitor.coordination.supervision import TimelineEvent
from monitor.web.app import cookie_of
from monitor.web.hub import Hub
from monitor.web.view import FIELDS
from tests.monitor.web.asked import Page, ReportedProgress, ask
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.standing import StandingJob

COOKIE = cookie_of("secret")


@pytest.mark.parametrize(
    ("host", "may"),
    [
        *((name, True) for name in ("localhost", "localhost:80", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:80")),
        *((name, True) for name in ("LOCALHOST", "LocalHost:80")),
        *((name, False) for name in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]:80", "")),
    ],
)
def test_only_loopback_names_are_answered_without_a_token(host: str, may: bool) -> None:
    """So that no site can lead a browser here under a name of its own."""
    reported = ask(StandingJob(wide_layout(10)), "/api/charts", host=host)
    assert reported.status == (200 if may else 403)
    if not may:
        name = "[::2]" if host.startswith("[") else host.partition(":")[0]
        assert reported.value == {"error": f"this page is at loopback only, not at {name!r}"}


def test_the_cookies_of_two_jobs_at_one_host_do_not_overwrite_each_other() -> None:
    one, other = (ask(StandingJob(wide_layout(10)), f"/?token={token}", token) for token in ("secret", "other"))
    names = {reported.headers["set-cookie"].partition("=")[0] for reported in (one, other)}
    assert len(names) == 2
    both = f"{COOKIE}=secret; {cookie_of('other')}=other"
    assert {
        ask(StandingJob(wide_layout(10)), "/api/job", token, cookie=both).status for token in ("secret", "other")
    } == {200}


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:80", 200),
        ("http://localhost", 403),
        ("http://evil.example", 403),
        ("http://[", 403),
        ("", 403),
    ],
)
@pytest.mark.parametrize("token", ["", "secret"])
def test_another_site_may_not_ask_whoever_looks(origin: str, status: int, token: str) -> None:
    job = StandingJob(wide_layout(10))
    reported = ask(job, "/api/charts", token, host="localhost:80", origin=origin, authorization=f"Bearer {token}")
    assert reported.status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic secret"}, 401),
        ({"cookie": f"{COOKIE}=wrong"}, 401),
        ({"authorization": "Bearer secret"}, 200),
        ({"authorization": "bearer secret"}, 200),
        ({"cookie": f"{COOKIE}=secret"}, 200),
        ({"cookie": f"{COOKIE}=secret", "authorization": "Bearer wrong"}, 200),
        ({"authorization": "Bearer secret", "host": "elsewhere.example"}, 200),
    ],
)
def test_with_a_token_whoever_has_it_may_look_from_anywhere(headers: dict[str, str], status: int) -> None:
    assert ask(StandingJob(wide_layout(10)), "/api/charts", "secret", **headers).status == status


@pytest.mark.parametrize(
    ("asked", "status", "leads_to"),
    [
        ("/?token=secret", 303, "/"),
        ("/api/graph?token=secret&close=circle", 303, "http://localhost/api/graph?close=circle"),
        ("/?token=wrong", 401, None),
        ("/?tokens=secret", 401, None),
    ],
)
def test_the_token_of_an_address_becomes_a_cookie(asked: str, status: int, leads_to: str | None) -> None:
    """It is not left in the address, nor given to scripts or to other sites."""
    reported = ask(StandingJob(wide_layout(10)), asked, "secret")
    assert (reported.status, reported.headers.get("location")) == (status, leads_to)
    cookie = reported.headers.get("set-cookie", "").lower()
    assert (f"{COOKIE}=secret" in cookie) == ("httponly" in cookie) == ("samesite=strict" in cookie) == (status == 303)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        ("0", 200),
        ("9", 200),
        ("10", 404),
        ("9" * 15, 404),
        ("9" * 16, 400),
        ("x", 400),
        ("-1", 400),
        ("1e0", 400),
        ("٣", 400),
        ("²", 400),
    ],
)
def test_a_number_is_one_that_the_page_can_write_and_names_an_operator_that_is_there(number: str, status: int) -> None:
    job = StandingJob(wide_layout(10))
    for path in (f"/api/operator/{number}", f"/api/processor/{number}/1", f"/api/why/{number}/1"):
        assert ask(job, path).status == status
    assert ask(job, f"/api/events?closely={number}", method="HEAD").status == status
    if status == 400:
        assert ask(job, f"/api/timeline?since={number}").value == {"error": "since is a number, of at most 15 digits"}


def test_who_asks_for_no_operator_and_no_event_in_particular_gets_what_there_is() -> None:
    job = StandingJob(wide_layout(10))
    assert ask(job, "/api/events?closely=&since=", method="HEAD").status == 200
    assert ask(job, "/api/timeline?since=").value == {"events": []}


@pytest.mark.parametrize("path", ["/api/job", "/api/graph", "/api/events"])
def test_before_a_worker_has_joined_there_is_nothing_to_show(path: str) -> None:
    reported = ask(None, path)
    assert (reported.status, reported.value) == (503, {"error": "no worker has joined yet"})


def test_each_operator_stands_in_one_place_of_the_tree_of_groups() -> None:
    layout = example_layout("mixed_policies")
    job = ask(StandingJob(layout), "/api/job").value

    def operators(group: Any) -> list[int]:
        return [p for child in group["children"] for p in ([child] if isinstance(child, int) else operators(child))]

    assert sorted(operators(job["tree"])) == list(range(len(layout.processors)))
    assert (job["title"], job["workers"]) == ("made up", layout.workers)
    assert any(isinstance(child, dict) and child["key"] == "circle" for child in job["tree"]["children"])


def test_whoever_looks_is_counted_as_long_as_he_does() -> None:
    """Then workers tell more; also of the operators that are looked at closely."""
    looked: list[tuple[int, list[int]]] = []
    hub = Hub(looked=lambda: looked.append((hub.viewers, sorted(hub.closely.values()))))
    with hub.looking(), hub.looking(3):
        pass
    assert looked == [(1, []), (2, [3]), (1, []), (0, [])]


def test_half_of_all_connections_may_look_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.web.app.most_connections", lambda: 2)

    async def run() -> list[int]:
        page = Page(StandingJob(wide_layout(10)))
        one = asyncio.create_task(page.get("/api/events", parts=2))
        while not page.hub.viewers:
            await asyncio.sleep(0)
        other = await page.get("/api/events")
        page.hub.publish(page.job.step() if page.job else None)  # type: ignore[arg-type]
        return [(await one).status, other.status, (await page.get("/api/events")).status]

    assert asyncio.run(run()) == [200, 503, 200]


def test_a_stream_tells_what_has_changed_and_what_has_happened() -> None:
    """Everything at first; then rows that differ, workers when they do, and each event once."""

    async def run() -> ReportedProgress:
        page = Page(StandingJob(example_layout("flights")))
        page.hub.happened([TimelineEvent("cut", 1.0, {}), TimelineEvent("failure", 2.0, {"worker": 1})])
        return await page.get("/api/events?since=1&bars=lag", parts=3, moves=True)

    first, second, third = asyncio.run(run()).messages
    assert first["fields"] == list(FIELDS)
    assert [event["n"] for event in first["events"]] == [2]
    assert first["events"][0] == {"n": 2, "kind": "failure", "at": 2.0, "routine": False, "worker": 1}
    assert second["rows"]
    assert third["at"] > second["at"] > first["at"]
    assert not {"fields", "events"} & (second.keys() | third.keys())
