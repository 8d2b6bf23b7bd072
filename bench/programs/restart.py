"""The silence of a job after `kill -9` of one of its workers: until the first output of an epoch that was due after that.

Each worker keeps running sums for its half of `--size` keys (about 33 bytes a key and worker), saved every second, and when
all are loaded gets 50 epochs of 1,000 records a second. `redone_of_all` is which share of the records that were handled before
the kill was handled again: without recovery it is 1. `redone_of_last_cut` is the share of what all workers together would do
again if all went back to the last checkpoint. `--part process` gives what starting such a worker process from nothing takes,
without its state.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import steady
from common import arguments, report

import falkirk

SECONDS = 26
KILLS = (4, 8, 12)
"""A worker dies when the epochs of so many seconds at the fixed rate are there, on all workers."""


def _records(keys: int, epoch: int) -> int:
    """The number of records of each worker in an epoch."""
    return keys // steady.LOADING if epoch < steady.LOADING else 1000


def main() -> None:
    args = arguments()
    if args.part == "process":
        began = time.perf_counter()
        code = "import numpy, pyarrow, polars, runtime.recovery.driver, timely.data.kernels as k; k.warm()"
        subprocess.run([sys.executable, "-c", code], check=True)
        report((time.perf_counter() - began) * 1000)
        return
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as store:
        folder = Path(name)
        killed: list[float] = []

        def wait_for(epoch: int) -> None:
            while steady.newest(folder, args.workers) < epoch:
                time.sleep(0.1)

        def kill() -> None:
            chance = random.Random(7)
            wait_for(steady.LOADING - 1)
            steady.begin(folder)
            for number, seconds in enumerate(KILLS):
                wait_for(steady.LOADING + seconds * steady.RATE)
                time.sleep(chance.random())  # anywhere between two checkpoints
                killed.append(steady.kill(folder, number % args.workers))

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        falkirk.run(steady.build(folder, args.size, SECONDS), workers=args.workers, store=store)
        thread.join()
        outputs = steady.outputs(folder)
        silent = []
        of_all, of_last_cut = [], []
        for at in killed:
            first = steady.first_sign(folder, outputs, at)
            silent.append((first - at) * 1000)
            done = {(epoch, worker) for when, epoch, worker in outputs if when < at}
            again = {(epoch, worker) for when, epoch, worker in outputs if at < when < first} & done
            redone = sum(_records(args.size, epoch) for epoch, _ in again)
            behind = {each for each in done if each[0] >= min((epoch for epoch, _ in again), default=1 << 60)}
            of_all.append(redone / sum(_records(args.size, epoch) for epoch, _ in done))
            of_last_cut.append(redone / max(sum(_records(args.size, epoch) for epoch, _ in behind), 1))
    report(statistics.median(silent), all=[round(each) for each in silent])
    report(statistics.median(of_all), system="redone_of_all", unit="share", all=of_all)
    report(statistics.median(of_last_cut), system="redone_of_last_cut", unit="share", all=of_last_cut)


if __name__ == "__main__":
    main()
