"""Incomplete epochs that a job declares after a real kill under `Amnesia`."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Amnesia
from runtime.program import Program
from timely.io import Rate

EPOCHS, PER_EPOCH, KEYS = 40, 50, 10


def _dies_once(folder: str, number: int) -> int:
    if number == EPOCHS * PER_EPOCH // 2:
        try:
            (Path(folder) / "dead").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return number


def build(folder: str) -> Dataflow:
    flow = Dataflow("forgetful")
    paced = Rate(
        int, per_second=500, total=EPOCHS * PER_EPOCH, epoch_every=PER_EPOCH
    )  # so that much was complete by then
    numbers = flow.source("in", paced).map(partial(_dies_once, folder))
    with flow.region("trends", policy=Amnesia()):
        counts = numbers.key_by(lambda number: number % KEYS).count().records()
    counts.capture("counts")
    return flow


@pytest.mark.check
def test_epochs_outside_of_the_declared_gap_are_right(tmp_path: Path) -> None:
    result = falkirk.run(Program(flow=build, args={"folder": str(tmp_path)}), workers=2, store=tmp_path / "store")
    assert (tmp_path / "dead").exists()
    (gap,) = result.incomplete["counts"]
    first, last = gap
    assert first <= EPOCHS // 2
    assert last is None, "a total that lost something stays wrong"
    each = PER_EPOCH // KEYS
    found: dict[int, dict[int, int]] = {}
    for (epoch,), counts in result.captured("counts"):
        found.setdefault(epoch, {}).update(counts)
    for epoch in range(first):
        assert found[epoch] == dict.fromkeys(range(KEYS), (epoch + 1) * each)
    final = found[EPOCHS - 1]
    assert all(count <= EPOCHS * each for count in final.values())
    assert any(count == EPOCHS * each for count in final.values()), "the other worker's keys are whole"
