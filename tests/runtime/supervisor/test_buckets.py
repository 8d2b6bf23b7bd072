"""Jobs whose store is in a bucket of a server that they do not share a life with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.runtime.job_under_test import check
from tests.runtime.watched import RECORDS, Watched
from tests.support.buckets import SECRET, Proxy, serving, use

AWAY = 3.0
"""Seconds without the server."""


def test_a_job_goes_on_from_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    with serving() as port:
        proxy = Proxy(port)
        use(proxy.port, monkeypatch)
        job = Watched(tmp_path, 2, store="s3://jobs/whole")

        def strike() -> None:
            job.until(10)
            job.kill_worker_and_monitor(1)
            proxy.go_away()
            time.sleep(AWAY)
            proxy.come_back()

        job.run(strike)
        proxy.close()
    check(tmp_path, RECORDS)
    assert SECRET not in repr((job.notes, job.events))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
