"""Stores that are full, read-only, gone, damaged, somebody else's or in use, as real processes meet them.

Each ends with a message that says what to do and exit code 1, and nothing that was acknowledged is lost: when the store is well
again, the same command goes on and its outputs are those of a run in which nothing happened.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.runtime.job_under_test import GATE, check, expected, in_files
from tests.runtime.watched import RECORDS, ROOT, command, run
from tests.support.processes import descendants, gone, wait_for


def written(folder: Path) -> int:
    return len(list((folder / "files").glob("epoch-*")))


def is_whole_so_far(folder: Path) -> None:
    """All that was published is right, as far as it goes. Of an epoch, each worker publishes its own rows."""
    right = expected(RECORDS)
    assert all(counts.items() <= right[epoch].items() for epoch, counts in in_files(folder).items())


def able_to(*wrapper: str) -> bool:
    return (
        subprocess.run([*wrapper, "true"], capture_output=True).returncode == 0 if shutil.which(wrapper[0]) else False
    )


needs_mounts = pytest.mark.skipif(
    not able_to("unshare", "-m"),
    reason="this user may not mount a small disk",
)


@pytest.mark.check
@needs_mounts
def test_a_full_disk_ends_the_job_and_room_lets_it_go_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    script = f"""
        mount -t tmpfs -o size=80k none {store} || exit 77
        "$@"; echo "first: $?"
        mount -o remount,size=64m {store}
        "$@"; echo "second: $?"
    """
    code, said = run(["unshare", "-m", "sh", "-c", script, "sh", *command(tmp_path, "-w", "2")])
    if code == 77:
        pytest.skip("this user may not mount a small disk")
    _, _, second = said.partition("first: 1")
    assert second, said
    assert "second: 0" in second, said
    assert "make room" in said
    assert "bytes are free" in said
    check(tmp_path, RECORDS)


@needs_mounts
def test_a_disk_that_is_read_only_is_refused_at_the_beginning(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    script = f'mount -t tmpfs -o ro none {store} || exit 77; "$@"'
    code, said = run(["unshare", "-m", "sh", "-c", script, "sh", *command(tmp_path)])
    if code == 77:
        pytest.skip("this user may not mount a small disk")
    assert code == 1, said
    assert "give this user the right to write there, or choose another store" in said
    assert written(tmp_path) == 0


@pytest.mark.check
@pytest.mark.skipif(os.getuid() == 0 and not able_to("unshare", "-U"), reason="root may write everywhere")
@pytest.mark.parametrize("owner", [pytest.param("worker-001", marks=pytest.mark.soak), "monitor"])
def test_a_folder_that_becomes_read_only_ends_the_job(tmp_path: Path, owner: str) -> None:
    powerless = ["unshare", "-U"] if os.getuid() == 0 else []
    folder = tmp_path / "store" / owner
    with subprocess.Popen(
        [*powerless, *command(tmp_path, "-w", "2")], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: written(tmp_path) >= 10 or process.poll() is not None)
        folder.chmod(0o555)
        _, said = process.communicate(timeout=240)
    folder.chmod(0o755)
    assert process.returncode == 1, said
    assert f"writing {owner}/" in said
    assert "give this user the right to write there" in said
    is_whole_so_far(tmp_path)
    assert run(command(tmp_path, "-w", "2"))[0] == 0
    check(tmp_path, RECORDS)


@pytest.mark.soak
def test_a_folder_inside_the_store_that_vanishes_ends_the_job_and_is_not_made_up_for(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with subprocess.Popen(command(tmp_path, "-w", "2"), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: written(tmp_path) >= 10 or process.poll() is not None)
        (store / "worker-000").rename(tmp_path / "elsewhere")
        _, said = process.communicate(timeout=240)
    assert process.returncode == 1, said
    assert "worker-000 was removed or replaced while the job was running" in said
    code, said = run(command(tmp_path, "-w", "2"))
    assert code == 1, said
    assert "the store of worker 0 has lost data that was acknowledged" in said
    is_whole_so_far(tmp_path)
    shutil.rmtree(store / "worker-000", ignore_errors=True)
    (tmp_path / "elsewhere").rename(store / "worker-000")
    code, said = run(command(tmp_path, "-w", "2"))
    assert code == 0, said
    check(tmp_path, RECORDS)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.check
@pytest.mark.parametrize(
    ("owner", "newest", "damage"),
    [
        pytest.param("worker-000", True, cut_short, marks=pytest.mark.soak),
        ("worker-000", False, flip),
        pytest.param("monitor", True, flip, marks=pytest.mark.soak),
    ],
)
def test_a_damaged_journal_is_never_read_as_if_it_were_whole(
    midway: Path, owner: str, newest: bool, damage: Callable[[Path], None]
) -> None:
    segments = sorted((midway / "store" / owner).glob("segment-*"))
    victim = segments[-1 if newest else 0]
    saved = victim.read_bytes()
    damage(victim)
    code, said = run(command(midway))
    if code:
        assert code == 1
        # If older ones are gone because of the newest, the error names those, and a note what was cut off. If all that was
        # lost is the end of the newest, the error says where the rest ends.
        assert f"{owner}/{victim.name}" in said
        assert ("the monitor's journal" if owner == "monitor" else "the journal of worker 0") in said
        assert "is damaged at byte" in said or (
            damage is cut_short and "was cut off after" in said and "has lost data that was acknowledged" in said
        )
        assert "Traceback" not in said
        is_whole_so_far(midway)
        victim.write_bytes(saved)
        code, said = run(command(midway))
        assert code == 0, said
    check(midway, RECORDS)


@pytest.mark.soak
def test_a_journal_of_the_monitor_that_is_too_old_is_not_blamed_on_a_worker(tmp_path: Path) -> None:
    monitor, old = tmp_path / "store" / "monitor", tmp_path / "old"

    def copied() -> bool:
        with suppress(OSError):  # segments come and go meanwhile
            shutil.copytree(monitor, old)
            return True
        shutil.rmtree(old, ignore_errors=True)
        return False

    with subprocess.Popen(command(tmp_path), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: written(tmp_path) >= 5 or process.poll() is not None)
        wait_for(copied)
        before = written(tmp_path)
        wait_for(lambda: written(tmp_path) >= before + 20 or process.poll() is not None)
        started = descendants(process.pid)
        process.kill()
    wait_for(lambda: all(gone(pid) for pid in started))
    monitor.rename(tmp_path / "right")
    old.rename(monitor)
    newest = max(monitor.iterdir())
    torn = newest.with_name(f"segment-{int(newest.name.removeprefix('segment-')) + 1:08d}")
    torn.write_bytes(newest.read_bytes()[:70])  # all that is left of the one that came after the copy
    code, said = run(command(tmp_path))
    assert code == 1, said
    assert "the journal of the monitor (the folder monitor of the store) has lost its end, or is an older copy" in said
    assert "lost data" not in said
    assert "part of the monitor's journal" in said
    assert "nothing is lost but" not in said
    shutil.rmtree(monitor)
    (tmp_path / "right").rename(monitor)
    assert run(command(tmp_path))[0] == 0
    check(tmp_path, RECORDS)


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job with one worker, all of which was killed midway."""
    folder = tmp_path_factory.mktemp("killed")
    with subprocess.Popen(command(folder), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: written(folder) >= 15 or process.poll() is not None)
        started = descendants(process.pid)
        process.kill()
    wait_for(lambda: all(gone(pid) for pid in started))  # until then they write
    assert written(folder) < RECORDS // 50
    return folder


@pytest.fixture
def midway(killed_once: Path, tmp_path: Path) -> Path:
    """A copy of it, for one test to damage."""
    return Path(shutil.copytree(killed_once, tmp_path, dirs_exist_ok=True, symlinks=True))


def segments_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "store").rglob("segment-*"))


def test_a_store_of_another_version_is_left_alone(midway: Path) -> None:
    identity = midway / "store" / "store"
    identity.write_text(json.dumps({**json.loads(identity.read_text()), "version": 99}))
    before = segments_of(midway)
    code, said = run(command(midway))
    assert code == 1
    assert "in format 99" in said
    assert "use the newer version of falkirk" in said
    assert segments_of(midway) == before


@pytest.mark.check
def test_a_second_job_on_the_store_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    gated = command(tmp_path, "--arg", "gated=true")
    with subprocess.Popen(gated, cwd=ROOT, stderr=subprocess.PIPE, text=True) as first:
        wait_for(lambda: written(tmp_path) >= 5 or first.poll() is not None)
        code, said = run(command(tmp_path))
        assert code == 1
        assert f"the job of process {first.pid} on " in said
        (tmp_path / GATE).touch()
        _, said = first.communicate(timeout=240)
    assert first.returncode == 0, said
    check(tmp_path, RECORDS)


@pytest.mark.check
def test_a_program_that_was_changed_is_refused_by_its_own_store(midway: Path) -> None:
    code, said = run(command(midway, "--arg", "operator=tally"))
    assert code == 1
    assert "operator 'count' is gone" in said
    assert (
        "Run the program as it was, keep what it has for this one by falkirk upgrade, or choose another store" in said
    )
    code, said = run(command(midway))
    assert code == 0, said
    check(midway, RECORDS)
