"""The event log: how far what is done for operators is, each step once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from falkirk.event_log import EventLog, WorkLog
from runtime.control import JobStats, Stats
from timely.errors import FalkirkError


def stats(*jobs: JobStats) -> Stats:
    return Stats(0, 0, None, None, 0, False, jobs)


def test_each_step_of_each_job_on_each_worker_is_an_event_and_all_statistics_are_passed_on(tmp_path: Path) -> None:
    passed: list[Mapping[int, Stats]] = []
    times = iter(range(100))
    query = JobStats("in", 3, "waits for new input", 0, 0, 1.0)
    longer = JobStats("in", 3, "waits for new input", 0, 0, 2.0)
    given = [
        {0: stats(query), 1: stats()},
        {0: stats(longer), 1: stats(JobStats("sum", 2, "Spark: task", 1, 8, 0.1))},
        {0: stats(), 1: stats(JobStats("sum", 2, "Spark: task", 2, 8, 0.2))},
        {0: stats(longer), 1: stats(query)},
    ]
    with closing(EventLog.open(tmp_path / "events", print)) as log:
        told = WorkLog(log, passed.append, lambda: float(next(times)))
        for each in given:
            told(each)
        WorkLog(log, None)({0: stats()})
    assert passed == given
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert {event["kind"] for event in events} == {"working"}
    assert [event["at"] for event in events][:2] == ["1970-01-01T00:00:00.000+00:00", "1970-01-01T00:00:01.000+00:00"]
    found = [[event[name] for name in ("worker", "operator", "epoch", "what", "done", "total")] for event in events]
    assert found == [
        [0, "in", 3, "waits for new input", 0, 0],
        [1, "sum", 2, "Spark: task", 1, 8],
        [1, "sum", 2, "Spark: task", 2, 8],
        [1, "in", 3, "waits for new input", 0, 0],
    ]


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FalkirkError, match=r"pipe': it is a pipe, and nobody reads it: start its reader first"):
        EventLog.open(tmp_path / "pipe", print)


def test_a_pipe_takes_events_until_its_reader_no_longer_keeps_up(tmp_path: Path) -> None:
    """The job does not wait for it."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    notes: list[str] = []
    with closing(EventLog.open(tmp_path / "pipe", notes.append)) as log:
        for number in range(10_000):
            log("note", 0.0, {"text": "x" * 100, "number": number})
            if notes:
                break
    [note] = notes
    assert "it takes no more, as its reader does not keep up; the job goes on" in note
    os.set_blocking(reader, True)
    with os.fdopen(reader) as file:
        lines = file.read().splitlines()
    assert [json.loads(line)["number"] for line in lines[:-1]] == list(range(len(lines) - 1))
    assert len(lines) > 100


def test_a_file_takes_all_events(tmp_path: Path) -> None:
    notes: list[str] = []
    with closing(EventLog.open(tmp_path / "file", notes.append)) as log:
        for number in range(2_000):
            log("note", 0.0, {"number": number})
    assert len((tmp_path / "file").read_text().splitlines()) == 2_000
    assert notes == []
