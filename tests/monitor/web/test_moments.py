"""Moments of the past in a real browser: of a real job that was stuck, lost a worker, and ended; linked and compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from recovery.store import StoreAddress
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import open_page
from runtime.program import Program
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import ask, get
from tests.monitor.web.test_page import READY, go, text_of
from tests.monitor.web.test_states import hanging

# `call-service` is fused into `last`: the verdict names the function, the drawing the operator that runs it.
pytestmark = test_page.pytestmark

PHASE = text_of("#phase")
THEN = text_of("#then")


@contextmanager
def hung(folder: Path) -> Iterator[tuple[str, Job, Path]]:
    """The address of a job that hangs at a record until there is a file."""
    gate = folder / "gate"
    with closing(open_page("hanging", port=0)) as page:
        program = Program(flow=hanging, args={"gate": str(gate), "fail": False})
        job = Job(program, 2, folder / "store", on_note=lambda _: None, heartbeat_timeout=1.0, page=page)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                job.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield page.url, job, gate
        finally:
            gate.touch()
            stop_job(folder / "store")
            thread.join()
        assert [type(error) for error in errors] == [JobStopped]


@contextmanager
def inspected(store: Path) -> Iterator[str]:
    """The address of the page of a job that has ended, from `falkirk inspect`."""
    command = [sys.executable, "-m", "falkirk", "inspect", str(store), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http://" in line)
        yield next(word for word in line.replace(";", " ").split() if word.startswith("http://"))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def moment(url: str, at: float) -> Any:
    return ask(url, f"/api/moment?at={round(1000 * at)}")


def test_the_past_of_a_real_job_is_seen_while_it_runs_and_when_it_has_ended(tab: Tab, tmp_path: Path) -> None:
    with hung(tmp_path) as (url, job, gate):
        tab.go(url)
        tab.wait(READY, 120)
        tab.wait(f"/^stuck for [0-9]+ s in call-service@[01]/.test({PHASE})", 60)
        time.sleep(2.5)  # seconds of it are recorded
        stuck = time.time() - 1.2
        gate.touch()
        tab.wait(f"{PHASE} === 'running'", 60)
        os.kill(job.pids[1], signal.SIGKILL)
        tab.wait("document.querySelector('.rollbacks button')", 60)
        tab.wait(f"{PHASE} === 'running'", 60)
        tab.wait("document.querySelectorAll('#moments .mark.bad').length >= 2", 30)
        # Its own past, while it runs.
        look(tab, url, stuck, full=True)
        worker = moment(url, stuck)["verdict"]["worker"]
        tab.run(f"location.hash = 'at={round(1000 * stuck)}&sel=last&worker={worker}'")
        tab.wait(f"{text_of('#panel')}.includes('Rollback frontier')", 30)
        assert "The job was held by 'last'." in tab.run(text_of("#panel"))
        tab.click("#now")
        tab.wait(f"{PHASE} === 'running' && !location.hash.includes('at=')", 30)
        assert not tab.problems
    with inspected(tmp_path / "store") as url:
        what_held_it(tab, url, stuck)
        what_held_an_epoch(tab, url, stuck)
        what_was_lost(tab, url)
        two_moments(tab, url, stuck)
        damaged(tab, url, tmp_path / "store", stuck)


def look(tab: Tab, url: str, at: float, full: bool) -> None:
    """The verdict of then, and what held the job, by a link."""
    go(tab, url, f"#at={round(1000 * at)}")
    tab.wait(f"/^stuck for [0-9]+ s in call-service@[01], waiting for map 'call-service'/.test({PHASE})", 30)
    tab.wait(f"{THEN}.includes('Held by: last')", 30)
    assert tab.run("[...document.querySelectorAll('.node.stuck')].map((n) => n.dataset.name)") == ["last"]
    assert moment(url, at)["full"] == full
    zone = tab.run(f"new Date({round(1000 * at)}).toLocaleString('en-GB', {{timeZoneName: 'short'}}).split(' ').at(-1)")
    assert zone in tab.run(THEN)


def what_held_it(tab: Tab, url: str, at: float) -> None:
    """What held the job at that time: chosen by keys."""
    go(tab, url)
    tab.wait("!document.querySelector('#scrubber').disabled")
    tab.wait(f"{PHASE} === 'stopped by falkirk stop'")
    while not tab.run("location.hash.includes('at=')"):  # until it is there for good, a key may come too early
        tab.run("document.querySelector('#scrubber').focus()")
        tab.key("ArrowLeft")
        time.sleep(0.2)
    time.sleep(0.5)
    there = tab.run("document.querySelector('#scrubber').value")
    tab.key("ArrowLeft")
    tab.wait(f"location.hash.includes('at=') && Number(document.querySelector('#scrubber').value) < {there}")
    assert tab.run("document.querySelector('#scrubber').getAttribute('aria-valuetext')").startswith(
        tab.run("document.querySelector('#then b').textContent")[:8]
    )
    clock = tab.run(f"new Date({round(1000 * at)}).toLocaleTimeString('en-GB')")
    tab.run(f"document.querySelector('#go').value = {json.dumps(clock)}; document.querySelector('#go').focus()")
    tab.key("Enter")
    tab.wait(f"/^stuck for [0-9]+ s in call-service/.test({PHASE})", 30)
    tab.wait(f"{THEN}.includes('Held by: last')", 30)
    tab.click("#then .jump")
    tab.wait(f"{text_of('#panel h2')} === 'last'")
    tab.click("#ask")
    tab.wait("document.querySelectorAll('#panel .chip').length === 2")
    tab.run("document.querySelectorAll('#panel .chip')[1].click()")
    tab.wait(f"{text_of('#panel')}.includes('Of a moment of the past only the options are recorded')", 30)
    tab.key("Escape")
    assert not tab.problems


def what_held_an_epoch(tab: Tab, url: str, at: float) -> None:
    open_epoch = moment(url, at)["totals"]["open"]
    go(tab, url)
    tab.run(f"document.querySelector('#go').value = 'epoch {open_epoch}'; document.querySelector('#go').focus()")
    tab.key("Enter")
    tab.wait("document.querySelector('#held')", 30)
    assert tab.run(text_of("#held td")) == "last"
    assert int(tab.run(text_of("#held td:last-child")).split()[0]) >= 3
    assert "not yet" not in tab.run(text_of("#course"))
    assert not tab.problems


def what_was_lost(tab: Tab, url: str) -> None:
    """By the marks: the last failure, and from there the card of its rollback."""
    go(tab, url)
    tab.wait("document.querySelectorAll('#moments .mark.bad').length >= 2")
    marks = ask(url, "/api/history")["marks"]
    visited = []
    for _ in range(len(marks) - 1):
        before = tab.run("document.querySelector('#moments').dataset.at ?? ''")
        tab.click("#before")
        tab.wait(f"![{json.dumps(before)}, ''].includes(document.querySelector('#moments').dataset.at ?? '')", 30)
        visited.append(tab.run(PHASE))
        if "worker 1 failed" in visited[-1]:
            break
    assert "worker 1 failed" in visited[-1], (visited, marks)
    tab.click("#after")
    tab.wait("document.querySelector('.rollbacks button')", 30)
    tab.click(".rollbacks button")
    tab.wait(f"{text_of('#panel')}.includes('was killed by SIGKILL')")
    assert "records of the living done again" in tab.run(text_of("#panel"))
    assert not tab.problems


def two_moments(tab: Tab, url: str, at: float) -> None:
    later = ask(url, "/api/history")["last"]
    go(tab, url, f"#at={later}&with={round(1000 * at)}")
    tab.wait("document.querySelector('#moments-operators')", 30)
    rows = tab.run(
        "[...document.querySelectorAll('#moments-operators tr')].map((r) => [...r.children].map((c) => c.textContent))"
    )
    shown = {row[0]: row[1:] for row in rows[1:]}
    found = ask(url, f"/api/compare?at={round(1000 * at)}&with={later}")
    names = [operator["name"] for operator in ask(url, "/api/job")["operators"]]
    before, after = found["operators"][names.index("last")]
    assert shown["last"][0] == f"{before[0]:,} → {after[0]:,}"
    assert tab.run(text_of(".node[data-name='last'] .verdict text")).startswith(f"▸ +{after[0] - before[0]:,}")
    tab.click("#compare")
    tab.wait("!location.hash.includes('with=')")
    tab.wait("!document.querySelector('#moments-operators')")
    assert not tab.problems


def damaged(tab: Tab, url: str, store: Path, at: float) -> None:
    """A moment before the history, and a damaged file: a sentence each."""
    status, _, body = get(url, "/api/moment?at=1000")
    assert (status, json.loads(body)) == (404, {"error": "that moment is gone: the history of the job begins later"})
    go(tab, url, "#at=1000")
    tab.wait(f"{THEN}.includes('that moment is gone: the history of the job begins later: shown is the present')")
    tab.wait(f"{PHASE} === 'stopped by falkirk stop'")
    tab.problems.clear()  # the browser notes the answer 404
    for path in StoreFolder(StoreAddress.of(store)).history.glob("[np]*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    go(tab, url)
    tab.wait(f"{THEN}.includes('The history is damaged')")
    assert any("damaged" in each for each in ask(url, "/api/history")["problems"])
