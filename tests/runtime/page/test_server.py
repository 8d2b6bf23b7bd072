"""The process of a page: of jobs that run, have ended, begin, and go on, in one list, whoever dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from falkirk.run_job import run
from recovery.store.address import StoreAddress
from runtime.page import server
from runtime.page.followed import FollowedJob
from runtime.page.launched import _started, standing_page
from runtime.program import Program
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job
from tests.monitor.web.serving import ask, get, serving_all, streaming, when_ready
from tests.runtime.job_under_test import build
from tests.support.processes import monitor_pid, wait_for
from tests.support.stores import beside as beside_store
from timely.errors import FalkirkError


def words(folder: Path, **args: Any) -> Program:
    folder.mkdir(exist_ok=True)
    return Program(flow=build, args={"folder": str(folder), **args})


def followed(*stores: Path) -> Callable[[], list[FollowedJob]]:
    return lambda: [FollowedJob(StoreAddress.of(store)) for store in stores]


@contextmanager
def beside(job: Job) -> Iterator[None]:
    """A job that runs in a thread, until it is stopped."""

    def body() -> None:
        with suppress(JobStopped, FalkirkError):
            job.run()

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield
    finally:
        stop_job(job._lead._store.address)  # type: ignore[attr-defined]
        thread.join()


def states(url: str) -> dict[str, Any]:
    return {Path(job["store"]).parent.name: job for job in ask(url, "/api/jobs")["jobs"]}


def state_of(job: dict[str, Any]) -> str | None:
    return job["verdict"]["state"] if job["verdict"] else None


def test_jobs_that_have_ended_run_and_have_yet_to_begin_are_one_list(tmp_path: Path) -> None:
    ended, lives, later = (tmp_path / name / "store" for name in ("ended", "lives", "later"))
    Job(words(ended.parent, records=500), 1, ended, on_note=lambda _: None).run()
    going = Job(words(lives.parent, records=10**7, per_second=2000), 1, lives, on_note=lambda _: None)
    later.parent.mkdir()
    with beside(going), serving_all(followed(ended, lives, later)) as url:
        wait_for(lambda: state_of(states(url)["lives"]) == "running" and state_of(states(url)["ended"]) == "ended")
        listed = states(url)
        assert listed["later"]["verdict"] is None
        assert listed["later"]["error"]
        assert listed["ended"]["live"] is False
        assert b"All jobs" in get(url, f"/job/{listed['lives']['key']}/")[2]
        status, headers, _ = get(url, f"/job/{listed['lives']['key']}")
        assert (status, headers["location"].endswith(f"/job/{listed['lives']['key']}/")) == (307, True)
        assert get(url, "/api/job")[0] == 404
        names = [each["name"] for each in ask(url, f"/job/{listed['ended']['key']}/api/job")["operators"]]
        assert "count" in names
        assert ask(url, f"/job/{listed['lives']['key']}/api/why/0/0")["rollback"]["text"]
        assert get(url, f"/job/{listed['ended']['key']}/api/processor/0/0")[0] == 200
        with beside(Job(words(later.parent, records=10**7, per_second=500), 1, later, on_note=lambda _: None)):
            wait_for(lambda: state_of(states(url)["later"]) == "running")
        wait_for(lambda: state_of(states(url)["later"]) == "stopped")
        key = listed["later"]["key"]
        with streaming(url, f"/job/{key}/api/events") as messages:
            next(message for message in messages if message.get("live") is False)
            with beside(Job(words(later.parent, records=10**7, per_second=500), 1, later, on_note=lambda _: None)):
                assert next(message for message in messages if message.get("live") is True)  # it goes on, in one stream
        events = [event["kind"] for event in ask(url, f"/job/{key}/api/timeline")["events"]]
        assert events.count("began") == 2


def test_two_pages_over_one_store_see_the_same_and_each_monitor(tmp_path: Path) -> None:
    job = Job(words(tmp_path, records=10**7, per_second=2000), 1, tmp_path / "store", on_note=lambda _: None)
    with ExitStack() as stack:
        stack.enter_context(beside(job))
        urls = [stack.enter_context(serving_all(followed(tmp_path / "store"))) for _ in range(2)]
        for url in urls:
            when_ready(url, "/api/processor/0/0")
        first = monitor_pid(job)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        for url in urls:
            with streaming(url, "/api/events") as messages:
                found: list[str] = []
                for message in messages:
                    found += [event["kind"] for event in message.get("events", ())]
                    if "monitor" in found and (message.get("totals") or {}).get("read"):
                        break


@pytest.mark.check
def test_a_supervisor_that_is_killed_leaves_the_page_with_a_job_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.runtime.page.test_server import words;"
        "from runtime.supervisor.supervisor import Job; folder = Path(sys.argv[1]);"
        "Job(words(folder, records=10**7, per_second=2000), 1, folder / 'store', on_note=lambda _: None).run()"
    )
    with serving_all(followed(tmp_path / "store")) as url:
        process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
        try:
            wait_for(lambda: state_of(*ask(url, "/api/jobs")["jobs"]) == "running")
        finally:
            process.kill()
            process.wait()
        wait_for(lambda: state_of(*ask(url, "/api/jobs")["jobs"]) == "killed")


@pytest.mark.check
def test_ui_starts_a_page_that_outlives_the_job_and_is_the_one_of_its_next_run(tmp_path: Path) -> None:
    notes: list[str] = []
    store = tmp_path / "store"
    for _ in range(2):
        run(words(tmp_path, records=300), 1, store=store, ui=True, on_note=notes.append)
    urls = [note.rpartition(" ")[2] for note in notes if note.startswith("the page of the job is at")]
    assert len(urls) == 2
    assert urls[0] == urls[1]
    wait_for(lambda: when_ready(urls[0], "/api/verdict")["state"] == "ended")
    for page in _started:
        page.kill()
        page.wait()
    assert standing_page(beside_store(store)) is None


def test_a_page_ends_by_itself_when_nobody_looks_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])
    asked = server.Asked(None)  # type: ignore[arg-type]
    now[0] = server.UNSEEN_SECONDS
    assert not asked.is_forgotten(live=False)
    assert not asked.is_forgotten(live=True)
    now[0] += server.UNSEEN_SECONDS
    assert not asked.is_forgotten(live=False)
    now[0] += 0.1
    assert asked.is_forgotten(live=False)
    asked._ever = True
    assert not asked.is_forgotten(live=False)
    now[0] += server.SEEN_SECONDS
    assert asked.is_forgotten(live=False)


def test_strangers_at_the_door_are_hung_up_on_and_the_job_never_notices(tmp_path: Path) -> None:
    notes: list[str] = []
    job = Job(words(tmp_path, records=10**7, per_second=2000), 1, tmp_path / "store", on_note=notes.append)
    with beside(job):
        door = beside_store(tmp_path / "store").page.read_text().removeprefix("unix:")
        pid = monitor_pid(job)
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\x05\x00\x00\x00hello"):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(60)
                sock.connect(door)
                sock.sendall(said)
                if said == b"\x05\x00\x00\x00hello":
                    while sock.recv(1 << 16):
                        pass
        with serving_all(followed(tmp_path / "store")) as url:
            when_ready(url, "/api/processor/0/0")
        assert monitor_pid(job) == pid
    assert not [note for note in notes if "monitor" in note]


def test_a_token_lets_in_to_all_jobs_and_no_cookie_is_that_of_another_page(tmp_path: Path) -> None:
    with serving_all(followed(tmp_path / "a", tmp_path / "b"), token="secret") as url:
        assert get(url, "/api/jobs")[0] == 401
        assert get(url, "/api/jobs", headers={"authorization": "Bearer secret"})[0] == 200
        assert get(url, "/api/jobs", headers={"authorization": "Bearer secret", "origin": "http://elsewhere"})[0] == 403
        status, headers, _ = get(url, "/?token=secret")
        assert status == 303
        with serving_all(followed(tmp_path / "a"), token="other") as second:
            _, others, _ = get(second, "/?token=other")
        assert headers["set-cookie"].split("=")[0] != others["set-cookie"].split("=")[0]
