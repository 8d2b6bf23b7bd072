"""A batch region on Spark: `--size` rows of (key, value) in one epoch are grouped there, and come back as columns.

Without `--part`, epoch by epoch, in turn with the hand-written way of doing it (`parquet_path`): write the rows into a Parquet
file, have a Spark session of this very process read, group and write them, read the result. Both are warm; medians in ms.

`--part latency`: one record an epoch through a keyed count, every 5 ms, first alone and then while the region works without a
pause, on the same cores: median and 99th percentile in ms, and the longest that the count stood still.

`--part memory`: 20 times `--size` rows in one epoch; by how much that raises the peak memory of the process that hands them
over, in MB.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import arguments, percentile, report

from falkirk import Batch, Dataflow, Session, spark
from libraries.spark.setup.java import find_java, home_for_spark
from libraries.spark.setup.options import environment, open_session, settings

KEYS = 10_000
WARM, ROUNDS = 3, 9
OPTIONS = spark.SparkOptions()


def rows(count: int, seed: int = 7) -> pa.Table:
    """The input: 16 bytes a row."""
    rng = np.random.default_rng(seed)
    return pa.table({"k": rng.integers(0, KEYS, count), "v": rng.integers(0, 1_000, count)})


def totals(df: Any) -> Any:
    """The work of Spark, on both ways."""
    from pyspark.sql import functions as F

    return df.groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))


def build(got: Callable[[Any], None]) -> Dataflow:
    """The region, and beside it a keyed count."""
    flow = Dataflow("spark")
    cells = flow.input("rows").to_columns()
    with flow.region("history", policy=Batch(log_outputs=True)):
        grouped = spark.batch(cells, totals, options=OPTIONS, name="history")
    grouped.inspect(got).probe("grouped")
    flow.input("records").key_by(lambda record: record).count().probe("counted")
    return flow


class Region:
    """The dataflow, fed by hand."""

    def __init__(self) -> None:
        self.sum = 0
        self.session = Session(build(self._got))
        self.rows, self.records = self.session.input("rows"), self.session.input("records")
        self.grouped, self.counted = self.session.probe("grouped"), self.session.probe("counted")
        self.epoch = -1

    def send(self, *tables: pa.Table) -> None:
        """An epoch of the region."""
        self.epoch += 1
        for table in tables:
            self.rows.send(table)
        self.rows.advance_to(self.epoch + 1)

    def seconds(self, table: pa.Table) -> float:
        """From sending rows until their groups are back."""
        began = time.perf_counter()
        self.send(table)
        self.session.step_until(lambda: self.grouped.done(self.epoch))
        return time.perf_counter() - began

    def close(self) -> None:
        """The end."""
        self.rows.close()
        self.records.close()
        self.session.run()
        self.session.close()

    def _got(self, batch: Any) -> None:
        self.sum += int(batch["s"].to_numpy().sum())


def side_by_side(size: int) -> None:
    """The region and the hand-written way, in turn."""
    table = rows(size)
    right = int(table["v"].to_numpy().sum())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(environment(OPTIONS, home_for_spark(find_java(), folder)))
        session = open_session(settings(OPTIONS, folder))
        schema = session.createDataFrame([], "k long, v long").schema
        region = Region()

        def by_hand(number: int) -> float:
            began = time.perf_counter()
            pq.write_table(table, folder / f"in-{number}.parquet")
            frame = session.read.schema(schema).parquet(str(folder / f"in-{number}.parquet"))
            totals(frame).write.parquet(str(folder / f"out-{number}"))
            found = pq.read_table(folder / f"out-{number}")
            seconds = time.perf_counter() - began
            assert int(found["s"].to_numpy().sum()) == right
            return seconds

        ours, theirs = [], []
        for number in range(WARM + ROUNDS):
            theirs.append(by_hand(number))
            ours.append(region.seconds(table))
        assert region.sum == right * (WARM + ROUNDS)
        region.close()
        session.stop()
    report(statistics.median(ours[WARM:]) * 1e3, system="falkirk", check={"sum": right})
    report(statistics.median(theirs[WARM:]) * 1e3, system="parquet_path", check={"sum": right})
    ratios = sorted(a / b for a, b in zip(ours[WARM:], theirs[WARM:], strict=True))
    report(statistics.median(ratios), system="ratio", unit="of parquet_path")


def latency(size: int) -> None:
    """The keyed count, alone and beside a region that works."""
    table = rows(size)
    region = Region()
    for _ in range(WARM):
        region.seconds(table)
    epoch = 0
    for system, beside in (("alone", False), ("beside_spark", True)):
        times: list[float] = []
        runs, longest = 0, 0.0
        ends = time.perf_counter() + 10
        last = time.perf_counter()
        while time.perf_counter() < ends:
            if beside and region.grouped.done(region.epoch):
                region.send(table)
                runs += 1
            due = time.perf_counter() + 0.005
            began = time.perf_counter()
            region.records.send([epoch % 64])
            region.records.advance_to(epoch + 1)
            region.session.step_until(lambda at=epoch: region.counted.done(at))
            now = time.perf_counter()
            times.append(now - began)
            longest, last = max(longest, now - last), now
            epoch += 1
            while time.perf_counter() < due:
                region.session.step(max(0.0, due - time.perf_counter()))
        times.sort()
        report(percentile(times, 0.5) * 1e3, p99=percentile(times, 0.99) * 1e3, system=f"latency_{system}")
        report(longest * 1e3, system=f"longest_stop_{system}")
        if beside:
            report(runs, system="runs_meanwhile", unit="runs")
    region.close()


def memory(size: int) -> None:
    """The memory that many rows take on their way through this process."""
    region = Region()
    region.seconds(rows(1000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    region.epoch += 1
    right = region.sum
    for number in range(20):
        part = rows(size, number)
        right += int(part["v"].to_numpy().sum())
        region.rows.send(part)
        region.session.step(0.0)
    region.rows.advance_to(region.epoch + 1)
    region.session.step_until(lambda: region.grouped.done(region.epoch))
    assert region.sum == right
    region.close()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report((after - before) / 1024, system="peak_memory", unit="MB")
    report(20 * size * 16 / 1e6, system="rows_themselves", unit="MB")


def main() -> None:
    args = arguments()
    {"": side_by_side, "latency": latency, "memory": memory}[args.part](args.size)
    spark.stop()


if __name__ == "__main__":
    main()
