"""Exposure of a job of real processes: read, then a worker is killed, and compared with the account of its rollback."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.monitor.web.serving import ask, get, running, when_ready
from tests.support.processes import wait_for


def scraped(url: str) -> dict[tuple[str, ...], float]:
    status, _, text = get(url, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text.decode())
    return {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def events(url: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in ask(url, "/api/timeline")["events"] if event["kind"] == kind]


def epochs(rows: list[dict[str, Any]]) -> dict[tuple[int, int], float]:
    """First epoch that each processor leaves out, by operator and worker."""
    found = {}
    for row in rows:
        to = float("inf") if row["to"] is None or row["to"][0] == -1 else row["to"][0]
        for first, last in row["operators"]:
            found.update({(p, w): to for p in range(first, last + 1) for w in row["workers"]})
    return found


def test_what_a_death_would_cost_is_what_it_costs_at_most(tmp_path: Path) -> None:
    with running(tmp_path) as (url, job):
        when_ready(url, "/api/verdict")
        wait_for(lambda: scraped(url).get(("falkirk_exposure_records", "1"), 0) > 0)
        before = scraped(url)
        assert before["falkirk_sample_age_seconds",] < 60
        assert ("falkirk_exposure_seconds", "1") not in before, "no restore was measured yet"
        assert before["falkirk_exposure_records", "monitor"] == 0
        pid = job.pids[1]
        os.kill(pid, signal.SIGKILL)

        def caught_up() -> bool:
            nonlocal before
            now = scraped(url)
            for key, value in now.items():
                if key[0].endswith("_total"):
                    assert value >= before.get(key, 0), key
            missing = {key for key in before if key[0].endswith("_total")} - now.keys()
            assert not missing, missing
            before = now
            return bool(events(url, "caught_up"))

        wait_for(caught_up)
        (told,) = [event for event in events(url, "restored") if not event["start"]]
        account = told["rollback"]
        said = account["expected"]
        assert said["who"] == 1
        assert said["records"] > 0
        expected, actual = epochs(said["places"]), epochs(account["places"])
        assert expected.keys() == actual.keys()
        assert all(actual[place] >= expected[place] for place in actual), (expected, actual)
        assert said["back"] >= sum(to != float("inf") for to in actual.values())
        wait_for(lambda: ("falkirk_exposure_seconds", "1") in scraped(url))
        now = scraped(url)
        measured = sum(account["phases"].values())
        assert now["falkirk_exposure_seconds", "1"] - now["falkirk_exposure_redo_seconds", "1"] >= measured * 0.99
        assert any(key[0] == "falkirk_unsafe_seconds" for key in now)
