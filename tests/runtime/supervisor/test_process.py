"""State and timers of `Keyed.process` in a job whose worker is killed, once in the middle of its timers."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Lazy
from runtime.program import Program
from timely.io import Rate
from timely.operators.process import Timers
from timely.time import Time

EPOCHS, PER_EPOCH = 30, 6


def key_of(n: int) -> int:
    return (n * n * 7 + n // 5) % 41


def build(folder: str) -> Dataflow:
    def wait(key: int, n: int, timers: Timers) -> None:
        for epoch in timers.due:
            timers.cancel(epoch)
        timers.state = (*(timers.state or ()), n)
        timers.set(timers.epoch + 1 + n % 3)

    def tell(key: int, epoch: int, timers: Timers) -> Any:
        if epoch in (10, 20):
            try:
                (Path(folder) / f"fallen-{epoch}").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        state, timers.state = timers.state, None
        yield key, state

    flow = Dataflow("process")
    total = EPOCHS * PER_EPOCH
    numbers = flow.source("in", Rate(int, per_second=300, total=total, epoch_every=PER_EPOCH))
    pairs = numbers.key_by(key_of)
    pairs.process(wait, tell).policy(Lazy(every=1)).capture("out")
    return flow


def expected() -> dict[Time, Counter[Any]]:
    state: dict[int, tuple[int, ...]] = {}
    due: dict[int, int] = {}
    told: dict[Time, Counter[Any]] = {}
    for epoch in range(EPOCHS + 3):
        for n in range(epoch * PER_EPOCH, (epoch + 1) * PER_EPOCH) if epoch < EPOCHS else ():
            key = key_of(n)
            state[key] = (*state.get(key, ()), n)
            due[key] = epoch + 1 + n % 3
        for key in [key for key, at in due.items() if at == epoch]:
            told.setdefault((epoch,), Counter())[key, state.pop(key)] += 1
            del due[key]
    return told


def test_timers_fire_once_after_two_kills(tmp_path: Path) -> None:
    program = Program(flow=build, args={"folder": str(tmp_path)})
    result = falkirk.run(program, workers=2, store=tmp_path / "store")
    assert {path.name for path in tmp_path.glob("fallen-*")} == {"fallen-10", "fallen-20"}
    found: dict[Time, Counter[Any]] = {}
    for time, batch in result.captured("out"):
        found.setdefault(time, Counter()).update(batch)
    assert found == expected()
