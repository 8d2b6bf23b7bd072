"""A pipeline of four steps over `--size` orders on Spark: processor seconds of all its processes, Java included.

The steps: a UDF over all orders, and a filter; a join with the customers, written as a table; sums by day and segment; sums
over all days so far. As Falkirk (a region for each step, exactly once, with a store), the orders in one epoch or (`--part
epochs`) in ten; as one PySpark batch job (`batch`); and as `foreachBatch`, ten batches (`foreach_batch`). All have the same
Java, the same settings, and the table and the last sums as their outcome. What comes of the first step only the second takes,
so it is part of that one's query, as it is with PySpark. `--part view` and `epochs_view` say so by a view; with `kept` and
`epochs_kept` it is written, and read again.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from common import arguments, report

import falkirk
from falkirk import Batch, Dataflow, Parquet, spark
from libraries.spark.setup.class_cache import options_to_use
from libraries.spark.setup.java import find_java, home_for_spark
from libraries.spark.setup.options import environment, open_session, settings

FILES, CUSTOMERS = 10, 100_000
OPTIONS = spark.SparkOptions(nice=0)
_SUBREAPER = 36  # of Linux's prctl: processes whose parent has ended become ours, and their seconds with them


def make_data(folder: Path, size: int) -> None:
    """Ten files of orders, and one of customers."""
    rng = np.random.default_rng(7)
    (folder / "orders").mkdir()
    for number in range(FILES):
        count = size // FILES
        orders = {
            "customer": rng.integers(0, CUSTOMERS, count),
            "shop": rng.integers(0, 1000, count),
            "day": rng.integers(0, 365, count),
            "cents": rng.integers(1, 100_000, count),
        }
        pq.write_table(pa.table(orders), folder / "orders" / f"{number}.parquet")
    segments = pa.array([f"segment {each}" for each in rng.integers(0, 20, CUSTOMERS)])
    pq.write_table(pa.table({"customer": np.arange(CUSTOMERS), "segment": segments}), folder / "customers.parquet")


def cleaned(orders: Any) -> Any:
    """Step 1."""
    import pandas as pd
    from pyspark.sql import functions as F

    def taxed(cents: Any, shop: Any) -> Any:
        return cents + cents * (shop % 25) // 100

    taxed.__annotations__ = dict.fromkeys(("cents", "shop", "return"), pd.Series)
    paid = F.pandas_udf(taxed, "long")("cents", "shop").alias("paid")
    return orders.where("cents > 100").select("customer", "shop", "day", paid)


def sold(orders: Any, customers: Any) -> Any:
    """Step 2."""
    return orders.join(customers, "customer").select("customer", "shop", "day", "segment", "paid")


def daily(sales: Any) -> Any:
    """Step 3."""
    from pyspark.sql import functions as F

    return sales.groupBy("day", "segment").agg(F.sum("paid").alias("paid"), F.count("*").alias("n"))


def so_far(days: Any) -> Any:
    """Step 4."""
    from pyspark.sql import functions as F

    return days.groupBy("segment").agg(F.sum("paid").alias("paid"), F.sum("n").alias("n"))


def with_falkirk(folder: Path, epochs: int, view: bool, keep: bool) -> dict[str, Any]:
    """The pipeline as regions, the first of which may be a view, or have its rows kept."""
    flow = Dataflow("pipeline")
    paths = sorted((folder / "orders").glob("*.parquet"))
    orders = flow.columns("orders", Parquet(paths, epoch=1 << 40 if epochs == 1 else "file"))
    with flow.region("history", policy=Batch(log_outputs=True)):
        clean: Any = spark.view(orders, cleaned)
        if not view:
            clean = spark.batch(orders, cleaned, options=OPTIONS, name="clean", keep=keep)
        tables = {"customers": folder / "customers.parquet"}
        sales = spark.batch({"orders": clean}, sold, tables=tables, options=OPTIONS, name="sold")
        days = spark.batch(sales, daily, options=OPTIONS, name="daily")
        spark.batch(days, so_far, over="all", options=OPTIONS, name="so-far").capture("out")
    spark.write(sales, folder / "sales")
    result = falkirk.run(flow, store=folder / "store")
    batches = result.captured("out")
    last = max(time for time, _ in batches)
    return outcome(pl.concat([pl.from_arrow(batch) for time, batch in batches if time == last]), folder)


@contextmanager
def pyspark_session(folder: Path) -> Iterator[Any]:
    """Spark in this process, as Falkirk starts it."""
    java = find_java()
    os.environ.update(environment(OPTIONS, home_for_spark(java, folder), java_options=options_to_use(java)))
    session = open_session(settings(OPTIONS, folder))
    try:
        yield session
    finally:
        gateway = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def as_batch(folder: Path) -> dict[str, Any]:
    """The pipeline as one job of PySpark's."""
    with pyspark_session(folder) as session:
        customers = session.read.parquet(str(folder / "customers.parquet"))
        sales = sold(cleaned(session.read.parquet(str(folder / "orders"))), customers)
        sales.write.parquet(str(folder / "sales"))
        days = daily(session.read.parquet(str(folder / "sales")))
        return outcome(pl.from_arrow(so_far(days).toArrow()), folder)


def as_foreach_batch(folder: Path) -> dict[str, Any]:
    """The pipeline as a function of each of ten batches."""
    with pyspark_session(folder) as session:
        customers = session.read.parquet(str(folder / "customers.parquet"))
        schema = session.read.parquet(str(folder / "orders")).schema
        last: list[Any] = []

        def write(orders: Any, number: int) -> None:
            sales, days = str(folder / f"sales/epoch={number}"), str(folder / f"days/epoch={number}")
            sold(cleaned(orders), customers).write.mode("overwrite").parquet(sales)
            daily(session.read.parquet(sales)).write.mode("overwrite").parquet(days)
            last[:] = [so_far(session.read.parquet(str(folder / "days"))).toArrow()]

        orders = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "orders"))
        writer = orders.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        writer.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()
        return outcome(pl.from_arrow(last[0]), folder)


def outcome(totals: Any, folder: Path) -> dict[str, Any]:
    """A digest of the result: the same, whoever computed it."""
    rows = sum(pq.read_metadata(file).num_rows for file in (folder / "sales").rglob("*.parquet"))
    return {"segments": len(totals), "paid": int(totals["paid"].sum()), "sales": rows, "n": int(totals["n"].sum())}


def work(folder: Path, part: str) -> dict[str, Any]:
    """One of the ways."""
    match part:
        case "batch":
            return as_batch(folder)
        case "foreach_batch":
            return as_foreach_batch(folder)
        case _:
            epochs = FILES if part.startswith("epochs") else 1
            return with_falkirk(folder, epochs, part.endswith("view"), part.endswith("kept"))


def main() -> None:
    args = arguments()
    if args.data is not None:  # in a process of its own, whose seconds are counted
        (args.data / "check").write_text(json.dumps(work(args.data, args.part)))
        return
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder, args.size)
        command = [sys.executable, __file__, "--size", str(args.size), "--part", args.part, "--data", name]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        with suppress(ChildProcessError):
            while True:
                os.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = time.perf_counter() - began
        report(used.ru_utime + used.ru_stime, took=took, check=json.loads((folder / "check").read_text()))


if __name__ == "__main__":
    main()
