"""The card of a rollback in a real browser: of a worker that is killed under an open page, and from the store afterwards."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path

from monitor.coordination.supervision import TimelineEvent
from monitor.explain.rollback import RollbackAccount
from recovery.place import Place
from recovery.protocol import Redone, Resent, Restored
from recovery.store.local import LocalStore
from runtime.page.recorded import RecordedJob
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.programs import example_layout
from tests.monitor.web.serving import running, serving
from tests.monitor.web.standing import StandingJob
from tests.monitor.web.test_page import go, text_of

pytestmark = test_page.pytestmark

PRESSED = "document.querySelector('.step[aria-pressed=true] b').textContent"


def standing() -> StandingJob:
    """A job in which worker 1 died: sources went back to 2, all else of worker 0 stayed."""
    layout = example_layout("flights")
    job = StandingJob(layout)
    account = RollbackAccount(layout, [tuple((5,) for _ in layout.groups)] * 2, 1000.0)
    account.failed(1, "was killed by SIGKILL", "a last note", 1000.0)
    account.began()
    account.drained(0, 1000.02)
    account.joined(1, 1000.2)
    account.gathered({}, 1000.2)
    back = tuple((2,) + (0,) * (info.depth - 1) for info in layout.processors)
    stay = tuple(bound if info.role == "source" else None for bound, info in zip(back, layout.processors))
    account.decided(2, (stay, back), (1,), 1000.25)
    account.restored(Restored(Place(0), 2, (Resent(1, 1, 7, 2048),), (Redone(0, 1200, 3, 0.029),)), 1000.3)
    account.restored(Restored(Place(1), 2), 1000.55)
    job.events.append(
        TimelineEvent(
            "restored", 1000.55, {"generation": 2, "seconds": 0.55, "start": False, "rollback": account.finish(1000.55)}
        )
    )
    job.happens("caught_up", generation=2, seconds=0.7)
    return job


def test_the_card_says_who_died_where_all_went_and_what_it_cost(tab: Tab) -> None:
    job = standing()
    sources = sum(info.role == "source" for info in job.layout.processors)
    count = len(job.layout.processors)
    with serving(job, moves=False) as url:
        go(tab, url)
        tab.wait("document.querySelector('.rollbacks button')")
        assert tab.run(text_of(".rollbacks button")) == "worker 1 was killed by SIGKILL; 550 ms"
        tab.click(".rollbacks button")
        tab.wait(f"{text_of('#panel h2')} === 'Rollback to generation 2'")
        assert "card=2" in tab.run("location.hash")
        panel = tab.run(text_of("#panel"))
        for words in (
            "worker 1was killed by SIGKILL",
            "its last note: a last note",
            f"{count + sources} of {2 * count}processors rolled back",
            "7messages sent again, 2 KiB",
            "1,200records of the living done again, about 29.0 ms",
            "drain200 ms",
            "decide50.0 ms",
            "restore300 ms",
            "catch up700 ms",
            "worker 0drained after 20.0 ms300 ms",
            "worker 1new after 200 ms550 ms",
        ):
            assert words in panel, (words, panel)
        assert tab.run(PRESSED) == "decide"
        kept = "document.querySelectorAll('.node.keeps').length"
        assert tab.run(kept) == 0  # all of worker 1 go back
        assert tab.run("document.querySelectorAll('.node.back').length") == count
        tab.click(".steps .step:nth-child(4)")
        tab.wait("document.querySelectorAll('.edge.resent').length === 1")
        tab.click(".steps .step:nth-child(1)")
        tab.wait(f"document.querySelectorAll('.node.failed').length === {count}")
        assert tab.run("document.querySelectorAll('.edge.resent').length") == 0
        tab.click(".steps .step:nth-child(5)")
        tab.wait(f"{kept} === {count}")
        figures = "getComputedStyle(document.querySelector('.node .figures')).visibility"
        assert tab.run(figures) == "hidden"  # they are of now, and the steps are of then
        assert tab.run("document.querySelector('#panel').scrollWidth <= document.querySelector('#panel').clientWidth")
        tab.key("Escape")
        tab.wait(f"{figures} === 'visible'")
        tab.wait("!document.querySelector('#graph').classList.contains('asking')")
        assert not tab.problems


def test_it_plays_with_a_stop_at_each_phase_unless_motion_is_unwanted(tab: Tab) -> None:
    with serving(standing(), moves=False) as url:
        go(tab, url, "#card=2")
        tab.wait("document.querySelector('[data-keep=play]')")
        tab.click("[data-keep=play]")
        for step in ("failure", "drain", "decide", "restore", "catch up"):
            tab.wait(f"{PRESSED} === {json.dumps(step)}", 10)
        tab.wait(f"{text_of('[data-keep=play]')} === 'Play'", 10)
        try:
            tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
            go(tab, url, "#card=2")
            tab.wait("document.querySelector('.steps')")
            assert tab.run("document.querySelectorAll('[data-keep=play]').length") == 0
            tab.click(".steps .step:nth-child(2)")
            tab.wait(f"{PRESSED} === 'drain'")
        finally:
            tab.call("Emulation.setEmulatedMedia", features=[])
        assert not tab.problems


def test_the_card_of_a_killed_worker_is_there_at_once_and_in_the_store(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path) as (url, job):
        go(tab, url)
        tab.wait("/[1-9]/.test(document.querySelector('.node[data-name=count] .figures').textContent)", 60)
        os.kill(job.pids[1], signal.SIGKILL)
        tab.wait("document.querySelector('.rollbacks button')", 60)
        tab.click(".rollbacks button")
        tab.wait(f"{text_of('#panel')}.includes('was killed by SIGKILL')")
        tab.wait("!document.querySelector('.steps .step:nth-child(5)').textContent.includes('…')", 60)
        rolled = tab.run(text_of("#panel .big b"))
        assert rolled != "0 of"
        assert not tab.problems
    with closing(LocalStore(tmp_path / "store")) as store:
        saved = RecordedJob(store).saved
    (account,) = (event.data["rollback"] for event in saved.events if event.data.get("rollback"))
    (caught_up,) = (event for event in saved.events if event.kind == "caught_up")
    assert account["causes"][0]["reason"].endswith("was killed by SIGKILL")
    assert saved.decision is not None
    assert account["generation"] == caught_up.data["generation"] == saved.decision.generation
    back = sum(bound is not None for bounds in saved.decision.bounds for bound in bounds)
    samples = [
        (worker, operator)
        for row in account["places"]
        if row["to"] is not None
        for worker in row["workers"]
        for first, last in row["operators"]
        for operator in range(first, last + 1)
    ]
    assert len(samples) == back
    assert rolled == f"{back} of {sum(map(len, saved.decision.bounds))}"
