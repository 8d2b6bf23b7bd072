"""Processes, settings and orders in a real browser: what is shown is what the system says, and what is ordered happens."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import ask, get, running
from tests.monitor.web.test_page import go, text_of

pytestmark = test_page.pytestmark

TOKEN = "only-for-this-test"
ROWS = "[...document.querySelectorAll('.processes tr[data-worker]')]"


def pids(tab: Tab) -> dict[int, int]:
    found = tab.run(f"{ROWS}.map((row) => [row.dataset.worker, row.children[1].textContent])")
    return {int(worker): int(pid) for worker, pid in found}


def test_processes_are_those_of_the_system_and_without_a_token_there_are_no_orders(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path) as (url, job):
        began = time.time()
        go(tab, url)
        tab.wait(f"{ROWS}.length === 2")
        assert pids(tab) == {worker: job.pids[worker] for worker in (0, 1)}
        for each in ask(url, "/api/processes")["processes"]:
            resident = int(Path(f"/proc/{each['pid']}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            assert abs(each["memory"] - resident) < 64 << 20
            assert abs(each["began"] - began) < 120
            assert each["cpu"] > 0
            assert each["host"] == os.uname().nodename
        settings = tab.run(text_of(".settings"))
        assert str(tmp_path / "store") in settings
        assert tab.run("document.querySelectorAll('[data-act]').length") == 0
        status, _, content = get(url, "/api/act", {"what": "stop"})
        assert (status, b"token" in content) == (403, True)
        assert ask(url, "/api/verdict")["state"] == "running"
        assert not tab.problems


def test_orders_are_confirmed_carried_out_and_answered_in_words(tab: Tab, tmp_path: Path) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    with running(tmp_path, token=TOKEN) as (url, job):
        go(tab, f"{url}?token={TOKEN}")
        tab.wait(f"{ROWS}.length === 2 && {text_of('#phase')} === 'running'")
        assert get(url, "/api/act", {"what": "stop"})[0] == 401
        assert get(url, "/api/act", {"what": "reboot"}, bearer)[0] == 400
        assert get(url, "/api/act", {"what": "restart", "worker": 9}, bearer)[0] == 404
        first = job.pids
        tab.run("document.querySelector('tr[data-worker=\"1\"] [data-act=restart]').click()")
        tab.wait("document.querySelector('#confirm')")
        assert job.pids == first
        tab.click("#confirm [data-keep=yes]")
        tab.wait(f"{text_of('#answer')}.includes('worker 1 is ended')")
        tab.wait(f"{text_of('#panel')}.includes('worker 1 was restarted from the page')")
        tab.wait(f"{ROWS}.length === 2 && {ROWS}[1].children[1].textContent !== '{first[1]}'")
        tab.wait(f"{text_of('#phase')} === 'running'")
        assert pids(tab) == {0: first[0], 1: job.pids[1]}
        assert not Path(f"/proc/{first[1]}").exists()
        tab.click("[data-act=checkpoint]")
        tab.click("#confirm [data-keep=no]")
        tab.click("[data-act=checkpoint]")
        tab.click("#confirm [data-keep=yes]")
        tab.wait(f"{text_of('#answer')}.includes('each group is cut')")
        tab.click("[data-act=stop]")
        tab.click("#confirm [data-keep=yes]")
        tab.wait(f"{text_of('#phase')}.startsWith('stopped by falkirk stop')")
