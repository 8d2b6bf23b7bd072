"""Forked processes have what started ones have, and nothing of one another; the fork server may die."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.supervisor import forked
from runtime.supervisor.forked import SERVER, UNKNOWN, Forked, environment, start_detached
from tests.support.processes import children, gone, wait_for, waited_for

MODULE = "tests.runtime.supervisor.forked_under_test"

pytestmark = pytest.mark.skipif(not forked._FORKS, reason="this system cannot stand for a process by a file")


def start(*arguments: str | int, files: tuple[int, ...] = (), **variables: str) -> Forked:
    process = forked.start(MODULE, arguments, files, {**environment(1), **variables})
    assert isinstance(process, Forked)
    return process


def server_pid() -> int:
    return forked._kept[-1][1]._process.pid


def told(**variables: str) -> dict[str, Any]:
    with tempfile.TemporaryFile() as file:
        assert start("tell", 0, files=(file.fileno(),), **variables).wait(60) == 0
        file.seek(0)
        facts: dict[str, Any] = json.loads(file.read())
    return facts


@pytest.fixture(autouse=True)
def standard_input() -> Iterator[None]:
    """An empty one: pytest's may not be read."""
    before = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    yield
    os.dup2(before, 0)
    os.close(before)


def test_a_forked_process_has_the_callers_surroundings_and_no_files_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONE", "1")
    others = [start("wait") for _ in range(3)]  # whose files are none of its
    before = os.umask(0o027)
    try:
        first = told(TWO="zwei")
    finally:
        os.umask(before)
    assert first["variables"] == {"ONE": "1", "TWO": "zwei", "POLARS_MAX_THREADS": str(os.cpu_count())}
    assert (first["folder"], first["umask"], first["module"]) == (str(tmp_path), 0o027, MODULE)
    assert first["group"] == first["pid"]
    assert (
        len(first["files"]) == 6
    )  # three standard ones, its own, that to the server, and the folder that is looked into
    monkeypatch.delenv("ONE")
    monkeypatch.chdir("/")
    second = told()
    assert second["variables"]["ONE"] is second["variables"]["TWO"] is None
    assert (second["folder"], second["umask"]) == ("/", before)
    assert not set(first["chance"]) & set(second["chance"])
    for each in others:
        each.kill()
        assert each.wait(60) == -signal.SIGKILL
    assert capfd.readouterr().out.count("said") == 2


def test_a_forked_process_has_another_one_forked_that_is_alone_and_outlives_it() -> None:
    others = [start("wait") for _ in range(3)]  # whose files are none of its
    with tempfile.TemporaryFile() as file:
        asks = start("ask", 0, files=(file.fileno(),), ONE="1")
        assert asks.wait(60) == 0
        wait_for(lambda: os.fstat(file.fileno()).st_size)
        file.seek(0)
        facts = json.loads(file.read())
    assert not gone(facts["pid"])
    assert facts["session"] == facts["pid"], "no signal to a group hits it"
    assert not facts["asks"]
    assert facts["files"] == 4, "three standard ones, and the folder that is looked into"
    assert SERVER in facts["parent"]
    assert facts["variable"] == "1"
    server = server_pid()
    os.kill(facts["pid"], signal.SIGKILL)
    wait_for(lambda: waited_for(facts["pid"]))
    for each in others:
        each.kill()
    assert start("leave", "3").wait(60) == 3
    assert server_pid() == server, "which goes on"


def test_a_process_that_no_server_has_forked_can_have_none_forked_alone() -> None:
    assert start_detached(MODULE, (0, 1, 2), os.environ) is None


def test_a_server_ends_when_nobody_is_left_who_could_ask(tmp_path: Path) -> None:
    program = f"""
import sys
from runtime.supervisor import forked
from runtime.supervisor.forked import environment
with open({str(tmp_path / "facts")!r}, "wb") as file:
    assert forked.start({MODULE!r}, ["ask", 0], [file.fileno()], environment(1)).wait(60) == 0
print(forked._kept[-1][1]._process.pid)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    server = int(done.stdout.split()[-1])  # all of it is read while the server still runs
    facts = tmp_path / "facts"
    wait_for(lambda: facts.read_text().endswith("\n"))
    assert not gone(server), "it has still to bury the one that is alone"
    os.kill(json.loads(facts.read_text())["pid"], signal.SIGKILL)
    wait_for(lambda: gone(server))


def test_libraries_with_threads_work_in_forked_processes() -> None:
    processes = [start("compute", POLARS_MAX_THREADS=str(1 + each % 2)) for each in range(6)]
    assert [each.wait(300) for each in processes] == [0] * 6


def test_ends_are_told_and_no_file_is_left_open(capfd: pytest.CaptureFixture[str]) -> None:
    start("leave", "0").wait(60)
    before = len(os.listdir("/proc/self/fd"))
    assert start("leave", "9").wait(60) == 9
    assert start("fail").wait(60) == 1
    assert "ValueError: as told" in capfd.readouterr().err
    waits = start("wait")
    assert waits.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        waits.wait(0.01)
    wait_for(lambda: "ready" in capfd.readouterr().out)
    waits.terminate()
    assert waits.wait(60) == 7
    waits.kill()  # nothing happens: it might be another process by now
    assert waits.poll() == 7
    dropped = start("wait")
    pid = dropped.pid
    del dropped
    os.kill(pid, signal.SIGKILL)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.check
def test_one_server_serves_until_what_its_processes_inherit_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    start("leave", "0").wait(60)
    first = server_pid()
    monkeypatch.setenv("ONE", "1")
    start("leave", "0", TWO="2").wait(60)
    assert server_pid() == first
    running = start("wait")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    start("leave", "0").wait(60)
    second = server_pid()
    assert second != first
    monkeypatch.delenv("PYTHONWARNINGS")
    start("leave", "0").wait(60)
    assert server_pid() == first
    for each in ("error", "always"):
        monkeypatch.setenv("PYTHONWARNINGS", each)
        start("leave", "0").wait(60)
    wait_for(lambda: gone(second))
    assert not gone(first)  # it has still to tell how that one ends
    running.kill()
    assert running.wait(60) == -signal.SIGKILL
    wait_for(lambda: gone(first))
    second = server_pid()
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0 if soft else 1, hard))
    try:
        start("leave", "0").wait(60)
        assert server_pid() != second
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.mark.check
def test_the_server_that_is_prepared_at_first_serves_when_all_is_imported() -> None:
    """Libraries change the environment when they are imported; a second server would take as long again to load."""
    program = f"""
from runtime.supervisor import forked
from runtime.supervisor.forked import environment
forked.prepare(environment(2))
(_, prepared), = forked._kept
import runtime.processes.worker, runtime.processes.recovery, runtime.processes.monitor, falkirk.run_job
import numba, pandas, pyarrow.dataset
forked.start({MODULE!r}, ["leave", "0"], [], environment(2)).wait(60)
(_, used), = forked._kept
assert used is prepared
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.check
def test_a_server_that_died_is_replaced_and_its_processes_go_on() -> None:
    running = start("wait")
    os.kill(server_pid(), signal.SIGKILL)
    forked._kept[-1][1]._process.wait()
    assert start("leave", "5").wait(60) == 5
    assert running.poll() is None
    running.kill()
    assert running.wait(60) == UNKNOWN


def test_a_server_that_dies_while_it_is_asked_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    start("leave", "0").wait(60)
    kept = forked._kept[-1][1]
    monkeypatch.setattr(forked.ForkClient, "alive", lambda _: True)  # it dies right after that question
    kept._process.kill()
    kept._process.wait()
    process = forked.start(MODULE, ["leave", "4"], [], environment(1))
    assert isinstance(process, subprocess.Popen)
    assert process.wait(60) == 4


def test_a_server_goes_with_the_process_that_has_started_it() -> None:
    program = f"""
import os, time
from runtime.supervisor import forked
from runtime.supervisor.forked import environment
forked.start({MODULE!r}, ["leave", "0"], [], environment(1)).wait(60)
print("there", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        (server,) = children(process.pid)
        assert SERVER in Path(f"/proc/{server}/cmdline").read_text()
        time.sleep(0.1)
        assert not gone(server)
        process.kill()
    wait_for(lambda: gone(server))
