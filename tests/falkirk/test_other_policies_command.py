"""`falkirk whatif --policy` on a job with real processes: in the terminal, by its page, of now and of a moment before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from falkirk.other_policies_view import compared, show
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink
from recovery.policy import Lazy
from tests.monitor.web.serving import ask, get, running
from tests.support.command_line import falkirk_command
from timely.errors import FalkirkError
from timely.io import Rate

REGION = 'a "b" = ü|'


def build(folder: str) -> Dataflow:
    flow = Dataflow("two regions")
    with flow.region(REGION, policy=Lazy(every=0.5)):
        pairs = flow.source("numbers", Rate(lambda i: i, 1000, 10**8, epoch_every=50)).map(lambda i: (i % 100, 1))
    with flow.region("totals", policy=Lazy(every=0.5)):
        pairs.keyed().sum(name="sums").records().to(FileSink(f"{folder}/out"), name="out")
    return flow


def when_measured(store: Path, *policies: str) -> dict[str, Any]:
    """The answer, as soon as rates are known."""
    deadline = time.monotonic() + 300
    while True:
        try:
            found = compared(store, policies)
            if found["workers"] is not None:
                return found
        except FalkirkError:  # it has not begun
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_running_job_says_what_another_policy_would_change(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(tmp_path, flow=build) as (url, _):
        found = when_measured(store, f"{REGION}=Batch(log_outputs=True)")
        assert found["after"]["logs"]
        assert found["bytes"]["after"] > found["bytes"]["measured"] > 0
        assert found["cpu"]["measured"] > 0
        assert [each["worker"] for each in found["workers"]] == [0, 1]
        console = Console(record=True, width=150)
        show(found, console)
        text = console.export_text()
        assert f"If {REGION} were Batch(log_outputs=True):" in text
        assert "if worker 1 died" in text

        with pytest.raises(
            FalkirkError, match=r"test_other_policies_command.py:\d+\) keeps state from one time to the next"
        ):
            compared(store, ["totals=Batch()"])
        with pytest.raises(FalkirkError, match="there is no region 'nowhere'"):
            compared(store, ["nowhere=Batch()"])
        with pytest.raises(FalkirkError, match="is given two policies"):
            compared(store, ["totals=Eager()", "totals=Batch()"])
        assert compared(url, ["totals=Eager()"])["policies"] == [{"region": "totals", "policy": "Eager()"}]

        question = {"policies": {"totals": "Snapshot(every=1.0)"}}
        last = ask(url, "/api/history")["last"]
        before = ask(url, f"/api/policies?at={last}", question)
        assert before["after"] == ask(url, "/api/policies", question)["after"]
        assert before["workers"] is not None or before["unknown"]
        status, _, _ = get(url, "/api/policies?at=5", body=question)
        assert status == 404
    with pytest.raises(FalkirkError, match="no job runs with"):
        compared(store, ["totals=Eager()"])


def test_either_a_failure_or_a_policy_is_asked(tmp_path: Path) -> None:
    code, said = falkirk_command("whatif", str(tmp_path), "--kill", "worker:0", "--policy", "a=Batch()")
    assert code
    assert "either --kill or --policy" in said
