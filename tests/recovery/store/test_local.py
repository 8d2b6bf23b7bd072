"""The store in a folder, on a real disk."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recovery.store.identity import make_store_id, store_id
from recovery.store.interface import (
    AlreadyThere,
    Buffer,
    NotThere,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreGone,
    StoreUnwritable,
    StoreVersion,
)
from recovery.store.local import LocalStore

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore(tmp_path / "store") as store:
        yield store


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_blobs_are_read_back_by_another_store_of_the_same_folder(store: LocalStore) -> None:
    store.put("worker-000/segment-00000000", [b"abc", b"", memoryview(b"defg")[1:]])
    store.put("store", [])
    with LocalStore(store.folder) as other:
        assert bytes(other.get("worker-000/segment-00000000")) == b"abcefg"
        assert bytes(other.get("store")) == b""
    assert everything_in(store.folder) == ["store", "worker-000/segment-00000000"]


def test_blobs_start_at_multiples_of_64_and_cannot_be_changed(store: LocalStore) -> None:
    for size in (1, 1000, 100_000):
        store.put(f"of-{size}", [bytes(size)])
        data = store.get(f"of-{size}")
        assert pa.py_buffer(data).address % 64 == 0
        assert data.readonly


def test_more_parts_than_one_system_call_takes_and_partial_writes(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [bytes([i % 256]) * (i % 7) for i in range(3000)]
    store.put("many", parts)
    assert bytes(store.get("many")) == b"".join(parts)
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, views: real(fd, [views[0][: max(1, len(views[0]) // 2)]]))
    store.put("slowly", parts)
    assert bytes(store.get("slowly")) == b"".join(parts)


def test_names_and_sizes_by_prefix(store: LocalStore) -> None:
    for name in ("worker-000/b", "worker-000/a", "worker-0001/a", "monitor/a", "store"):
        store.put(name, [name.encode()])
    assert store.names("worker-000/") == ["worker-000/a", "worker-000/b"]
    assert store.names("worker-000") == ["worker-000/a", "worker-000/b", "worker-0001/a"]
    assert store.names("") == ["monitor/a", "store", "worker-000/a", "worker-000/b", "worker-0001/a"]
    assert store.names("worker-007/") == store.names("x") == []
    assert store.size("worker-000/") == 24
    assert store.size() == 24 + 13 + 9 + 5


def test_a_name_is_taken_once_until_it_is_deleted(store: LocalStore) -> None:
    store.put("a", [b"first"])
    with pytest.raises(AlreadyThere, match="already has a"):
        store.put("a", [b"second"])
    assert bytes(store.get("a")) == b"first"
    store.delete("a")
    store.delete("a")
    store.delete("no-folder/a")
    with pytest.raises(NotThere, match=r"store has no a$"):
        store.get("a")
    store.put("a", [b"second"])
    assert bytes(store.get("a")) == b"second"


@pytest.mark.parametrize("name", ["", "/a", "a/", "../a", "a/../b", ".lock", "a/.writing-1", "a b", "a//b"])
def test_names_that_lead_elsewhere_are_refused(store: LocalStore, name: str) -> None:
    for call in (lambda: store.put(name, []), lambda: store.get(name), lambda: store.delete(name)):
        with pytest.raises(ValueError, match="is not a name for a blob"):
            call()


def test_a_put_syncs_the_file_before_its_name_appears_and_the_folder_after(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("worker-000/first", [b""])
    happened: list[str] = []
    sync, link = os.fsync, os.link

    def fsync(fd: int) -> None:
        happened.append("sync of " + Path(os.readlink(f"/proc/self/fd/{fd}")).name.partition("-")[0])
        sync(fd)

    def linked(source: Any, target: Any, **more: Any) -> None:
        happened.append(f"link to {target}")
        link(source, target, **more)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", linked)
    store.put("worker-000/a", [b"x"])
    assert happened == ["sync of .writing", "link to a", "sync of worker"]
    happened.clear()
    store.put("worker-001/a", [b"x"])
    assert happened == ["sync of store", "sync of .writing", "link to a", "sync of worker"]


def test_of_many_threads_one_gets_the_name(store: LocalStore) -> None:
    for round_ in range(20):
        barrier = threading.Barrier(4)
        won: list[int] = []

        def put(me: int, round_: int = round_, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait()
            try:
                store.put(f"w/{round_}", [str(me).encode() * 1000])
                won.append(me)
            except AlreadyThere:
                pass

        threads = [threading.Thread(target=put, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert bytes(store.get(f"w/{round_}")) == str(won[0]).encode() * 1000


RACER = """
import sys
from recovery.store.interface import AlreadyThere
from recovery.store.local import LocalStore
store = LocalStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = []
for number in range(200):
    try:
        store.put(f"w/{number}", [sys.argv[2].encode() * 50])
        won.append(number)
    except AlreadyThere:
        pass
print(*won)
"""


def test_of_two_processes_one_gets_each_name(store: LocalStore) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(store.folder), str(me)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for me in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [[int(number) for number in racer.communicate(timeout=60)[0].split()] for racer in racers]
    assert sorted(won[0] + won[1]) == list(range(200))
    for me, numbers in enumerate(won):
        assert all(bytes(store.get(f"w/{number}")) == str(me).encode() * 50 for number in numbers)


def test_nothing_is_left_of_a_put_that_failed_or_whose_process_was_killed(store: LocalStore) -> None:
    class Killed(BaseException):
        pass

    class Bomb(Sequence[Buffer]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: Any) -> Any:
            if index == 1:
                raise Killed
            return b"abc"

    with pytest.raises(Killed):
        store.put("w/a", Bomb())
    assert everything_in(store.folder) == []

    code = f"""
import os
from recovery.store.local import LocalStore
os.link = lambda *a, **k: os.kill(os.getpid(), 9)
LocalStore({str(store.folder)!r}).put("w/a", [b"abc"])
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == -9
    (left,) = everything_in(store.folder)
    assert left.startswith("w/.writing-")
    assert store.names("") == []
    with store.lock():
        assert everything_in(store.folder) == [".lock"]


def _hold(folder: Path, ready: Any, go: Any) -> None:
    with LocalStore(folder) as store, store.lock():
        ready.set()
        go.wait(60)


def test_two_jobs_cannot_use_one_store_and_its_workers_can(store: LocalStore) -> None:
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(store.folder, ready, go))
    other.start()
    assert ready.wait(60)
    with (
        pytest.raises(StoreBusy, match=f"the job of process {other.pid} on .* is using the store") as caught,
        store.lock(),
    ):
        pass
    assert caught.value.pid == other.pid
    store.put("worker-000/a", [b"of a worker of that job"])
    other.kill()
    other.join()
    with store.lock(), pytest.raises(StoreBusy), LocalStore(store.folder) as second, second.lock():
        pass
    with store.lock():
        pass


def fail_with(code: int) -> Any:
    def failing(*args: Any, **more: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return failing


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreError)]
)
@pytest.mark.parametrize("call", ["writev", "fsync", "open"])
def test_a_disk_that_is_full_or_fails_is_named_and_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str, code: int, kind: type[StoreError]
) -> None:
    store.put("w/a", [b"there"])
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail_with(code))
        with pytest.raises(StoreError, match=r"writing w/b in .*store failed: .*run the job again") as caught:
            store.put("w/b", [b"abc"])
        assert type(caught.value) is kind
    assert everything_in(store.folder) == ["w/a"]
    store.put("w/b", [b"abc"])


def test_a_disk_that_cannot_be_read_is_named(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("w/a", [b"there"])
    with monkeypatch.context() as patch:
        patch.setattr("recovery.store.local._read", fail_with(errno.EIO))
        with pytest.raises(StoreError, match=r"reading w/a in .*store failed"):
            store.get("w/a")
    assert bytes(store.get("w/a")) == b"there"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what is open is told by Linux alone")
def test_nothing_stays_open_but_the_folders(store: LocalStore) -> None:
    def is_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    store.put("w/first", [b"opens the folder"])
    before = is_open()
    for number in range(5):
        store.put(f"w/{number}", [b"content"])
        store.get(f"w/{number}")
        store.delete(f"w/{number}")
    assert is_open() == before


def test_how_much_is_free_is_said_of_a_full_disk(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "writev", fail_with(errno.ENOSPC))
    with pytest.raises(StoreFull, match=r"No space left on device; make room \([\d,]+ bytes are free\)"):
        store.put("a", [b"abc"])


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_disk_that_cannot_be_written_is_named(store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "open", fail_with(code))
    with pytest.raises(StoreUnwritable, match="give this user the right to write there, or choose another store"):
        store.put("a", [b"abc"])


def test_a_file_system_without_links_is_named(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", fail_with(errno.EPERM))
    with pytest.raises(StoreUnwritable, match="no hard links"):
        store.put("a", [b"abc"])


def test_a_folder_that_was_made_immutable_is_named(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(*args: Any, **options: Any) -> None:
        monkeypatch.setattr(os, "open", fail_with(errno.EPERM))
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreUnwritable, match="immutable"):
        store.put("a", [b"abc"])
    monkeypatch.setattr(os, "open", opened)


def test_a_read_only_folder_is_named(store: LocalStore) -> None:
    store.folder.chmod(0o500)
    try:
        if os.access(store.folder, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(StoreUnwritable, match="Permission denied"):
            store.put("a", [b"abc"])
    finally:
        store.folder.chmod(0o700)


def test_a_store_cannot_be_made_where_a_file_is_or_without_a_parent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnwritable, match="is a file"):
        LocalStore(tmp_path / "file")
    with pytest.raises(StoreError, match="there is no folder"):
        LocalStore(tmp_path / "no" / "store")


@pytest.mark.parametrize("back", [False, True])
def test_a_folder_that_vanishes_under_the_job_is_noticed(store: LocalStore, back: bool) -> None:
    store.put("w/a", [b"abc"])
    shutil.rmtree(store.folder)
    if back:
        store.folder.mkdir()
    for call in (
        lambda: store.put("w/b", [b""]),
        lambda: store.get("w/a"),
        lambda: store.names(""),
        lambda: store.delete("w/a"),
        lambda: store.size(),
    ):
        with pytest.raises(StoreGone, match="was removed or replaced while the job was running; bring it back"):
            call()


def test_an_inner_folder_that_vanishes_is_not_made_anew(store: LocalStore) -> None:
    store.put("w/a", [b"abc"])
    shutil.rmtree(store.folder / "w")
    with pytest.raises(StoreGone, match=r"store/w was removed"):
        store.put("w/b", [b""])
    store.put("v/b", [b""])


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    store.close()
    with pytest.raises(StoreError, match="was closed"):
        store.put("a", [b""])


def test_a_store_gets_one_id(store: LocalStore) -> None:
    assert store_id(store) is None
    assert make_store_id(store, b"a" * 16) == b"a" * 16
    assert make_store_id(store, b"b" * 16) == store_id(store) == b"a" * 16


def test_what_is_no_store_or_of_another_version_is_refused(store: LocalStore) -> None:
    (store.folder / "thesis.odt").write_text("years of work")
    with pytest.raises(StoreError, match=r"not a store of falkirk: it has 'thesis.odt'"):
        make_store_id(store, b"a" * 16)
    (store.folder / "store").write_text("hello")
    with pytest.raises(StoreCorrupt, match="does not say which store"):
        store_id(store)
    (store.folder / "store").write_text('{"type":"falkirk-store","version":7,"id":"YWFhYWFhYWFhYWFhYWFhYQ=="}')
    with pytest.raises(StoreVersion, match="format 7, and this version reads format 3"):
        store_id(store)


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_disk_that_is_full_at_the_lock_is_told_as_such(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with LocalStore(tmp_path / "store") as store:
        monkeypatch.setattr(os, call, full)
        with pytest.raises(StoreFull, match=r"locking the store in .*make room"), store.lock():
            raise AssertionError("not reached")
        monkeypatch.undo()
        with store.lock():
            pass


@pytest.mark.parametrize("name", ["a\0b", "no/such/store", "file/store"])
def test_place_where_no_store_can_be_is_told_as_such(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r"no name for a folder|no folder|not a folder|Not a directory"):
        LocalStore(name)


# Files and folders


def open_files() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


LINUX = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what is open is told by Linux alone")


@LINUX
def test_a_store_that_is_closed_has_nothing_open(tmp_path: Path) -> None:
    before = set(open_files().values())
    with LocalStore(tmp_path / "store") as store:
        store.put("w/a", [b"content"])
        assert set(open_files().values()) > before
    assert set(open_files().values()) == before
    with pytest.raises(StoreError, match="was closed"):
        store.put("w/b", [b"content"])


@LINUX
def test_the_folder_of_a_new_store_is_durable_and_that_of_an_old_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(open_files()[fd]))
    for expected in ([str(tmp_path)], []):
        LocalStore(tmp_path / "store").close()
        assert synced == expected
        synced.clear()


def test_names_are_found_by_the_beginning_of_a_path(store: LocalStore) -> None:
    for name in ("w/first", "w/second", "v/first", "w/x/first"):
        store.put(name, [b"content"])
    assert store.names("w/fi") == ["w/first"]
    assert store.names("w/x") == ["w/x/first"]
    assert store.names("w") == ["w/first", "w/second", "w/x/first"]
    assert store.names("u") == []


def test_a_folder_that_goes_while_names_are_listed_has_none(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("v/a", [b"content"])
    store.put("w/a", [b"content"])
    scan = os.scandir

    def gone(path: Any) -> Any:
        if str(path).rstrip("/").endswith("/v"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return scan(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert store.names("") == ["w/a"]


@pytest.mark.parametrize(
    ("call", "doing", "do"),
    [
        ("unlink", "deleting w/a", lambda store: store.delete("w/a")),
        ("scandir", "listing ", lambda store: store.names("")),
        ("open", "locking the store", lambda store: store.lock().__enter__()),
    ],
)
def test_a_disk_that_fails_says_what_was_to_be_done(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str, doing: str, do: Any
) -> None:
    store.put("w/a", [b"there"])
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail_with(errno.EIO))
        with pytest.raises(StoreError, match=f"{doing}.* failed: Input/output error"):
            do(store)


def test_a_lock_that_cannot_be_had_for_another_reason_is_told(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", fail_with(errno.ENOLCK))
    with pytest.raises(StoreError, match=r"locking the store in .* failed"), store.lock():
        pass


def test_who_has_the_lock_is_told_by_number_and_host_though_another_had_it_before(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as one, LocalStore(tmp_path / "store") as two:
        (tmp_path / "store" / ".lock").write_text("99999999999 a-host-with-a-long-name\n")
        with (
            one.lock(),
            pytest.raises(StoreBusy, match=f"process {os.getpid()} on {socket.gethostname()} is") as caught,
        ):
            two.lock().__enter__()
        assert caught.value.pid == os.getpid()


def test_a_write_whose_folder_goes_meanwhile_says_so(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", fail_with(errno.ENOENT))
    with pytest.raises(StoreError, match="its folder is missing, or another process that took over removed"):
        store.put("w/a", [b"content"])


def test_leftovers_of_a_store_that_is_gone_are_no_reason_to_go_on(store: LocalStore) -> None:
    shutil.rmtree(store.folder)
    with pytest.raises(StoreGone):
        store.remove_leftovers()
