"""Real jobs that stop at a savepoint, with kills in the midst of it, and one that cannot."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery.moving.refusals import HalfWritten
from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from runtime.page.recorded import RecordedJob, read_saved
from runtime.program import Program
from runtime.supervisor import moving
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job
from tests.runtime.supervisor.moving_job import APP, EPOCHS, Runs, right
from tests.support.processes import descendants, wait_for
from timely.errors import FalkirkError

PARTS, A_PART = 4, 2
"""Partitions of the program's source, and records of each in an epoch."""


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A call in a thread of its own, and its outcome: what it returns or raises."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except FalkirkError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kills",
    [0, pytest.param(1, marks=pytest.mark.check), pytest.param(3, marks=pytest.mark.check)],
)
def test_nothing_is_read_again_after_a_savepoint(tmp_path: Path, kills: int) -> None:
    """Not even by another number of workers; processes that are killed meanwhile change nothing of the outputs."""
    expected = right(tmp_path / "right").outputs()
    runs, store = Runs(tmp_path), tmp_path / "store"
    runs.upto(25)
    with runs.start("-w", "2", "--store", str(store)) as process:
        runs.wait_for(process, 12)
        stopping, outcome = in_thread(lambda: stop_job(store, 120.0, savepoint=True))
        wait_for(lambda: (store / ".stop").exists() or outcome)
        for pid in descendants(process.pid)[:kills]:
            os.kill(pid, signal.SIGKILL)
        _, notes = process.communicate()
        stopping.join()
    assert outcome == [True]
    assert process.returncode == 143, notes
    with StoreAddress.of(store).open() as opened:
        there = RecordedJob(opened)
        assert re.fullmatch(r"stopped by .*savepoint: all before epoch \d+ is saved and published", there.verdict.text)
        assert {"saving", "stopped"} <= {event.kind for event in read_saved(opened, store_id(opened)).events}
    runs.upto(EPOCHS)
    with runs.start("-w", "3", "--store", str(store)) as process:
        _, notes = process.communicate()
    assert process.returncode == 0, notes
    assert runs.outputs() == expected
    if not kills:
        assert len(runs.read()) == EPOCHS * PARTS * A_PART


def test_an_epoch_that_does_not_end_is_named_and_the_job_goes_on(tmp_path: Path) -> None:
    expected = right(tmp_path / "right").outputs()
    runs, store = Runs(tmp_path), tmp_path / "store"
    (tmp_path / "app.py").write_text(APP.replace("if epoch >= int", "if self._next >= int"))
    runs.upto(21)  # records of each partition: of epoch 10 there is one of two
    with runs.start("-w", "2", "--store", str(store)) as process:
        runs.wait_for(process, 9)
        with pytest.raises(
            FalkirkError, match=r"epoch 10 is not complete on workers 0, 1.*'in' .*app\.py:.*job goes on"
        ):
            stop_job(store, 1.5, savepoint=True)
        runs.upto(EPOCHS * A_PART)
        _, notes = process.communicate()
    assert process.returncode == 0, notes
    assert "The job goes on" in notes
    assert runs.outputs() == expected


def numbers(folder: str) -> Any:
    import falkirk

    flow = falkirk.Dataflow("numbers")
    given = falkirk.Rate(lambda n: n, 600.0, 2_400, epoch_every=10)
    flow.source("in", given).map(lambda n: (n % 7, n), name="pairs").keyed().sum(name="sums").capture("out")
    return flow


def test_workers_of_which_some_have_saved_more_go_on_until_all_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(flow=numbers, args={"folder": str(tmp_path)})
    job = Job(program, 2, tmp_path / "store")
    stopping, _ = in_thread(lambda: stop_job(tmp_path / "store", 120.0))
    with pytest.raises(FalkirkError, match="asked to stop"):
        job.run()
    stopping.join()
    common, tried = moving._common, []

    def half_written(options: Any, before: Any, workers: int) -> Any:
        tried.append(workers)
        if len(tried) == 1:
            raise HalfWritten(before.workers, workers, ["worker 0 has persisted more than the others"])
        return common(options, before, workers)

    monkeypatch.setattr(moving, "_common", half_written)
    notes: list[str] = []
    result = Job(program, 3, tmp_path / "store", on_note=notes.append).run()
    assert tried == [3, 3]
    assert any("some of 2 worker(s) have saved more than others" in note for note in notes)
    assert any("has moved to 3" in note for note in notes)
    last: dict[int, int] = {}
    for _, batch in result.captured("out"):
        for key, total in batch:
            last[key] = max(total, last.get(key, 0))
    assert last == {key: sum(range(key, 2_400, 7)) for key in range(7)}
