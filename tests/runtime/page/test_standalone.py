"""The page of a job whose monitor is a process apart: it is the monitor's to serve, and comes back with it."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from falkirk.what_if_view import predict
from tests.monitor.web.serving import get, running, streaming, when_ready
from tests.runtime.processes.test_standalone_monitor import Monitors
from tests.support.processes import monitor_pid, wait_for
from timely.errors import FalkirkError


@pytest.mark.check
def test_page_and_questions_are_answered_by_a_monitor_apart_and_by_the_next_one(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ExitStack() as processes:
        monitors = Monitors(processes)
        first = monitors.start(str(store))
        with running(tmp_path, monitor=store) as (url, job):
            answers(url, store)
            pids = job.pids
            before = low(url)
            first.kill()
            first.wait()
            again = monitors.start(str(store))
            wait_for(lambda: monitor_pid(job) == again.pid)
            answers(url, store)
            assert job.pids == pids
            wait_for(lambda: low(url) > before)


def answers(url: str, store: Path) -> None:
    names = [operator["name"] for operator in when_ready(url, "/api/job")["operators"]]
    assert "count" in names
    assert low(url) > 3
    status, _, metrics = get(url, "/metrics")
    assert status == 200
    assert b"falkirk" in metrics
    predicted = []

    def foretold() -> bool:
        with suppress(FalkirkError):  # the workers are busy, or come back to the new monitor just now
            predicted.append(predict(str(store), ["worker:1"]))
        return bool(predicted)

    wait_for(foretold)
    assert predicted[0].running
    asked = when_ready(url, "/api/whatif", {"failed": ["worker:1"]})
    assert {each["operator"] for each in asked["processors"]} == set(range(len(names)))


def low(url: str) -> int:
    """The least low-watermark, when there is one above the first epochs."""
    with streaming(url, "/api/events") as messages:
        return next(message["totals"]["low"] for message in messages if (message.get("totals") or {}).get("low", 0) > 3)
