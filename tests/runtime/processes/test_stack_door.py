"""Doors of processes: stacks now and samples, also of a process whose lock native code holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.page import doors
from runtime.page.doors import NotRunning, all_profiles, all_stacks, find_spy, read_spy, read_trace
from runtime.session.stacks import MINUTE, StackSamples, stacks_now
from timely.dataflow.graph import Node

ROOT = Path(__file__).resolve().parents[3]

HANGS = """
import ctypes, sys, time
from runtime.processes.stack_door import open_door
open_door(sys.argv[1], "worker-1")
native = ctypes.PyDLL(None)
def in_python():
    print("ready", flush=True)
    while True:
        time.sleep(0.001)
def in_native():
    print("ready", flush=True)
    native.sleep(1000)
(in_native if sys.argv[2] == "native" else in_python)()
"""


@contextmanager
def hanging(folder: Path, how: str) -> Iterator[tuple[Any, int]]:
    """The store's folder, as seen from outside, of a process that hangs."""
    script = folder / "hangs.py"
    script.write_text(HANGS)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(script), str(folder), how], stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        page = folder / ".page"
        page.write_text(f"unix:{folder}/page")
        yield SimpleNamespace(page=page), process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def test_a_process_that_hangs_in_python_answers_by_itself(tmp_path: Path) -> None:
    with hanging(tmp_path, "python") as (folder, pid):
        (stacks,) = all_stacks(folder)
        assert (stacks.place, stacks.pid, stacks.note) == ("worker-1", pid, "")
        main = stacks.threads[0]
        assert main.thread == "MainThread"
        assert [line.name for line in main.lines] == ["in_python", "<module>"]
        assert main.lines[0].line in (7, 8, 9)
        assert f"worker-1, process {pid}: no operator is at work" in stacks.text
        while not any(s.kind == "engine" for p in all_profiles(folder) for s in p.stacks):
            time.sleep(0.02)
        (profile,) = all_profiles(folder)
        named = [profile.frames[number].name for stack in profile.stacks for number in stack.frames]
        assert "in_python" in named


@pytest.mark.skipif(doors.TRACE_SIGNAL is None, reason="no real-time signals")
def test_without_py_spy_native_code_is_seen_by_its_functions_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "find_spy", lambda: None)
    with hanging(tmp_path, "native") as (folder, pid):
        (stacks,) = all_stacks(folder)
        while not stacks.note:  # it has not called native code yet
            (stacks,) = all_stacks(folder)
        assert stacks.pid == pid
        assert [line.name for line in stacks.threads[0].lines] == ["in_native", "<module>"]
        assert "native code holds Python's lock" in stacks.note
        assert "py-spy is not installed" in stacks.note
        with pytest.raises(NotRunning):
            all_profiles(folder)


@pytest.mark.skipif(find_spy() is None, reason="py-spy is not installed")
def test_py_spy_shows_native_functions_where_it_is_installed(tmp_path: Path) -> None:
    with hanging(tmp_path, "native") as (folder, _):
        (stacks,) = all_stacks(folder)
        assert "in_native" in [line.name for line in stacks.threads[0].lines]


def test_doors_of_dead_processes_and_of_no_job_are_passed_over(tmp_path: Path) -> None:
    with hanging(tmp_path, "python") as (folder, _):
        pass
    with pytest.raises(NotRunning, match="no process of the job has a door"):
        all_stacks(folder)
    with pytest.raises(NotRunning, match="only while"):
        all_stacks(SimpleNamespace(page=tmp_path / "nothing"))  # type: ignore[arg-type]


def test_samples_are_a_ring_of_a_minute_and_stand_for_the_time_between_them() -> None:
    now = [1000.0]
    site: Any = SimpleNamespace(file="app.py", line=3)
    node: Any = SimpleNamespace(name="count", site=site)
    at_work: list[Node | None] = [node]
    samples = StackSamples(lambda: at_work[0], lambda: now[0])
    for _ in range(10):
        now[0] += 0.5
        samples.sample()
    now[0] += 7.0  # native code kept the lock
    samples.sample()
    profile = samples.profile("worker-0")
    assert sum(s.milliseconds for s in profile.stacks if (s.kind, s.root) == ("operator", "count")) == 12_000
    assert profile.seconds == 12.0
    assert {profile.frames[n].name.rpartition(".")[2] for s in profile.stacks for n in s.frames[-1:]} >= {"sample"}
    at_work[0] = None
    for _ in range(2 * MINUTE):
        now[0] += 1.0
        samples.sample()
    profile = samples.profile("worker-0")
    assert {s.kind for s in profile.stacks} <= {"engine", "thread"}
    assert profile.seconds == MINUTE
    assert len(samples._ring) == MINUTE
    assert len(samples._codes) < 1000


def test_stacks_of_other_threads_are_there_by_name() -> None:
    ready, over = threading.Event(), threading.Event()

    def other() -> None:
        ready.set()
        over.wait()

    thread = threading.Thread(target=other, name="a-reader")
    thread.start()
    ready.wait()
    try:
        stacks = stacks_now("worker-0", None)
    finally:
        over.set()
        thread.join()
    (found,) = [each for each in stacks.threads if each.thread == "a-reader"]
    assert any(line.name.endswith("other") for line in found.lines)
    assert stacks.threads[0].thread == threading.main_thread().name


def test_what_faulthandler_and_py_spy_write_is_read() -> None:
    text = (
        "Thread 0x00007f (most recent call first):\n"
        '  File "/a b/threading.py", line 3 in wait\n'
        "\n"
        "Current thread 0x0000ab [MainThread] (most recent call first):\n"
        '  File "app.py", line 7 in <lambda>\n'
        '  File "app.py", line ??? in f\n'
        "  ...\n"
    )
    main, other = read_trace(text)
    assert [(line.name, line.file, line.line) for line in main.lines] == [("<lambda>", "app.py", 7), ("f", "app.py", 0)]
    assert (main.thread, other.thread) == ("MainThread", "0x00007f")
    data = b"""[{"thread_name": null, "os_thread_id": 9, "frames": []}, {"thread_name": "MainThread", "pid": 1,
        "frames": [{"name": "sleep", "filename": "libc.so.6", "line": 0, "locals": null}]}]"""
    main, other = read_spy(data)
    assert (main.thread, main.lines[0].name, other.thread) == ("MainThread", "sleep", "9")


def test_ctrl_backslash_has_the_same_account(capfd: pytest.CaptureFixture[str]) -> None:
    stacks = stacks_now("worker 0", None)
    assert re.search(r"thread MainThread, innermost first:\n    stacks.py:\d+ in stacks_now", stacks.text)
