"""The same program gives the same run, byte for byte, whatever the hash seed of the process.

`python -m tests.timely.worker.test_determinism` prints the whole traffic and the output of seeded simulations.
"""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from libraries.columns import agg
from libraries.columns.verbs.dataflow import Dataflow
from runtime.links.frames import encode_frame
from runtime.session.cluster import Cluster


def program() -> Dataflow:
    """Records with strings, tuples and floats as keys, loops, joins, columns."""
    flow = Dataflow("determinism")
    words = flow.input("words")
    counts = words.key_by(lambda w: w).count()
    lengths = words.map(lambda w: (w, float(len(w)))).keyed().reduce(operator.add, over="time")
    counts.join(lengths).capture("joined")
    words.iterate(lambda i: i.map(lambda w: w[1:]).filter(bool).distinct()).capture("suffixes")
    words.distinct(over="time").exchange(lambda w: (w, w[:1], None)).capture("seen")
    table = words.map(lambda w: {"w": w, "n": len(w)}).to_columns()
    table.group_by("w").agg(n=agg.count(), total=agg.sum("n"), over="scope").capture("totals")
    table.exchange("w").to_records().capture("rows")
    return flow


def simulate(seed: int) -> list[str]:
    """Every frame that crosses between workers, encoded, and every capture, in order."""
    random = Random(seed)
    flow = program()
    cluster = Cluster(flow, 3, seed)
    lines: list[str] = []
    for link in cluster._links:
        send = link.send

        def noted(worker: int, frame: Any, send: Any = send) -> None:
            lines.append(f"{frame.sender}->{worker} {b''.join(map(bytes, encode_frame(frame))).hex()}")
            send(worker, frame)

        link.send = noted  # type: ignore[method-assign]
    for epoch in range(4):
        for session in cluster.sessions:
            words = ["".join(random.choices("abc", k=random.randrange(1, 5))) for _ in range(10 ** (epoch % 4))]
            session.input("words").send(words)
            session.input("words").advance_to(epoch + 1)
            cluster.step()
    for session in cluster.sessions:
        session.input("words").close()
    cluster.run()
    for node in flow.graph.of_kind("capture"):
        lines += [f"{node.name} {time} {batch!r}" for time, batch in cluster.captured(node.name)]
    return lines


def output(hash_seed: str) -> str:
    """The output of this module in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.timely.worker.test_determinism"],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


def test_no_run_depends_on_the_order_of_sets_or_on_hashes_of_this_process() -> None:
    expected = printed()
    assert len(expected) > 50_000
    assert output("1") == expected


def printed() -> str:
    return "\n".join(simulate(1)) + "\n"


if __name__ == "__main__":
    sys.stdout.write(printed())
