"""The history of real jobs: nobody looks, the monitor is killed, the disk is full."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.coordination.supervision import TimelineEvent
from monitor.history.archive import Archive
from monitor.history.files import framed
from recovery.store import StoreAddress
from runtime.folders.store_folder import StoreFolder
from runtime.page.recorder import HistoryRecorder
from tests.monitor.web.programs import example_layout
from tests.monitor.web.serving import running
from tests.monitor.web.standing import StandingJob
from tests.support.processes import monitor_pid


def history(folder: Path) -> Path:
    return StoreFolder(StoreAddress.of(folder)).history


def read(folder: Path) -> Archive:
    archive = Archive()
    for path in sorted(history(folder).glob("[!.]*")):
        archive.take(path.name, path.read_bytes())
    return archive


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_job_that_nobody_looks_at_has_a_history_over_the_death_of_its_monitor(tmp_path: Path) -> None:
    def newest() -> int:
        archive = read(tmp_path / "store") if history(tmp_path / "store").exists() else Archive()
        frames = archive.frames(0, 1 << 60)
        return frames[-1].at if frames and (frames[-1].number("read") or 0) > 0 else 0

    with running(tmp_path) as (_, job):
        wait_for(lambda: newest() > 0)
        os.kill(monitor_pid(job), signal.SIGKILL)
        killed = time.time() * 1000
        wait_for(lambda: newest() > killed + 2000)
    archive = read(tmp_path / "store")
    frames = archive.frames(0, 1 << 60)
    counted = [frame.number("read") or 0 for frame in frames]
    assert counted == sorted(counted)
    kinds = [event.kind for event in archive.events]
    assert kinds[0] == "began"
    assert "monitor" in kinds
    assert kinds[-1] == "stopped"
    assert {event.kind for event in archive.events} <= set(archive.counters.events)
    moment = archive.at(frames[-1].at)
    assert moment.options is not None
    assert moment.verdict().state == "stopped"
    assert moment.layout.workers == 2
    assert archive.full_until(frames[-1].at)
    assert not archive.problems


def recorded(folder: Path, seconds: int, job: StandingJob, notes: list[str]) -> None:
    recorder = HistoryRecorder(history(folder), job.layout, {"falkirk": "1"}, notes.append)
    recorder.happened(TimelineEvent("began", job.at, {"workers": job.layout.workers}))
    for _ in range(seconds):
        recorder.second(job.step(1.0), job.options.record())
    recorder.close(30.0)


def test_what_was_left_is_taken_up_and_counters_go_on(tmp_path: Path) -> None:
    job, notes = StandingJob(example_layout("flights")), []
    recorded(tmp_path, 70, job, notes)
    first = read(tmp_path)
    recorded(tmp_path, 70, job, notes)
    now = history(tmp_path) / "now"
    now.write_bytes(now.read_bytes()[:-3])
    recorded(tmp_path, 5, job, notes)
    archive = read(tmp_path)
    frames = archive.frames(0, 1 << 60)
    assert len(frames) == 145 - 1 or len(frames) == 145
    assert [frame.number("read") for frame in frames] == sorted(frame.number("read") or 0 for frame in frames)
    assert archive.counters.events["began"] == 3
    assert archive.counters.read >= first.counters.read
    assert len(archive.plans) == 1
    assert len(notes) == 1
    assert "damaged" in notes[0]


def test_a_full_disk_is_said_once_and_the_history_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, notes, full = StandingJob(example_layout("flights")), [], [False]
    write = os.write

    def fails(descriptor: int, data: bytes) -> int:
        if full[0]:
            write(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("runtime.page.recorder.os.write", fails)
    monkeypatch.setattr("runtime.page.recorder._AGAIN_SECONDS", 0.0)
    recorder = HistoryRecorder(history(tmp_path), job.layout, {}, notes.append)
    for state in (False, True, False):
        recorder.second(job.step(1.0), job.options.record())
        while recorder._waiting:
            time.sleep(0.01)
        time.sleep(0.2)
        full[0] = state
        recorder.happened(TimelineEvent("failure", job.at, {"worker": 0, "reason": "", "incarnation": 1}))
        for _ in range(3):
            recorder.second(job.step(1.0), None)
        wait_for(lambda: not recorder._waiting)
        time.sleep(0.2)
    recorder.close(30.0)
    assert len([note for note in notes if "No space left" in note]) == 1
    archive = read(tmp_path)
    assert [event.kind for event in archive.events].count("failure") == 3
    assert len(archive.frames(0, 1 << 60)) >= 8


def test_a_folder_that_cannot_be_made_ends_nothing(tmp_path: Path) -> None:
    history(tmp_path).write_bytes(framed(1, b""))
    notes: list[str] = []
    recorded(tmp_path, 3, StandingJob(example_layout("flights")), notes)
    assert len(notes) == 1
    assert "the job goes on" in notes[0]
