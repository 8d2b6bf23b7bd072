"""Errors of a job: equal ones are one; each has its operator, the user's line, and a traceback."""

from __future__ import annotations

from typing import Any

from monitor.coordination.supervision import TimelineEvent
from monitor.explain.errors import MOST_ERRORS, errors_of
from tests.monitor.web.programs import example_layout

LAYOUT = example_layout("flights")


def error(at: float, processor: int = 0, worker: int = 0, text: str = "no good", trace: str = "") -> TimelineEvent:
    return TimelineEvent("error", at, {"worker": worker, "text": text, "processor": processor, "trace": trace})


def failure(at: float, worker: int, reason: str, output: str = "") -> TimelineEvent:
    return TimelineEvent("failure", at, {"worker": worker, "incarnation": 0, "reason": reason, "output": output})


def of(*events: TimelineEvent) -> list[dict[str, Any]]:
    return errors_of(events, LAYOUT)


def test_equal_errors_are_one_with_number_times_and_workers() -> None:
    first, second = of(error(1.0), error(2.0, worker=1), error(3.0), error(2.5, processor=1))
    assert (first["count"], first["first"], first["last"], first["workers"]) == (3, 1.0, 3.0, [0, 1])
    assert first["operator"] == LAYOUT.processors[0].name
    assert first["site"] == LAYOUT.processors[0].site
    assert (second["count"], second["operator"]) == (1, LAYOUT.processors[1].name)


def test_deaths_of_different_processes_for_one_reason_are_one() -> None:
    (found,) = of(
        failure(1.0, 1, "process 12 was killed by SIGKILL", "old words"),
        failure(2.0, 1, "process 13 was killed by SIGKILL", "new words"),
    )
    assert (found["text"], found["count"], found["trace"]) == ("worker 1 failed: was killed by SIGKILL", 2, "new words")


def test_the_line_is_the_innermost_one_of_the_users_file() -> None:
    site = str(LAYOUT.processors[0].site)
    file = site.rpartition(":")[0]
    trace = f'File "{file}", line 3, in f\n  g()\n  File "/lib/x.py", line 7, in g\n    1 / 0\nZeroDivisionError'
    (found,) = of(error(1.0, trace=trace))
    assert found["line"] == f"{file}:3"


def test_routine_and_the_end_by_the_same_error_are_none() -> None:
    ends = TimelineEvent("failed", 2.0, {"reason": "no good"})
    assert [each["kind"] for each in of(TimelineEvent("cut", 0.5, {"epoch": 1}), error(1.0), ends)] == ["error"]


def test_the_newest_are_kept_and_strange_events_end_nothing() -> None:
    found = of(*(error(float(n), text=f"number {n}") for n in range(2 * MOST_ERRORS)))
    assert len(found) == MOST_ERRORS
    assert found[0]["text"] == f"number {2 * MOST_ERRORS - 1}"
    assert of(TimelineEvent("error", 1.0, {}), TimelineEvent("failure", 1.0, {"worker": "x", "reason": None}))
