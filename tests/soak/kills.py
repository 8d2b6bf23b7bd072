"""Real processes, killed at random moments, many times: `python -m tests.soak.kills --help`.

Jobs are run one after the other until enough was killed. The outputs of each must be those of a run in which nothing happened,
its store must stay small, and so must the processes that were never killed: the supervisor, and in two jobs of three one worker
that is spared, which must be the same process at the end. In the third nobody is spared, and all workers may die at once.
`--during-recovery` is the share of kills of workers that wait for the recovery of the one before; `--busy` so many processes
that do nothing but take processor time from the job. With `--mates` each worker has a mate: of a pair the worker, the mate or
both at once are killed, half of them at any time, and the others when all mates have caught up. With `--durable` too the jobs
are under passive standby, and durable only so often, in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from runtime.program import Program
from runtime.session.job import Result
from runtime.supervisor.placement import LocalWorkers
from runtime.supervisor.processes import Child
from runtime.supervisor.supervisor import Job
from tests.runtime.job_under_test import build, check
from tests.support.beside import run_beside
from tests.support.processes import monitor_pid

PER_SECOND = 2500

STEPS = ("failure", "round", "decided", "restored", "resumed", "note")
"""The events that say how a recovery goes on."""

RECOVERING = ("assembling", "gathering", "restoring")
"""The phases in which a failure is a second one."""


@dataclass
class Phase:
    """The phase of a job, by the events that its monitor tells."""

    name: str = "assembling"
    cutting: int = 0

    def hear(self, kind: str) -> None:
        """An event was told."""
        if kind in ("round", "decided", "restored", "resumed"):
            self.name = {"round": "gathering", "decided": "restoring"}.get(kind, "running")
            self.cutting = 0
        self.cutting += (kind == "cut") - (kind == "checkpoint")

    @property
    def now(self) -> str:
        """The phase into which a kill falls now."""
        return "checkpointing" if self.name == "running" and self.cutting > 0 else self.name


def in_recovery(phases: Counter[str]) -> int:
    """Kills while the job was recovering from another failure, or had just begun."""
    return sum(phases[phase] for phase in RECOVERING)


@dataclass
class Tally:
    """The events of all jobs."""

    workers: int = 0
    monitors: int = 0
    jobs: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    """In which phase of the job each kill of a worker fell."""

    @property
    def in_recovery(self) -> int:
        """Kills of workers while the job was recovering from another failure, or had just begun."""
        return in_recovery(self.phases)

    recoveries: list[float] = field(default_factory=list)
    """Seconds from the first failure to `restored`, as the monitor has seen it."""
    longest: list[str] = field(default_factory=list)
    """The steps of the longest of them."""
    store_bytes: int = 0
    """The most that a store has held."""
    pairs: Counter[str] = field(default_factory=Counter)
    """Who of a pair was killed, and how far its mate was."""
    takeovers: int = 0
    """Workers whose place their mates took."""
    memory: list[tuple[int, int]] = field(default_factory=list)
    """Of each supervisor, in bytes: at the beginning and the end of its job."""
    survivors: list[tuple[int, int]] = field(default_factory=list)
    """The memory of each worker that was spared, in bytes: the medians in the second and in the last quarter of its job."""


class Soak:
    """One job, and what kills it."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        seconds: float,
        random: Random,
        tally: Tally,
        during_recovery: float = 0.0,
        eager: bool = False,
        mates: int = 0,
        durable: float | None = None,
    ) -> None:
        self.during_recovery = during_recovery
        self.folder = folder
        self.records = int(seconds * PER_SECOND)
        self.workers = workers
        self.random = random
        self.tally = tally
        self.phase = Phase()
        self.struck: set[int] = set()
        """Workers that were killed: they may still be there for a moment."""
        self.hasty = 0
        """Kills since a low-watermark last rose: too many in a row end the job, as they should."""
        self.over = False
        self.last: list[tuple[str, dict[str, Any]]] = []
        """Events, for when something goes wrong."""
        self.steps: list[tuple[float, str]] = []
        """The kills and events since the job ran last, and when they were."""
        self.spared = random.randrange(workers) if tally.jobs % 3 < 2 else None
        self.spared_pid: int | None = None
        self.samples: list[int] = []
        """The memory of the process that is spared, in bytes, from time to time."""
        arguments = {"folder": str(folder), "records": self.records, "per_second": PER_SECOND, "eager": eager}
        if durable is not None:
            arguments |= {"durable": durable, "every": 0.05}
        self.mated = bool(mates)
        program = Program(flow=build, args=arguments)
        self.job = Job(program, workers, folder / "store", on_event=self.hear, mates=mates)

    def hear(self, kind: str, at: float, data: dict[str, Any]) -> None:
        self.last = [*self.last[-20:], (kind, data)]
        self.over = self.over or kind == "finished"
        self.phase.hear(kind)
        if kind in STEPS:
            self.step(f"{kind} {' '.join(str(each) for each in data.values())}")
        if kind == "restored":
            self.recovered(data["seconds"])
        self.tally.takeovers += kind == "takeover"
        if kind == "watermarks":
            self.hasty = 0

    def step(self, what: str) -> None:
        self.steps.append((time.monotonic(), what))

    def recovered(self, seconds: float) -> None:
        if seconds > max(self.tally.recoveries, default=0.0):
            end = self.steps[-1][0]
            self.tally.longest = [f"{at - end + seconds:7.2f} s  {what}" for at, what in self.steps]
        self.tally.recoveries.append(seconds)
        self.steps.clear()

    def run(self, workers: int, monitors: int) -> None:
        """Run to the end, with at most so many kills."""
        before = memory(os.getpid())
        result = run_beside(self._run, lambda: self.kill_all(workers, monitors))
        check(self.folder, self.records, result.captured("counts"))
        self.tally.memory.append((before, memory(os.getpid())))
        if self.spared is not None:
            quarter = len(self.samples) // 4
            early = statistics.median(self.samples[quarter : 2 * quarter])
            late = statistics.median(self.samples[3 * quarter :])
            self.tally.survivors.append((int(early), int(late)))
        self.tally.jobs += 1

    def _run(self) -> Result:
        try:
            return self.job.run()
        finally:
            self.over = True

    def kill_all(self, workers: int, monitors: int) -> None:
        while not self.over:
            self.wait()
            self.tally.store_bytes = max(self.tally.store_bytes, size(self.folder / "store"))
            pids = self.job.pids
            if self.spared is not None:
                if self.spared_pid is None and len(pids) == self.workers:
                    self.spared_pid = pids[self.spared]
                if self.spared_pid not in pids:
                    assert self.spared_pid is None or self.over, ("the worker that was spared has gone", self.last)
                    continue
                self.samples.append(memory(self.spared_pid))
            if self.hasty >= 3 or self.over:
                continue
            if monitors and self.random.random() < 0.15:
                pid = monitor_pid(self.job)
                if pid is not None and kill(pid):
                    self.step(f"kill the monitor, {pid}")
                    monitors -= 1
                    self.tally.monitors += 1
                    self.phase.name = "assembling"
            mortal = [pid for pid in self.job.pids if pid != self.spared_pid and pid not in self.struck]
            if workers and mortal:
                phase = self.phase.now
                pid = self.random.choice(mortal)
                if self.mated and not self.strike_pair(pid):
                    continue
                if kill(pid):
                    self.struck.add(pid)
                    self.step(f"kill {pid}, one of {self.job.pids}")
                    workers -= 1
                    self.hasty += 1
                    self.tally.workers += 1
                    self.tally.phases[phase] += 1

    def strike_pair(self, pid: int) -> bool:
        """Kill the mate of a worker, or leave it; True if the worker is to be killed as well."""
        mate = self.mate_of(pid)
        whom = self.random.choice(("the worker", "the worker", "the mate", "both"))
        if whom != "the worker" and (mate is None or not kill(mate.pid)):
            return True  # there is none: the worker goes on its own
        there = "without a mate" if mate is None else "caught up" if mate.caught_up else "catching up"
        self.tally.pairs[f"{whom}, {there}"] += 1
        self.step(f"of worker {pid}: kill {whom}, mate {there}")
        return whom != "the mate"

    def all_follow(self) -> bool:
        """True if each worker has a mate that has caught up."""
        place = self.job.place
        assert isinstance(place, LocalWorkers)
        return sum(child.caught_up for child in tuple(place.mates.values())) == self.workers

    def mate_of(self, pid: int) -> Child | None:
        """Mate of the worker that is process `pid`, if it has one."""
        place = self.job.place
        assert isinstance(place, LocalWorkers)
        for where, child in tuple(place.workers.items()):
            if child.pid == pid:
                return place.mates.get(where.worker)
        return None

    def wait(self) -> None:
        """Until the next kill: as chance has it, or until the job is in the midst of its recovery from the last one."""
        if self.hasty and self.tally.in_recovery < self.during_recovery * (self.tally.workers + 1):
            late = time.monotonic() + 5.0
            while self.phase.name not in RECOVERING and not self.over and time.monotonic() < late:
                time.sleep(0.005)
            time.sleep(self.random.random() * 0.2)
        elif self.mated and self.random.random() < 0.5:
            late = time.monotonic() + 20.0
            while not self.all_follow() and not self.over and time.monotonic() < late:
                time.sleep(0.02)
            time.sleep(self.random.random())
        else:
            time.sleep(self.random.expovariate(1 / 0.5))


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Take processor time from everybody else."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in lines:
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0  # it has ended


def soak(
    kills: int,
    monitors: int,
    workers: list[int],
    seconds: float,
    seed: int,
    during_recovery: float = 0.0,
    eager: bool = False,
    mates: int = 0,
    durable: float | None = None,
) -> Tally:
    """Jobs of `seconds` of input, on as many workers as `workers` says in turn, until so much was killed."""
    tally, random = Tally(), Random(seed)
    while tally.workers < kills or tally.monitors < monitors:
        folder = Path(tempfile.mkdtemp(prefix="falkirk-soak-"))
        count = workers[tally.jobs % len(workers)]
        began = time.monotonic()
        Soak(folder, count, seconds, random, tally, during_recovery, eager, mates, durable).run(
            kills - tally.workers, monitors - tally.monitors
        )
        print(
            f"job {tally.jobs}: {count} workers, {time.monotonic() - began:.0f} s; in all {tally.workers} workers and "
            f"{tally.monitors} monitors were killed; {dict(tally.phases)}; the store held up to {tally.store_bytes:,} bytes",
            flush=True,
        )
        shutil.rmtree(folder)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--monitors", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--seconds", type=float, default=20.0, help="of input for each job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--during-recovery", type=float, default=0.0, help="share of the kills of workers")
    parser.add_argument("--busy", type=int, default=0, help="processes that take processor time from the job")
    parser.add_argument("--mates", action="store_true", help="jobs with a mate for each worker")
    parser.add_argument("--durable", type=float, help="seconds between durable checkpoints of passive standby")
    parser.add_argument("--eager", action="store_true", help="jobs of eager regions")
    options = parser.parse_args()
    with busy(options.busy):
        tally = soak(
            options.kills,
            options.monitors,
            options.workers,
            options.seconds,
            options.seed,
            options.during_recovery,
            options.eager,
            int(options.mates),
            options.durable,
        )
    print(f"{tally.in_recovery} of {tally.workers} workers were killed while the job was recovering")
    if options.mates:
        print(f"{tally.takeovers} take-overs; of pairs were killed: {dict(tally.pairs)}")
    times = sorted(tally.recoveries)
    print(f"recovery: median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s")
    print("\n".join(["the longest, from its first failure on:", *tally.longest]))
    print("memory of the supervisor (MB):", [(a >> 20, b >> 20) for a, b in tally.memory])
    print("memory of workers that were spared (MB):", [(a >> 20, b >> 20) for a, b in tally.survivors])


if __name__ == "__main__":
    main()
