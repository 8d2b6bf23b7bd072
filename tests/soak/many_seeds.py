"""Thousands of simulated jobs with faults, against a run without. `python -m tests.soak.many_seeds --jobs 10000`.

Every program in every kind of world has the same number of seeds. Exit code 1 if an output differs or an invariant breaks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import count, islice
from typing import Any

from falkirk.simulate.simulation import Simulation
from tests.soak.simulated_coverage import KINDS, failure_of, programs

Job = tuple[str, str, int]


@cache
def expected(name: str) -> Any:
    """Outputs of a run without faults."""
    return Simulation(programs()[name], 1).expected


def jobs(first: int) -> Iterator[Job]:
    """Every program in every kind of world with one seed after the other."""
    return ((name, kind, seed) for seed in count(first) for kind in KINDS for name in programs())


def run(job: Job) -> str:
    """Failure of a job in words; empty if all is well."""
    name, kind, seed = job
    return failure_of(name, kind, programs()[name], seed, expected(name))


def main() -> int:
    """Run and report the jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    began, done, failures = time.monotonic(), 0, 0
    with ProcessPoolExecutor(options.processes) as pool:
        for failure in pool.map(run, islice(jobs(options.first), options.jobs), chunksize=20):
            done += 1
            if failure:
                failures += 1
                print(failure, flush=True)
            if done % 500 == 0:
                print(
                    f"{done:,} of {options.jobs:,} jobs, {time.monotonic() - began:.0f} s, {failures} failed",
                    flush=True,
                )
    print(f"{done:,} jobs of {len(programs())} programs in {len(KINDS)} kinds of world, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
