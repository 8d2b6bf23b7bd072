"""Real jobs that are killed in the midst of work, or stopped, and go on with another number of workers."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from recovery.store.address import StoreAddress
from runtime.page.recorded import RecordedJob
from tests.runtime.supervisor.moving_job import APP, EPOCHS, Runs, right


@pytest.mark.sampled(2)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["killed", "stopped"])
@pytest.mark.parametrize("numbers", [(1, 3, 2)], ids=str)
def test_a_job_goes_on_with_other_numbers_of_workers(
    tmp_path: Path, numbers: Sequence[int], end: signal.Signals
) -> None:
    expected = right(tmp_path / "right").outputs()
    runs = Runs(tmp_path)
    store = ("--store", str(tmp_path / "store"))
    upto = 0
    for former, workers in zip((0, *numbers), numbers):
        last = workers == numbers[-1]
        upto = EPOCHS if last else upto + 15
        runs.upto(upto)
        with runs.start("-w", str(workers), *store) as process:
            if not last:
                runs.wait_for(process, upto - 7)
                notes = runs.end(process, end)
            else:
                _, notes = process.communicate()
        if former:
            assert f"the state of {former} worker(s) has moved to {workers}" in notes
        if last:
            assert process.returncode == 0, notes
        with StoreAddress.of(tmp_path / "store").open() as opened:
            there = RecordedJob(opened)
            assert there.layout.workers == workers
            there.what_if(["worker:0"], lambda answer: None)
    assert runs.outputs() == expected


def test_a_program_that_cannot_move_is_refused_before_anything_starts(tmp_path: Path) -> None:
    text = APP.replace("falkirk.Lazy(every=2)", "falkirk.Eager()")
    runs = Runs(tmp_path)
    (tmp_path / "app.py").write_text(text)
    runs.upto(4)
    options = ("--store", str(tmp_path / "store"))
    with runs.start("-w", "2", *options) as process:
        runs.wait_for(process, 1)
        runs.end(process, signal.SIGINT)
    before = sorted((path, path.stat().st_size) for path in (tmp_path / "store").rglob("segment-*"))
    with runs.start("-w", "3", *options) as process:
        _, notes = process.communicate()
    assert process.returncode == 1
    assert "the store is of 2 worker(s), and the job cannot go on with 3" in notes
    assert "app.py:" in notes
    assert "is Eager" in notes
    assert sorted((path, path.stat().st_size) for path in (tmp_path / "store").rglob("segment-*")) == before
    runs.upto(EPOCHS)
    with runs.start("-w", "2", *options) as process:
        assert process.wait() == 0
