"""Questions about the past over HTTP, from the files of a recorder: while it writes, of another program, gone, and damaged."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from monitor.history.archive import Archive
from monitor.history.files import FULL, records
from runtime.page.history import HistoryFiles, observations
from runtime.page.recorder import HistoryRecorder
from tests.monitor.web.asked import ask
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.standing import StandingJob


def recorded(folder: Path, job: StandingJob, seconds: int) -> None:
    recorder = HistoryRecorder(folder, job.layout, {"falkirk": "1"}, lambda text: pytest.fail(text))
    for event in job.events:
        recorder.happened(event)
    for _ in range(seconds):
        recorder.second(job.step(1.0), job.options.record())
        recorder.wait()  # what waits for too long is dropped
    recorder.close(60.0)


def test_each_question_is_answered_of_a_moment(tmp_path: Path) -> None:
    job = StandingJob(example_layout("flights"))
    recorded(tmp_path, job, 130)
    files, at = HistoryFiles(tmp_path), 1_000_000 + 100_000
    moment = ask(job, f"/api/moment?at={at}&bars=lag", history=files).value
    assert (moment["at"], moment["age"], moment["full"], moment["unknown"]) == (1100.0, 0.0, True, [])
    assert len(moment["rows"]) == len(ask(job, f"/api/graph?at={at}", history=files).value["nodes"])
    assert moment["verdict"] == ask(job, f"/api/verdict?at={at}", history=files).value
    assert moment["events"] == ask(job, f"/api/timeline?at={at}", history=files).value["events"]
    assert moment["totals"]["newest"] == 300
    assert ask(job, f"/api/operator/1?at={at}", history=files).value["workers"][0]["progress"][0] in (298, 299, 300)
    assert ask(job, f"/api/processor/1/0?at={at}", history=files).value["kind"] in ("chain", "any")
    assert ask(job, f"/api/why/1/0?at={at}", history=files).value["rollback"]["text"]
    said = ask(
        job,
        f"/api/whatif?at={at}",
        history=files,
        method="POST",
        body=b'{"failed": ["worker:1"]}',
        content_type="application/json",
    )
    assert "restart of all workers" in said.value["note"]
    points = ask(job, f"/api/charts?at={at}", history=files).value["points"]
    assert (points[-1]["at"], len(points)) == (1100.0, 100)
    assert ask(job, f"/api/compare?at={at}&with={at + 10_000}", history=files).value["moments"][1]["at"] == 1110.0
    assert ask(job, "/api/epoch/150", history=files).value["complete"] in (1051.0, 1052.0)
    extent = ask(job, "/api/history", history=files).value
    assert (extent["first"], extent["last"], extent["problems"]) == (1_001_000, 1_130_000, [])
    plan = ask(job, "/api/job", history=files).value["plan"]
    assert plan == moment["plan"] == ask(job, f"/api/job?at={at}", history=files).value["plan"]


def test_what_cannot_be_answered_is_a_sentence(tmp_path: Path) -> None:
    job = StandingJob(example_layout("flights"))
    none = ask(job, "/api/moment?at=5")
    assert (none.status, none.value) == (404, {"error": "this job has no history: it has no store"})
    empty = ask(job, "/api/moment?at=5", history=HistoryFiles(tmp_path / "nothing"))
    assert (empty.status, empty.value) == (404, {"error": "nothing of this job is recorded yet"})
    recorded(tmp_path, job, 3)
    files = HistoryFiles(tmp_path)
    for path in ("/api/moment", "/api/graph", "/api/verdict", "/api/operator/1", "/api/why/1/0", "/api/timeline"):
        said = ask(job, f"{path}?at=5", history=files)
        assert (said.status, said.value) == (404, {"error": "that moment is gone: the history of the job begins later"})
        assert ask(job, f"{path}?at=x", history=files).status == 400
    assert ask(job, "/api/epoch/999999", history=files).value == {"error": "epoch 999999 was not read yet"}


def test_a_moment_of_another_program_has_its_own_plan(tmp_path: Path) -> None:
    before = StandingJob(wide_layout(20))
    recorded(tmp_path, before, 5)
    job = StandingJob(example_layout("flights"))
    job.at = 2000.0
    recorded(tmp_path, job, 5)
    files, at = HistoryFiles(tmp_path), 1_003_500
    then = ask(job, f"/api/job?at={at}", history=files).value
    assert [each["name"] for each in then["operators"]] == [info.name for info in before.layout.processors]
    assert then["plan"] != ask(job, "/api/job", history=files).value["plan"]
    assert len(ask(job, f"/api/graph?at={at}", history=files).value["of"]) == 20
    said = ask(job, f"/api/compare?at={at}&with=2003000", history=files)
    assert (said.status, "cannot be compared" in said.value["error"]) == (409, True)
    late = ask(job, "/api/moment?at=1900000", history=files).value
    assert (late["running"], late["verdict"]["state"], late["totals"]["rate"]) == (False, "killed", None)
    assert "the job was not running" in late["unknown"][0]


def test_files_are_read_as_they_change_and_damage_is_said(tmp_path: Path) -> None:
    job = StandingJob(example_layout("flights"))
    files = HistoryFiles(tmp_path)
    recorded(tmp_path, job, 2)
    assert files.at(1 << 50).frame.at == 1_002_000
    recorded(tmp_path, job, 2)
    assert files.at(1 << 50).frame.at == 1_004_000
    assert files.at(1_003_000) is files.at(1_003_000)
    for path in tmp_path.glob("past-*"):
        path.write_bytes(path.read_bytes()[:-4])
    assert any("damaged" in text for text in files.read(lambda archive: list(archive.problems.values())))
    for path in tmp_path.glob("past-*"):
        path.unlink()
    assert files.read(lambda archive: archive.problems) == {}


def test_damaged_minutes_in_full_leave_the_frames(tmp_path: Path) -> None:
    job = StandingJob(example_layout("flights"))
    recorded(tmp_path, job, 3)
    archive = Archive()
    for path in sorted(tmp_path.iterdir()):
        archive.take(path.name, path.read_bytes())
    assert len(observations(archive, 1 << 40)) == 0, "a moment long after has none"
    assert len(observations(archive, 1_003_000)) == 3
    (full,) = tmp_path.glob("full-*")
    first = records(full.read_bytes())[0][0]
    assert first.kind == FULL
    assert json.dumps(sorted(archive.problems)) == "[]"
    for spans in archive._full.values():
        spans[:] = [type(span)(span.first, span.last, span.plan, zlib.compress(b"\xc1")) for span in spans]
    assert observations(archive, 1_003_000) == []
    assert "cannot be read" in archive.problems["full"]
