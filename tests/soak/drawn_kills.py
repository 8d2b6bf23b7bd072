"""Drawn programs as real jobs, whose processes are killed at random moments: `python -m tests.soak.drawn_kills --help`.

Those of `tests.falkirk.simulate.drawn`, of both kinds, but for regions that may give records twice, for sources that ask the
clock and for outputs that depend on batches: what they capture on real processes must be, epoch by epoch, what a run without
failures gives.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from libraries.columns.verbs.dataflow import Dataflow
from runtime.program import Program
from runtime.run import run
from runtime.session.job import Result
from runtime.supervisor.supervisor import Job
from tests.falkirk.simulate.drawn import Region, built, captured, draw, draw_divided, is_exact
from tests.soak.kills import kill
from tests.support.beside import run_beside
from tests.support.processes import monitor_pid

PAUSE = 0.004
"""Seconds for each record of a source, of which there are 200 to 300."""

Outputs = dict[str, dict[int, Counter[object]]]
"""By name and epoch."""


def regions_of(seed: int) -> tuple[Region, ...]:
    """The program of a seed: in those of odd ones divisions into batches count."""
    return draw_divided(seed) if seed % 2 else draw(seed)


def build(seed: int, pause: float) -> Dataflow:
    """The program of a seed, with captures as its outputs."""
    return built(regions_of(seed), captured, pause)


def outputs(flow: Dataflow, result: Result) -> Outputs:
    """The records of all captures."""
    found: Outputs = {}
    for node in flow.graph.of_kind("capture"):
        epochs = found.setdefault(node.name, {})
        for (epoch, *_), batch in result.captured(node.name):
            epochs.setdefault(epoch, Counter()).update(batch)
    return found


class Killed:
    """The job of one program, and what kills it: so many workers, each once it has run for a while, and perhaps the monitor."""

    def __init__(self, seed: int, folder: Path, workers: int, kills: int) -> None:
        self.seed, self.kills = seed, kills
        self.random = Random(seed)
        self.over = False
        self.killed = 0
        self.told: list[str] = []
        program = Program(flow=build, args={"seed": seed, "pause": PAUSE})
        self.job = Job(program, workers, folder / "store", on_event=self._hear)

    def _hear(self, kind: str, at: float, data: object) -> None:
        self.over = self.over or kind == "finished"
        self.told.append(kind)

    def run(self) -> Result:
        """The result of the job."""
        return run_beside(self._run, self._kill)

    def _run(self) -> Result:
        try:
            return self.job.run()
        finally:
            self.over = True

    def _kill(self) -> None:
        while self.killed < self.kills and not self.over:
            time.sleep(self.random.expovariate(1 / 0.5))
            monitor = monitor_pid(self.job) if self.random.random() < 0.15 else None
            if pids := ([monitor] if monitor is not None else list(self.job.pids)):
                rises = self.told.count("watermarks")
                if not self.over and kill(self.random.choice(pids)):
                    self.killed += 1
                    self._wait_for_progress(rises)

    def _wait_for_progress(self, rises: int) -> None:
        """Until a low-watermark has risen, at most some seconds: too many failures without one would end the job."""
        late = time.monotonic() + 3
        while self.told.count("watermarks") == rises and not self.over and time.monotonic() < late:
            time.sleep(0.02)


def check(seed: int, workers: int, kills: int) -> int:
    """Run the program of a seed while it is killed. The number of kills; AssertionError if its outputs are others."""
    flow = build(seed, 0.001)  # as many records, sooner
    right = outputs(flow, run(flow, workers=workers))
    folder = Path(tempfile.mkdtemp(prefix="falkirk-drawn-"))
    job = Killed(seed, folder, workers, kills)
    given = outputs(flow, job.run())
    assert given == right, (
        f"drawn program {seed}, {workers} workers, {job.killed} kills, store in {folder}: {regions_of(seed)}"
    )
    shutil.rmtree(folder)
    return job.killed


def soak(seeds: range, kills: int) -> tuple[int, int]:
    """Programs and kills, over the seeds of programs whose outputs are exact."""
    programs = killed = 0
    for seed in seeds:
        if is_exact(regions_of(seed)):
            programs, killed = (
                programs + 1,
                killed + check(seed, 2 + seed // 2 % 2 if seed % 2 else 1 + seed % 3, kills),
            )
            print(f"program {seed}: {killed} kills in {programs} programs", flush=True)
    return programs, killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--programs", type=int, default=50)
    parser.add_argument("--kills", type=int, default=4, help="of each, at most")
    options = parser.parse_args()
    soak(range(options.first, options.first + options.programs), options.kills)


if __name__ == "__main__":
    main()
