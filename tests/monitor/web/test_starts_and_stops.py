"""The page at the start and at the stop of a job: a start is no rollback, and a stop prints no traceback; many tabs at once."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.programs import example_layout
from tests.monitor.web.serving import ask, running, serving, streaming, when_ready
from tests.monitor.web.standing import StandingJob
from tests.monitor.web.test_page import READY, go, text_of
from tests.support.processes import wait_for

PROGRAM = """
from falkirk import Dataflow, Rate

def build():
    flow = Dataflow("short")
    numbers = flow.source("numbers", Rate(lambda number: number, 500.0, 10**8, 10))
    numbers.map(lambda number: (number % 7, 1)).keyed().sum(name="sums").records().capture("out")
    return flow
"""


@pytest.mark.browser
@pytest.mark.skipif(test_page.find_browser() is None, reason="there is no Chromium: install the package chromium")
@pytest.mark.xdist_group("browser")
def test_a_start_is_said_to_be_one_and_no_rollback(tab: Tab, tmp_path: Path) -> None:
    """Also one that goes on from what is in the store."""
    for starts in (1, 2):
        with running(tmp_path) as (url, _):
            when_ready(url, "/api/processor/0/0")
            with streaming(url, "/api/events") as messages:
                next(message for message in messages if (message.get("totals") or {}).get("low", 0) > 3)
            go(tab, url)
            tab.wait(f"{text_of('#panel')}.includes('all workers run,')")
            said = tab.run(text_of("#panel"))
            assert said.count("all workers run,") == starts
            assert "after the failure" not in said
            events = [event for event in ask(url, "/api/timeline")["events"] if event["kind"] == "restored"]
            assert [event["start"] for event in events] == [True] * starts


@pytest.mark.check
def test_a_stop_with_pages_open_prints_no_traceback(tmp_path: Path) -> None:
    """Neither the job, its workers and monitor, nor the process of the page, while readers come and go."""
    (tmp_path / "app.py").write_text(PROGRAM)
    with ExitStack() as stack:
        job = stack.enter_context(_printing(tmp_path, "run", "app.py:build", "-w", "2", "--store", "store"))
        wait_for((tmp_path / "store").exists)
        page = stack.enter_context(_printing(tmp_path, "page", "store"))
        url = page.wait_for("http://")
        when_ready(url, "/api/processor/0/0")
        stopping = threading.Event()
        with ExitStack() as readers:
            for _ in range(4):
                next(readers.enter_context(streaming(url, "/api/events")))
            hungry = threading.Thread(target=_asks_on, args=(url, stopping))
            hungry.start()
            readers.callback(hungry.join)
            readers.callback(stopping.set)
            _falkirk(tmp_path, "stop", "store").wait(120)
            job.process.wait(120)
            wait_for(lambda: ask(url, "/api/verdict")["state"] == "stopped")
        page.process.send_signal(signal.SIGINT)
        page.process.wait(120)
        for each in (job, page):
            assert "Traceback" not in each.text, each.text
            assert "Errno" not in each.text, each.text


class _Printing:
    """A process, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)

    def wait_for(self, begin: str) -> str:
        """The first word that begins so."""
        wait_for(lambda: any(word.startswith(begin) for word in " ".join(self._lines).split()))
        return next(word for word in " ".join(self._lines).split() if word.startswith(begin))

    @property
    def text(self) -> str:
        """All that was printed, of a process that has ended."""
        self._reading.join(60)
        return "".join(self._lines)


def _falkirk(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "falkirk", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@contextmanager
def _printing(folder: Path, *words: str) -> Iterator[_Printing]:
    process = _falkirk(folder, *words)
    try:
        yield _Printing(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _asks_on(url: str, stopping: threading.Event) -> None:
    """Connections that come and go all the time."""
    while not stopping.wait(0.01):
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=10)
            connection.request("GET", "/api/verdict")
            connection.close()


@contextmanager
def tabs(tab: Tab, url: str, count: int) -> Iterator[list[Tab]]:
    """More tabs of the same browser at one address; the last is in front."""
    port = urlsplit(tab.address).netloc
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            made = tab.call("Target.createTarget", url=url)["targetId"]
            stack.callback(tab.call, "Target.closeTarget", targetId=made)
            with urlopen(f"http://{port}/json/list", timeout=60) as answer:
                known = {each["id"]: each["webSocketDebuggerUrl"] for each in json.load(answer)}
            one = Tab(known[made])
            stack.callback(one.close)
            found.append(one)
        yield found


@pytest.mark.browser
@pytest.mark.skipif(test_page.find_browser() is None, reason="there is no Chromium: install the package chromium")
@pytest.mark.xdist_group("browser")
def test_twelve_tabs_load_and_whichever_is_in_front_is_followed(tab: Tab) -> None:
    """A browser has six connections to a server: a seventh tab must not wait for one of them."""
    job = StandingJob(example_layout("mixed_policies"))
    with serving(job) as url, tabs(tab, url, 12) as opened:
        for number, one in enumerate(opened):
            one.call("Page.bringToFront")
            one.wait(READY)
            one.wait(f"{text_of('#phase')} === 'running'")
            newest = "document.querySelector('#totals dd') && document.querySelector('#totals').textContent"
            before = one.run(newest)
            one.wait(f"{newest} !== {json.dumps(before)}")
            assert not one.problems, (number, one.problems)
