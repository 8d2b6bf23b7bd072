"""`falkirk whatif` on jobs with real processes: it predicts, a process is killed, and what happens is what it said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from falkirk.what_if_view import predict
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch, Lazy
from recovery.store.local import LocalStore
from runtime.page.address import open_page
from runtime.page.recorded import RecordedJob
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.support.beside import run_beside
from tests.support.command_line import falkirk_command
from tests.support.stores import beside
from timely.errors import FalkirkError
from timely.io.interface import Chunk, End, Partition, Wait

ROOT = Path(__file__).resolve().parents[2]
HALT, LAST = 12, 20


class Halting:
    """Twenty epochs of forty numbers, and a stop before the thirteenth until `go` is there."""

    rereadable = True

    def __init__(self, go: str) -> None:
        self.go = go

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        return [HaltingPartition(self.go)] if worker == 0 else []


class HaltingPartition:
    name = "numbers"

    def __init__(self, go: str) -> None:
        self.go, self.epoch = go, 0

    def read(self) -> Chunk | Wait | End:
        if self.epoch == LAST:
            return End()
        if self.epoch == HALT and not os.path.exists(self.go):
            return Wait(seconds=0.02)
        self.epoch += 1
        return Chunk(self.epoch - 1, [self.epoch * 40 + i for i in range(40)], self.epoch, True)

    def seek(self, position: Any) -> None:
        self.epoch = position or 0

    def ack(self, position: Any) -> None: ...

    def close(self) -> None: ...


def build(go: str) -> Dataflow:
    """Behind a log, sums that are not saved before the end."""
    flow = Dataflow("halting")
    with flow.region("front", policy=Lazy(every=1)):
        numbers = flow.source("numbers", Halting(go))
    with flow.region("pairs", policy=Batch(log_outputs=True)):
        pairs = numbers.map(lambda x: (x % 7, 1))
    with flow.region("back", policy=Lazy(every=100)):
        pairs.keyed().sum(name="sums").records().capture("out")
    return flow


def at_rest(target: str, failed: Sequence[str]) -> Any:
    """The prediction when nothing moves any more."""
    last: Any = None
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            found = predict(target, failed)
        except FalkirkError:  # not begun yet
            time.sleep(0.1)
            continue
        if last == found.answer and found.answer["redone"]["records"]:
            return found
        last = found.answer
        time.sleep(0.7)
    raise AssertionError(f"it does not come to rest: {last}")


def bounds_of(found: Any) -> dict[tuple[int, int], tuple[int, ...] | None]:
    return {
        (each["operator"], each["worker"]): None if each["keeps"] else tuple(each["to"])
        for each in found.answer["processors"]
    }


@pytest.mark.check
@pytest.mark.parametrize("by_page", [False, True])
def test_what_is_predicted_is_what_a_killed_process_does(tmp_path: Path, by_page: bool) -> None:
    store, go = tmp_path / "store", tmp_path / "go"
    page = open_page("halting", port=0) if by_page else None
    decided = threading.Event()

    def hear(kind: str, at: float, data: dict[str, Any]) -> None:
        if kind == "decided" and data["generation"] > 1:
            decided.set()

    job = Job(Program(flow=build, args={"go": str(go)}), 2, store, on_event=hear, page=page)
    found: list[Any] = []

    def strike() -> None:
        try:
            found.append(at_rest(page.url if page is not None else str(store), ["worker:1"]))
            os.kill(job.pids[1], signal.SIGKILL)
            assert decided.wait(60)
        finally:
            go.touch()

    result = run_beside(job.run, strike)
    if page is not None:
        page.close()
    counted: dict[int, int] = {}
    for _, batch in result.captured("out"):
        counted.update({key: max(total, counted.get(key, 0)) for key, total in batch})
    assert sum(counted.values()) == LAST * 40
    with closing(LocalStore(store)) as local:
        decision = RecordedJob(local).saved.decision
    assert decision is not None
    predicted = bounds_of(found[0])
    assert predicted == {(p, w): bound for w, of in enumerate(decision.bounds) for p, bound in enumerate(of)}
    assert None in predicted.values()
    assert 0 < found[0].answer["redone"]["records"] < HALT * 40
    assert sum(each["messages"] for each in found[0].answer["resent"]) == HALT
    assert not beside(store).page.exists()

    again = predict(str(store), ["worker:0"])
    assert not again.running
    assert all(not each["keeps"] for each in again.answer["processors"])
    assert again.answer["redone"] is None


def test_the_command_line(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (tmp_path / "go").touch()
    Job(Program(flow=build, args={"go": str(tmp_path / "go")}), 1, store).run()
    code, shown = falkirk_command("whatif", str(store), "--kill", "worker:0")
    assert code == 0, shown
    assert "not running" in shown
    assert "sums" in shown
    assert "Worker 0 comes back at its end." in shown
    command = [sys.executable, "-m", "falkirk", "whatif", str(store), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    answer = json.loads(done.stdout)
    assert answer["running"] is False
    assert len(answer["processors"]) == len({each["operator"] for each in answer["processors"]})
    for wrong, says in (
        ([str(store), "--kill", "worker:9"], "numbered 0 to 0"),
        ([str(store), "--kill", "nobody"], "neither a worker"),
        ([str(tmp_path / "nothing")], "no store"),
        (["http://127.0.0.1:9/"], "no job answers"),
    ):
        code, refused = falkirk_command("whatif", *wrong)
        assert code == 1
        assert says in refused
