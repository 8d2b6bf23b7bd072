"""Faults of our own, put into real processes: the monitor's is survived, one in looking at a job concerns nobody."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from runtime.page.address import open_page
from runtime.program import Program
from runtime.supervisor.forked import SERVER
from runtime.supervisor.supervisor import Job
from tests.monitor.web.serving import get, streaming, when_ready
from tests.runtime.job_under_test import GATE, build, check
from tests.runtime.watched import RECORDS, Watched
from tests.support.beside import run_beside
from timely.errors import WorkerLost

FAILS = """
import importlib, os, sys
if {server!r} in getattr(sys, "orig_argv", ()):
    owner = importlib.import_module({where!r})
    *path, name = {what!r}.split(".")
    for each in path:
        owner = getattr(owner, each)
    right = getattr(owner, name)
    calls = 0
    def wrong(*arguments, **named):
        global calls
        calls += {module!r} in sys.argv[0]
        if calls > {after} and not ({once!r} and os.path.exists({once!r})):
            if {once!r}:
                open({once!r}, "w").close()
            raise KeyError("put in by a test")
        return right(*arguments, **named)
    setattr(owner, name, wrong)
"""
"""Run by Python in the process from which those of the job are forked: in them, a function of ours fails after a few calls."""


def put_in(monkeypatch: pytest.MonkeyPatch, folder: Path, module: str, place: str, after: int, once: str = "") -> None:
    where, what = place.split(":")
    there = folder / "faults"
    there.mkdir()
    text = FAILS.format(module=module, where=where, server=SERVER, what=what, after=after, once=once)
    (there / "sitecustomize.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(there), prepend=os.pathsep)  # where Python looks when a process starts


def of_the_fault(notes: list[str]) -> list[str]:
    """The notes that tell of the fault put in: a loaded machine also notes late checkpoints."""
    return [note for note in notes if "put in by a test" in note]


@pytest.mark.check
def test_a_monitor_that_fails_for_a_reason_of_its_own_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(
        monkeypatch,
        tmp_path,
        "runtime.processes.monitor",
        "monitor.coordination.coordinator:Coordinator._on_ticked",
        5,
        str(tmp_path / "failed"),
    )
    watched = Watched(tmp_path, 2)
    check(tmp_path, RECORDS, watched.run(lambda: watched.until(20)).captured("counts"))
    assert (tmp_path / "failed").exists()
    (note,) = of_the_fault(watched.notes)
    assert "the monitor failed, and is replaced; the job goes on" in note


@pytest.mark.check
def test_a_monitor_that_fails_again_and_again_ends_the_job_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(monkeypatch, tmp_path, "runtime.processes.monitor", "monitor.coordination.coordinator:Coordinator.step", 0)
    monkeypatch.setattr("runtime.supervisor.monitored._SHORT_LIVES", 3)
    watched = Watched(tmp_path, 1)
    with pytest.raises(WorkerLost, match="the monitor has died 3 times") as raised:
        watched.run(lambda: None)
    assert "put in by a test" in str(raised.value)
    assert len(of_the_fault(watched.notes)) == 1


@pytest.mark.parametrize(
    ("module", "place", "said"),
    [
        (
            "runtime.processes.worker",
            "runtime.recovery.observer:Observer._measure",
            ["worker 0 cannot tell", "worker 1 cannot tell"],
        ),
        pytest.param(
            "runtime.processes.monitor",
            "runtime.page.live:LivePage.observe",
            ["the page cannot show all: KeyError"],
            marks=pytest.mark.check,
        ),
        pytest.param("runtime.processes.worker", "recovery.agent.agent:cost", [], marks=pytest.mark.check),
    ],
)
def test_an_error_in_looking_at_a_job_does_not_concern_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, place: str, said: list[str]
) -> None:
    put_in(monkeypatch, tmp_path, module, place, 0)
    notes: list[str] = []
    with closing(open_page("words", port=0)) as page:
        program = Program(flow=build, args={"folder": str(tmp_path), "records": RECORDS, "gated": True})
        job = Job(program, 2, tmp_path / "store", on_note=notes.append, page=page)

        def look() -> None:
            when_ready(page.url, "/api/processor/0/0")
            if said:
                with streaming(page.url, "/api/events?closely=1") as messages:
                    while len(of_the_fault(notes)) < len(said):
                        next(messages)
            else:
                answer = b"not running now"
                while b"not running now" in answer:
                    status, _, answer = get(page.url, "/api/whatif", {"failed": ["worker:1"]})
                    assert status == 503
                assert b"cannot answer" in answer
                assert b"put in by a test" in answer
            (tmp_path / GATE).touch()

        result = run_beside(job.run, look)
    check(tmp_path, RECORDS, result.captured("counts"))
    found = sorted(of_the_fault(notes))
    assert len(found) == len(said)
    assert all(note.startswith(beginning) for note, beginning in zip(found, said))
