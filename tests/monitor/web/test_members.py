"""Members of a fused chain in a real browser: found by name, drawn in their node, and the slow one is blamed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from libraries.columns.verbs.dataflow import Dataflow
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import ask, running, when_ready
from tests.monitor.web.test_page import go, text_of
from timely.io import Rate

pytestmark = test_page.pytestmark

LAST = "shout"


def chained(folder: str) -> Dataflow:
    """A chain of four, of which `rest` sleeps for a millisecond a record."""

    def rest(i: int) -> int:
        time.sleep(0.001)
        return i

    flow = Dataflow("chained")
    numbers = flow.source("numbers", Rate(lambda i: i, 200, 10**7, epoch_every=20))
    odd = numbers.map(lambda i: i + 1, name="next").map(rest, name="rest").filter(lambda i: i % 2, name="odd")
    odd.map(str, name=LAST).capture("out")
    return flow


def test_members_are_found_drawn_and_the_slow_one_is_named(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path, flow=chained) as (url, _):
        job = when_ready(url, "/api/job")
        (chain,) = (at for at, each in enumerate(job["operators"]) if each["members"])
        assert job["operators"][chain]["members"] == ["next", "rest", "odd", LAST]
        go(tab, url)
        tab.wait(f"{text_of('#phase')} === 'running'")
        tab.key("/", "/")
        for letter in "rest":
            tab.key(letter, letter)
        tab.wait(f"{text_of('#search li')} === 'restfused into {job['operators'][chain]['name']}'")
        tab.key("Enter")
        tab.wait("location.hash.includes('member=rest')")
        tab.wait("document.querySelectorAll('.node.chosen .member').length === 4")
        assert tab.run("document.querySelector('.node.chosen .member.marked').dataset.member") == "rest"
        tab.wait("document.querySelector('.node.chosen .member.slowest')?.dataset.member === 'rest'")
        tab.wait("document.querySelector('.members tr.slowest')?.dataset.member === 'rest'")
        tab.wait("/^rest.*[1-9].*%.*[1-9]%?.*×$/.test(document.querySelector('.members tr.slowest').textContent)")
        cells = tab.run("[...document.querySelector('.members tr.slowest').children].map((cell) => cell.textContent)")
        # Both workers read 100 a second; each rests for a millisecond a record, and a little more.
        assert int(cells[3].split()[0]) > 80
        tab.wait("Math.abs(document.querySelector('.members tr.slowest').children[2].textContent - 200) < 80")
        tab.wait("parseInt(document.querySelector('.members tr.slowest').children[4].textContent) >= 15")
        before = spent(ask(url, f"/api/operator/{chain}"))
        assert before["rest"][0] >= before["odd"][0] > before[LAST][0]
        assert before["rest"][1] >= 1000 * before["rest"][0]
        assert not tab.problems


def spent(answer: Any) -> dict[str, tuple[int, int]]:
    """Records taken and microseconds, by member, of all workers."""
    found: dict[str, tuple[int, int]] = {}
    for each in (member for worker in answer["workers"] for member in worker.get("members", [])):
        taken, busy = found.get(each["name"], (0, 0))
        found[each["name"]] = taken + each["taken"], busy + each["busy"]
    return found
