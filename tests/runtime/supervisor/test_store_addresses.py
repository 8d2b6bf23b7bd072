"""Jobs whose store is of a kind that drivers know by its address only."""

from __future__ import annotations

from pathlib import Path

import pytest

from falkirk.status_view import KILLED, status_of
from falkirk.what_if_view import predict
from recovery.store.address import StoreAddress
from runtime.page.recorded import RecordedJob
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from tests.runtime.job_under_test import GATE, check
from tests.runtime.watched import RECORDS, Watched
from tests.support.command_line import falkirk_command
from tests.support.stores import beside, installed


def test_a_job_needs_no_more_of_its_store_than_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)
    url = f"elsewhere://user:SECRET@host{tmp_path}/blobs"
    job = Watched(tmp_path, 2, store=url, gated=True)

    def strike() -> None:
        job.until(10)
        job.kill_worker_and_monitor(1)
        job.until(20)
        assert status_of(url).text.startswith("running")
        assert predict(url, ["worker:0"]).running
        assert beside(url).page.exists()
        assert stop_job(url)

    with pytest.raises(JobStopped):
        job.run(strike)
    assert [each["failed"] for each in job.of("decided")][:2] == [[0, 1], [1]]
    assert not predict(url, ["worker:0"]).running
    (tmp_path / GATE).touch()
    again = Watched(tmp_path, 2, store=url, gated=True)
    again.run(lambda: None)
    check(tmp_path, RECORDS)
    assert falkirk_command("status", url) == (0, f"{status_of(url).text}\n")
    assert status_of(url).code != KILLED
    with StoreAddress.of(url).open() as store:
        assert RecordedJob(store).saved.finished
        assert store.names("worker-001/")
    # Drivers have written by its interface only, and what is not a blob beside it, and have told nobody how to get in.
    strange = [each.name for each in (tmp_path / "blobs").iterdir() if not each.name.startswith("h-")]
    assert set(strange) <= {".lock"}
    assert beside(url).path.is_relative_to(tmp_path / "states")
    assert not beside(url).page.exists()
    assert "SECRET" not in repr((job.notes, job.events, again.notes, again.events))


@pytest.mark.parametrize(
    "command",
    [
        ("run", "app.py", "--store"),
        *(("stop",), ("inspect",), ("page",), ("status",), ("whatif",), ("monitor",), ("doctor", "--run")),
    ],
)
def test_every_command_refuses_a_wrong_address(command: tuple[str, ...]) -> None:
    code, said = falkirk_command(*command, "ftp://user:SECRET@host/jobs")
    assert code in (1, 2)
    assert (
        "there is no kind of store with addresses ftp://; there are az://, file://, gs://, s3:// and paths of folders"
        in said
    )
    assert "SECRET" not in said


@pytest.mark.check
def test_commands_take_urls_of_folders(tmp_path: Path) -> None:
    url = (tmp_path / "a store").as_uri()
    Watched(tmp_path, 1, store=url, records=200).run(lambda: None)
    check(tmp_path, 200)
    assert (tmp_path / "a store" / "store").is_file()
    assert falkirk_command("status", url)[0] == 0
    assert falkirk_command("stop", url) == (0, f"no job is using {tmp_path / 'a store'}\n")
    code, said = falkirk_command("whatif", url, "--kill", "worker:0")
    assert (code, "not running" in said) == (0, True)
