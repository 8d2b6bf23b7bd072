"""The example with a region on Spark, against Polars."""

from __future__ import annotations

import polars as pl
import pytest

import falkirk
from examples import orders
from falkirk import spark

pytestmark = [pytest.mark.spark, pytest.mark.check]


def test_report_of_each_day_is_what_polars_makes_of_all_days_so_far() -> None:
    days = 2  # half a million orders
    try:
        result = falkirk.run(orders.build(days))
    finally:
        spark.stop()
    assert {time for time, _ in result.captured("best")} == {(number,) for number in range(days)}
    names = pl.DataFrame(orders.regions())
    for number in (0, days - 1):
        rows = pl.concat([pl.DataFrame(batch) for time, batch in result.captured("best") if time == (number,)])
        so_far = pl.concat([pl.DataFrame(orders.day(each)) for each in range(number + 1)])
        right = (
            so_far.group_by("customer")
            .agg(spent=pl.col("price").sum(), orders=pl.len())
            .join(names, on="customer")
            .sort("spent", "customer", descending=[True, False])
            .with_columns(rank=pl.int_range(1, pl.len() + 1).over("region"))
            .filter(pl.col("rank") <= 3)
        )
        columns = ["region", "rank", "customer", "orders", "spent"]
        assert sorted(rows.select(columns).rows()) == sorted(right.select(columns).rows())
    sold = {row["shop"]: row["sold"] for _, batch in result.captured("shops") for row in pl.DataFrame(batch).to_dicts()}
    assert sum(sold.values()) == sum(pl.DataFrame(orders.day(each))["price"].sum() for each in range(days))
