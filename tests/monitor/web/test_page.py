"""The page in a real browser: it shows what the monitor says, follows its reader, and outlives the monitor."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import closing, suppress
from dataclasses import replace as replace_shown
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from recovery.metadata import at_epoch
from recovery.protocol import Working
from runtime.page.address import open_page
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.monitor.web.browser import Tab, find_browser
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.serving import MadeUp, ask, end_page, running, serving, serving_all
from tests.monitor.web.standing import StandingJob
from tests.monitor.web.test_app import failing
from tests.support.processes import monitor_pid
from timely.errors import FalkirkError

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_browser() is None, reason="there is no Chromium: install the package chromium"),
    pytest.mark.xdist_group("browser"),
]

READY = "document.documentElement.dataset.ready === 'yes'"
NODES = "document.querySelectorAll('.node').length"


def go(tab: Tab, url: str, fragment: str = "") -> None:
    tab.go("about:blank")
    tab.problems.clear()
    tab.requested.clear()
    tab.go(url + fragment)
    tab.wait(READY)


def node(name: str) -> str:
    return f".node[data-name={json.dumps(name)}]"


def text_of(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).textContent"


def test_the_graph_appears_updates_folds_and_is_found_again_by_its_address(tab: Tab) -> None:
    layout = example_layout("flights", workers=4)
    with serving(StandingJob(layout)) as url:
        go(tab, url)
        assert tab.run(NODES) == len(layout.processors)
        assert tab.run("document.querySelectorAll('.box').length") == 2
        tab.wait(f"{text_of(node('by-carrier') + ' .figures')}.includes('▸')")
        before = tab.run(text_of(node("by-carrier") + " .figures"))
        tab.wait(f"{text_of(node('by-carrier') + ' .figures')} !== {json.dumps(before)}")
        bars = node("by-carrier") + " .workers"
        tab.wait(f"document.querySelector({json.dumps(bars)}).getAttribute('d')")  # none where all workers are least
        inside = sum(info.scope == ("hand-on",) for info in layout.processors)
        tab.run("document.querySelector('.box .fold').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        tab.wait(f"{NODES} === {len(layout.processors) - inside + 1}")
        tab.wait("location.hash.includes('close=hand-on')")
        address = tab.run("location.href")
        tab.go("about:blank")
        tab.go(address)
        tab.wait(f"{READY} && {NODES} === {len(layout.processors) - inside + 1}")
        twice = "dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))"
        tab.run(f"document.querySelector({json.dumps(node('hand-on'))}).{twice}")
        tab.wait(f"{NODES} === {len(layout.processors)}")
        assert not tab.problems
        place = urlsplit(url).netloc
        assert all(urlsplit(each).netloc in (place, "") for each in tab.requested), tab.requested


def test_keys_search_and_colours(tab: Tab) -> None:
    layout = example_layout("flights")
    with serving(StandingJob(layout)) as url:
        go(tab, url)
        tab.wait("document.querySelectorAll('#promises tr').length === 6")
        tab.key("/", "/")
        for letter in "by-carr":
            tab.key(letter, letter)
        tab.wait("document.querySelectorAll('#search li').length === 1")
        tab.key("Enter")
        tab.wait("location.hash.includes('sel=by-carrier')")
        tab.wait(f"{text_of('#panel h2')} === 'by-carrier'")
        tab.key("ArrowDown")
        tab.wait("location.hash.includes('sel=carriers')")
        tab.wait(f"{text_of('#panel')}.includes('precise if one process fails, gap if any number do')")
        tab.wait(f"{text_of('#panel .because')}.includes('To mend it, write to a sink that is exactly once')")
        tab.key("Enter")
        tab.wait("location.hash.includes('worker=0')")
        tab.wait("document.querySelector('#panel').textContent.includes('F*(p)')")
        assert tab.run("document.documentElement.dataset.theme") == "light"
        tab.key("d", "d")
        tab.wait("document.documentElement.dataset.theme === 'dark'")
        tab.key("Escape")
        tab.wait("!location.hash.includes('sel=')")
        scale = "document.querySelector('#camera').getAttribute('transform')"
        before = tab.run(scale)
        tab.key("+", "+")
        tab.wait(f"{scale} !== {json.dumps(before)}")
        assert not tab.problems


@pytest.mark.check
def test_a_thousand_operators_on_64_workers_are_folded_and_still_update(tab: Tab) -> None:
    with serving(StandingJob(wide_layout(1000, workers=64))) as url:
        go(tab, url)
        assert 20 < tab.run(NODES) <= 150
        progress = "document.querySelectorAll('.node:not(.small) .figures tspan')[2].textContent"
        tab.wait(f"{progress}.includes('▸')")
        before = tab.run(progress)
        tab.wait(f"{progress} !== {json.dumps(before)}")
        assert not tab.problems


def test_what_if_shows_what_the_solver_answers(tab: Tab) -> None:
    layout = example_layout("mixed_policies")
    job = StandingJob(layout)
    for flat in range(job.options.topology.count):
        info = job.options.topology.info(flat)
        if info.chain:
            ports = job.options.topology.outgoing[flat // layout.workers]
            bound = at_epoch(5 + info.group, info.depth)
            job.options.chains[flat] = [(bound, tuple((0,) if layout.edges[e].logged else bound for e in ports))]
    for worker in range(layout.workers):
        job.options.complete(worker, tuple((5 + group,) for group in range(len(layout.groups))))
    job.tell(epoch=4, kept_messages=3, kept_bytes=2048, kept_from=1)
    with serving(job, moves=False) as url:
        answer = ask(url, "/api/whatif", {"failed": ["worker:1"]})
        least: dict[str, Any] = {}
        for each in answer["processors"]:
            name = layout.processors[each["operator"]].name
            least[name] = min(least.get(name, each["to"]), each["to"])
        go(tab, url, "#sel=lines&worker=1")
        one = "kept of what exchanges sent2 KiB, 3 messages, all from epoch 1 on"
        tab.wait(f"{text_of('#panel')}.includes({json.dumps(one)})")
        go(tab, url)
        size = 2 * len(layout.processors) * layout.workers
        kept = f"kept for survivors{size} KiB, 75 % of the epochs since the last cut"
        tab.wait(f"{text_of('#panel')}.includes({json.dumps(kept)})")
        tab.click("#ask")
        tab.wait("document.querySelectorAll('#panel .chip').length === 2")
        tab.run("document.querySelectorAll('#panel .chip')[1].click()")
        tab.wait("document.querySelector('#panel .big')")
        rolled = len(answer["processors"])
        assert tab.run(text_of("#panel .big b")) == f"{rolled} of {rolled}"
        shown = tab.run(
            "Object.fromEntries([...document.querySelectorAll('.node')].map("
            "(n) => [n.dataset.name, n.querySelector('.verdict text').textContent]))"
        )
        assert {bound[0] for bound in least.values()} - {0}, "all at nothing would show nothing"
        for name, bound in least.items():
            assert shown[name] == f"↺ {bound[0] or '∅'}"
        assert "ask=worker%3A1" in tab.run("location.hash")
        tab.key("Escape")
        tab.wait("!document.querySelector('#graph').classList.contains('asking')")
        assert not tab.problems


def test_what_is_done_for_an_operator_is_shown_with_it(tab: Tab) -> None:
    layout = example_layout("mixed_policies")
    job = StandingJob(layout)
    lines = next(p for p, info in enumerate(layout.processors) if info.name == "lines")
    job.tell(epoch=4)
    at, reported = job.samples[1]
    query = "waits for new input; the last batch had 250 input rows"
    working = Working(lines, 12, query, 0, 0, 3.2), Working(lines, 13, "Spark: task", 3, 8, 1.0)
    job.samples[1] = at, replace(reported, working=working)
    with serving(job, moves=False) as url:
        go(tab, url, "#sel=lines")
        tab.wait("document.querySelectorAll('#panel table.working tr').length === 2")
        rows = tab.run("[...document.querySelectorAll('#panel table.working tr')].map((row) => row.textContent)")
        assert rows == [f"worker 1epoch 12{query}3 s", "worker 1epoch 13Spark: task 3 of 81 s"]
        go(tab, url, "#sel=parse")
        tab.wait(f"{text_of('#panel')}.includes('On each worker')")
        assert tab.run("document.querySelectorAll('#panel table.working').length") == 0
        assert not tab.problems


WATCHED = """
    window.seen = [];
    new MutationObserver(() => seen.push(document.body.className + document.querySelector('#banner').hidden))
        .observe(document.body, {attributes: true, subtree: true, attributeFilter: ['class', 'hidden']})
"""


@pytest.mark.check
def test_a_browser_never_notices_that_a_monitor_is_replaced_but_sees_one_that_hangs(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path) as (url, job):
        go(tab, url)
        tab.wait(f"{text_of('#phase')} === 'running'", 60)
        tab.wait(f"/[1-9]/.test({text_of(node('count') + ' .figures')})", 30)
        tab.run(WATCHED)
        first = monitor_pid(job)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        tab.wait(f"{text_of('#panel')}.includes('the monitor was killed by SIGKILL')", 60)
        before = tab.run(text_of(node("count") + " .figures"))
        tab.wait(f"{text_of(node('count') + ' .figures')} !== {json.dumps(before)}", 30)
        assert not [each for each in tab.run("seen") if "lost" in each or "false" in each]
        happened = ask(url, "/api/timeline")["events"]
        assert [event["kind"] for event in happened].count("monitor") == 1
        second = monitor_pid(job)
        assert second not in (first, None)
        os.kill(second, signal.SIGSTOP)
        tab.wait("!document.querySelector('#banner').hidden && document.body.classList.contains('lost')", 20)
        assert "does not answer" in tab.run(text_of("#banner"))
        assert tab.run(text_of("#phase")).startswith("unknown: no answer since")
        os.kill(second, signal.SIGCONT)
        tab.wait("document.querySelector('#banner').hidden && !document.body.classList.contains('lost')", 60)
        victim = job.pids[1]
        os.kill(victim, signal.SIGKILL)
        tab.wait(f"{text_of('#panel')}.includes('worker 1 failed')", 60)
        tab.wait(f"{text_of('#phase')} === 'running'", 60)
        assert not tab.problems


def test_a_job_that_fails_shows_why(tab: Tab, tmp_path: Path) -> None:
    with closing(open_page("fails", port=0)) as page:
        job = Job(Program(flow=failing, args={"folder": str(tmp_path)}), 1, tmp_path / "store", page=page)
        ended = threading.Event()

        def run() -> None:
            with suppress(FalkirkError):
                job.run()
            ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        go(tab, page.url)
        assert ended.wait(60)
        thread.join()
        tab.wait(f"{text_of('#phase')}.startsWith(\"failed: map 'divide'\")")
        tab.wait("document.querySelector('#panel .trace').textContent.includes('ZeroDivisionError')")
        assert tab.run("document.querySelector('.node.broken').dataset.name") == "divide"
        tab.wait("document.querySelector('#panel .error').textContent.includes('ZeroDivisionError')")
        end_page(job)


def test_the_list_of_jobs_leads_to_each_and_back(tab: Tab) -> None:
    def make() -> list[MadeUp]:
        jobs = [MadeUp(StandingJob(example_layout(name)), moves=True) for name in ("flights", "mixed_policies")]
        for number, job in enumerate(jobs):
            job.shown = replace_shown(job.shown, key=f"job-{number}")
        return jobs

    with serving_all(make) as url:
        go(tab, url)
        tab.wait("document.querySelectorAll('#list tbody tr').length === 2")
        assert tab.run(text_of("#list tbody tr .pill")) == "running"
        tab.click("#list tbody tr:nth-child(2) a")
        tab.wait(f"{READY} && location.pathname === '/job/job-1/' && {NODES} > 0")
        tab.click("#jobs")
        tab.wait(f"{READY} && location.pathname === '/' && document.querySelectorAll('#list tbody tr').length === 2")
        assert not tab.problems
