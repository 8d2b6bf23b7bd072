"""Records that wait for a later epoch, by a kept capability, in a job whose workers are killed twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Lazy
from runtime.program import Program
from tests.falkirk.simulate.later_times import AHEAD, Repeats
from timely.io import Rate
from timely.operators.base import Context
from timely.time import Time

pytestmark = pytest.mark.check

EPOCHS, PER_EPOCH = 30, 6


class Falls(Repeats):
    """The same, in a process that dies at two epochs, the first time that it comes to them."""

    def __init__(self, folder: str) -> None:
        super().__init__("batches", "due", True)
        self._folder = Path(folder)

    def on_notify(self, ctx: Context, time: Time) -> None:
        if ctx.worker == 1 and time[0] in (10, 20):
            try:
                (self._folder / f"fallen-{time[0]}").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        super().on_notify(ctx, time)


def build(folder: str) -> Dataflow:
    flow = Dataflow("later")
    total = EPOCHS * PER_EPOCH
    numbers = flow.source("in", Rate(int, per_second=300, total=total, epoch_every=PER_EPOCH)).exchange(by=lambda n: n)
    waits = numbers.unary("waits", partial(Falls, folder), holds=True).policy(Lazy(every=1))
    waits.capture("out")
    return flow


def test_what_waits_is_there_after_two_kills(tmp_path: Path) -> None:
    program = Program(flow=build, args={"folder": str(tmp_path)})
    result = falkirk.run(program, workers=2, store=tmp_path / "store")
    assert len(list(tmp_path.glob("fallen-*"))) == 2
    found: dict[Time, Counter[Any]] = {}
    for time, batch in result.captured("out"):
        found.setdefault(time, Counter()).update(batch)
    epochs = [range(at * PER_EPOCH, (at + 1) * PER_EPOCH) for at in range(EPOCHS)]
    assert found == {(at + AHEAD,): Counter(epoch) for at, epoch in enumerate(epochs)}
