"""Stacks, flame graph, output and errors of a job with real processes, in a real browser."""

from __future__ import annotations

import ctypes
import json
import re
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Lazy
from recovery.store.address import StoreAddress
from runtime.page.address import open_page
from runtime.page.followed import FollowedJob
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import ask, end_page, get, running, serving_all, when_ready
from tests.monitor.web.test_page import go, text_of
from timely.errors import FalkirkError
from timely.io import Rate

pytestmark = test_page.pytestmark

TOKEN = "only-for-this-test"
BEARER = {"authorization": f"Bearer {TOKEN}"}
CELLS = "[...document.querySelectorAll('#flames .cell')]"
LINES = "[...document.querySelectorAll('#output li')]"
PANEL = text_of("#panel")


def burn(n: int) -> int:
    """What takes the time of the job."""
    until = time.perf_counter() + 0.002
    while time.perf_counter() < until:
        n += 1
    return n


def hang(folder: Path) -> None:
    while not (folder / "go-on").exists():
        time.sleep(0.01)


def busy(folder: str) -> Dataflow:
    """Burns time at worker 0; files in `folder` make it hang, write, or die."""
    place = Path(folder)

    def work(i: int) -> int:
        for what in ("hang", "die", "say"):
            if (file := place / what).exists():
                file.unlink(missing_ok=True)
                print(f"it is {what} time")
                print(f"a warning about {what}", file=sys.stderr)
                if what == "hang":
                    hang(place)
                elif what == "die":
                    ctypes.string_at(0)
        return burn(i) and i

    flow = Dataflow("busy")
    with flow.region("all", Lazy(every=0.1)):
        numbers = flow.source("numbers", Rate(lambda i: i, 200, 10**6, epoch_every=10))
        numbers.map(work, name="work").key_by(lambda i: i % 7).count(name="count").capture("out")
    return flow


def press(tab: Tab, selector: str) -> None:
    """Click on what is found, wherever it is just then: tables above it grow."""
    tab.wait(f"document.querySelector({json.dumps(selector)})")
    tab.run(f"document.querySelector({json.dumps(selector)}).click()")


def place_of(url: str, operator: str) -> str:
    """The worker at which an operator is at work, by the samples."""
    while True:
        for each in when_ready(url, "/api/samples")["processes"]:
            if any(stack["root"] == operator for stack in each["stacks"]):
                return str(each["place"])
        time.sleep(0.1)


def test_stacks_of_a_worker_that_hangs_are_shown_behind_the_token(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path, flow=busy, token=TOKEN) as (url, job):
        go(tab, f"{url}?token={TOKEN}")
        tab.wait("document.querySelectorAll('[data-act=stacks]').length === 2")
        (tmp_path / "hang").touch()
        while (tmp_path / "hang").exists():
            time.sleep(0.05)
        tab.run("document.querySelector('tr[data-worker=\"0\"] [data-act=stacks]').click()")
        tab.wait(f"document.querySelector('#stacks') && {text_of('#stacks')}.includes(\"map 'work'\")")
        shown = tab.run(text_of("#stacks"))
        assert f"worker 0, process {job.pids[0]}: map 'work'" in shown
        assert re.search(r"hang \(web/test_processes_views.py:\d+\)", shown), shown
        (tmp_path / "go-on").touch()
        assert get(url, "/api/stacks/worker-1", {}, BEARER)[0] == 200
        assert get(url, "/api/stacks/worker-9", {}, BEARER)[0] == 503
        assert get(url, "/api/stacks/..%2F..%2Fetc", {}, BEARER)[0] in (404, 503)
        assert not tab.problems


def test_without_a_token_stacks_are_refused_in_words(tmp_path: Path) -> None:
    with running(tmp_path, flow=busy) as (url, _):
        place_of(url, "work")
        status, _, content = get(url, "/api/stacks/worker-0", {})
        assert (status, b"falkirk stacks" in content) == (403, True)


def test_the_flame_graph_has_operators_as_roots_zooms_finds_and_takes_keys(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path, flow=busy) as (url, _):
        place = place_of(url, "work")
        go(tab, url)
        press(tab, "[data-view=flames]")
        name = '(name) => document.querySelector(`#flames .cell[data-name="${name}"]`)'
        tab.wait(f"({name})('work') && ({name})('burn')")
        press(tab, "[data-keep=hold]")
        work = tab.run(f"({name})('work').title")
        assert re.match(r"work: [\d.]+ m?s, [\d.]+ %; operator", work), work
        own, roots = (
            f"{CELLS}.filter((c) => c.classList.contains('own'))",
            f"{CELLS}.filter((c) => c.ariaLevel === '2')",
        )
        assert "burn" in tab.run(f"{own}.map((c) => c.dataset.name)")
        wide = tab.run(f"({name})('burn').getBoundingClientRect().width")
        tab.run(f"({name})('burn').click()")
        tab.wait(f"({name})('burn').getBoundingClientRect().width > {wide}")
        assert tab.run("document.activeElement.dataset.name") == "burn"
        tab.key("ArrowUp")
        tab.wait("document.activeElement.dataset.name !== 'burn'")
        tab.key("ArrowDown")
        tab.wait("document.activeElement.dataset.name === 'burn'")
        tab.wait(f"{text_of('#flames .line')}.startsWith('burn')")
        press(tab, "[data-keep=whole]")
        tab.wait(f"{roots}.length >= 1 && ({name})('work')")
        tab.run("document.querySelector('#flames input[type=search]').focus()")
        for letter in "burn":
            tab.key(letter, letter)
        tab.wait(f"({name})('burn').classList.contains('found') && {text_of('#flames .bar')}.includes('% in “burn”')")
        tab.run("document.querySelector('#flames .cell').focus()")
        tab.key("Escape")
        tab.wait("document.querySelector('#flames').hidden && !location.hash.includes('view=')")
        go(tab, url, f"#view=flames&place={place}")
        tab.wait(f"({name})('burn')")
        assert tab.run("document.querySelector('#flames select').value") == place
        assert not tab.problems


def test_samples_are_of_the_operator_and_their_tree_adds_up(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path, flow=busy) as (url, _):
        place_of(url, "work")
        go(tab, url)
        found = tab.run(
            "(async () => { const { tree, cells, at_path, matching } = await import('./page/folded.js');"
            "const { processes } = await (await fetch('api/samples')).json();"
            "const sum = (n) => n.children.reduce((s, c) => s + c.milliseconds, 0);"
            "const all = tree(processes, true); const bad = [];"
            "const look = (n) => { if (sum(n) > n.milliseconds) bad.push(n.key); n.children.forEach(look) }; look(all);"
            "const given = processes.flatMap((p) => p.stacks).reduce((s, x) => s + x.milliseconds, 0);"
            "const drawn = cells(at_path(all, []));"
            "return { bad, given, all: all.milliseconds, roots: all.children.map((c) => c.key),"
            " over: drawn.filter((c) => c.left + c.wide > 1.0001).length, burn: matching(all, 'burn') } })()"
        )
        assert found["bad"] == []
        assert found["all"] == found["given"] > found["burn"] > 0
        assert "operator work" in found["roots"]
        assert found["over"] == 0
        assert not tab.problems


def test_output_is_followed_live_and_kept_of_a_job_that_has_ended(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path, flow=busy) as (url, job):
        place = place_of(url, "work")
        go(tab, url)
        press(tab, "[data-view=output]")
        (tmp_path / "say").touch()
        texts = f"{LINES}.map((line) => line.querySelector('.text').textContent)"
        tab.wait(f"{texts}.includes('it is say time') && {texts}.includes('a warning about say')")
        assert tab.run(f"{LINES}.find((line) => line.textContent.includes('warning')).className") == "of-e"
        tab.run("document.querySelector('#output input').focus()")
        for letter in "warn":
            tab.key(letter, letter)
        tab.wait(f"{LINES}.filter((line) => !line.hidden).length === 1")
        (tmp_path / "say").touch()  # followed: it is there without another click
        tab.wait(f"{LINES}.filter((line) => !line.hidden).length === 2")
        pid = job.pids[int(place.removeprefix("worker-"))]
        lines = ask(url, f"/api/logs/{place}")["lines"]
        assert {line["pid"] for line in lines if line["text"] == "it is say time"} == {pid}
        last = lines[-1]["n"]
        assert ask(url, f"/api/logs/{place}?since={last}")["lines"] == []
        assert get(url, "/api/logs/worker-77")[0] == 503
        assert get(url, f"/api/logs/{place}?since=-1")[0] == 400
        assert not tab.problems
    with serving_all(lambda: [FollowedJob(StoreAddress.of(tmp_path / "store"))]) as url:
        when_ready(url, "/api/job")
        go(tab, url, f"#view=output&place={place}")
        tab.wait(f"{texts}.filter((text) => text === 'it is say time').length === 2")
        tab.wait(f"{texts}.some((text) => text.startsWith('process {pid} ended'))")
        go(tab, url, "#view=flames")
        tab.wait(f"{text_of('#flames .line')}.includes('only while')")
        tab.problems[:] = [each for each in tab.problems if "503" not in each]
        assert not tab.problems


def test_the_card_of_a_dead_worker_has_its_last_words(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path, flow=busy) as (url, _):
        place = place_of(url, "work")
        go(tab, url)
        (tmp_path / "die").touch()
        tab.wait("document.querySelector('.rollbacks button')", 120)
        press(tab, ".rollbacks button")
        tab.wait("document.querySelector('#panel .words')")
        words = tab.run(text_of("#panel .words"))
        assert "a warning about die" in words
        assert "Fatal Python error: Segmentation fault" in words
        assert "test_processes_views.py" in words
        assert "was killed by SIGSEGV" in tab.run(PANEL)
        tab.run("document.querySelector('#panel [data-keep^=\"output of\"]').click()")
        texts = f"{LINES}.map((line) => line.querySelector('.text').textContent)"
        tab.wait(f"{texts}.some((text) => text.endsWith('was killed by SIGSEGV'))")
        assert f"place={place}" in tab.run("location.hash")
        (error,) = ask(url, "/api/errors")["errors"]
        assert (error["kind"], error["count"], error["workers"]) == ("failure", 1, [int(place[-1])])
        assert "Segmentation fault" in error["trace"]
        assert not tab.problems


def failing(folder: str) -> Dataflow:
    """Fails at its 100th record."""
    flow = Dataflow("fails")
    numbers = flow.source("numbers", Rate(lambda i: i, 500, 10_000, epoch_every=50))
    numbers.map(lambda i: 1 // (i - 100), name="divide").capture("out")
    return flow


@pytest.mark.check
def test_equal_errors_are_one_with_their_number_operator_line_and_traceback(tab: Tab, tmp_path: Path) -> None:
    def run(page: Any = None) -> Job:
        job = Job(Program(flow=failing, args={"folder": str(tmp_path)}), 1, tmp_path / "store", page=page)
        with suppress(FalkirkError):
            job.run()
        return job

    run()
    with closing(open_page("fails", port=0)) as page:
        jobs: list[Job] = []
        thread = threading.Thread(target=lambda: jobs.append(run(page)))
        thread.start()
        thread.join()
        go(tab, page.url)
        tab.wait("document.querySelector('#panel .error')")
        (error,) = ask(page.url, "/api/errors")["errors"]
        assert (error["count"], error["operator"], error["workers"]) == (2, "divide", [0])
        assert error["first"] < error["last"]
        line = next(
            number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "1 // (i - 100)" in text
        )
        assert error["line"].endswith(f"test_processes_views.py:{line}")
        shown = tab.run(text_of("#panel .error"))
        for words in ("2 times", "worker 0", "divide", f"web/test_processes_views.py:{line}"):
            assert words in shown, shown
        press(tab, "#panel .error [aria-expanded=false]")
        tab.wait(f"{text_of('#panel .error .trace')}.includes('ZeroDivisionError')")
        press(tab, "#panel .error .jump")
        tab.wait("location.hash.includes('sel=divide')")
        assert not tab.problems
        end_page(jobs[0])
