"""The page in each state of a job: what it says, read in a real browser, and held against what is so."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from falkirk.status_view import FAILED, KILLED, NO_JOB, STUCK, status_of
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.effects import Answer
from monitor.explain.what_if import targets
from monitor.web.questions import Done
from recovery.metadata import Bound, at_epoch
from recovery.protocol import END
from recovery.store.address import StoreAddress
from recovery.store.local import LocalStore
from runtime.page.address import open_page
from runtime.page.followed import FollowedJob
from runtime.page.recorded import RecordedJob
from runtime.program import Program
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.programs import example_layout
from tests.monitor.web.serving import MadeUp, ask, end_page, running, serving, serving_all, streaming, when_ready
from tests.monitor.web.standing import StandingJob
from tests.monitor.web.test_page import READY, go, text_of
from timely.io import Rate

pytestmark = test_page.pytestmark


@dataclass(frozen=True)
class State:
    """What makes a job be in a state, and what the page must say and must not say then."""

    make: Callable[[StandingJob], None]
    says: str
    alarm: bool
    totals: dict[str, str]
    node: str | None = None


def _hung(job: StandingJob) -> None:
    job.samples.clear()
    job.read = {0: (5700, 54), 1: (0, None)}
    where = "map 'parse' (app.py:36) to return"
    job.happens("stuck", processor=1, worker=0, name="parse", what=where, seconds=61.0)


def _holding(job: StandingJob) -> None:
    job.tell(epoch=4)
    what = "it to give up its capability at epoch 4"
    job.happens("stuck", processor=1, worker=1, name="parse", what=what, seconds=12.0)


def _rolling(*phases: str) -> Callable[[StandingJob], None]:
    """A rollback up to the last of these phases."""
    happened: dict[str, dict[str, object]] = {
        "failure": {"worker": 1, "incarnation": 2, "reason": "was killed by SIGKILL"},
        "round": {"round": 1, "alive": [0]},
        "decided": {"generation": 2, "failed": [1], "rolled_back": 3},
        "restored": {"generation": 2, "seconds": 1.5, "start": False},
        "caught_up": {"generation": 2, "seconds": 0.5},
    }

    def make(job: StandingJob) -> None:
        job.tell(epoch=4)
        for phase in phases:
            job.happens(phase, **happened[phase])

    return make


def _over(kind: str, **data: object) -> Callable[[StandingJob], None]:
    def make(job: StandingJob) -> None:
        job.tell(epoch=4)
        job.happens(kind, **data)
        job.live = False

    return make


def _killed(job: StandingJob) -> None:
    job.tell(epoch=4)
    job.live = False


GONE = {"newest epoch": "unknown", "saved": "before epoch 4"}
STATES = {
    "running": State(lambda job: job.tell(epoch=4), "running", False, {"newest epoch": "0", "read": "0"}),
    "hung": State(
        _hung,
        "stuck for 61 s in parse@0, waiting for map 'parse' (app.py:36) to return",
        True,
        {"newest epoch": "54", "read": "5,700", "heard": "not of all workers", "records/s": "–"},
        "parse",
    ),
    "stuck capability": State(
        _holding, "stuck for 12 s in parse@1, waiting for it to give up its capability at epoch 4", True, {}, "parse"
    ),
    "rolling back: failure": State(
        _rolling("failure"), "rolling back: worker 1 failed (was killed by SIGKILL)", False, {"heard": "now"}
    ),
    "rolling back: draining": State(
        _rolling("failure", "round"), "rolling back: draining: worker 1 failed (was killed by SIGKILL)", False, {}
    ),
    "rolling back: restoring": State(
        _rolling("failure", "round", "decided"),
        "rolling back: restoring: worker 1 failed (was killed by SIGKILL)",
        False,
        {},
    ),
    "restored, catching up": State(
        _rolling("failure", "round", "decided", "restored"), "running", False, {"heard": "now"}
    ),
    "caught up": State(
        _rolling("failure", "round", "decided", "restored", "caught_up"), "running", False, {"heard": "now"}
    ),
    "stopped": State(_over("stopped", by="falkirk stop"), "stopped by falkirk stop", False, GONE),
    "failed": State(
        _over("error", worker=1, text="map 'parse' failed", processor=1, trace="Traceback of it"),
        "failed: map 'parse' failed",
        True,
        GONE,
        "parse",
    ),
    "killed": State(_killed, "killed: its processes are gone", True, GONE),
    "ended": State(_over("finished"), "ended: all is done", False, {"newest epoch": "ended"}),
}


HAPPENED = {
    "failure": "worker 1 failed: was killed by SIGKILL",
    "round": "round 1 of rollback begins, 1 worker alive",
    "decided": "generation 2: 3 processors to be restored",
    "restored": "all is restored, 1.5 s after the failure",
    "caught_up": "all is as far again as before the failure, 500 ms after that",
}
"""Words in the panel, by the event that they are for."""


def made_of(name: str) -> StandingJob:
    """Job in one of the `STATES`."""
    layout = example_layout("mixed_policies")
    job = StandingJob(layout)
    STATES[name].make(job)
    parse = next(p for p, info in enumerate(layout.processors) if info.name == "parse")
    for event in job.events:
        if "processor" in event.data:
            event.data["processor"] = parse
    return job


@pytest.mark.parametrize("name", STATES)
def test_the_page_says_the_state_of_the_job_and_nothing_that_it_does_not_know(tab: Tab, name: str) -> None:
    state, job = STATES[name], made_of(name)
    with serving(job, moves=False) as url:
        go(tab, url)
        tab.wait(f"{text_of('#phase')} !== ''")
        assert tab.run(text_of("#phase")).startswith(state.says)
        assert tab.run("document.querySelector('#phase').dataset.alarm") == ("yes" if state.alarm else "no")
        shown = tab.run(
            "Object.fromEntries([...document.querySelectorAll('#totals div')].map("
            "(each) => [each.firstChild.textContent, each.lastChild.textContent]))"
        )
        assert {each: shown.get(each) for each in state.totals} == state.totals
        marked = tab.run("[...document.querySelectorAll('.node.stuck, .node.broken')].map((n) => n.dataset.name)")
        assert marked == ([state.node] if state.node is not None else [])
        if name == "failed":
            tab.wait(f"{text_of('#panel .trace')} === 'Traceback of it'")
        for kind, words in HAPPENED.items():
            said = any(event.kind == kind and not event.data.get("start") for event in job.events)
            assert tab.run(f"{text_of('#panel')}.includes({words!r})") == said, words
        assert not tab.problems


def test_a_list_says_the_state_of_each_of_its_jobs(tab: Tab) -> None:
    def make() -> list[MadeUp]:
        jobs = [MadeUp(made_of(name), moves=False) for name in STATES]
        for number, job in enumerate(jobs):
            job.shown = replace(job.shown, key=f"job-{number}")
        return jobs

    with serving_all(make) as url:
        go(tab, url)
        tab.wait(f"document.querySelectorAll('#list tbody tr').length === {len(STATES)}")
        rows = tab.run(
            "[...document.querySelectorAll('#list tbody tr')].map((row) => {"
            "const pill = row.querySelector('.pill'); return [pill.textContent, "
            "pill.dataset.alarm] })"
        )
        assert len(rows) == len(STATES)
        for name, (text, alarm) in zip(STATES, rows):
            assert text.startswith(STATES[name].says), name
            assert alarm == ("yes" if STATES[name].alarm else "no"), name
        assert not tab.problems


def test_a_store_without_its_job_shows_what_it_has_and_no_more(tab: Tab, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(tmp_path) as (url, _):
        when_ready(url, "/api/job")
        with streaming(url, "/api/events") as messages:
            next(message for message in messages if (message.get("totals") or {}).get("low", 0) > 3)
    with LocalStore(store) as opened:
        job = RecordedJob(opened)
    names = [info.name for info in job.layout.processors]
    count = names.index("count")
    bounds = [job.options.low(job.options.topology.flat(count, worker)) for worker in range(job.layout.workers)]
    with serving_all(lambda: [FollowedJob(StoreAddress.of(store))]) as url:
        go(tab, url, "#sel=count")
        tab.wait(f"{text_of('#phase')} === 'stopped by falkirk stop'")
        tab.wait("document.querySelectorAll('#panel table.tight tr').length > 1")
        shown = tab.run("[...document.querySelectorAll('#totals dt')].map((each) => each.textContent)")
        assert shown == ["newest epoch", "saved", "safe", "logs"]  # rates, latency and state died with the processes
        rows = tab.run(
            "[...document.querySelectorAll('#panel table.tight tr')].slice(1)"
            ".map((row) => [...row.children].map((cell) => cell.textContent))"
        )
        assert [row[2] for row in rows] == [f"{bound[0]:,}" if bound[0] < END else "all" for bound in bounds]
        assert {row[5] for row in rows} == {"–"}
        assert not tab.problems


def test_a_monitor_that_is_away_is_told_from_a_page_that_is(tab: Tab) -> None:
    job = StandingJob(example_layout("mixed_policies"))
    job.tell(epoch=4)
    kept: list[MadeUp] = []

    def one() -> list[MadeUp]:
        kept.append(MadeUp(job, moves=False))
        return kept

    with serving_all(one) as url:
        go(tab, url)
        tab.wait(f"{text_of('#phase')} === 'running'")
        kept[0].hub.lose(True)
        tab.wait(f"{text_of('#banner')} === 'The monitor does not answer: what is shown is old. Trying again…'")
        assert tab.run(text_of("#phase")).startswith("unknown: no answer since ")
        kept[0].hub.lose(False)
        tab.wait("document.querySelector('#banner').hidden")
        tab.wait(f"{text_of('#phase')} === 'running'")
        kept[0].hub.lose(True)
        tab.wait(f"{text_of('#banner')}.startsWith('The monitor')")
    tab.wait(f"{text_of('#banner')}.startsWith('The page does not answer')")


def test_a_page_that_is_gone_leaves_an_old_verdict_that_says_so(tab: Tab) -> None:
    job = StandingJob(example_layout("mixed_policies"))
    job.tell(epoch=4)
    with serving(job, moves=False) as url:
        go(tab, url)
        tab.wait(f"{text_of('#phase')} === 'running'")
    tab.wait("!document.querySelector('#banner').hidden")
    assert tab.run(text_of("#phase")).startswith("unknown: no answer since ")
    assert tab.run(text_of("#phase")).endswith("; before that running")
    assert tab.run("document.title").startswith("mixed-policies · unknown")
    assert tab.run(text_of("#banner")) == "The page does not answer: what is shown is old. Trying again…"


def test_what_is_selected_and_what_is_clicked_survive_updates(tab: Tab) -> None:
    job = StandingJob(example_layout("flights"))
    with serving(job) as url:
        go(tab, url)
        tab.wait(f"{text_of('#panel table.tight td')} === 'worker 0'")
        tab.run("window.kept = document.querySelector('#panel table.tight td'); getSelection().selectAllChildren(kept)")
        before = tab.run("String(getSelection())")
        beats = text_of("#panel table.tight tr:nth-child(2)")
        for _ in range(3):
            now = tab.run(beats)
            tab.wait(f"{beats} !== {now!r}")
        assert before == tab.run("String(getSelection())") == "worker 0"
        assert tab.run("kept.isConnected")
        assert not tab.problems


class Supposing(StandingJob):
    """Each processor of it would go back to another epoch, or stay as it is."""

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        def bound(p: int, w: int) -> Bound | None:
            return (
                None if (p + w) % 5 == 0 else at_epoch(700 + 7 * p + 31 * w * (p % 2), self.layout.processors[p].depth)
            )

        everywhere = range(len(self.layout.processors))
        bounds = tuple(tuple(bound(p, w) for p in everywhere) for w in range(self.layout.workers))
        done(Answer(targets(self.layout, failed), bounds))


def test_what_if_says_of_each_processor_what_the_solver_says(tab: Tab) -> None:
    layout = example_layout("mixed_policies", workers=3)
    with serving(Supposing(layout), moves=False) as url:
        answer = ask(url, "/api/whatif", {"failed": ["worker:1"]})["processors"]
        go(tab, url, "#ask=worker%3A1")
        tab.wait("document.querySelectorAll('#panel tr.link').length")
        rows = tab.run(
            "[...document.querySelectorAll('#panel tr.link')].map((r) => [...r.children].map((c) => c.textContent))"
        )
    reported: dict[tuple[str, int], str] = {}
    name = ""
    for first, workers, where in rows:
        name = first or name
        of = range(3) if workers == "every worker" else map(int, workers.removeprefix("worker ").split(", "))
        reported |= {(name, worker): where for worker in of}
    names = [info.name for info in layout.processors]
    back = [each for each in answer if not each["keeps"]]
    assert reported == {(names[each["operator"]], each["worker"]): f"before {each['to'][0]:,}" for each in back}


def hanging(gate: str, fail: bool) -> Dataflow:
    """A job that stands still at one record until there is a file, and fails later if it is to."""

    def wait(number: int) -> int:
        while number == 60 and not os.path.exists(gate):
            time.sleep(0.02)
        return 1 // 0 if fail and number > 80 else number

    flow = Dataflow("hanging")
    numbers = flow.source("numbers", Rate(lambda number: number, 200.0, 10**6, 10))
    numbers.map(lambda number: number, name="first").map(wait, name="call-service").map(str, name="last").capture("out")
    return flow


@pytest.mark.soak
@pytest.mark.parametrize("fail", [False, True])
def test_a_real_job_is_followed_through_its_states(tab: Tab, tmp_path: Path, fail: bool) -> None:
    gate, store = tmp_path / "gate", tmp_path / "store"
    assert status_of(store).code == NO_JOB
    with closing(open_page("hanging", port=0)) as page:
        notes: list[str] = []
        program = Program(flow=hanging, args={"gate": str(gate), "fail": fail})
        job = Job(program, 2, store, on_note=notes.append, heartbeat_timeout=1.0, page=page)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                job.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            tab.go(page.url)
            tab.wait(READY, 120)
            tab.wait(
                f"/^stuck for [0-9]+ s in call-service@0, waiting for map 'call-service'/.test({text_of('#phase')})"
            )
            assert "line" in tab.run(text_of("#phase"))
            assert status_of(store).code == STUCK
            gate.touch()
            if not fail:
                tab.wait(f"{text_of('#phase')} === 'running'")
                assert status_of(store).text.startswith("running")
                stop_job(store)
        finally:
            gate.touch()
            if not fail:
                stop_job(store)
            thread.join()
        assert len(errors) == 1
        expected = "failed: map 'call-service'" if fail else "stopped by falkirk stop"
        tab.wait(f"{text_of('#phase')}.startsWith({expected!r})")
        end_page(job)
        assert isinstance(errors[0], JobStopped) != fail
    found = status_of(store)
    assert (found.code, found.text.startswith(expected)) == (FAILED if fail else 0, True)
    with LocalStore(store) as opened:
        recorded = RecordedJob(opened)
    kinds = [event.kind for event in recorded.saved.events]
    assert kinds.index("began") < kinds.index("stuck") < kinds.index("moves") if not fail else True
    assert kinds[-1] == ("error" if fail else "stopped")
    assert [event.at for event in recorded.saved.events] == sorted(event.at for event in recorded.saved.events)


@pytest.mark.soak
def test_a_job_whose_supervisor_was_killed_is_killed_and_says_so_when_it_runs_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    pid = os.fork()
    if pid == 0:
        try:
            Job(
                Program(flow=hanging, args={"gate": str(tmp_path), "fail": False}), 1, store, on_note=lambda _: None
            ).run()
        finally:
            os._exit(1)
    until = time.monotonic() + 120
    while time.monotonic() < until and not status_of(store).text.startswith("running"):
        time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert status_of(store).code == KILLED
    job = Job(Program(flow=hanging, args={"gate": str(tmp_path), "fail": False}), 1, store, on_note=lambda _: None)
    stopping = threading.Thread(target=stop_job, args=(store,))
    stopping.start()
    with pytest.raises(JobStopped):
        job.run()
    stopping.join()
    with LocalStore(store) as opened:
        kinds = [event.kind for event in RecordedJob(opened).saved.events]
    assert kinds.index("killed") < len(kinds) - 1 - kinds[::-1].index("began")
