"""One epoch of many iterations, as real processes: a failure in its midst costs iterations, not the epoch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import networkx as nx
import pytest

import falkirk
from falkirk import Dataflow, Iterable, Lazy
from libraries.columns.verbs.columns import Stream
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.support.beside import run_beside
from timely.operators.base import Context, Operator
from timely.time import Time

ROOT = Path(__file__).resolve().parents[3]
LENGTH, FALLS = 70, 45
"""The longest of all shortest paths, and the iteration in which a process dies."""
SECONDS = 0.02
"""The least seconds of an iteration; checkpoints are ten times as far apart."""


def graph(length: int) -> nx.Graph[int]:
    """A long path with a leaf at each node."""
    path: nx.Graph[int] = nx.path_graph(length)
    path.add_edges_from((node, length + node) for node in range(length))
    return path


class _Step(Operator):
    """Goes from nodes to their neighbours; writes down which iteration it is in, and dies in one of them, once."""

    repeats_over = "time"

    def __init__(self, folder: str, kill: str, length: int) -> None:
        self._folder = Path(folder)
        self._kill = kill
        self._neighbours = {node: list(around) for node, around in graph(length).adjacency()}

    def on_batch(self, ctx: Context, port: int, time_: Time, batch: Any) -> None:
        time.sleep(SECONDS)
        fallen = self._folder / "fallen"
        with (self._folder / ("after" if fallen.exists() else "before")).open("a") as log:
            log.write(f"{time_[1]}\n")
        if self._kill and time_[1] >= FALLS and not fallen.exists():
            fallen.touch()
            if self._kill == "job":  # what is left of it ends by itself
                os.kill(int((self._folder / "pid").read_text()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        ctx.send([(to, distance + 1) for node, distance in batch for to in self._neighbours[node]])


def build(folder: str, kill: str, length: int = LENGTH) -> Dataflow:
    """The distance of each node from node 0."""
    flow = Dataflow("distances")

    def body(inner: Stream) -> tuple[Stream, Stream]:
        nearest = inner.keyed().min(name="nearest").records()
        return nearest.unary("step", lambda: _Step(folder, kill, length), stateful=False, notifies=False), nearest

    with flow.region("loop", policy=Lazy(every=10 * SECONDS, log_outputs=True)):
        begin = flow.source("begin", Iterable([(0, 0)]))
        found = begin.iterate(body, name="round")
    found.capture("out")
    return flow


def main(folder: str, kill: str, workers: int = 2) -> dict[int, int]:
    """Run the job, or go on with it; the distances."""
    Path(folder, "pid").write_text(str(os.getpid()))
    program = Program(flow=build, args={"folder": folder, "kill": kill})
    result = falkirk.run(program, workers=workers, store=Path(folder, "store"))
    return {node: distance for _, pairs in result.captured("out") for node, distance in pairs}


@pytest.mark.check
@pytest.mark.parametrize(
    ("kill", "workers"), [pytest.param("worker", 1, marks=pytest.mark.soak), ("worker", 2), ("job", 2)]
)
def test_what_was_iterated_before_a_failure_is_not_iterated_again(tmp_path: Path, kill: str, workers: int) -> None:
    if kill == "job":
        command = [
            sys.executable,
            "-c",
            f"from tests.runtime.supervisor.test_long_loops import main; main({str(tmp_path)!r}, 'job')",
        ]
        died = subprocess.run(command, cwd=ROOT, timeout=120)
        assert died.returncode == -signal.SIGKILL
    assert main(str(tmp_path), kill, workers) == nx.single_source_shortest_path_length(graph(LENGTH), 0)
    before, after = ([int(line) for line in (tmp_path / name).read_text().split()] for name in ("before", "after"))
    assert max(before) == FALLS
    assert min(after) > FALLS / 2  # some 15 iterations are lost: two checkpoints' time
    assert set(before) | set(after) >= set(range(LENGTH))


@pytest.mark.soak
def test_workers_are_killed_at_random_in_one_long_epoch_and_each_costs_some_iterations_only(tmp_path: Path) -> None:
    length, kills, random = 500, 0, Random(7)
    events: list[str] = []
    program = Program(flow=build, args={"folder": str(tmp_path), "kill": "", "length": length})
    job = Job(program, 2, tmp_path / "store", on_event=lambda kind, at, data: events.append(kind))

    def came(kind: str, after: int) -> int | None:
        """The place of the next event of a kind behind those that there were; None if the job is over first."""
        while kind not in events[after:]:
            if job.over is not None:
                return None
            time.sleep(0.01)
        return events.index(kind, after) + 1

    def disturb() -> None:
        """Kill a worker whenever something more was saved since the last one died: otherwise the job may give up."""
        nonlocal kills
        at: int | None = 0
        while kills < 15:
            if at is None or (at := came("watermarks", at)) is None:
                return
            time.sleep(random.expovariate(2))
            if job.over is None and len(pids := job.pids) == 2:
                os.kill(random.choice(pids), signal.SIGKILL)
                kills += 1
                at = came("failure", at)

    result = run_beside(job.run, disturb)
    found = {node: distance for _, pairs in result.captured("out") for node, distance in pairs}
    assert found == nx.single_source_shortest_path_length(graph(length), 0)
    assert kills > 5
    done = Counter((tmp_path / "before").read_text().split())
    assert sum(done.values()) < 2 * length + 2 * 40 * kills
