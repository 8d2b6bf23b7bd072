"""Processor time of a worker with and without samples of its stacks, in turn: `python -m bench.programs.stack_samples`.

Each run is a process of its own that does the same work; the pairs are interleaved. A JSON object a line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from statistics import median, quantiles

PAIRS = 15
RECORDS = 600_000


def work() -> float:
    """Processor seconds of a word count in Python functions."""
    from libraries.columns.verbs.dataflow import Dataflow
    from runtime.session.session import Session
    from timely.io import Iterable

    flow = Dataflow("words")
    words = flow.source("words", Iterable(range(RECORDS)))
    words.map(lambda n: f"w{n % 997}").key_by(lambda word: word).count(name="count").capture("out")
    began = time.process_time()
    with Session(flow) as session:
        session.run()
    return time.process_time() - began


def main() -> None:
    """Measure, or do the work of one run."""
    if len(sys.argv) > 1:
        if sys.argv[1] == "sampled":
            from runtime.processes.stack_door import open_door

            open_door(tempfile.mkdtemp(), "worker-0")
        print(work())
        return
    found: dict[str, list[float]] = {"plain": [], "sampled": []}
    for pair in range(PAIRS):
        for how in sorted(found, reverse=bool(pair % 2)):
            command = [sys.executable, "-m", "bench.programs.stack_samples", how]
            found[how].append(float(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
    ratios = [sampled / plain for plain, sampled in zip(found["plain"], found["sampled"])]
    low, _, high = quantiles(ratios, n=4)
    print(json.dumps({"bench": "stack_samples", "value": round(median(ratios), 4), "unit": "ratio of processor time",
                      "quartiles": [round(low, 4), round(high, 4)], "pairs": PAIRS,
                      "seconds": round(median(found["plain"]), 2)}))  # fmt: skip


if __name__ == "__main__":
    main()
