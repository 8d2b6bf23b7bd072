"""A store is its user's alone, whatever the umask; and it waits for a file descriptor when strangers hold them all."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from recovery.store.interface import StoreError
from recovery.store.local import LocalStore
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.runtime.job_under_test import build, check
from tests.support.few_descriptors import few_descriptors


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_a_folder_that_the_system_made_for_a_user_is_as_good_as_their_own(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, say, folders are the root user's."""
    with LocalStore(short_path / "store") as store:
        there = os.stat_result((0o40700, 1, 1, 1, 0, 0, 0, 0, 0, 0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", lambda fd: there)
            patch.setattr(os, "getuid", lambda: 4321)
            assert store.make_private() is None


def open_to_others(folder: Path) -> list[str]:
    """Whatever in `folder`, itself included, somebody else could open."""
    found = []
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):  # collected meanwhile
            if (mode := path.lstat().st_mode) & 0o077:
                found.append(f"{path}: {stat.filemode(mode)}")
    return found


@pytest.mark.parametrize("mask", [0, 0o077])
def test_all_that_a_job_keeps_is_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_path: Path, mask: int
) -> None:
    temporary = short_path  # a long one is not used for sockets
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    found: list[str] = []
    with umask(mask):
        program = Program(flow=build, args={"folder": str(tmp_path), "records": 2000})
        notes: list[str] = []
        job = Job(program, 2, tmp_path / "store", on_note=notes.append)
        (private,) = temporary.iterdir()
        while job.over is None:
            job.turn(0.1)
            found += open_to_others(tmp_path / "store") if not found else []
            found += open_to_others(private) if not found else []
        result = job.run()
    found += open_to_others(tmp_path / "store")
    assert found == []
    assert not [note for note in notes if "other users" in note]
    check(tmp_path, 2000, result.captured("counts"))
    assert not list(temporary.iterdir())


def test_a_store_that_others_could_open_is_closed_and_that_is_said(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(0o755)
    program = Program(flow=build, args={"folder": str(tmp_path), "records": 100})
    notes: list[str] = []
    Job(program, 1, store, on_note=notes.append).close()
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert notes == []  # nothing was in it
    store.chmod(0o2775)
    Job(program, 1, store, on_note=notes.append).close()
    assert stat.S_IMODE(store.stat().st_mode) & 0o077 == 0
    assert len(notes) == 1
    assert "its mode was 775" in notes[0]
    Job(program, 1, store, on_note=notes.append).close()
    assert len(notes) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_nobody_else_can_keep_the_lock_or_read_the_store(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    with LocalStore(tmp_path / "store") as store, store.lock():
        store.put("w/a", [b"secret"])
    tried = os.fork()
    if tried == 0:
        code = 1
        try:
            os.setuid(65534)
            for path in (".lock", "w/a"):
                try:
                    os.open(tmp_path / "store" / path, os.O_RDONLY)
                    break
                except PermissionError:
                    continue
            else:
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(tried, 0)[1] == 0


def test_a_folder_of_another_user_is_told(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / "store").mkdir(0o700)
    os.chown(tmp_path / "store", 65534, 65534)
    with LocalStore(tmp_path / "store") as store:
        note = store.make_private()
    assert note is not None
    assert "another user's (number 65534)" in note


def test_a_store_waits_for_a_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalStore(tmp_path / "store") as store:
        store.put("w/a", [b"abc"])
        with few_descriptors() as give_back:
            threading.Timer(0.3, give_back).start()
            store.put("w/b", [b"def"])
        with few_descriptors() as give_back:
            threading.Timer(0.3, give_back).start()
            assert bytes(store.get("w/b")) == b"def"
        monkeypatch.setattr("timely.io.descriptors.PATIENCE_SECONDS", 0.1)
        with few_descriptors(), pytest.raises(StoreError, match="Too many open files"):
            store.put("w/c", [b"def"])
        assert store.names("") == ["w/a", "w/b"]
