"""Two million orders through a streaming count and, at the end of each day, through a report that Spark makes of all so far.

    python examples/orders.py                          # one worker
    falkirk run examples/orders.py -w 2 --store DIR    # survives kill -9 of a worker, and of Spark's own process

The count by shop goes on while Spark works. What Spark finds comes back as columns, at the time of its day.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import falkirk
from falkirk import Batch, Batches, agg, spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAYS, ORDERS, CUSTOMERS, SHOPS = 8, 250_000, 20_000, 40


def day(number: int) -> pa.Table:
    """The orders of a day."""
    rng = np.random.default_rng(number)
    return pa.table(
        {
            "customer": rng.zipf(1.3, ORDERS) % CUSTOMERS,
            "shop": rng.integers(0, SHOPS, ORDERS),
            "price": rng.integers(1, 500, ORDERS),
        }
    )


def best_customers(orders: DataFrame, names: DataFrame) -> DataFrame:
    """Of each region the three who spent most: a join, an aggregation and a window, which Spark is good at."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    spent = orders.groupBy("customer").agg(F.sum("price").alias("spent"), F.count("*").alias("orders"))
    ranked = Window.partitionBy("region").orderBy(F.desc("spent"), "customer")
    return spent.join(names, "customer").withColumn("rank", F.row_number().over(ranked)).where("rank <= 3")


def regions() -> pa.Table:
    """The region of each customer: a table that is there already."""
    return pa.table({"customer": range(CUSTOMERS), "region": [f"region-{c % 4}" for c in range(CUSTOMERS)]})


def build(days: int = DAYS) -> falkirk.Dataflow:
    """The dataflow."""
    flow = falkirk.Dataflow("orders")
    orders = flow.columns("orders", Batches([day(number) for number in range(days)]))
    orders.group_by("shop").agg(sold=agg.sum("price"), over="scope").capture("shops")
    with flow.region("history", policy=Batch(log_outputs=True)):
        best = spark.batch(orders, best_customers, over="all", tables={"names": regions()}, name="best-customers")
    best.capture("best")
    return flow


def main() -> int:
    """Run it, and print the last day's report."""
    result = falkirk.run(build)
    (last,) = {time for time, _ in result.captured("best")[-1:]}
    rows = [row for time, batch in result.captured("best") if time == last for row in batch.to_pylist()]
    for row in sorted(rows, key=lambda row: (row["region"], row["rank"])):
        print(
            f"{row['region']}  {row['rank']}.  customer {row['customer']:>6}  {row['orders']:>7} orders  {row['spent']:>11,}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
