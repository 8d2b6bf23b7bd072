"""Seconds from `kill -9` of something of Spark until the run that was under way has begun again, in a job with a store.

One after the other the child by which the worker speaks to Java is killed, the worker itself, and Java, each in the midst of a
run over `--size` rows. Beside that, on the same machine, in the same minute: one start of Spark in a process of its own.
`--part spare`: with a second Java that is kept warm.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import arguments, report

import falkirk
from falkirk import Batch, Batches, Dataflow, spark
from libraries.spark.host.host import host_of

VICTIMS = ("child", "worker", "java")
"""By the epoch in whose run they are killed, after one that warms up."""


class _Region:
    """The function of the region: it says when it is called, and waits to be killed where it is called first."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __call__(self, rows: Any) -> Any:
        epoch = rows.agg({"epoch": "max"}).first()[0]
        java = rows.sparkSession._jvm.java.lang.ProcessHandle.current().pid()
        calls = sum(name.startswith(f"call-{epoch}-") for name in os.listdir(self._folder))
        path = Path(self._folder, f"call-{epoch}-{calls}")
        path.with_name("writing").write_text(f"{time.time()} {os.getpid()} {java}")
        path.with_name("writing").rename(path)
        if 0 < epoch <= len(VICTIMS) and not calls:
            time.sleep(600)
        return rows.groupBy("k").sum("v")


def build(folder: Path, size: int, options: spark.SparkOptions) -> Dataflow:
    """The program."""
    rng = np.random.default_rng(7)
    keys = pa.array(rng.integers(0, 1000, size))
    tables = [pa.table({"k": keys, "v": keys, "epoch": [epoch] * size}) for epoch in range(len(VICTIMS) + 1)]
    flow = Dataflow("spark_restart")
    rows = flow.columns("rows", Batches(tables))
    rows.inspect(lambda batch: (folder / "worker").write_text(str(os.getpid())))
    with flow.region("history", policy=Batch(log_outputs=True)):
        spark.batch(rows, _Region(folder), options=options, name="history", checkpoint=0.2).capture("out")
    return flow


def one_start(options: spark.SparkOptions) -> float:
    """Seconds for Spark to start."""
    host = host_of(options)
    began = time.perf_counter()
    host.warm()
    while host.pid is None:
        time.sleep(0.01)
    seconds = time.perf_counter() - began
    spark.stop()
    return seconds


def main() -> None:
    args = arguments()
    options = spark.SparkOptions(nice=0, spare=args.part == "spare")
    java_start = one_start(spark.SparkOptions(nice=0))
    report(java_start, system="java_start")
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as store:
        folder = Path(name)
        found: dict[str, float] = {}

        def call(epoch: int, number: int) -> list[float]:
            path = folder / f"call-{epoch}-{number}"
            while not path.exists():
                time.sleep(0.005)
            return [float(each) for each in path.read_text().split()]

        def kill() -> None:
            for epoch, victim in enumerate(VICTIMS, 1):
                _, child, java = call(epoch, 0)
                worker = int((folder / "worker").read_text())
                time.sleep(1.0)
                began = time.time()
                os.kill({"child": int(child), "java": int(java), "worker": worker}[victim], signal.SIGKILL)
                found[victim] = call(epoch, 1)[0] - began

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        result = falkirk.run(build(folder, args.size, options), store=store)
        thread.join()
        assert sum(len(batch) for _, batch in result.captured("out")) == (len(VICTIMS) + 1) * 1000
    for victim in VICTIMS:
        report(found[victim], system=victim, of_a_java_start=found[victim] / java_start)


if __name__ == "__main__":
    main()
