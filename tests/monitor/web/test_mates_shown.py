"""Mates of a job of real processes on its page, held to the truth: a worker is killed, and then a mate."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from falkirk.status_view import status_of
from falkirk.what_if_view import predict
from runtime.supervisor.placement import LocalWorkers
from runtime.supervisor.supervisor import Job
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import ask, get, running, when_ready
from tests.monitor.web.test_page import go
from tests.support.processes import wait_for

PIDS = "[...document.querySelectorAll('#panel .mates tr[data-mate]')].map((row) => row.cells[1].textContent)"


def mates(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(url, "/api/processes")["mates"]
    return found


def pids(job: Job) -> dict[int, int]:
    """Processes of the mates, by worker, as the supervisor has them."""
    place = job.place
    assert isinstance(place, LocalWorkers)
    return {worker: child.pid for worker, child in tuple(place.mates.items())}


def follow(url: str, job: Job) -> bool:
    """True if both mates follow, and the page has the processes that the supervisor has."""
    shown = {mate["worker"]: mate["pid"] for mate in mates(url) if mate["state"] == "follows" and mate["memory"]}
    return len(shown) == 2 and shown == pids(job)


def events(url: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in ask(url, "/api/timeline")["events"] if event["kind"] == kind]


def gauges(url: str) -> dict[str, float]:
    _, _, text = get(url, "/metrics")
    lines = (line.rpartition(" ") for line in text.decode().splitlines() if line.startswith("falkirk_mate_"))
    return {name: float(value) for name, _, value in lines}


@pytest.mark.check
def test_mates_are_on_the_page_as_they_are(tmp_path: Path, tab: Tab) -> None:
    with running(tmp_path, mates=1) as (url, job):
        when_ready(url, "/api/verdict")
        wait_for(lambda: follow(url, job))
        assert [mate["begun"] for mate in mates(url)] == [1, 1]
        wait_for(lambda: gauges(url).get('falkirk_mate_follows{worker="1"}') == 1)
        go(tab, url, "")
        tab.wait(f"{PIDS}.length === 2")
        assert tab.run(PIDS) == [str(pids(job)[worker]) for worker in (0, 1)]

        (found,) = ask(url, "/api/whatif", {"failed": ["worker:1"]})["mates"]
        assert (found["worker"], found["pid"], found["seconds"]) == (1, pids(job)[1], None)
        assert "was not measured yet" in found["text"]
        assert ask(url, "/api/whatif", {"failed": ["count"]})["mates"] == []

        mate = pids(job)[1]
        os.kill(job.pids[1], signal.SIGKILL)
        wait_for(lambda: bool(events(url, "takeover")))
        wait_for(lambda: len(events(url, "restored")) == 2)
        assert job.pids[1] == mate
        ((worker, operators, pieces),) = events(url, "restored")[-1]["rollback"]["mates"]
        assert (worker, operators > 0, pieces >= 0) == (1, True, True)
        tab.wait("document.querySelector('#panel .rollbacks button.jump') !== null")
        tab.run("document.querySelector('#panel .rollbacks button.jump').click()")
        tab.wait("document.querySelector('#panel .took-over') !== null")
        said = f"the mate of worker 1 took over: {operators:,} operator{'' if operators == 1 else 's'} from memory, "
        assert said in tab.run("document.querySelector('#panel .took-over').textContent")

        wait_for(lambda: follow(url, job))
        assert [mate["begun"] for mate in mates(url)] == [1, 2]
        (found,) = predict(tmp_path / "store", ["worker:1"]).answer["mates"]
        assert found["seconds"] > 0
        assert found["without"] > found["seconds"], "what is not measured is at least the time that loading takes"

        died = pids(job)[0]
        os.kill(died, signal.SIGKILL)
        wait_for(lambda: bool(events(url, "mate_lost")))
        (lost,) = events(url, "mate_lost")
        assert (lost["worker"], lost["reason"], lost["again"]) == (0, "was killed by SIGKILL", True)
        wait_for(lambda: follow(url, job))
        assert [mate["begun"] for mate in mates(url)] == [2, 2]
        assert len(events(url, "restored")) == 2, "nothing goes back for a mate"

        status = status_of(tmp_path / "store")
        assert "mate of worker 0: follows" in status.text
        assert status.page_answer is not None
        assert [mate["begun"] for mate in json.loads(json.dumps(status.page_answer))["mates"]] == [2, 2]
