"""Temporary folders: removed at the end, swept when their owner was killed, never while somebody holds them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.folders import scratch as scratch_module
from runtime.folders.scratch import OWNER, Scratch, sweep
from runtime.folders.workspace import VARIABLE, Workspace

OWNS = """
import sys, time
from runtime.folders.scratch import Scratch
scratch = Scratch("test", sys.argv[1])
(scratch.path / "inside").mkdir()
(scratch.path / "inside" / "file").write_text("x")
print(scratch.path, flush=True)
time.sleep(600)
"""


def owner(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a folder of its own."""
    process = subprocess.Popen([sys.executable, "-c", OWNS, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_whose_owner_was_killed_is_swept_by_the_next_and_one_in_use_is_not(tmp_path: Path) -> None:
    processes = [owner(tmp_path) for _ in range(2)]
    (dead, left), (_, used) = processes
    try:
        assert stat.S_IMODE(left.stat().st_mode) == 0o700
        mine = Scratch("test", tmp_path)
        assert left.exists()
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        other = Scratch("other", tmp_path)
        assert not left.exists()
        assert (used / "inside" / "file").exists()
        assert mine.path.exists()
        mine.close()
        mine.close()
        other.close()
        assert list(tmp_path.iterdir()) == [used]
    finally:
        for process, _ in processes:
            process.kill()
            process.communicate()


def test_what_is_no_such_folder_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / OWNER).touch()
    there = tmp_path / "there"
    there.mkdir()
    (there / "falkirk-link").symlink_to(elsewhere)  # leads to a folder that looks like one
    (there / "falkirk-file").touch()
    (there / "falkirk-made-just-now").mkdir()
    (there / "falkirk-fifo").mkdir()
    os.mkfifo(there / "falkirk-fifo" / OWNER)
    (there / "falkirk-through").mkdir()
    (there / "falkirk-through" / OWNER).symlink_to(elsewhere / OWNER)
    (there / "another").mkdir()
    (there / "another" / OWNER).touch()
    assert sweep(there) == []
    assert elsewhere.exists()
    assert len(list(there.iterdir())) == 6


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make folders of another user")
def test_the_folder_of_another_user_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "falkirk-theirs"
    theirs.mkdir()
    (theirs / OWNER).touch()
    os.chown(theirs, 65534, 65534)
    assert sweep(tmp_path) == []
    os.chown(theirs, 0, 0)
    os.chown(theirs / OWNER, 65534, 65534)
    assert sweep(tmp_path) == []
    os.chown(theirs / OWNER, 0, 0)
    assert sweep(tmp_path) == [theirs]


def test_one_who_sweeps_while_a_folder_is_made_does_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, swept = scratch_module.fcntl.flock, []

    def flock(fd: int, how: int) -> None:
        if len(swept) < 3:  # in the moment between making the file and locking it
            swept.append(fd)
            monkeypatch.setattr(scratch_module.fcntl, "flock", right)
            sweep(tmp_path)
            monkeypatch.setattr(scratch_module.fcntl, "flock", flock)
        right(fd, how)

    monkeypatch.setattr(scratch_module.fcntl, "flock", flock)
    made = Scratch("test", tmp_path)
    assert len(swept) == 3
    assert list(tmp_path.iterdir()) == [made.path]
    assert sweep(tmp_path) == []
    made.close()


def test_the_files_of_a_job_without_a_store_are_in_such_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    workspace = Workspace()
    assert (workspace.path / OWNER).exists()
    assert sweep(tmp_path) == []
    workspace.close()
    assert list(tmp_path.iterdir()) == []


def test_empty_folders_that_were_made_again_behind_their_owner_are_swept_in_time(tmp_path: Path) -> None:
    again, kept, fresh, linked = (tmp_path / f"falkirk-{name}" for name in ("again", "kept", "fresh", "linked"))
    for folder in (again, kept, fresh, linked):
        (folder / "local" / "inner").mkdir(parents=True)
    (kept / "local" / "inner" / "file").write_text("somebody's")
    (linked / "link").symlink_to(kept)
    for folder in (again, kept, linked):
        os.utime(folder, (0, 0))
    assert sweep(tmp_path) == [again]
    assert sorted(tmp_path.iterdir()) == [fresh, kept, linked]
    assert (kept / "local" / "inner" / "file").exists()
