"""Bundles: all that is shown of a job and nothing that it handles; and files that are none."""

from __future__ import annotations

import io
import shutil
import threading
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from monitor.history.archive import Archive
from monitor.history.files import records
from recovery.store.address import StoreAddress
from runtime.page import bundle
from runtime.page.bundle import BundleError, read_bundle, write_bundle
from runtime.page.followed import FollowedJob, JobAtRest
from runtime.page.history import BundledHistory
from runtime.program import Program
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job
from tests.monitor.web.serving import ask, serving_all, when_ready
from tests.runtime.job_under_test import build
from tests.support.processes import wait_for
from tests.support.stores import beside
from timely.errors import FalkirkError
from timely.io import Rate

SECRET = "the-planted-secret"


def telling(fails: bool) -> Dataflow:
    """Each of its records has the secret in it; the 300th makes it fail with one in the error."""

    def check(record: str) -> str:
        if fails and record.endswith("-300"):
            raise ValueError(f"no good: {record}")
        return record

    flow = Dataflow("telling")
    numbers = flow.source("numbers", Rate(lambda i: f"{SECRET}-{i}", 500, 10**6, epoch_every=50))
    numbers.map(check, name="check").key_by(str, name="keyed").count().capture("out")
    return flow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a job that has ended."""
    folder = tmp_path_factory.mktemp("job")
    Job(
        Program(flow=build, args={"folder": str(folder), "records": 500}), 2, folder / "store", on_note=lambda _: None
    ).run()
    write_bundle(StoreAddress.of(folder / "store"), folder / "job.zip")
    return folder / "job.zip"


def plain_parts(data: bytes) -> list[bytes]:
    """Everything in a file of a history, unpacked where it is packed."""
    found = [data]
    for record in records(data)[0]:
        for at in (0, 20):
            with suppress(zlib.error):
                found.append(zlib.decompress(record.data[at:]))
    return found


def holds(store: Path) -> bool:
    """True if the secret is in a file of the store."""
    for file in store.rglob("*"):
        with suppress(OSError):
            if file.is_file() and ".history" not in file.parts and SECRET.encode() in file.read_bytes():
                return True
    return False


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_that_a_job_handles_is_in_its_bundle(tmp_path: Path, fails: bool) -> None:
    store = tmp_path / "store"
    job = Job(Program(flow=telling, args={"fails": fails}), 2, store, on_note=lambda _: None)

    def body() -> None:
        with suppress(FalkirkError, JobStopped):
            job.run()

    thread = threading.Thread(target=body)
    thread.start()
    try:
        wait_for(lambda: not thread.is_alive() if fails else holds(store))
    finally:
        stop_job(store)
        thread.join()
    if fails:
        assert SECRET.encode() in (beside(store).history / "facts").read_bytes(), "the error quotes it"
    else:
        assert holds(store)
    write_bundle(StoreAddress.of(store), tmp_path / "job.zip")
    with zipfile.ZipFile(tmp_path / "job.zip") as archive:
        for name in archive.namelist():
            assert not [part for part in plain_parts(archive.read(name)) if SECRET.encode() in part], name
    job = read_bundle(tmp_path / "job.zip")
    assert job.verdict.state == ("failed" if fails else "stopped")
    archive_of = Archive()
    for name, data in job.history.items():
        archive_of.take(name, data)
    assert not archive_of.problems
    assert archive_of.plans
    assert archive_of.span is not None


def test_a_bundle_shows_elsewhere_what_the_store_showed(tmp_path: Path, made: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    store = folder / "store"
    Job(Program(flow=build, args={"folder": str(folder), "records": 500}), 2, store, on_note=lambda _: None).run()
    paths = ["/api/job", "/api/graph", "/api/verdict", "/api/timeline", "/api/processor/1/1", "/api/why/1/0"]
    failed = {"failed": ["worker:1"]}
    with serving_all(lambda: [FollowedJob(StoreAddress.of(store))]) as url:
        when_ready(url, "/api/processor/0/0")
        before = [ask(url, path) for path in paths] + [ask(url, "/api/whatif", failed)]
    write_bundle(StoreAddress.of(store), tmp_path / "job.zip")
    shutil.rmtree(folder)
    job = read_bundle(tmp_path / "job.zip")

    def make() -> list[JobAtRest]:
        at_rest = JobAtRest("bundle-0", "store", "job.zip", history=BundledHistory(job.history))
        at_rest.show(job)
        return [at_rest]

    with serving_all(make) as url:
        after = [ask(url, path) for path in paths] + [ask(url, "/api/whatif", failed)]
    assert after == before


def rewritten(made: Path, name: str, data: bytes | None) -> bytes:
    """The bundle with another file in it, or without one."""
    out = io.BytesIO()
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            if info.filename != name:
                new.writestr(info.filename, old.read(info))
        if data is not None:
            new.writestr(name, data)
    return out.getvalue()


def another_version(made: Path) -> bytes:
    with zipfile.ZipFile(made) as archive:
        manifest = msgspec.json.decode(archive.read("manifest.json"))
    return rewritten(made, "manifest.json", msgspec.json.encode(manifest | {"format": 99}))


WRONG = {
    "another version": (another_version, "another version: its format is 99"),
    "a path out of it": (lambda made: rewritten(made, "../../etc/passwd", b"x"), "'../../etc/passwd' in it"),
    "an absolute path": (lambda made: rewritten(made, "/history/now", b"x"), "'/history/now' in it"),
    "without its job": (lambda made: rewritten(made, "job", None), "no bundle"),
    "without its head": (lambda made: rewritten(made, "manifest.json", None), "no bundle of falkirk"),
    "another job": (lambda made: rewritten(made, "job", b"\x80"), "no bundle"),
    "deep": (lambda made: rewritten(made, "manifest.json", b"[" * 100_000), "no bundle of falkirk"),
    "cut off": (lambda made: made.read_bytes()[:-100], "no bundle of falkirk, or is damaged"),
    "empty": (lambda made: b"", "no bundle of falkirk, or is damaged"),
    "no zip": (lambda made: b"PK\x03\x04" + b"x" * 1000, "no bundle of falkirk, or is damaged"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_bundle_is_refused_in_a_sentence(tmp_path: Path, made: Path, name: str) -> None:
    make, says = WRONG[name]
    (tmp_path / "job.zip").write_bytes(make(made))
    with pytest.raises(BundleError) as found:
        read_bundle(tmp_path / "job.zip")
    assert says in str(found.value)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bomb.zip").write_bytes(rewritten(made, "history/now", bytes(20 << 20)))
    monkeypatch.setattr(bundle, "MOST_BYTES", 10 << 20)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(BundleError, match="larger than any bundle"):
        read_bundle(tmp_path / "bomb.zip")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_bundle_is_whole_or_refused(
    made: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(made.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.mktemp("damaged") / "job.zip"
    file.write_bytes(whole)
    with suppress(BundleError):
        assert read_bundle(file).layout == read_bundle(made).layout


def test_a_bundle_takes_no_file_s_place_and_needs_a_job(tmp_path: Path, made: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(FalkirkError, match="there is no job"):
        write_bundle(StoreAddress.of(tmp_path / "store"), tmp_path / "job.zip")
    assert not (tmp_path / "job.zip").exists()
    with pytest.raises(BundleError, match="is there already"):
        write_bundle(StoreAddress.of(made.parent / "store"), made)
